"""Grade an agent's answer to a coding task by hidden tests in a fresh sandbox; and the layout of a task of a few files.

The answer is the content of the files that the agent may change. All other files come from the task, so nothing else
that the agent left behind (a conftest.py, a sitecustomize.py, a daemon) is present. Expected output is compared outside
of the sandbox: code under test cannot read it, and printing or exiting early earns nothing. Tests that decide by
themselves run under the supervisor; components/environments/test_supervision states what it cannot detect.

A repository task lists the tests that decide in its `criteria`, named as in SWE-bench: by pytest's node id, or by what
unittest (and therefore Django) prints.
"""

import posixpath
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from typing import Any

import msgspec

from ratchet.components.core import (
    CommandFailure,
    CommandResult,
    CommandTimeout,
    DataError,
    Sandbox,
    SandboxFileError,
    TaskSpec,
)

from .test_supervision.supervised_run import SupervisorReport, reported_names, run_supervised, supervise_command

MAX_ANSWER_BYTES = 1 << 20
MAX_OUTPUT_BYTES = 1 << 20
TEST_SECONDS = 10.0


class Grade(msgspec.Struct, frozen=True):
    """The grade of an answer. `reason` is `passed` or a code for the failure.

    `score` is 1 if all tests pass, else 0: deleting everything or returning a constant passes some tests and must not
    be worth more than leaving the program unchanged. Only repository tasks with listed tests have scores in between
    (see `grade_listed_tests`).
    """

    success: bool
    score: float
    tests_passed: int
    tests_total: int
    reason: str

    @classmethod
    def of_whole_run(cls, success: bool) -> "Grade":
        """Return the grade of a run of the test command as a whole, which counts as one test."""
        return cls(success, float(success), int(success), 1, "passed" if success else "tests_failed")


def grade_files(
    task: TaskSpec,
    answer: Mapping[str, bytes],
    sandbox_factory: Callable[[], Sandbox],
    *,
    timeout: float = TEST_SECONDS,
) -> Grade:
    """Run the hidden tests on `answer` (content by path; only editable paths count) for at most `timeout` seconds.

    A missing file, a timeout, too much output and a crash are failures of the answer. Raises SandboxUnavailable.
    """
    total = len(task.expected_output) or 1
    if any(path not in answer for path in task.editable):
        return Grade(False, 0.0, 0, total, "missing_file")
    try:
        with sandbox_factory() as sandbox:
            files = _files(task, answer)
            if task.expected_output:
                sandbox.write_files(files)
                return grade_output(
                    task, sandbox.run(task.test_command, timeout=timeout, output_limit=MAX_OUTPUT_BYTES)
                )
            return _grade_by_tests(task, sandbox, files, timeout)
    except CommandFailure as failure:
        reason = "timeout" if isinstance(failure, CommandTimeout) else "output_limit"
        return Grade(False, 0.0, 0, total, reason)


def _grade_by_tests(task: TaskSpec, sandbox: Sandbox, files: dict[str, bytes], timeout: float) -> Grade:
    """Grade by the supervisor's report, or by the exit code alone if the command runs no trusted Python.

    A test that an editable file skips has failed; nothing passes if such a file defines a class whose instances equal
    everything, or if a deciding file changes during the run.
    """
    graded = _absolute_paths(sandbox, task.editable)
    trusted = {path: text for path, text in {**task.files, **task.tests}.items() if path not in task.editable}
    trusted.update(task.tests)
    supervised = supervise_command(task.test_command, trusted, graded)
    if supervised is None:
        sandbox.write_files(files)
        return grade_output(task, sandbox.run(task.test_command, timeout=timeout, output_limit=MAX_OUTPUT_BYTES))
    sandbox.write_files({**files, **{path: text.encode() for path, text in supervised.files.items()}})
    deciding = _absolute_paths(sandbox, (path for path in trusted if path in task.tests or path.endswith(".py")))
    report, result = run_supervised(
        sandbox, supervised.command, trusted=deciding, graded=graded, timeout=timeout, output_limit=MAX_OUTPUT_BYTES
    )
    if report is None:
        return Grade(False, 0.0, 0, 1, "no_report" if result.exit_code == 0 else "crashed")
    return grade_report(report, graded)


def grade_report(report: SupervisorReport, graded: Collection[str] = ()) -> Grade:
    """Grade a supervisor's report. Success: exit code 0, and every test passes that the tests themselves do not skip.

    `graded`: absolute paths of the agent's files; a skip in one is a failure. A report that cannot be trusted scores 0.
    """
    outcomes = [outcome for outcome in report.outcomes(graded).values() if outcome != "skipped"]
    passed, total = outcomes.count("passed"), len(outcomes)
    if report.distrust_reason or not total:
        reason = report.distrust_reason or ("tests_failed" if report.exit_code else "no_report")
        return Grade(False, 0.0, 0, total or 1, reason)
    if passed < total:
        return Grade(False, 0.0, passed, total, "tests_failed")
    if report.exit_code != 0:  # all tests passed and the exit code is not 0: the report cannot be trusted
        return Grade(False, 0.0, 0, total, "tests_failed")
    return Grade(True, 1.0, total, total, "passed")


def _files(task: TaskSpec, answer: Mapping[str, bytes]) -> dict[str, bytes]:
    """Return the task's files, replaced by the answer's editable files, replaced by the hidden tests."""
    files = {path: text.encode() for path, text in task.files.items()}
    files.update({path: answer[path] for path in task.editable})
    # Tests last: an answer of the same name must not replace a hidden test.
    files.update({path: text.encode() for path, text in task.tests.items()})
    return files


def grade_output(task: TaskSpec, result: CommandResult) -> Grade:
    """Grade by the test command's exit code and printed lines; without expected output, by the exit code alone."""
    if not task.expected_output:
        return Grade.of_whole_run(result.exit_code == 0)
    expected = task.expected_output
    # Not splitlines(), which also splits at form feeds and other characters that an answer may print.
    lines = result.stdout_text.removesuffix("\n").split("\n") if result.stdout else []
    if lines == list(expected) and result.exit_code == 0:
        return Grade(True, 1.0, len(expected), len(expected), "passed")
    passed = sum(line == expected_line for line, expected_line in zip(lines, expected, strict=False))
    if len(lines) > len(expected) or passed == len(expected):
        passed = 0  # the code under test printed lines itself or ended the script: no line can be trusted
    reason = "tests_failed" if result.exit_code == 0 else "crashed"
    return Grade(False, 0.0, passed, len(expected), reason)


class TaskLayout(ABC):
    """How the files of a task get into a sandbox and its answer out of it; one instance per episode.

    An answer may have any type: only the layout that collected it interprets it.
    """

    def __init__(self, task: TaskSpec) -> None:
        self.task = task

    def new_sandbox(self, factory: Callable[[], Sandbox]) -> Sandbox:
        """Return a sandbox of `factory` for an episode, not started. Raises SandboxUnavailable."""
        return factory()

    def adapt_call(self, tool: str, params: dict[str, Any]) -> dict[str, Any]:
        """Return the parameters with which a valid call is executed."""
        return params

    @abstractmethod
    def prepare_workspace(self, sandbox: Sandbox) -> None:
        """Prepare a fresh sandbox for the task. Raises InfrastructureError."""

    @abstractmethod
    def collect_answer(self, sandbox: Sandbox) -> Any:
        """Return the answer that the sandbox contains now."""

    @abstractmethod
    def grade(self, answer: Any, sandbox_factory: Callable[[], Sandbox], timeout: float | None = None) -> Grade:
        """Grade an answer by hidden tests in a fresh sandbox.

        `timeout` limits the tests, in seconds; None: the task's limit or the default. Raises InfrastructureError.
        """

    def answer_diff(self, answer: Any) -> str | None:
        """Return an answer as a unified diff, or None if the layout has no diffs."""
        return None

    @abstractmethod
    def validation_answers(self) -> list[tuple[Any, bool, str]]:
        """Return answers that validate the task without a model.

        Each is (answer, whether it must pass, message for the report if it does not behave so).
        """


class FilesLayout(TaskLayout):
    """The layout of a task that consists of a few files; the content of its editable files is the answer."""

    def prepare_workspace(self, sandbox: Sandbox) -> None:
        """Write the task's files."""
        sandbox.write_files({path: text.encode() for path, text in self.task.files.items()})

    def collect_answer(self, sandbox: Sandbox) -> dict[str, bytes]:
        """Return the editable files, by path, without missing files, links and files over MAX_ANSWER_BYTES."""
        answer = {}
        for path in self.task.editable:
            with suppress(SandboxFileError):
                answer[path] = sandbox.read(path)
        return {path: content for path, content in answer.items() if len(content) <= MAX_ANSWER_BYTES}

    def grade(self, answer: Any, sandbox_factory: Callable[[], Sandbox], timeout: float | None = None) -> Grade:
        """See `grade_files`; `timeout` None is TEST_SECONDS."""
        return grade_files(self.task, answer, sandbox_factory, timeout=timeout or TEST_SECONDS)

    def validation_answers(self) -> list[tuple[Any, bool, str]]:
        """See TaskLayout: the faulty files and an empty answer must fail, the reference must pass."""
        faulty = {path: text.encode() for path, text in self.task.files.items() if path in self.task.editable}
        right = faulty | {path: text.encode() for path, text in self.task.reference.items()}
        return [
            (faulty, False, "the files as they are given pass; they must fail"),
            (right, True, "the reference fails; it must pass"),
            (dict.fromkeys(self.task.editable, b""), False, "an empty answer passes; it must fail"),
        ]


REPOSITORY_TEST_SECONDS = 1800.0


class DecidingTests(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The tests that decide on success, in SWE-bench's terms: those that a fix must make pass or must not break.

    If both lists are empty, the test command as a whole decides. `test_patch` is the diff that adds the hidden tests;
    `timeout` limits the test command, in seconds. `reverse`: the gold patch introduces the fault, and its reverse is
    the fix.
    """

    fail_to_pass: tuple[str, ...] = ()
    pass_to_pass: tuple[str, ...] = ()
    test_patch: str = ""
    timeout: float = REPOSITORY_TEST_SECONDS
    reverse: bool = False

    @property
    def all_tests(self) -> tuple[str, ...]:
        """The tests of both lists."""
        return (*self.fail_to_pass, *self.pass_to_pass)

    @property
    def total(self) -> int:
        """The number of listed tests; 1 if none is listed."""
        return len(self.all_tests) or 1


def read_deciding_tests(criteria: dict[str, Any]) -> DecidingTests:
    """Parse the criteria of a repository task. Raises DataError, which names the invalid field."""
    try:
        return msgspec.convert(criteria, DecidingTests)
    except msgspec.ValidationError as error:
        raise DataError(f"criteria cannot be used: {error}; correct the taskset") from error


REPOSITORY_OUTPUT_BYTES = 16 << 20
OUTCOME_ORDER = ("passed", "skipped", "failed")


def grade_repository_tests(
    sandbox: Sandbox,
    command: str,
    deciding_tests: DecidingTests,
    *,
    trusted: Mapping[str, bytes],
    graded: Iterable[str],
    timeout: float | None = None,
) -> Grade:
    """Run the test command of a repository task in a prepared workspace, and grade it.

    `trusted`: contents of the hidden test files, by path; `graded`: paths that the agent changed; `timeout` in seconds
    (None: that of the criteria). Raises CommandFailure (timeout or too much output), SandboxUnavailable.
    """
    seconds = timeout or deciding_tests.timeout
    graded_paths, deciding = _absolute_paths(sandbox, graded), _absolute_paths(sandbox, trusted)
    if not deciding_tests.all_tests:
        texts = {path: data.decode("utf-8", "replace") for path, data in trusted.items()}
        supervised = supervise_command(command, texts, graded_paths)
        if supervised is None:
            return Grade.of_whole_run(
                sandbox.run(command, timeout=seconds, output_limit=REPOSITORY_OUTPUT_BYTES).exit_code == 0
            )
        sandbox.write_files({path: text.encode() for path, text in supervised.files.items()})
        command = supervised.command
    report, result = run_supervised(
        sandbox, command, trusted=deciding, graded=graded_paths, timeout=seconds, output_limit=REPOSITORY_OUTPUT_BYTES
    )
    if report is None:
        return Grade(False, 0.0, 0, deciding_tests.total, "no_report" if result.exit_code == 0 else "crashed")
    return grade_listed_tests(deciding_tests, report, graded_paths)


def _absolute_paths(sandbox: Sandbox, paths: Iterable[str]) -> list[str]:
    """Return absolute paths in the sandbox, without those that are not UTF-8."""
    # They cannot be part of a JSON request, and Python cannot import them.
    encodable = (path for path in paths if path.encode(errors="replace") == path.encode(errors="surrogateescape"))
    return [posixpath.normpath(posixpath.join(sandbox.workspace, path)) for path in encodable]


def grade_listed_tests(deciding_tests: DecidingTests, report: SupervisorReport, graded: Iterable[str] = ()) -> Grade:
    """Grade the report of a run. Success: every listed test passes; if none is listed, some test passes and none fails.

    The score is the share of `fail_to_pass` that passes, and 0 if a test of `pass_to_pass` fails, so that leaving the
    program unchanged scores 0. A report that cannot be trusted scores 0. `graded`: see `grade_report`.
    """
    total = deciding_tests.total
    if report.distrust_reason:
        return Grade(False, 0.0, 0, total, report.distrust_reason)
    outcomes = _outcomes_by_name(report, list(graded))
    if not deciding_tests.all_tests:
        return Grade.of_whole_run(
            report.exit_code == 0 and "passed" in outcomes.values() and "failed" not in outcomes.values()
        )
    fixed = sum(outcomes.get(name) == "passed" for name in deciding_tests.fail_to_pass)
    still_passing = sum(outcomes.get(name) == "passed" for name in deciding_tests.pass_to_pass)
    if fixed + still_passing == total:
        return Grade(True, 1.0, total, total, "passed")
    if still_passing < len(deciding_tests.pass_to_pass):
        return Grade(False, 0.0, fixed + still_passing, total, "regression" if outcomes else "no_report")
    return Grade(
        False,
        fixed / len(deciding_tests.fail_to_pass),
        fixed + still_passing,
        total,
        "tests_failed" if outcomes else "no_report",
    )


def _outcomes_by_name(report: SupervisorReport, graded: list[str]) -> dict[str, str]:
    """Return the outcome by every name that a list may use; tests that share a name get the worst of their outcomes."""
    # Some published lists cut parameters at the first blank, others contain only function names. A full name wins.
    # Tests that failed as expected (pytest's xfail) count as passed in the lists of SWE-bench.
    phases = (phase for run in report.sessions or () if run.kind == "pytest" for phase in run.tests)
    expected = {phase.test for phase in phases if (phase.when, phase.outcome, phase.where) == ("call", "skipped", None)}
    full_names: dict[str, str] = {}
    short_names: dict[str, str] = {}
    for test, outcome in report.outcomes(graded).items():
        effective_outcome = "passed" if outcome == "skipped" and test in expected else outcome
        for name in reported_names(test):
            _record_worst(full_names, name, effective_outcome)
        for name in (test.split()[0], test.rpartition("::")[2]) if "::" in test else ():
            _record_worst(short_names, name, effective_outcome)
    return {**short_names, **full_names}


def _record_worst(outcomes: dict[str, str], name: str, outcome: str) -> None:
    outcomes[name] = max(outcomes.get(name, outcome), outcome, key=OUTCOME_ORDER.index)
