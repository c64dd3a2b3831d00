"""Sections of the methods: `sft`, `dpo`, `grpo`, `prm`, and the curriculum over rows that SFT and DPO share."""

from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import Field, model_validator

from ratchet.components.core.configuration import Configuration
from ratchet.components.rewards.reward_config import RewardConfig

from ..credit.credit_options import OWN_SCALE, CreditOptions, Scale
from ..grpo.attempt_selection import SelectionOptions
from .shared_sections import OptimizationOptions


class CurriculumOptions(Configuration):
    """Draw only from the easiest `start_ratio` of the rows at first; the share grows linearly to all rows at
    `warmup_ratio` of the steps.
    """

    start_ratio: float = Field(0.3, gt=0, le=1)
    warmup_ratio: float = Field(0.5, ge=0, le=1)


class SftOptions(Configuration):
    """`weighted`: weight rows by their `weight`; `step_weighted_loss`: weight each reply by the `weight` of its message
    (needs `format.agent_format`).

    Weights are scaled to a mean of 1 over all trained tokens. `packing`: put several rows in one sequence of
    `format.max_length` tokens; `batch_size` then counts sequences. `curriculum`: short, highly rewarded rows first.
    """

    step_weighted_loss: bool = False
    weighted: bool = False
    packing: bool = False
    curriculum: CurriculumOptions | None = None

    @model_validator(mode="after")
    def _check_packing(self) -> Self:
        if self.packing and self.curriculum is not None:
            raise ValueError("packing mixes the rows that a curriculum keeps apart; take one of them")
        return self


class DpoOptions(Configuration):
    """Direct preference optimisation (Rafailov et al. 2023, arXiv:2305.18290). `beta`: strength of the KL penalty
    towards the reference model. `level`: which pairs of the export are read, those of single steps, of whole
    trajectories, or all.

    `loss`: `sigmoid`; `ipo` (Azar et al. 2023, arXiv:2310.12036), with TRL's length-normalised differences; `robust`
    (Chowdhury et al. 2024, arXiv:2403.00409), for labels of which the share `label_smoothing` is wrong.
    `token_weights`: weight replies by their `weight`, mean 1 per side (needs `format.agent_format`).
    `step_level_advantage`: weight pairs by their margin, mean 1 over all pairs. `precompute`: compute the reference
    model's log-probabilities once before training, so that the reference needs no memory during training. `curriculum`:
    short pairs with a wide margin first.
    """

    beta: float = Field(0.1, gt=0)
    loss: Literal["sigmoid", "ipo", "robust"] = "sigmoid"
    label_smoothing: float = Field(0.0, ge=0, lt=0.5)
    level: Literal["step", "trajectory", "all"] = "all"
    token_weights: bool = False
    step_level_advantage: bool = False
    precompute: bool = True
    curriculum: CurriculumOptions | None = None

    @model_validator(mode="after")
    def _check_unused_options(self) -> Self:
        if self.label_smoothing and self.loss != "robust":
            raise ValueError(f"label_smoothing has no meaning for loss {self.loss}; take loss: robust, or remove it")
        if self.token_weights and not self.precompute:
            raise ValueError("token_weights need precompute: true; set it")
        return self


class DpoOptimizationOptions(OptimizationOptions):
    """Options of optimization with a smaller default `learning_rate`, since the policy can already act."""

    learning_rate: float = Field(1e-5, gt=0)


class PrmOptions(Configuration):
    """`objective`: what a step's score means and is trained on, see `prm/step_examples.py`. `replies`: learn to score a
    reply before its results are known too, which best-of-n needs.
    """

    objective: Literal["value", "progress", "sum_decomposition"] = "value"
    replies: bool = False

    @model_validator(mode="after")
    def _check_replies(self) -> Self:
        if self.replies and self.objective == "sum_decomposition":
            raise ValueError("replies: true needs objective value or progress: a reply contributes nothing by itself")
        return self


class GrpoSamplingOptions(Configuration):
    """Sampling of episodes. `temperature`, `top_p`: of the sampling of a token; 1 is
    the policy's own distribution. `max_new_tokens`: limit of one reply; `max_episode_tokens`: limit of everything after the
    first prompt, environment tokens included (TRL's `max_completion_length`). An episode without room for another reply
    ends.

    `sampler`: `transformers` samples from the trained model itself; `vllm` from a vLLM server at the URL `server`,
    which receives each step's weights as a LoRA adapter; `colocate` from vLLM in the training process.
    """

    temperature: float = Field(1.0, gt=0)
    top_p: float = Field(1.0, gt=0, le=1)
    max_new_tokens: int = Field(96, gt=0)
    max_episode_tokens: int = Field(1024, gt=0)
    sampler: Literal["transformers", "vllm", "colocate"] = "transformers"
    server: str | None = None

    @property
    def missing_engine(self) -> str | None:
        """Why the sampler cannot run in this environment, in one line; None if it can."""
        if self.sampler != "colocate" or find_spec("vllm") is not None:
            return None
        return "grpo.sampling.sampler: colocate needs vLLM in this environment, beside TRL; take transformers or vllm"

    @model_validator(mode="after")
    def _check_server(self) -> Self:
        if (self.sampler == "vllm") != (self.server is not None):
            raise ValueError("'server' (the address of a vLLM server) goes with sampler: vllm, and with no other")
        return self


LossName = Literal["grpo", "dr_grpo", "dapo", "bnpo", "cispo"]
CorrectionMode = Literal["none", "token_truncate", "token_mask", "sequence_truncate", "sequence_mask"]


class CorrectionOptions(Configuration):
    """Importance weights for the gap between the policy that sampled and the one that is trained; TRL's
    `vllm_importance_sampling_*`.

    `mode`: a weight per token, or per sequence (the product over its tokens); `truncate` limits weights to
    [`clip_min`, `clip_max`] (TIS), `mask` drops what lies outside. `none` uses no weights: the clipped ratio then
    refers to the sampling policy itself. None for a bound: no bound.
    """

    mode: CorrectionMode = "sequence_mask"
    clip_max: float | None = Field(3.0, gt=0)
    clip_min: float | None = Field(None, ge=0)

    @model_validator(mode="after")
    def _check_bounds(self) -> Self:
        if self.clip_min is not None and self.clip_max is not None and self.clip_min > self.clip_max:
            raise ValueError(f"clip_min {self.clip_min} is above clip_max {self.clip_max}")
        if self.mode != "none" and self.clip_min is None and self.clip_max is None:
            raise ValueError(f"correction.mode: {self.mode} needs clip_max or clip_min; set one")
        return self


class AsyncOptions(Configuration):
    """Play and train at the same time: a worker plays groups of attempts without a pause, and the trainer takes finished
    ones. Nothing that was played is thrown away.

    A *version* is a set of weights that reached the sampler; the *staleness* of a group is the number of versions
    between the oldest of its tokens and the one that trains on it.

    - `max_staleness`: bound of the staleness, kept by admission (AReaL, Fu et al. 2025, arXiv:2505.24298, eq. 3): a group
      starts only if it can be trained within the bound, and is trained only while all others still can be. 0
      plays and trains in turn; more is faster, and learns a little less from each episode (docs/training.md has figures).
    - `weight_sync_steps`: optimiser steps per version.
    - `inflight_groups`: most groups that are played at a time; None for as many as the bound admits.
    - `transfer`: how weights reach the sampler: `memory` (a copy in this process), `disk` (a checkpoint folder that vLLM
      reloads), `nccl` (between GPUs, by vLLM's own route), `adapter` (a LoRA adapter); `auto` takes the fastest
      that the sampler and the machine have.
    - `refill`: play another task in place of a group whose rewards are all equal, so that every step is full of groups
      that teach something (DAPO's dynamic sampling, Yu et al. 2025, arXiv:2503.14476).
    - `drift_alarm`: mean |difference| in nats between the log-probabilities of trainer and sampler, over the tokens of a
      step, at which the job stops (`on_drift: stop`) or logs a warning (`warn`). Rounding causes less than .05; an
      alarm means that weights did not arrive, that the sampler uses another distribution (such as another temperature), or
      that the learning rate is too high for this staleness.
    """

    max_staleness: int = Field(1, ge=0)
    weight_sync_steps: int = Field(1, gt=0)
    inflight_groups: int | None = Field(None, gt=0)
    transfer: Literal["auto", "memory", "disk", "nccl", "adapter"] = "auto"
    refill: bool = False
    drift_alarm: float = Field(0.5, gt=0)
    on_drift: Literal["stop", "warn"] = "stop"


class GrpoOptions(Configuration):
    """Group relative policy optimisation (Shao et al. 2024, arXiv:2402.03300). The defaults are TRL's; DeepSeek-R1's
    form is `loss: grpo`, `beta` above 0, `unbiased_kl: false`. GSPO is `importance: sequence` with `loss: grpo`.

    - `group_size`: attempts at one task that are compared with each other; a step plays `optimization.batch_size`
      attempts.
    - `loss`, `importance`, `scale_rewards`, `clip`, `clip_high` (upper bound; default `clip`, or 5 for cispo),
      `beta` (strength of the KL penalty towards the initial model; 0 for none), `updates` (gradient steps per batch
      of episodes): as in TRL. `scale_rewards` applies to every option of `credit`, but `leave_one_out` and
      `batch_std` define their divisor themselves.
    - `reward`: weight of each component, see `grpo/episode_rewards.py`. `scoring`: configuration of the reward engine.
    - `credit`: how an episode's reward becomes the advantage of each token. `progress` needs a `step_model`.
    - `step_model`: checkpoint of a step model with objective `value`, whose scores of steps join those of the rules.
    - `selection`: which attempts are trained on, and which tasks are played.
    - `signal_window`: the job fails after this many successive steps in which all advantages are equal.
    - `player`: `module:name` of the class that plays episodes; `play`: its options (taskset, max_turns, concurrency,
      sandbox …).
    - `offline`: learn from the groups recorded in `data.train` instead of playing.
    - `correction`: importance weights for samplers whose weights or arithmetic differ from the trainer's (`vllm`,
      `colocate`, `asynchronous`). None: TRL's default for `colocate` (`sequence_mask` at 3), `mode: none` otherwise.
    - `asynchronous`: play and train at the same time; None plays a batch, then trains on it.
    - `share_prefixes`: forward the prompt of a group and the turns that its attempts share once per micro-batch, which
      should hold whole groups. Default: where the model permits, but not with `preset: plain`. Models with recurrent
      layers, attention sinks, soft-capped scores, dropout of attention or a load-balancing loss are forwarded plainly.
    """

    group_size: int = Field(8, gt=1)
    loss: LossName = "dapo"
    importance: Literal["token", "sequence"] = "token"
    clip: float = Field(0.2, gt=0)
    clip_high: float | None = Field(None, gt=0)
    beta: float = Field(0.0, ge=0)
    unbiased_kl: bool = True
    updates: int = Field(1, gt=0)
    reward: dict[str, float] = Field({"total": 1.0}, min_length=1)
    scoring: RewardConfig = RewardConfig()
    step_model: Path | None = None
    credit: CreditOptions = CreditOptions()
    scale_rewards: Scale = "group"
    selection: SelectionOptions = SelectionOptions()
    signal_window: int = Field(10, gt=0)
    sampling: GrpoSamplingOptions = GrpoSamplingOptions()
    player: str = "ratchet.components.rollouts.on_policy:OnPolicyPlayer"
    play: dict[str, Any] = Field(default_factory=dict)
    offline: bool = False
    correction: CorrectionOptions | None = None
    asynchronous: AsyncOptions | None = None
    share_prefixes: bool | None = None

    @model_validator(mode="after")
    def _check_cispo_clip(self) -> Self:
        # For cispo TRL reads `epsilon_high` as the largest ratio itself, for other losses as its distance from 1.
        if self.loss == "cispo" and self.clip_high is not None and self.clip_high < 1:
            raise ValueError("clip_high is the largest ratio of cispo, so at least 1 (5 where it is not given)")
        return self

    @model_validator(mode="before")
    @classmethod
    def _default_scale_rewards(cls, values: Any) -> Any:
        """Default `scale_rewards` to the divisor of an estimator that defines one."""
        if not isinstance(values, dict) or "scale_rewards" in values:
            return values
        credit = values.get("credit")
        name = credit.get("advantage") if isinstance(credit, dict) else getattr(credit, "advantage", None)
        return values | {"scale_rewards": OWN_SCALE[name]} if name in ("leave_one_out", "batch_std") else values

    @model_validator(mode="after")
    def _check_scale_rewards(self) -> Self:
        name = self.credit.advantage
        if OWN_SCALE.get(name, self.scale_rewards) != self.scale_rewards:
            raise ValueError(f"credit.advantage: {name} means scale_rewards: {OWN_SCALE[name]}; remove one of them")
        return self

    @model_validator(mode="after")
    def _check_step_model(self) -> Self:
        if self.credit.turns == "progress" and self.step_model is None:
            raise ValueError("credit.turns: progress needs step_model: a step model that knows chances of success")
        return self

    @property
    def upper_clip(self) -> float | None:
        """TRL's `epsilon_high`: how far the ratio may rise above 1; for cispo the maximal ratio itself (5: MiniMax-M1,
        arXiv:2506.13585).
        """
        return 5.0 if self.loss == "cispo" and self.clip_high is None else self.clip_high
