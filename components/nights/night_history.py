"""The nights of this home as table rows and as points of a history, read from their state alone."""

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from ratchet.components.core import DataError
from ratchet.components.evaluation.night_trends import NightCost, NightPoint, NightQuality, night_point

from .comparison_plan import list_comparisons
from .night_state import Night, list_nights, night_decision, running_night


class NightRow(msgspec.Struct, frozen=True):
    """One night. `champion`, `challenger` and `control` are success rates on the deciding tasks as text (`61.5 %`);
    None before they are known.
    """

    night: str
    scale: str
    seed: int
    state: str
    verdict: str | None = None
    champion: str | None = None
    challenger: str | None = None
    control: str | None = None


class _Rate(msgspec.Struct):
    value: float | None = None


class _AgentSummary(msgspec.Struct):
    success: _Rate


class _DecisionSummary(msgspec.Struct):
    """The part of a decision record that a row shows, for records of any version; decoding all of it would take longer."""

    verdict: str
    champion: _AgentSummary | None = None
    challenger: _AgentSummary | None = None
    control: _AgentSummary | None = None


def night_rows() -> list[NightRow]:
    """Return every night, oldest first."""
    running = running_night()
    return [_row(night, running) for night in list_nights()]


def describe_progress(night: Night, running: str | None) -> str:
    """Return a night's progress in words; `running` is the id of the night that holds the lock (None: none does)."""
    if night.is_finished:
        return "finished"
    done = len(night.results)
    return f"running, {done} steps done" if running == night.id else f"interrupted after {done} steps"


def _row(night: Night, running: str | None) -> NightRow:
    state = describe_progress(night, running)
    try:
        decision = night.result("decision", _DecisionSummary)
    except DataError as error:
        return NightRow(night.id, night.scale, night.seed, str(error))
    if decision is None:
        return NightRow(night.id, night.scale, night.seed, state)
    agents = (decision.champion, decision.challenger, decision.control)
    rates = (
        None if agent is None or agent.success.value is None else f"{100 * agent.success.value:.1f} %"
        for agent in agents
    )
    return NightRow(night.id, night.scale, night.seed, state, decision.verdict, *rates)


class _JudgeCost(msgspec.Struct):
    """The part of a judge report that a point shows."""

    tokens: int | None = None
    money: float | None = None


class _BuildMetrics(msgspec.Struct):
    """The part of a build report that a point shows."""

    metrics: dict[str, float | None] = {}


def night_points() -> list[NightPoint]:
    """Return every night of this home, oldest first; without a verdict where a night has not decided."""
    running = running_night()
    return [build_night_point(night, describe_progress(night, running)) for night in list_nights()]


def build_night_point(night: Night, state: str = "") -> NightPoint:
    """Return the point of one night. `state`: its progress in words (empty: derived from the night). Where the
    night's state or decision cannot be read, the point's `state` says why and the rest is empty.
    """
    identity: dict[str, Any] = {"night": night.id, "begun": night.begun, "scale": night.scale, "recipe": night.recipe}
    try:
        measurements = identity | {"cost": _cost(night), "quality": _quality(night)}
        return night_point(night_decision(night), state=state or describe_progress(night, None), **measurements)
    except DataError as error:
        return night_point(None, state=str(error), **identity)


def _cost(night: Night) -> NightCost:
    """Sum the costs that steps report: collections (they have a taskset), training jobs (a checkpoint), judging.

    Steps up to a look are part of the evaluation's report. Older nights recorded no seconds: those of the reports are
    used.
    """
    results, seconds = night.results, night.seconds
    reports = list(_reports({step: result for step, result in results.items() if not step.startswith("look ")}))
    collections = [report for report in reports if "taskset_hash" in report]
    jobs = [report for report in reports if "checkpoint" in report and "tokens" in report]
    judging = night.result("judge", _JudgeCost) or _JudgeCost()
    return NightCost(
        seconds=seconds
        or {step: duration for step, result in results.items() if (duration := _seconds(result)) is not None},
        episodes=_sum(collections, "episodes"),
        trained_tokens=_sum(jobs, "tokens"),
        judge_tokens=judging.tokens,
        money=judging.money,
    )


def _quality(night: Night) -> NightQuality | None:
    built = night.result("build", _BuildMetrics)
    if built is None or not built.metrics:
        return None
    metrics = {name: value for name, value in built.metrics.items() if value is not None}
    failed = {name.removeprefix("failed_"): int(count) for name, count in metrics.items() if name.startswith("failed_")}
    counts = {name: int(metrics[name]) for name in ("episodes", "quarantined") if name in metrics}
    return NightQuality(**counts, failed=failed)


def _reports(value: object) -> Iterator[dict[str, Any]]:
    """Yield every mapping within a result, outermost first."""
    if isinstance(value, Mapping):
        yield dict(value)
        for item in value.values():
            yield from _reports(item)


def _seconds(result: object) -> float | None:
    """Return the seconds of a step: its own, or the longest of its parallel parts."""
    if not isinstance(result, Mapping):
        return None
    own_seconds = result.get("seconds")
    if isinstance(own_seconds, int | float):
        return float(own_seconds)
    parts = [seconds for part in result.values() if (seconds := _seconds(part)) is not None]
    return max(parts, default=None)


def _sum(reports: list[dict[str, Any]], name: str) -> int | None:
    counts = [int(report[name]) for report in reports if isinstance(report.get(name), int | float)]
    return sum(counts) if counts else None


def models_in_use() -> dict[str, str]:
    """Return the policy versions of all models that unfinished nights and comparisons have found, registered or trained,
    each with its user. Raises DataError.
    """
    unfinished = [state for state in (*list_nights(), *list_comparisons()) if not state.is_finished]
    return {version: f"unfinished {state.id}" for state in unfinished for version, _ in recorded_models(state.results)}


def recorded_models(value: Any) -> Iterator[tuple[str, str]]:
    """Yield policy version and checkpoint of each model in the results of steps (NightModels as JSON values)."""
    if isinstance(value, dict):
        version, checkpoint = value.get("policy_version"), value.get("checkpoint")
        if isinstance(version, str) and isinstance(checkpoint, str):
            yield version, checkpoint
        for part in value.values():
            yield from recorded_models(part)
    elif isinstance(value, list | tuple):
        for part in value:
            yield from recorded_models(part)
