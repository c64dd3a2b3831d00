"""What each step contributed, from the chance of success around it, or as its share of the outcome. Pure functions."""

import math
from collections.abc import Sequence


def progress(start: float, values: Sequence[float]) -> list[float]:
    """The change in the chance of success that each step made, in [-1, 1]; they sum to the last value less `start`.

    `start` is the chance before the first step, `values` that after each, under a prover policy: A(s, a) = Q(s, a) - V(s)
    where a step leads to one state (Setlur et al. 2024, "Rewarding Progress", process advantage verifiers).
    """
    return [after - before for before, after in zip([start, *values], values, strict=False)]


def settled(contributions: Sequence[float], total: float) -> list[float]:
    """The contributions shifted by equal amounts until they sum to `total` (to rounding), each within [-1, 1].

    What an estimator leaves unexplained is spread evenly over the steps (RUDDER, Arjona-Medina et al. 2019; SPA, Wang et al.
    2025); a step that reaches a bound stays there and the others take the rest. Contributions lie in [-1, 1] and
    |total| is at most their number; without a step there is nothing to settle.
    """
    found = list(contributions)
    free = list(range(len(found)))
    while free:
        shift = (total - math.fsum(found)) / len(free)
        for index in free:
            found[index] += shift
        over = [index for index in free if abs(found[index]) > 1]
        if not over:
            break
        for index in over:
            found[index] = math.copysign(1.0, found[index])
        free = [index for index in free if abs(found[index]) < 1]
    return found


def as_score(change: float) -> float:
    """A change in [-1, 1] as a score in [0, 1]: 0.5 where a step changed nothing. The change is 2 · score - 1."""
    return min(1.0, max(0.0, (1.0 + change) / 2.0))
