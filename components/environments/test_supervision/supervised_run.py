"""Run a test command under the supervisor in a sandbox, and interpret its report.

Three parts: parse the report into an outcome per test, run the supervisor, and wrap (*seal*) the scripts that a command
runs without a test runner, so that they report too.
"""

import posixpath
import re
import secrets
import shlex
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Literal

import msgspec

from ratchet.components.core import CommandResult, Sandbox

Outcome = Literal["passed", "failed", "skipped"]
_WORST_FIRST: tuple[Outcome, ...] = ("failed", "skipped", "passed")


class PhaseReport(msgspec.Struct, frozen=True):
    """One phase (`when`: setup, call, teardown, collect) of one test.

    `where`: if code skipped the test, the files in the traceback of that skip; None for a skip by a marker.
    """

    test: str
    when: str
    outcome: str
    where: tuple[str, ...] | None = None


class RunnerSession(msgspec.Struct, frozen=True):
    """One run of one test runner. `kind`: pytest, unittest or script; `name`: the script's.

    `finished`: it reported its end. `canary`: outcome of a test that must fail, or `absent`.
    """

    kind: str
    name: str
    tests: tuple[PhaseReport, ...]
    finished: bool
    canary: str = "absent"


class SupervisorReport(msgspec.Struct, frozen=True):
    """All sessions of one supervised command; None if a message was invalid. `exit_code` is the command's.

    `changed`: deciding files that were modified during the run.
    """

    nonce: str
    exit_code: int
    changed: tuple[str, ...]
    sessions: tuple[RunnerSession, ...] | None

    @property
    def distrust_reason(self) -> str | None:
        """The code of the reason why the report cannot be trusted; None if it can."""
        if self.changed:
            return "tests_changed"
        if self.sessions is None or any(session.canary == "passed" for session in self.sessions):
            return "forged"
        if any(not session.finished for session in self.sessions):
            return "left_early" if self.exit_code == 0 else "crashed"
        return None

    def outcomes(self, graded: Collection[str]) -> dict[str, Outcome]:
        """Return the outcome of each test. A skip by generated code or by code in `graded` files counts as a failure.

        `graded` are absolute paths. A script counts as one test if no runner reported tests.
        """
        sessions = self.sessions or ()
        runners = [session for session in sessions if session.kind != "script"] or sessions
        outcomes: dict[str, Outcome] = {}
        for phase in (phase for session in runners for phase in session.tests):
            outcome = _outcome(phase, graded)
            if outcome is not None:
                outcomes[phase.test] = min(outcome, outcomes.get(phase.test, outcome), key=_WORST_FIRST.index)
        return outcomes


def _outcome(phase: PhaseReport, graded: Collection[str]) -> Outcome | None:
    """Return the outcome that one phase implies for its test; None for a setup or teardown that passed."""
    if phase.outcome == "passed":
        return "passed" if phase.when == "call" else None
    if phase.outcome == "skipped" and not any(_is_graded_file(file, graded) for file in phase.where or ()):
        return "skipped"
    return "failed"


def _is_graded_file(file: str, graded: Collection[str]) -> bool:
    is_generated = file.startswith("<") and not file.startswith("<frozen ")
    return is_generated or posixpath.normpath(file) in graded


def read_report(stdout: bytes, nonce: str) -> SupervisorReport | None:
    """Parse the supervisor's output; None if it is anything but exactly one report with this `nonce`."""
    try:
        report = msgspec.json.decode(stdout.strip(), type=SupervisorReport)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
    return report if report.nonce == nonce else None


def reported_names(test: str) -> Iterable[str]:
    """Yield the names of a test: its id, and the two forms that versions of unittest print."""
    yield test
    class_path, _, method = test.rpartition(".")
    if class_path and "/" not in test and "::" not in test:
        yield f"{method} ({class_path})"
        yield f"{method} ({test})"


MAX_OUTPUT_BYTES = 16 << 20
_SANDBOX_FOLDER = Path(__file__).parent / "in_sandbox"
_SANDBOX_MODULES = ("ratchet_equality.py", "ratchet_channel.py", "ratchet_witness.py", "ratchet_unittest.py")
# Python imports `sitecustomize` at the start of every process of the test command, before anything graded.
_STARTUP_MODULE = {"sitecustomize.py": "import ratchet_unittest\n\nratchet_unittest.watch_unittest()\n"}


@cache
def sandbox_source(name: str) -> str:
    """Return the source code of a module of `in_sandbox`, which is sent into the sandbox."""
    return (_SANDBOX_FOLDER / name).read_text(encoding="utf-8")


def run_supervised(
    sandbox: Sandbox,
    command: str,
    *,
    trusted: Sequence[str] = (),
    graded: Sequence[str] = (),
    timeout: float,
    output_limit: int = MAX_OUTPUT_BYTES,
) -> tuple[SupervisorReport | None, CommandResult]:
    """Run `command` under the supervisor; return the supervisor's report and the result of its process.

    - `trusted`: absolute paths of the deciding files, which must not change.
    - `graded`: absolute paths of files that must not define a class whose instances equal everything; empty if the task
      may ask for such a class.

    The report is None if the supervisor was killed or did not start (the image needs a python3). The command's combined
    output is the standard error of the result. Raises what Sandbox.run raises.
    """
    # On standard input, not in an argument or a variable: graded code could read those in /proc.
    nonce = secrets.token_hex(16)
    request = {
        "nonce": nonce,
        "command": command,
        "trusted": list(trusted),
        "graded": list(graded),
        "modules": {name: sandbox_source(name) for name in _SANDBOX_MODULES} | _STARTUP_MODULE,
    }
    # -I -S: no PYTHONPATH, no site packages and no sitecustomize, which graded code could have planted.
    supervisor = ["python3", "-I", "-S", "-c", sandbox_source("supervisor.py")]
    result = sandbox.run(supervisor, timeout=timeout, stdin=msgspec.json.encode(request), output_limit=output_limit)
    return read_report(result.stdout, nonce), result


_RUNNER = re.compile(r"\b(pytest|py\.test|unittest)\b")
_PYTHON = re.compile(r"[\w./-]*\bpython[0-9.]*")
_INLINE_PYTHON = re.compile(r"\bpython[0-9.]*(?:\s+-\w+)*\s+(?:-c\b|-(?:\s|$)|<)")


class SupervisedCommand(msgspec.Struct, frozen=True):
    """A test command to supervise, and the sealed versions, by path, of the trusted scripts that it runs.

    The caller writes `files` to the workspace before the run.
    """

    command: str
    files: dict[str, str]


def supervise_command(command: str, trusted: Mapping[str, str], graded: Iterable[str]) -> SupervisedCommand | None:
    """Prepare a test command for the supervisor; return None if it runs no trusted Python.

    `trusted`: contents of the trusted files, by path; `graded`: absolute paths of the agent's files. None means that
    the exit code may decide: without pytest, unittest, a trusted script or `python -c`, graded code runs as a separate
    program. A supervised command that reports no session (for example Python code inside a shell script) never passes.
    """
    graded = tuple(graded)
    shell_text = "\n".join([command, *(text for path, text in trusted.items() if not path.endswith(".py"))])
    if _RUNNER.search(shell_text):
        return SupervisedCommand(command, {})
    files = {
        path: seal_script(trusted[path], graded)
        for path in trusted
        if path.endswith(".py") and _runs_script(shell_text, path)
    }
    if not files and not _INLINE_PYTHON.search(shell_text):
        return None
    return SupervisedCommand(_seal_inline(command, graded), files)


def _runs_script(shell_text: str, path: str) -> bool:
    """Return True if a script's name, or `-m` with its module, occurs in the command or in a file that it may run."""
    name = re.escape(posixpath.basename(path))
    module = re.escape(path.removesuffix(".py").replace("/", "."))
    return re.search(rf"(?<![\w-]){name}(?![\w.-])|-m\s*['\"]?{module}\b", shell_text) is not None


def seal_script(source: str, graded: tuple[str, ...]) -> str:
    """Return a script that runs `source` and reports its end. `graded`: absolute paths of the agent's files."""
    call = f"globals().pop('_sealed')({source!r}, {graded!r}, globals(), globals().pop('_find_always_equal'))"
    return f"{sandbox_source('sealed_script.py')}\n\n{sandbox_source('ratchet_equality.py')}\n\n{call}\n"


def _seal_inline(command: str, graded: tuple[str, ...]) -> str:
    """Seal the code of each `python -c 'CODE'`, except code that the shell would expand; that one will not report."""
    try:
        words = list(shlex.shlex(command, posix=False, punctuation_chars=True))
    except ValueError:
        return command
    after_python = False
    for option, code in pairwise(words):
        after_python = _PYTHON.fullmatch(option) is not None or (after_python and option.startswith("-"))
        if after_python and option == "-c" and _is_quoted(code):
            command = command.replace(code, shlex.quote(seal_script(shlex.split(code)[0], graded)), 1)
    return command


def _is_quoted(word: str) -> bool:
    return word[0] == "'" or (word[0] == '"' and not re.search(r"[$`]", word))
