"""Curves: a score as a judge gave it to the score that labels support. Monotone, from [0, 1] into [0, 1], in pure Python."""

import math
from bisect import bisect_right

import msgspec

EDGE = 0.005
"""Scores nearer to 0 or 1 than this are moved here before a logarithm is taken."""


class Curve(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="kind"):
    """What all curves do."""

    def __call__(self, score: float) -> float:
        """The calibrated score."""
        raise NotImplementedError


class Identity(Curve, frozen=True, forbid_unknown_fields=True, tag="identity", tag_field="kind"):
    """Scores stay as they are."""

    def __call__(self, score: float) -> float:
        """The score itself."""
        return score


class Logistic(Curve, frozen=True, forbid_unknown_fields=True, tag="logistic", tag_field="kind"):
    """logit p = slope · logit s + shift: Platt (1999) on log-odds, so that slope 1 and shift 0 change nothing."""

    slope: float
    shift: float

    def __call__(self, score: float) -> float:
        """The calibrated score."""
        score = _inside(score)
        return sigmoid(self.slope * (math.log(score) - math.log1p(-score)) + self.shift)


class Beta(Curve, frozen=True, forbid_unknown_fields=True, tag="beta", tag_field="kind"):
    """logit p = a · ln s - b · ln(1 - s) + c: beta calibration (Kull, Silva Filho & Flach 2017), a and b not negative."""

    a: float
    b: float
    c: float

    def __call__(self, score: float) -> float:
        """The calibrated score."""
        score = _inside(score)
        return sigmoid(self.a * math.log(score) - self.b * math.log1p(-score) + self.c)


class Isotonic(Curve, frozen=True, forbid_unknown_fields=True, tag="isotonic", tag_field="kind"):
    """Straight lines between knots of rising x and y, and level beyond them (Zadrozny & Elkan 2002)."""

    x: tuple[float, ...]
    y: tuple[float, ...]

    def __call__(self, score: float) -> float:
        """The calibrated score."""
        after = bisect_right(self.x, score)
        if after == 0 or after == len(self.x):
            return self.y[0 if after == 0 else -1]
        left, right = self.x[after - 1], self.x[after]
        share = (score - left) / (right - left)
        return self.y[after - 1] + share * (self.y[after] - self.y[after - 1])


AnyCurve = Identity | Logistic | Beta | Isotonic


def sigmoid(value: float) -> float:
    """1 / (1 + e^-value), without overflow."""
    if value >= 0:
        return 1 / (1 + math.exp(-value))
    small = math.exp(value)
    return small / (1 + small)


def _inside(score: float) -> float:
    return min(1 - EDGE, max(EDGE, score))
