"""The configuration of a training job: one JSON file in, one folder out."""

from pathlib import Path
from typing import Literal

from pydantic import Field

from components.protocol.configuration import Configuration


class ModelShape(Configuration):
    """A Qwen3-shaped model made from scratch. The defaults have about 0.8M parameters."""

    hidden: int = Field(128, gt=0)
    layers: int = Field(4, gt=0)
    heads: int = Field(4, gt=0)
    kv_heads: int = Field(2, gt=0)
    intermediate: int = Field(384, gt=0)
    vocabulary: int = Field(640, gt=261)
    context: int = Field(1024, gt=0)


class TrainConfig(Configuration):
    """What one job trains, on what, and for how long.

    `base` is a checkpoint to start from; without it a model of `shape` and its tokenizer are made from scratch.
    `sources` keeps only rows of those sources (`demonstration`, `on_policy`). The job ends at `steps` or at
    `token_budget` input tokens (the smaller where both are given), or, with `patience`, when the validation loss has not
    fallen for that many evaluations; the checkpoint with the lowest validation loss is then the result.
    Weights are float32 always; `precision` is that of the arithmetic (`auto`: bfloat16 where the hardware has it).
    """

    output: Path
    train: Path
    validation: Path | None = None
    base: Path | None = None
    shape: ModelShape = ModelShape()
    sources: tuple[Literal["demonstration", "on_policy"], ...] | None = None
    weighted: bool = False
    batch_size: int = Field(16, gt=0)
    learning_rate: float = Field(2e-3, gt=0)
    schedule: Literal["constant", "linear", "cosine"] = "cosine"
    warmup_steps: int = Field(30, ge=0)
    weight_decay: float = Field(0.05, ge=0)
    steps: int | None = Field(None, gt=0)
    token_budget: int | None = Field(None, gt=0)
    evaluate_every: int = Field(100, gt=0)
    patience: int | None = Field(None, gt=0)
    max_length: int = Field(1024, gt=8)
    save_every: int = Field(200, gt=0)
    precision: Literal["auto", "float32", "bfloat16"] = "auto"
    seed: int = 0
    threads: int | None = Field(None, gt=0)
