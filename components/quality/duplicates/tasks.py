"""Tasks that are nearly the same, found one after the other: what is found of a task depends on those before it alone.

Tasks share boilerplate (the rules of a shop, the frame of a question), which says nothing of what is asked. An n-gram that
stands in more than COMMON different texts is boilerplate from then on, and two tasks are compared by the rest. Exact: every
pair that shares an n-gram which is not boilerplate is compared, and there are at most COMMON for each n-gram, so the work
grows with the number of tasks.
"""

from collections import Counter
from collections.abc import Iterable

from .words import gram_sets

COMMON = 20
"""In more texts than that an n-gram is boilerplate."""
LEAST = 3
"""Texts with fewer n-grams of their own are alike only where they are equal."""


class TaskIndex:
    """Texts (`words.plain`) by what tells them apart. `near` is the least Jaccard similarity of near ones."""

    def __init__(self, near: float) -> None:
        self._near = near
        self._first: dict[bytes, int] = {}
        self._holders: dict[int, list[int]] = {}
        self._common: set[int] = set()
        self._sizes: list[int] = []
        self._near_to: dict[int, list[int]] = {}

    def learn(self, texts: Iterable[bytes]) -> None:
        """Know the boilerplate of texts that are no tasks of this index yet, or will be."""
        counted = Counter(gram_sets(list(dict.fromkeys(texts))).values.tolist())
        self._common.update(gram for gram, texts_with in counted.items() if texts_with > COMMON)

    def add(self, texts: list[bytes]) -> list[list[int]]:
        """Take up texts; for each the numbers of earlier ones that are equal to it or near it, ascending.

        Numbers count the texts of all calls. Of equal texts only the first is named, with those that it is near to.
        """
        sets = gram_sets(texts)
        return [self._add(text, sets.of(number).tolist()) for number, text in enumerate(texts)]

    def _add(self, text: bytes, grams: list[int]) -> list[int]:
        number = len(self._sizes)
        first = self._first.setdefault(text, number)
        if first != number:  # a text counts once, however often it comes
            self._sizes.append(0)
            return [*self._near_to[first], first]
        own = [gram for gram in grams if gram not in self._common]
        near = self._near_to[number] = self._near_ones(own)
        self._sizes.append(len(own))
        for gram in own:
            self._hold(gram, number)
        return near

    def _near_ones(self, own: list[int]) -> list[int]:
        shared: Counter[int] = Counter()
        for gram in own:
            shared.update(self._holders.get(gram, ()))
        return sorted(
            other
            for other, both in shared.items()
            if min(len(own), self._sizes[other]) >= LEAST
            and both >= self._near * (len(own) + self._sizes[other] - both)
        )

    def _hold(self, gram: int, number: int) -> None:
        holders = self._holders.setdefault(gram, [])
        holders.append(number)
        if len(holders) > COMMON:
            self._common.add(gram)
            for each in self._holders.pop(gram):
                self._sizes[each] -= 1
