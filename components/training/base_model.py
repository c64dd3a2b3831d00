"""Resolve, download and describe base models: a local folder, or a Hugging Face Hub repository at one revision.

Only safetensors, configuration, tokenizer, template and licence files are downloaded, and Python files only with
`trust_remote_code`. Pickled weights are never read. A job records its base model's commit at the start, so that a
resumed job uses the same one.
"""

import math
import os
import re
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from ratchet.components.core import ConfigurationError, DataError, InfrastructureError
from ratchet.components.core.errors import first_line
from ratchet.components.core.files import write_atomically
from ratchet.components.models.checkpoint_folders import check_checkpoint, checkpoint_version

from .config.job_config import JobConfig

FETCHED_FILES = (
    "*.safetensors",
    "*.safetensors.index.json",
    "*.json",
    "*.jinja",
    "*.model",
    "*.txt",
    "LICENSE*",
    "README.md",
)
REPOSITORY = re.compile(r"[A-Za-z0-9][\w.-]*(/[A-Za-z0-9][\w.-]*)?\Z")
LICENCE = re.compile(r"^license:[ \t]*['\"]?([^\s'\"]+)", re.MULTILINE)


class BaseModelInfo(msgspec.Struct, frozen=True):
    """A base model as described by its repository or folder, without loading it.

    `name`: the repository or folder as configured; `revision`: the repository's commit, None for a folder; `size`:
    bytes of the weights; `parameters`: number of parameters, from the safetensors headers, None if unknown.
    """

    name: str
    revision: str | None
    licence: str
    size: int
    parameters: int | None

    def line(self) -> str:
        """Return a one-line summary for display."""
        count = f"{_short_count(self.parameters)} parameters, " if self.parameters else ""
        at = f" at {self.revision[:12]}" if self.revision else ""
        return f"{self.name}{at}: {count}{self.size / 1e9:.2g} GB, licence {self.licence}"


def _short_count(count: int) -> str:
    for limit, unit in ((1e9, "B"), (1e6, "M"), (1e3, "k")):
        if count >= limit:
            return f"{count / limit:.3g}{unit}"
    return str(count)


def base_model_info(base: str, revision: str | None = None) -> BaseModelInfo:
    """Describe a base model, a folder or hub repository, without downloading its weights. `revision`: branch, tag or
    commit; default: the repository's main branch. If the hub cannot be reached, a repository is read from the local
    cache.

    Raises DataError for a folder that is no checkpoint, ConfigurationError for an unknown name, InfrastructureError if
    the hub cannot be reached and nothing is cached.
    """
    if Path(base).is_dir():
        return _folder_info(Path(base), base, None)
    if not REPOSITORY.match(base):
        check_checkpoint(Path(base))  # raises: it is not a folder
    try:
        return _hub_info(base, revision)
    except InfrastructureError:
        folder = _cached_folder(base, revision)
        if folder is None:
            raise
        return _folder_info(folder, base, folder.name)


def base_model_config(base: str, revision: str | None = None) -> dict[str, Any]:
    """Return the `config.json` of a base model, a folder or hub repository; of a repository nothing else is downloaded.
    Raises as `base_model_info` does, and DataError for a file that is no JSON object.
    """
    if Path(base).is_dir() or not REPOSITORY.match(base):
        check_checkpoint(Path(base))
        file = Path(base) / "config.json"
    else:
        from huggingface_hub import hf_hub_download

        endpoint = os.environ.get("HF_ENDPOINT") or None
        file = Path(
            _call_hub(
                base, revision, lambda: hf_hub_download(base, "config.json", revision=revision, endpoint=endpoint)
            )
        )
    try:
        return msgspec.json.decode(file.read_bytes(), type=dict[str, Any])
    except (OSError, msgspec.DecodeError) as error:
        raise DataError(f"{file} is no configuration of a model: {error}; take another base") from error


def fetch_base_model(base: str, revision: str | None = None, *, code: bool = False) -> tuple[Path, BaseModelInfo]:
    """Return a base model's local folder, downloading it if needed, and its description. `code`: download Python files
    too. `revision` of a folder is its content version.

    Raises as `base_model_info` does, and DataError for a folder with another content version.
    """
    result = base_model_info(base, revision)
    if Path(base).is_dir():
        version = checkpoint_version(Path(base))
        if revision not in (None, version):
            raise DataError(
                f"{base} holds {version}, and model.revision is {revision}; restore the folder, or correct the revision"
            )
        return Path(base), result
    from huggingface_hub import snapshot_download

    patterns, endpoint = [*FETCHED_FILES, *(["*.py"] if code else [])], os.environ.get("HF_ENDPOINT") or None

    def download() -> str:  # files that are cached completely are not requested again
        return snapshot_download(base, revision=result.revision, allow_patterns=patterns, endpoint=endpoint)

    folder = Path(_call_hub(base, result.revision, download))
    check_checkpoint(folder)
    return folder, result


def _hub_info(base: str, revision: str | None) -> BaseModelInfo:
    from huggingface_hub import HfApi

    endpoint = os.environ.get("HF_ENDPOINT") or None
    info = _call_hub(
        base, revision, lambda: HfApi(endpoint=endpoint).model_info(base, revision=revision, files_metadata=True)
    )
    weights = [item for item in info.siblings or () if item.rfilename.endswith(".safetensors")]
    if not weights:
        raise DataError(f"{base} has no *.safetensors, and pickled weights are not read; take another")
    tags = (tag.partition(":")[2] for tag in info.tags or () if tag.startswith("license:"))
    card = getattr(info.card_data, "license", None) or next(tags, None)
    total = getattr(info.safetensors, "total", None)
    return BaseModelInfo(base, info.sha, str(card or "unknown"), sum(item.size or 0 for item in weights), total)


def _cached_folder(base: str, revision: str | None) -> Path | None:
    """Return the folder of an earlier, complete download, or None."""
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import LocalEntryNotFoundError

    try:
        folder = Path(
            snapshot_download(base, revision=revision, allow_patterns=list(FETCHED_FILES), local_files_only=True)
        )
        check_checkpoint(folder)
    except (LocalEntryNotFoundError, DataError, ValueError):
        return None
    return folder


def _call_hub(base: str, revision: str | None, request: Any) -> Any:
    """Call the hub. Raises ConfigurationError if the repository or revision does not exist or is not open to this user,
    DataError if a file is missing, InfrastructureError if the hub is unreachable.
    """
    from huggingface_hub import constants, errors

    page = f"{os.environ.get('HF_ENDPOINT') or constants.ENDPOINT}/{base}"
    try:
        return request()
    except errors.GatedRepoError as error:
        raise ConfigurationError(
            f"{base} is gated: accept its licence at {page}, then set HF_TOKEN to a token of that account, or take another"
        ) from error
    except errors.RevisionNotFoundError as error:
        raise ConfigurationError(f"{base} has no revision '{revision}'; give a branch, tag or commit") from error
    except (errors.RepositoryNotFoundError, errors.HFValidationError) as error:
        raise ConfigurationError(
            f"neither a folder nor a repository of the hub is called {base}; correct the name, or set HF_TOKEN if it is private"
        ) from error
    except (errors.OfflineModeIsEnabled, errors.LocalEntryNotFoundError) as error:
        cause = "HF_HUB_OFFLINE is set" if constants.is_offline_mode() else f"the hub does not answer at {page}"
        raise InfrastructureError(
            f"{base} is no folder and not in the cache, and the hub cannot be asked: {cause}; fetch it where there is a network: "
            f"hf download {base}"
        ) from error
    except errors.EntryNotFoundError as error:
        raise DataError(f"{base} has no config.json; it is no model that transformers loads, take another") from error
    except (errors.HfHubHTTPError, OSError) as error:
        if getattr(getattr(error, "response", None), "status_code", None) in (401, 403):
            raise ConfigurationError(
                f"the hub refuses {base} to this user; set HF_TOKEN to a token that may read it, see {page}"
            ) from error
        raise InfrastructureError(
            f"{base} is no folder, and the hub cannot be asked: {first_line(error)}; try again"
        ) from error
    except Exception as error:  # the hub's client passes on whatever its transport raises
        if not type(error).__module__.startswith(("httpx", "httpcore", "requests", "urllib3")):
            raise
        raise InfrastructureError(
            f"{base} is no folder, and the hub cannot be reached ({type(error).__name__}); try again"
        ) from error


def _folder_info(folder: Path, name: str, revision: str | None) -> BaseModelInfo:
    check_checkpoint(folder)
    files = sorted(folder.glob("*.safetensors"))
    return BaseModelInfo(
        name,
        revision,
        _licence_of(folder),
        sum(path.stat().st_size for path in files),
        sum(count_parameters(path) for path in files),
    )


def _licence_of(folder: Path) -> str:
    """Return the licence named in the front matter of a model card."""
    try:
        text = (folder / "README.md").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return "unknown"
    head = text.split("---", 2)[1] if text.startswith("---") and text.count("---") > 1 else ""
    result = LICENCE.search(head)
    return result[1] if result else "unknown"


def count_parameters(path: Path) -> int:
    """Count the parameters of a safetensors file from its header."""
    with path.open("rb") as file:
        header = msgspec.json.decode(file.read(int.from_bytes(file.read(8), "little")))
    return sum(math.prod(entry["shape"]) for name, entry in header.items() if name != "__metadata__")


Job = TypeVar("Job", bound=JobConfig)
BASE_FILE = "base.json"


def pin_base_model(config: Job) -> Job:
    """Return the job with `model.revision` set to its base model's commit, which is written to the output folder at the
    first call and read from there by later calls; unchanged for a folder or a model from scratch. Raises as
    `base_model_info` does.
    """
    if config.model.base is None:
        return config
    result = read_base_model_info(config.output)
    if result is None or result.name != config.model.base or config.model.revision not in (None, result.revision):
        result = base_model_info(config.model.base, config.model.revision)
        config.output.mkdir(parents=True, exist_ok=True)
        write_atomically(config.output / BASE_FILE, msgspec.json.format(msgspec.json.encode(result)))
    revision = config.model.revision if Path(config.model.base).is_dir() else result.revision
    return config.model_copy(update={"model": config.model.model_copy(update={"revision": revision})})


def read_base_model_info(output: Path) -> BaseModelInfo | None:
    """Return the recorded base model of a job; None for a model from scratch or before the job has started."""
    try:
        return msgspec.json.decode((output / BASE_FILE).read_bytes(), type=BaseModelInfo)
    except (OSError, msgspec.DecodeError):
        return None
