"""History: the nights of this home as points, from their state and decision records; no server is asked and nothing is played."""

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from components.evaluation.history import NightCost, NightPoint, NightQuality, night_point
from components.evaluation.promotion import Decision, read_decision
from components.protocol import DataError

from .lock import holder
from .state import Night, nights
from .status import state_of


def night_points() -> list[NightPoint]:
    """Every night of this home, oldest first; one that has decided nothing is there without a verdict."""
    running = holder()
    return [night_point_of(night, state_of(night, running)) for night in nights()]


def night_point_of(night: Night, state: str = "") -> NightPoint:
    """The point of one night. A decision that cannot be read is none: `state` says why."""
    results = night.results
    known: dict[str, Any] = {
        "night": night.id,
        "begun": night.begun,
        "scale": night.scale,
        "recipe": night.recipe,
        "cost": _cost(results, night.seconds),
        "quality": _quality(results),
    }
    try:
        return night_point(_decision(results), state=state or state_of(night, None), **known)
    except DataError as error:
        return night_point(None, state=f"its decision cannot be read: {error}", **known)


def _decision(results: Mapping[str, Any]) -> Decision | None:
    record = results.get("decision")
    return None if record is None else read_decision(msgspec.json.encode(record))


def _cost(results: Mapping[str, Any], seconds: Mapping[str, float]) -> NightCost:
    """What the steps report of themselves: collections by their taskset, training jobs by their checkpoint. An older night kept no
    time of its own: it has that of the steps that say it.
    """
    reports = list(_reports(results))
    collections = [each for each in reports if "taskset_hash" in each]
    jobs = [each for each in reports if "checkpoint" in each and "tokens" in each]
    judged = results.get("judge") or {}
    return NightCost(
        seconds=dict(seconds)
        or {step: told for step, result in results.items() if (told := _seconds(result)) is not None},
        episodes=_sum(collections, "episodes"),
        trained_tokens=_sum(jobs, "tokens"),
        judge_tokens=judged.get("tokens"),
        money=judged.get("money"),
    )


def _quality(results: Mapping[str, Any]) -> NightQuality | None:
    metrics = (results.get("build") or {}).get("metrics")
    if not metrics:
        return None
    failed = {name.removeprefix("failed_"): int(count) for name, count in metrics.items() if name.startswith("failed_")}
    counts = {name: int(metrics[name]) for name in ("episodes", "quarantined") if metrics.get(name) is not None}
    return NightQuality(**counts, failed=failed)


def _reports(value: object) -> Iterator[dict[str, Any]]:
    """Every mapping within the results, from the outside in."""
    if isinstance(value, Mapping):
        yield dict(value)
        for each in value.values():
            yield from _reports(each)


def _seconds(result: object) -> float | None:
    """What a step took: its own figure, or the longest of those that ran beside each other."""
    if not isinstance(result, Mapping):
        return None
    own = result.get("seconds")
    if isinstance(own, int | float):
        return float(own)
    parts = [seconds for each in result.values() if (seconds := _seconds(each)) is not None]
    return max(parts, default=None)


def _sum(reports: list[dict[str, Any]], name: str) -> int | None:
    counts = [int(each[name]) for each in reports if isinstance(each.get(name), int | float)]
    return sum(counts) if counts else None
