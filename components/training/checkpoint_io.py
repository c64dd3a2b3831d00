"""Find, check and write checkpoints. A folder with results gets its name only once it is complete on disk."""

import contextlib
import json
import shutil
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from ratchet.components.core import DataError
from ratchet.components.core.files import fsync_path
from ratchet.components.models.checkpoint_folders import is_whole

if TYPE_CHECKING:
    from .config.job_config import JobConfig

CANDIDATES = "candidates"
"""Folder of the models of all saves, with `checkpoints.candidates`."""
TRAINER_STATE = "trainer_state.json"
"""Written last by transformers' trainer: a checkpoint without a complete one is ignored."""


def intermediate_checkpoint_folder(output: Path) -> Path:
    """Return the folder of a job's intermediate checkpoints."""
    return output / "saved"


def newest_checkpoint(saved: str | Path) -> str | None:
    """Return the newest complete checkpoint of a job, given its output folder or its folder of checkpoints; None
    without any.
    """
    folder = Path(saved)
    folder = intermediate_checkpoint_folder(folder) if intermediate_checkpoint_folder(folder).is_dir() else folder
    numbered = [path for path in folder.glob("checkpoint-*") if path.name.rpartition("-")[2].isdecimal()]
    complete = [path for path in numbered if _is_complete(path)]
    return str(max(complete, key=checkpoint_step)) if complete else None


def checkpoint_step(checkpoint: str | Path) -> int:
    """Return the optimiser step of a checkpoint folder, from its name (`checkpoint-STEP`)."""
    return int(str(checkpoint).rpartition("-")[2])


def _is_complete(checkpoint: Path) -> bool:
    """Return whether every file is readable: after a power loss a file name may exist without its bytes."""
    try:
        state = json.loads((checkpoint / TRAINER_STATE).read_bytes())
        pickled = [path for path in checkpoint.iterdir() if path.suffix in (".pt", ".pth", ".bin")]
        readable = all(map(zipfile.is_zipfile, pickled)) and all(map(is_whole, checkpoint.glob("*.safetensors")))
        for path in checkpoint.glob("*.msgpack"):
            msgspec.msgpack.decode(path.read_bytes())
    except (OSError, ValueError, msgspec.DecodeError):
        return False
    return readable and isinstance(state, dict) and state.get("global_step") == checkpoint_step(checkpoint)


def remove_intermediate_checkpoints(output: Path) -> None:
    """Remove a job's intermediate checkpoints."""
    shutil.rmtree(intermediate_checkpoint_folder(output), ignore_errors=True)


@contextlib.contextmanager
def atomic_folder(folder: Path) -> Iterator[Path]:
    """Yield a temporary folder, which replaces `folder` when the block ends without an error, after its files have been
    synced to disk. Raises OSError.
    """
    unfinished = folder.with_name(f".{folder.name}.unfinished")
    shutil.rmtree(unfinished, ignore_errors=True)
    unfinished.mkdir(parents=True)
    yield unfinished
    # The files first, then the name: after a power loss a folder of that name has its bytes.
    for path in unfinished.rglob("*"):
        if path.is_file():
            fsync_path(path)
    # A rename cannot replace a folder with files. A kill between these lines leaves no result, and the job resumes.
    shutil.rmtree(folder, ignore_errors=True)
    unfinished.replace(folder)
    fsync_path(folder.parent)


def write_checkpoint(
    config: "JobConfig", trainer: Any, tokenizer: Any, save: Callable[[Any], None] | None
) -> str | None:
    """Write the trained model and tokenizer to `checkpoint/` in the output folder, adapters merged, and LoRA adapters
    also to `adapter/`; return the latter's path, else None.

    `save`: writes the result instead, given the trainer. Must be called in every process.
    """
    from .model_loading import has_adapters, merge_adapters

    if save is not None:
        save(trainer)
        return None
    if trainer.args.world_size > 1 or _is_deepspeed(trainer):
        return _write_sharded(config, trainer, tokenizer)
    adapter = None
    if has_adapters(trainer.model):
        adapter = config.output / "adapter"
        _save_pretrained(adapter, trainer.model, tokenizer)
    model = trainer.model if adapter is None else merge_adapters(config.model, trainer.model, adapter)
    _save_pretrained(config.output / "checkpoint", model, tokenizer)
    return None if adapter is None else str(adapter)


def _save_pretrained(folder: Path, model: Any, tokenizer: Any) -> None:
    with atomic_folder(folder) as unfinished:
        model.save_pretrained(unfinished)
        tokenizer.save_pretrained(unfinished)


def candidate_folder(output: Path, step: int) -> Path:
    """Return the folder of the model of one save, which is kept with `checkpoints.candidates`."""
    return output / CANDIDATES / f"step-{step:06d}"


def write_candidate(config: "JobConfig", step: int, model: Any, tokenizer: Any) -> None:
    """Write the model in training as `checkpoint/` (adapters merged, and alone in `adapter/`) in its candidate's folder."""
    from .model_loading import has_adapters, merge_saved_adapters

    folder = candidate_folder(config.output, step)
    if has_adapters(model):
        _save_pretrained(folder / "adapter", model, tokenizer)
        model = merge_saved_adapters(config.model, folder / "adapter")  # into another copy: training goes on
    _save_pretrained(folder / "checkpoint", model, tokenizer)


def _write_sharded(config: "JobConfig", trainer: Any, tokenizer: Any) -> str | None:
    """Write the result of several processes, which all take part in gathering the weights."""
    from .model_loading import has_adapters

    gathered = config.output / ".gathered"
    # A collective call: FSDP and ZeRO-3 gather shards here, and a process that skips it makes the others wait.
    trainer.save_model(str(gathered))
    weights = gather_master_weights(trainer) if _is_deepspeed(trainer) else {}
    trainer.accelerator.wait_for_everyone()
    has_adapter = has_adapters(trainer.accelerator.unwrap_model(trainer.model))
    if trainer.is_world_process_zero():
        if _is_deepspeed(trainer):
            from transformers.integrations.deepspeed import unset_hf_deepspeed_config

            # With ZeRO-3, transformers would divide a newly loaded model among all processes, and this one is alone.
            unset_hf_deepspeed_config()
        if weights:
            replace_weights(gathered, weights)
        _write_gathered(config, gathered, tokenizer, has_adapter)
        shutil.rmtree(gathered)
    trainer.accelerator.wait_for_everyone()
    return str(config.output / "adapter") if has_adapter else None


def _is_deepspeed(trainer: Any) -> bool:
    return bool(getattr(trainer, "is_deepspeed_enabled", False))


def gather_master_weights(trainer: Any) -> dict[str, Any]:
    """Return the trained float32 weights that DeepSpeed's optimizer holds, on the CPU, by their names in the
    checkpoint. A collective call: every process must make it.

    Under bfloat16 compute DeepSpeed converts the module itself, and transformers saves that module, whose weights are
    rounded after each step.
    """
    from deepspeed.utils import safe_get_full_fp32_param

    result = {}
    for name, parameter in trainer.accelerator.unwrap_model(trainer.model).named_parameters():
        if parameter.requires_grad and (weight := safe_get_full_fp32_param(parameter)) is not None:
            saved_name = name.replace(".default.", ".")  # PEFT saves adapters without their name, "default"
            result[saved_name] = weight.detach().float().cpu()
    return result


def replace_weights(folder: Path, weights: dict[str, Any]) -> None:
    """Replace tensors in the safetensors files of `folder` by the float32 weights of the same names, and convert the
    other tensors to float32.

    Raises DataError if the files lack one of `weights`.
    """
    from safetensors.torch import load_file, save_file

    missing = set(weights)
    for path in sorted(folder.glob("*.safetensors")):
        saved = {name: weights.get(name, tensor).float().contiguous() for name, tensor in load_file(path).items()}
        missing -= saved.keys()
        save_file(saved, path, {"format": "pt"})
    if missing:
        raise DataError(f"{folder} lacks weight '{min(missing)}' that was trained; resume the job to write it again")


def _write_gathered(config: "JobConfig", gathered: Path, tokenizer: Any, has_adapter: bool) -> None:
    """Write gathered weights through a freshly loaded model: a gathered checkpoint holds tied weights twice."""
    from .model_loading import load_weights, merge_saved_adapters

    if has_adapter:
        with atomic_folder(config.output / "adapter") as folder:
            shutil.copytree(gathered, folder, dirs_exist_ok=True, ignore=shutil.ignore_patterns("training_args.bin"))
            tokenizer.save_pretrained(folder)
        model = merge_saved_adapters(config.model, config.output / "adapter")
    else:
        model, _ = load_weights(config.model.model_copy(update={"base": str(gathered), "revision": None}))
    _save_pretrained(config.output / "checkpoint", model, tokenizer)
