"""Sketch: an episode in 64 bytes, so that any two can be compared without their text.

It is a b-bit minwise hash (Li and König, "b-Bit Minwise Hashing", 2010) with b = 8: the low byte of each of 64 MinHash values
of the episode's n-grams. Two sketches agree in a byte with probability J + (1 - J) / 256, where J is the Jaccard similarity
of the episodes. The stage `duplicates` writes the sketches; nothing here reads a rollout.
"""

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]
    Codes = NDArray[np.int64]
    Sketches = NDArray[np.uint8]

BYTES = 64
COMPARED = 32
"""Bytes that the mean similarity within a family looks at: a mean over many pairs needs no more."""
BY_CHANCE = 1 / 256


def unlikeness(sketches: "Sketches", family: "Codes", known: "NDArray[np.bool_]") -> "Floats":
    """1 - the mean similarity to the other episodes of the family; 1 for the only one of its family; NaN without a sketch.

    Linear: the members of a family that share a byte are counted, pairs are not looked at. Rows where `known` is False have no
    sketch and are nobody's peer.
    """
    found = np.full(len(family), np.nan)
    rows = np.flatnonzero(known)
    if not len(rows):
        return found
    group = np.unique(family[rows], return_inverse=True)[1].astype(np.int64)
    sizes = np.bincount(group)
    equal = np.zeros(len(rows))
    for byte in range(COMPARED):
        key = group * 256 + sketches[rows, byte]
        equal += np.bincount(key, minlength=len(sizes) * 256)[key] - 1
    peers = sizes[group] - 1
    agree = np.divide(equal, COMPARED * peers, out=np.full(len(rows), BY_CHANCE), where=peers > 0)
    found[rows] = 1.0 - np.clip((agree - BY_CHANCE) / (1.0 - BY_CHANCE), 0.0, 1.0)
    return found


def farthest_first(sketches: "Sketches", count: int) -> "Codes":
    """Which rows are taken, in order, when each is the one least like all that were taken before (ties: the earlier row).

    The greedy 2-approximation of the k-center problem (Gonzalez, 1985); it begins with the first row.
    """
    taken: list[int] = []
    nearest = np.full(len(sketches), -1, dtype=np.int16)
    packed = np.ascontiguousarray(sketches)
    for _ in range(min(count, len(sketches))):
        row = int(nearest.argmin())
        taken.append(row)
        np.maximum(nearest, equal_bytes(packed, packed[row]), out=nearest)
        nearest[row] = BYTES + 1  # never taken again
    return np.array(taken, dtype=np.int64)


def equal_bytes(sketches: "Sketches", other: "Sketches") -> "NDArray[np.int16]":
    """In how many bytes each sketch (n, 64) equals the other (64,)."""
    same = (sketches == other).view(np.uint64)  # eight flags a word
    count: NDArray[np.int16] = np.bitwise_count(same).sum(axis=1, dtype=np.int16)
    return count
