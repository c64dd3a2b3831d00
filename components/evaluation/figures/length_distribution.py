"""How long each agent's episodes are, in calls."""

from collections.abc import Mapping
from statistics import median
from typing import TYPE_CHECKING

from .figure import Figure, canvas, colours, legend, nothing, shown, title

if TYPE_CHECKING:
    from ..metrics import AgentResult

LONGEST = 40
"""Calls that have a place of their own; longer episodes stand at the last."""


def length_distribution(results: "Mapping[str, AgentResult]", role: str | None = "promote") -> Figure:
    """A line for each agent: the share of its episodes by their number of calls."""
    import numpy as np

    lengths = {name: _lengths(result, role) for name, result in results.items()}
    known = {name: values for name, values in lengths.items() if values}
    drawing, axes = canvas()
    title(axes, "length of the episodes")
    if not known:
        nothing(axes, "no episode has a known outcome")
        return Figure(drawing, "No episode has a known outcome.")
    longest = min(LONGEST, max(map(max, known.values())))
    chosen = colours(list(known))
    for name, values in known.items():
        counts = np.bincount(np.minimum(values, longest), minlength=longest + 1)
        label = f"{shown(name)}: median {median(values):g}, mean {sum(values) / len(values):.2f}"
        edges = np.arange(longest + 2) - 0.5
        axes.stairs(100 * counts / len(values), edges, color=chosen[name], linewidth=1.8, label=label)
    axes.set_ylim(bottom=0)
    axes.set_xlabel(f"calls an episode{f' ({LONGEST}: that many or more)' if longest == LONGEST else ''}")
    axes.set_ylabel("episodes, %")
    legend(drawing)
    means = ", ".join(f"{name} {sum(values) / len(values):.2f}" for name, values in known.items())
    return Figure(drawing, f"Calls an episode; means: {means}.")


def _lengths(result: "AgentResult", role: str | None) -> list[int]:
    return [attempt.steps for task in result.of(role) for attempt in task.attempts if attempt.success is not None]
