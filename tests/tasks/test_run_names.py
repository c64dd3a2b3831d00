"""Names of task runs in Prefect: what each is, in words, without a random suffix."""

import importlib
import pkgutil
from types import SimpleNamespace

import pytest

from ratchet import tasks

pytestmark = pytest.mark.slow


def all_tasks():
    from prefect import Task

    modules = [
        importlib.import_module(f"{tasks.__name__}.{each.name}") for each in pkgutil.iter_modules(tasks.__path__)
    ]
    return {value.name: value for module in modules for value in vars(module).values() if isinstance(value, Task)}


def test_every_task_names_its_runs():
    found = all_tasks()
    assert len(found) > 15
    assert [name for name, task in found.items() if task.task_run_name is None] == []


@pytest.mark.parametrize(
    ("task", "parameters", "name"),
    [
        ("build", {"nights": ["n1", "n2"]}, "build n2"),
        ("compare", {"night": "n2"}, "compare n2"),
        ("train", {"title": "train challenger"}, "train challenger"),
        ("find champion", {}, "find champion"),
        ("move anchor", {"version": 3}, "move anchor to version 3"),
    ],
)
def test_a_name_says_of_what_the_run_is(task, parameters, name):
    from prefect._internal.engine import resolve_custom_task_run_name

    own = all_tasks()[task]
    assert resolve_custom_task_run_name(SimpleNamespace(task_run_name=own.task_run_name), parameters) == name
