"""MinHash: a small signature of a set, from which the Jaccard similarity of two sets is estimated without bias.

Broder 1997; signatures are rensa's R-MinHash. Two sets agree in one place with the probability of their Jaccard similarity.
Signatures are cut in BANDS of ROWS; sets that agree in a whole band are candidates (Leskovec, Rajaraman, Ullman, Mining of
Massive Datasets, 3.4): with similarity s that happens with probability 1 - (1 - s^ROWS)^BANDS, .992 at s = .8.

Buckets are sorted here and not left to a library's index: of a matrix rensa's answers with flags and names no pairs, its objects
must be made of tokens again in one process (7.7 s for 11,000 episodes, where the matrix takes .13 s); datasketch takes 7.6 s for
these, and both name the whole bucket at every query, so that a thousand episodes that are alike take a million answers.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
from numpy.typing import NDArray

from .words import Sets, random_numbers

BANDS, ROWS = 16, 6
SIZE = BANDS * ROWS
SEED = 42
EMPTY = np.uint32(0xFFFFFFFF)
"""Stands in every place of the signature of an empty set."""


def signatures(sets: Sets) -> NDArray[np.uint32]:
    """The signature of each set: (sets, SIZE)."""
    import rensa

    with _one_thread():
        matrix = rensa.RMinHash.digest_matrix_from_flat_token_hashes(
            sets.values.astype(np.uint64), sets.bounds.astype(np.uint64), SIZE, SEED
        )
    return np.array(matrix.to_rows(), np.uint32).reshape(len(sets), SIZE)


@contextmanager
def _one_thread() -> Iterator[None]:
    """rensa's threads do not live on in forked workers, which would wait for them for ever: begin none."""
    name = "RAYON_NUM_THREADS"
    before = os.environ.get(name)
    os.environ[name] = "1"
    try:
        yield
    finally:
        os.environ.pop(name)
        if before is not None:
            os.environ[name] = before


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
