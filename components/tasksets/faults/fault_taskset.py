"""Write proven faults as a taskset of repository tasks, with a manifest of hashes that may be committed in their place.

Each task is one commit without parents in a repository of its package: the release with the fault, and nothing else. A
family is a function, and the role belongs to the package: a function that packages of two roles share is left out.
"""

import hashlib
import os
import shlex
from collections import defaultdict
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import msgspec

from ratchet.components.core import ConfigurationError, DataError, InfrastructureError, Repository, Role, TaskSpec
from ratchet.components.core.files import temporary_folder, write_json
from ratchet.components.environments.git_mirror import FILE_MODE, GitFile, run_git
from ratchet.components.environments.repository_tasks import BASE_DATE, GOLD_PATCH

from ..taskset_files import TasksetHead, check_import_folder, write_taskset
from .fault_proof import Copies, FaultProver, FaultResult, NoTestPasses, SandboxFactory, installed_copies, proven_faults
from .released_package import (
    RUNNER_FILE,
    RUNNER_FOLDER,
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


class PackageFaults(msgspec.Struct, frozen=True):
    """The proven faults of one package; `problem`: why it gave none, in one line."""

    package: ReleasedPackage | None
    proven: tuple[tuple[Fault, FaultResult], ...] = ()
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

    Packages of an earlier manifest that were proven in `folder` are part of the taskset, too; no requirements mean all
    packages of the manifest. Its other rows, of packages that were proven elsewhere, stay as they are. Proven faults are kept in
    `folder/.work`, so that the same call goes on where it was stopped. Calls `on_package` with a requirement, its number of
    tasks and its problem. Raises DataError if no package gives a task, ConfigurationError if the manifest has other options.
    """
    check_import_folder(folder, GENERATOR)
    options = {"generator": GENERATOR, "seed": seed, "per_package": per_package}
    earlier = _earlier_rows(folder / MANIFEST_FILE, options)
    requirements = list(requirements or earlier)
    if not requirements:
        raise ConfigurationError(f"{folder} has no {MANIFEST_FILE}; name packages, such as toolz")
    work = folder / ".work"
    work.mkdir(parents=True, exist_ok=True)
    # The packages' sources are theirs: only the manifest may be committed.
    (folder / ".gitignore").write_text(f"*\n!.gitignore\n!{MANIFEST_FILE}\n", encoding="utf-8")
    with ThreadPoolExecutor(workers) as pool:
        read = list(pool.map(lambda requirement: _read_package(requirement, work, earlier), requirements))
        named = {*requirements, *(item.package.name for item in read if item.package)}
        here = [name for name, row in earlier.items()
                if name not in named and any(work.glob(f"{name}-{row['version']}-{row['sha256'][:8]}*/"))]  # fmt: skip
        requirements += here
        read += [_read_package(name, work, earlier) for name in here]
        copied = installed_copies(sandbox_factory, [item.package for item in read if item.package], work)

        def prove(item: PackageFaults, requirement: str) -> PackageFaults:
            if item.package is not None:
                item = _prove_package(item.package, work, sandbox_factory, copied, per_package, seed)
            on_package(requirement, len(item.proven), item.problem)
            return item

        proven = sorted(pool.map(prove, read, requirements), key=lambda item: item.package.name if item.package else "")
    shared = _shared_digests(proven)
    tasks = [task for item in proven if item.package for task in write_tasks(folder, item.package, item.proven, shared)]
    if not tasks:
        raise DataError(f"no package gave a task: {'; '.join(item.problem for item in proven if item.problem)[:300]}")
    head = TasksetHead(folder.resolve().name, "1", "coding", {}, description="Repair tasks of released packages.",
                       generator=GENERATOR, seed=seed)  # fmt: skip
    by_role = {role: rows for role in Role if (rows := [task for task in tasks if task.role == role])}
    write_taskset(folder, head, by_role, _card(head.name, tasks))
    listed = earlier | _manifest_rows(tasks, [item.package for item in proven if item.package])
    write_json(folder / MANIFEST_FILE, {**options, "packages": [listed[name] for name in sorted(listed)]})
    return tasks, proven


def _earlier_rows(file: Path, options: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the packages of an earlier manifest, by name."""
    if not file.is_file():
        return {}
    try:
        manifest = msgspec.json.decode(file.read_bytes())
        found = {name: manifest[name] for name in options}
        rows = {row["name"]: row for row in manifest["packages"] if row["version"] and row["sha256"]}
    except (msgspec.DecodeError, KeyError, TypeError) as error:
        raise DataError(f"{file} is no manifest of {GENERATOR}: {error!r}; restore or remove it") from error
    if found != options:
        raise ConfigurationError(f"{file} was made with other options ({found}); use them, or another folder")
    return rows


def _read_package(requirement: str, work: Path, pinned: dict[str, dict[str, Any]]) -> PackageFaults:
    pin = pinned.get(requirement)
    wanted = f"{requirement}=={pin['version']}" if pin else requirement
    stem = wanted.replace("==", "-").replace("_", "-").lower()
    try:
        earlier = [file for file in work.glob("*.tar.gz") if file.name.replace("_", "-").lower() == f"{stem}.tar.gz"]
        package = read_sdist(earlier[0] if earlier else fetch_sdist(wanted, work))
        if pin and pin["sha256"] != package.sha256:
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
            runner = build_runner(package, work)
            prover = FaultProver(package, runner, factory, folder, copied[package.name])
            proven = tuple(proven_faults(prover, package, prover.baseline(), count, seed))
            break
        except (DataError, InfrastructureError) as error:
            problems.append(str(error))
            if folder == attempts[-1][0] or not isinstance(error, NoTestPasses):
                return PackageFaults(package, problem="; with the requirements of its tests: ".join(problems))
    # The runner is part of every workspace.
    files = {**package.files, RUNNER_FILE: GitFile(FILE_MODE, runner)}
    problem = (
        ""
        if proven
        else f"{package.name}: no fault was proven: its tests call too little, or the sandbox holds a copy of it"
    )
    return PackageFaults(msgspec.structs.replace(package, files=files), proven, problem)


def _shared_digests(results: Sequence[PackageFaults]) -> set[str]:
    """Return the digests of functions that occur in packages of more than one role."""
    roles = defaultdict(set)
    for item in results:
        for fault, _ in item.proven:
            assert item.package is not None
            roles[fault.digest].add(role_of(item.package.name))
    return {digest for digest, seen in roles.items() if len(seen) > 1}


def write_tasks(
    folder: Path, package: ReleasedPackage, proven: Sequence[tuple[Fault, FaultResult]], shared: set[str]
) -> list[TaskSpec]:
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
    variables = "".join(f"{name}={value} " for name, value in package.environment.items())
    path = f'{variables}PYTHONPATH="{package.source_folder}:{RUNNER_FOLDER}:$PYTHONPATH"'
    pytest = f"{path} python3 -m pytest -q -c /dev/null --rootdir . -p no:cacheprovider"
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
        f"Find the cause and correct the package's code; the tests are right. To run tests:\n\n{pytest} PATH\n",
        test_command=f"{pytest} {shlex.join(sorted((*result.failed, *result.passed)))}",
        reference={GOLD_PATCH: patch},
        criteria={
            "fail_to_pass": list(result.failed),
            "pass_to_pass": list(result.passed),
            "timeout": round(30.0 + 10.0 * result.seconds),
        },
        repository=Repository(source, commit, SETUP_COMMAND),
        metadata={"language": "python", "package": package.name, "version": package.version,
                  "faults": [edit.fault for edit in fault.edits]},
    )  # fmt: skip


def _manifest_rows(tasks: Sequence[TaskSpec], packages: Sequence[ReleasedPackage]) -> dict[str, dict[str, Any]]:
    names = {str(task.metadata["package"]) for task in tasks}
    rows = [{"name": package.name, "version": package.version, "sdist": package.sdist, "sha256": package.sha256,
             "role": role_of(package.name).value,
             "tasks": {task.task_id: task.task_hash for task in tasks if task.metadata["package"] == package.name}}
            for package in packages if package.name in names]  # fmt: skip
    return {str(row["name"]): row for row in rows}


def _card(name: str, tasks: Sequence[TaskSpec]) -> str:
    packages = sorted({f"{task.metadata['package']} {task.metadata['version']}" for task in tasks})
    return (
        f"# {name}\n\n{len(tasks)} repair tasks of {len(packages)} packages, made by `{GENERATOR}`. Each is a release with a "
        "fault that the package's own tests prove. Licences are those of the packages.\n\n"
        + "".join(f"- {package}\n" for package in packages)
    )
