"""Learning curves: success night after night."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..report.words import percent
from .figure import GOOD, QUIET, WIDTH, Figure, canvas, colours, legend, nothing, shown, title

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from ..history import NightPoint

ROLES = ("champion", "control", "challenger", "anchor")
TICKS = 8
"""Nights that are named below the figure."""


def learning_curves(points: "Sequence[NightPoint]") -> Figure:
    """Success of each role over the nights, in the order given, with intervals; a vertical line where a challenger was promoted.

    A champion plays other tasks each night, so that a small change from night to night is chance. Nights without a decision are
    left out.
    """
    decided = [point for point in points if point.agents]
    drawing, axes = canvas(WIDTH, 4.2)
    title(axes, f"success over {len(decided)} night{'' if len(decided) == 1 else 's'}")
    if not decided:
        nothing(axes, "no night has been decided")
        return Figure(drawing, "No night has been decided.")
    for place, point in enumerate(decided):
        if point.promoted:
            axes.axvline(place, color=GOOD, alpha=0.25, linewidth=6, zorder=0)
    chosen = colours(list(ROLES))
    for number, role in enumerate(ROLES):
        _curve(axes, decided, role, chosen[role], 0.08 * (number - 1))
    step = -(-len(decided) // TICKS)
    axes.set_xticks(
        range(0, len(decided), step),
        [shown(point.night, 16) for point in decided[::step]],
        rotation=35,
        ha="right",
        rotation_mode="anchor",
    )
    axes.set_xlim(-0.5, len(decided) - 0.5)
    axes.set_ylabel("success, %")
    axes.grid(axis="y", color=QUIET, alpha=0.3)
    legend(drawing, columns=len(ROLES))
    return Figure(drawing, _alt(decided))


def _curve(axes: "Axes", points: "list[NightPoint]", role: str, colour: str, aside: float) -> None:
    """The role's points, a little aside so that intervals do not cover each other."""
    found = [
        (place + aside, each.success)
        for place, point in enumerate(points)
        if (each := point.agents.get(role)) is not None and each.success.value is not None
    ]
    if not found:
        return
    for place, success in found:
        if (interval := success.interval) is not None:
            axes.plot([place, place], [100 * interval.low, 100 * interval.high], color=colour, linewidth=1.2, alpha=0.6)
    heights = [100 * success.value for _, success in found if success.value is not None]
    axes.plot([place for place, _ in found], heights, "o-", color=colour, linewidth=1.5, markersize=5, label=role)


def _alt(points: "list[NightPoint]") -> str:
    promoted = sum(point.promoted for point in points)
    ends = [point.champion.success.value for point in (points[0], points[-1]) if point.champion is not None]
    rates = " to ".join(percent(value) for value in ends)
    return f"Success over {len(points)} nights: the champion went from {rates}; {promoted} challengers were promoted."
