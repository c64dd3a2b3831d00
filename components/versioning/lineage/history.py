"""History: every data build that a clone still knows by its lock, from the work tree, the nights' tags, and kept locks.

A night's tag holds the lock of its last build. What a night built before (the demonstrations of a first champion) and
trained on is kept by `keep_build`, and committed with the night.
"""

import shutil
from contextlib import suppress
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from components.protocol import ConfigurationError, DataError
from components.versioning.build_file import BUILD
from components.versioning.commits import TAG, list_nights
from components.versioning.git import commit_of, git, git_bytes
from components.versioning.hashes import LOCK, outputs_of, pointed
from components.versioning.sealed import LOCKS, ROLLOUTS, SEALED, USES, pointer_of

KEPT = (LOCK, BUILD, Path("params.yaml"))
"""What is kept of a build: the rest follows from these and from the code."""
Kind = TypeVar("Kind", bound=msgspec.Struct)
HERE = "the work tree"
SHORT = 8
"""The fewest characters of a hash that name it."""


class Fixed(msgspec.Struct, frozen=True):
    """What lineage reads of `data/build.yaml`, of any age: the nights and DVC's hashes of what was sealed of each."""

    nights: list[str] = []
    inputs: dict[str, str] = {}
    judgements: dict[str, str] = {}
    labels: dict[str, str] = {}
    uses: dict[str, str] = {}
    as_of: str = ""
    scale: str = ""
    baseline: str | None = None


class Out(msgspec.Struct, frozen=True):
    """What a pointer names."""

    path: str
    md5: str


class Pointer(msgspec.Struct, frozen=True):
    """A `.dvc` file."""

    outs: list[Out] = []


class Known:
    """One build. `name` says where it is known from; `commit` is the night's, `code` that of the code that ran, `uses` the
    pointer of what the night trained on."""

    def __init__(
        self,
        name: str,
        lock: bytes,
        build: bytes,
        *,
        commit: str | None = None,
        code: str | None = None,
        uses: bytes = b"",
    ):
        self.name, self.commit, self.code, self.uses = name, commit, code, uses
        self.lock_hash = sha256(lock).hexdigest()
        self._lock, self._build = lock, build

    @cached_property
    def outputs(self) -> dict[str, str]:
        """Every output by path, with DVC's hash. Raises DataError for a damaged lock."""
        return outputs_of(parse_yaml(self._lock, f"the dvc.lock of {self.name}"))

    @cached_property
    def fixed(self) -> Fixed:
        """What the build was made from. Raises DataError for a damaged file."""
        return _converted(self._build, f"{BUILD} of {self.name}", Fixed)


def _converted(content: bytes, where: str, kind: type[Kind]) -> Kind:
    """YAML as what it is to be. Raises DataError."""
    try:
        return msgspec.convert(parse_yaml(content, where), kind)
    except msgspec.ValidationError as error:
        raise DataError(f"{where}: {error}; restore the file") from error


def parse_yaml(content: bytes, where: str) -> dict[str, Any]:
    """A YAML mapping, by the fast reader where there is one. Raises DataError."""
    import yaml

    try:
        found: Any = yaml.load(content, getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise DataError(f"{where} is not YAML: {' '.join(str(error).split())}; restore it") from error
    return found if isinstance(found, dict) else {}


def here(root: Path) -> Known | None:
    """The build that stands in the work tree; None before the first."""
    if not (root / LOCK).is_file() or not (root / BUILD).is_file():
        return None
    return Known(HERE, (root / LOCK).read_bytes(), (root / BUILD).read_bytes(), code=head(root))


def of_commit(name: str, commit: str, root: Path) -> Known:
    """The build that a commit holds. Raises DataError for a commit without one."""
    try:
        lock, build = (git_bytes("show", f"{commit}:./{path.as_posix()}", root=root) for path in (LOCK, BUILD))
    except ConfigurationError as error:
        raise DataError(f"{name} holds no {LOCK} with {BUILD}: no data was built there; name a night") from error
    uses = _show(commit, pointer_of(name.removeprefix(TAG), USES), root) if name.startswith(TAG) else b""
    return Known(name, lock, build, commit=commit, code=_code(commit, root), uses=uses)


def _show(commit: str, path: Path, root: Path) -> bytes:
    """A file of a commit; empty where it holds none of that name."""
    if not git("ls-tree", "--name-only", commit, "--", path.as_posix(), root=root):
        return b""
    return git_bytes("show", f"{commit}:./{path.as_posix()}", root=root)


def known_builds(root: Path) -> list[Known]:
    """Every build that is known here, once each: the work tree's first, then kept ones, then the nights', newest first."""
    kept = [_of_folder(folder) for folder in sorted((root / LOCKS).glob("[!.]*")) if (folder / LOCK).is_file()]
    tagged = _tagged(root)
    within = [each for build in tagged for each in _committed_locks(build, root)]
    found: dict[str, Known] = {}
    for build in (*tagged, *kept, *within, here(root)):  # a night's name says most
        if build is not None:
            found.setdefault(build.lock_hash, build)
    return sorted(found.values(), key=lambda build: build.name != HERE)


def _tagged(root: Path) -> list[Known]:
    """The nights' builds, newest first; none outside of git."""
    try:
        nights = sorted(list_nights(root).items(), reverse=True)
    except ConfigurationError:
        return []
    found = []
    for night, commit in nights:
        with suppress(DataError):  # a tag of that name without data
            found.append(of_commit(f"{TAG}{night}", commit, root))
    return found


def find_build(lock_hash: str, builds: list[Known]) -> Known | None:
    """The build of that lock, by its SHA-256 or the beginning of it."""
    fits = [build for build in builds if build.lock_hash.startswith(lock_hash)] if len(lock_hash) >= SHORT else []
    return fits[0] if fits else None


def keep_build(root: Path = Path()) -> str:
    """Keep the lock, the inputs and the parameters of the build that stands; the lock's SHA-256. Doing it again changes nothing.

    Raises ConfigurationError where nothing was built.
    """
    if not (root / LOCK).is_file():
        raise ConfigurationError(f"{root / LOCK} is absent: nothing was built here yet; run `ratchet build`")
    lock_hash = sha256((root / LOCK).read_bytes()).hexdigest()
    place = root / LOCKS / lock_hash
    if not (place / LOCK).is_file():
        new = place.with_name(f".{lock_hash}.tmp")
        shutil.rmtree(new, ignore_errors=True)
        new.mkdir(parents=True)
        for path in KEPT:
            shutil.copyfile(root / path, new / path.name)
        shutil.rmtree(place, ignore_errors=True)
        new.rename(place)
    return lock_hash


def _of_folder(folder: Path) -> Known:
    return Known(f"{LOCKS}/{folder.name[:SHORT]}", *((folder / name).read_bytes() for name in (LOCK, BUILD.name)))


def _committed_locks(night: Known, root: Path) -> list[Known]:
    """The kept builds that stand in a night's commit."""
    assert night.commit is not None
    names = git("ls-tree", "-r", "--name-only", night.commit, f"{LOCKS}/", root=root).splitlines()
    folders = sorted({str(Path(name).parent) for name in names})
    found = []
    for folder in folders:
        lock, build = (git_bytes("show", f"{night.commit}:./{folder}/{path}", root=root) for path in (LOCK, BUILD.name))
        found.append(Known(f"{night.name}, {folder}", lock, build, commit=night.commit, code=night.code))
    return found


def pointers(known: Known, root: Path) -> dict[str, str]:
    """DVC's hash of every sealed folder that a build read, by path: of its inputs, and of the pointers that stand here."""
    fixed = known.fixed
    found = {f"{ROLLOUTS}/{night}": hash_ for night, hash_ in fixed.inputs.items()}
    for kind in SEALED[1:]:
        found |= {f"{kind}/{night}": hash_ for night, hash_ in getattr(fixed, kind.name).items()}
    for night in fixed.nights:
        if f"{ROLLOUTS}/{night}" not in found and (pointer := root / pointer_of(night)).is_file():
            found[f"{ROLLOUTS}/{night}"] = pointed(pointer)[1]
    if known.uses:
        outs = _converted(known.uses, f"{USES} of {known.name}", Pointer).outs
        found |= {f"{USES}/{out.path}": out.md5 for out in outs}
    return found


def head(root: Path = Path()) -> str | None:
    """The commit that the work tree stands on; None outside of git."""
    try:
        return commit_of("HEAD", root)
    except ConfigurationError:
        return None


def _code(commit: str, root: Path) -> str | None:
    """The commit of the code that ran, as the night's message says it."""
    lines = git("log", "-1", "--format=%B", commit, root=root).splitlines()
    said = [line.removeprefix("Code: ") for line in lines if line.startswith("Code: ")]
    return said[-1] if said and said[-1] != "no commit" else None
