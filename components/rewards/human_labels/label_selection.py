"""Select the steps that are worth labelling. Deterministic for equal candidates, budget and seed.

Most of the budget goes to steps on which judges are unsure or disagree. The worth of a step falls with every selected
step of the same episode and of the same kind (task family, tool). The rest is drawn at random, because statistics over
all steps cannot be estimated from uncertain steps alone.
"""

import heapq
import math
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Annotated, NamedTuple

import pydantic

from ratchet.components.core.configuration import Configuration
from ratchet.components.rewards.annotation_records import Judgement
from ratchet.components.trajectories.trajectory import Trajectory, digest

Share = Annotated[float, pydantic.Field(ge=0, le=1)]
MIN_WORTH = 0.05
"""Worth of a step on which all judges are sure. It is positive, so that the whole budget is used."""


class LabelChoiceConfig(Configuration):
    """Configuration of the selection. `band`: (low, high), range of mean scores that count as unsure. `random`: share
    of the budget that is drawn at random.
    """

    band: tuple[Share, Share] = (0.3, 0.7)
    random: Share = 0.25

    @pydantic.model_validator(mode="after")
    def _band_rises(self) -> "LabelChoiceConfig":
        if self.band[0] >= self.band[1]:
            raise ValueError(f"band must rise, found {list(self.band)}")
        return self


class LabelCandidate(NamedTuple):
    """A step (or with `turn` and `step` -1 an episode) that could be labelled. `opinions`: its score in [0, 1] by each
    judge or learned model; empty if not judged.

    `kind`: task family and tool; steps of one kind count as similar.
    """

    episode_id: str
    turn: int
    step: int
    kind: str
    opinions: tuple[float, ...]


class LabelChoice(NamedTuple):
    """A selected candidate, and the reason in words."""

    candidate: LabelCandidate
    why: str


def choose_candidates(
    candidates: Iterable[LabelCandidate], budget: int, config: LabelChoiceConfig | None = None, seed: int = 0
) -> list[LabelChoice]:
    """Return at most `budget` choices: the most informative candidates first, with those drawn at random spread evenly
    between them. Equal candidates, budget, configuration and seed give equal choices.
    """
    config = config or LabelChoiceConfig()
    ordered = sorted(candidates, key=lambda candidate: digest(seed, candidate[:3]))
    random_count = round(min(budget, len(ordered)) * config.random)
    drawn = [LabelChoice(candidate, "drawn at random") for candidate in ordered[:random_count]]
    rest = ordered[random_count:]
    return _interleave(_choose_greedily(rest, budget - random_count, config, ordered[:random_count]), drawn)


def choose_steps(
    trajectories: Iterable[Trajectory],
    judgements: Iterable[Judgement],
    budget: int,
    seed: int = 0,
    done: Collection[tuple[str, int, int]] = (),
) -> list[LabelChoice]:
    """Return the steps of trajectories that are most worth labelling, as `choose_candidates` does. `done`: (episode, turn,
    step) of those that are left out.
    """
    opinions = opinions_by_step(judgements)
    # A log may hold an episode twice.
    candidates = {candidate[:3]: candidate for candidate in label_candidates(trajectories, opinions)}
    return choose_candidates((each for place, each in candidates.items() if place not in done), budget, seed=seed)


def _interleave(informative: list[LabelChoice], drawn: list[LabelChoice]) -> list[LabelChoice]:
    """Spread both lists evenly, so that a person who stops halfway has labelled steps of both."""
    places = [
        ((index + 0.5) / len(choices), kind, choice)
        for kind, choices in enumerate((informative, drawn))
        for index, choice in enumerate(choices)
    ]
    return [choice for _, _, choice in sorted(places, key=lambda choices: choices[:2])]


def _choose_greedily(
    candidates: Sequence[LabelCandidate], budget: int, config: LabelChoiceConfig, already: Sequence[LabelCandidate]
) -> list[LabelChoice]:
    """Lazy greedy selection. The worth of a candidate only falls, so one that is still the best after its update is the
    best of all.
    """
    episodes: Counter[str] = Counter(candidate.episode_id for candidate in already)
    kinds: Counter[str] = Counter(candidate.kind for candidate in already)
    worth = [_information_worth(candidate, config) for candidate in candidates]

    def current_worth(index: int) -> float:
        candidate = candidates[index]
        return worth[index][0] / ((1 + episodes[candidate.episode_id]) * math.sqrt(1 + kinds[candidate.kind]))

    heap = [(-current_worth(index), index) for index in range(len(candidates))]
    heapq.heapify(heap)
    chosen: list[LabelChoice] = []
    while heap and len(chosen) < budget:
        old_value, index = heapq.heappop(heap)
        if (value := current_worth(index)) < -old_value:
            heapq.heappush(heap, (-value, index))
            continue
        candidate = candidates[index]
        chosen.append(LabelChoice(candidate, worth[index][1]))
        episodes[candidate.episode_id] += 1
        kinds[candidate.kind] += 1
    return chosen


def _information_worth(candidate: LabelCandidate, config: LabelChoiceConfig) -> tuple[float, str]:
    """Return doubt + disagreement, each in [0, 1], and the reason in words."""
    opinions = candidate.opinions
    if not opinions:
        return 1.0, "not judged yet"
    mean = sum(opinions) / len(opinions)
    doubt, spread = _doubt(mean, *config.band), max(opinions) - min(opinions)
    if max(doubt, spread) < MIN_WORTH:
        return MIN_WORTH, f"judges are sure: mean score {mean:.2f}"
    differ = spread > config.band[1] - config.band[0]
    why = (
        f"judges disagree: scores from {min(opinions):.2f} to {max(opinions):.2f}"
        if differ
        else f"judges are unsure: mean score {mean:.2f}"
    )
    return doubt + spread, why


def _doubt(score: float, low: float, high: float) -> float:
    """Return 1 in the middle of the band, .5 at its ends, 0 at scores of 0 and 1."""
    middle = (low + high) / 2
    if score <= low:
        return 0.5 * score / low if low else 0.0
    if score >= high:
        return 0.5 * (1 - score) / (1 - high) if high < 1 else 0.0
    half = middle - low if score < middle else high - middle
    return 1 - 0.5 * abs(score - middle) / half


StepOpinions = dict[tuple[str, int, int], dict[str, float]]
"""Scores by (episode, turn, step), then by judge."""


def opinions_by_step(judgements: Iterable[Judgement]) -> StepOpinions:
    """Return the overall scores of judges and learned models, by (episode, turn, step), then by judge. Judgements
    without an overall score are skipped.
    """
    opinions: StepOpinions = defaultdict(dict)
    for judgement in judgements:
        if judgement.overall is not None:
            opinions[judgement.episode_id, judgement.turn, judgement.step][f"{judgement.layer} {judgement.judge}"] = (
                judgement.overall
            )
    return opinions


def label_candidates(trajectories: Iterable[Trajectory], opinions: StepOpinions) -> Iterator[LabelCandidate]:
    """Yield every step of the episodes without infrastructure failure. Steps of one task family with one tool are of
    one kind.
    """
    for trajectory in trajectories:
        if trajectory.has_infrastructure_failure:
            continue
        task = trajectory.task
        for turn in trajectory.turns:
            for step, call in enumerate(turn.calls):
                kind = f"{task.domain} {task.family} {call.tool if call.parse_error is None else '(unreadable)'}"
                by_judge = opinions.get((trajectory.episode_id, turn.index, step), {})
                ordered = tuple(by_judge[judge] for judge in sorted(by_judge))
                yield LabelCandidate(trajectory.episode_id, turn.index, step, kind, ordered)
