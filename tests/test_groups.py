"""Tests that share a set-up, or must not run beside each other, run in one process wherever several run at once."""

import pytest


def name_of_group(request: pytest.FixtureRequest) -> str | None:
    """The group by which the scheduler keeps a test together with others; None where nothing is distributed."""
    if not getattr(request.config.option, "loadgroup", False):
        return None
    return str(request.node.nodeid).rpartition("@")[2]


@pytest.mark.xdist_group("of_its_own")
@pytest.mark.parametrize("text", ["plain", "a@b"])
def test_a_test_is_scheduled_by_its_group(request: pytest.FixtureRequest, text: str) -> None:
    assert name_of_group(request) in (None, "of_its_own")


@pytest.mark.slow
def test_a_slow_test_is_in_the_group_of_its_file(request: pytest.FixtureRequest) -> None:
    assert name_of_group(request) in (None, "tests/test_groups.py")
    assert request.node.get_closest_marker("xdist_group").args == ("tests/test_groups.py",)
