"""Prove faults by a package's own tests: the release passes, the fault fails, and three runs agree.

The three runs have different seeds of Python's hashes and sandboxes of their own. A fault runs only the tests that call
its function, in one forked interpreter. Results are appended to a journal, so that a killed run goes on where it was. A
fault that is chosen is then graded as its task will be.
"""

import hashlib
import random
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import combinations, zip_longest
from pathlib import Path
from typing import Any

import msgspec

from ratchet.components.core import CommandFailure, DataError, Sandbox
from ratchet.components.core.files import append_json_lines, read_json_lines, write_json
from ratchet.components.environments.git_mirror import FILE_MODE, GitFile
from ratchet.components.environments.repository_tasks import apply_changes, tar_archive, unpack_files
from ratchet.components.environments.task_grading import DecidingTests, grade_repository_tests

from .released_package import RUNNER_FILE, RUNNER_FOLDER, SETUP_COMMAND, ReleasedPackage
from .source_edits import COMPOSITION, Fault, compose, find_faults

SEEDS = (0, 1, 2)
BASELINE_SECONDS = 500.0
MAX_TESTS = 40
MAX_TEST_SECONDS = 10.0
FAULTS_OF_A_FUNCTION = 4
COMPOSED_SHARE = 0.15
BATCH = 24
# Also for pytest to start: on a busy machine that alone takes seconds.
FAULT_SECONDS = 20.0
_IN_SANDBOX = Path(__file__).parent / "in_sandbox"
_SCAN = (_IN_SANDBOX / "solution_scan.py").read_text(encoding="utf-8")


class Copies(msgspec.Struct, frozen=True):
    """Functions, as `path:line`, that the sandbox also holds elsewhere: the same, or almost, such as in another version."""

    exact: list[str] = []
    near: list[str] = []


class Baseline(msgspec.Struct, frozen=True):
    """Tests that pass in all runs of the release, with their seconds, and the tests that call a function.

    `callers`: by `path:line` of the function. `copied`, `near`: functions that the sandbox also holds elsewhere.
    """

    seconds: dict[str, float]
    callers: dict[str, list[str]]
    copied: list[str]
    modules: list[str]
    near: list[str] = []

    def tests_of(self, fault: Fault) -> list[str]:
        """Return the tests that call the fault's function, the fastest first, for at most MAX_TEST_SECONDS."""
        place = f"{fault.path}:{fault.line}"
        chosen: list[str] = []
        total = 0.0
        for test in sorted(self.callers.get(place, ()), key=lambda test: (self.seconds[test], test)):
            total += self.seconds[test]
            if len(chosen) == MAX_TESTS or total > MAX_TEST_SECONDS:
                break
            chosen.append(test)
        return [] if place in self.copied else sorted(chosen)


class FaultResult(msgspec.Struct, frozen=True):
    """The result of a fault: the tests that fail and that pass, alike in all runs; both empty if it proves nothing.

    `seconds`: the duration of the slowest run's tests. `confirmed`: the grading of tasks agrees.
    """

    fault_id: str
    failed: tuple[str, ...] = ()
    passed: tuple[str, ...] = ()
    seconds: float = 0.0
    confirmed: bool = False

    @property
    def deciding_tests(self) -> DecidingTests:
        """The tests that decide on the task, with its time limit."""
        return DecidingTests(self.failed, self.passed, timeout=round(30.0 + 10.0 * self.seconds))


class NoTestPasses(DataError):
    """No test of the release passes in all runs."""


SandboxFactory = Callable[[], Sandbox]


class FaultProver:
    """Runs of one package's tests, each in a fresh sandbox of `sandbox_factory`."""

    def __init__(
        self,
        package: ReleasedPackage,
        runner: bytes,
        sandbox_factory: SandboxFactory,
        folder: Path,
        copied: Copies,
    ) -> None:
        """`copied`: functions that every sandbox holds a copy of."""
        self._copied = copied
        self._package = package
        self._archive = tar_archive({**package.files, RUNNER_FILE: GitFile(FILE_MODE, runner)})
        self._sandbox_factory = sandbox_factory
        self._folder = folder
        self._release_passes: dict[tuple[str, frozenset[str]], bool] = {}
        folder.mkdir(parents=True, exist_ok=True)

    def baseline(self) -> Baseline:
        """Return the release's own results, from the journal if they are there.

        Raises NoTestPasses, and DataError for a crash or a timeout.
        """
        file = self._folder / "baseline.json"
        if file.is_file():
            return msgspec.json.decode(file.read_bytes(), type=Baseline)
        job = {"tests": self._package.test_files, "seconds": BASELINE_SECONDS, "modules": [], "faults": []}
        runs = []
        for seed in SEEDS:
            runs += self._run({**job, "traced": seed == SEEDS[0]}, seed, BASELINE_SECONDS + 60)
            if len(runs) <= seed or "error" in runs[-1]:
                reason = runs[-1]["error"].splitlines()[-1] if len(runs) > seed else "stopped"
                raise DataError(f"{self._package.name}: its tests cannot be run ({reason}); leave it out")
            if cause := runs[0].get("cause"):
                raise NoTestPasses(f"{self._package.name}: none of its tests passes here ({cause}); leave it out")
        seconds = {
            test: max(run["tests"][test][1] for run in runs)
            for test in runs[0]["tests"]
            if test.isprintable() and all(run["tests"].get(test, [""])[0] == "passed" for run in runs)
        }
        if not seconds:
            raise NoTestPasses(f"{self._package.name}: no test passes in all of {len(SEEDS)} runs; leave it out")
        callers = defaultdict(list)
        for test, places in runs[0]["calls"].items():
            if test in seconds:
                for path, line in places:
                    callers[f"{path}:{line}"].append(test)
        here = self._copied_functions()
        exact, near = {*self._copied.exact, *here.exact}, {*self._copied.near, *here.near}
        baseline = Baseline(seconds, callers, sorted(exact), runs[0]["modules"], sorted(near))
        write_json(file, baseline)
        return baseline

    def prove(self, faults: Sequence[Fault], baseline: Baseline) -> list[FaultResult]:
        """Return the results of faults in their order; those in the journal are not run again."""
        journal = self._folder / "faults.jsonl"
        known = {row.fault_id: row for row in read_json_lines(journal, FaultResult)} if journal.is_file() else {}
        new = [fault for fault in faults if fault.fault_id not in known]
        runs: list[dict[str, dict[str, Any]]] = []
        for seed in SEEDS:
            # A fault that already proves nothing does not run again.
            left = [fault for fault in new if all(_fails(run.get(fault.fault_id, {})) for run in runs)]
            runs.append(self._run_faults(left, baseline, seed) if left else {})
        results = [self._result(fault, baseline, [run.get(fault.fault_id, {}) for run in runs]) for fault in new]
        if results:
            append_json_lines(journal, results)
        known.update({row.fault_id: row for row in results})
        return [known[fault.fault_id] for fault in faults]

    def confirm(self, fault: Fault, result: FaultResult) -> bool:
        """Return whether the grading of tasks fails the fault and passes the release, from the journal if it is there.

        It is stricter than the runs above: it passes no file with a class whose instances equal everything, for example.
        """
        if result.confirmed:
            return True
        tests, source = result.deciding_tests, self._package.files[fault.path].data
        # All faults of a function have the same tests, so the release is graded once for them.
        release = fault.path, frozenset(tests.all_tests)
        if release not in self._release_passes:
            self._release_passes[release] = self._grade(fault.path, source, tests, graded=[fault.path])
        agrees = self._release_passes[release] and not self._grade(fault.path, fault.apply(source), tests, graded=[])
        row = msgspec.structs.replace(result, confirmed=True) if agrees else FaultResult(fault.fault_id)
        append_json_lines(self._folder / "faults.jsonl", [row])
        return agrees

    def _grade(self, path: str, content: bytes, tests: DecidingTests, graded: Sequence[str]) -> bool:
        """Return whether the grading passes the package with a changed file."""
        command = self._package.test_command(sorted(tests.all_tests))
        files = {test.partition("::")[0] for test in tests.all_tests}
        trusted = {file: self._package.files[file].data for file in files}
        with self._workspace() as sandbox:
            apply_changes(sandbox, {path: GitFile(FILE_MODE, content)})
            try:
                return grade_repository_tests(sandbox, command, tests, trusted=trusted, graded=graded).success
            except CommandFailure:
                return False

    def _result(self, fault: Fault, baseline: Baseline, runs: list[dict[str, Any]]) -> FaultResult:
        tests = baseline.tests_of(fault)
        outcomes = [{test: run["tests"].get(test, [""])[0] for test in tests} for run in runs if _fails(run)]
        first = outcomes[0] if outcomes else {}
        alike = len(outcomes) == len(SEEDS) and outcomes.count(first) == len(outcomes)
        if not alike or not set(first.values()) <= {"passed", "failed"}:
            return FaultResult(fault.fault_id)
        of = {outcome: tuple(test for test in tests if first[test] == outcome) for outcome in ("failed", "passed")}
        seconds = max(sum(row[1] for row in run["tests"].values()) for run in runs)
        return FaultResult(fault.fault_id, of["failed"], of["passed"], round(seconds, 1))

    def _run_faults(self, faults: list[Fault], baseline: Baseline, seed: int) -> dict[str, dict[str, Any]]:
        rows: list[dict[str, Any]] = []
        for fault in faults:
            tests = baseline.tests_of(fault)
            limit = FAULT_SECONDS + 4.0 * sum(baseline.seconds[test] for test in tests)
            text = fault.apply(self._package.files[fault.path].data).decode()
            rows.append(
                {"fault_id": fault.fault_id, "path": fault.path, "text": text, "tests": tests, "seconds": limit}
            )
        # Last, the release itself: a fault that damaged the workspace for those after it is noticed.
        control = {**rows[-1], "fault_id": "", "text": self._package.files[faults[-1].path].data.decode()}
        job = {"modules": baseline.modules, "faults": [*rows, control]}
        results = {row["fault_id"]: row for row in self._run(job, seed, 60.0 + sum(row["seconds"] for row in rows))}
        clean: dict[str, list[Any]] = results.pop("", {}).get("tests", {})
        if clean and all(outcome == "passed" for outcome, _ in clean.values()):
            return results
        # Nothing may be concluded, or written to the journal: the machine was too busy, or a fault damaged the workspace.
        if len(faults) == 1:
            return {}
        half = len(faults) // 2
        return {**self._run_faults(faults[:half], baseline, seed), **self._run_faults(faults[half:], baseline, seed)}

    def _run(self, job: Mapping[str, Any], seed: int, seconds: float) -> list[dict[str, Any]]:
        """Run a job of fault_runs.py; return its lines, fewer if it was stopped."""
        driver = (_IN_SANDBOX / "fault_runs.py").read_text(encoding="utf-8")
        request = {**job, "path": [self._package.source_folder, "$TMPDIR/test-runner"]}
        variables = {"PYTHONHASHSEED": str(seed), "PYTHONDONTWRITEBYTECODE": "1", **self._package.environment}
        with self._workspace() as sandbox:
            try:
                result = sandbox.run(
                    ["python3", "-c", driver],
                    stdin=msgspec.json.encode(request),
                    timeout=seconds,
                    env={**variables, "TMPDIR": _temporary(sandbox)},
                    output_limit=64 << 20,
                )
            except CommandFailure as failure:
                result = failure.result
        rows = []
        for line in result.stdout.splitlines():
            try:
                rows.append(msgspec.json.decode(line, type=dict[str, Any]))
            except msgspec.DecodeError:
                break
        return rows

    def _copied_functions(self) -> Copies:
        sources = {path: data.decode("utf-8", "replace") for path, data in self._package.modules.items()}
        with self._workspace() as sandbox:
            return _find_copies(sandbox, sources, [sandbox.workspace, f"{_temporary(sandbox)}/test-runner"])

    @contextmanager
    def _workspace(self) -> Iterator[Sandbox]:
        with self._sandbox_factory() as sandbox:
            unpack_files(sandbox, self._archive)
            result = sandbox.run(SETUP_COMMAND, timeout=120.0)
            if result.exit_code:
                message = " ".join(result.stderr_text.split())[-200:]
                raise DataError(f"{self._package.name}: its test runner cannot be unpacked: {message}")
            yield sandbox


def _find_copies(sandbox: Sandbox, sources: Mapping[str, str], roots: Sequence[str]) -> Copies:
    """Return the functions of `sources` of which the sandbox's `roots` hold a copy in another file."""
    request = msgspec.json.encode({"roots": roots, "sources": sources})
    result = sandbox.run(["python3", "-I", "-c", _SCAN], stdin=request, timeout=BASELINE_SECONDS)
    if result.exit_code:
        last = (result.stderr_text.strip().splitlines() or ["no reason given"])[-1]
        raise DataError(f"the search for copies in the sandbox failed: {last}")
    return msgspec.json.decode(result.stdout, type=Copies)


def installed_copies(factory: SandboxFactory, packages: Sequence[ReleasedPackage], work: Path) -> dict[str, Copies]:
    """Return the functions of each package that the empty sandbox has a copy of: in the system's packages and in pip."""
    digests = {item.name: hashlib.sha256(f"{item.sha256}{_SCAN}".encode()).hexdigest()[:16] for item in packages}
    files = {name: work / f"copies-{digest}.json" for name, digest in digests.items()}
    new = [package for package in packages if not files[package.name].is_file()]
    if new:
        sources = {f"{package.name}/{path}": data.decode("utf-8", "replace")
                   for package in new for path, data in package.modules.items()}  # fmt: skip
        with factory() as sandbox:
            found = _find_copies(sandbox, sources, ["/"])
        for own in [f"{package.name}/" for package in new]:
            exact, near = ([place.removeprefix(own) for place in places if place.startswith(own)]
                           for places in (found.exact, found.near))  # fmt: skip
            write_json(files[own[:-1]], Copies(exact, near))
    return {name: msgspec.json.decode(file.read_bytes(), type=Copies) for name, file in files.items()}


def _temporary(sandbox: Sandbox) -> str:
    return sandbox.run(f'printf %s "{RUNNER_FOLDER}"').stdout_text.rpartition("/")[0]


def _fails(run: Mapping[str, Any]) -> bool:
    """Return True for a run that ended regularly with failed tests (pytest's exit code 1) and no crash or timeout."""
    return run.get("exit_code") == 1 and any(outcome == "failed" for outcome, _ in run["tests"].values())


def candidate_faults(package: ReleasedPackage, baseline: Baseline, seed: int) -> list[Fault]:
    """Return the faults in functions that tests call, in random order; functions take turns of two, for compositions."""
    of_function = defaultdict(list)
    for path, source in package.modules.items():
        for fault in find_faults(path, source):
            if baseline.tests_of(fault):
                of_function[path, fault.line].append(fault)
    generator = random.Random(f"{seed}/{package.name}/{package.version}")
    groups = list(of_function.values())
    generator.shuffle(groups)
    for group in groups:
        generator.shuffle(group)
    pairs = [[group[at : at + 2] for at in range(0, len(group), 2)] for group in groups]
    ordered = [fault for turn in zip_longest(*pairs, fillvalue=[]) for pair in turn for fault in pair]
    # Only now: other versions on a machine change which faults there are, not their order.
    return [fault for fault in ordered if f"{fault.path}:{fault.line}" not in baseline.near]


Proven = tuple[Fault, FaultResult]


def proven_faults(
    prover: FaultProver, package: ReleasedPackage, baseline: Baseline, count: int, seed: int
) -> Iterator[Proven]:
    """Yield up to `count` proven faults, those with different failing tests in a function, then compositions of them."""
    singles: dict[tuple[str, str], list[Proven]] = defaultdict(list)
    candidates = candidate_faults(package, baseline, seed)
    wanted = count - round(count * COMPOSED_SHARE)
    for fault, result in _in_batches(prover, candidates, baseline):
        group = singles[fault.path, fault.function]
        if len(group) < FAULTS_OF_A_FUNCTION and prover.confirm(fault, result):
            group.append((fault, result))
            yield fault, result
        if sum(map(len, singles.values())) >= wanted:
            break
    pairs = (pair for group in singles.values() for pair in combinations([fault for fault, _ in group], 2))
    composed = [both for first, second in pairs if (both := compose(first, second))]
    left = count - wanted
    for fault, result in _in_batches(prover, composed, baseline):
        if left == 0:
            return
        assert fault.kind == COMPOSITION
        if prover.confirm(fault, result):
            left -= 1
            yield fault, result


def faults_by_id(package: ReleasedPackage, fault_ids: Sequence[str]) -> dict[str, Fault]:
    """Return the faults of these ids that the package has: single ones, and compositions of those among them."""
    found = {fault.fault_id: fault for path, source in package.modules.items() for fault in find_faults(path, source)}
    singles = [found[fault_id] for fault_id in fault_ids if fault_id in found]
    for first, second in combinations(singles, 2):
        if (first.path, first.function) == (second.path, second.function) and (both := compose(first, second)):
            found[both.fault_id] = both
    return {fault_id: found[fault_id] for fault_id in fault_ids if fault_id in found}


def _in_batches(prover: FaultProver, faults: Sequence[Fault], baseline: Baseline) -> Iterator[Proven]:
    for start in range(0, len(faults), BATCH):
        batch = faults[start : start + BATCH]
        results: Iterable[FaultResult] = prover.prove(batch, baseline)
        for fault, result in zip(batch, results, strict=True):
            if result.failed:
                yield fault, result
