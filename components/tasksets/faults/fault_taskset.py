"""Write proven faults as a taskset of repository tasks, with a manifest of hashes that may be committed in their place.

Each task is one commit without parents in a repository of its package: the release with the fault, and nothing else. A
family is a function, and the role belongs to the package: a function that packages of two roles share is left out.
"""

import hashlib
import os
from collections import defaultdict
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec

from ratchet.components.core import ConfigurationError, DataError, InfrastructureError, Repository, Role, TaskSpec
from ratchet.components.core.files import temporary_folder, write_atomically
from ratchet.components.environments.git_mirror import FILE_MODE, GitFile, run_git
from ratchet.components.environments.repository_tasks import BASE_DATE, GOLD_PATCH

from ..taskset_files import TasksetHead, check_import_folder, write_taskset
from .fault_proof import (
    Copies,
    FaultProver,
    FaultResult,
    NoTestPasses,
    Proven,
    SandboxFactory,
    faults_by_id,
    installed_copies,
    proven_faults,
)
from .released_package import (
    REQUIREMENT,
    RUNNER_FILE,
    SETUP_COMMAND,
    ReleasedPackage,
    build_runner,
    fetch_sdist,
    read_sdist,
)
from .source_edits import Fault

GENERATOR = "ratchet tasks faults"
MANIFEST_FILE = "manifest.json"
_ROLE_SHARES = ((0.55, Role.TRAIN), (0.7, Role.PROMOTE), (0.9, Role.AUDIT), (1.0, Role.RESERVE))
_IDENTITY = {f"GIT_{who}_{what}": value for who in ("AUTHOR", "COMMITTER")
             for what, value in (("NAME", "base"), ("EMAIL", "base@localhost"), ("DATE", BASE_DATE))}  # fmt: skip


class TaskRow(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A task in the manifest: its hash (see `_portable_hash`), and its proof.

    `failed`, `passed`: positions in the package's list of tests.
    """

    hash: str
    failed: tuple[int, ...]
    passed: tuple[int, ...]
    seconds: float

    def result(self, fault_id: str, tests: Sequence[str]) -> FaultResult:
        """Return the result of the fault's proof. `tests`: those of the package."""
        failed, passed = (tuple(tests[at] for at in places) for places in (self.failed, self.passed))
        return FaultResult(fault_id, failed, passed, self.seconds)


class PackageRow(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A package in the manifest. `runner`: what its test runner holds, each NAME==VERSION; `tests`: those that decide."""

    name: str
    version: str
    sdist: str
    sha256: str
    role: Role
    runner: tuple[str, ...]
    tests: tuple[str, ...]
    tasks: dict[str, TaskRow]

    def __post_init__(self) -> None:
        # pip reads these on this machine: an address or an option must not come out of a manifest.
        if not all(map(REQUIREMENT.fullmatch, (f"{self.name}=={self.version}", *self.runner))):
            raise ValueError(f"package {self.name!r} or one of its runner is no NAME==VERSION")
        if not {at for task in self.tasks.values() for at in (*task.failed, *task.passed)} <= set(
            range(len(self.tests))
        ):
            raise ValueError(f"package {self.name!r} has a task with a test that its tests do not list")


class Manifest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a taskset is made of: of it, without a new proof, the same tasks are made anywhere."""

    generator: str
    seed: int
    per_package: int
    packages: tuple[PackageRow, ...] = ()

    def encode(self) -> bytes:
        """Return JSON with one line for each package."""
        rows = b",\n".join(map(msgspec.json.encode, self.packages))
        return (
            msgspec.json.encode(msgspec.structs.replace(self, packages=())).replace(b"[]", b"[\n%b\n]" % rows) + b"\n"
        )


class PackageFaults(msgspec.Struct, frozen=True):
    """The proven faults of one package; `problem`: why it gave none, in one line."""

    package: ReleasedPackage | None
    proven: tuple[Proven, ...] = ()
    problem: str = ""


def role_of(package: str) -> Role:
    """Return the role of all tasks of a package: by a hash of its name, so that other packages do not change it."""
    share = int(hashlib.sha256(package.encode()).hexdigest()[:8], 16) / 0x100000000
    return next(role for limit, role in _ROLE_SHARES if share < limit)


def generate(
    folder: Path,
    requirements: Sequence[str],
    sandbox_factory: SandboxFactory,
    *,
    per_package: int,
    workers: int,
    seed: int,
    on_package: Callable[[str, int, str], None],
) -> tuple[list[TaskSpec], list[PackageFaults]]:
    """Make a taskset in `folder` of `requirements`: names of packages, with or without ==VERSION, or paths of sdists.

    The packages of the manifest in `folder` are part of it, too: their tasks are made again by its rows, without a new
    proof, and must have the same hashes. Proven faults are kept in `folder/.work`, so that the same call goes on where it was
    stopped. Calls `on_package` with a requirement, its number of tasks and its problem. Raises DataError if no package
    gives a task or a hash differs, ConfigurationError if the manifest has other options.
    """
    check_import_folder(folder, GENERATOR)
    manifest = Manifest(GENERATOR, seed, per_package)
    rows = _rows(folder / MANIFEST_FILE, manifest)
    if not requirements and not rows:
        raise ConfigurationError(f"{folder} has no {MANIFEST_FILE}; name packages, such as toolz")
    work = folder / ".work"
    work.mkdir(parents=True, exist_ok=True)
    # The packages' sources are theirs: only the manifest may be committed.
    (folder / ".gitignore").write_text(f"*\n!.gitignore\n!{MANIFEST_FILE}\n", encoding="utf-8")
    with ThreadPoolExecutor(workers) as pool:
        read = list(pool.map(lambda requirement: _read_package(requirement, work, rows), requirements))
        named = {*requirements, *(item.package.name for item in read if item.package)}
        others = [name for name in rows if name not in named]
        read += pool.map(lambda name: _read_package(name, work, rows), others)
        copied = installed_copies(sandbox_factory, [item.package for item in read if item.package], work)

        def make(item: PackageFaults, requirement: str) -> PackageFaults:
            if package := item.package:
                row = rows.get(package.name)
                if row and row.sha256 == package.sha256:
                    item = _recall_package(package, work, copied[package.name], row)
                else:
                    item = _prove_package(package, work, sandbox_factory, copied, per_package, seed)
            on_package(requirement, len(item.proven), item.problem)
            return item

        made = sorted(
            pool.map(make, read, [*requirements, *others]), key=lambda item: item.package.name if item.package else ""
        )
    shared = _shared_digests(made)
    tasks = []
    for item in made:
        if item.package and (new := write_tasks(folder, item.package, item.proven, shared)):
            rows[item.package.name] = _row(item, new, rows.get(item.package.name))
            tasks += new
    if not tasks:
        raise DataError(f"no package gave a task: {'; '.join(item.problem for item in made if item.problem)[:300]}")
    head = TasksetHead(folder.resolve().name, "1", "coding", {}, description="Repair tasks of released packages.",
                       generator=GENERATOR, seed=seed)  # fmt: skip
    by_role = {role: of_role for role in Role if (of_role := [task for task in tasks if task.role == role])}
    write_taskset(folder, head, by_role, _card(head.name, tasks))
    manifest = msgspec.structs.replace(manifest, packages=tuple(rows[name] for name in sorted(rows)))
    write_atomically(folder / MANIFEST_FILE, manifest.encode())
    return tasks, made


def _rows(file: Path, wanted: Manifest) -> dict[str, PackageRow]:
    """Return the packages of an earlier manifest, by name. It must have been made with the options of `wanted`."""
    if not file.is_file():
        return {}
    try:
        manifest = msgspec.json.decode(file.read_bytes(), type=Manifest)
    except msgspec.DecodeError as error:
        raise DataError(f"{file} is no manifest of {GENERATOR}: {error}; restore or remove it") from error
    if msgspec.structs.replace(manifest, packages=()) != wanted:
        options = f"--seed {manifest.seed} --per-package {manifest.per_package}"
        raise ConfigurationError(f"{file} was made with other options ({options}); use them, or another folder")
    return {row.name: row for row in manifest.packages}


def _read_package(requirement: str, work: Path, pinned: dict[str, PackageRow]) -> PackageFaults:
    pin = pinned.get(requirement)
    wanted = f"{requirement}=={pin.version}" if pin else requirement
    stem = wanted.replace("==", "-").replace("_", "-").lower()
    try:
        earlier = [file for file in work.glob("*.tar.gz") if file.name.replace("_", "-").lower() == f"{stem}.tar.gz"]
        package = read_sdist(earlier[0] if earlier else fetch_sdist(wanted, work))
        if pin and pin.sha256 != package.sha256:
            raise DataError(
                f"{package.sdist} has another hash than in {MANIFEST_FILE}; remove that file or the package"
            )
        if not package.test_files:
            raise DataError("its source distribution holds no tests (test_*.py, *_test.py, tests.py); leave it out")
    except (DataError, InfrastructureError) as error:
        return PackageFaults(None, problem=f"{requirement}: {error}")
    return PackageFaults(package)


def _prove_package(
    package: ReleasedPackage, work: Path, factory: SandboxFactory, copied: dict[str, Copies], count: int, seed: int
) -> PackageFaults:
    plain = work / f"{package.name}-{package.version}-{package.sha256[:8]}"
    attempts = [(plain, package.requirements)]
    if package.test_requirements:
        # They lie in every workspace, and may hold a copy: only where no test passes without.
        attempts.append((Path(f"{plain}-tests"), (*package.requirements, *package.test_requirements)))
    if (attempts[-1][0] / "baseline.json").is_file():
        attempts = attempts[-1:]
    problems: list[str] = []
    for folder, requirements in attempts:
        package = msgspec.structs.replace(package, requirements=requirements)
        try:
            runner, installed = build_runner(package, work)
            package = msgspec.structs.replace(package, requirements=installed)
            prover = FaultProver(package, runner, factory, folder, copied[package.name])
            proven = tuple(proven_faults(prover, package, prover.baseline(), count, seed))
            break
        except (DataError, InfrastructureError) as error:
            problems.append(str(error))
            if folder == attempts[-1][0] or not isinstance(error, NoTestPasses):
                return PackageFaults(package, problem="; with the requirements of its tests: ".join(problems))
    problem = (
        ""
        if proven
        else f"{package.name}: no fault was proven: its tests call too little, or the sandbox holds a copy of it"
    )
    return PackageFaults(_with_runner(package, runner), proven, problem)


def _with_runner(package: ReleasedPackage, runner: bytes) -> ReleasedPackage:
    """Return the package with its test runner among the files: it is part of every workspace."""
    return msgspec.structs.replace(package, files={**package.files, RUNNER_FILE: GitFile(FILE_MODE, runner)})


def _recall_package(package: ReleasedPackage, work: Path, copied: Copies, row: PackageRow) -> PackageFaults:
    """Return the faults of a row, without those in functions of which the sandbox of this machine holds a copy."""
    package = msgspec.structs.replace(package, requirements=row.runner)
    try:
        runner, _ = build_runner(package, work)
    except (DataError, InfrastructureError) as error:
        return PackageFaults(package, problem=str(error))
    results = {task_id.rpartition("/")[2]: task.result(task_id.rpartition("/")[2], row.tests)
               for task_id, task in row.tasks.items()}  # fmt: skip
    faults = faults_by_id(package, list(results))
    if missing := results.keys() - faults:
        return PackageFaults(package, problem=f"{row.name}: {len(missing)} faults of {MANIFEST_FILE}, such as {min(missing)}, "
                             "are not found in it; use the version of Python that made them, or remove its row")  # fmt: skip
    there = {*copied.exact, *copied.near}
    proven = tuple(
        (fault, results[name]) for name, fault in faults.items() if f"{fault.path}:{fault.line}" not in there
    )
    return PackageFaults(_with_runner(package, runner), proven)


def _shared_digests(results: Sequence[PackageFaults]) -> set[str]:
    """Return the digests of functions that occur in packages of more than one role."""
    roles = defaultdict(set)
    for item in results:
        for fault, _ in item.proven:
            assert item.package is not None
            roles[fault.digest].add(role_of(item.package.name))
    return {digest for digest, seen in roles.items() if len(seen) > 1}


def write_tasks(folder: Path, package: ReleasedPackage, proven: Sequence[Proven], shared: set[str]) -> list[TaskSpec]:
    """Write the commits of a package's faults to its repository; return the tasks, without functions in `shared`."""
    # Relative to where the command runs: a task's hash does not depend on the machine.
    source = Path(os.path.relpath(folder / "repositories" / f"{package.name}.git"))
    if not (source / "HEAD").is_file():
        run_git("init", "--quiet", "--bare", "--template=", str(source.resolve()), action=f"make {source}")
    writer = _CommitWriter(source.resolve(), package)
    tasks = []
    for fault, result in proven:
        if fault.digest not in shared:
            faulty = fault.apply(package.files[fault.path].data)
            commit, patch = writer.commit(fault.fault_id, fault.path, faulty)
            tasks.append(_task(folder.resolve().name, package, fault, result, str(source), commit, patch))
    return tasks


class _CommitWriter:
    """Writes commits of a release with one changed file. The release itself gets no commit: a mirror lacks its objects."""

    def __init__(self, repository: Path, package: ReleasedPackage) -> None:
        self._git_dir = f"--git-dir={repository}"
        with temporary_folder("release") as work:
            for number, file in enumerate(package.files.values()):
                (Path(work) / str(number)).write_bytes(file.data)
            paths = "".join(f"{work}/{number}\n" for number in range(len(package.files)))
            names = self._git("hash-object", "-w", "--no-filters", "--stdin-paths", data=paths.encode()).split()
        rows = zip(package.files.items(), names, strict=True)
        self._entries = {path: (file.mode, name) for (path, file), name in rows}
        self._base = self._tree(self._entries)

    def commit(self, name: str, path: str, data: bytes) -> tuple[str, str]:
        """Return the hash of the commit with `path` changed to `data`, and the patch back to the release."""
        blob = self._git("hash-object", "-w", "--no-filters", "--stdin", data=data)
        tree = self._tree({**self._entries, path: (self._entries[path][0], blob)})
        commit = self._git("commit-tree", tree, "-m", "base", env=_IDENTITY)
        self._git("update-ref", f"refs/heads/{name}", commit)
        return commit, self._git("diff-tree", "-p", "--no-renames", tree, self._base) + "\n"

    def _tree(self, entries: dict[str, tuple[str, str]]) -> str:
        with temporary_folder("index") as work:
            env = {"GIT_INDEX_FILE": f"{work}/index"}
            listing = "".join(f"{mode} {name}\t{path}\0" for path, (mode, name) in entries.items())
            self._git("update-index", "-z", "--index-info", data=os.fsencode(listing), env=env)
            return self._git("write-tree", env=env)

    def _git(self, *arguments: str, data: bytes = b"", env: dict[str, str] | None = None) -> str:
        output = run_git(self._git_dir, *arguments, data=data, env=env, action=f"write {arguments[0]}")
        return os.fsdecode(output).removesuffix("\n")


def _task(
    taskset: str, package: ReleasedPackage, fault: Fault, result: FaultResult, source: str, commit: str, patch: str
) -> TaskSpec:
    deciding = result.deciding_tests
    count = len(result.failed)
    tests = "One of its own tests, which passes in the release, fails" if count == 1 else (
        f"{count} of its own tests, which pass in the release, fail"
    )  # fmt: skip
    return TaskSpec(
        task_id=f"{package.name}/{fault.fault_id}",
        taskset=taskset,
        family=f"{package.name}/{fault.path}:{fault.function}",
        kind=fault.kind,
        role=role_of(package.name),
        domain="coding",
        description=f"This repository is the Python package {package.name} {package.version} with a fault in it. {tests}. "
        f"Find the cause and correct the package's code; the tests are right. To run tests:\n\n{package.test_command(['PATH'])}\n",
        test_command=package.test_command(sorted(deciding.all_tests)),
        reference={GOLD_PATCH: patch},
        criteria={
            "fail_to_pass": list(deciding.fail_to_pass),
            "pass_to_pass": list(deciding.pass_to_pass),
            "timeout": deciding.timeout,
        },
        repository=Repository(source, commit, SETUP_COMMAND),
        metadata={"language": "python", "package": package.name, "version": package.version,
                  "faults": [edit.fault for edit in fault.edits]},
    )  # fmt: skip


def _portable_hash(task: TaskSpec) -> str:
    """Return the hash of a task without the taskset's name and folder, which may differ where it is made again."""
    assert task.repository is not None
    repository = msgspec.structs.replace(task.repository, source="")
    return msgspec.structs.replace(task, taskset="", repository=repository).task_hash


def _row(item: PackageFaults, tasks: Sequence[TaskSpec], earlier: PackageRow | None) -> PackageRow:
    """Return the manifest's row of a package. Raises DataError if a task of the same release has another hash in `earlier`."""
    package = item.package
    assert package is not None
    hashes = {task.task_id: _portable_hash(task) for task in tasks}
    if earlier and earlier.sha256 == package.sha256:
        wrong = [name for name, new in hashes.items() if earlier.tasks[name].hash != new]
        if wrong:
            raise DataError(
                f"{len(wrong)} tasks of {package.name}, such as {wrong[0]}, have another hash than in {MANIFEST_FILE}; use "
                "the versions of Python and Ratchet that made it, or remove the package's row to prove it again"
            )
        shared = {f"{package.name}/{fault.fault_id}" for fault, _ in item.proven} - hashes.keys()
        left = {name: task for name, task in earlier.tasks.items() if name not in shared}
        return msgspec.structs.replace(earlier, tasks=left)
    results = {f"{package.name}/{fault.fault_id}": result for fault, result in item.proven}
    results = {name: results[name] for name in hashes}
    tests = sorted({test for result in results.values() for test in result.deciding_tests.all_tests})
    at = {test: number for number, test in enumerate(tests)}
    rows = {name: TaskRow(hashes[name], tuple(at[test] for test in result.failed),
                          tuple(at[test] for test in result.passed), result.seconds)
            for name, result in results.items()}  # fmt: skip
    return PackageRow(package.name, package.version, package.sdist, package.sha256, role_of(package.name),
                      package.requirements, tuple(tests), rows)  # fmt: skip


def _card(name: str, tasks: Sequence[TaskSpec]) -> str:
    packages = sorted({f"{task.metadata['package']} {task.metadata['version']}" for task in tasks})
    return (
        f"# {name}\n\n{len(tasks)} repair tasks of {len(packages)} packages, made by `{GENERATOR}`. Each is a release with a "
        "fault that the package's own tests prove. Licences are those of the packages.\n\n"
        + "".join(f"- {package}\n" for package in packages)
    )
