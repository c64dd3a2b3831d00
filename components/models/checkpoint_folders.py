"""Checkpoint folders, whole models and LoRA adapters (PEFT format): content hash, base model, integrity checks. Imports
no torch.
"""

import hashlib
from functools import cache
from pathlib import Path
from typing import Any

import msgspec

from ratchet.components.core import DataError
from ratchet.components.core.files import file_sha256

CONFIG = "adapter_config.json"
WEIGHTS = "adapter_model.safetensors"
_ADVICE = "use another adapter or train it again"
_CHECKPOINT_ADVICE = "use another checkpoint or train it again"


class LoraAdapter(msgspec.Struct, frozen=True):
    """A LoRA adapter and the folder of its base model. `rank` is the largest rank of its matrices, `settings` the
    content of its adapter_config.json.
    """

    folder: Path
    base: Path
    rank: int
    settings: dict[str, Any]

    @property
    def applied_settings(self) -> bytes:
        """Return the settings that determine how the weights are applied, as canonical JSON: independent of the base's
        path and of list order in the file.
        """
        applied = {
            name: sorted(value, key=str) if isinstance(value, list) else value
            for name, value in self.settings.items()
            if name not in ("base_model_name_or_path", "revision", "inference_mode")
        }
        return msgspec.json.encode(applied, order="sorted")


def is_adapter(folder: Path) -> bool:
    """Return whether the folder holds an adapter and no full model."""
    return (folder / CONFIG).is_file() and not (folder / "config.json").is_file()


def read_adapter(folder: Path) -> LoraAdapter:
    """Return the adapter in a folder. Raises DataError if its weights are missing or its base is not on this machine."""
    if not (folder / WEIGHTS).is_file():
        raise DataError(f"adapter {folder} has no {WEIGHTS}; {_ADVICE}")
    try:
        settings = msgspec.json.decode((folder / CONFIG).read_bytes(), type=dict[str, Any])
    except (OSError, msgspec.DecodeError) as error:
        raise DataError(f"{folder / CONFIG} cannot be read: {error}; {_ADVICE}") from error
    base, rank = settings.get("base_model_name_or_path"), settings.get("r")
    if not isinstance(base, str) or not isinstance(rank, int) or settings.get("peft_type", "LORA") != "LORA":
        raise DataError(f"{folder / CONFIG} describes no LoRA adapter (peft_type LORA, r, base); {_ADVICE}")
    if not Path(base).is_dir():
        raise DataError(
            f"adapter {folder} was trained on {base}, which is no folder here; bring its base, or use a merged model"
        )
    pattern = settings.get("rank_pattern") or {}
    ranks = [value for value in pattern.values() if isinstance(value, int)] if isinstance(pattern, dict) else []
    return LoraAdapter(folder, Path(base), max([rank, *ranks]), settings)


IDENTITY = ("config.json", "tokenizer.json", "chat_template.jinja", "tokenizer_config.json")

CACHED_HASH_BYTES = 1 << 26
"""Size in bytes from which a file's hash is cached until the file changes."""


def checkpoint_version(checkpoint: Path) -> str:
    """Return the content version: `ckpt-` and 16 hex digits of SHA-256 over weights, configuration, tokenizer and
    template.

    For an adapter the prefix is `lora-`, and the version of its base is part of the hash. Raises DataError.
    """
    check_checkpoint(checkpoint)
    digest = hashlib.sha256()
    kind = "ckpt"
    if is_adapter(checkpoint):
        kind, adapter = "lora", read_adapter(checkpoint)
        digest.update(checkpoint_version(adapter.base).encode() + b"\0" + adapter.applied_settings)
    weights = sorted(path.name for path in checkpoint.glob("*.safetensors"))
    for name in (*weights, *IDENTITY):
        path = checkpoint / name
        if path.is_file():
            digest.update(name.encode() + b"\0" + _sha256(path))
    return f"{kind}-{digest.hexdigest()[:16]}"


def _sha256(path: Path) -> bytes:
    """Return the SHA-256 of a file; large files are hashed again only after a change."""
    state = path.stat()
    # Written anew within a tick of the file system's clock, a small file would look unchanged: only large ones are cached.
    if state.st_size < CACHED_HASH_BYTES:
        return bytes.fromhex(file_sha256(path))
    return _sha256_of(path, state.st_size, state.st_mtime_ns, state.st_ino)


@cache
def _sha256_of(path: Path, size: int, modified: int, inode: int) -> bytes:
    return bytes.fromhex(file_sha256(path))


def tokenizer_folder(checkpoint: Path) -> Path:
    """Return the folder that holds the checkpoint's tokenizer; an adapter may rely on its base."""
    if is_adapter(checkpoint) and not (checkpoint / "tokenizer_config.json").is_file():
        return read_adapter(checkpoint).base
    return checkpoint


def context_length(checkpoint: Path) -> int | None:
    """Return the maximum tokens of prompt and reply together, of the model or the adapter's base; None where its
    configuration names none, or cannot be read. Raises DataError for a broken adapter.
    """
    folder = read_adapter(checkpoint).base if is_adapter(checkpoint) else checkpoint
    try:
        config = msgspec.json.decode((folder / "config.json").read_bytes(), type=dict[str, Any])
    except (OSError, msgspec.DecodeError):
        return None
    length = config.get("text_config", config).get("max_position_embeddings")
    return length if isinstance(length, int) else None


def check_checkpoint(checkpoint: Path) -> None:
    """Raise DataError for an unusable checkpoint: no folder, no configuration, missing or truncated weights. The base
    of an adapter is checked too.
    """
    if not checkpoint.is_dir():
        raise DataError(f"checkpoint {checkpoint} is not a folder; {_CHECKPOINT_ADVICE}")
    if is_adapter(checkpoint):
        check_checkpoint(read_adapter(checkpoint).base)
        weights = [checkpoint / WEIGHTS]
    else:
        weights = sorted(checkpoint.glob("*.safetensors"))
        if not weights or not (checkpoint / "config.json").is_file():
            raise DataError(f"checkpoint {checkpoint} has no config.json or no *.safetensors; {_CHECKPOINT_ADVICE}")
        _check_shards(checkpoint)
    for path in weights:
        if not is_whole(path):
            raise DataError(
                f"checkpoint file {path} is corrupt (its header does not fit its size); {_CHECKPOINT_ADVICE}"
            )


def _check_shards(checkpoint: Path) -> None:
    """Raise DataError for weights in several files, some of which are missing: a download that was broken off."""
    index = checkpoint / "model.safetensors.index.json"
    if not index.is_file():
        return
    try:
        named = set(msgspec.json.decode(index.read_bytes(), type=dict[str, Any])["weight_map"].values())
    except (msgspec.DecodeError, KeyError, AttributeError, TypeError) as error:
        raise DataError(f"checkpoint file {index} cannot be read; {_CHECKPOINT_ADVICE}") from error
    if missing := sorted(name for name in named if not (checkpoint / str(name)).is_file()):
        raise DataError(
            f"checkpoint {checkpoint} lacks {len(missing)} of {len(named)} files of weights ({missing[0]}); download it again"
        )


def is_whole(path: Path) -> bool:
    """Return whether the size of a safetensors file matches its header (8 bytes of length, JSON, tensors)."""
    size = path.stat().st_size
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        if size < 8 or length > size - 8:
            return False
        try:
            header = msgspec.json.decode(file.read(length))
            end = max((entry["data_offsets"][1] for name, entry in header.items() if name != "__metadata__"), default=0)
        except (msgspec.DecodeError, KeyError, TypeError, AttributeError, IndexError):
            return False
    return bool(size == 8 + length + end)
