"""Scores of an episode: of its steps and layers, with reasons. `ratchet score` prints them.

`gc=False`: JSON values have no cycles, and skipping the garbage collector speeds up scoring thousands of steps.
"""

from collections import defaultdict
from typing import Any, Literal

import msgspec

from ratchet.components.trajectories.notebook_tables import NotebookTable

LayerName = Literal["rules", "judge", "learned", "guards"]


class StepScore(msgspec.Struct, frozen=True, gc=False):
    """Scores of one call, identified by its turn and its index within the turn (-1: a judged turn without calls).

    `total`: weighted mean of `scores`. `scores`: by rule name, and by criterion as `judge.<criterion>` and
    `learned.<criterion>`. None: not applicable. Steps with equal scores may share the dictionary: do not modify it.
    """

    turn: int
    step: int
    total: float | None
    scores: dict[str, float | None]


class LayerScore(msgspec.Struct, frozen=True, gc=False):
    """Result of one layer of scorers.

    `score`: the process score that this layer alone would give; for the guards 1 (no hack) or 0 (hack found). `steps`:
    number of steps that the layer scored. `counted`: whether the layer contributes to the episode's scores. `sources`:
    the judges or models as `name@hash`.
    """

    score: float | None
    steps: int = 0
    counted: bool = True
    sources: list[str] = []


class Explanation(msgspec.Struct, frozen=True, gc=False):
    """Reason why a criterion scored less than 1, or why a score was excluded (`score` None).

    `line`: name of the rule, criterion or kind of hack. `turn` -1: the whole episode; `step` -1: the whole turn or
    episode.
    """

    turn: int
    step: int
    layer: LayerName
    line: str
    score: float | None
    why: str


class EpisodeScore(NotebookTable, msgspec.Struct, frozen=True, gc=False):
    """Scores of one episode, in [0, 1] or None. All are None after an infrastructure failure.

    `process`: aggregated scores of the steps. `efficiency`: number of calls relative to the reference of the task.
    `verifiable`: scores by component, absent where none is configured. `version` identifies formulas, rules,
    parameters, profile and calibration: only totals of one version are comparable.
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
    """Verifiable components, where configured."""

    def rows(self) -> list[dict[str, Any]]:
        """Return one dictionary per scored step, with its total, its scores by rule or criterion, and the reasons."""
        names = sorted({name for step in self.steps for name in step.scores})
        reasons: dict[tuple[int, int], list[str]] = defaultdict(list)
        for explanation in self.explanations:
            reasons[explanation.turn, explanation.step].append(f"{explanation.line}: {explanation.why}")
        return [
            {
                "turn": step.turn,
                "step": step.step,
                "total": step.total,
                **{name: step.scores.get(name) for name in names},
                "why": "; ".join(reasons[step.turn, step.step]),
            }
            for step in self.steps
        ]

    def _caption(self) -> tuple[str, str]:
        parts = [(name, getattr(self, name)) for name in ("total", "outcome", "process", "efficiency")]
        figures = ", ".join(f"{name} {'unknown' if value is None else f'{value:.3f}'}" for name, value in parts)
        whole = [explanation.why for explanation in self.explanations if explanation.turn < 0]
        return figures, " ".join(whole)
