"""Validate a taskset without a model: the reference of every task must pass, and answers that solve nothing must fail.

A task with a test command is graded by its hidden tests; any other is played in its taskset's environment.
"""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import msgspec

from ratchet.components.core import Action, DataError, Environment, Sandbox, TaskSpec, make
from ratchet.components.core.task_spec import REFERENCE_REPLY_FILE
from ratchet.components.environments.sandbox_environment import make_task_layout

from .taskset_files import Taskset

SandboxFactory = Callable[[], Sandbox]
EXTRA_STEPS = 8
"""Steps that are allowed in addition to those of the reference, so that an episode can end by itself."""


def reference_problems(environment_id: str, task: TaskSpec, other: TaskSpec | None = None) -> Iterator[str]:
    """Yield the problems of a task, one line each: its reference fails, or an answer that solves nothing passes.

    Such answers are: no action; only the last action, with `Done.` or the task's description as its texts; and the
    reference of the task `other`. Raises InfrastructureError.
    """
    try:
        actions = task.reference_actions
        if not actions:
            raise DataError("it has criteria and no reference of actions: reference['actions.json'] is missing")
        with make(environment_id, max_steps=len(actions) + EXTRA_STEPS) as environment:
            yield from _answer_problems(environment, task, actions, other)
    except DataError as error:
        yield str(error)


def _answer_problems(
    environment: Environment, task: TaskSpec, actions: Sequence[Action], other: TaskSpec | None
) -> Iterator[str]:
    reference = _outcome(environment, task, actions)
    if reference["success"] is not True or reference["score"] != 1.0:
        yield f"the reference fails ({reference['reason']}, score {reference['score']}); it must pass in full"
    elif reference["reason"] == "stopped":
        yield "the reference does not end the episode; its last action must"
    for name, actions_tried in _wrong_answers(task, actions, other):
        result = _outcome(environment, task, actions_tried)
        if result["success"] is not False:
            yield f"an episode passes that {name}; it must fail"
        elif not actions_tried and result["score"] != 0.0:
            yield f"doing nothing scores {result['score']}; it must score 0"


REASONING_ENVIRONMENT = "ratchet/reasoning"


def reply_problems(environment_id: str, task: TaskSpec, sandbox_factory: SandboxFactory) -> Iterator[str]:
    """Yield the problems of a task that is answered in text: its reference reply must pass, an empty one and one without
    an answer must fail with score 0. Raises InfrastructureError.
    """
    try:
        with make(environment_id, sandbox_factory=sandbox_factory) as environment:

            def outcome(reply: str) -> dict[str, Any]:
                environment.reset(task=task)
                result: dict[str, Any] = environment.answer(reply).info["outcome"]
                return result

            reference = task.reference.get(REFERENCE_REPLY_FILE)
            if reference is None:
                yield "it has no reference reply, so nothing proves that it can be solved"
            elif outcome(reference)["success"] is not True:
                yield f"the reference fails ({outcome(reference)['reason']}); it must pass"
            for name, reply in (("empty reply", ""), ("empty answer", "<think>.</think><answer> </answer>")):
                result = outcome(reply)
                if result["success"] is not False or result["score"] != 0.0:
                    yield f"an {name} passes or scores; it must score 0"
    except DataError as error:
        yield str(error)


def _outcome(environment: Environment, task: TaskSpec, actions: Sequence[Action]) -> dict[str, Any]:
    """Play actions in a new episode and return its outcome; its reason is `stopped` if they do not end it."""
    step = environment.reset(task=task)
    for action in actions:
        step = environment.step(action)
        if step.done:
            break
    if not step.done:
        step = environment.finish("stopped")
    outcome: dict[str, Any] = step.info["outcome"]
    return outcome


def _wrong_answers(
    task: TaskSpec, actions: Sequence[Action], other: TaskSpec | None
) -> Iterator[tuple[str, Sequence[Action]]]:
    """Yield answers that must fail as (description, actions)."""
    last = actions[-1]
    yield "does nothing", []
    yield "only says that it is done", [_with_text(last, "Done.")]
    yield "only repeats the task's own words", [_with_text(last, task.description)]
    if other is not None:
        yield f"does what task '{other.task_id}' asks for", other.reference_actions


def _with_text(action: Action, text: str) -> Action:
    """Return an action with all its texts replaced."""
    params = {name: text if isinstance(value, str) else value for name, value in action["params"].items()}
    return {"tool": action["tool"], "params": params}


def tasks_of_other_families(tasks: Sequence[TaskSpec]) -> list[TaskSpec | None]:
    """Return for each task the next one, cyclically, of another family and with another reference, or None."""
    others: list[TaskSpec | None] = []
    for at, task in enumerate(tasks):
        following = (tasks[(at + step) % len(tasks)] for step in range(1, len(tasks)))
        others.append(
            next(
                (other for other in following if other.family != task.family and other.reference != task.reference),
                None,
            )
        )
    return others


class TaskProblem(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A task that does not measure what it should; `message` says why."""

    task_id: str
    message: str


class ValidationReport(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The result of validating a taskset: its name and hash, the number of its tasks, and their problems."""

    taskset: str
    taskset_hash: str
    tasks: int
    problems: tuple[TaskProblem, ...]


def validate_taskset(
    taskset: Taskset,
    sandbox_factory: SandboxFactory,
    workers: int = 2,
    *,
    on_task: Callable[[TaskSpec], None] | None = None,
    of_image: Callable[[str], Sandbox] | None = None,
) -> ValidationReport:
    """Grade the validation answers of every task, each in a fresh sandbox or episode; call `on_task` after each task.

    `workers` is the number of threads. `of_image` makes the sandbox for a task that names an image (None:
    `sandbox_factory` makes it too). Raises InfrastructureError if an answer could not be graded, which proves nothing
    about its task.
    """
    tasks, problems = taskset.tasks(), []
    check = partial(_check, sandbox_factory, of_image, taskset.head.environment)
    pool = ThreadPoolExecutor(workers)
    try:
        for task, messages in zip(tasks, pool.map(check, tasks, tasks_of_other_families(tasks)), strict=True):
            problems += messages
            if on_task:
                on_task(task)
    finally:
        # Without `cancel_futures` an error in one task waits for the grading of all others.
        pool.shutdown(cancel_futures=True)
    return ValidationReport(taskset.name, taskset.hash, len(tasks), tuple(problems))


def _check(
    sandbox_factory: SandboxFactory,
    of_image: Callable[[str], Sandbox] | None,
    environment: str,
    task: TaskSpec,
    other: TaskSpec | None,
) -> list[TaskProblem]:
    if task.image is not None and of_image is not None:
        sandbox_factory = partial(of_image, task.image)
    problems: Iterator[str]
    if environment == REASONING_ENVIRONMENT:
        problems = reply_problems(environment, task, sandbox_factory)
    elif task.test_command:
        problems = _problems(sandbox_factory, task)
    else:
        problems = reference_problems(environment, task, other)
    return [TaskProblem(task.task_id, message) for message in problems]


def _problems(sandbox_factory: SandboxFactory, task: TaskSpec) -> Iterator[str]:
    layout = make_task_layout(task)
    for answer, expected_success, message in layout.validation_answers():
        if layout.grade(answer, sandbox_factory).success is not expected_success:
            yield message
