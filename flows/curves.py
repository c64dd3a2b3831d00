"""Curves: which of a job's many figures are drawn in its run. A run is readable with few; all of them stand in its metrics file."""

from collections.abc import Iterable
from fnmatch import fnmatch

Point = tuple[str, float, int]
ORDER = (
    "train/loss", "train/validation_loss", "train/reward", "train/rewards/*/mean", "train/reward_std",
    "train/rewards/accuracies", "train/rewards/margins", "train/validation_*", "train/groups/*", "train/rollout/lost",
    "train/rollout/turns", "train/kl", "train/entropy", "train/completions/mean_length", "train/grad_norm",
    "train/learning_rate", "*",
)  # fmt: skip
"""The names that are drawn, the most telling first."""


def readable(points: Iterable[Point], room: int) -> list[Point]:
    """The points of at most `room` figures, by ORDER and then by name; of those the order of the points is kept."""
    found = list(points)
    names = sorted({name for name, _, _ in found}, key=lambda name: (_place(name), name))
    drawn = set(names[:room])
    return [point for point in found if point[0] in drawn]


def _place(name: str) -> int:
    return next(place for place, pattern in enumerate(ORDER) if fnmatch(name, pattern))
