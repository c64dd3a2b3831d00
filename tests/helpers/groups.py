"""Tests are handed out in groups: a group runs in one process, and the groups that take longest begin first."""

from collections import Counter
from collections.abc import Iterable

import pytest

LONGEST = ("data_build", "mlflow", "prefect", "docker", "lineage_build", "corruption")
"""Groups that take a minute and more, the longest first."""


def group_of(item: pytest.Item) -> str:
    """The name of the group that a test is in: what is declared, else its file."""
    declared = item.get_closest_marker("xdist_group")
    return str(declared.args[0]) if declared else item.nodeid.partition("::")[0]


def longest_first(items: Iterable[pytest.Item]) -> list[pytest.Item]:
    """The tests with those of long groups first, then groups by how many slow tests they have; otherwise in their order.

    Whatever begins last is short, so that no process waits for another at the end.
    """
    listed = list(items)
    slow = Counter(group_of(item) for item in listed if item.get_closest_marker("slow"))
    long = {group: place for place, group in enumerate(LONGEST) if slow[group]}

    def place(item: pytest.Item) -> tuple[int, int]:
        group = group_of(item)
        return long.get(group, len(LONGEST)), -slow[group]

    return sorted(listed, key=place)
