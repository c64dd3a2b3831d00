"""Episodes of a service's traffic: outcomes that the trace or feedback proves, and a night of them as sealed shards.

A conversation has an outcome where somebody states it: feedback with `success`, or an event `gen_ai.evaluation.result` named
`task_success` on any span of the conversation, with the label pass or fail or the score 1 or 0. Where statements disagree, and
where there is none, success stays unknown. A night takes the conversations with an outcome; the others wait for late feedback.
"""

import shutil
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from ratchet.components.core import DataError
from ratchet.components.datasets.deduplication.contamination import EvalOverlap, WatchList, build_watch_list, find_leaks
from ratchet.components.datasets.deduplication.find_duplicates import task_rows
from ratchet.components.datasets.deduplication.task_index import TasksetTasks, read_tasks
from ratchet.components.datasets.deduplication.text_ngrams import episode_text, ngram_sets, normalise_text
from ratchet.components.datasets.stage_params import DuplicatesParams
from ratchet.components.interop.otel_spans import episodes_of_spans
from ratchet.components.redaction import Sanitiser
from ratchet.components.rollouts.collection_progress import CollectReport
from ratchet.components.trajectories.shards import read_folder, seal_folder, write_shard
from ratchet.components.trajectories.trajectory import Trajectory

from .traffic_store import Conversation, Feedback, TrafficStore

EVALUATION_EVENT, EVALUATION_NAME = "gen_ai.evaluation.result", "task_success"
"""Name of the event of OpenTelemetry's conventions, and of the evaluation that decides success."""
SHARD_EPISODES = 250
"""Episodes of a shard."""
_LABELS = {"pass": True, "passed": True, "true": True, "fail": False, "failed": False, "false": False}


def conversation_episodes(conversation: Conversation) -> list[Trajectory]:
    """Return the episodes of a conversation with the outcomes that the trace or feedback proves (see the module)."""
    episodes = [episode for episode in episodes_of_spans(conversation.spans) if episode.turns]
    owners = Counter(trace for episode in episodes for trace in episode.source_extra.get("traces", ()))
    return [_with_outcome(episode, conversation.feedback, owners) for episode in episodes]


def _with_outcome(episode: Trajectory, feedback: Sequence[Feedback], owners: Counter[str]) -> Trajectory:
    extra, traces = episode.source_extra, episode.source_extra.get("traces", ())
    # A trace of several conversations does not say which of them the feedback is on.
    mine = [
        note
        for note in feedback
        if (note.trace_id in traces and owners[note.trace_id or ""] == 1)
        or (note.conversation_id is not None and note.conversation_id == extra.get("conversation"))
    ]
    if mine:
        extra = extra | {"feedback": [msgspec.to_builtins(note) for note in mine]}
    statements = {note.success for note in mine} | {_stated(event) for event in extra.get("evaluations", ())}
    statements.discard(None)
    outcome = episode.outcome
    if len(statements) == 1 and not episode.has_infrastructure_failure:
        scores = [note.score for note in mine if note.score is not None]
        outcome = msgspec.structs.replace(
            outcome, success=statements.pop(), score=scores[-1] if scores else outcome.score, reason="feedback"
        )
    elif statements:
        outcome = msgspec.structs.replace(outcome, reason="feedback that disagrees, or on a failed service")
    return msgspec.structs.replace(episode, outcome=outcome, source_extra=extra)


def _stated(event: Any) -> bool | None:
    """Return the success that an evaluation event states; None for other events and evaluations."""
    attributes = event.get("attributes") or {}
    if event.get("name") != EVALUATION_EVENT or attributes.get("gen_ai.evaluation.name") != EVALUATION_NAME:
        return None
    label, score = attributes.get("gen_ai.evaluation.score.label"), attributes.get("gen_ai.evaluation.score.value")
    if isinstance(label, str):
        return _LABELS.get(label.lower())
    return bool(score) if score in (0, 1) else None


class TrafficPlan(NamedTuple):
    """What a night takes: at most `episodes`, of conversations that were quiet for `quiet_seconds`, as tasks of `domain`.

    `tasksets`: folder of the tasksets whose held-out tasks no episode may repeat; `duplicates`: what counts as a repetition.
    """

    episodes: int
    quiet_seconds: float
    domain: str
    tasksets: Path
    duplicates: DuplicatesParams


def take_night(store: TrafficStore, night: str, plan: TrafficPlan, spool: Path, target: Path) -> CollectReport:
    """Seal the conversations with an outcome as the night `target`, and delete their spans; repeated, it ends what was begun.

    Conversations that repeat a held-out task are left to expire. Raises DataError where no conversation has an outcome.
    """
    begin = time.monotonic()
    if not target.exists():
        if next(store.claimed(night), None) is None:
            claims = list(_provable(store, plan))
            if not claims:
                raise DataError(
                    f"{store.path} has no conversation with an outcome yet: feedback must state success "
                    "(docs/receiving.md), and nothing may have been added to it for the time of `quiet_minutes`"
                )
            store.claim(night, claims)
        shutil.rmtree(spool, ignore_errors=True)
        spool.mkdir(parents=True)
        episodes = (episode for conversation in store.claimed(night) for episode in _proven(conversation, plan.domain))
        for index, chunk in enumerate(iter(lambda: list(islice(episodes, SHARD_EPISODES)), [])):
            write_shard(spool, index, chunk)
        seal_folder(spool, target)
    store.delete(night)
    return _report(target, time.monotonic() - begin)


def _provable(store: TrafficStore, plan: TrafficPlan) -> Iterator[tuple[Sequence[str], Sequence[str]]]:
    """Yield the traces and sessions of the conversations that a night may take."""
    tasksets = read_tasks([plan.tasksets])
    watched = build_watch_list(tasksets.held_out, tasksets.train)
    count = 0
    # The spans of one conversation at a time are held: those of a long one repeat its history.
    settled = ((each.traces, each.sessions, _proven(each, plan.domain)) for each in store.settled(plan.quiet_seconds))
    for chunk in iter(lambda: list(islice(settled, SHARD_EPISODES)), []):
        repeated = _repeating([one for _, _, some in chunk for one in some], tasksets, watched, plan.duplicates)
        for traces, sessions, some in chunk:
            if some and repeated.isdisjoint(episode.task.task_id for episode in some):
                if count + len(some) > plan.episodes:
                    return
                count += len(some)
                yield traces, sessions


def _proven(conversation: Conversation, domain: str) -> list[Trajectory]:
    """Return the episodes with a known outcome, as tasks of a domain, sanitised once more as whole records."""
    sanitiser, proven = Sanitiser(), []
    for episode in conversation_episodes(conversation):
        if episode.outcome.success is not None:
            task = msgspec.structs.replace(episode.task, domain=domain)
            clean, _ = sanitiser.trajectory(msgspec.structs.replace(episode, task=task).with_content_hash())
            proven += [clean] if clean is not None else []
    return proven


def _repeating(
    episodes: Sequence[Trajectory], tasksets: TasksetTasks, watched: WatchList, params: DuplicatesParams
) -> set[str]:
    """Return the ids of the tasks at which the build would stop, since they repeat a held-out task."""
    if not episodes:
        return set()
    leaks: defaultdict[str, list[EvalOverlap]] = defaultdict(list)
    texts = [normalise_text(episode_text(episode)) for episode in episodes]
    for leak in find_leaks(watched, ngram_sets(texts), params.leak):
        overlap = EvalOverlap(watched.parts[leak.part].task_id, "an episode contains")
        leaks[episodes[leak.episode].task.task_id].append(overlap)
    played = list(dict.fromkeys(episode.task for episode in episodes))
    return {row.task_id for row in task_rows(played, tasksets, leaks, params) if row.contaminated_by is not None}


def _report(target: Path, seconds: float) -> CollectReport:
    successes, episodes = 0, 0
    versions: Counter[str] = Counter()
    for episode in read_folder(target, verify=False):
        episodes += 1
        successes += episode.outcome.success is True
        versions[episode.agent.policy_version] += 1
    return CollectReport(
        episodes=episodes,
        successes=successes,
        infrastructure_failures=0,
        failures={"feedback": episodes - successes} if successes < episodes else {},
        policy_version=versions.most_common(1)[0][0],
        taskset_hash="",
        seconds=seconds,
        replayed=0,
        retried={},
    )
