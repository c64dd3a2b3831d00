"""What scoring is told: weights, rubric, reference steps; and the name that a score carries of them."""

from typing import Annotated, Self

import pydantic

from components.protocol import DomainProfile
from components.protocol.configuration import Configuration
from components.trajectories.record import digest

from .rules import RULES_VERSION

Weight = Annotated[float, pydantic.Field(ge=0, allow_inf_nan=False)]


class Weights(Configuration):
    """How much each part counts in the total. They need not sum to 1."""

    outcome: Weight = 0.4
    process: Weight = 0.5
    efficiency: Weight = 0.1

    @pydantic.model_validator(mode="after")
    def _something_counts(self) -> Self:
        if self.outcome + self.process + self.efficiency <= 0:
            raise ValueError("at least one of outcome, process and efficiency must weigh more than 0")
        return self


class Rubric(Configuration):
    """The weight of each rule within a step. A line that is not given keeps the weight of the domain's profile."""

    non_redundancy: Weight | None = None
    non_regression: Weight | None = None
    information_use: Weight | None = None
    validity: Weight | None = None


class RewardConfig(Configuration):
    """`reference_steps`: how many calls a task needs, for all tasks; None: the median of its successful episodes."""

    weights: Weights = Weights()
    rubric: Rubric = Rubric()
    reference_steps: Annotated[float, pydantic.Field(gt=0, allow_inf_nan=False)] | None = None

    def rubric_for(self, profile: DomainProfile) -> dict[str, float]:
        """The profile's rubric under the lines that are given here."""
        return {**profile.rubric, **self.rubric.model_dump(exclude_none=True)}

    def version(self, profile: DomainProfile) -> str:
        """The scorer's version: equal for equal rules, parameters and profile."""
        return f"rules-{RULES_VERSION}-{digest(RULES_VERSION, self.model_dump(), profile)[:12]}"
