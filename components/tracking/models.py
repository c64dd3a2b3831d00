"""Models: checkpoints in MLflow's registry under the name `agent`, with the aliases `champion` and `previous`.

Nothing here is spooled: each call stands in the registry when it returns, or raises InfrastructureError.
"""

import hashlib
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlparse

import msgspec

from components.protocol import ConfigurationError, DataError

from .place import as_default, client
from .records import experiment_id
from .spool import Refused, reach

if TYPE_CHECKING:
    from mlflow.entities.model_registry import ModelVersion

AGENT = "agent"
CHAMPION = "champion"
PREVIOUS = "previous"
_POLICY_TAG, _HASH_TAG = "policy_version", "checkpoint_sha256"


class ModelRef(msgspec.Struct, frozen=True):
    """One version of a registered model. `location` is a folder's URI; `path` that folder where it is on this machine."""

    name: str
    version: int
    policy_version: str
    model_id: str
    run_id: str | None
    location: str
    checkpoint_hash: str
    tags: dict[str, str]

    @property
    def path(self) -> Path | None:
        """The checkpoint's folder, or None where it must be downloaded first."""
        return _local(self.location)


def checkpoint_hash(folder: Path) -> str:
    """SHA-256 over names and contents of all files of a folder. Raises DataError where there is none."""
    files = sorted(path for path in folder.rglob("*") if path.is_file()) if folder.is_dir() else []
    if not files:
        raise DataError(f"{folder} holds no checkpoint; train one first")
    total = hashlib.sha256()
    for path in files:
        with path.open("rb") as file:
            content = hashlib.file_digest(file, "sha256").hexdigest()
        total.update(f"{path.relative_to(folder).as_posix()} {content}\n".encode())
    return total.hexdigest()


def register(
    checkpoint: Path,
    *,
    policy_version: str,
    name: str = AGENT,
    run_id: str | None = None,
    tags: Mapping[str, object] | None = None,
    metrics: Mapping[str, float] | None = None,
) -> ModelRef:
    """Copy a checkpoint into MLflow and give it a version; the same checkpoint registered again is the version it has.

    `metrics` are linked to the model (and to its run). Raises DataError for an empty folder.
    """
    digest = checkpoint_hash(checkpoint)
    known = _find(name, policy_version, digest)
    if known is not None:
        return known
    texts = {key: str(value) for key, value in (tags or {}).items()}
    texts |= {_POLICY_TAG: policy_version, _HASH_TAG: digest}
    model_id = _log_model(checkpoint, name, run_id, texts)
    if run_id is not None:
        for key, value in (metrics or {}).items():
            _call(partial(client().log_metric, run_id, key, value, model_id=model_id))
    _ensure_registered(name)
    with as_default():
        version = _call(
            lambda: client().create_model_version(
                name, source=f"models:/{model_id}", run_id=run_id, tags=texts, model_id=model_id
            )
        )
    return _ref(version)


def champion(name: str = AGENT) -> ModelRef | None:
    """The promoted model, or None before the first promotion."""
    return by_alias(CHAMPION, name)


def by_alias(alias: str, name: str = AGENT) -> ModelRef | None:
    """The version that an alias points to, or None."""
    try:
        return _ref(reach(lambda: client().get_model_version_by_alias(name, alias)))
    except Refused:
        return None


def get(version: int, name: str = AGENT) -> ModelRef:
    """A version by number. Raises ConfigurationError that lists what there is."""
    try:
        return _ref(reach(lambda: client().get_model_version(name, str(version))))
    except Refused as error:
        known = ", ".join(str(ref.version) for ref in versions(name)) or "none"
        raise ConfigurationError(f"model '{name}' has no version {version}; versions: {known}") from error


def versions(name: str = AGENT) -> list[ModelRef]:
    """All versions, oldest first."""
    found = _call(lambda: client().search_model_versions(f"name = '{name}'", max_results=10_000))
    return sorted((_ref(version) for version in found), key=lambda ref: ref.version)


def promote(version: int, name: str = AGENT, *, why: str = "") -> ModelRef:
    """Point `champion` at a version, and `previous` at the one before; promoting the champion again changes nothing.

    `previous` moves first: whoever reads meanwhile, and whatever ends this process, `champion` is the old or the new version.
    """
    target = get(version, name)
    holder = champion(name)
    if holder is not None and holder.version == target.version:
        return target
    if holder is not None:
        before = str(holder.version)
        _call(lambda: client().set_registered_model_alias(name, PREVIOUS, before))
    if why:
        _call(lambda: client().update_model_version(name, str(version), description=why))
    _call(lambda: client().set_registered_model_alias(name, CHAMPION, str(version)))
    return target


def download(version: int, name: str = AGENT, *, target: Path | None = None) -> Path:
    """The folder of a version's checkpoint on this machine, checked against its hash. A local one is not copied.

    Raises DataError where the checkpoint was damaged since it was registered.
    """
    ref = get(version, name)
    path = ref.path
    if path is None:
        from mlflow.artifacts import download_artifacts

        if target is not None:
            target.mkdir(parents=True, exist_ok=True)
        path = Path(
            _call(lambda: download_artifacts(artifact_uri=ref.location, dst_path=str(target) if target else None))
        )
    if checkpoint_hash(path) != ref.checkpoint_hash:
        raise DataError(
            f"{path}: the checkpoint of {name} version {version} is damaged; restore it or promote another version"
        )
    return path


def _log_model(checkpoint: Path, name: str, run_id: str | None, tags: dict[str, str]) -> str:
    mlflow = client()
    if run_id is not None:
        experiment = _call(lambda: mlflow.get_run(run_id)).info.experiment_id
    else:
        experiment = _call(lambda: experiment_id(mlflow, name))
    model = _call(lambda: mlflow.create_logged_model(experiment, name=name, source_run_id=run_id, tags=tags))
    try:
        _call(lambda: mlflow.log_model_artifacts(model.model_id, str(checkpoint)))
    except BaseException:
        mlflow.finalize_logged_model(model.model_id, "FAILED")
        raise
    _call(lambda: mlflow.finalize_logged_model(model.model_id, "READY"))
    return str(model.model_id)


def _ensure_registered(name: str) -> None:
    try:
        reach(lambda: client().get_registered_model(name))
    except Refused:
        _call(lambda: client().create_registered_model(name))


def _find(name: str, policy_version: str, digest: str) -> ModelRef | None:
    return next(
        (ref for ref in versions(name) if ref.policy_version == policy_version and ref.checkpoint_hash == digest), None
    )


def _ref(version: "ModelVersion") -> ModelRef:
    """MLflow on SQLite leaves `model_id` empty: it is read from `source`, `models:/<id>`."""
    model_id = version.model_id or str(version.source).removeprefix("models:/").strip("/")
    model = _call(lambda: client().get_logged_model(model_id))
    tags = dict(version.tags)
    return ModelRef(
        name=version.name,
        version=int(version.version),
        policy_version=tags.get(_POLICY_TAG, ""),
        model_id=model_id,
        run_id=version.run_id or None,
        location=str(model.artifact_location),
        checkpoint_hash=tags.get(_HASH_TAG, ""),
        tags=tags,
    )


def _local(location: str) -> Path | None:
    parsed = urlparse(location)
    if parsed.scheme == "file":
        return Path(unquote(parsed.path))
    return Path(location) if not parsed.scheme else None


def _call(call: Any) -> Any:
    """Reach MLflow; an answer that is a refusal is the caller's fault here."""
    try:
        return reach(call)
    except Refused as error:
        raise DataError(f"MLflow's registry refused: {error}") from error
