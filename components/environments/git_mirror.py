"""Mirrors of untrusted git repositories on the host: fetched once, read with git's plumbing commands, never checked out.

Git runs with GIT_CONFIG only, which disables hooks, the `ext` transport, password prompts, filters and submodules.
Every call has a time limit.
"""

import contextlib
import hashlib
import os
import re
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import msgspec

from ratchet.components.core import InfrastructureError, Repository
from ratchet.components.core.files import hold_lock, temporary_folder
from ratchet.components.core.home import home

GIT_SECONDS = 120.0
GIT_CONFIG = """# Written by Ratchet before each use: the only configuration that git reads when it works on a mirror.
[core]
\thooksPath = /dev/null
\tfsmonitor = false
\tautocrlf = false
\tattributesFile = /dev/null
\texcludesFile = /dev/null
[protocol "ext"]
\tallow = never
[credential]
\thelper =
[submodule]
\trecurse = false
[fetch]
\trecurseSubmodules = false
[safe]
\tdirectory = *
[gc]
\tauto = 0
[user]
\tname = agent
\temail = agent@localhost
"""


class RepositoryUnavailable(InfrastructureError):
    """A repository cannot be fetched, lacks the commit, or rejects the task's patch. Never the policy's fault."""


def mirrors_folder() -> Path:
    """Return the folder of all mirrors: `repositories` under RATCHET_HOME, or under `.ratchet` if that is not set."""
    return home() / "repositories"


def run_git(
    *arguments: str,
    data: bytes = b"",
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    timeout: float = GIT_SECONDS,
    accept: tuple[int, ...] = (0,),
    action: str,
    advice: str = "check the repository and its task",
) -> bytes:
    """Run a git command with `data` on its standard input; return its standard output, in bytes.

    `accept`: exit codes that are no failures. `action` (an infinitive) and `advice` are parts of the error message.
    `env` is added to the environment; `cwd` None is the folder of the mirrors; `timeout` is in seconds. Raises
    RepositoryUnavailable with git's first error message, also for a timeout.
    """
    try:
        process = subprocess.Popen(
            ["git", *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=cwd or mirrors_folder(),
            env={**_environment(), **(env or {})},
            start_new_session=True,
        )
    except FileNotFoundError as error:
        raise RepositoryUnavailable("git is not installed: repository tasks need it; install git") from error
    except OSError as error:
        raise RepositoryUnavailable(f"git cannot be started to {action}: {error}") from error
    try:
        out, err = process.communicate(data, timeout=timeout)
    except subprocess.TimeoutExpired as error:
        raise RepositoryUnavailable(f"git took longer than {timeout:g} s to {action}; is the network slow?") from error
    finally:
        if process.returncode is None:
            # The whole session: a transport such as ssh is a child of git and would go on, with our pipes open.
            with contextlib.suppress(OSError):
                os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
    if process.returncode not in accept:
        messages = [line.strip() for line in err.decode(errors="replace").splitlines() if line.strip()]
        fault = next(
            (line for line in messages if line.startswith(("fatal:", "error:"))),
            messages[0] if messages else "no reason given",
        )
        raise RepositoryUnavailable(f"git failed to {action}: {fault.partition(': ')[2] or fault}; {advice}")
    return out


def _environment() -> dict[str, str]:
    """Return this process's environment without git's variables; those of proxies and ssh agents are kept."""
    folder = mirrors_folder()
    folder.mkdir(parents=True, exist_ok=True)
    settings = folder / "gitconfig"
    if not settings.is_file() or settings.read_text(encoding="utf-8") != GIT_CONFIG:
        # Renamed into place: another process may be reading the file.
        with tempfile.NamedTemporaryFile("w", encoding="utf-8", dir=folder, delete=False) as file:
            file.write(GIT_CONFIG)
        Path(file.name).replace(settings)
    # GIT_INDEX_FILE or GIT_OBJECT_DIRECTORY of a surrounding git hook would make git work on another repository.
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    return {
        **inherited,
        "GIT_CONFIG_GLOBAL": str(settings),
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_ATTR_NOSYSTEM": "1",
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_ASKPASS": "/bin/false",
        "SSH_ASKPASS": "/bin/false",
        "GIT_SSH_COMMAND": "ssh -oBatchMode=yes",
        "GIT_LFS_SKIP_SMUDGE": "1",
        "GIT_OPTIONAL_LOCKS": "0",
        "LC_ALL": "C",
    }


FETCH_SECONDS = 900.0
FILE_MODE, EXECUTABLE_MODE, LINK_MODE = "100644", "100755", "120000"
COMMIT_NAME = re.compile(r"[0-9A-Za-z][0-9A-Za-z._/+-]{0,199}")


class GitFile(msgspec.Struct, frozen=True):
    """The content of one path: `mode` is FILE_MODE, EXECUTABLE_MODE or LINK_MODE; a link's `data` is its target."""

    mode: str
    data: bytes


FileChanges = dict[str, GitFile | None]
"""Changed files by path; None for a removed file."""


class GitMirror:
    """A bare clone of one repository; see `open_mirror`. All methods leave it unchanged and may run concurrently.

    `commit` is a full commit hash (see `resolve_commit`).
    """

    def __init__(self, folder: Path, source: str) -> None:
        self.folder = folder
        self.source = source
        self._trees: dict[str, dict[str, tuple[str, str]]] = {}

    def tree(self, commit: str) -> dict[str, tuple[str, str]]:
        """Return {path: (mode, object hash)} of the files and links of a commit, without submodules."""
        if commit in self._trees:
            return self._trees[commit]
        listing = self._git("ls-tree", "-r", "-z", "--full-tree", commit)
        entries = {}
        for line in listing.split(b"\0")[:-1]:
            metadata, _, path = line.partition(b"\t")
            mode, kind, name = metadata.decode().split()
            if kind == "blob":
                entries[os.fsdecode(path)] = (mode, name)
        self._trees[commit] = entries
        return entries

    def blobs(self, names: Iterable[str]) -> dict[str, bytes]:
        """Return the contents of file objects, by object hash."""
        unique_names = list(dict.fromkeys(names))
        stream = self._git("cat-file", "--batch", data="".join(f"{name}\n" for name in unique_names).encode())
        contents, offset = {}, 0
        for name in unique_names:
            end = stream.index(b"\n", offset)
            size = int(stream[offset:end].split()[2])
            contents[name] = stream[end + 1 : end + 1 + size]
            offset = end + 2 + size
        return contents

    def files(self, commit: str, paths: Iterable[str]) -> dict[str, GitFile]:
        """Return the given files of a commit, by path; missing ones are omitted."""
        tree = self.tree(commit)
        entries = {path: tree[path] for path in paths if path in tree}
        data = self.blobs(name for _, name in entries.values())
        return {path: GitFile(mode, data[name]) for path, (mode, name) in entries.items()}

    def apply_patch(self, commit: str, patch: str, *, reverse: bool = False) -> FileChanges:
        """Return the changes that a unified diff, or with `reverse` its reverse, makes to a commit.

        Raises RepositoryUnavailable if it does not apply.
        """
        if not patch.strip():
            return {}
        # Data sets often strip the final newline, which `git apply` requires.
        data = os.fsencode(patch if patch.endswith("\n") else f"{patch}\n")
        with self._temporary_index(commit) as env:
            options = ["--cached", "--whitespace=nowarn", *(["-R"] if reverse else [])]
            self._git("apply", *options, "-", data=data, env=env, action="apply the task's patch")
            return self._changes_between(commit, self._git("write-tree", env=env).decode().strip(), env)

    def diff(self, commit: str, changes: FileChanges) -> bytes:
        """Return changes to a commit as a unified diff in git's format, with binary files encoded."""
        with self._temporary_index(commit) as env:
            self._stage(changes, env)
            tree = self._git("write-tree", env=env).decode().strip()
            options = ["-p", "--binary", "--full-index", "--no-ext-diff", "--no-textconv", "--no-renames"]
            return self._git("diff-tree", *options, commit, tree, env=env)

    def ignored_paths(self, commit: str, paths: list[str]) -> set[str]:
        """Return the subset of `paths` that the commit's .gitignore files exclude."""
        rules = [path for path in self.tree(commit) if path.rpartition("/")[2] == ".gitignore"]
        if not paths or not rules:
            return set()
        with temporary_folder("ignore") as work:
            for path, file in self.files(commit, rules).items():
                if file.mode != LINK_MODE:
                    target = Path(work) / path
                    target.parent.mkdir(parents=True, exist_ok=True)
                    target.write_bytes(file.data)
            path_list = b"".join(os.fsencode(path) + b"\0" for path in paths)
            arguments = [f"--work-tree={work}", "check-ignore", "-z", "--stdin", "--no-index"]
            # check-ignore exits with 1 when nothing is ignored.
            ignored = self._git(*arguments, data=path_list, cwd=Path(work), accept=(0, 1))
        return {os.fsdecode(path) for path in ignored.split(b"\0")[:-1]}

    def pack(self, commit: str) -> bytes:
        """Return a git pack of the objects of the commit's tree only: no commit objects, no other history."""
        # The rest of the history could contain the fix. One thread and no deltas: the same tree gives the same bytes.
        listing = self._git("ls-tree", "-r", "-t", "-z", "--full-tree", commit).split(b"\0")[:-1]
        parts = [line.partition(b"\t")[0].decode().split() for line in listing]
        names = {name for _, kind, name in parts if kind != "commit"} | {self.tree_name(commit)}
        options = ["--stdout", "-q", "--threads=1", "--window=0", "--no-reuse-object"]
        return self._git("pack-objects", *options, data="".join(f"{name}\n" for name in sorted(names)).encode())

    def tree_name(self, commit: str) -> str:
        """Return the hash of the commit's tree object."""
        return self._git("rev-parse", "--verify", f"{commit}^{{tree}}").decode().strip()

    def resolve_commit(self, name: str) -> str | None:
        """Return the full hash of a commit, given by hash, prefix, branch or tag; None if the mirror lacks it."""
        # `--end-of-options`: a name from a task must not be taken for an option.
        output = self._git(
            "rev-parse", "--verify", "--quiet", "--end-of-options", f"{name}^{{commit}}", accept=(0, 1, 128)
        )
        return output.decode().strip() or None

    def _stage(self, changes: FileChanges, env: Mapping[str, str]) -> None:
        present_files = [(path, file) for path, file in changes.items() if file is not None]
        with temporary_folder("objects") as folder:
            for number, (_, file) in enumerate(present_files):
                (Path(folder) / str(number)).write_bytes(file.data)
            listing = "".join(f"{folder}/{number}\n" for number in range(len(present_files))).encode()
            names = (
                self._git("hash-object", "-w", "--no-filters", "--stdin-paths", data=listing, env=env).decode().split()
            )
        lines = [f"0 {'0' * 40}\t{path}\0" for path, file in changes.items() if file is None]
        lines += [f"{file.mode} {name}\t{path}\0" for (path, file), name in zip(present_files, names, strict=True)]
        self._git("update-index", "-z", "--index-info", data=os.fsencode("".join(lines)), env=env)

    def _changes_between(self, commit: str, tree: str, env: Mapping[str, str]) -> FileChanges:
        raw = self._git("diff-tree", "-r", "-z", "--no-renames", commit, tree, env=env).split(b"\0")[:-1]
        entries: dict[str, tuple[str, str] | None] = {}
        for metadata, path in zip(raw[::2], raw[1::2], strict=True):
            _, mode, _, name, status = metadata.decode().split()
            entries[os.fsdecode(path)] = None if status == "D" else (mode, name)
        names = [name for name in (entry and entry[1] for entry in entries.values()) if name]
        data = {name: self._git("cat-file", "blob", name, env=env) for name in names}
        return {path: entry and GitFile(entry[0], data[entry[1]]) for path, entry in entries.items()}

    @contextlib.contextmanager
    def _temporary_index(self, commit: str) -> Iterator[dict[str, str]]:
        """Yield environment variables that give git a temporary index of the commit and a temporary object store."""
        # New objects go to the temporary store, so that the mirror stays unchanged and concurrent calls do not meet.
        with temporary_folder("index") as folder:
            (Path(folder) / "objects").mkdir()
            env = {
                "GIT_INDEX_FILE": f"{folder}/index",
                "GIT_OBJECT_DIRECTORY": f"{folder}/objects",
                "GIT_ALTERNATE_OBJECT_DIRECTORIES": str(self.folder / "objects"),
            }
            self._git("read-tree", commit, env=env)
            yield env

    def _git(
        self,
        *arguments: str,
        data: bytes = b"",
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
        accept: tuple[int, ...] = (0,),
        action: str = "",
    ) -> bytes:
        first = next(argument for argument in arguments if not argument.startswith("-"))
        return run_git(
            f"--git-dir={self.folder}",
            *arguments,
            data=data,
            env=env,
            cwd=cwd,
            accept=accept,
            action=f"{action or first} of {self.source}",
        )


def open_mirror(repository: Repository, timeout: float = FETCH_SECONDS) -> tuple[GitMirror, str]:
    """Return the mirror of a repository and the full hash of its base commit, cloning or fetching what is missing.

    `repository.source` is the path of a repository or a bundle, or a URL; a clone or fetch takes at most `timeout`
    seconds. Raises RepositoryUnavailable.
    """
    source, revision = repository.source, repository.base_commit
    if not COMMIT_NAME.fullmatch(revision) or ".." in revision:
        raise RepositoryUnavailable(f"base_commit {revision!r} is no commit's name; correct the task")
    # A source that begins with a dash would be an option of git.
    if not source or source.startswith("-"):
        raise RepositoryUnavailable(f"repository source {source!r} is neither a path nor a URL; correct the task")
    if Path(source).exists():
        source = str(Path(source).resolve())
    folder = mirrors_folder() / f"{hashlib.sha256(source.encode()).hexdigest()[:20]}.git"
    mirror = GitMirror(folder, repository.source)
    commit = mirror.resolve_commit(revision) if folder.is_dir() else None
    if commit is not None:
        return mirror, commit
    with hold_lock(folder.with_suffix(".lock")):
        if not folder.is_dir():
            _clone(source, repository.source, folder, timeout)
        commit = mirror.resolve_commit(revision)
        if commit is None:
            _fetch_again(source, revision, folder, timeout)
            commit = mirror.resolve_commit(revision)
    if commit is None:
        raise RepositoryUnavailable(
            f"repository {repository.source} has no commit '{revision}'; correct the task's base_commit"
        )
    return mirror, commit


def _clone(source: str, source_label: str, folder: Path, timeout: float) -> None:
    # Renamed into place when it is complete: a clone that was killed must not be taken for a mirror.
    # `--template=`: the host's template folder could install hooks.
    new = Path(tempfile.mkdtemp(prefix="new-", dir=folder.parent))
    try:
        arguments = ["clone", "--mirror", "--no-hardlinks", "--quiet", "--template=", "--", source, str(new / "git")]
        run_git(
            *arguments,
            timeout=timeout,
            action=f"clone {source_label}",
            advice="check the source, and that it can be reached",
        )
        (new / "git").rename(folder)
    finally:
        shutil.rmtree(new, ignore_errors=True)


def _fetch_again(source: str, revision: str, folder: Path, timeout: float) -> None:
    """Fetch all refs, then, if the commit is still missing, the commit by its name."""
    # Servers such as GitHub provide commits that no branch contains any more, but only by name.
    fetch_command = [f"--git-dir={folder}", "fetch", "--quiet", "--no-recurse-submodules", "--", source]
    for refspec in ("+refs/*:refs/*", f"+{revision}:refs/ratchet/{revision}"):
        with contextlib.suppress(RepositoryUnavailable):
            run_git(*fetch_command, refspec, timeout=timeout, action=f"fetch {source}")
        if GitMirror(folder, source).resolve_commit(revision) is not None:
            return
