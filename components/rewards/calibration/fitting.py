"""Fitting: labels to a curve. Each fit is convex and has one answer; equal data give equal curves."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from .curve import EDGE, AnyCurve, Beta, Identity, Isotonic, Logistic

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

RIDGE = 0.1
"""Pull of the parameters towards the identity: a fit stays finite where a threshold parts right from wrong."""
_STEPS, _TOLERANCE = 100, 1e-12

Fit = Callable[["Floats", "Floats", "Floats"], AnyCurve]
"""Distinct scores rising (n,), their mean labels (n,), and how many each has (n,)."""


def fit(kind: str, scores: Sequence[float], labels: Sequence[float]) -> AnyCurve:
    """The curve of one of KINDS over at least one score (n,) with its label (n,), both in [0, 1]."""
    import numpy as np

    values, place = np.unique(np.asarray(scores, dtype=np.float64), return_inverse=True)
    counts = np.bincount(place).astype(np.float64)
    means = np.bincount(place, weights=np.asarray(labels, dtype=np.float64)) / counts
    return KINDS[kind](values, means, counts)


def _identity(scores: "Floats", labels: "Floats", counts: "Floats") -> Identity:
    return Identity()


def _isotonic(scores: "Floats", labels: "Floats", counts: "Floats") -> Isotonic:
    """Pool adjacent violators (Ayer et al. 1955): the rising step function nearest to the labels, as knots at its blocks' ends."""
    blocks: list[list[float]] = []  # mean, weight, first score, last score
    for score, label, count in zip(scores.tolist(), labels.tolist(), counts.tolist(), strict=True):
        blocks.append([label, count, score, score])
        while len(blocks) > 1 and blocks[-2][0] >= blocks[-1][0]:
            mean, weight, _, last = blocks.pop()
            before = blocks[-1]
            total = before[1] + weight
            before[0] = (before[0] * before[1] + mean * weight) / total
            before[1], before[3] = total, last
    knots = [(at, mean) for mean, _, first, last in blocks for at in ((first, last) if last > first else (first,))]
    return Isotonic(tuple(x for x, _ in knots), tuple(min(1.0, max(0.0, y)) for _, y in knots))


def _logistic(scores: "Floats", labels: "Floats", counts: "Floats") -> Logistic:
    import numpy as np

    inside = np.clip(scores, EDGE, 1 - EDGE)
    features = np.stack([np.log(inside) - np.log1p(-inside), np.ones_like(inside)], axis=1)
    slope, shift = _rising(features, np.array([1.0, 0.0]), labels, counts)
    return Logistic(slope, shift)


def _beta(scores: "Floats", labels: "Floats", counts: "Floats") -> Beta:
    import numpy as np

    inside = np.clip(scores, EDGE, 1 - EDGE)
    features = np.stack([np.log(inside), -np.log1p(-inside), np.ones_like(inside)], axis=1)
    a, b, c = _rising(features, np.array([1.0, 1.0, 0.0]), labels, counts)
    return Beta(a, b, c)


KINDS: dict[str, Fit] = {"identity": _identity, "logistic": _logistic, "beta": _beta, "isotonic": _isotonic}
"""By how much each can bend, least first."""


def _rising(features: "Floats", identity: "Floats", labels: "Floats", counts: "Floats") -> list[float]:
    """Regression in which every slope (all columns but the last) is at least 0: one that would fall is left out."""
    import numpy as np

    kept = list(range(len(identity)))
    while True:
        found = _regress(features[:, kept], identity[kept], labels, counts)
        falling = [
            column for column, value in zip(kept, found, strict=True) if value < 0 and column < len(identity) - 1
        ]
        if not falling:
            break
        kept = [column for column in kept if column not in falling]
    whole = np.zeros(len(identity))
    whole[kept] = found
    return [float(value) for value in whole]


def _regress(features: "Floats", identity: "Floats", labels: "Floats", counts: "Floats") -> "Floats":
    """Newton's method with halved steps on the cross-entropy of soft labels (n,), pulled towards `identity` (k,)."""
    import numpy as np

    def loss(values: "Floats") -> float:
        logit = features @ values
        entropy = np.logaddexp(0.0, logit) - labels * logit
        return float(counts @ entropy + RIDGE / 2 * ((values - identity) ** 2).sum())

    values, current = identity.copy(), loss(identity)
    for _ in range(_STEPS):
        chance = 1 / (1 + np.exp(-np.clip(features @ values, -500, 500)))
        gradient = features.T @ (counts * (chance - labels)) + RIDGE * (values - identity)
        curvature = (features * (counts * chance * (1 - chance))[:, None]).T @ features + RIDGE * np.eye(len(values))
        step = np.linalg.solve(curvature, gradient)
        size = 1.0
        while (found := loss(values - size * step)) > current and size > 1e-6:
            size /= 2
        if current - found <= _TOLERANCE * (1 + abs(current)):
            break
        values, current = values - size * step, found
    return values
