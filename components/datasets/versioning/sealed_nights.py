"""Sealed nights: each folder in `data/rollouts` has a DVC pointer next to it and never changes again.

`data/judgements` and `data/labels` are sealed likewise, as empty files for a night without any. `data/uses` is sealed
after the training. A build of the current inputs is refused if a sealed folder changed: DVC by itself would build from
the changed folder.
"""

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

from ratchet.components.core import ConfigurationError, DataError, InfrastructureError
from ratchet.components.core.files import temporary_path, write_atomically
from ratchet.components.trajectories.shards import read_manifest

from . import dvc_client
from .build_inputs import (
    BUILD,
    BuildFile,
    BuildInputs,
    check_baseline,
    write_values,
)
from .dvc_lock import dvc_md5, read_pointer

ROLLOUTS = Path("data/rollouts")
JUDGEMENTS = Path("data/judgements")
LABELS = Path("data/labels")
USES = Path("data/uses")
SEALED_FILES = {JUDGEMENTS: "judgements.jsonl", LABELS: "labels.jsonl", USES: "uses.jsonl"}
"""Name of the single file in a sealed folder of each kind except the rollouts."""
LOCKS = Path("data/locks")
"""Locks of builds that a night trained on and that were not its last: see `lineage.known_builds.keep_build`."""
NIGHT_KINDS = (ROLLOUTS, JUDGEMENTS, LABELS)
"""Kinds of folder that every night has."""
SEALED_KINDS = (*NIGHT_KINDS, USES)


def pointer_of(night: str, kind: Path = ROLLOUTS) -> Path:
    """Return the path of a night's pointer, relative to the project."""
    return kind / f"{night}.dvc"


def seal_file(kind: Path, night: str, content: bytes, *, root: Path = Path()) -> Path:
    """Write a night's judgements, labels or uses atomically; return the file. Raises ConfigurationError where they
    exist already.
    """
    folder = root / kind / night
    if folder.exists() or (root / pointer_of(night, kind)).is_file():
        raise ConfigurationError(f"{kind / night} is already sealed; a night is sealed once")
    spool = temporary_path(folder)
    shutil.rmtree(spool, ignore_errors=True)  # of an attempt that failed
    spool.mkdir(parents=True)
    write_atomically(spool / SEALED_FILES[kind], content)
    # By rename: a night is sealed with its whole content, or not at all.
    spool.rename(folder)
    return folder / SEALED_FILES[kind]


def add_night(night: str, *, root: Path = Path()) -> str:
    """Add the rollouts of a finished night to DVC, which seals them; return DVC's hash of the folder. Repeating the
    call verifies that they are unchanged.

    Raises DataError for a night that is absent, unfinished, or changed since it was added.
    """
    return add_sealed([night], ROLLOUTS, root=root)[night]


def add_sealed(nights: Sequence[str], kind: Path, *, root: Path = Path()) -> dict[str, str]:
    """Add one kind of folder of several nights to DVC; return the hashes by night. Missing judgements and labels are
    sealed as empty files. Raises DataError.
    """
    return add_kinds(nights, [kind], root=root)[kind]


def add_kinds(nights: Sequence[str], kinds: Sequence[Path], *, root: Path = Path()) -> dict[Path, dict[str, str]]:
    """Add several kinds of folder of several nights to DVC, with one call; return the hashes by kind and night. Raises
    DataError.
    """
    new = [(kind, night) for kind in kinds for night in nights if not (root / pointer_of(night, kind)).is_file()]
    for kind, night in new:
        folder = root / kind / night
        if kind in NIGHT_KINDS and kind in SEALED_FILES and not folder.exists():
            seal_file(kind, night, b"", root=root)
        if not (folder / SEALED_FILES[kind]).is_file() if kind in SEALED_FILES else not read_manifest(folder):
            raise DataError(f"{folder} holds no sealed night; collect it first")
    if new:
        ensure_build_file(root)
        dvc_client.run_dvc(["add", *(str(kind / night) for kind, night in new)], root)
    return {kind: {night: check_night(night, kind, root=root) for night in nights} for kind in kinds}


def nights_with_uses(nights: Sequence[str], root: Path = Path()) -> list[str]:
    """Return the nights that have a ledger of uses. The others have trained nothing so far, or are older than the
    ledger.
    """
    return [night for night in nights if (root / pointer_of(night, USES)).is_file()]


def check_night(night: str, kind: Path = ROLLOUTS, *, root: Path = Path()) -> str:
    """Return the hash in a night's pointer after comparing it with the folder, which is checked out if it is absent.
    Raises DataError.
    """
    pointer = root / pointer_of(night, kind)
    folder, expected = read_pointer(pointer)
    actual = dvc_md5(folder)
    if actual is None:
        # `dvc.yaml` reads `data/build.yaml`, without which any DVC command fails.
        ensure_build_file(root)
        try:
            dvc_client.run_dvc(["checkout", str(pointer_of(night, kind))], root)
        except InfrastructureError as error:
            raise DataError(
                f"{folder} is absent, also from DVC's cache; run `dvc pull {pointer_of(night, kind)}`"
            ) from error
        actual = dvc_md5(folder)
    if actual != expected:
        raise DataError(
            f"{folder} differs from its pointer {pointer}: a sealed night never changes; "
            f"remove the folder and run `dvc checkout {pointer_of(night, kind)}`"
        )
    return expected


def ensure_build_file(root: Path = Path()) -> None:
    """Ensure that `data/build.yaml` exists, which any DVC command needs in order to read `dvc.yaml`; without one, write
    it without nights. Raises ConfigurationError.
    """
    if not (root / "dvc.yaml").is_file():
        raise ConfigurationError(f"{root.absolute()} has no dvc.yaml: run the command in the root of the repository")
    if not (root / BUILD).is_file():
        write_values(BuildInputs((), as_of="1970-01-01", scale="none", seed=0), {}, root)


def check_build_inputs(build: BuildFile, root: Path = Path()) -> None:
    """Compare a build file with pointers, folders and baseline. Raises DataError."""
    check_pointers(build, root)
    for kind, hashes in _sealed(build).items():
        for night in hashes:
            check_night(night, kind, root=root)
    if (baseline := build.requested_inputs().baseline) is not None:
        check_baseline(baseline, root)


def check_pointers(build: BuildFile, root: Path = Path()) -> None:
    """Compare a build file with the pointers only, which is fast. Raises DataError for a pointer that is absent or
    differs.
    """
    for kind, hashes in _sealed(build).items():
        for night, expected in hashes.items():
            pointer = root / pointer_of(night, kind)
            if not pointer.is_file():
                raise DataError(
                    f"{pointer} is absent; restore it with `ratchet data checkout NIGHT`, or run `ratchet build NIGHTS`"
                )
            if read_pointer(pointer)[1] != expected:
                raise DataError(
                    f"{pointer} differs from its hash in {root / BUILD}: a sealed night never changes; restore both, "
                    "or run `ratchet build NIGHTS`"
                )


def _sealed(build: BuildFile) -> dict[Path, Mapping[str, str]]:
    """Return the hashes of sealed folders in a build file, by kind and night."""
    return {ROLLOUTS: build.inputs, JUDGEMENTS: build.judgements, LABELS: build.labels, USES: build.uses}
