"""Near: clusters of sets whose Jaccard similarity is at least a threshold. Candidates come from MinHash bands, and each is
checked on the sets themselves: what is in one cluster is joined by pairs that really are that near.

Work grows with the number of sets, also where thousands are alike: in a bucket of a band a set is compared with the first
of the bucket and with its few neighbours, not with all.
"""

from collections.abc import Callable, Iterator

import numpy as np
from numpy.typing import NDArray

from .minhash import BANDS, agreement, band_keys
from .words import Hashes, jaccard

NEIGHBOURS = 3
"""How many before it in its bucket a set is compared with, apart from the first."""
DOUBT = 0.12
"""Pairs whose estimate is that far below the threshold (three standard errors) are not looked at closer."""
REMEMBERED = 1_000_000
"""Pairs that are known to be too far apart, so that no later band compares them again."""

Pairs = tuple[NDArray[np.int64], NDArray[np.int64]]


def near_clusters(
    signature: NDArray[np.uint32],
    groups: NDArray[np.int64],
    set_of: Callable[[int], Hashes],
    threshold: float,
) -> NDArray[np.int64]:
    """For each set the number of the first set of its cluster. Only sets of one group are joined; a group below 0 is never.

    `set_of` gives a set's values, ascending.
    """
    roots = np.arange(len(groups), dtype=np.int64)
    far: set[tuple[int, int]] = set()
    for band in range(BANDS):
        for left, right in _candidates(band_keys(signature, groups, band), groups >= 0):
            apart = roots[left] != roots[right]
            left, right = left[apart], right[apart]
            likely = agreement(signature, left, right) >= threshold - DOUBT
            _join(roots, (left[likely], right[likely]), set_of, threshold, far)
            roots = _settled(roots)
    return roots


def _candidates(keys: NDArray[np.uint64], eligible: NDArray[np.bool_]) -> Iterator[Pairs]:
    """Pairs in the same bucket: each with the first, then with those before it. The lower number stands left."""
    own = np.flatnonzero(eligible)
    order = own[np.argsort(keys[own], kind="stable")]
    ordered = keys[order]
    if len(order) < 2:
        return
    new = np.append(True, ordered[1:] != ordered[:-1])
    first = np.maximum.accumulate(np.where(new, np.arange(len(order)), 0))
    rest = np.flatnonzero(~new)
    yield order[first[rest]], order[rest]
    for back in range(1, NEIGHBOURS + 1):
        rest = np.flatnonzero(np.arange(len(order)) - first > back)
        yield order[rest - back], order[rest]


def _join(
    roots: NDArray[np.int64],
    pairs: Pairs,
    set_of: Callable[[int], Hashes],
    threshold: float,
    far: set[tuple[int, int]],
) -> None:
    """Join the clusters of each pair that is near. The lowest number is a cluster's root."""
    for one, other in zip(pairs[0].tolist(), pairs[1].tolist(), strict=True):
        low, high = sorted((_root(roots, one), _root(roots, other)))
        if low == high or (one, other) in far:
            continue
        if jaccard(set_of(one), set_of(other)) >= threshold:
            roots[high] = low
        elif len(far) < REMEMBERED:
            far.add((one, other))


def _root(roots: NDArray[np.int64], index: int) -> int:
    while (above := int(roots[index])) != index:
        index = above
    return index


def _settled(roots: NDArray[np.int64]) -> NDArray[np.int64]:
    """Every set directly below its root."""
    while True:
        above = roots[roots]
        if np.array_equal(above, roots):
            return roots
        roots = above
