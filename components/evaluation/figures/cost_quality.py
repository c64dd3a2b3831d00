"""What an agent's success costs: quality against tokens (or money) an episode."""

from collections.abc import Mapping, Sequence
from math import fsum
from typing import TYPE_CHECKING

from ..report.words import percent
from ..statistics import bootstrap_ci, rate_estimate
from .figure import Figure, canvas, colours, legend, nothing, shown, title

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from ..metrics import AgentResult, Attempt
    from ..statistics import Estimate, Interval

RESAMPLES = 2000
"""Of the intervals: they are looked at, and decide nothing."""


def cost_quality(results: "Mapping[str, AgentResult]", role: str | None = "promote", level: float = 0.95) -> Figure:
    """A point for each agent: success against the mean cost of an episode over tasks, both with intervals by family.

    The cost is money where every agent's episodes say it, else tokens. Up and to the left is better.
    """
    money = all(any(each.cost is not None for each in _attempts(result, role)) for result in results.values())
    unit = "cost" if money else "tokens"
    drawing, axes = canvas()
    title(axes, f"success against {unit}")
    names, said = colours(list(results)), []
    for name, result in results.items():
        success, cost, around = _point(result, role, money, level)
        if success.value is None or cost is None:
            continue
        _draw(axes, cost, around, success, names[name], name)
        said.append(f"{name} {percent(success.value)} at {cost:,.4g}")
    if not said:
        nothing(axes, f"no episode says what it cost in {unit}")
        return Figure(drawing, f"No episode says what it cost in {unit}.")
    axes.set_xlabel(f"{unit} an episode ({100 * level:g} % interval)")
    axes.set_ylabel("success, %")
    legend(drawing)
    return Figure(drawing, f"Success against {unit} an episode: {', '.join(said)}.")


def _point(
    result: "AgentResult", role: str | None, money: bool, level: float
) -> "tuple[Estimate, float | None, Interval | None]":
    """Success, and the mean over tasks of what an episode cost."""
    tasks = [task for task in result.of(role) if task.rate is not None]
    rates = [task.rate for task in tasks if task.rate is not None]
    success = rate_estimate(rates, [task.family for task in tasks], level=level, n_resamples=RESAMPLES)
    means = [(_mean_cost(task.attempts, money), task.family) for task in tasks]
    costs = [cost for cost, _ in means if cost is not None]
    families = [family for cost, family in means if cost is not None]
    if not costs:
        return success, None, None
    around = bootstrap_ci(costs, clusters=families, level=level, n_resamples=RESAMPLES)
    return success, fsum(costs) / len(costs), around


def _draw(axes: "Axes", cost: float, around: "Interval | None", success: "Estimate", colour: str, name: str) -> None:
    assert success.value is not None
    height = 100 * success.value
    if around is not None:
        axes.plot([around.low, around.high], [height, height], color=colour, linewidth=1.5)
    if success.interval is not None:
        axes.plot([cost, cost], [100 * success.interval.low, 100 * success.interval.high], color=colour, linewidth=1.5)
    axes.plot([cost], [height], "o", color=colour, markersize=8, label=f"{shown(name)}: {height:.1f} %")


def _attempts(result: "AgentResult", role: str | None) -> "list[Attempt]":
    return [each for task in result.of(role) for each in task.attempts if each.success is not None]


def _mean_cost(attempts: "Sequence[Attempt]", money: bool) -> float | None:
    found = [cost for each in attempts if each.success is not None and (cost := _cost(each, money)) is not None]
    return fsum(found) / len(found) if found else None


def _cost(attempt: "Attempt", money: bool) -> float | None:
    return attempt.cost if money else attempt.tokens
