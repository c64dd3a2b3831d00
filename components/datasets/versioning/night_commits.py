"""A night as a commit under the tag `night/<id>` (pointers, lock, parameters, inputs, decision), and its checkout.

The commit is made through a temporary index on top of HEAD; HEAD, the branch, the index and the work tree stay
unchanged. A clone ignores these files; the ignore files of a night's commit do not, so that it works as a DVC project.

A checkout restores a night's data in any clone, verifies every hash, and overwrites no existing file. If all of the
night's paths are free or hold the same bytes (a fresh clone), the data is placed in the clone. If any of them differs,
the night is restored to `data/nights/<night>` (or the given folder), which is a separate DVC project.
"""

import io
import shutil
import tarfile
from pathlib import Path
from typing import Any

import msgspec

from ratchet.components.core import ConfigurationError, DataError
from ratchet.components.core.files import temporary_folder, write_atomically

from .build_inputs import BASELINES, BUILD, NIGHT_NAME, baseline_path, keep_baseline, read_build
from .dvc_client import remote_override, remote_settings, transfer
from .dvc_lock import dvc_md5, lock_outputs, read_lock, read_pointer
from .git_plumbing import commit_of, git, git_bytes, git_objects
from .sealed_nights import LOCKS, NIGHT_KINDS, SEALED_KINDS, USES, check_pointers, nights_with_uses, pointer_of
from .use_ledger import builds_used

IGNORED = Path(".gitignore")
DATA_IGNORED = Path("data/.gitignore")
CLONE_IGNORES = ("/decisions/", "/baselines/", "/locks/")
"""Ignore patterns of a clone for files that a night's commit contains."""
GIT_ALONE = "\ufeff"
"""Byte order mark. An ignore line that begins with it is read by git and not by DVC; such lines ignore files that a
night's commit contains.
"""


def night_ignore_files(root: Path) -> dict[Path, bytes]:
    """Return the ignore files of a clone in the form of a night's commit; an absent file is left out."""
    present = [path for path in (IGNORED, DATA_IGNORED) if (root / path).is_file()]
    return {path: _ignored((root / path).read_text(encoding="utf-8")).encode() for path in present}


def _ignored(text: str) -> str:
    """Return the text of an ignore file that ignores the data, but neither the pointers nor the small files."""
    lines = [line for line in text.splitlines() if line not in CLONE_IGNORES and not line.startswith(GIT_ALONE)]
    return "".join(f"{line}\n" for line in lines)


TAG = "night/"
DECISIONS = Path("data/decisions")
DEFAULT_IDENTITY = {"NAME": "Ratchet", "EMAIL": "ratchet@localhost"}


def commit_night(night: str, decision: dict[str, Any], message: str, *, root: Path = Path()) -> str:
    """Commit and tag a night; return the commit. Repeating the call with the same content returns the same commit. The
    commit holds the files of the last build, and `decision` as `data/decisions/<night>.json`, which is also written to
    the work tree.

    Raises ConfigurationError if there is no git repository, or the night is tagged with other content.
    """
    if not NIGHT_NAME.fullmatch(night):
        raise ConfigurationError(f"'{night}' is not a valid name of a night; use letters, digits, '.', '_' and '-'")
    record = msgspec.json.format(msgspec.json.encode(decision, order="sorted"), indent=2) + b"\n"
    files = _commit_files(night, root) | {DECISIONS / f"{night}.json": record}
    head, existing = commit_of("HEAD", root), commit_of(f"refs/tags/{TAG}{night}", root)
    if existing is not None:
        _check_same(night, existing, files, root)
        return existing
    parents = ["-p", head] if head else []
    text = f"{message}\n\n{_trailer(head, root)}"
    tree = _write_tree(files, head, root)
    commit = git("commit-tree", tree, *parents, root=root, env=git_identity(root), data=text.encode())
    # The empty old value: where another process has tagged the night meanwhile, this fails.
    git("update-ref", f"refs/tags/{TAG}{night}", commit, "", root=root)
    (root / DECISIONS).mkdir(parents=True, exist_ok=True)
    write_atomically(root / DECISIONS / f"{night}.json", record)
    return commit


def _commit_files(night: str, root: Path) -> dict[Path, bytes]:
    """Return the content of a night's commit by path, without the decision. Raises DataError if a file is missing."""
    build = read_build(root)
    nights = build.nights
    check_pointers(build, root)
    paths = [pointer_of(name, kind) for name in nights for kind in NIGHT_KINDS]
    if night not in nights:
        paths += [pointer for kind in NIGHT_KINDS if (root / (pointer := pointer_of(night, kind))).is_file()]
    paths += [pointer_of(name, USES) for name in nights_with_uses(sorted({*nights, night}), root)]
    lock_folders = [root / LOCKS / lock for lock in builds_used(night, root)]
    paths += [path.relative_to(root) for folder in lock_folders for path in sorted(folder.glob("[!.]*"))]
    paths += [
        baseline_path(sha256)
        for sha256 in (build.requested_inputs().baseline, keep_baseline(root))
        if sha256 is not None
    ]
    paths += [Path("dvc.yaml"), Path("dvc.lock"), Path("params.yaml"), BUILD]
    for path in paths:
        if not (root / path).is_file():
            raise DataError(f"{path} is absent: build before the night is committed (`ratchet build`)")
    return {path: (root / path).read_bytes() for path in paths} | night_ignore_files(root)


def _write_tree(files: dict[Path, bytes], head: str | None, root: Path) -> str:
    """Write the tree of HEAD with these files added; return its hash."""
    prefix = git("rev-parse", "--show-prefix", root=root)
    with temporary_folder("index") as folder:
        copies = [Path(folder) / str(number) for number in range(len(files))]
        for copy, content in zip(copies, files.values(), strict=True):
            copy.write_bytes(content)
        # Without filters: git would apply the user's line endings.
        listed = "".join(f"{copy}\n" for copy in copies).encode()
        blobs = git("hash-object", "-w", "--no-filters", "--stdin-paths", root=root, data=listed).split()
        entries = (f"100644 {blob}\t{prefix}{path.as_posix()}\n" for blob, path in zip(blobs, files, strict=True))
        env = {"GIT_INDEX_FILE": str(Path(folder) / "index")}
        git("read-tree", head or "--empty", root=root, env=env)
        git("update-index", "--index-info", root=root, env=env, data="".join(entries).encode())
        return git("write-tree", root=root, env=env)


def _check_same(night: str, commit: str, files: dict[Path, bytes], root: Path) -> None:
    """Raise ConfigurationError if the night's commit has other files than these."""
    prefix = git("rev-parse", "--show-prefix", root=root)
    committed = git_objects([f"{commit}:{prefix}{path.as_posix()}" for path in files], root)
    for path, content in zip(files, committed, strict=True):
        if content != files[path]:
            raise ConfigurationError(
                f"night {night} is already tagged with another {path}; a night is committed once: choose another name"
            )


def _trailer(head: str | None, root: Path) -> str:
    """Return the commit trailer that names the commit of the code, and the number of changed files if the work tree
    differs from it.
    """
    if head is None:
        return "Code: no commit\n"
    changed = git("status", "--porcelain", "--untracked-files=no", root=root).splitlines()
    return f"Code: {head}{f' with {len(changed)} changed files' if changed else ''}\n"


def git_identity(root: Path) -> dict[str, str]:
    """Return environment variables with a default author and committer if git has none configured; else an empty dict."""
    try:
        git("var", "GIT_COMMITTER_IDENT", root=root)
    except ConfigurationError:
        return {f"GIT_{who}_{key}": value for who in ("AUTHOR", "COMMITTER") for key, value in DEFAULT_IDENTITY.items()}
    return {}


def list_nights(root: Path = Path(), *, by: str = "refname") -> dict[str, str]:
    """Return the commit of every tagged night, by night, sorted by the field `by` of `git for-each-ref`."""
    form = ("--format=%(refname) %(objectname)", f"--sort={by}")
    lines = git("for-each-ref", *form, f"refs/tags/{TAG}", root=root).splitlines()
    pairs = (line.split() for line in lines)
    return {name.removeprefix(f"refs/tags/{TAG}"): commit for name, commit in pairs}


NIGHTS = Path("data/nights")
IN_PLACE = ("dvc.lock", str(BUILD), *(f"{kind}/" for kind in SEALED_KINDS), f"{DECISIONS}/", f"{BASELINES}/")
"""Files and folders (with a slash) of a night's commit that are its own: a checkout may place them in the clone."""
CHECKOUT_PATHS = (".dvc/config", ".dvcignore", "dvc.yaml", "params.yaml", *IN_PLACE)
"""Files and folders of a night's commit that a checkout extracts: also those that DVC needs, which a clone has already."""


class NightCheckout(msgspec.Struct, frozen=True):
    """Restored night. `place` is the folder that contains its files; `data` its DVC hashes by path."""

    night: str
    commit: str
    place: Path
    data: dict[str, str]


def checkout_night(
    night: str, into: Path | None = None, *, remote: str | None = None, root: Path = Path()
) -> NightCheckout:
    """Restore a tagged night and verify every hash. `into`: the folder; None chooses the clone or
    `data/nights/<night>`, as the module describes. `remote` is a path or URL to use instead of the configured one.

    Raises ConfigurationError for an unknown night or remote, InfrastructureError if data cannot be fetched, DataError
    if a hash is wrong.
    """
    commit = commit_of(f"refs/tags/{TAG}{night}", root)
    if commit is None:
        nights = ", ".join(list_nights(root)) or "none"
        raise ConfigurationError(f"there is no tag {TAG}{night} here (nights: {nights}); fetch it: `git fetch --tags`")
    # In the clone: the last step is a rename, which is atomic on one file system only.
    staging = root / NIGHTS / f".{night}.tmp"
    shutil.rmtree(staging, ignore_errors=True)
    try:
        files = _extract_files(commit, staging, root)
        data = recorded_hashes(staging)
        place = into or _checkout_folder(night, files, data, staging, root)
        complete = all(dvc_md5(place / path) == hash_ for path, hash_ in data.items())
        if not complete:
            _pull(staging, remote, root)
            for path, hash_ in data.items():
                if (fetched := dvc_md5(staging / path)) != hash_:
                    raise DataError(f"{path} was fetched with the hash {fetched}, not {hash_}: the remote is damaged")
        if place == root:
            _into_place(staging, root, [*([] if complete else data), *_in_place(files)])
        elif not complete:
            _move_folder(staging, place)
    finally:
        shutil.rmtree(staging, ignore_errors=True)
    return NightCheckout(night, commit, place, data)


def _extract_files(commit: str, staging: Path, root: Path) -> list[str]:
    """Extract the night's small files from its commit to `staging`; return their paths."""
    names = git("ls-tree", "-r", "--name-only", commit, root=root).splitlines()
    files = [name for name in names if any(name == prefix or name.startswith(prefix) for prefix in CHECKOUT_PATHS)]
    # An archive is read from the commit alone: a checkout would change the index of the clone.
    archive = git_bytes("archive", "--format=tar", commit, "--", *files, root=root)
    staging.mkdir(parents=True)
    with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
        # The filter refuses links and paths out of the folder: the commit may be another's.
        tar.extractall(staging, filter="data")
    return files


def recorded_hashes(project: Path) -> dict[str, str]:
    """Return DVC's hash of every data path that the lock and the pointers name."""
    pointers = sorted(pointer for kind in SEALED_KINDS for pointer in (project / kind).glob("*.dvc"))
    nights = (read_pointer(pointer) for pointer in pointers)
    sealed = {path.relative_to(project).as_posix(): hash_ for path, hash_ in nights}
    return sealed | lock_outputs(read_lock(project / "dvc.lock"))


def _checkout_folder(night: str, files: list[str], data: dict[str, str], staging: Path, root: Path) -> Path:
    """Return the clone itself if no file of the night differs there, else the night's separate folder."""
    differs = [path for path, hash_ in data.items() if dvc_md5(root / path) not in (None, hash_)]
    differs += [path for path in _in_place(files) if dvc_md5(root / path) not in (None, dvc_md5(staging / path))]
    return root / NIGHTS / night if differs else root


def _in_place(files: list[str]) -> list[str]:
    return [path for path in files if any(path == prefix or path.startswith(prefix) for prefix in IN_PLACE)]


def _pull(staging: Path, remote: str | None, root: Path) -> None:
    """Fetch the data through the clone's cache, so that data in the cache is not fetched again. Raises
    ConfigurationError, InfrastructureError.
    """
    override = remote_override(remote)
    settings = {"url": override} if override else remote_settings(root)
    url = settings["url"]
    if "://" not in url and not Path(url).is_dir() and not (root / ".dvc/cache").is_dir():
        raise ConfigurationError(f"the remote {url} is absent; name it with --remote PATH or RATCHET_DVC_REMOTE")
    (staging / ".dvc/config.local").write_text(
        # Without `verify` DVC takes a remote's objects for what their names say.
        _settings(settings | {"verify": "true"}, root / ".dvc/cache"),
        encoding="utf-8",
    )
    transfer(["pull"], staging, url)


def _settings(remote: dict[str, str], cache: Path) -> str:
    """Return DVC's settings for the night's folder: no git, one remote, and the clone's cache."""
    lines = [
        "[core]",
        "no_scm = true",
        "remote = night",
        "[cache]",
        f"dir = {cache.absolute()}",
        "['remote \"night\"']",
    ]
    return "\n".join([*lines, *(f"{name} = {value}" for name, value in remote.items())]) + "\n"


def _into_place(staging: Path, root: Path, paths: list[str]) -> None:
    """Move the files that the clone does not have; existing ones were already found to be equal."""
    for path in paths:
        if not (root / path).exists():
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            (staging / path).rename(root / path)


def _move_folder(staging: Path, place: Path) -> None:
    """Move a restored night to its folder. Raises ConfigurationError for a folder that is not empty."""
    if place.exists() and any(place.iterdir()):
        raise ConfigurationError(f"{place} exists and differs from the night; remove it, or name another folder")
    place.parent.mkdir(parents=True, exist_ok=True)
    shutil.rmtree(place, ignore_errors=True)
    shutil.move(staging, place)
