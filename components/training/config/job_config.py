"""Configuration of a training job, read from one YAML or JSON file."""

from pathlib import Path
from typing import Any, Literal, Self

from pydantic import ConfigDict, Field, model_validator

from ratchet.components.core import ConfigurationError
from ratchet.components.core.configuration import Configuration

from .method_sections import DpoOptimizationOptions, DpoOptions, GrpoOptions, PrmOptions, SftOptions
from .shared_sections import (
    TRL_FORMAT,
    CheckpointOptions,
    DataOptions,
    FormatOptions,
    GrpoDataOptions,
    ModelOptions,
    OptimizationOptions,
    PrmCheckpointOptions,
    PrmDataOptions,
    PrmFormatOptions,
    PrmOptimizationOptions,
    RunOptions,
)
from .trl_options import check_trl_options


class JobConfig(Configuration):
    """Keys and sections that all methods share. `method`: what trains. `output`: folder of the job. `seed`: of the order
    of rows and of all sampling. `trl`: arguments of the trainer's configuration (SFTConfig, DPOConfig, GRPOConfig,
    TrainingArguments) by TRL's own names; those that Ratchet decides are refused with the key that sets them.
    """

    method: str
    output: Path
    seed: int = 0
    model: ModelOptions = ModelOptions()
    optimization: OptimizationOptions = OptimizationOptions()
    checkpoints: CheckpointOptions = CheckpointOptions()
    run: RunOptions = RunOptions()
    trl: dict[str, Any] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _check_trl_options(self) -> Self:
        try:
            check_trl_options(self.method, self.trl)
        except ConfigurationError as error:
            raise ValueError(str(error)) from error
        return self

    @model_validator(mode="after")
    def _check_quantisation(self) -> Self:
        if self.model.quantize != "none" and self.run.launch != "single":
            raise ValueError("quantize: 4bit trains in one process; set run.launch: single, or quantize: none")
        return self

    @model_validator(mode="after")
    def _check_optimizer(self) -> Self:
        if self.optimization.optimizer == "muon" and (self.method != "sft" or self.run.launch != "single"):
            raise ValueError("optimizer: muon is for sft in a single process; take adamw, or run.launch: single")
        return self

    @model_validator(mode="after")
    def _check_candidates(self) -> Self:
        if self.checkpoints.candidates and self.run.launch != "single":
            raise ValueError("checkpoints.candidates are kept by one process; set run.launch: single")
        return self


class PolicyConfig(JobConfig):
    """Keys of jobs that train a policy. `preset: plain` trains as TRL does by default; explicit keys take precedence
    over the preset.
    """

    preset: Literal["agent", "plain"] = "agent"
    format: FormatOptions = FormatOptions()

    @model_validator(mode="before")
    @classmethod
    def _apply_preset(cls, values: Any) -> Any:
        if isinstance(values, dict) and values.get("preset") == "plain":
            supplied = values.get("format") or {}
            if isinstance(supplied, dict):
                return {**values, "format": {**TRL_FORMAT, **supplied}}
        return values


class SftConfig(PolicyConfig):
    """Supervised fine-tuning of a policy on exported rows."""

    method: Literal["sft"] = "sft"
    data: DataOptions
    sft: SftOptions = SftOptions()


class DpoConfig(PolicyConfig):
    """Preference optimisation of a policy on exported pairs."""

    method: Literal["dpo"]
    data: DataOptions
    optimization: DpoOptimizationOptions = DpoOptimizationOptions()
    dpo: DpoOptions = DpoOptions()


class GrpoConfig(PolicyConfig):
    """Reinforcement learning of a policy on its own episodes or, with `grpo.offline`, on recorded groups."""

    method: Literal["grpo"]
    data: GrpoDataOptions = GrpoDataOptions()
    grpo: GrpoOptions = GrpoOptions()

    @model_validator(mode="after")
    def _check_colocated_sampler(self) -> Self:
        if self.model.quantize != "none" and self.grpo.sampling.sampler == "colocate":
            raise ValueError("sampler: colocate is given the trained weights, not four bits; take transformers or vllm")
        return self


class PrmConfig(JobConfig):
    """Training of a step model (a learned process reward model) from episodes and labels of their steps."""

    method: Literal["prm"]
    data: PrmDataOptions
    format: PrmFormatOptions = PrmFormatOptions()
    optimization: PrmOptimizationOptions = PrmOptimizationOptions()
    checkpoints: PrmCheckpointOptions = PrmCheckpointOptions()
    prm: PrmOptions = PrmOptions()

    @model_validator(mode="after")
    def _check_labels(self) -> Self:
        if self.data.labels and self.prm.objective == "sum_decomposition":
            raise ValueError("sum_decomposition learns from outcomes alone; remove 'labels', or take another objective")
        return self

    @model_validator(mode="after")
    def _check_adapters_and_launch(self) -> Self:
        if self.model.lora is not None or self.run.launch != "single":
            raise ValueError("a step model is trained whole and in one process; remove model.lora and run.launch")
        return self


AnyJob = SftConfig | DpoConfig | GrpoConfig | PrmConfig
JOBS: dict[str, type[AnyJob]] = {"sft": SftConfig, "dpo": DpoConfig, "grpo": GrpoConfig, "prm": PrmConfig}


class _Method(Configuration):
    """The method of a job; its other keys are validated by that method's configuration."""

    model_config = ConfigDict(extra="ignore", frozen=True)
    method: Literal["sft", "dpo", "grpo", "prm"] = "sft"


def load_job(source: Path | dict[str, object]) -> AnyJob:
    """Load a job from a YAML or JSON file or from its values; `method` defaults to `sft`. Raises ConfigurationError
    with a one-line message.
    """
    return JOBS[_Method.load(source).method].load(source)
