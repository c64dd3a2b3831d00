"""The data of one build, wherever its files are now: in the work tree, in DVC's cache, or in another folder.

A file is used for a lock's output only if it has the hash in the lock. Differences are reported as checks; nothing is
repaired.
"""

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import msgspec

from ratchet.components.core import ConfigurationError, DataError
from ratchet.components.core.files import file_sha256

from ..versioning.git_plumbing import commit_of
from ..versioning.sealed_nights import ROLLOUTS
from .known_builds import (
    HERE,
    DvcObjects,
    KnownBuild,
    build_of_commit,
    current_build,
    find_build,
    known_builds,
    sealed_folders,
)

RECORDED = "recorded"
"""Placeholder for the expected hash of something that must exist and whose hash was never recorded."""
READABLE = "readable"
"""Placeholder for the expected hash of something that cannot be read."""


class HashCheck(msgspec.Struct, frozen=True):
    """A recomputed hash and the recorded one.

    `what` is the kind of object and `where` its location. `found` is None if the object is absent.
    """

    what: str
    where: str
    expected: str
    found: str | None

    @property
    def is_equal(self) -> bool:
        """Whether the recomputed hash equals the recorded one."""
        return self.found == self.expected

    def explain(self) -> str:
        """Describe a failed check on one line."""
        if self.expected == READABLE:
            return f"{self.where} ({self.what}) cannot be read"
        if self.expected == RECORDED:
            return f"{self.where} ({self.what}) {'is absent' if self.found is None else 'is not recorded'}"
        if self.found is None:
            return f"{self.where} ({self.what}) is absent: its hash {self.expected[:16]} cannot be recomputed"
        return f"{self.where} ({self.what}) has the hash {self.found[:16]}; the recorded hash is {self.expected[:16]}"


class CheckCounts(msgspec.Struct, frozen=True):
    """Number of checks of one kind with equal hashes, different hashes, and absent objects."""

    equal: int = 0
    different: int = 0
    absent: int = 0


def count_checks(checks: Iterable[HashCheck]) -> dict[str, CheckCounts]:
    """Count the results of checks by kind, in order of first occurrence."""
    counts: dict[str, list[int]] = {}
    for check in checks:
        by_result = counts.setdefault(check.what, [0, 0, 0])
        by_result[0 if check.is_equal else 2 if check.found is None else 1] += 1
    return {what: CheckCounts(*by_result) for what, by_result in counts.items()}


def sha256_if_present(path: Path) -> str | None:
    """Return the SHA-256 of a file; None if it is absent."""
    return file_sha256(path) if path.is_file() else None


DATASETS = Path("data/datasets")


class BuildState:
    """Readable data of one build. `name` appears in messages, `root` is the clone. If `known` is None, `root` is a
    folder without a recorded build, and its files are not verified.
    """

    def __init__(self, name: str, root: Path, known: KnownBuild | None, objects: DvcObjects | None = None) -> None:
        self.name, self.root, self.known = name, root, known
        self._objects = objects or DvcObjects(root)
        self._found: dict[str, Mapping[str, Path] | None] = {}

    @property
    def is_current(self) -> bool:
        """Whether the work tree is expected to hold this data now; also True for a folder without a recorded build."""
        current = current_build(self.root)
        return self.known is None or (current is not None and current.lock_hash == self.known.lock_hash)

    def expected(self, path: str) -> str | None:
        """Return DVC's hash of an output or sealed folder; None if no lock or pointer lists it."""
        if self.known is None:
            return None
        return self.known.outputs.get(path) or sealed_folders(self.known, self.root).get(path)

    def output_file(self, path: str) -> Path:
        """Return the path of an output that is a single file. Raises DataError if it is not available."""
        files = self.output_files(path)
        if files is None:
            raise self.absence_error(path)
        return files[""]

    def output_files(self, path: str) -> Mapping[str, Path] | None:
        """Return the files of an output by name; None if it is absent or was changed. A single file has the name `""`."""
        if path not in self._found:
            self._found[path] = self._locate(path)
        return self._found[path]

    def available_files(self, path: str) -> Mapping[str, Path] | None:
        """Return the files of an output as `output_files` does; if it returns None, the unverified files at the path,
        for which `checks` then yields a failed check.
        """
        return self.output_files(path) or files_by_name(self.root / path)

    def absence_error(self, path: str) -> DataError:
        """Return the error for an output that is not available."""
        if self.known is None:
            return DataError(
                f"{self.root / path} is absent: nothing was built here yet; run `ratchet build` or `ratchet night`"
            )
        night = self.known.name.removeprefix("night/") if self.known and self.known.commit else None
        advice = f"restore it with `ratchet data checkout {night}`" if night else "build again, or run `dvc pull`"
        if self.expected(path) is None:
            return DataError(f"{self.name} has no {path}; it was built without it, or by an older Ratchet")
        state = "was changed since" if (self.root / path).exists() else "is absent"
        return DataError(f"{path} of {self.name} {state}; {advice}")

    def datasets(self) -> list[str]:
        """Return the names of the datasets of this build."""
        if self.known is not None:
            prefix = f"{DATASETS}/"
            return sorted(path.removeprefix(prefix) for path in self.known.outputs if path.startswith(prefix))
        return sorted(folder.parent.name for folder in (self.root / DATASETS).glob("*/manifest.json"))

    def nights(self) -> list[str]:
        """Return the nights that the build used."""
        return list(self.known.recorded_inputs.nights) if self.known else []

    def checks(self, path: str, what: str) -> Iterator[HashCheck]:
        """Yield the comparison of an output's recomputed DVC hash with the recorded one; nothing if none is recorded.
        `what`: kind of object, as in `HashCheck`.
        """
        expected = self.expected(path)
        if expected is None:
            return
        files = self.output_files(path)
        if files is None:
            here = self.root / path
            yield HashCheck(what, path, expected, self._hash(here))
        elif "" in files:
            yield HashCheck(what, path, expected, self._hash(files[""]))
        else:
            yield HashCheck(what, path, expected, self._folder_hash(path, expected, files))

    def _folder_hash(self, path: str, expected: str, files: Mapping[str, Path]) -> str | None:
        # In the work tree DVC's own hash covers additional files too; objects are checked one by one.
        if files and all(file.is_relative_to(self.root / path) for file in files.values()):
            return self._hash(self.root / path)
        listing, own = self._objects.find(expected), self._objects.listing(expected) or {}
        damaged = [name for name, file in files.items() if self._hash(file) != own.get(name)]
        return f"damaged: {damaged[0]}" if damaged else f"{self._hash(listing)}.dir" if listing else None

    def _hash(self, path: Path) -> str | None:
        return self._objects.hash_of(path)

    def _locate(self, path: str) -> Mapping[str, Path] | None:
        expected, place = self.expected(path), self.root / path
        if self.known is None:
            return files_by_name(place)
        if expected is None:
            return None
        if self._hash(place) == expected:
            return files_by_name(place)
        # A checkout of a night that differs from the clone is a folder by itself.
        checkout = self.root / "data/nights" / self.name.removeprefix("night/") / path
        if self.name.startswith("night/") and self._hash(checkout) == expected:
            return files_by_name(checkout)
        return self._from_objects(expected)

    def _from_objects(self, expected: str) -> Mapping[str, Path] | None:
        if not expected.endswith(".dir"):
            file = self._objects.find(expected)
            return None if file is None else {"": file}
        listing = self._objects.listing(expected)
        if listing is None:
            return None
        files = {name: self._objects.find(md5) for name, md5 in listing.items()}
        present = {name: path for name, path in files.items() if path is not None}
        return present if len(present) == len(files) else None


def files_by_name(place: Path) -> Mapping[str, Path] | None:
    """Return the files at a path by name (`""` for a single file), unverified; None if there is nothing."""
    if place.is_file():
        return {"": place}
    if not place.is_dir():
        return None
    return {path.relative_to(place).as_posix(): path for path in sorted(place.rglob("*")) if path.is_file()}


def find_state(name: str | None, root: Path) -> BuildState:
    """Return the data that a name refers to.

    The name is a night, tag, commit, lock hash or folder; None or `here` is the work tree. A night without a tag refers
    to the first known build whose last night it is. Raises ConfigurationError for any other name, and DataError for a
    tag or commit that holds no build.
    """
    if name is None or name in ("here", "."):
        return BuildState(HERE, root, current_build(root))
    folder = Path(name)
    if (folder / "data/ranked.parquet").is_file() or (folder / DATASETS).is_dir():
        return BuildState(name, folder, current_build(folder))
    if (folder / "ranked.parquet").is_file() and folder.name == "data":
        return BuildState(name, folder.parent, current_build(folder.parent))
    for tag in (f"night/{name}", name):
        commit = commit_of(f"refs/tags/{tag}", root)
        if commit is not None:
            return BuildState(tag, root, build_of_commit(tag, commit, root))
    builds = known_builds(root)
    build = find_build(name, builds) or next(
        (build for build in builds if build.recorded_inputs.nights[-1:] == [name]), None
    )
    if build is not None:
        return BuildState(build.name, root, build)
    commit = commit_of(name, root)
    if commit is None and (root / ROLLOUTS / name).is_dir():
        raise ConfigurationError(f"no known build has {name} as its last night; run `ratchet build {name}`")
    if commit is None:
        raise ConfigurationError(
            f"'{name}' is not a night, tag, commit, build or folder of data; see `git tag -l 'night/*'`"
        )
    return BuildState(name, root, build_of_commit(name, commit, root))


def state_with_tables(tables: Mapping[str, str], root: Path) -> BuildState | None:
    """Return the first known build whose tables have these SHA-256 hashes, given by file name; None if there is none."""
    objects = DvcObjects(root)
    states = (BuildState(build.name, root, build, objects) for build in known_builds(root))
    return next((state for state in states if tables and all(_has(state, *table) for table in tables.items())), None)


def _has(state: BuildState, table: str, sha256: str) -> bool:
    files = state.output_files(f"data/{table}")
    return files is not None and sha256_if_present(files.get("", state.root)) == sha256
