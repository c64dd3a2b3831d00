"""The model registry: checkpoints in MLflow under the name `agent`, their versions, aliases and decisions.

Nothing here is spooled: each call has taken effect when it returns, or raises InfrastructureError. A model is READY
only after all its files arrived; an interrupted upload is PENDING, found by its hash and resumed.
"""

import json
import re
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from ratchet.components.core import ConfigurationError, DataError
from ratchet.components.core.files import temporary_folder
from ratchet.components.core.home import home

from .agent_pyfunc import store_flavour
from .checkpoint_stores import local_folder
from .checkpoint_transfer import (
    CheckpointListing,
    delete_checkpoint,
    fetch_checkpoint,
    list_checkpoint,
    upload_checkpoint,
)
from .mlflow_client import (
    MlflowRefusal,
    artifact_root,
    call_mlflow,
    client,
    database_rows,
    default_tracking_uri,
)
from .record_upload import experiment_id, logged_model_id

if TYPE_CHECKING:
    from mlflow.entities import LoggedModel


REGISTERED_TAG = "registered_as"
"""Tag of a logged model: the registered model that it becomes a version of. Older ones had its name."""
_LONGEST_NAME = 100
POLICY_TAG, HASH_TAG = "policy_version", "checkpoint_sha256"
CHECKPOINT_EXPERIMENT = "checkpoints"
"""Name of the experiment for checkpoints whose own experiment keeps its artifacts outside the present `artifact_root`."""


def _log_checkpoint(
    checkpoint: Path, listing: CheckpointListing, name: str, run_id: str | None, tags: Mapping[str, str]
) -> str:
    """Return the id of a READY model with all files of the checkpoint, resuming an unfinished one.

    Raises InfrastructureError where the store fails: then nothing is READY, and the same call resumes.
    """
    experiment = _experiment(name, run_id)
    model = _find_unfinished(experiment, name, tags) or call_registry(
        partial(
            client().create_logged_model,
            experiment,
            name=_logged_name(name, tags),
            source_run_id=run_id,
            tags={**tags, REGISTERED_TAG: name, **listing.tags()},
        )
    )
    upload_checkpoint(checkpoint, listing, str(model.artifact_location))
    if name == AGENT:  # a step model cannot play
        store_flavour(str(model.artifact_location), str(model.model_id))
    if str(model.status) != "READY":
        call_registry(lambda: client().finalize_logged_model(model.model_id, "READY"))
    return str(model.model_id)


def _logged_name(name: str, tags: Mapping[str, str]) -> str:
    """Return a name that says which model it is: `challenger-2026-11-23-b2`; `name` where role or night is unknown."""
    words = [tags.get("role", ""), tags.get("night", "")]
    return re.sub(r"[^\w-]", "-", "-".join(words))[:_LONGEST_NAME] if all(words) else name


def unfinished_models(name: str) -> list["LoggedModel"]:
    """Return the models named `name`, of all experiments, whose upload was not finished, oldest first."""
    experiment_ids = [
        experiment.experiment_id for experiment in call_registry(lambda: client().search_experiments(max_results=1000))
    ]
    return [model for model in _models(experiment_ids, name) if str(model.status) != "READY"]


def delete_unfinished(model: "LoggedModel") -> None:
    """Delete an unfinished model and the files that arrived."""
    delete_checkpoint(str(model.artifact_location))
    call_registry(lambda: client().delete_logged_model(model.model_id))


def call_registry(work: Any) -> Any:
    """Return `work()`, a call of MLflow, as `call_mlflow` does; a refusal by MLflow is raised as DataError."""
    try:
        return call_mlflow(work)
    except MlflowRefusal as error:
        raise DataError(f"MLflow's registry refused: {error}") from error


def _find_unfinished(experiment: str, name: str, tags: Mapping[str, str]) -> "LoggedModel | None":
    hash_filter = f"tags.{HASH_TAG} = '{tags[HASH_TAG]}'"
    candidates = [
        model
        for model in _models([experiment], name, hash_filter)
        if model.tags.get(POLICY_TAG) == tags[POLICY_TAG] and str(model.status) != "FAILED"
    ]
    return candidates[-1] if candidates else None


def _models(experiments: list[str], name: str, filter_string: str | None = None) -> list["LoggedModel"]:
    """Return the models that are or become versions of `name`, oldest first."""
    models: list[LoggedModel] = []
    token = None
    while experiments:
        page = call_registry(
            partial(
                client().search_logged_models,
                experiments,
                filter_string=filter_string,
                max_results=50,
                page_token=token,
            )
        )
        models += [model for model in page if model.tags.get(REGISTERED_TAG, model.name) == name]
        token = page.token
        if not token:
            break
    return sorted(models, key=lambda model: (model.creation_timestamp, model.model_id))


def _experiment(name: str, run_id: str | None) -> str:
    """Return the run's experiment, or the model's.

    Where its artifacts lie elsewhere than new ones should, because RATCHET_ARTIFACTS was set since, another experiment is
    used.
    """
    if run_id is not None:
        experiment = str(call_registry(lambda: client().get_run(run_id)).info.experiment_id)
    else:
        experiment = str(call_registry(lambda: experiment_id(client(), name)))
    root = artifact_root()
    location = str(call_registry(lambda: client().get_experiment(experiment)).artifact_location)
    if root is None or location.startswith(f"{root}/"):
        return experiment
    fallback, folder = f"{CHECKPOINT_EXPERIMENT} at {root}", f"{root}/{CHECKPOINT_EXPERIMENT}"
    return str(call_registry(lambda: experiment_id(client(), fallback, folder)))


AGENT = "agent"
CHAMPION = "champion"
PREVIOUS = "previous"
CACHE = "checkpoints"
"""Folder below `home()` of fetched checkpoints, by their hash."""
LONGEST_NUMBER = 10
"""Digits of the highest version that MLflow's databases can hold."""
PRUNED_TAG = "pruned"
"""Tag of a version whose files were removed."""


class ModelRef(msgspec.Struct, frozen=True):
    """One version of a registered model. `location`: URI of the checkpoint's files; `listing`: these files, None if
    they were not recorded. `run_id`: the run that trained it, None if unknown. `checkpoint_hash`: SHA-256
    of names and contents of all files.
    """

    name: str
    version: int
    policy_version: str
    model_id: str
    run_id: str | None
    location: str
    checkpoint_hash: str
    tags: dict[str, str]
    listing: CheckpointListing | None = None

    @property
    def path(self) -> Path | None:
        """The checkpoint's folder, or None if it is in a remote store and must be downloaded."""
        return local_folder(self.location)

    @property
    def is_pruned(self) -> bool:
        """Whether its files were removed; its tags remain."""
        return PRUNED_TAG in self.tags


def checkpoint_hash(folder: Path) -> str:
    """Return the SHA-256 over names and contents of a folder's files. Raises DataError where there are none."""
    return list_checkpoint(folder).digest


def register(
    checkpoint: Path,
    *,
    policy_version: str,
    name: str = AGENT,
    run_id: str | None = None,
    tags: Mapping[str, object] | None = None,
) -> ModelRef:
    """Copy a checkpoint folder into MLflow and give it a version; the same checkpoint and policy version registered
    again keep their version, unless its files were pruned.

    `run_id`: MLflow's id of the run that trained it. `tags`: stored with the version, values as text. Raises DataError
    for an empty folder, InfrastructureError where a file cannot be stored: then there is no version, and the same call
    resumes.
    """
    listing = list_checkpoint(checkpoint)
    for ref in versions(name):
        if (ref.policy_version, ref.checkpoint_hash, ref.is_pruned) == (policy_version, listing.digest, False):
            return ref
    texts = {key: str(value) for key, value in (tags or {}).items()}
    texts |= {POLICY_TAG: policy_version, HASH_TAG: listing.digest}
    model_id = _log_checkpoint(checkpoint, listing, name, run_id, texts)
    try:
        call_mlflow(lambda: client().get_registered_model(name))
    except MlflowRefusal:
        call_registry(lambda: client().create_registered_model(name))
    with default_tracking_uri():  # MLflow resolves `models:/<id>` against its default store, not the client's
        version = call_registry(
            lambda: client().create_model_version(
                name, source=f"models:/{model_id}", run_id=run_id, tags=texts, model_id=model_id
            )
        )
    return get_version(int(version.version), name)


def version_by_alias(alias: str, name: str = AGENT) -> ModelRef | None:
    """Return the version that an alias points to, None if there is no such alias."""
    version = aliases(name).get(alias)
    return None if version is None else get_version(version, name)


def get_version(version: int, name: str = AGENT) -> ModelRef:
    """Return a version by number. Raises ConfigurationError if there is none."""
    if ref := next(_references(name, version), None):
        return ref
    numbers = ", ".join(str(ref.version) for ref in versions(name)) or "none"
    raise ConfigurationError(f"model '{name}' has no version {version}; versions: {numbers}")


def versions(name: str = AGENT) -> list[ModelRef]:
    """Return all versions, oldest first."""
    return list(_references(name))


# MLflow keeps the row of a deleted version and marks it by a special stage; on SQLite a version names its model by `source` alone.
_VERSIONS = """
SELECT version, run_id, model_id, artifact_location,
  (SELECT json_group_object(key, value) FROM model_version_tags AS t WHERE t.name = v.name AND t.version = v.version),
  (SELECT json_group_object(tag_key, tag_value) FROM logged_model_tags AS t WHERE t.model_id = m.model_id)
FROM model_versions AS v JOIN logged_models AS m ON v.source = 'models:/' || m.model_id
WHERE v.name = ? AND v.current_stage != 'Deleted_Internal' ORDER BY version
"""


_VersionRow = tuple[int, str | None, str, str, dict[str, str], dict[str, str]]
"""Columns of _VERSIONS, with the tags decoded."""


def _client_versions(name: str, version: int | None) -> Iterator[_VersionRow]:
    quote = '"' if "'" in name else "'"
    registered = call_registry(
        lambda: client().search_model_versions(f"name = {quote}{name}{quote}", max_results=10_000)
    )
    for entry in sorted(registered, key=lambda entry: int(entry.version)):
        number = int(entry.version)
        if version in (None, number):
            model = call_registry(partial(client().get_logged_model, logged_model_id(entry)))
            location = str(model.artifact_location)
            yield number, entry.run_id, model.model_id, location, dict(entry.tags), dict(model.tags)


def _references(name: str, version: int | None = None) -> Iterator[ModelRef]:
    """Yield the version of a number, or all of them, oldest first."""
    rows = database_rows(_VERSIONS, name)
    # Only on SQLite: other stores are asked through the client, a request for each model.
    version_rows = (
        _client_versions(name, version) if rows is None else ((*row[:4], *map(json.loads, row[4:])) for row in rows)
    )
    for number, run_id, model_id, location, tags, model_tags in version_rows:
        if version in (None, number):
            policy, digest = tags.get(POLICY_TAG, ""), tags.get(HASH_TAG, "")
            listing = CheckpointListing.from_tags(model_tags)
            yield ModelRef(name, number, policy, model_id, run_id or None, location, digest, tags, listing)


def download(version: int, name: str = AGENT, *, target: Path | None = None) -> Path:
    """Return the folder of a version's checkpoint on this machine, each file checked against its hash.

    A checkpoint in a local folder is used in place; a remote one is fetched into a cache below `home()`. With `target`,
    either is copied there. Files that are there already and intact are not fetched again. Raises DataError if the
    checkpoint was damaged since it was registered, ConfigurationError if the version is unknown or was pruned.
    """
    ref = require_files(get_version(version, name))
    if ref.path is None or target is not None:
        if ref.listing is None or ref.listing.digest != ref.checkpoint_hash:
            raise DataError(f"the files of {name} version {version} were not recorded; register its checkpoint again")
        return fetch_checkpoint(ref.location, ref.listing, target or home() / CACHE / ref.checkpoint_hash)
    if checkpoint_hash(ref.path) != ref.checkpoint_hash:
        raise DataError(
            f"{ref.path}: the checkpoint of {name} version {version} is damaged; restore it or promote another version"
        )
    return ref.path


def require_files(ref: ModelRef) -> ModelRef:
    """Return `ref` unchanged. Raises ConfigurationError if its files were pruned."""
    if ref.is_pruned:
        raise ConfigurationError(
            f"the files of {ref.name} version {ref.version} were pruned; take another version, or train it again"
        )
    return ref


def aliases(name: str = AGENT) -> dict[str, int]:
    """Return the version number of every alias; empty if nothing is registered. Raises InfrastructureError."""
    rows = database_rows("SELECT alias, version FROM registered_model_aliases WHERE name = ? ORDER BY alias", name)
    if rows is not None:
        return dict(rows)
    try:
        registered = call_mlflow(lambda: client().get_registered_model(name))
    except MlflowRefusal:  # nothing is registered under that name
        return {}
    return {alias: int(version) for alias, version in sorted(dict(registered.aliases).items())}


def version_named(which: str, name: str = AGENT) -> int | None:
    """Return the version number that `which` names: a number as it is, without a check that it exists, or an alias
    (with or without @); None for an unknown alias. Raises InfrastructureError.
    """
    word = which.removeprefix("@")
    return int(word) if word.isdecimal() and len(word) <= LONGEST_NUMBER else aliases(name).get(word)


def named_versions(name: str = AGENT) -> list[tuple[ModelRef, tuple[str, ...]]]:
    """Return all versions, oldest first, each with its aliases. Raises InfrastructureError."""
    names = aliases(name)
    return [(ref, tuple(alias for alias, version in names.items() if version == ref.version)) for ref in versions(name)]


DECISION_FILE = "decision/decision.json"
"""The decision record among the artifacts of the run that trained the version."""
RECORD_TAG = "decision.record"
_LONGEST = 1000


def store_decision(version: int, record: str, headlines: Mapping[str, object], name: str = AGENT) -> None:
    """Store a decision record (JSON) with the version that it is about: as an artifact of the run that trained it, and
    each of `headlines` as a tag `decision.<name>` of the version. Idempotent.

    Raises InfrastructureError where MLflow does not answer: a decision that nobody can read must not move an alias.
    """
    ref = get_version(version, name)
    if ref.run_id is not None:
        call_registry(partial(client().log_text, ref.run_id, record, DECISION_FILE))
    location_tag = {} if ref.run_id is None else {RECORD_TAG: f"runs:/{ref.run_id}/{DECISION_FILE}"}
    for key, value in {**{f"decision.{key}": value for key, value in headlines.items()}, **location_tag}.items():
        call_registry(partial(client().set_model_version_tag, name, str(version), key, str(value)[:_LONGEST]))


def read_version_decision(version: int, name: str = AGENT) -> bytes | None:
    """Return the decision record of a version, None if none is stored. Raises ConfigurationError for an unknown
    version.
    """
    ref = get_version(version, name)
    if RECORD_TAG not in ref.tags or ref.run_id is None:
        return None
    with temporary_folder("decision") as folder:
        return Path(call_registry(partial(client().download_artifacts, ref.run_id, DECISION_FILE, folder))).read_bytes()
