"""Tests are handed out in groups: a group runs in one process, and the groups that take longest begin first.

What is slow as a whole is not even imported where nothing slow is asked for.
"""

import re
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import pytest

LONGEST = ("data_build", "mlflow", "prefect", "docker", "corruption")
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


def leaves_slow_out(expression: str) -> bool:
    """Whether an expression of markers (`-m`) surely takes no slow test."""
    return not re.search(r"\bor\b|\(", expression) and "not slow" in re.split(r"\s+and\s+", expression.strip())


def is_slow(path: Path) -> bool:
    """Whether a file says that all of its tests are slow."""
    return bool(re.search(rb"^pytestmark = .*\bpytest\.mark\.slow\b", path.read_bytes(), re.MULTILINE))
