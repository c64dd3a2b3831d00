"""Figures of evaluations: each function reads records and gives a Figure: `.png()`, `.svg()`, `.alt`. Pure, over matplotlib."""

from .calibration import calibration
from .cost_quality import cost_quality
from .difference_forest import difference_forest
from .failure_confusion import failure_confusion
from .figure import Figure
from .learning_curves import learning_curves
from .length_distribution import length_distribution
from .reward_distribution import reward_distribution
from .success_bars import success_bars

__all__ = [
    "Figure",
    "calibration",
    "cost_quality",
    "difference_forest",
    "failure_confusion",
    "learning_curves",
    "length_distribution",
    "reward_distribution",
    "success_bars",
]
