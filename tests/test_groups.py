"""Tests that share a set-up, or must not run beside each other, run in one process wherever several run at once."""

import pytest
from groups import LONGEST, group_of, longest_first


def name_of_group(request: pytest.FixtureRequest) -> str | None:
    """The group by which the scheduler keeps a test together with others; None where nothing is distributed."""
    if not getattr(request.config.option, "loadgroup", False):
        return None
    return str(request.node.nodeid).rpartition("@")[2]


@pytest.mark.xdist_group("of_its_own")
@pytest.mark.parametrize("text", ["plain", "a@b"])
def test_a_test_is_scheduled_by_its_group(request: pytest.FixtureRequest, text: str) -> None:
    assert name_of_group(request) in (None, "of_its_own")


def test_a_test_is_in_the_group_of_its_file_where_none_is_declared(request: pytest.FixtureRequest) -> None:
    assert group_of(request.node) == "tests/test_groups.py"
    assert name_of_group(request) in (None, "tests/test_groups.py")


class Item:
    """As much of a test as the order of groups looks at."""

    def __init__(self, file: str, group: str | None = None, slow: bool = False) -> None:
        self.nodeid = f"{file}::test"
        marks = [pytest.mark.slow] if slow else []
        marks += [pytest.mark.xdist_group(group)] if group else []
        self.marks = {mark.name: mark.mark for mark in marks}

    def get_closest_marker(self, name: str) -> pytest.Mark | None:
        return self.marks.get(name)


def test_the_longest_groups_begin_first_and_the_quick_ones_last() -> None:
    quick, other = Item("a.py"), Item("z.py")
    one, two = Item("b.py", slow=True), [Item("c.py", slow=True) for _ in range(2)]
    long, longer = Item("d.py", LONGEST[1], slow=True), Item("e.py", LONGEST[0], slow=True)
    rest = Item("f.py", LONGEST[0])
    assert longest_first([quick, one, *two, long, rest, longer, other]) == [rest, longer, long, *two, one, quick, other]
    assert longest_first([quick, rest, other]) == [quick, rest, other], "where nothing is slow nothing is moved"
