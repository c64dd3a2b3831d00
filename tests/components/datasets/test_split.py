"""The one split."""

from components.datasets.split import split_of

TASKS = [f"repair/train-{i:04d}" for i in range(2000)]


def test_a_task_has_its_split_by_its_name_alone() -> None:
    assert [split_of(task, 0.1) for task in TASKS[:50]] == [split_of(task, 0.1) for task in TASKS][:50]


def test_about_the_share_asked_for_validates() -> None:
    share = sum(split_of(task, 0.1) == "validation" for task in TASKS) / len(TASKS)
    assert 0.08 < share < 0.12


def test_a_larger_share_only_adds_to_validation() -> None:
    small, large = ({task for task in TASKS if split_of(task, share) == "validation"} for share in (0.1, 0.3))
    assert small < large


def test_a_share_of_zero_trains_on_all() -> None:
    assert {split_of(task, 0.0) for task in TASKS} == {"train"}
