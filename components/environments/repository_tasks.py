"""RepositoryLayout: a task that starts from a commit of a git repository, as in SWE-bench.

The agent gets the files of the base commit and a `.git` with that single commit. Its answer is the set of changed
files, read from the files themselves, so changes to `.git` or to git's settings have no effect. For grading, the answer
and then the hidden tests are applied to the base in a fresh sandbox, and the listed tests decide.

Output of a sandbox is read as bytes; an archive is never unpacked on the host. Needs GNU tar and find in the sandbox.
"""

import io
import os
import sys
import tarfile
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory
from typing import Any

import msgspec

from ratchet.components.core import (
    CommandFailure,
    CommandResult,
    CommandTimeout,
    DataError,
    InfrastructureError,
    RatchetError,
    Sandbox,
    SandboxUnavailable,
    TaskSpec,
)
from ratchet.components.core.files import temporary_folder

from .git_mirror import (
    EXECUTABLE_MODE,
    FILE_MODE,
    LINK_MODE,
    FileChanges,
    GitFile,
    GitMirror,
    RepositoryUnavailable,
    open_mirror,
    run_git,
)
from .task_grading import Grade, TaskLayout, grade_repository_tests, read_deciding_tests

WORKSPACE_SECONDS = 300.0
MAX_LISTING_BYTES = 64 << 20
MAX_ANSWER_BYTES = 16 << 20
MAX_CHANGED_FILES = 5000
GRANT_ACCESS_SCRIPT = (
    "chmod u+rwx .; find . -type d ! -perm -u+rwx -exec chmod u+rwx {} ';' ; "
    "find . -type f ! -perm -u+r -exec chmod u+r {} +"
)
# Entries end with a null byte, because a name may contain line feeds.
LIST_SCRIPT = r"find . -mindepth 1 -name .git -prune -o '(' -type f -o -type l ')' -printf '%y %m %s %C@ %P\0'"
# `--verbatim-files-from`: a name that begins with a dash must not become an option of tar.
PACK_COMMAND = "tar -cf - --null --no-recursion --hard-dereference --ignore-failed-read --verbatim-files-from -T -"


class AnswerNotCollectable(RatchetError):
    """The workspace has too many changes for an answer, or cannot be read. A failure of the policy."""


class FileStat(msgspec.Struct, frozen=True):
    """Metadata by which a change of a file is noticed, as printed by `find`: `kind` is `f` (file) or `l` (link).

    Programs can set the mtime, but not the ctime.
    """

    kind: str
    mode: str
    size: int
    ctime: str


def tar_archive(files: Mapping[str, GitFile]) -> bytes:
    """Return files, given by path, as a tar archive; equal files give equal bytes."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.GNU_FORMAT) as tar:
        # Sorted, without times and owners: the same files give the same bytes, so that archives can be cached.
        for path, file in sorted(files.items()):
            entry = tarfile.TarInfo(f"./{path}")
            entry.mode = 0o755 if file.mode == EXECUTABLE_MODE else 0o644
            if file.mode == LINK_MODE:
                entry.type, entry.linkname = tarfile.SYMTYPE, os.fsdecode(file.data)
                tar.addfile(entry)
            else:
                entry.size = len(file.data)
                tar.addfile(entry, io.BytesIO(file.data))
    return buffer.getvalue()


def unpack_files(sandbox: Sandbox, archived: bytes) -> None:
    """Unpack a trusted archive in the workspace. Raises SandboxUnavailable if it does not fit."""
    _run_trusted(sandbox, ["tar", "-xf", "-"], "write files to", archived)


def apply_changes(sandbox: Sandbox, changes: FileChanges) -> None:
    """Apply changes to a workspace that no agent has touched."""
    if not changes:
        return
    # All changed paths first: one may turn from a file into a folder or a link, and back.
    _run_trusted(sandbox, ["xargs", "-0", "rm", "-rf", "--"], "remove files from", _null_separated_paths(changes))
    unpack_files(sandbox, tar_archive({path: file for path, file in changes.items() if file is not None}))


def list_files(sandbox: Sandbox) -> dict[str, FileStat]:
    """Return the metadata of all files and links but `.git`, by path, in a workspace that no agent has touched."""
    return dict(_parse_listing(_run_trusted(sandbox, LIST_SCRIPT, "list the files of").stdout))


def _parse_listing(listed: bytes) -> Iterator[tuple[str, FileStat]]:
    for line in listed.split(b"\0")[:-1]:
        kind, mode, size, ctime, path = line.split(b" ", 4)
        yield os.fsdecode(path), FileStat(kind.decode(), mode.decode(), int(size), ctime.decode())


def changes_since(sandbox: Sandbox, before: Mapping[str, FileStat]) -> FileChanges:
    """Return the files that were added, changed or removed since the listing `before` (see `list_files`).

    Restores the owner's permissions on files first. Raises AnswerNotCollectable, SandboxUnavailable.
    """
    # An agent may have removed permissions; its own files must not make its answer unreadable.
    _run_untrusted(sandbox, GRANT_ACCESS_SCRIPT)
    current_files = dict(_parse_listing(_run_untrusted(sandbox, LIST_SCRIPT)))
    touched = [path for path, stat in current_files.items() if before.get(path) != stat]
    removed_paths = [path for path in before if path not in current_files]
    if len(touched) + len(removed_paths) > MAX_CHANGED_FILES:
        raise AnswerNotCollectable(f"more than {MAX_CHANGED_FILES} files have changed")
    if sum(current_files[path].size for path in touched) > MAX_ANSWER_BYTES:
        raise AnswerNotCollectable(f"the changed files hold more than {MAX_ANSWER_BYTES >> 20} MiB")
    return {**dict.fromkeys(removed_paths), **_read_files(sandbox, touched)}


def _read_files(sandbox: Sandbox, paths: Collection[str]) -> dict[str, GitFile]:
    if not paths:
        return {}
    packed = _run_untrusted(sandbox, PACK_COMMAND, _null_separated_paths(paths))
    try:
        return dict(_read_archive(packed))
    except tarfile.TarError as error:
        raise AnswerNotCollectable(f"the workspace cannot be read: {error}") from error


def _null_separated_paths(paths: Iterable[str]) -> bytes:
    return b"".join(b"./" + os.fsencode(path) + b"\0" for path in paths)


def _read_archive(archived: bytes) -> Iterator[tuple[str, GitFile]]:
    # Read, never extracted: names and links in an agent's archive may point anywhere. `r:` refuses compression (bombs).
    with tarfile.open(fileobj=io.BytesIO(archived), mode="r:", errors="surrogateescape") as tar:
        for entry in tar:
            path = entry.name.removeprefix("./")
            if entry.issym():
                yield path, GitFile(LINK_MODE, os.fsencode(entry.linkname))
            elif entry.isreg():
                content = tar.extractfile(entry)
                assert content is not None
                yield path, GitFile(EXECUTABLE_MODE if entry.mode & 0o100 else FILE_MODE, content.read())


def _run_trusted(sandbox: Sandbox, command: str | list[str], action: str, stdin: bytes = b"") -> CommandResult:
    """Run a command on trusted files. Raises SandboxUnavailable if it fails."""
    try:
        result = sandbox.run(command, stdin=stdin, timeout=WORKSPACE_SECONDS, output_limit=MAX_LISTING_BYTES)
    except CommandFailure as failure:
        raise SandboxUnavailable(f"cannot {action} the workspace: {failure}") from failure
    if result.exit_code == 0:
        return result
    message = " ".join(result.stderr_text.split())[:200]
    raise SandboxUnavailable(
        f"cannot {action} the workspace: {message}; the image needs GNU tar and find, and the files room (workspace_mb)"
    )


def _run_untrusted(sandbox: Sandbox, command: str, stdin: bytes = b"") -> bytes:
    """Run a command on files of the agent; return its output, whatever its exit code. Raises AnswerNotCollectable."""
    try:
        return sandbox.run(command, stdin=stdin, timeout=WORKSPACE_SECONDS, output_limit=MAX_LISTING_BYTES).stdout
    except CommandFailure as failure:
        raise AnswerNotCollectable(f"the workspace cannot be read: {failure}") from failure


SETUP_SECONDS = 1800.0
GOLD_PATCH = "gold.patch"
BASE_DATE = "2000-01-01T00:00:00Z"
GIT_SETTINGS = "[user]\n\tname = agent\n\temail = agent@localhost\n"
RUNNER_SETTINGS = {
    *("conftest.py", "pytest.ini", ".pytest.ini", "pytest.toml", ".pytest.toml"),
    *("tox.ini", "setup.cfg", "pyproject.toml"),
}
STARTUP_HOOKS = {"sitecustomize.py", "usercustomize.py"}
COMPILED_SUFFIXES = (".pyc", ".pyo", ".pth")
SHADOWED_MODULES = sys.stdlib_module_names | {"pytest", "_pytest", "pluggy", "iniconfig", "xdist", "ratchet_witness"}


class SetupFailed(InfrastructureError):
    """A repository's setup command failed on the clean base: a fault of the task or its image, never of the policy."""


class RepositoryLayout(TaskLayout):
    """One episode of a repository task. `TaskSpec.reference["gold.patch"]` is an optional diff that solves it."""

    def __init__(self, task: TaskSpec) -> None:
        super().__init__(task)
        assert task.repository is not None
        self.repository = task.repository
        try:
            self.deciding_tests = read_deciding_tests(task.criteria)
        except DataError as error:
            raise RepositoryUnavailable(f"task {task.task_id}: {error}") from error
        self._initial_files: dict[str, FileStat] = {}
        self._mirror_and_commit: tuple[GitMirror, str] | None = None

    def prepare_workspace(self, sandbox: Sandbox) -> None:
        """Write the base commit's files and a `.git` with that single commit, and run the setup command."""
        self._write_base(sandbox)
        self._initial_files = list_files(sandbox)

    def collect_answer(self, sandbox: Sandbox) -> FileChanges | None:
        """Return the changes to the base commit; None if the workspace has no valid answer.

        New files that git ignores, compiled code and caches of Python and pytest are left out.
        """
        mirror, commit = self._mirror()
        try:
            changes = changes_since(sandbox, self._initial_files)
        except AnswerNotCollectable:
            return None
        tree = mirror.tree(commit)
        base_files = mirror.files(commit, [path for path in changes if path in tree])
        changed = {path: file for path, file in changes.items() if file != base_files.get(path)}
        fresh = [path for path in changed if path not in tree]
        caches = {"__pycache__", ".pytest_cache"}
        build_artifacts = {
            path for path in fresh if path.endswith(COMPILED_SUFFIXES) or caches & set(PurePosixPath(path).parts)
        }
        dropped = mirror.ignored_paths(commit, fresh) | build_artifacts
        return {path: file for path, file in changed.items() if path not in dropped}

    def grade(self, answer: Any, sandbox_factory: Callable[[], Sandbox], timeout: float | None = None) -> Grade:
        """Run the hidden tests on an answer (FileChanges or None) in a fresh sandbox. Raises InfrastructureError."""
        tests, command = self.deciding_tests, self.task.test_command
        if answer is None:
            return Grade(False, 0.0, 0, tests.total, "no_answer")
        hidden = self._hidden_tests()
        graded_changes = self._graded_changes(answer, hidden)
        trusted = {path: file.data for path, file in hidden.items() if file is not None}
        with sandbox_factory() as sandbox:
            self._write_base(sandbox)
            # The hidden tests last: an answer must not replace one of their files.
            apply_changes(sandbox, {**graded_changes, **hidden})
            try:
                return grade_repository_tests(
                    sandbox, command, tests, trusted=trusted, graded=graded_changes, timeout=timeout
                )
            except CommandFailure as failure:
                reason = "timeout" if isinstance(failure, CommandTimeout) else "output_limit"
                return Grade(False, 0.0, 0, tests.total, reason)

    def answer_diff(self, answer: Any) -> str | None:
        """Return the answer as a git diff for people, with invalid UTF-8 replaced; None if git cannot represent it."""
        mirror, commit = self._mirror()
        try:
            return mirror.diff(commit, answer or {}).decode("utf-8", "replace")
        except RepositoryUnavailable:  # a path that git refuses to hold; the grade does not depend on it
            return None

    def validation_answers(self) -> list[tuple[Any, bool, str]]:
        """See TaskLayout: the base commit must fail; the gold patch, if the task has one, must pass."""
        trials: list[tuple[Any, bool, str]] = [({}, False, "the base commit passes; it must fail")]
        if GOLD_PATCH in self.task.reference:
            trials.append((self._gold_changes(), True, "the gold patch fails; it must pass"))
        return trials

    def _mirror(self) -> tuple[GitMirror, str]:
        if self._mirror_and_commit is None:
            self._mirror_and_commit = open_mirror(self.repository)
        return self._mirror_and_commit

    def _write_base(self, sandbox: Sandbox) -> None:
        mirror, commit = self._mirror()
        unpack_files(sandbox, base_archive(mirror, commit))
        if self.task.files:
            apply_changes(sandbox, {path: GitFile(FILE_MODE, text.encode()) for path, text in self.task.files.items()})
        if self.repository.setup_command:
            self._run_setup(sandbox, self.repository.setup_command)

    def _run_setup(self, sandbox: Sandbox, command: str) -> None:
        try:
            result = sandbox.run(command, timeout=SETUP_SECONDS)
        except CommandFailure as failure:
            raise SetupFailed(f"task {self.task.task_id}: its setup command: {failure}") from failure
        if result.exit_code != 0:
            output = (result.stderr_text.strip() or result.stdout_text.strip()).splitlines()
            last = output[-1][:200] if output else ""
            raise SetupFailed(
                f"task {self.task.task_id}: its setup command exited with {result.exit_code}: {last}; correct it, or the image"
            )

    def _gold_changes(self) -> FileChanges:
        mirror, commit = self._mirror()
        return mirror.apply_patch(commit, self.task.reference.get(GOLD_PATCH, ""), reverse=self.deciding_tests.reverse)

    def _hidden_tests(self) -> FileChanges:
        """Return the files of the hidden tests: of the task, of its test patch, and of the base for other listed tests."""
        mirror, commit = self._mirror()
        named = _test_files_in(self.deciding_tests.all_tests, mirror.tree(commit))
        task_tests = {path: GitFile(FILE_MODE, text.encode()) for path, text in self.task.tests.items()}
        return {
            **mirror.files(commit, named),
            **mirror.apply_patch(commit, self.deciding_tests.test_patch),
            **task_tests,
        }

    def _graded_changes(self, answer: FileChanges, hidden: FileChanges) -> FileChanges:
        """Return the answer without files of the hidden tests and files that control how tests are run."""
        mirror, commit = self._mirror()
        roots = {path.partition("/")[0] for path in mirror.tree(commit)}
        expected = self._gold_changes() if GOLD_PATCH in self.task.reference else {}
        return {
            path: file
            for path, file in answer.items()
            if not _obstructs(path, file, hidden) and (path in expected or not controls_test_run(path, roots))
        }


def controls_test_run(path: str, roots: Iterable[str]) -> bool:
    """Return True if a file controls how tests are run; such files keep the version of the base commit.

    Such files are settings of test runners, startup hooks of Python, compiled code, and modules in the workspace's root
    that shadow the standard library or the test runner. `roots`: the names in the root of the base commit's tree.
    """
    # The root is first on Python's path: a pytest.py there would be imported instead of the test runner.
    parts = PurePosixPath(path).parts
    if parts[-1] in RUNNER_SETTINGS | STARTUP_HOOKS or path.endswith(COMPILED_SUFFIXES):
        return True
    return parts[0] not in set(roots) and parts[0].partition(".")[0] in SHADOWED_MODULES


def _obstructs(path: str, file: GitFile | None, hidden: FileChanges) -> bool:
    """Return True if `path` is that of a hidden test file, or a file and a folder of both would have the same path."""
    if path in hidden:
        return True
    below_hidden_file = any(
        added is not None and path.startswith(f"{test_file}/") for test_file, added in hidden.items()
    )
    return below_hidden_file or (file is not None and any(test_file.startswith(f"{path}/") for test_file in hidden))


def _test_files_in(tests: Iterable[str], tree: Iterable[str]) -> set[str]:
    """Return the files of `tree` that contain listed tests: `path::name` for pytest, `name (module.Class)` for unittest."""
    paths = set(tree)
    named = {test.partition("::")[0] for test in tests if "::" in test} & paths
    modules = {test.partition("(")[2].rstrip(")") for test in tests if "(" in test and "::" not in test}
    prefixes = {
        "/".join(parts[:n]) + ".py" for parts in (m.split(".") for m in modules) for n in range(1, len(parts) + 1)
    }
    dotted = {prefix for prefix in prefixes if "/" in prefix}
    return named | {path for path in paths if path in prefixes or any(path.endswith(f"/{suffix}") for suffix in dotted)}


def base_archive(mirror: GitMirror, commit: str) -> bytes:
    """Return the commit's files and a `.git` with that single commit as a tar archive, cached next to the mirror."""
    cached = mirror.folder.with_suffix(".bases") / f"{commit}.tar"
    if cached.is_file():
        return cached.read_bytes()
    tree = mirror.tree(commit)
    data = mirror.blobs(name for _, name in tree.values())
    files = {path: GitFile(mode, data[name]) for path, (mode, name) in tree.items()}
    archived = tar_archive({**files, **_history(mirror, commit)})
    cached.parent.mkdir(exist_ok=True)
    # Renamed into place: several episodes may write the same file at once.
    with TemporaryDirectory(prefix="new-", dir=cached.parent) as folder:
        new = Path(folder) / cached.name
        new.write_bytes(archived)
        new.replace(cached)
    return archived


def _history(mirror: GitMirror, commit: str) -> dict[str, GitFile]:
    """Return the files of a `.git` with one commit of the base's tree; byte-identical on every call."""
    action = f"make the base of {mirror.source}"
    author_variables = {
        f"GIT_{who}_{what}": value
        for who in ("AUTHOR", "COMMITTER")
        for what, value in (("NAME", "base"), ("EMAIL", "base@localhost"), ("DATE", BASE_DATE))
    }
    with temporary_folder("base") as work:
        run_git("init", "--quiet", "--template=", "--initial-branch=main", work, action=action)
        git_dir = f"--git-dir={work}/.git"
        run_git(git_dir, "index-pack", "--stdin", data=mirror.pack(commit), action=action)
        tree = mirror.tree_name(commit)
        output = run_git(git_dir, "commit-tree", tree, "-m", "base", env=author_variables, action=action)
        commit_name = output.decode().strip()
        run_git(
            git_dir, "-c", "core.logAllRefUpdates=false", "update-ref", "refs/heads/main", commit_name, action=action
        )
        run_git(git_dir, "read-tree", commit_name, action=action)
        with (Path(work) / ".git" / "config").open("a", encoding="utf-8") as config:
            config.write(GIT_SETTINGS)
        files = [path for path in (Path(work) / ".git").rglob("*") if path.is_file()]
        return {str(path.relative_to(work)): GitFile(FILE_MODE, path.read_bytes()) for path in files}
