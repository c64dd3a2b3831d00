"""MinHash: a small signature of a set, from which the Jaccard similarity of two sets is estimated without bias.

Broder 1997. The least value of a set under each of SIZE permutations; two sets agree in one with the probability of their Jaccard
similarity. Signatures are cut in BANDS of ROWS; sets that agree in a whole band are candidates (Leskovec, Rajaraman, Ullman,
Mining of Massive Datasets, 3.4): with similarity s that happens with probability 1 - (1 - s^ROWS)^BANDS, .992 at s = .8.
"""

import numpy as np
from numpy.typing import NDArray

from .words import Sets, random_numbers

BANDS, ROWS = 16, 6
SIZE = BANDS * ROWS
EMPTY = np.uint32(0xFFFFFFFF)
"""Stands in every place of the signature of an empty set."""

MULTIPLIERS = random_numbers(SIZE, 3).astype(np.uint32) | np.uint32(1)
OFFSETS = random_numbers(SIZE, 4).astype(np.uint32)


def signatures(sets: Sets) -> NDArray[np.uint32]:
    """The signature of each set: (sets, SIZE). The values of a set are hashes already, so a x + b modulo 2^32 permutes them."""
    made = np.full((len(sets), SIZE), EMPTY, np.uint32)
    filled = np.flatnonzero(sets.sizes)
    if not len(filled):
        return made
    starts = sets.bounds[filled]
    moved = np.empty_like(sets.values)
    for place in range(SIZE):
        np.multiply(sets.values, MULTIPLIERS[place], out=moved)
        np.add(moved, OFFSETS[place], out=moved)
        made[filled, place] = np.minimum.reduceat(moved, starts)
    return made


def agreement(signature: NDArray[np.uint32], left: NDArray[np.int64], right: NDArray[np.int64]) -> NDArray[np.float64]:
    """The estimated similarity of pairs of rows. Its standard error is sqrt(s (1 - s) / SIZE): .04 at s = .8."""
    found = np.empty(len(left))
    for begin in range(0, len(left), 65_536):  # the rows of many pairs would fill the memory
        part = slice(begin, begin + 65_536)
        found[part] = (signature[left[part]] == signature[right[part]]).mean(axis=1)
    return found


def band_keys(signature: NDArray[np.uint32], groups: NDArray[np.int64], band: int) -> NDArray[np.uint64]:
    """One number for each row's band and group: rows of different groups never share one."""
    own = signature[:, band * ROWS : (band + 1) * ROWS].astype(np.uint64)
    factors = random_numbers(ROWS + 1, 5) | np.uint64(1)
    summed: NDArray[np.uint64] = (own * factors[:ROWS]).sum(axis=1, dtype=np.uint64)
    keys: NDArray[np.uint64] = summed + groups.astype(np.uint64) * factors[ROWS]
    return keys
