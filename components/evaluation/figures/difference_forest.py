"""The forest plot of a decision: the challenger's lead over the champion for each kind of task and in all."""

from typing import TYPE_CHECKING

from ..report.words import effect_text, kinds_by_lead
from ..statistics import Estimate
from .figure import BAD, GOOD, INK, QUIET, WIDTH, Figure, canvas, shown, title

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from ..promotion import Decision


def difference_forest(decision: "Decision") -> Figure:
    """The challenger's lead in points with its intervals: each kind, from the worst change to the best, then all tasks, then all
    against the control.

    Green where the interval lies above 0, red where it lies below.
    """
    rows = [(row.kind, row.difference) for row in kinds_by_lead(decision)]
    rows.append(("all promote tasks", decision.versus_champion.difference))
    if decision.versus_control is not None:
        rows.append(("all, less the control", decision.versus_control.difference))
    drawing, axes = canvas(WIDTH, 1.2 + 0.4 * len(rows))
    for height, (_, estimate) in enumerate(reversed(rows)):
        _row(axes, height, estimate)
    axes.axvline(0, color=QUIET, linewidth=1, zorder=0)
    axes.set_yticks(range(len(rows)), [f"{shown(name)} (n = {estimate.tasks})" for name, estimate in reversed(rows)])
    axes.set_ylim(-0.6, len(rows) - 0.4)
    axes.set_xlabel(f"lead in points ({100 * decision.rule.level:g} % interval by family)")
    title(axes, f"{shown(decision.night or decision.taskset.name)}: {decision.verdict}")
    return Figure(
        drawing,
        f"The challenger's lead over the champion by kind of task; in all {effect_text(decision.versus_champion)}.",
    )


def _row(axes: "Axes", height: int, estimate: Estimate) -> None:
    if estimate.value is None:
        return
    value, interval = 100 * estimate.value, estimate.interval
    colour = QUIET
    if interval is not None:
        colour = GOOD if interval.low > 0 else BAD if interval.high < 0 else INK
        axes.plot([100 * interval.low, 100 * interval.high], [height, height], color=colour, linewidth=2)
    axes.plot([value], [height], "o", color=colour, markersize=6)
