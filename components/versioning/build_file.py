"""`data/build.yaml`: the inputs of one build, fixed. It is written here, and read by `dvc.yaml`."""

import re
from collections.abc import Mapping
from datetime import date
from pathlib import Path
from typing import Any

import msgspec

from components.protocol import ConfigurationError
from components.trajectories.files import write_atomically

BUILD = Path("data/build.yaml")
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
HEADER = "# The inputs of the data build. Written by the night, or by `ratchet build --nights`; do not edit by hand.\n"


class Inputs(msgspec.Struct, frozen=True):
    """What a build is to be made from. `as_of` is the day from which ages are counted (ISO); `baseline` the lock hash of the
    build that the champion was trained on, None for the first; with `on_policy_only` no demonstration is exported.
    `scale` and `seed` are those of the night."""

    nights: tuple[str, ...]
    as_of: str
    scale: str
    seed: int
    baseline: str | None = None
    on_policy_only: bool = False


class Build(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The inputs as they are fixed. `inputs`, `judgements` and `labels` are DVC's hashes of each night's folders; `files`,
    `folders` and `evidence` its paths, as flags. An older file has no judgements, labels and evidence."""

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
    evidence: dict[str, list[str]] = {}

    def asked(self) -> Inputs:
        """What was asked for when it was written."""
        return Inputs(tuple(self.nights), self.as_of, self.scale, self.seed, self.baseline, self.on_policy_only)


BUILD_KEYS = frozenset(Build.__struct_fields__)


def write_build(inputs: Inputs, *, root: Path = Path()) -> Build:
    """Fix the inputs of the next build: sealed nights, each given to DVC and compared with its pointer.

    Raises ConfigurationError for a name that cannot be a night or occurs twice, DataError for a night that is absent or damaged.
    """
    from .sealed import JUDGEMENTS, LABELS, ROLLOUTS, add_sealed

    wrong = [night for night in inputs.nights if not NAME.fullmatch(night)]
    if wrong:
        raise ConfigurationError(f"'{wrong[0]}' cannot name a night; use letters, digits, '.', '_' and '-'")
    if len(set(inputs.nights)) != len(inputs.nights):
        raise ConfigurationError("a night is listed twice; list each once")
    _day(inputs.as_of)
    rollouts, judgements, labels = (
        add_sealed(inputs.nights, kind, root=root) for kind in (ROLLOUTS, JUDGEMENTS, LABELS)
    )
    return write_values(inputs, rollouts, root, judgements, labels)


def _day(text: str) -> None:
    try:
        date.fromisoformat(text)
    except ValueError as error:
        raise ConfigurationError(f"as_of '{text}' is not a day; write YYYY-MM-DD") from error


def write_values(
    inputs: Inputs,
    hashes: Mapping[str, str],
    root: Path,
    judgements: Mapping[str, str] | None = None,
    labels: Mapping[str, str] | None = None,
) -> Build:
    """Write the file from values that were checked."""
    import yaml

    nights = list(inputs.nights)
    rollouts = [f"data/rollouts/{night}" for night in nights]
    scores = [f"data/scores/{night}.parquet" for night in nights]
    judged = [f"data/judgements/{night}/judgements.jsonl" for night in nights]
    labelled = [f"data/labels/{night}/labels.jsonl" for night in nights]
    build = Build(
        nights,
        dict(hashes),
        files={"rollouts": rollouts, "scores": scores},
        folders={"rollouts": rollouts},
        as_of=inputs.as_of,
        scale=inputs.scale,
        seed=inputs.seed,
        baseline=inputs.baseline,
        on_policy_only=inputs.on_policy_only,
        judgements=dict(judgements or {}),
        labels=dict(labels or {}),
        evidence={"judgements": judged, "labels": labelled},
    )
    text = yaml.dump(msgspec.to_builtins(build), Dumper=_plain_dumper(), sort_keys=False)
    (root / BUILD).parent.mkdir(parents=True, exist_ok=True)
    write_atomically(root / BUILD, (HEADER + text).encode())
    return build


def _plain_dumper() -> Any:
    """A dumper without anchors: the same list twice is written twice."""
    import yaml

    class Plain(yaml.SafeDumper):
        def ignore_aliases(self, data: Any) -> bool:
            return True

    return Plain


def keys_of(root: Path) -> frozenset[str]:
    """The keys that stand in the file. Raises ConfigurationError for one that cannot be read."""
    return frozenset(_values(root / BUILD))


def read_build(root: Path = Path()) -> Build:
    """The inputs that stand now. Raises ConfigurationError where there are none."""
    path = root / BUILD
    try:
        return msgspec.convert(_values(path), Build)
    except msgspec.ValidationError as error:
        raise _unreadable(path, error) from error


def _values(path: Path) -> dict[str, Any]:
    import yaml

    try:
        values = yaml.safe_load(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise ConfigurationError(f"{path} is absent: nothing was built here yet; run `ratchet night`") from error
    except yaml.YAMLError as error:
        raise _unreadable(path, error) from error
    return values if isinstance(values, dict) else {}


def _unreadable(path: Path, error: Exception) -> ConfigurationError:
    return ConfigurationError(f"{path}: {' '.join(str(error).split())}; run `ratchet build NIGHTS` to write it anew")
