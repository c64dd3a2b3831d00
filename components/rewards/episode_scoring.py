"""Score a trajectory: combine rules, judgements and hack detection into scores of steps and of the episode.

    step    = weighted mean of the rules and criteria with a score, over all layers (`judgement_aggregation`)
    process = aggregation of the steps, joined with judgements of the whole episode
    total   = weighted mean of outcome, process, efficiency and verifiable components, such that every success ranks
              above every failure (`reward_formulas`)

An episode with a hack gets outcome, process, efficiency and total 0. An idle step can lower the process score and never
raise it. Equal records and parameters give equal scores.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache

import msgspec

from ratchet.components.core import DomainProfile, ToolCall, ToolResult, load_domain
from ratchet.components.trajectories.trajectory import Trajectory, Turn

from .annotation_records import WHOLE, Judgement
from .calibration.calibration_record import Calibration
from .episode_score import EpisodeScore, Explanation, LayerName, LayerScore, StepScore
from .hack_detection.hack_detector import NO_FINDINGS, HackExamination, examine_episode, idle_step_scores
from .judgement_aggregation import NO_JUDGEMENTS, AggregatedJudgements, LayerOpinion, aggregate_judgements
from .reference_steps import ReferenceSteps
from .reward_config import UNCALIBRATED, RewardConfig
from .reward_formulas import aggregate, efficiency_score, is_success, outcome_score, total_score, weighted_mean
from .rules.rule_engine import RULES, RuleEngine, RuleScores
from .verifiable.episode_components import scored_components, verifiable_score

IDLE_REASON = "the call changed nothing and returned nothing new, so only its scores of 0 count"


def score(
    trajectory: Trajectory,
    profile: DomainProfile,
    config: RewardConfig | None = None,
    reference: float | None = None,
    judgements: Sequence[Judgement] = (),
    calibration: Calibration | None = None,
) -> EpisodeScore:
    """Return the scores of one trajectory by the rules, weights and tools of `profile`.

    `reference`: number of calls that its task needs, unless `config` sets it; None: no efficiency score. Only
    `judgements` with the content hash of the trajectory are used, corrected by the `calibration` (None: uncorrected);
    without any, rules alone score the steps.
    """
    config = config or RewardConfig()
    version = config.version(profile, calibration.version if calibration else UNCALIBRATED)
    if trajectory.has_infrastructure_failure:
        return EpisodeScore(trajectory.episode_id, None, None, None, None, _unscored_steps(trajectory), version=version)
    aggregated = (
        aggregate_judgements(trajectory, profile, config, judgements, calibration) if judgements else NO_JUDGEMENTS
    )
    examination = examine_episode(trajectory, profile) if config.guards else NO_FINDINGS
    hacks = examination.hacks
    scorer = _EpisodeScorer(profile, config, aggregated, examination)
    scorer.score_steps(trajectory)
    outcome = outcome_score(trajectory, profile)
    process = scorer.process()
    efficiency = efficiency_score(config.reference_steps or reference, scorer.calls)
    verifiable: dict[str, float | None] = {}
    if config.verifiable is not None:
        verifiable = scored_components(config.verifiable, trajectory)
    by_components = verifiable_score(config.verifiable, verifiable) if config.verifiable else None
    success = is_success(trajectory.outcome, outcome)
    total = total_score(outcome, process, efficiency, success, config.weights, by_components)
    # None stays None: a part that does not apply is not a part with score 0.
    if hacks:
        total = outcome = 0.0
        process, efficiency = (None if component is None else 0.0 for component in (process, efficiency))
    layers = scorer.layers()
    if config.guards:
        layers["guards"] = LayerScore(float(not hacks), counted=bool(hacks))
    by_guards = (Explanation(hack.turn, hack.step, "guards", hack.kind, 0.0, hack.why) for hack in hacks)
    explanations = [*by_guards, *aggregated.notes, *scorer.explanations]
    scores, components = (total, outcome, process, efficiency), verifiable or msgspec.UNSET
    return EpisodeScore(trajectory.episode_id, *scores, scorer.steps, layers, explanations, version, components)


RuleLines = tuple[dict[str, float | None], float | None]
"""Scores of a step by rule, and their weighted mean."""


@lru_cache(maxsize=64)
def _lines_by_scores(rubric: tuple[tuple[str, float], ...]) -> dict[RuleScores, RuleLines]:
    """Cache, per rubric, of the scores by rule of steps without faults, which all episodes share."""
    return {}


_NOT_FOLLOWED = RuleScores()  # of a call that the rules do not follow


class _EpisodeScorer:
    """State of one episode while it is scored."""

    __slots__ = (
        "_aggregated", "_by_rules", "_cached_lines", "_config", "_engine", "_examination", "_only_rules", "_rubric",
        "_rules_weight", "_step_mean", "explanations", "steps",
    )  # fmt: skip

    def __init__(
        self,
        profile: DomainProfile,
        config: RewardConfig,
        aggregated: AggregatedJudgements,
        examination: HackExamination,
    ) -> None:
        self._config, self._aggregated, self._examination = config, aggregated, examination
        self._engine = RuleEngine(profile)
        self._rubric = config.rubric_for(profile)
        self._rules_weight = config.layers.rules
        self._only_rules = aggregated is NO_JUDGEMENTS and self._rules_weight > 0  # a step is worth what rules say
        self._step_mean: float | None = None
        self._cached_lines = _lines_by_scores(tuple(self._rubric.items()))
        self._by_rules: list[float | None] = []
        self.steps: list[StepScore] = []
        self.explanations: list[Explanation] = []
        for opinion in aggregated.whole:
            self.explanations += opinion.explanations_at((WHOLE, WHOLE))

    def score_steps(self, trajectory: Trajectory) -> None:
        """Score every call in order, and every turn without calls that a model judged."""
        for message in trajectory.messages:
            self._engine.see(message.content)
        if self._aggregated is NO_JUDGEMENTS and self._examination is NO_FINDINGS:
            self._score_by_rules(trajectory)
            return
        for turn in trajectory.turns:
            for index, (call, result) in enumerate(calls_with_results(turn)):
                self._score_call(turn.index, index, call, result)
            if not turn.calls and (opinions := self._aggregated.opinions_at(turn.index, WHOLE)):
                self._add_judged_step(turn.index, WHOLE, {}, [], opinions)

    def _score_by_rules(self, trajectory: Trajectory) -> None:
        """Score an episode without judgements and findings. Most episodes take this fast path."""
        step, cached_lines, counted = self._engine.step, self._cached_lines, self._rules_weight > 0
        steps, by_rules = self.steps, self._by_rules
        for turn in trajectory.turns:
            turn_index = turn.index
            for index, (call, result) in enumerate(calls_with_results(turn)):
                rule_scores = step(call, result)
                scores, total = cached_lines.get(rule_scores) or self._lines(rule_scores)
                by_rules.append(total)
                steps.append(StepScore(turn_index, index, total if counted else None, scores))
                if rule_scores.reasons:
                    self._explain(turn_index, index, rule_scores.reasons, scores)

    def _lines(self, rule_scores: RuleScores) -> RuleLines:
        """Return the scores by rule and their mean. Steps without faults have few different scores, which are cached."""
        lines = (rule_scores.lines, rule_scores.total(self._rubric))
        if not rule_scores.reasons:
            self._cached_lines[rule_scores] = lines
        return lines

    def _explain(self, turn: int, index: int, reasons: dict[str, str], scores: dict[str, float | None]) -> None:
        for name, why in reasons.items():
            self.explanations.append(Explanation(turn, index, "rules", name, scores[name], why))

    def _score_call(self, turn: int, index: int, call: ToolCall, result: ToolResult | None) -> None:
        position = (turn, index)
        changes_nothing = position in self._examination.idle_changes  # rules do not follow it: nothing changed
        rule_scores = _NOT_FOLLOWED if changes_nothing else self._engine.step(call, result)
        lines, by_rules = self._cached_lines.get(rule_scores) or self._lines(rule_scores)
        scores = lines.copy()
        opinions = self._aggregated.opinions_at(turn, index) if self._aggregated is not NO_JUDGEMENTS else []
        if position in self._examination.idle:
            scores, opinions = idle_step_scores(scores), [opinion for opinion in opinions if opinion.score == 0]
            by_rules = weighted_mean((self._rubric.get(name, 0.0), score) for name, score in scores.items())
            self.explanations.append(Explanation(turn, index, "guards", "idle", None, IDLE_REASON))
        self._by_rules.append(by_rules)
        if rule_scores.reasons:
            self._explain(turn, index, rule_scores.reasons, scores)
        rules_weight = self._rules_weight
        if not opinions:
            self.steps.append(StepScore(turn, index, by_rules if rules_weight > 0 else None, scores))
            return
        parts = [(rules_weight * self._rubric.get(name, 0.0), score) for name, score in scores.items()]
        self._add_judged_step(turn, index, scores, parts, opinions)

    def _add_judged_step(
        self,
        turn: int,
        index: int,
        scores: dict[str, float | None],
        parts: list[tuple[float, float | None]],
        opinions: list[LayerOpinion],
    ) -> None:
        """Add a step that models judged."""
        for opinion in opinions:
            parts.append((opinion.weight, opinion.score))
            scores |= opinion.scores()
        self.steps.append(StepScore(turn, index, weighted_mean(parts), scores))
        for opinion in opinions:
            self.explanations += opinion.explanations_at((turn, index))

    @property
    def calls(self) -> int:
        """Number of scored calls."""
        return len(self._by_rules)

    def process(self) -> float | None:
        """Return the aggregated steps, joined with judgements of the whole episode. The steps weigh as much as the step
        with the largest weight of judgements.
        """
        if self._step_mean is None:
            scores = self._by_rules if self._only_rules else [step.total for step in self.steps]
            self._step_mean = aggregate(self._config.aggregation, scores)
        steps = self._step_mean
        if not self._aggregated.whole:
            return steps
        weight = self._config.layers.rules * sum(self._rubric.values())
        weight += max(
            (sum(opinion.weight for opinion in opinions) for opinions in self._aggregated.steps.values()), default=0.0
        )
        return weighted_mean(
            [(weight, steps), *((opinion.weight, opinion.score) for opinion in self._aggregated.whole)]
        )

    def layers(self) -> dict[LayerName, LayerScore]:
        """Return the score of each layer alone."""
        scored = len(self._by_rules) - self._by_rules.count(None)
        alone = self.process() if self._only_rules else aggregate(self._config.aggregation, self._by_rules)
        rules = LayerScore(alone, scored, self._config.layers.rules > 0 and scored > 0)
        return {"rules": rules, **self._aggregated.layers}


def _unscored_steps(trajectory: Trajectory) -> list[StepScore]:
    return [
        StepScore(turn.index, index, None, dict.fromkeys(RULES))
        for turn in trajectory.turns
        for index in range(len(turn.calls))
    ]


def calls_with_results(turn: Turn) -> Sequence[tuple[ToolCall, ToolResult | None]]:
    """Return each call of a turn with its result; None where the episode ended before the call was carried out."""
    calls, recorded_results = turn.calls, turn.results
    # Most turns have one call: no dictionary is built for them.
    if len(calls) == 1 == len(recorded_results) and calls[0].call_id == recorded_results[0].call_id:
        return ((calls[0], recorded_results[0]),)
    results = {result.call_id: result for result in recorded_results}
    return [(call, results.get(call.call_id)) for call in calls]


def judgements_by_content(judgements: Iterable[Judgement]) -> dict[str, list[Judgement]]:
    """Group judgements by content hash."""
    groups: dict[str, list[Judgement]] = defaultdict(list)
    for judgement in judgements:
        groups[judgement.content_hash].append(judgement)
    return groups


def score_all(
    trajectories: Iterable[Trajectory],
    references: ReferenceSteps,
    config: RewardConfig,
    domain: str | None = None,
    judgements: Mapping[str, Sequence[Judgement]] | None = None,
    calibration: Calibration | None = None,
) -> Iterator[EpisodeScore]:
    """Yield the scores of many trajectories, in order. `references`: calls that each task needs.

    `domain`: the profile that scores all of them; None: the domain of each task. `judgements`: by content hash.
    """
    by_content = judgements or {}
    for trajectory in trajectories:
        profile = load_domain(domain or trajectory.task.domain)
        reference = references.get((trajectory.task.task_id, trajectory.task.task_hash))
        matching = by_content.get(trajectory.effective_hash, ()) if by_content else ()
        yield score(trajectory, profile, config, reference, matching, calibration)
