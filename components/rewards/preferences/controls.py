"""Controls on pairs that were found: each comparison once, none against another, and no taste for length.

The pairs of a whole build are looked at together: tasks may be told in the very same words under different names, and a
preference for length shows over many pairs, not in one. A longer message may well be the better one; that longer messages
are better on the whole is what a model learns from such pairs, whatever was meant (Singhal et al. 2023, arXiv:2310.03716).
"""

from collections import Counter
from collections.abc import Sequence
from fractions import Fraction
from math import fsum

import msgspec

from .pairing import Preference


class LengthGap(msgspec.Struct, frozen=True):
    """The mean length gap of the pairs of one level (see `Preference.length_gap`), found and kept; None without pairs."""

    found: float | None
    kept: float | None


def without_duplicates(pairs: Sequence[Preference], left_out: Counter[str]) -> list[Preference]:
    """Each comparison of the same words after the same words once; none at all where another pair says the contrary."""
    said = {_words(pair) for pair in pairs}
    kept: dict[tuple[str, ...], Preference] = {}
    for pair in sorted(pairs):
        words = _words(pair)
        if (*words[:2], words[3], words[2]) in said:
            left_out["contradictions"] += 1
        elif words in kept:
            left_out["duplicates"] += 1
        else:
            kept[words] = pair
    return list(kept.values())


def _words(pair: Preference) -> tuple[str, ...]:
    return pair.level, pair.context, pair.chosen.said.hash, pair.rejected.said.hash


def mean_gap(pairs: Sequence[Preference]) -> float | None:
    """The mean length gap; None without pairs."""
    return fsum(pair.length_gap for pair in pairs) / len(pairs) if pairs else None


def within_gap(pairs: Sequence[Preference], bound: float, left_out: Counter[str]) -> list[Preference]:
    """The pairs that are left when those of the largest gaps go, one by one, until the mean gap is within +-`bound`."""
    ranked = sorted(pairs, key=lambda pair: (pair.length_gap, pair))
    gaps = [Fraction(pair.length_gap) for pair in ranked]  # exact, so that one after the other can be taken off the sum
    total, most = sum(gaps, Fraction()), Fraction(bound)
    low, high = 0, len(ranked)
    while low < high and abs(total) > most * (high - low):
        if total > 0:
            high -= 1
            total -= gaps[high]
        else:
            total -= gaps[low]
            low += 1
    left_out["length"] += len(ranked) - (high - low)
    return ranked[low:high]
