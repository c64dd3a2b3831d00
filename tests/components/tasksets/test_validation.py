"""What validating a taskset promises: it finds each way in which a task may fail to measure."""

import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import msgspec
import pytest

from ratchet.components.core import (
    CommandResult,
    InfrastructureError,
    Role,
    Sandbox,
    SandboxUnavailable,
    TaskSpec,
    environment_registry,
)
from ratchet.components.core.task_spec import REFERENCE_ACTIONS_FILE
from ratchet.components.sandboxes import SandboxConfig, make_sandbox
from ratchet.components.tasksets import Taskset, load_taskset
from ratchet.components.tasksets.validation import validate_taskset


class Folder(Sandbox):
    """A sandbox that isolates nothing: a temporary folder. For our own reference programs alone."""

    backend = "folder"

    def start(self) -> None:
        self.folder = tempfile.TemporaryDirectory()

    def run(self, command: str | Sequence[str], **_: object) -> CommandResult:
        done = subprocess.run(command, shell=True, cwd=self.folder.name, capture_output=True, check=False)
        return CommandResult(done.returncode, done.stdout, done.stderr)

    def read(self, path: str) -> bytes:
        return Path(self.folder.name, path).read_bytes()

    def write(self, path: str, data: bytes) -> None:
        Path(self.folder.name, path).write_bytes(data)

    def write_files(self, files: Mapping[str, bytes]) -> None:
        for path, data in files.items():
            self.write(path, data)

    def snapshot(self) -> str:
        raise NotImplementedError

    def restore(self, snapshot_id: str) -> None:
        raise NotImplementedError

    def stop(self) -> None:
        self.folder.cleanup()


@pytest.fixture(scope="module")
def good() -> Iterator[TaskSpec]:
    yield load_taskset("repair").tasks(Role.AUDIT)[0]


def of(*tasks: TaskSpec) -> Taskset:
    return Taskset(load_taskset("repair").head, tasks)


def changed(task: TaskSpec, **changes: object) -> TaskSpec:
    return msgspec.structs.replace(task, **changes)


@pytest.mark.slow
def test_a_good_task_has_no_problem_and_each_flaw_is_named(good: TaskSpec) -> None:
    done: list[str] = []
    report = validate_taskset(
        of(
            good,
            changed(good, task_id="no-fault", files=good.reference),
            changed(good, task_id="no-repair", reference=good.files),
            changed(good, task_id="no-test", test_command="true", expected_output=()),
        ),
        Folder,
        on_task=lambda task: done.append(task.task_id),
    )
    assert [(problem.task_id, problem.message.split(";")[0]) for problem in report.problems] == [
        ("no-fault", "the files as they are given pass"),
        ("no-repair", "the reference fails"),
        ("no-test", "the files as they are given pass"),
        ("no-test", "an empty answer passes"),
    ]
    assert report.problems
    assert report.tasks == 4
    assert done == [good.task_id, "no-fault", "no-repair", "no-test"]
    assert not validate_taskset(of(good), Folder).problems


def test_a_sandbox_that_cannot_be_started_proves_nothing(good: TaskSpec) -> None:
    class Broken(Folder):
        def start(self) -> None:
            raise SandboxUnavailable("no engine")

    with pytest.raises(SandboxUnavailable, match="no engine"):
        validate_taskset(of(good), Broken)


@pytest.mark.slow
def test_a_sample_of_repair_is_valid_in_a_real_sandbox() -> None:
    sample = load_taskset("repair").tasks()[::180]
    report = validate_taskset(of(*sample), lambda: make_sandbox(SandboxConfig(backend="local")))
    assert (report.tasks, report.problems) == (len(sample), ())


@pytest.fixture(scope="module")
def orders() -> Taskset:
    return load_taskset("orders")


def problems(orders: Taskset, **changes) -> list[str]:
    task = msgspec.structs.replace(orders.tasks()[0], **changes)
    report = validate_taskset(Taskset(orders.head, (task, orders.tasks()[1])), lambda: None)  # type: ignore[arg-type,return-value]
    return [problem.message for problem in report.problems if problem.task_id == task.task_id]


def without(task: TaskSpec, tool: str) -> dict[str, str]:
    return {
        REFERENCE_ACTIONS_FILE: msgspec.json.encode(
            [each for each in task.reference_actions if each["tool"] != tool]
        ).decode()
    }


def test_a_sound_task_has_no_problem(orders):
    assert problems(orders) == []


def test_a_reference_that_does_not_do_it_is_found(orders):
    (found,) = problems(orders, reference=without(orders.tasks()[0], "cancel_order"))
    assert found.startswith("the reference fails (wrong_state")


def test_a_reference_that_does_not_end_the_episode_is_found(orders):
    found = problems(
        orders,
        reference=without(orders.tasks()[0], "respond"),
        criteria={"lines": [line for line in orders.tasks()[0].criteria["lines"] if line["kind"] != "mentions"]},
    )
    assert found == ["the reference does not end the episode; its last action must"]


def test_a_task_that_words_alone_settle_is_found(orders):
    loose = {"lines": [{"kind": "mentions", "facts": [["done", "cancel"]], "within": 9999}]}
    found = problems(orders, criteria=loose)
    assert any("only says that it is done" in each for each in found)
    assert any("only repeats the task's own words" in each for each in found)


def test_a_task_that_another_tasks_answer_settles_is_found(orders):
    loose = {"lines": [{"kind": "calls", "tool": "respond"}]}
    assert any("does what task 'orders/train-0002' asks for" in each for each in problems(orders, criteria=loose))


def test_a_task_that_idling_settles_is_found(orders):
    (found,) = problems(orders, criteria={"lines": [{"kind": "unchanged"}]})
    assert "an idle agent would pass" in found


@pytest.mark.parametrize(
    "reference",
    [{}, {REFERENCE_ACTIONS_FILE: "[]"}, {REFERENCE_ACTIONS_FILE: "{"}, {REFERENCE_ACTIONS_FILE: '[{"tool": 1}]'}],
)
def test_a_task_without_a_readable_reference_is_found(orders, reference):
    (found,) = problems(orders, reference=reference)
    assert REFERENCE_ACTIONS_FILE in found


def test_what_could_not_be_graded_proves_nothing(orders, monkeypatch):
    def broken(**_):
        raise InfrastructureError("the world is down")

    spec = msgspec.structs.replace(environment_registry._specs["ratchet/conversation"], entry=broken)
    monkeypatch.setitem(environment_registry._specs, "ratchet/conversation", spec)
    with pytest.raises(InfrastructureError):
        problems(orders)
