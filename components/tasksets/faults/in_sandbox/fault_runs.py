# ruff: noqa: PTH100, PTH109, PTH123
"""Run a package's tests in a sandbox: once with a profile of the functions that each test calls, or once per faulty file.

The job comes on standard input. Each run is a fork of this process, which has pytest loaded already; its result is one
JSON line on standard output. Output of the tests is discarded, but for the line that names the first error where none passes.
"""

import contextlib
import importlib
import json
import os
import select
import signal
import sys
import tempfile
import threading
import time
import traceback
from typing import Any


class Outcomes:
    """A pytest plugin: the outcome and duration of each test, and with `root` the functions that it calls below it."""

    def __init__(self, root: str) -> None:
        self.tests: dict[str, list[Any]] = {}
        self.calls: dict[str, list[tuple[str, int]]] = {}
        self._root = root
        self._called: set[tuple[str, int]] = set()

    def pytest_runtest_logreport(self, report: Any) -> None:
        """Record the worst outcome of a test's phases, and their time."""
        outcome, seconds = self.tests.setdefault(report.nodeid, ["", 0.0])
        worst = report.outcome if report.outcome != "passed" or report.when == "call" else ""
        if hasattr(report, "wasxfail"):
            worst = "skipped"
        self.tests[report.nodeid] = [
            "failed" if "failed" in (outcome, worst) else worst or outcome,
            seconds + report.duration,
        ]

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        """Begin to record calls."""
        if self._root:
            self._called.clear()
            threading.setprofile(self._profile)
            sys.setprofile(self._profile)

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        """Record the functions that the test called."""
        if self._root:
            sys.setprofile(None)
            threading.setprofile(None)
            self.calls[nodeid] = sorted(self._called)

    def _profile(self, frame: Any, event: str, argument: Any) -> None:
        # Not the code objects: to keep those that a program makes while it runs would fill the memory.
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(self._root):
            self._called.add((code.co_filename[len(self._root) :], code.co_firstlineno))


def run_tests(tests: list[str], traced: bool) -> dict[str, Any]:
    """Run tests in this process, which is a fork; return exit code, outcomes, calls and loaded modules."""
    import pytest

    root = os.getcwd() + "/"
    outcomes = Outcomes(root if traced else "")
    options = ["-q", "-c", "/dev/null", "--rootdir", ".", "-p", "no:cacheprovider", "--continue-on-collection-errors"]
    exit_code = int(pytest.main([*options, *tests], plugins=[outcomes]))
    modules = [name for name in sys.modules if traced and name.partition(".")[0] in sys.stdlib_module_names]
    return {"exit_code": exit_code, "tests": outcomes.tests, "calls": outcomes.calls, "modules": modules}


def first_error(output: Any) -> str:
    """Return the first line that pytest marks as an error, else its last line."""
    output.seek(0)
    last = ""
    for line in output:
        last = line.decode(errors="replace").strip() or last
        if last.startswith("E  "):
            break
    return "".join(character for character in last.removeprefix("E").strip()[:200] if character.isprintable())


def forked(tests: list[str], seconds: float, traced: bool = False) -> dict[str, Any]:
    """Run tests in a fork; return their results, or `error` for a crash or a timeout."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.setsid()
            os.close(reading)
            silent = os.open(os.devnull, os.O_RDWR)
            output = tempfile.TemporaryFile()  # noqa: SIM115
            for descriptor, target in enumerate((silent, *[output.fileno() if traced else silent] * 2)):
                os.dup2(target, descriptor)
            result = run_tests(tests, traced)
            if not any(outcome == "passed" for outcome, _ in result["tests"].values()):
                sys.stdout.flush()
                result["cause"] = first_error(output)
        except BaseException:
            result = {"error": traceback.format_exc()[-500:]}
        with os.fdopen(writing, "w") as file:
            json.dump(result, file)
        os._exit(0)
    os.close(writing)
    deadline = time.monotonic() + seconds
    chunks: list[bytes] = []
    try:
        while select.select([reading], [], [], max(0.0, deadline - time.monotonic()))[0]:
            chunk = os.read(reading, 1 << 16)
            if not chunk:
                return dict(json.loads(b"".join(chunks).decode() or '{"error": "crashed"}'))
            chunks.append(chunk)
        return {"error": f"no end after {seconds:g} s"}
    finally:
        os.close(reading)
        with contextlib.suppress(OSError):
            os.killpg(child, signal.SIGKILL)
        os.waitpid(child, 0)


def main() -> None:
    """Run a job: all tests traced, or each fault with its tests."""
    job = json.load(sys.stdin)
    sys.path[:0] = [os.path.abspath(os.path.expandvars(folder)) for folder in job["path"]]
    # Also for programs that tests start.
    os.environ["PYTHONPATH"] = os.pathsep.join(sys.path[: len(job["path"])])
    for name in ("pytest", *job["modules"]):
        with contextlib.suppress(Exception):
            importlib.import_module(name)
    if not job["faults"]:
        print(json.dumps(forked(job["tests"], job["seconds"], job["traced"])), flush=True)
    for fault in job["faults"]:
        with open(fault["path"], "rb") as file:
            original = file.read()
        with open(fault["path"], "w", encoding="utf-8", newline="") as file:
            file.write(fault["text"])
        result = forked(fault["tests"], fault["seconds"])
        with open(fault["path"], "wb") as file:
            file.write(original)
        print(json.dumps({"fault_id": fault["fault_id"], **result}), flush=True)


if __name__ == "__main__":
    main()
