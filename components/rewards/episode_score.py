"""EpisodeScore: what an episode and each of its steps are worth, by which layers, and why. It is what `ratchet score` prints.

`gc=False`: what JSON holds has no cycles, and thousands of steps are scored faster where the collector passes them by.
"""

from typing import Literal

import msgspec

WHOLE = -1
"""The `turn` of the whole episode; the `step` of a whole turn or episode."""

LayerName = Literal["rules", "judge", "learned", "guards"]


class StepScore(msgspec.Struct, frozen=True, gc=False):
    """One call: its turn, its place within the turn, the weighted mean of its lines, and each line. None: nothing to say.

    Lines of rules bear their own names; those of models are `judge.<line>` and `learned.<line>`. Steps of equal scores may
    share them: they are read, never changed.
    """

    turn: int
    step: int
    total: float | None
    scores: dict[str, float | None]


class LayerScore(msgspec.Struct, frozen=True, gc=False):
    """One layer by itself. `score`: the process score that it alone would give; of the guards, 1 clean and 0 caught.

    `steps`: how many steps it scored. `counted`: whether it is part of the process score. `sources`: the names and versions of
    those who judged (`name@hash`).
    """

    score: float | None
    steps: int = 0
    counted: bool = True
    sources: list[str] = []


class Explanation(msgspec.Struct, frozen=True, gc=False):
    """Why a line scored less than 1, or why something did not count, in words for a person. `turn` -1: the whole episode."""

    turn: int
    step: int
    layer: LayerName
    line: str
    score: float | None
    why: str


class EpisodeScore(msgspec.Struct, frozen=True, gc=False):
    """One episode. Every score is in [0, 1] or None; all are None after an infrastructure failure.

    `version` names formulas, rules, parameters, profile and calibration: only totals of one version can be compared.
    """

    episode_id: str
    total: float | None
    outcome: float | None
    process: float | None
    efficiency: float | None
    steps: list[StepScore]
    layers: dict[LayerName, LayerScore] = {}
    explanations: list[Explanation] = []
    version: str = ""
    verifiable: dict[str, float | None] | msgspec.UnsetType = msgspec.UNSET
    """The verifiable components, where the configuration names some."""
