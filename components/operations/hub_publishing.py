"""Publish a dataset or a checkpoint on the Hugging Face Hub, with its card and lineage.

`HF_TOKEN` is the only source of the token, and `HF_ENDPOINT` names another hub. Nothing is published whose text holds a
credential.
"""

import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from ratchet.components.core import ConfigurationError, DataError, InfrastructureError
from ratchet.components.core.errors import first_line, install_command
from ratchet.components.core.files import file_sha256
from ratchet.components.datasets.lineage.build_state import DATASETS, find_state
from ratchet.components.datasets.lineage.model_lineage import TracedModel
from ratchet.components.datasets.lineage.trace import require_dataset
from ratchet.components.models.checkpoint_folders import check_checkpoint, checkpoint_version, is_adapter
from ratchet.components.redaction import holds_credential

if TYPE_CHECKING:
    from huggingface_hub import HfApi

TOKEN = "HF_TOKEN"
REPOSITORY = re.compile(r"[A-Za-z0-9][\w.-]{0,95}/[A-Za-z0-9][\w.-]{0,95}")
LINEAGE_FILE, CARD_FILE = "lineage.json", "README.md"
CHECKPOINT_FILES = (
    *("*.safetensors", "*.safetensors.index.json", "config.json", "generation_config.json", "tokenizer*", "vocab.*"),
    *("special_tokens_map.json", "added_tokens.json", "merges.txt", "*.jinja", "LICENSE*"),
)
"""Files of a checkpoint that are published: no state of a job, no Python."""
Result = TypeVar("Result")


class Publication(msgspec.Struct, frozen=True):
    """Address of the repository, the commit, and the names of the published files."""

    url: str
    commit: str
    files: tuple[str, ...]


def publish_dataset(dataset: str, at: str | None, repository: str, *, public: bool) -> Publication:
    """Publish a dataset of a build (`at` as in `find_state`) with its card, manifest and lineage.

    Raises ConfigurationError for a wrong name or token, DataError for a dataset that is absent or holds a credential,
    InfrastructureError where the hub cannot be reached.
    """
    api = _hub(repository)
    state = find_state(at, Path())
    require_dataset(state, dataset)
    files = state.output_files(f"{DATASETS}/{dataset}")
    if files is None:
        raise state.absence_error(f"{DATASETS}/{dataset}")
    known = state.known
    lineage = {
        "dataset": dataset,
        "build": known.lock_hash if known else None,
        "nights": list(known.recorded_inputs.nights) if known else [],
        "files": {name: file_sha256(path) for name, path in sorted(files.items())},
    }
    contents: dict[str, Path | bytes] = {**files, LINEAGE_FILE: _json(lineage)}
    return _publish(api, repository, "dataset", contents, f"Publish {dataset} of {state.name}", public=public)


def publish_model(which: str, repository: str, *, public: bool) -> Publication:
    """Publish a checkpoint, given as a folder or as a registered model's alias or version, with a card (a folder's own where
    it has one) and its lineage.

    Raises as `publish_dataset` does.
    """
    api = _hub(repository)
    folder, model = (Path(which), None) if Path(which).is_dir() else _registered(which)
    check_checkpoint(folder)
    if is_adapter(folder):
        raise DataError(
            f"checkpoint {folder} is an adapter, whose base is a path of this machine; publish a merged checkpoint"
        )
    files: dict[str, Path | bytes] = {
        path.name: path for pattern in CHECKPOINT_FILES for path in folder.glob(pattern) if path.is_file()
    }
    version = checkpoint_version(folder)
    lineage = {"policy_version": version, **(msgspec.to_builtins(model) if model else {})}
    own_card = folder / CARD_FILE
    keeps_card = model is None and own_card.is_file()
    files[CARD_FILE] = own_card if keeps_card else _model_card(repository, version, model).encode()
    files[LINEAGE_FILE] = _json(lineage)
    return _publish(api, repository, "model", files, f"Publish {version}", public=public)


def _registered(which: str) -> tuple[Path, TracedModel]:
    from ratchet.components.nights.night_models import download_model
    from ratchet.components.operations.lineage_queries import find_model, registered_models
    from ratchet.components.tracking import model_registry

    model = find_model(which, registered_models())
    if model is None:
        raise ConfigurationError(f"'{which}' is neither a folder nor a registered model; see `ratchet models list`")
    return Path(download_model(model_registry.get_version(model.version, model.name)).checkpoint), model


def _model_card(repository: str, version: str, model: TracedModel | None) -> str:
    """Return a model card in Markdown, with YAML front matter for the hub."""
    lines = ["---", "library_name: transformers", "pipeline_tag: text-generation", "tags: [ratchet, tool-use]", "---"]
    lines += [f"# {repository.partition('/')[2]}", "", "A language model that calls tools, trained by Ratchet.", ""]
    facts: dict[str, object] = {"policy version": version}
    if model is not None:
        facts |= {
            "registered as": model.label,
            "night": model.night,
            "initialised from": model.base or "a base model outside of the registry",
            "trained on": f"{model.dataset}, of the nights {', '.join(model.nights) or 'unknown'}",
            "data build": model.build,
        }
    lines += ["| | |", "|---|---|", *(f"| {name} | {value} |" for name, value in facts.items() if value), ""]
    lines.append(f"`{LINEAGE_FILE}` holds the same with the hash of each file that the training read.")
    return "\n".join(lines) + "\n"


def _json(values: object) -> bytes:
    return msgspec.json.format(msgspec.json.encode(values)) + b"\n"


def _hub(repository: str) -> "HfApi":
    """Return the client of the hub. Raises ConfigurationError for a wrong name, or without token or package."""
    if not REPOSITORY.fullmatch(repository):
        raise ConfigurationError(f"--to {repository}: give ORG/NAME, of letters, digits, '.', '_' and '-'")
    token = os.environ.get(TOKEN, "").strip()
    if not token:
        raise ConfigurationError(f"{TOKEN} is not set; set it to a token of the hub that may write to {repository}")
    try:
        from huggingface_hub import HfApi
    except ImportError as error:
        raise ConfigurationError(f"huggingface_hub is not installed; install it: {install_command('train')}") from error
    return HfApi(endpoint=os.environ.get("HF_ENDPOINT") or None, token=token)


def _publish(
    api: "HfApi", repository: str, kind: str, files: Mapping[str, Path | bytes], message: str, *, public: bool
) -> Publication:
    """Commit the files to a repository, which is made where it is absent. Nothing is sent where a text holds a credential."""
    from huggingface_hub import CommitOperationAdd

    for name, content in sorted(files.items()):
        _refuse_credentials(name, content)
    additions = [CommitOperationAdd(name, content) for name, content in sorted(files.items())]
    url = _ask(repository, lambda: api.create_repo(repository, repo_type=kind, private=not public, exist_ok=True))
    commit = _ask(repository, lambda: api.create_commit(repository, additions, commit_message=message, repo_type=kind))
    return Publication(str(url), commit.oid, tuple(sorted(files)))


def _refuse_credentials(name: str, content: Path | bytes) -> None:
    """Raise DataError for a row or a text with a credential. Weights, tables and tokenizers are no text of people."""
    lines: list[bytes] = []
    if name.endswith(".jsonl") and isinstance(content, Path):
        lines = content.read_bytes().splitlines()
    elif name.endswith(".md"):
        text = content if isinstance(content, bytes) else content.read_bytes()
        lines = [msgspec.json.encode({"text": text.decode("utf-8", "replace")})]
    for number, line in enumerate(lines, start=1):
        row: dict[str, Any] = msgspec.json.decode(line)
        if holds_credential(msgspec.json.encode(row), row):
            raise DataError(
                f"{name}, line {number} holds a credential, and nothing was published; leave its task or episode out of the "
                "build (duplicates.leave_out, export.where in params.yaml)"
            )


def _ask(repository: str, request: Callable[[], Result]) -> Result:
    """Send a request to the hub. Raises ConfigurationError where it refuses the token, else InfrastructureError."""
    from huggingface_hub.errors import HfHubHTTPError

    try:
        return request()
    except HfHubHTTPError as error:
        status = error.response.status_code
        if status in (401, 403, 404):
            raise ConfigurationError(
                f"the hub refuses {repository} (HTTP {status}); give a token that may write to it in {TOKEN}"
            ) from error
        raise InfrastructureError(
            f"the hub did not take {repository} (HTTP {status}); run the same command again"
        ) from error
    except Exception as error:  # the hub's client passes on whatever its transport raises
        transport = type(error).__module__.startswith(("httpx", "httpcore", "hf_xet"))
        if not transport and not isinstance(error, OSError | ValueError):
            raise
        reason = f"the hub cannot be reached ({type(error).__name__})" if transport else first_line(error)
        raise InfrastructureError(f"{repository} was not published: {reason}; run the same command again") from error
