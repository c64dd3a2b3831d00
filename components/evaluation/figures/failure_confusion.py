"""The confusion of failure causes: how each attempt ended for one agent and for the other."""

from typing import TYPE_CHECKING

from ..confusion import confusion
from .figure import GOOD, INK, WIDTH, Figure, canvas, nothing, shown, title

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from ..confusion import Confusion
    from ..metrics import AgentResult

NAME = 18
"""Characters of a cause."""


def failure_confusion(a: "AgentResult", b: "AgentResult", role: str | None = "promote") -> Figure:
    """A matrix of counts: rows are how attempts ended for `a`, columns how the same attempts ended for `b`."""
    found = confusion(a, b, role)
    size = len(found.causes)
    drawing, axes = canvas(WIDTH, 1.6 + 0.42 * size)
    title(axes, f"how the same attempts ended: {shown(a.name)} and {shown(b.name)}")
    if not found.total:
        nothing(axes, "no attempt has a known outcome of both")
        return Figure(drawing, f"{a.name} and {b.name} share no attempt with a known outcome.")
    _matrix(axes, found)
    stayed = sum(found.counts[place][place] for place in range(size))
    return Figure(
        drawing,
        f"Of {found.total} attempts of {a.name} and {b.name}, {stayed} ended alike; {b.name} solved "
        f"{sum(row[0] for row in found.counts[1:])} that {a.name} did not, and lost {sum(found.counts[0][1:])} that it did.",
    )


def _matrix(axes: "Axes", found: "Confusion") -> None:
    from matplotlib.colors import LinearSegmentedColormap, PowerNorm, to_rgba

    most = max(map(max, found.counts))
    # Half transparent at most, so that the numbers are readable in INK on a light page and on a dark one.
    shades = LinearSegmentedColormap.from_list("counts", [to_rgba(GOOD, 0.0), to_rgba(GOOD, 0.5)])
    places = range(len(found.causes))
    axes.pcolormesh(places, places, found.counts, cmap=shades, norm=PowerNorm(0.5, 0, most), shading="nearest")
    axes.invert_yaxis()
    for row, counts in enumerate(found.counts):
        for column, count in enumerate(counts):
            axes.text(column, row, f"{count:,}" if count else "·", ha="center", va="center", color=INK)
    names = [shown(cause, NAME) for cause in found.causes]
    axes.set_xticks(places, names, rotation=35, ha="right", rotation_mode="anchor")
    axes.set_yticks(places, names)
    axes.set_xlabel(shown(found.b))
    axes.set_ylabel(shown(found.a))
