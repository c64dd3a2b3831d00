"""History: what the nights came to, one after another, whether a champion fell behind the one before, and whether the ground moved.

`night_point` reduces a decision record, `regressions` compares champions, `drift` watches agents that stayed as they were.
"""

from .change import Change, compared, regressions
from .drift import Appearance, Drift, appearances, drift
from .point import NightCost, NightPoint, NightQuality, Standing, night_point

__all__ = [
    "Appearance",
    "Change",
    "Drift",
    "NightCost",
    "NightPoint",
    "NightQuality",
    "Standing",
    "appearances",
    "compared",
    "drift",
    "night_point",
    "regressions",
]
