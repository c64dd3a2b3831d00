"""Bounds: what JSON can say and tables and loaders cannot hold: whole numbers beyond 64 bit, values within values without end."""

from collections.abc import Iterator
from typing import Any

import msgspec

from components.trajectories.record import Trajectory

LARGEST = (1 << 63) - 1
DEEPEST = 64
"""Levels of lists and objects in a call's arguments; readers of JSON in tables stop not far beyond."""


def out_of_bounds(trajectory: Trajectory) -> str | None:
    """The first field that holds such a value, and what it holds; None where none does."""
    for field, value in _numbers(trajectory):
        if type(value) is int and not -LARGEST <= value <= LARGEST:
            return f"{field} is beyond 64 bit"
    for turn in trajectory.turns:
        for call in turn.calls:
            fault = _fault(call.arguments)
            if fault is not None:
                return f"turns[{turn.index}].calls: the arguments of {call.call_id!r} {fault}"
    fault = _fault(trajectory.agent.sampling) or _fault(trajectory.source_extra)
    return f"sampling or source_extra {fault}" if fault else None


def _numbers(trajectory: Trajectory) -> Iterator[tuple[str, Any]]:
    outcome = trajectory.outcome
    yield from (("attempt", trajectory.attempt), ("seed", trajectory.seed))
    yield from (("outcome.tests_passed", outcome.tests_passed), ("outcome.tests_total", outcome.tests_total))
    for turn in trajectory.turns:
        if turn.usage is not None:
            for value in msgspec.structs.astuple(turn.usage):
                yield "usage", value
        for result in turn.results:
            yield "exit_code", result.exit_code


def _fault(value: Any, depth: int = 1) -> str | None:
    """What is wrong with a value of any shape. No deeper than DEEPEST is looked."""
    kind = type(value)
    if kind is int:
        return None if -LARGEST <= value <= LARGEST else "hold a number beyond 64 bit"
    if kind is not dict and kind is not list:
        return None
    if depth > DEEPEST:
        return f"are nested more than {DEEPEST} deep"
    for each in value.values() if kind is dict else value:
        own = type(each)
        if own is str or own is bool or each is None or own is float:
            continue
        fault = _fault(each, depth + 1)
        if fault is not None:
            return fault
    return None
