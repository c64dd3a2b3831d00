"""The configuration of a training job: one YAML or JSON file in, one folder out."""

from pathlib import Path
from typing import Literal, Self

from pydantic import ConfigDict, Field, model_validator

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


class JobConfig(Configuration):
    """What every job has: where from, where to, and for how long.

    `base` is a checkpoint to start from; without it a model of `shape` and its tokenizer are made from scratch. The job
    ends at `steps` or, with `patience`, when the validation loss has not fallen for that many evaluations; what had the
    lowest validation loss is then the result. Weights are float32 always; `precision` is that of the arithmetic
    (`auto`: bfloat16 where the hardware has it).
    """

    output: Path
    base: Path | None = None
    shape: ModelShape = ModelShape()
    batch_size: int = Field(16, gt=0)
    learning_rate: float = Field(2e-3, gt=0)
    schedule: Literal["constant", "linear", "cosine"] = "cosine"
    warmup_steps: int = Field(30, ge=0)
    weight_decay: float = Field(0.05, ge=0)
    steps: int | None = Field(None, gt=0)
    evaluate_every: int = Field(100, gt=0)
    patience: int | None = Field(None, gt=0)
    max_length: int = Field(1024, gt=8)
    save_every: int = Field(200, gt=0)
    precision: Literal["auto", "float32", "bfloat16"] = "auto"
    seed: int = 0
    threads: int | None = Field(None, gt=0)


class TrainConfig(JobConfig):
    """Supervised fine-tuning of a policy on exported rows.

    `sources` keeps only rows of those sources (`demonstration`, `on_policy`). `token_budget` ends the job at that many
    input tokens (or at `steps`, the smaller where both are given).
    """

    method: Literal["sft"] = "sft"
    train: Path
    validation: Path | None = None
    sources: tuple[Literal["demonstration", "on_policy"], ...] | None = None
    weighted: bool = False
    token_budget: int | None = Field(None, gt=0)


class PrmConfig(JobConfig):
    """A step model (a learned process reward model) from episodes and what is known of their steps.

    `trajectories`: JSONL files, or folders of shards. `labels`: JSONL files of labels of their steps; without any, each
    step learns how its episode ended, which is one Monte-Carlo sample of its value. `objective`: see `prm.targets`.
    `held_out`: the share of families (of tasks, where there is one family) that is only measured on, and that decides
    when to stop; 0 measures nothing. A batch holds `batch_size` windows (episodes, for `sum_decomposition`) of at most
    `max_length` tokens.
    """

    method: Literal["prm"]
    trajectories: tuple[Path, ...] = Field(min_length=1)
    labels: tuple[Path, ...] = ()
    objective: Literal["value", "progress", "sum_decomposition"] = "value"
    held_out: float = Field(0.2, ge=0, lt=1)
    steps: int = Field(400, gt=0)
    evaluate_every: int = Field(25, gt=0)
    patience: int | None = Field(6, gt=0)
    max_length: int = Field(1024, ge=64)

    @model_validator(mode="after")
    def _sums_need_no_labels(self) -> Self:
        if self.labels and self.objective == "sum_decomposition":
            raise ValueError("sum_decomposition learns from outcomes alone; remove 'labels', or take another objective")
        return self


class _Method(Configuration):
    """Which kind of job a file describes; its other keys are read by that kind."""

    model_config = ConfigDict(extra="ignore", frozen=True)
    method: Literal["sft", "prm"] = "sft"


def load_job(path: Path) -> TrainConfig | PrmConfig:
    """The job that a YAML or JSON file describes: `method` says of which kind, `sft` where it is not given.

    Raises ConfigurationError with one line.
    """
    if _Method.load(path).method == "prm":
        return PrmConfig.load(path)
    return TrainConfig.load(path)
