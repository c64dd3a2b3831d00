"""Grading: the hidden tests of a task, run in a fresh sandbox that received nothing of the agent but its answer.

The answer is the content of the files that the agent may change. Everything else comes from the task, so that whatever the
agent left behind (a conftest.py, a sitecustomize.py, a daemon) is not there. Expected output is compared here, outside of
the sandbox: code under test cannot read it, and printing or exiting early earns nothing.
"""

from collections.abc import Callable, Mapping

import msgspec

from components.protocol import (
    CommandFailure,
    CommandResult,
    CommandTimeout,
    Sandbox,
    SandboxFileError,
    TaskSpec,
)

LARGEST_ANSWER = 1 << 20
OUTPUT_LIMIT = 1 << 20
TIMEOUT = 10.0


class Grade(msgspec.Struct, frozen=True):
    """How an answer did. `score` is tests passed / tests. `reason` is `passed`, or in a word why not."""

    success: bool
    score: float
    tests_passed: int
    tests_total: int
    reason: str


def collect_answer(task: TaskSpec, sandbox: Sandbox) -> dict[str, bytes]:
    """The files that the agent may change, as they stand; one that is absent, a link or too large is left out."""
    answer = {}
    for path in task.editable:
        try:
            content = sandbox.read(path)
        except SandboxFileError:
            continue
        if len(content) <= LARGEST_ANSWER:
            answer[path] = content
    return answer


def grade(
    task: TaskSpec, answer: Mapping[str, bytes], sandbox_factory: Callable[[], Sandbox], *, timeout: float = TIMEOUT
) -> Grade:
    """Run the hidden tests over `answer` (path to content; only the editable paths count) for at most `timeout` seconds.

    A missing file, a time-out, too much output and a crash are the answer's failure. SandboxUnavailable is nobody's:
    it leaves this function and is never a grade.
    """
    total = len(task.expected_output) or 1
    if any(path not in answer for path in task.editable):
        return Grade(False, 0.0, 0, total, "missing_file")
    try:
        with sandbox_factory() as sandbox:
            sandbox.write_files(_files(task, answer))
            result = sandbox.run(task.test_command, timeout=timeout, output_limit=OUTPUT_LIMIT)
    except CommandFailure as failure:
        reason = "timeout" if isinstance(failure, CommandTimeout) else "output_limit"
        return Grade(False, 0.0, 0, total, reason)
    return judge(task, result)


def _files(task: TaskSpec, answer: Mapping[str, bytes]) -> dict[str, bytes]:
    """The task's own files, the answer in the editable places, and the tests over everything."""
    files = {path: text.encode() for path, text in task.files.items()}
    files.update({path: answer[path] for path in task.editable})
    files.update({path: text.encode() for path, text in task.tests.items()})
    return files


def judge(task: TaskSpec, result: CommandResult) -> Grade:
    """The grade that follows from what the test command printed and how it ended."""
    if not task.expected_output:
        success = result.exit_code == 0
        return Grade(success, float(success), int(success), 1, "passed" if success else "tests_failed")
    expected = task.expected_output
    lines = _lines(result.stdout_text)
    if lines == list(expected) and result.exit_code == 0:
        return Grade(True, 1.0, len(expected), len(expected), "passed")
    passed = sum(given == wanted for given, wanted in zip(lines, expected, strict=False))
    if len(lines) > len(expected) or passed == len(expected):
        passed = 0  # the code under test printed or ended the script by itself: no line can be trusted
    reason = "tests_failed" if result.exit_code == 0 else "crashed"
    return Grade(False, passed / len(expected), passed, len(expected), reason)


def _lines(text: str) -> list[str]:
    """Lines that end in a newline; a last one without it counts too."""
    lines = text.split("\n")
    return lines[:-1] if lines[-1] == "" else lines
