"""Configuration of scoring (weights, layers, verifier, aggregation), and the version of the scores that it produces."""

from functools import cached_property, lru_cache
from typing import Annotated, Literal, Self

import pydantic

from ratchet.components.core import DomainProfile
from ratchet.components.core.configuration import Configuration
from ratchet.components.trajectories.trajectory import digest

from .hack_detection import HACK_DETECTION_VERSION
from .rules.rule_engine import RULES_VERSION
from .verifiable.episode_components import VerifiableConfig, truths_hash

ENGINE_VERSION = 2
"""Version of the formulas in `episode_scoring`, `judgement_aggregation` and `reward_formulas`."""

UNCALIBRATED = "none"
"""Version of scores without a calibration, and of a calibration that changes nothing."""

Weight = Annotated[float, pydantic.Field(ge=0, allow_inf_nan=False)]
Aggregation = Literal["mean", "min", "product", "last"]
Verifier = Literal["prm", "orm"]


class RewardWeights(Configuration):
    """Weights of the parts of the total score. They need not sum to 1.

    `outcome`: of the success, or the share of tests passed. `process`: of the aggregated scores of the steps.
    `efficiency`: of reference steps / steps. `verifiable`: of the mean of the verifiable components.
    """

    outcome: Weight = 0.4
    process: Weight = 0.5
    efficiency: Weight = 0.1
    verifiable: Weight = 0.0

    @pydantic.model_validator(mode="after")
    def _something_counts(self) -> Self:
        if self.outcome + self.process + self.efficiency + self.verifiable <= 0:
            raise ValueError("at least one of outcome, process, efficiency and verifiable must weigh more than 0")
        return self


class LayerWeights(Configuration):
    """Factor by which the weights of a layer's rules or criteria within a step are multiplied; 0 turns the layer off.

    `rules` score every step; `judge` and `learned` only steps with judgements.
    """

    rules: Weight = 1.0
    judge: Weight = 1.0
    learned: Weight = 0.5


class RuleWeights(Configuration):
    """Weight of each rule within a step. None: the weight in the domain profile."""

    non_redundancy: Weight | None = None
    non_regression: Weight | None = None
    non_repetition: Weight | None = None
    information_use: Weight | None = None
    validity: Weight | None = None


class RewardConfig(Configuration):
    """Configuration of the reward of an episode.

    - `weights`: of the parts of the total; `rubric`: of the rules within a step.
    - `verifier`: which scores of a model layer (judge, learned) count. `prm`: those of steps, or of the episode where
      there are none; `orm`: those of the episode alone. A layer that the calibration does not trust in a domain counts
      as `orm` there.
    - `aggregation`: how step scores become the process score (compared in "Rethinking Reward Models").
    - `guards`: whether hacks are detected; an episode with a hack gets a total of 0.
    - `reference_steps`: calls that every task needs; None: the median of its successful episodes.
    - `verifiable`: the verifiable components; their mean enters the total by `weights.verifiable`.
    """

    weights: RewardWeights = RewardWeights()
    rubric: RuleWeights = RuleWeights()
    layers: LayerWeights = LayerWeights()
    verifier: Verifier = "prm"
    aggregation: Aggregation = "mean"
    guards: bool = True
    reference_steps: Annotated[float, pydantic.Field(gt=0, allow_inf_nan=False)] | None = None
    verifiable: VerifiableConfig | None = None

    @pydantic.model_validator(mode="after")
    def _verifiable_has_a_weight_and_components(self) -> Self:
        if self.weights.verifiable > 0 and self.verifiable is None:
            raise ValueError("weights.verifiable needs a section 'verifiable' with the components and their truths")
        return self

    def rubric_for(self, profile: DomainProfile) -> dict[str, float]:
        """Return the weight of each rule: that of this configuration, else that of the profile."""
        return {**profile.rubric, **self._rubric}

    def version(self, profile: DomainProfile, calibration: str = UNCALIBRATED) -> str:
        """Return the version of the scorer: equal if formulas, rules, hack detection, parameters, profile and the
        version of the calibration are equal.
        """
        return _version(self._hash, _profile_hash(profile), calibration)

    @cached_property
    def _rubric(self) -> dict[str, float]:
        return self.rubric.model_dump(exclude_none=True)

    @cached_property
    def _hash(self) -> str:
        values = self.model_dump(mode="json")
        if self.verifiable is None:  # keeps the versions of scores made before this section existed
            del values["verifiable"], values["weights"]["verifiable"]
            return digest(values)
        # Versions keep the import names from before the packages were installed under `ratchet`.
        values["verifiable"]["sandbox"] = self.verifiable.sandbox.removeprefix("ratchet.")
        return digest(values, truths_hash(self.verifiable))


@lru_cache(maxsize=256)
def _version(parameters: str, profile: str, calibration: str) -> str:
    hashed = digest(ENGINE_VERSION, RULES_VERSION, HACK_DETECTION_VERSION, parameters, profile, calibration)
    return f"reward-{ENGINE_VERSION}.{RULES_VERSION}-{hashed[:12]}"


_profiles: dict[int, tuple[DomainProfile, str]] = {}
_MAX_PROFILES = 256


def _profile_hash(profile: DomainProfile) -> str:
    """Return the hash of a profile, cached."""
    # By id, because a profile holds dictionaries and has no hash; the reference that is kept prevents the reuse of its id.
    cached = _profiles.get(id(profile))
    if cached is None:
        if len(_profiles) >= _MAX_PROFILES:
            _profiles.clear()
        cached = _profiles[id(profile)] = (profile, digest(profile))
    return cached[1]
