"""Rules that a trajectory must satisfy beyond the types of its fields: identity, order, answered calls, plausible
numbers.
"""

import math
from collections.abc import Iterator, Mapping
from datetime import datetime
from enum import StrEnum
from typing import Any, NamedTuple

from ratchet.components.core import Role

from .trajectory import Trajectory, Turn, content_hash, episode_id, group_id

MAX_INTEGER = 2**63 - 1
"""Largest permitted integer: other readers take larger ones for text or floats, or refuse them."""
MAX_DEPTH = 64
"""Maximum nesting of free-form JSON, such as the arguments of a call."""


class RuleSeverity(StrEnum):
    """An error makes a file invalid; a warning may be intended."""

    ERROR = "error"
    WARNING = "warning"


class RuleViolation(NamedTuple):
    """One violation: the problem of one field and its remedy. `field` is a path such as `turns[3].results[0].call_id`."""

    field: str
    message: str
    advice: str
    severity: RuleSeverity = RuleSeverity.ERROR

    def __str__(self) -> str:
        return f"{self.field} {self.message}; {self.advice}".lstrip()


def rule_violations(trajectory: Trajectory) -> Iterator[RuleViolation]:
    """Yield every violation in a record whose types are valid."""
    yield from _check_identity(trajectory)
    yield from _check_task(trajectory)
    turn_by_call: dict[str, int] = {}
    for position, turn in enumerate(trajectory.turns):
        yield from _check_turn(position, turn, position + 1 == len(trajectory.turns))
        yield from _check_unmatched_results(position, turn, turn_by_call, trajectory.provenance.source == "ratchet")
        turn_by_call.update((call.call_id, position) for call in turn.calls)
    yield from _check_outcome(trajectory)
    yield from check_json_limits("agent.sampling", trajectory.agent.sampling)
    yield from check_json_limits("source_extra", trajectory.source_extra)


def build_violations(trajectory: Trajectory) -> Iterator[RuleViolation]:
    """Yield `rule_violations`, and what would stop a data build (an error) or leave the episode out of it (a warning)."""
    yield from rule_violations(trajectory)
    task, name = trajectory.task, "ratchet trajectories convert"
    if not trajectory.agent.policy_version:
        yield RuleViolation("agent.policy_version", "is missing", f"give one: `{name} --policy-version`")
    if not task.family:
        yield RuleViolation("task.family", "is missing", f"name task and family: `{name} --task-id`")
    if task.role in set(Role) and task.role != Role.TRAIN:
        yield RuleViolation("task.role", f"is {task.role!r}", "build from train tasks alone: others are held out")
    if not trajectory.turns:
        yield RuleViolation("turns", "are none", "an episode without a turn is quarantined", RuleSeverity.WARNING)
    if trajectory.outcome.success is None and not trajectory.has_infrastructure_failure:
        advice = "a build quarantines it: add the outcome to the log, or grade it"
        yield RuleViolation("outcome", "is unknown", advice, RuleSeverity.WARNING)


def _check_identity(trajectory: Trajectory) -> Iterator[RuleViolation]:
    task, version = trajectory.task, trajectory.agent.policy_version
    expected = group_id(task.task_id, task.task_hash, version)
    if trajectory.group_id != expected:
        message = _mismatch_text(trajectory.group_id, expected)
        yield RuleViolation("group_id", message, "write the one of its task and policy_version")
    if not trajectory.episode_id.strip():
        yield RuleViolation("episode_id", "is empty", "convert the log again: the reader names every episode")
    elif trajectory.provenance.source == "ratchet":
        expected = episode_id(task.task_id, task.task_hash, version, trajectory.attempt, trajectory.seed)
        if trajectory.episode_id != expected:
            advice = "restore the record, or write the identity of its task, policy_version, attempt and seed"
            yield RuleViolation("episode_id", _mismatch_text(trajectory.episode_id, expected), advice)
    expected = content_hash(trajectory)
    if trajectory.content_hash != expected:
        advice = "restore the record: it was changed after it was sealed"
        if not trajectory.content_hash:
            advice = "seal the record before it is written"
        yield RuleViolation("content_hash", _mismatch_text(trajectory.content_hash, expected), advice)


def _check_task(trajectory: Trajectory) -> Iterator[RuleViolation]:
    task, parent = trajectory.task, trajectory.parent
    for name in ("task_id", "task_hash"):
        if not getattr(task, name):
            yield RuleViolation(f"task.{name}", "is empty", "name the task: episodes are grouped by it")
    if task.role not in set(Role):
        yield RuleViolation("task.role", f"is {task.role!r}", f"write one of {', '.join(Role)}")
    yield from _check_number("attempt", trajectory.attempt, minimum=0)
    yield from _check_number("seed", trajectory.seed)
    if parent is not None and parent.episode_id == trajectory.episode_id:
        yield RuleViolation("parent.episode_id", "is the episode itself", "name the episode that was branched")
    if parent is not None and parent.turn < 0:
        yield RuleViolation("parent.turn", f"is {parent.turn}", "count turns from 0")
    collected = trajectory.provenance.collected_at
    if collected is not None and not _is_moment(collected):
        yield RuleViolation("provenance.collected_at", f"is {collected!r}", "write ISO 8601: 2026-11-21T08:00:00Z")


def _check_turn(position: int, turn: Turn, is_last: bool) -> Iterator[RuleViolation]:
    turn_path = f"turns[{position}]"
    if turn.index != position:
        advice = "number the turns from 0, without gaps"
        yield RuleViolation(f"{turn_path}.index", f"is {turn.index} and must be {position}", advice)
    yield from _check_number(f"{turn_path}.env_reward", turn.env_reward)
    for seconds in (turn.seconds, *(turn.call_seconds or ())):
        yield from _check_number(f"{turn_path}.seconds", seconds, minimum=0)
    if turn.usage is not None:
        for name in turn.usage.__struct_fields__:
            yield from _check_number(f"{turn_path}.usage.{name}", getattr(turn.usage, name), minimum=0)
    yield from _check_calls(turn_path, turn, is_last)
    call_ids = {call.call_id for call in turn.calls}
    answered: set[str] = set()
    for index, result in enumerate(turn.results):
        field = f"{turn_path}.results[{index}]"
        yield from _check_number(f"{field}.exit_code", result.exit_code)
        if result.call_id in answered and result.call_id in call_ids:
            message = f"{result.call_id!r} is answered twice"
            yield RuleViolation(f"{field}.call_id", message, "keep one result of a call", RuleSeverity.WARNING)
        answered.add(result.call_id)


def _check_calls(turn_path: str, turn: Turn, is_last: bool) -> Iterator[RuleViolation]:
    call_ids: set[str] = set()
    answered = {result.call_id for result in turn.results}
    for index, call in enumerate(turn.calls):
        field = f"{turn_path}.calls[{index}]"
        if not call.call_id:
            yield RuleViolation(f"{field}.call_id", "is empty", "name each call: results answer by it")
        elif call.call_id in call_ids:
            yield RuleViolation(f"{field}.call_id", f"{call.call_id!r} occurs twice", "give each call its own id")
        if not call.tool and call.parse_error is None:
            yield RuleViolation(f"{field}.tool", "is empty", "name it, or say in parse_error why it is unknown")
        if any(type(value) is not str for value in call.arguments.values()):
            yield from check_json_limits(f"{field}.arguments", call.arguments)
        if not is_last and call.call_id not in answered and call.parse_error is None:
            advice = "look whether the log lost its result"
            yield RuleViolation(field, f"{call.call_id!r} has no result", advice, RuleSeverity.WARNING)
        call_ids.add(call.call_id)


def _check_unmatched_results(
    position: int, turn: Turn, turn_by_call: Mapping[str, int], is_ours: bool
) -> Iterator[RuleViolation]:
    """Yield results without a call in their turn. Logs of other agents may lose calls; our own never do."""
    call_ids = {call.call_id for call in turn.calls}
    for index, result in enumerate(turn.results):
        field = f"turns[{position}].results[{index}].call_id"
        if not result.call_id or result.call_id in call_ids:
            continue
        if result.call_id in turn_by_call:
            message = f"{result.call_id!r} answers a call of turn {turn_by_call[result.call_id]}"
            yield RuleViolation(field, message, "put a result into the turn of its call")
        else:
            advice = "look whether the log lost the call; leave call_id empty for what answers none"
            severity = RuleSeverity.ERROR if is_ours else RuleSeverity.WARNING
            yield RuleViolation(field, f"{result.call_id!r} answers no call", advice, severity)


def _check_outcome(trajectory: Trajectory) -> Iterator[RuleViolation]:
    outcome = trajectory.outcome
    yield from _check_number("outcome.score", outcome.score)
    yield from _check_number("outcome.tests_passed", outcome.tests_passed, minimum=0)
    yield from _check_number("outcome.tests_total", outcome.tests_total, minimum=0)
    if _exceeds(outcome.tests_passed, outcome.tests_total):
        message = f"{outcome.tests_passed} of {outcome.tests_total} passed"
        yield RuleViolation("outcome.tests_passed", message, "look where the counts come from")
    if trajectory.has_infrastructure_failure and outcome.success is not None:
        advice = "write null: an infrastructure failure proves nothing about the policy"
        severity = RuleSeverity.ERROR if outcome.success else RuleSeverity.WARNING
        message = f"is {str(outcome.success).lower()} beside an infrastructure failure"
        yield RuleViolation("outcome.success", message, advice, severity)
    if outcome.success and _exceeds(outcome.tests_total, outcome.tests_passed):
        message = f"is true with {outcome.tests_passed} of {outcome.tests_total} tests passed"
        yield RuleViolation("outcome.success", message, "look what proved the success", RuleSeverity.WARNING)


def _exceeds(left: int | None, right: int | None) -> bool:
    return left is not None and right is not None and left > right


def check_json_limits(field: str, value: Any) -> Iterator[RuleViolation]:
    """Yield a violation of `field` where `value` is JSON that other readers refuse: numbers beyond 64 bits, or nesting
    deeper than MAX_DEPTH. Only the first is reported.
    """
    pending = [(value, 1)]
    while pending:  # no recursion: it may be nested deeper than Python's stack
        item, depth = pending.pop()
        if depth > MAX_DEPTH:
            yield RuleViolation(field, f"is nested more than {MAX_DEPTH} deep", "look what wrote it")
            return
        if isinstance(item, dict):
            pending.extend((inner, depth + 1) for inner in item.values())
        elif isinstance(item, list):
            pending.extend((inner, depth + 1) for inner in item)
        elif isinstance(item, int) and abs(item) > MAX_INTEGER:
            yield RuleViolation(field, "holds a number beyond 64 bits", "write it as text")
            return


def _check_number(field: str, value: float | None, minimum: float = -math.inf) -> Iterator[RuleViolation]:
    if value is None:
        return
    if isinstance(value, int) and abs(value) > MAX_INTEGER:
        yield RuleViolation(field, "is a number beyond 64 bits", "write null where it is unknown")
    elif not math.isfinite(value):
        yield RuleViolation(field, f"is {value}", "write a finite number, or null where it is unknown")
    elif value < minimum:
        yield RuleViolation(field, f"is {value}", f"write at least {minimum}, or null where it is unknown")


def _is_moment(text: str) -> bool:
    try:
        return datetime.fromisoformat(text.replace("Z", "+00:00")).tzinfo is not None
    except ValueError:
        return False


def _mismatch_text(actual: str, expected: str) -> str:
    return f"is {actual!r} and its content gives {expected!r}"
