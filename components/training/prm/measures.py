"""How well scores tell good from bad, on steps that a model has not learned from. Pure functions of values."""

from collections.abc import Sequence

GOOD = 0.5
"""A target of at least this is a good step, a score of at least this says that it is one."""


def auroc(scores: Sequence[float], targets: Sequence[float]) -> float | None:
    """The chance that a good step scores higher than a bad one, a tie counting half; None where either is missing.

    The Mann-Whitney statistic over ranks, in n log n.
    """
    order = sorted(range(len(scores)), key=scores.__getitem__)
    good = sum(target >= GOOD for target in targets)
    bad = len(targets) - good
    if not good or not bad:
        return None
    ranks, begin = 0.0, 0
    while begin < len(order):
        end = begin
        while end < len(order) and scores[order[end]] == scores[order[begin]]:
            end += 1
        ranks += (begin + 1 + end) / 2 * sum(targets[index] >= GOOD for index in order[begin:end])
        begin = end
    return (ranks - good * (good + 1) / 2) / (good * bad)


def brier(scores: Sequence[float], targets: Sequence[float]) -> float:
    """The mean squared difference of scores and targets."""
    return sum((score - target) ** 2 for score, target in zip(scores, targets, strict=True)) / len(scores)


def accuracy(scores: Sequence[float], targets: Sequence[float]) -> float:
    """The share of steps on whose side of GOOD the score stands."""
    right = sum((score >= GOOD) == (target >= GOOD) for score, target in zip(scores, targets, strict=True))
    return right / len(scores)
