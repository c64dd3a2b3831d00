"""Packing: several rows in one sequence, each of which attends to itself alone.

A row is never cut, and its labels and weights go with it, so the loss of a batch is that of its rows side by side.
"""

from bisect import bisect_left, insort
from collections.abc import Sequence


def packs(lengths: Sequence[int], room: int) -> list[list[int]]:
    """Which rows share a sequence of at most `room` tokens, as indices: best fit decreasing, in O(n log n).

    Each row is in exactly one pack; a row longer than `room` is alone in its own. Deterministic: equal rows keep their order.
    """
    found: list[list[int]] = []
    free: list[tuple[int, int]] = []  # (tokens left, pack), sorted: the best fit is the first with enough of them
    for row in sorted(range(len(lengths)), key=lambda index: -lengths[index]):
        place = bisect_left(free, (lengths[row], -1))
        if place == len(free):
            left, pack = room, len(found)
            found.append([])
        else:
            left, pack = free.pop(place)
        found[pack].append(row)
        if left > lengths[row]:
            insort(free, (left - lengths[row], pack))
    return found
