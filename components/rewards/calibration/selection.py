"""Selection: which curve a pool of labels supports, by cross-validation over episodes.

A pool is given a curve of its own only where, on episodes that the curve was not fitted to, it beats what the pool would use
otherwise, clearly: a one-sided paired test, clustered by episode. The error is squared, which no curve can improve but by telling
the truth (a proper score). Of curves that do equally well the one that bends least is taken.
"""

from collections.abc import Sequence
from hashlib import blake2b
from typing import TYPE_CHECKING, NamedTuple

from .curve import AnyCurve
from .fitting import KINDS, fit
from .pairs import Pair

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

FOLDS = 5


class Chosen(NamedTuple):
    """`curve` is None where the pool keeps what it would use otherwise. `held_out` (n,): the scores by its choice
    of episodes that were not fitted to. `p_value` of its improvement.
    """

    curve: AnyCurve | None
    held_out: "Floats"
    p_value: float


def fold_of(episode_id: str) -> int:
    """The fold of an episode, the same in every pool, so that what is held out stays held out."""
    return int.from_bytes(blake2b(episode_id.encode(), digest_size=4).digest()) % FOLDS


def choose(pairs: Sequence[Pair], otherwise: "Floats", alpha: float) -> Chosen:
    """The curve for a pool. `otherwise` (n,) are the held-out scores that it would use without one of its own."""
    import numpy as np

    label = np.array([pair.label for pair in pairs])
    clusters = cluster_numbers(pairs)
    held_out = {kind: _held_out(kind, pairs) for kind in KINDS}
    losses = {kind: (found - label) ** 2 for kind, found in held_out.items()}
    best = min(losses, key=lambda kind: float(losses[kind].mean()))
    kind = next(each for each in KINDS if _no_worse(losses[each], losses[best], clusters))
    gain, error = paired((otherwise - label) ** 2 - losses[kind], clusters)
    p_value = _upper_tail(gain, error, int(clusters.max()))
    if p_value >= alpha:
        return Chosen(None, otherwise, p_value)
    curve = fit(kind, [pair.score for pair in pairs], [pair.label for pair in pairs])
    return Chosen(curve, held_out[kind], p_value)


def _held_out(kind: str, pairs: Sequence[Pair]) -> "Floats":
    """Every score by the curve of the other folds."""
    import numpy as np

    fold = [fold_of(pair.episode_id) for pair in pairs]
    found = np.empty(len(pairs))
    for number in set(fold):
        rest = [pair for pair, each in zip(pairs, fold, strict=True) if each != number]
        curve = fit(kind if rest else "identity", [p.score for p in rest or pairs], [p.label for p in rest or pairs])
        for place, (pair, each) in enumerate(zip(pairs, fold, strict=True)):
            if each == number:
                found[place] = curve(pair.score)
    return found


def cluster_numbers(pairs: Sequence[Pair]) -> "NDArray[np.int64]":
    """The number of each pair's episode (n,), from 0."""
    import numpy as np

    numbers: dict[str, int] = {}
    return np.array([numbers.setdefault(pair.episode_id, len(numbers)) for pair in pairs], dtype=np.int64)


def paired(differences: "Floats", clusters: "NDArray[np.int64]") -> tuple[float, float]:
    """The mean of paired differences (n,) and its standard error, robust to likeness within clusters (Liang & Zeger 1986)."""
    import numpy as np

    mean = float(differences.mean())
    count = int(clusters.max()) + 1
    if count < 2:
        return mean, float("inf")
    sums = np.bincount(clusters, weights=differences - mean)
    return mean, float(np.sqrt(count / (count - 1) * (sums**2).sum())) / len(differences)


def _no_worse(losses: "Floats", best: "Floats", clusters: "NDArray[np.int64]") -> bool:
    """Within one standard error of the best (Breiman et al. 1984)."""
    gap, error = paired(losses - best, clusters)
    return gap <= error or gap == 0


def _upper_tail(mean: float, error: float, freedom: int) -> float:
    """P(t >= mean / error) where nothing was gained."""
    from scipy import special

    if mean <= 0 or error == float("inf"):
        return 1.0
    return 0.0 if error == 0 else float(special.stdtr(freedom, -mean / error))
