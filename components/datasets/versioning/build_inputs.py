"""`data/build.yaml`, the fixed inputs of one build, and baselines: profiles of accepted builds, stored under their
hash.
"""

import hashlib
import re
from collections.abc import Mapping
from datetime import date
from pathlib import Path
from typing import Any

import msgspec

from ratchet.components.core import ConfigurationError, DataError
from ratchet.components.core.files import InvalidYaml, load_yaml, write_atomically

from .dvc_lock import LOCK, dvc_md5, lock_outputs, read_lock

PROFILE = Path("data/profile.json")
BASELINES = Path("data/baselines")
SHA256 = re.compile(r"[0-9a-f]{64}")


def baseline_path(sha256: str) -> Path:
    """Return the path of a baseline, relative to the project."""
    return BASELINES / f"{sha256}.json"


def check_baseline(sha256: str, root: Path) -> Path:
    """Return the file of a baseline after verifying its hash. Raises ConfigurationError for a malformed hash, DataError
    for a file that is absent or has another hash.
    """
    if not SHA256.fullmatch(sha256):
        raise ConfigurationError(f"'{sha256}' is not a baseline; give the SHA-256 of a file in {BASELINES}, or none")
    path = root / baseline_path(sha256)
    if not path.is_file():
        raise DataError(f"{path} is absent; restore it with `ratchet data checkout NIGHT`, or build without a baseline")
    if hashlib.sha256(path.read_bytes()).hexdigest() != sha256:
        raise DataError(
            f"{path} has another SHA-256 than its name; remove it and restore it with `ratchet data checkout NIGHT`"
        )
    return path


def keep_baseline(root: Path) -> str | None:
    """Store the profile of the current build as a baseline; return its SHA-256, or None if the profile is not that of a
    build that passed the gate.
    """
    lock = read_lock(root / LOCK)
    profile = lock_outputs(lock).get(PROFILE.as_posix())
    # A failed `ratchet build` restores the previous outputs; a failed `dvc repro` does not, and leaves a lock whose stages
    # disagree.
    if profile is None or not is_consistent(lock) or dvc_md5(root / PROFILE) != profile:
        return None
    content = (root / PROFILE).read_bytes()
    sha256 = hashlib.sha256(content).hexdigest()
    path = root / baseline_path(sha256)
    if not path.is_file() or path.read_bytes() != content:
        path.parent.mkdir(parents=True, exist_ok=True)
        for leftover in path.parent.glob(".*.tmp"):  # by a build that was killed; only one builds at a time
            leftover.unlink(missing_ok=True)
        write_atomically(path, content)
    return sha256


def is_consistent(lock: dict[str, Any]) -> bool:
    """Return whether a lock includes the gate, and each stage read what earlier stages wrote."""
    stages = lock.get("stages") or {}
    outputs = lock_outputs(lock)
    read = [
        (dependency["path"], dependency.get("md5")) for stage in stages.values() for dependency in stage.get("deps", ())
    ]
    # A dependency that no stage writes (a sealed night, a list of tasksets) is consistent with anything.
    return "gate" in stages and all(outputs.get(path, md5) == md5 for path, md5 in read)


BUILD = Path("data/build.yaml")
NIGHT_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
HEADER = "# The inputs of the data build, as far as the three dots. Written by the night or by `ratchet build`; do not edit.\n"
END = "...\n"
"""Last line of the file. A file with the header but without this line was truncated."""


class BuildInputs(msgspec.Struct, frozen=True):
    """Requested inputs of a build. `as_of` is the day from which ages are counted (ISO); `baseline` the SHA-256 of the
    profile of an accepted build against which drift is measured, None to measure no drift; with `on_policy_only`, no
    demonstration is exported. `scale` and `seed` are those of the night.
    """

    nights: tuple[str, ...]
    as_of: str
    scale: str
    seed: int
    baseline: str | None = None
    on_policy_only: bool = False


class BuildFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Fixed inputs of a build. `inputs`, `judgements`, `labels` and `uses` are DVC's hashes of each night's folders (a
    night has uses only after a training), by night. `files`, `folders`, `evidence`, `ledgers`, `reviews` and `drift` are
    paths, by the flag of the stages that takes them. Files of an older Ratchet lack the fields that have a default here.
    """

    nights: list[str]
    inputs: dict[str, str]
    files: dict[str, list[str]]
    folders: dict[str, list[str]]
    as_of: str
    scale: str
    seed: int
    baseline: str | None
    on_policy_only: bool
    judgements: dict[str, str] = {}
    labels: dict[str, str] = {}
    uses: dict[str, str] = {}
    evidence: dict[str, list[str]] = {}
    ledgers: dict[str, list[str]] = {}
    reviews: dict[str, list[str]] = {}
    drift: dict[str, list[str]] = {}

    def requested_inputs(self) -> BuildInputs:
        """Return the inputs that were requested when the file was written."""
        return BuildInputs(tuple(self.nights), self.as_of, self.scale, self.seed, self.baseline, self.on_policy_only)


BUILD_KEYS = frozenset(BuildFile.__struct_fields__)


def write_build(inputs: BuildInputs, *, root: Path = Path()) -> BuildFile:
    """Fix the inputs of the next build: add each sealed night to DVC, compare it with its pointer, and write
    `data/build.yaml`.

    Raises ConfigurationError for a name that is not valid for a night or occurs twice, DataError for a night or a
    baseline that is absent or damaged.
    """
    # Here: `sealed_nights` imports this module.
    from .sealed_nights import NIGHT_KINDS, USES, add_kinds, add_sealed, nights_with_uses

    # Names become paths and git tags: no slash, no leading dot.
    invalid = [night for night in inputs.nights if not NIGHT_NAME.fullmatch(night)]
    if invalid:
        raise ConfigurationError(
            f"'{invalid[0]}' is not a valid name of a night; use letters, digits, '.', '_' and '-'; to build "
            "from logs, name their folder in data.rollouts of params.yaml; without a build: `ratchet export LOG`"
        )
    if len(set(inputs.nights)) != len(inputs.nights):
        raise ConfigurationError("a night is listed twice; list each once")
    try:
        date.fromisoformat(inputs.as_of)
    except ValueError as error:
        raise ConfigurationError(f"as_of '{inputs.as_of}' is not a day; write YYYY-MM-DD") from error
    if inputs.baseline is not None:
        check_baseline(inputs.baseline, root)
    sealed = {kind.name: hashes for kind, hashes in add_kinds(inputs.nights, NIGHT_KINDS, root=root).items()}
    sealed[USES.name] = add_sealed(nights_with_uses(inputs.nights, root), USES, root=root)
    return write_values(inputs, sealed, root)


def write_values(inputs: BuildInputs, sealed: Mapping[str, dict[str, str]], root: Path) -> BuildFile:
    """Write the build file from validated values; return its content. `sealed`: DVC's hashes of sealed folders, by kind
    and night.
    """
    import yaml

    nights = list(inputs.nights)
    rollouts = [f"data/rollouts/{night}" for night in nights]
    labels = [f"data/labels/{night}/labels.jsonl" for night in nights]
    build = BuildFile(
        nights,
        sealed.get("rollouts", {}),
        files={"rollouts": rollouts, "scores": [f"data/scores/{night}.parquet" for night in nights]},
        folders={"rollouts": rollouts},
        as_of=inputs.as_of,
        scale=inputs.scale,
        seed=inputs.seed,
        baseline=inputs.baseline,
        on_policy_only=inputs.on_policy_only,
        judgements=sealed.get("judgements", {}),
        labels=sealed.get("labels", {}),
        uses=sealed.get("uses", {}),
        evidence={
            "judgements": [f"data/judgements/{night}/judgements.jsonl" for night in nights],
            "labels": labels,
        },
        ledgers={"labels": labels, "uses": [f"data/uses/{night}/uses.jsonl" for night in sealed.get("uses", ())]},
        reviews={"labels": labels},
        drift={"baseline": [baseline_path(inputs.baseline).as_posix()] if inputs.baseline else []},
    )
    # YAML writes a list that occurs twice by reference; `to_builtins` makes two lists of it.
    text = yaml.safe_dump(msgspec.to_builtins(build), sort_keys=False)
    (root / BUILD).parent.mkdir(parents=True, exist_ok=True)
    write_atomically(root / BUILD, (HEADER + text + END).encode())
    return build


def read_build(root: Path = Path()) -> BuildFile:
    """Return the current build file. Raises ConfigurationError if there is none or it is invalid."""
    path = root / BUILD
    try:
        return msgspec.convert(_values(path), BuildFile)
    except msgspec.ValidationError as error:
        raise _unreadable(path, error) from error


def build_damage(content: bytes, values: dict[str, Any]) -> str | None:
    """Return a description of the damage in a build file with these values; None if it is intact. Unknown keys, of a
    newer Ratchet, are no damage.
    """
    if content.startswith(HEADER.encode()) and not content.endswith(END.encode()):
        return "it is cut short"
    try:
        msgspec.convert({name: value for name, value in values.items() if name in BUILD_KEYS}, BuildFile)
    except msgspec.ValidationError as error:
        return str(error)
    return None


def review_notice(root: Path = Path()) -> str | None:
    """Return a line on what to add to the dvc.yaml of an older Ratchet, whose builds read no reviews of pairs; None for
    one that reads them, or where there is none.
    """
    pipeline = root / "dvc.yaml"
    if not pipeline.is_file() or b"${reviews}" in pipeline.read_bytes():
        return None
    return (
        "reviews of pairs will not reach the datasets: dvc.yaml is of an older Ratchet; in its stage `pairs` add "
        "${reviews} after ${files}, and labels to the params of data/build.yaml"
    )


def _values(path: Path) -> dict[str, Any]:
    try:
        values = load_yaml(path.read_bytes())
    except FileNotFoundError as error:
        raise ConfigurationError(f"{path} is absent: nothing was built here yet; run `ratchet night`") from error
    except InvalidYaml as error:
        raise _unreadable(path, error) from error
    return values if isinstance(values, dict) else {}


def _unreadable(path: Path, error: Exception) -> ConfigurationError:
    return ConfigurationError(f"{path}: {' '.join(str(error).split())}; run `ratchet build NIGHTS` to write it anew")
