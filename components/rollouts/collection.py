"""Collect many episodes, resumably: each identity once, and no finished episode is lost.

A policy that answers many requests at once plays whole cohorts in lock-step, and an interrupted cohort is played again;
with any other policy each episode is saved when it ends. Only this process writes.
"""

import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from types import FrameType
from typing import NamedTuple

import msgspec

from ratchet.components.core import Environment, InfrastructureError, Policy, Role
from ratchet.components.core.environment_registry import spec
from ratchet.components.models.policy_factory import plays_in_lockstep
from ratchet.components.tasksets import Taskset, load_taskset
from ratchet.components.trajectories.trajectory import Trajectory

from .collection_plan import CollectPlan, PlannedEpisode, plan_cohort, plan_cohorts, plan_episodes, plan_hash
from .collection_progress import CollectionProgress, CollectReport
from .episode_runner import Episode, EpisodeSettings, planned_version, prepare_policy, prepare_settings
from .harness_episode import harness_settings, open_harness
from .independent_play import play_independently
from .lockstep_play import EXIT_CODE, CohortPlayer, Interrupted, PlayedCohort, play_cohorts
from .rollout_spool import RolloutSpool


class LoadedAgent(NamedTuple):
    """A policy that was loaded by the caller, who closes it, and a factory of its environments (None: the taskset's)."""

    policy: Policy
    make_environment: Callable[[], Environment] | None = None


class StopRequest:
    """Signal handler that records the first SIGINT or SIGTERM; true once one was received."""

    def __init__(self) -> None:
        self.signal: int | None = None

    def __bool__(self) -> bool:
        return self.signal is not None

    def handle(self, number: int, frame: FrameType | None) -> None:
        """Record the first signal; end the process on the second, because every finished episode is journaled already."""
        if self.signal is not None:
            # Not `print`, which may be interrupted within itself and then raises; `os._exit` runs no handlers that wait.
            os.write(
                2, b"\nerror: ended at once; finished episodes are saved, and the same command goes on from there\n"
            )
            os._exit(EXIT_CODE)
        self.signal = number


@contextmanager
def handle_stop_signals() -> Iterator[StopRequest]:
    """Handle SIGINT and SIGTERM by a StopRequest within the context.

    In another thread than the main one, where Python allows no handlers, the StopRequest stays false.
    """
    stop_request = StopRequest()
    if threading.current_thread() is not threading.main_thread():
        yield stop_request
        return
    previous = {number: signal.signal(number, stop_request.handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop_request
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


REPORT_SECONDS = 0.2
"""Seconds between progress reports."""
SYNC_SECONDS = 2.0
"""Seconds between fsyncs of the journals."""


def collect(
    plan: CollectPlan,
    folder: Path,
    *,
    cohort: int | None = None,
    agent: LoadedAgent | None = None,
    on_progress: Callable[[CollectionProgress], None] | None = None,
) -> CollectReport:
    """Collect the plan's episodes into `folder`; resume if an earlier run was interrupted.

    `cohort`: play only the cohort of that number. `agent`: the plan's policy where the caller has loaded it.

    Raises Interrupted after the first SIGINT or SIGTERM (the second ends the process at once), InfrastructureError if
    fewer than the share `min_completed` of the episodes could be played, ConfigurationError for an invalid plan.
    Finished episodes are saved in each case.
    """
    taskset = load_taskset(plan.taskset)
    spec(taskset.head.environment)  # raises for an unregistered environment, before a model is loaded
    version = planned_version(plan, taskset)
    planned = plan_episodes(plan, taskset, version) if cohort is None else plan_cohort(plan, taskset, version, cohort)
    identity = plan_hash(plan, version, taskset.hash)
    return play_into(folder, planned, identity, plan, taskset, cohort=cohort, agent=agent, on_progress=on_progress)


def play_into(
    folder: Path,
    planned: list[PlannedEpisode],
    identity: str,
    plan: CollectPlan,
    taskset: Taskset,
    *,
    cohort: int | None = None,
    agent: LoadedAgent | None = None,
    on_progress: Callable[[CollectionProgress], None] | None = None,
) -> CollectReport:
    """Like `collect`, for episodes that are planned already.

    `identity`: hash of the plan, stored in a new folder; a folder with another one is refused. `planned` must be the
    same on resumption; with `cohort`, it holds the episodes of that cohort. `agent` plays in this process; None: the plan's
    policy. `on_progress` is called about five times a second with the same, updated object.

    Raises what `collect` raises.
    """
    version = agent.policy.version if agent else planned_version(plan, taskset)
    episodes_by_cohort = plan_cohorts(plan, planned) if cohort is None else {cohort: planned}
    with handle_stop_signals() as stop_request, RolloutSpool(folder, episodes_by_cohort, identity) as spool:
        collection = _Collection(plan, taskset, spool, stop_request, on_progress or (lambda progress: None), agent)
        try:
            if plan.harness is None and (agent.policy.lockstep if agent else plays_in_lockstep(plan.policy)):
                collection.play_in_lockstep()
            else:
                collection.play_independently()
        except Interrupted as interruption:  # only now is it known what was saved
            total = collection.progress.total
            raise Interrupted(
                f"interrupted; {spool.saved_count} of {total} episodes are saved, and the same command goes on from there"
            ) from interruption
        return collection.report(version)


class _Collection:
    """State of one running `collect`."""

    def __init__(
        self,
        plan: CollectPlan,
        taskset: Taskset,
        spool: RolloutSpool,
        stop_request: StopRequest,
        on_progress: Callable[[CollectionProgress], None],
        agent: LoadedAgent | None,
    ) -> None:
        self._agent = agent
        self._plan = plan
        self._taskset = taskset
        self._spool = spool
        self._stop_request = stop_request
        self._on_progress = on_progress
        self._started_at = self._synced_at = time.monotonic()
        self._reported_at = 0.0
        self._played_now = 0
        self._loss_causes: Counter[str] = Counter()
        self.progress = CollectionProgress(total=sum(map(len, spool.cohorts.values())))
        for trajectory in spool.saved():
            self.progress.add(trajectory, saved=True)

    def play_independently(self) -> None:
        """Play the missing episodes: each is journaled when it ends, each complete cohort becomes a shard."""
        spool, missing = self._spool, self._spool.missing()
        if not spool.unfinished():
            self._report_progress()
            return  # without loading a policy, which may start a server
        self._played_now = len(missing)
        with self._load() as (policy, settings):
            for number in spool.unfinished():
                spool.seal_complete(number, policy)
            self._report_progress()

            def save(episode: Episode) -> None:
                assert episode.trajectory is not None
                branches = getattr(episode, "branches", ()) if episode.planned.task.role is Role.TRAIN else ()
                ids = {episode.trajectory.episode_id, *(branch.episode_id for branch in branches)}
                tokens = [row for row in episode.recorder.tokens if row.episode_id in ids]
                spool.save(episode.trajectory, tokens, policy, branches)
                self.progress.add(episode.trajectory)

            unplayed = play_independently(
                missing, policy, settings, progress=self.progress, save=save, on_tick=self._on_tick
            )
            records = [episode.lost_record() for episode in unplayed]
            self._check_min_completed(records)
            for record in records:
                spool.save(record, [], policy)
        self._report_progress()

    @contextmanager
    def _load(self) -> Iterator[tuple[Policy, EpisodeSettings]]:
        """Yield the policy, which is closed afterwards unless it was given, and the settings of its episodes."""
        config = self._plan.harness
        if config is not None:
            config.sandbox(self._plan.sandbox)  # raises for `programs` that it cannot show, before a model is loaded
        with ExitStack() as stack:
            agent = self._agent or LoadedAgent(stack.enter_context(closing(prepare_policy(self._plan, self._taskset))))
            policy, settings = agent.policy, prepare_settings(self._plan, self._taskset, *agent)
            if config is not None:
                kind, concurrency = settings.agent.policy, self._plan.concurrency
                harness = stack.enter_context(open_harness(config, policy, kind, concurrency))
                settings = harness_settings(settings, harness)
            yield policy, settings

    def _play_cohorts(
        self, episodes_by_cohort: dict[int, list[PlannedEpisode]]
    ) -> Generator[tuple[int, PlayedCohort], None, None]:
        if self._agent is None:
            with closing(play_cohorts(self._plan, episodes_by_cohort, self._on_tick)) as played:
                yield from played
            return
        with self._load() as (policy, settings):
            player = CohortPlayer(policy, settings, self._on_tick)
            for number, cohort in episodes_by_cohort.items():
                yield number, player.play(cohort)

    def play_in_lockstep(self) -> None:
        """Play the cohorts that have no shard."""
        episodes_by_cohort = {number: list(self._spool.cohorts[number]) for number in self._spool.unfinished()}
        self._played_now = sum(map(len, episodes_by_cohort.values()))
        self._report_progress()
        with closing(self._play_cohorts(episodes_by_cohort)) as played:
            for number, cohort in played:
                self._save_cohort(number, cohort)
                self._on_tick()
        self._report_progress()

    def _save_cohort(self, number: int, cohort: PlayedCohort) -> None:
        """Write a cohort's shard.

        Raises InfrastructureError, and writes nothing, if too many episodes were lost: a later run plays it again.
        """
        trajectories = [msgspec.json.decode(line, type=Trajectory) for line in cohort.trajectories.splitlines()]
        for cause, count in cohort.retried.items():
            self.progress.retried[cause] = self.progress.retried.get(cause, 0) + count
        for trajectory in trajectories:
            self.progress.add(trajectory)
        self._check_min_completed([trajectory for trajectory in trajectories if trajectory.has_infrastructure_failure])
        self._spool.write(number, cohort.trajectories, cohort.tokens)

    def _check_min_completed(self, lost_episodes: list[Trajectory]) -> None:
        """Raise InfrastructureError if more episodes were lost to infrastructure than the plan allows."""
        self._loss_causes.update(
            f"{trajectory.failure.type}: {trajectory.failure.message}"
            for trajectory in lost_episodes
            if trajectory.failure is not None
        )
        progress = self.progress
        if progress.lost > (1 - self._plan.min_completed) * progress.total:
            cause = " ".join(self._loss_causes.most_common(1)[0][0].split()) if self._loss_causes else "unknown"
            raise InfrastructureError(
                f"{progress.lost} of {progress.total} episodes were lost, more than min_completed "
                f"{self._plan.min_completed} allows; mostly {cause}; "
                f"{'the others are saved; ' if progress.lost < progress.total else ''}"
                "see `ratchet doctor`, then run the same command again"
            )

    def _on_tick(self) -> None:
        """Report progress and sync the journals when it is time. Raises Interrupted if a stop was requested."""
        now = time.monotonic()
        if now - self._reported_at >= REPORT_SECONDS:
            self._report_progress()
        if now - self._synced_at >= SYNC_SECONDS:
            self._synced_at = now
            self._spool.sync()
        if self._stop_request:
            raise Interrupted("interrupted")

    def _report_progress(self) -> None:
        self._reported_at = time.monotonic()
        self.progress.measure()
        self._on_progress(self.progress)

    def report(self, version: str) -> CollectReport:
        """Return the final report; counts include the episodes of earlier runs."""
        progress = self.progress
        return CollectReport(
            episodes=progress.done,
            successes=progress.successes,
            infrastructure_failures=progress.lost,
            failures=dict(sorted(progress.failures.items())),
            policy_version=version,
            taskset_hash=self._taskset.hash,
            seconds=time.monotonic() - self._started_at,
            replayed=self._played_now,
            retried=dict(sorted(progress.retried.items())),
        )
