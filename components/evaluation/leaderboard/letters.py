"""Compact letters: which of many agents cannot be told apart. Two share a letter exactly if they do not differ significantly."""

from collections.abc import Collection, Hashable, Sequence
from string import ascii_lowercase
from typing import TypeVar

Name = TypeVar("Name", bound=Hashable)


def compact_letters(names: Sequence[Name], apart: Collection[tuple[Name, Name]]) -> dict[Name, str]:
    """Letters for each name by insertion and absorption (Piepho 2004, doi:10.1198/1061860043515).

    `apart`: the pairs that differ significantly, in either order; all others share at least one letter. Letters begin with
    the groups of the first names. More groups than letters go on with a1, b1 …
    """
    columns: list[frozenset[Name]] = [frozenset(names)]
    for one, other in apart:
        parted = [column for column in columns if one in column and other in column]
        kept = [column for column in columns if column not in parted]
        split = [column - {each} for column in parted for each in (one, other)]
        columns = _absorbed([*kept, *split])
    place = {name: number for number, name in enumerate(names)}
    ordered = sorted(columns, key=lambda column: sorted(place[name] for name in column))
    return {name: "".join(_letter(number) for number, column in enumerate(ordered) if name in column) for name in names}


def _absorbed(columns: Sequence[frozenset[Name]]) -> list[frozenset[Name]]:
    """Without those that stand within another: they say nothing of their own."""
    different = list(dict.fromkeys(columns))
    return [column for column in different if column and not any(column < other for other in different)]


def _letter(number: int) -> str:
    turn, place = divmod(number, len(ascii_lowercase))
    return ascii_lowercase[place] + (str(turn) if turn else "")
