"""Log sampled episodes as traces in MLflow, where people give feedback, and read the feedback as labels.

For an evaluation, the episodes that made the difference come first: for each flipped task, both agents' episodes of an
attempt that only one of them solved.
"""

import logging
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import replace

from ratchet.components.core import InfrastructureError
from ratchet.components.evaluation.agent_comparison import TaskFlip, take_turns
from ratchet.components.evaluation.agent_results import AgentResult
from ratchet.components.redaction import Sanitiser
from ratchet.components.rewards.annotation_records import OVERALL, Judgement, Label
from ratchet.components.rewards.episode_score import EpisodeScore
from ratchet.components.rewards.human_labels.label_files import parse_label_value
from ratchet.components.trajectories.terminal_rendering import single_line
from ratchet.components.trajectories.trajectory import Trajectory, digest

from .episode_trace import EPISODE_SCORES, SUCCESS, EpisodeTrace, episode_trace, parse_span_id
from .mlflow_client import call_mlflow, client
from .run_writer import TrackedRun
from .trace_writer import CONTENT_HASH_KEY, DOMAIN_KEY, EPISODE_KEY, search_traces

if TYPE_CHECKING:
    from mlflow.entities import Assessment, TraceInfo


FLIP_TAG, PAIR_TAG, AGENT_TAG = "flip", "pair", "agent"
MAX_PAIR_NAME = 160
"""Characters of a task in the name of a pair; databases have limits."""


class PairSample(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Numbers of episode pairs to show: of `flipped` tasks (half of them losses, if there are as many), and of `tied`
    tasks, which did not flip.
    """

    flipped: int = 50
    tied: int = 10


class PairedTrace(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An episode to show, with the tags of its trace. `agent`: champion or challenger; `flip`: whether the challenger
    won, lost or tied. The two episodes with the same `pair` are the same attempt at the same task.
    """

    episode_id: str
    agent: str
    flip: str
    pair: str

    @property
    def tags(self) -> dict[str, str]:
        """The values of the trace's tags by name."""
        return {FLIP_TAG: self.flip, PAIR_TAG: self.pair, AGENT_TAG: self.agent}


def sample_paired_traces(
    flips: Sequence[TaskFlip],
    champion: AgentResult,
    challenger: AgentResult,
    sample: PairSample,
    seed: int = 0,
    role: str = "promote",
) -> list[PairedTrace]:
    """Return pairs of episodes in reading order: flips in the given order with wins and losses in turn, then ties,
    drawn at random by `seed` from the tasks of `role`.
    """
    traces: list[PairedTrace] = []
    wins_first = sorted(flips, key=lambda flip: not flip.won)
    for flip in take_turns(wins_first, lambda flip: flip.won)[: sample.flipped]:
        if flip.attempts:
            first, outcome = flip.attempts[0], "won" if flip.won else "lost"
            traces += _traces_of_pair(flip.task_id, outcome, first.attempt, first.a_episode, first.b_episode)
    return traces + _sample_ties({flip.task_id for flip in flips}, champion, challenger, sample.tied, seed, role)


def _traces_of_pair(task_id: str, flip: str, attempt: int, champion: str, challenger: str) -> list[PairedTrace]:
    pair = f"{single_line(task_id, MAX_PAIR_NAME)} #{attempt}"
    return [PairedTrace(champion, "champion", flip, pair), PairedTrace(challenger, "challenger", flip, pair)]


def _sample_ties(
    flipped: set[str], champion: AgentResult, challenger: AgentResult, count: int, seed: int, role: str
) -> list[PairedTrace]:
    champion_attempts, challenger_attempts = _first_attempts(champion, role), _first_attempts(challenger, role)
    tasks = sorted(
        (champion_attempts.keys() & challenger_attempts.keys()) - flipped, key=lambda task_id: digest(seed, task_id)
    )
    return [
        trace
        for task_id in tasks[:count]
        for trace in _traces_of_pair(task_id, "tied", 0, champion_attempts[task_id], challenger_attempts[task_id])
    ]


def _first_attempts(result: AgentResult, role: str) -> Mapping[str, str]:
    """Return the episode of attempt 0 at each task with a known outcome."""
    return {
        task.task_id: attempt.episode_id
        for task in result.of(role)
        for attempt in task.attempts
        if attempt.attempt == 0 and attempt.success is not None
    }


BATCH_TRACES, BATCH_SPANS = 20, 1000
"""Most traces, and most spans, that are uploaded at once, in one transaction of MLflow's database."""
LOOKBACK_DAYS = 90
"""Age in days of the oldest traces whose feedback is read, which limits what MLflow has to search."""
STEP_ASSESSMENTS = {SUCCESS, *EPISODE_SCORES, "judge", "learned", "feedback"}
"""Names of assessments of a step as a whole, not of one criterion: our own, which people correct, and MLflow's default
name.
"""
_log = logging.getLogger(__name__)


class TraceSample(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Numbers of episodes to log as traces; a trace costs MLflow about 0.1 s. `best` and `worst` by total score."""

    best: int = 50
    worst: int = 50
    random: int = 50


class TraceReport(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Numbers of traces `chosen` to be logged, of those of the run `found` in MLflow afterwards, and of those `waiting`
    in the spool or refused.
    """

    chosen: int
    found: int
    waiting: int


def sample_episodes(totals: Mapping[str, float | None], sample: TraceSample, seed: int = 0) -> list[str]:
    """Return the ids of the episodes to log: the best by total score, the worst, and a random sample of all others.

    `totals`: score by episode id; an episode whose total is None can only be in the random sample.
    """
    ranked = sorted(
        (episode_id for episode_id in totals if totals[episode_id] is not None),
        key=lambda episode_id: (totals[episode_id], episode_id),
    )
    best = ranked[len(ranked) - min(sample.best, len(ranked)) :][::-1]
    worst = ranked[: min(sample.worst, len(ranked) - len(best))]
    chosen = dict.fromkeys([*best, *worst])
    # By hash instead of a generator: the sample must not depend on the order in which episodes were scored.
    others = sorted(
        (episode_id for episode_id in totals if episode_id not in chosen),
        key=lambda episode_id: digest(seed, episode_id),
    )
    return [*chosen, *others[: sample.random]]


def log_traces(
    run: TrackedRun,
    trajectories: Iterable[Trajectory],
    scores: Mapping[str, EpisodeScore],
    judgements: Iterable[Judgement] = (),
    *,
    paired_traces: Iterable[PairedTrace] = (),
    sanitiser: Sanitiser | None = None,
) -> TraceReport:
    """Log episodes as traces of a run, with secrets removed, and count those that MLflow has afterwards. Traces are
    spooled while MLflow is down. Logging an episode again leaves one trace.

    `scores`: by episode id. `paired_traces`: tags for episodes of a pair, which MLflow then shows together.
    `sanitiser`: removes the secrets, by default with its default settings; an episode that it rejects is left out.
    """
    pairs = {paired.episode_id: paired for paired in paired_traces}
    sanitiser = sanitiser or Sanitiser()
    by_episode: dict[str, list[Judgement]] = defaultdict(list)
    for judgement in judgements:
        by_episode[judgement.episode_id].append(judgement)
    chosen = waiting = 0

    def traces() -> Iterator[EpisodeTrace]:
        for trajectory in trajectories:
            episode, (clean, _) = trajectory.episode_id, sanitiser.trajectory(trajectory)
            if clean is not None:
                # Feedback is about the episode as it was played: labels are found by that hash.
                clean = replace(clean, content_hash=trajectory.content_hash)
                trace = episode_trace(clean, scores.get(episode), by_episode[episode], begin=time.time_ns())
                # The reasons of scores may quote the episode, with its secrets.
                assessments = tuple(
                    replace(assessment, rationale=sanitiser.text(assessment.rationale).text)
                    for assessment in trace.assessments
                )
                yield _with_pair_tags(replace(trace, assessments=assessments), pairs.get(episode))

    for batch in _batches(traces()):
        chosen += len(batch)
        waiting += 0 if run.log_traces(batch) else len(batch)
    report = TraceReport(chosen, _count_traces(run) if waiting < chosen else 0, waiting)
    if report.found < chosen - waiting:
        _log.warning("MLflow keeps %d of %d traces of run '%s'", report.found, chosen - waiting, run.name)
    return report


def _batches(traces: Iterable[EpisodeTrace]) -> Iterator[list[EpisodeTrace]]:
    """Yield batches of at most BATCH_TRACES traces and BATCH_SPANS spans; a larger trace goes alone."""
    batch: list[EpisodeTrace] = []
    spans = 0
    for trace in traces:
        if batch and (len(batch) == BATCH_TRACES or spans + len(trace.spans) > BATCH_SPANS):
            yield batch
            batch, spans = [], 0
        batch.append(trace)
        spans += len(trace.spans)
    if batch:
        yield batch


def _with_pair_tags(trace: EpisodeTrace, label: PairedTrace | None) -> EpisodeTrace:
    if label is None:
        return trace
    name = f"{label.flip}: {trace.name}"[:200]
    return replace(trace, name=name, tags={**trace.tags, **label.tags}, session=label.pair)


def _count_traces(run: TrackedRun) -> int:
    try:
        return call_mlflow(lambda: sum(1 for _ in search_traces(_experiment_ids(run.experiment), run.key)))
    except InfrastructureError:
        return 0


def _experiment_ids(name: str | None = None) -> list[str]:
    """Return the ids of all experiments, or of one."""
    experiments = client().search_experiments(filter_string=f"name = '{name}'" if name else None)
    return [experiment.experiment_id for experiment in experiments]


class HumanFeedback(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Human feedback from MLflow: as labels, and the numbers of items that cannot be labels by reason (`refused`)."""

    labels: list[Label]
    refused: dict[str, int]


def read_feedback(experiment: str | None = None) -> HumanFeedback:
    """Return human feedback on the traces of the last LOOKBACK_DAYS, without superseded versions.

    `experiment`: its name, None for all experiments.

    Raises InfrastructureError where MLflow does not answer.
    """
    since = int((time.time() - LOOKBACK_DAYS * 86_400) * 1000)

    def fetch_labels() -> HumanFeedback:
        labels: list[Label] = []
        refused: Counter[str] = Counter()
        for info in search_traces(_experiment_ids(experiment), since=since):
            for assessment in info.assessments:
                if assessment.source.source_type != "HUMAN" or assessment.valid is False:
                    continue
                try:
                    labels.append(_as_label(info, assessment))
                except ValueError as error:
                    refused[str(error)] += 1
        return HumanFeedback(labels, dict(refused))

    return call_mlflow(fetch_labels)


def _as_label(info: "TraceInfo", assessment: "Assessment") -> Label:
    """Return an assessment as a label. Raises ValueError where it is none."""
    if f"ratchet.{FLIP_TAG}" in info.tags:
        raise ValueError("it is about an episode of an evaluation, and those are never learned from")
    if assessment.feedback is None:
        raise ValueError("it is an expectation, and no judgement of what was done")
    value = assessment.feedback.value
    if value is None or assessment.feedback.error is not None:
        raise ValueError("it has no value")
    position = parse_span_id(assessment.span_id)
    if position is None:
        raise ValueError("it stands on a span that is not ours")
    metadata: dict[str, Any] = info.trace_metadata
    changed_at = datetime.fromtimestamp((assessment.last_update_time_ms or 0) / 1000, UTC)
    return Label(
        episode_id=metadata[EPISODE_KEY],
        content_hash=metadata[CONTENT_HASH_KEY],
        domain=metadata[DOMAIN_KEY],
        turn=position[0],
        step=position[1],
        line=_rubric_line(assessment.name),
        value=parse_label_value(value),
        annotator=assessment.source.source_id or "mlflow",
        comment=assessment.rationale or "",
        labelled_at=changed_at.isoformat(timespec="microseconds"),
    )


def _rubric_line(name: str) -> str:
    """Return the rubric line of an assessment's name, such as `judge.goal_progress`."""
    layer, dot, criterion = name.partition(".")
    if dot and layer in ("judge", "learned"):
        return criterion
    return OVERALL if name in STEP_ASSESSMENTS else name
