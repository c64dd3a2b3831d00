"""Sections `quality`, `duplicates`, `rank`, `export` and `gate` of `params.yaml`, and the parser of dates given as
flags.
"""

from datetime import date
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from ratchet.components.core import ConfigurationError
from ratchet.components.core.configuration import Configuration

from .deduplication.split_assignment import Split

UnitShare = Annotated[float, Field(ge=0, le=1)]
NonNegativeCount = Annotated[int, Field(ge=0)]


class ExportParams(Configuration):
    """Selection of the ranked episodes that are exported, and the format in which they are written.

    - `pair_levels`: the pairs that become DPO rows. A step-level pair is one assistant message against another after
      the same history; a trajectory-level pair holds tool outputs after its prompt, on which TRL's loss would train.
    - `agent_format`: format of calls and their results. `tools`: as `tool_calls` and messages of the role tool, for
      chat templates that support tools; `text`: as text of assistant and user messages, for those that do not.
    - `step_weights`: assistant messages of SFT and of whole chosen episodes carry a `weight` by their steps' process
      rewards, those of whole rejected episodes by 1 minus these rewards.
    - `group_size`: maximum number of attempts in an offline GRPO group; 0 writes no groups.
    - `where`, `min_gdi`, `min_reward`: filters of episodes; see `export.row_filter` for the grammar. A pair passes if
      its chosen side passes; a task or a group passes if any of its attempts passes.
    """

    pair_levels: tuple[Literal["step", "trajectory"], ...] = ("step",)
    agent_format: Literal["tools", "text"] = "tools"
    step_weights: bool = True
    group_size: NonNegativeCount = 8
    where: str | None = None
    min_gdi: UnitShare | None = None
    min_reward: UnitShare | None = None


class GateParams(Configuration):
    """Minimum number of rows that each dataset must hold, and the maximum size of a row in bytes."""

    min_sft_train: NonNegativeCount = 1
    min_dpo_train: NonNegativeCount = 0
    min_grpo_train: NonNegativeCount = 1
    min_groups_train: NonNegativeCount = 0
    max_row_bytes: Annotated[int, Field(gt=0)] = 4_000_000


Weight = Annotated[float, Field(ge=0, allow_inf_nan=False)]
PositiveCount = Annotated[int, Field(gt=0)]


class QualityParams(Configuration):
    """Limits of the expectations. Rates are shares of episodes in [0, 1]; lengths are in characters.

    Episodes of a policy named in `demonstrators` are demonstrations; all others are on-policy. If the warnings together
    would quarantine more than the share `max_quarantined`, the build stops: a quarantine is for occasional rows.
    `context` is the maximum length of a conversation in tokens, counted by the `tokenizer` (a folder), or as a quarter
    of its bytes. Each conversation is rendered by the `chat_template`. `max_psi` and `max_drift` (Kolmogorov-Smirnov D)
    bound the drift of figures from those of the last accepted build.
    """

    demonstrators: tuple[str, ...] = ("teacher", "rewriter")
    max_infrastructure_rate: UnitShare = 0.1
    max_truncation_rate: UnitShare = 0.5
    max_parse_errors: Weight = 1.0
    max_repeats: UnitShare = 0.9
    min_group_size: PositiveCount = 2
    max_turns: PositiveCount = 100
    max_steps: PositiveCount = 200
    max_observation: PositiveCount = 200_000
    max_bytes: PositiveCount = 4_000_000
    context: PositiveCount | None = 32_768
    tokenizer: Path | None = None
    chat_template: Path | None = None
    min_script_share: UnitShare = 0.7
    scripts: tuple[str, ...] = ()
    max_days_ahead: PositiveCount = 7
    max_psi: Weight = 0.25
    max_drift: UnitShare = 0.6
    max_quarantined: UnitShare = 0.2


class GdiWeights(Configuration):
    """Weights of the terms of the rank; they need not sum to 1. A term of weight 0 is reported and not counted."""

    reward: Weight = 0.30
    process: Weight = 0.10
    judge: Weight = 0.05
    agreement: Weight = 0.05
    feedback: Weight = 0.10
    uniqueness: Weight = 0.10
    diversity: Weight = 0.05
    difficulty: Weight = 0.0
    learnability: Weight = 0.15
    lim: Weight = 0.05
    recency: Weight = 0.05
    use: Weight = 0.0

    @model_validator(mode="after")
    def _check_any_weight(self) -> "GdiWeights":
        if not any(self.model_dump().values()):
            raise ValueError("all weights are 0; give at least one term a weight")
        return self


class RankParams(Configuration):
    """Ranking of episodes and selection of the accepted ones. With `preset: original` the original system's formula is
    used and `weights` are ignored.

    Only successes are accepted: one of equal runs (`same_run`) at a task; the `best_of` best of a task; of these the
    top fraction by gdi; at most `max_per_family` of each family; at most `max_tokens` in total. None is no limit.
    `order` decides which episodes a limit keeps. `min_weight` is the minimum training weight of an on-policy episode,
    whatever its task's pass rate; it is never 0, because a row of weight 0 trains nothing and the gate refuses it.
    """

    preset: Literal["own", "original"] = "own"
    weights: GdiWeights = GdiWeights()
    half_life_days: Annotated[float, Field(gt=0)] = 30.0
    min_gdi: UnitShare = 0.0
    same_run: Literal["exact", "normalised", "cluster"] = "exact"
    best_of: PositiveCount | None = 2
    top_fraction: Annotated[float, Field(gt=0, le=1)] = 1.0
    max_per_family: PositiveCount | None = None
    max_tokens: PositiveCount | None = None
    order: Literal["gdi", "diverse"] = "gdi"
    min_weight: Annotated[float, Field(ge=0.001, le=1)] = 0.25


Similarity = Annotated[float, Field(gt=0, le=1)]
SplitShare = Annotated[float, Field(ge=0, lt=1)]


class DuplicatesParams(Configuration):
    """Thresholds for duplicates and leaks, and the shares of the splits.

    - `near`: minimum Jaccard similarity of 5-word sequences at which two episodes, or two tasks, are near-duplicates.
    - `leak`: minimum share of an evaluation task's distinctive 5-word sequences in an episode that counts as a leak.
    - `validation`, `test`: shares of the train tasks that are not trained on.
    - `split_by`: unit that a split keeps together. `taskset`: a family, or a single task where its taskset says
      `split_by: instance`.
    - `leave_out`: tasks that no dataset may hold.
    """

    near: Similarity = 0.8
    leak: Similarity = 0.6
    validation: SplitShare = 0.1
    test: SplitShare = 0.0
    split_by: Literal["taskset", "family", "task"] = "taskset"
    leave_out: tuple[str, ...] = ()

    @model_validator(mode="after")
    def _check_train_share(self) -> Self:
        if self.validation + self.test >= 1:
            raise ValueError("validation and test together must be less than 1, so that train tasks remain")
        return self

    @property
    def shares(self) -> dict[Split, float]:
        """Shares of the splits validation and test, as `assign_splits` takes them."""
        return {"validation": self.validation, "test": self.test}


def parse_day(text: str) -> date:
    """Parse the date given as `--as-of` (YYYY-MM-DD). Raises ConfigurationError."""
    try:
        return date.fromisoformat(text)
    except ValueError as error:
        raise ConfigurationError(f"--as-of '{text}' is not a date; write YYYY-MM-DD") from error
