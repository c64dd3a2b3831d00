"""Sections that all methods share: `model`, `optimization`, `checkpoints`, `data`, `format`, `run`."""

from pathlib import Path
from typing import Literal, Self

from pydantic import Field, model_validator

from ratchet.components.core.configuration import Configuration


class ModelShape(Configuration):
    """A Qwen3-shaped model from scratch; the defaults give about 0.8M parameters. `digits`: most digits of a number in one
    token; with two, a small model copies small numbers far more reliably.

    `hidden`, `intermediate`: width of the model and of its feed-forward layers. `layers`: number of layers. `heads`,
    `kv_heads`: attention heads of queries, and of keys and values. `vocabulary`: maximum number of tokens of its
    tokenizer. `context`: maximum tokens of a sequence.
    """

    hidden: int = Field(128, gt=0)
    layers: int = Field(4, gt=0)
    heads: int = Field(4, gt=0)
    kv_heads: int = Field(2, gt=0)
    intermediate: int = Field(384, gt=0)
    vocabulary: int = Field(640, gt=261)
    digits: int = Field(1, gt=0)
    context: int = Field(1024, gt=0)


class LoraOptions(Configuration):
    """Low-rank adapters (Hu et al. 2021, arXiv:2106.09685); only the adapters are trained.

    `r`: rank of an adapter. `alpha`: an adapter's output is scaled by `alpha` / `r`. `dropout`: share of its inputs
    that is dropped in training. `targets`: names of the modules that get an adapter, or all linear layers.
    """

    r: int = Field(8, gt=0)
    alpha: float = Field(16, gt=0)
    dropout: float = Field(0.0, ge=0, lt=1)
    targets: tuple[str, ...] | Literal["all-linear"] = "all-linear"


class ModelOptions(Configuration):
    """`base`: a checkpoint folder or a hub repository's id; if None, a model of `shape` and its tokenizer are made from
    scratch. `revision`: branch, tag or commit of the repository, or the content version that the folder must have.

    Trained weights are always float32 (bfloat16 weights stop moving at small learning rates); `precision` is that of
    the computation (`auto`: bfloat16 where the hardware has it). `quantize: 4bit` quantises a frozen base under
    adapters (QLoRA, Dettmers et al. 2023, arXiv:2305.14314). `trust_remote_code` runs the repository's own Python.
    `gradient_checkpointing`: compute activations again in the backward pass, which takes time and saves memory.

    `attention`: implementation in transformers. `auto` takes flash attention for SFT in bfloat16 where its package and a
    GPU are there, else PyTorch's own.
    """

    base: str | None = None
    revision: str | None = None
    trust_remote_code: bool = False
    shape: ModelShape = ModelShape()
    lora: LoraOptions | None = None
    quantize: Literal["none", "4bit"] = "none"
    gradient_checkpointing: bool = False
    precision: Literal["auto", "float32", "bfloat16"] = "auto"
    attention: Literal["auto", "eager", "sdpa", "flex_attention", "flash_attention_2", "flash_attention_3"] = "auto"

    @model_validator(mode="after")
    def _check_quantisation(self) -> Self:
        if self.quantize != "none" and (self.lora is None or self.base is None):
            raise ValueError("quantize: 4bit needs a base and lora: a quantised model is not trained itself")
        return self


class OptimizationOptions(Configuration):
    """`batch_size`: rows per step, over all processes; `micro_batch`: rows in a process's memory at a time (default:
    its whole share), which affects speed and memory alone.

    `learning_rate`: its peak, per optimiser step. `schedule`: how it falls from there to 0, or that it stays
    (`constant`). `warmup_steps`: optimiser steps in which it rises. `weight_decay`: AdamW's decoupled decay.
    `max_grad_norm`: norm to which gradients are clipped; 0 for no clipping. A job ends after `steps`, `epochs` or
    `token_budget` input tokens, whichever of those set comes first.

    `optimizer`: `adamw_8bit` keeps AdamW's moments in blocks of 8-bit numbers, but for embeddings, by bitsandbytes
    (Dettmers et al. 2021, arXiv:2110.02861). `muon`, for SFT in a single process, trains the matrices of the layers by
    Muon and the rest by AdamW: a small model from scratch learns from half the tokens.
    """

    batch_size: int = Field(16, gt=0)
    micro_batch: int | None = Field(None, gt=0)
    learning_rate: float = Field(2e-3, gt=0)
    schedule: Literal["constant", "linear", "cosine"] = "cosine"
    warmup_steps: int = Field(30, ge=0)
    weight_decay: float = Field(0.05, ge=0)
    max_grad_norm: float = Field(1.0, ge=0)
    steps: int | None = Field(None, gt=0)
    token_budget: int | None = Field(None, gt=0)
    epochs: float | None = Field(None, gt=0)
    optimizer: Literal["adamw", "adamw_8bit", "muon"] = "adamw"

    @model_validator(mode="after")
    def _check_micro_batch(self) -> Self:
        if self.micro_batch is not None and self.batch_size % self.micro_batch:
            raise ValueError(f"batch_size {self.batch_size} is not a multiple of micro_batch {self.micro_batch}")
        return self


class PrmOptimizationOptions(OptimizationOptions):
    """Options of optimization for step models: a batch is `batch_size` windows, or episodes for `sum_decomposition`."""

    steps: int = Field(400, gt=0)


class CheckpointOptions(Configuration):
    """Save every `save_every` steps, or with `patience` at each evaluation; evaluate on the validation rows every
    `evaluate_every` steps. With `patience`, stop after that many evaluations without an improvement of `best_by` and
    keep the best model.

    `best_by` is an evaluation metric (`loss` and `perplexity` improve as they fall, others as they rise). Without a
    validation set it is a training metric such as GRPO's `reward`, averaged over each `evaluate_every` steps; the
    training loss cannot be used.

    `candidates`: keep the model of every save as a whole checkpoint in `candidates/step-N/checkpoint`, beside the result.
    """

    save_every: int = Field(200, gt=0)
    evaluate_every: int = Field(100, gt=0)
    patience: int | None = Field(None, gt=0)
    best_by: str = Field("loss", min_length=1)
    candidates: bool = False


class PrmCheckpointOptions(CheckpointOptions):
    """Options of checkpoints for step models, which are evaluated often: they are small and soon fit their labels."""

    evaluate_every: int = Field(25, gt=0)
    patience: int | None = Field(6, gt=0)


class DataOptions(Configuration):
    """Exported rows in JSON lines. `train`: rows to learn. `validation`: rows to evaluate on; None for no evaluation.
    `sources`: keep only rows of these sources; None keeps all.
    """

    train: Path
    validation: Path | None = None
    sources: tuple[Literal["demonstration", "on_policy", "imported"], ...] | None = None


class GrpoDataOptions(Configuration):
    """`train`: the tasks to play, as an exported GRPO prompt set (default: all tasks of the player), or with
    `grpo.offline` recorded groups. `demonstrations`: exported SFT rows for `grpo.selection.relift`; a recipe
    defaults to those of all its nights.
    """

    train: Path | None = None
    demonstrations: Path | None = None


class PrmDataOptions(Configuration):
    """`trajectories`: JSONL files or folders of shards. `labels`: JSONL files of step labels; without labels each step
    learns its episode's outcome, one Monte-Carlo sample of its value.

    `held_out`: share of families (of tasks, if there is one family) used for evaluation and early stopping alone; 0 for
    none.
    """

    trajectories: tuple[Path, ...] = Field(min_length=1)
    labels: tuple[Path, ...] = ()
    held_out: float = Field(0.2, ge=0, lt=1)


TRL_FORMAT = {"agent_format": False, "mask_observations": False}
"""TRL's default: every token is trained."""


class FormatOptions(Configuration):
    """`max_length`: maximum tokens of a row. `agent_format`: train exactly the agent's replies, end tokens included.
    `mask_observations`: do not train tool results. With both off, every token is trained, as in plain TRL.

    `chunk_long_trajectories`: cut rows over `max_length` between turns; each chunk repeats the prompt and up to
    `chunk_overlap` tokens of the previous chunk as untrained context.
    """

    max_length: int = Field(1024, gt=8)
    agent_format: bool = True
    mask_observations: bool = True
    chunk_long_trajectories: bool = False
    chunk_overlap: int = Field(0, ge=0)

    @model_validator(mode="after")
    def _check_chunks(self) -> Self:
        if self.chunk_long_trajectories and not self.agent_format:
            raise ValueError("chunk_long_trajectories needs agent_format: true; steps are not known otherwise")
        if self.chunk_overlap >= self.max_length:
            raise ValueError(f"chunk_overlap {self.chunk_overlap} leaves no room in max_length {self.max_length}")
        return self


class PrmFormatOptions(Configuration):
    """`max_length`: maximum tokens of a window, see `prm/episode_windows.py`."""

    max_length: int = Field(1024, ge=64)


class RunOptions(Configuration):
    """How a job runs; nothing here changes what is learned. `launch`: `single` for one process, a bundled accelerate
    configuration (training/launch), or a path to another. `threads`: CPU threads per process, default all cores.
    `heartbeat_seconds`: interval of the heartbeat; a job without progress for `stalled_after` seconds is killed by its
    supervisor (None: never); the same command resumes it.
    """

    threads: int | None = Field(None, gt=0)
    launch: str = "single"
    heartbeat_seconds: float = Field(10.0, gt=0)
    stalled_after: float | None = Field(3600.0, gt=0)
