"""Checks of this project that need no model: `python -m pytest`, with the Python that Ratchet is installed in."""

from pathlib import Path

import pytest

from ratchet import load_taskset, make

TASKSETS = sorted(path.parent.name for path in Path("data/tasksets").glob("*/taskset.yaml"))


@pytest.mark.parametrize("name", TASKSETS)
def test_a_taskset_is_readable_and_has_tasks_to_train_on_and_to_decide_by(name: str) -> None:
    taskset = load_taskset(name)
    assert taskset.tasks("train") and taskset.tasks("promote")


@pytest.mark.parametrize("task", load_taskset("greenhouse").tasks(), ids=lambda task: task.task_id)
def test_the_reference_of_a_greenhouse_task_succeeds_and_doing_nothing_fails(task) -> None:  # type: ignore[no-untyped-def]
    with make("greenhouse:mine/greenhouse") as environment:
        environment.reset(task=task)
        for action in task.reference_actions:
            step = environment.step(action)
        assert step.info["outcome"]["success"] is True
        environment.reset(task=task)
        assert environment.finish("nothing was done").info["outcome"]["success"] is False
