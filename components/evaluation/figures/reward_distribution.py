"""How the rewards of each agent's episodes are distributed."""

from collections.abc import Mapping
from math import fsum
from typing import TYPE_CHECKING

from .figure import Figure, canvas, colours, legend, nothing, shown, title

if TYPE_CHECKING:
    from ..metrics import AgentResult

BINS = 20


def reward_distribution(results: "Mapping[str, AgentResult]", role: str | None = "promote") -> Figure:
    """A line for each agent: the share of its episodes by reward, in bins over [0, 1]; a mark below at its mean."""
    import numpy as np

    rewards = {name: _rewards(result, role) for name, result in results.items()}
    known = {name: values for name, values in rewards.items() if values}
    drawing, axes = canvas()
    title(axes, "rewards of the episodes")
    if not known:
        nothing(axes, "no episode has a reward")
        return Figure(drawing, "No episode has a reward.")
    chosen = colours(list(known))
    for name, values in known.items():
        shares, edges = np.histogram(np.clip(values, 0, 1), bins=BINS, range=(0, 1))
        mean = fsum(values) / len(values)
        label = f"{shown(name)}: mean {mean:.3f} (n = {len(values):,})"
        axes.stairs(100 * shares / len(values), edges, color=chosen[name], linewidth=1.8, label=label)
        axes.plot([mean], [0], "^", color=chosen[name], markersize=9, clip_on=False)
    axes.set_xlim(0, 1)
    axes.set_ylim(bottom=0)
    axes.set_xlabel("reward")
    axes.set_ylabel("episodes, %")
    legend(drawing)
    means = ", ".join(f"{name} {fsum(values) / len(values):.3f}" for name, values in known.items())
    return Figure(drawing, f"Distribution of rewards; means: {means}.")


def _rewards(result: "AgentResult", role: str | None) -> list[float]:
    return [
        attempt.reward
        for task in result.of(role)
        for attempt in task.attempts
        if attempt.reward is not None and attempt.success is not None
    ]
