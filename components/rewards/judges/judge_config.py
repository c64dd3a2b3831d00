"""Configuration of judges: models, prompts, sampled steps, and budget."""

from enum import StrEnum
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import Field, model_validator

from ratchet.components.core.configuration import Configuration
from ratchet.components.models.endpoint import Endpoint, Timeouts
from ratchet.components.trajectories.trajectory import digest


class JudgeMode(StrEnum):
    """Subject of one judgement: one step, or the whole episode."""

    STEP = "step"
    TRAJECTORY = "trajectory"


class JudgeForm(StrEnum):
    """Form of the questions. `rubric`: all criteria in one question, each with a score in [0, 1].

    `binary_principle`: one yes-or-no question per criterion, asked twice with the options swapped; contradictory
    answers give no score (RLBFF).
    """

    RUBRIC = "rubric"
    BINARY_PRINCIPLE = "binary_principle"


class JudgeModelConfig(Endpoint):
    """One judging model. All settings that can change its replies are part of its identity; its address is not.

    - `api`: protocol of the server, OpenAI chat completions or Anthropic messages.
    - `revision`: what the server says nothing of, such as a commit of the model. `max_tokens`: limit of a reply.
      `temperature`: of its sampling; 0 is greedy.
    - `name`: name in records instead of `model`, for example the version of a checkpoint that the server knows by path.
    - `structured`: how an OpenAI-compatible server constrains the reply; `none` for servers without `response_format`
      (transformers serve). Anthropic's replies are constrained by a tool.
    - `extra_body`: merged into each request; null removes a parameter (`temperature: null`).
    """

    api: Literal["openai", "anthropic"] = "openai"
    name: str | None = None
    revision: str | None = None
    structured: Literal["json_schema", "json_object", "none"] = "json_schema"
    temperature: float = Field(0.0, ge=0)
    max_tokens: int = Field(1024, gt=0)
    extra_body: dict[str, Any] = Field(default_factory=dict)
    timeouts: Timeouts = Timeouts(read=120.0, total=180.0)
    concurrency: int = Field(8, gt=0)

    @property
    def identity(self) -> str:
        """`<model>@<12 hex digits>`, a hash of all settings that can change a reply."""
        name = self.name or self.model
        shaping = (self.api, name, self.revision, self.structured, self.temperature, self.max_tokens, self.extra_body)
        return f"{name}@{digest(*shaping)[:12]}"


class BudgetLimits(Configuration):
    """Upper limits per run of `calls`, `tokens` (prompt and reply), and `money` in the currency of the prices; None:
    unlimited. A limit of money requires the price of every model.
    """

    calls: int | None = Field(1000, ge=0)
    tokens: int | None = Field(None, ge=0)
    money: float | None = Field(None, ge=0)


class StepSampling(Configuration):
    """Which steps of an episode are judged or shown: all if there are at most `most`; else the `first` and `last` ones,
    those with a low score by the rules, and an even selection of the others, `most` in all.
    """

    first: int = Field(5, ge=0)
    last: int = Field(5, ge=0)
    most: int = Field(30, gt=0)

    @model_validator(mode="after")
    def _room(self) -> Self:
        if self.first + self.last > self.most:
            raise ValueError(f"first and last together are more than most ({self.most}); raise most")
        return self


class JudgeConfig(Configuration):
    """Configuration of a panel of judges; several `models` judge the same items, and their agreement is reported.

    - `mode`: what one judgement is about, a step or an episode. `form`: how the criteria are asked for.
    - `two_step`: a model states what success requires before it is shown what the agent did (SGV).
    - `rubric`: a YAML file instead of the rubric of the domain; see docs/judging.md.
    - `characters`: limit for each text of the judged step; previous steps are shortened further, the task less.
    - `episodes`: number of episodes of a night that are judged, spread over its tasks; None: all.
    """

    models: tuple[JudgeModelConfig, ...] = Field(min_length=1)
    mode: JudgeMode = JudgeMode.STEP
    form: JudgeForm = JudgeForm.RUBRIC
    two_step: bool = False
    rubric: Path | None = None
    steps: StepSampling = StepSampling()
    characters: int = Field(2000, ge=100)
    episodes: int | None = Field(None, gt=0)
    budget: BudgetLimits = BudgetLimits()

    @model_validator(mode="after")
    def _judges_differ(self) -> Self:
        names = [model.identity for model in self.models]
        if len(set(names)) < len(names):
            raise ValueError("two of the models are the same, and their agreement would mean nothing; remove one")
        if self.budget.money is not None and any(model.price is None for model in self.models):
            raise ValueError("a budget of money needs the price of every model (price: {prompt: ..., completion: ...})")
        return self
