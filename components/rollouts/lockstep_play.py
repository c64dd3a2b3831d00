"""Play cohorts of episodes in lock-step, in this process or in several worker processes that each hold a model.

In lock-step each turn of all episodes is one batched call of the policy. An infrastructure failure ends one episode's
attempt, never the cohort: the episode is played again with the same seed, and after its last retry it is recorded as
lost, with the cause. A worker that loses its parent process exits.
"""

import contextlib
import multiprocessing
import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from functools import partial
from multiprocessing.connection import wait as wait_for_any
from multiprocessing.process import BaseProcess
from queue import SimpleQueue

import msgspec

from ratchet.components.core import ConfigurationError, InfrastructureError, Policy, RatchetError
from ratchet.components.tasksets import load_taskset
from ratchet.components.trajectories.parallel_shards import exit_with_parent
from ratchet.components.trajectories.token_sidecar import TurnTokens
from ratchet.components.trajectories.trajectory import Trajectory

from .collection_plan import CollectPlan, PlannedEpisode
from .episode_runner import Episode, EpisodeSettings, prepare_policy, prepare_settings
from .independent_play import DEADLINE_CHECK_SECONDS, GIVE_UP_SECONDS, CircuitBreaker, WatchedThreadPool, back_off
from .rollout_spool import token_table


class CohortResult(msgspec.Struct, frozen=True):
    """Trajectories in plan order, the token rows of their turns, and the number of repeated attempts by cause."""

    trajectories: list[Trajectory]
    tokens: list[TurnTokens]
    retried: dict[str, int]


class LockstepPlayer:
    """Plays cohorts one after another. `on_tick` is called several times a second, except during a call of the policy;
    if it raises, play stops and the environments are closed.
    """

    def __init__(self, policy: Policy, settings: EpisodeSettings, on_tick: Callable[[], None] = lambda: None) -> None:
        self._policy = policy
        self._settings = settings
        self._on_tick = on_tick
        self._circuit = CircuitBreaker(settings.patience, time.monotonic)

    def play(self, planned: Sequence[PlannedEpisode]) -> CohortResult:
        """Play every episode to its end and return one record per episode, in the given order.

        Raises the ConfigurationError of an episode, and whatever `on_tick` raises.
        """
        attempts = {episode_plan.episode_id: Episode(episode_plan, self._settings) for episode_plan in planned}
        retried: Counter[str] = Counter()
        pending, tries = list(planned), 0
        while pending:
            # During an outage a single episode probes whether the infrastructure is back; probes use up no retries.
            probing = self._circuit.is_open
            cohort = pending[:1] if probing else pending
            for episode in _CohortRound(cohort, self._policy, self._settings, self._on_tick).play():
                attempts[episode.planned.episode_id] = episode
                self._record_end(episode, first_try=tries == 0)
            pending = [episode_plan for episode_plan in pending if attempts[episode_plan.episode_id].trajectory is None]
            tries += not probing and not self._circuit.is_open
            if tries > self._settings.retries or self._circuit.is_exhausted:
                break
            if pending:
                errors = [attempts[episode_plan.episode_id].infrastructure_error for episode_plan in cohort]
                retried.update(type(error).__name__ for error in errors if error is not None)
                self._sleep(self._circuit.delay() if self._circuit.is_open else back_off(max(tries, 1)))
        episodes = [attempts[episode_plan.episode_id] for episode_plan in planned]
        return CohortResult(
            trajectories=[episode.trajectory or episode.lost_record() for episode in episodes],
            tokens=[row for episode in episodes for row in episode.recorder.tokens],
            retried=dict(retried),
        )

    def _record_end(self, episode: Episode, *, first_try: bool) -> None:
        if episode.infrastructure_error is None:
            self._circuit.record_success()
        else:
            self._circuit.record_failure(type(episode.infrastructure_error).__name__, first_try=first_try)

    def _sleep(self, seconds: float) -> None:
        limit = time.monotonic() + seconds
        while (remaining := limit - time.monotonic()) > 0:
            self._on_tick()
            time.sleep(min(DEADLINE_CHECK_SECONDS, remaining))


class _EpisodeStage:
    """One stage of one episode, as a thread job."""

    def __init__(self, episode: Episode, stage: Callable[[], None]) -> None:
        self._episode = episode
        self._stage = stage

    @property
    def deadline(self) -> float:
        return self._episode.deadline

    def run(self) -> None:
        self._episode.run_guarded(self._stage)

    def give_up(self, error: BaseException | None = None) -> None:
        self._episode.give_up(error)

    def release(self) -> None:
        if self._episode.ended:
            self._episode.release()


class _CohortRound:
    """One attempt at several episodes."""

    def __init__(
        self, planned: Sequence[PlannedEpisode], policy: Policy, settings: EpisodeSettings, on_tick: Callable[[], None]
    ) -> None:
        self._episodes = [Episode(episode_plan, settings) for episode_plan in planned]
        self._policy = policy
        self._settings = settings
        self._on_tick = on_tick
        self._stages: SimpleQueue[_EpisodeStage | None] = SimpleQueue()

    def play(self) -> list[Episode]:
        """Play all episodes and return them, ended."""
        threads = min(self._settings.concurrency, len(self._episodes))
        pool: WatchedThreadPool[_EpisodeStage] = WatchedThreadPool(threads, self._stages.get)
        close_seconds = GIVE_UP_SECONDS
        try:
            self._run_stages(pool, [_EpisodeStage(episode, episode.begin) for episode in self._episodes])
            while running := [episode for episode in self._episodes if not episode.ended]:
                try:
                    replies = self._policy.act([episode.request() for episode in running])
                except InfrastructureError as error:
                    self._give_up_running(pool, error)
                    break
                pairs = zip(running, replies, strict=True)
                self._run_stages(
                    pool, [_EpisodeStage(episode, partial(episode.execute_reply, reply)) for episode, reply in pairs]
                )
            close_seconds = self._settings.timeouts.close
        finally:
            self._give_up_running(pool, InfrastructureError("the cohort was ended"))
            # One None per thread: each takes one and exits.
            for _ in range(threads):
                self._stages.put(None)
            pool.join(close_seconds)
        return self._episodes

    def _run_stages(self, pool: WatchedThreadPool[_EpisodeStage], stages: list[_EpisodeStage]) -> None:
        for stage in stages:
            self._stages.put(stage)
        pending = len(stages)
        while pending:
            pending -= pool.wait() is not None
            self._on_tick()
        for episode in self._episodes:
            if episode.configuration_error is not None:
                raise ConfigurationError(str(episode.configuration_error)) from episode.configuration_error

    def _give_up_running(self, pool: WatchedThreadPool[_EpisodeStage], error: BaseException) -> None:
        pending = [episode for episode in self._episodes if not episode.ended]
        for episode in pending:
            episode.give_up(error)
        pool.release([_EpisodeStage(episode, episode.release) for episode in pending])


EXIT_CODE = 130
"""Exit code of an interrupted collection: 128 + SIGINT."""


class Interrupted(RatchetError):
    """The collection was asked to stop. Finished episodes are saved."""

    exit_code = EXIT_CODE


IDLE_EXIT_SECONDS = 2.0
"""Seconds granted to idle workers to exit by themselves."""


class PlayedCohort(msgspec.Struct, frozen=True):
    """A played cohort: trajectories as JSON lines, tokens as Parquet (None without any), and repeated attempts counted
    by cause.

    Bytes rather than objects, so that a worker process sends what is written to disk as it is.
    """

    trajectories: bytes
    tokens: bytes | None
    retried: dict[str, int]


class CohortPlayer:
    """Plays cohorts with one loaded policy. `on_tick`: see LockstepPlayer."""

    def __init__(self, policy: Policy, settings: EpisodeSettings, on_tick: Callable[[], None]) -> None:
        self._policy = policy
        self._lockstep = LockstepPlayer(policy, settings, on_tick)

    @classmethod
    def load(cls, plan: CollectPlan, on_tick: Callable[[], None]) -> "CohortPlayer":
        """Load the plan's policy; once per worker process."""
        taskset = load_taskset(plan.taskset)
        policy = prepare_policy(plan, taskset)
        return cls(policy, prepare_settings(plan, taskset, policy), on_tick)

    def play(self, planned: list[PlannedEpisode]) -> PlayedCohort:
        """Play one cohort."""
        result = self._lockstep.play(planned)
        lines = msgspec.json.Encoder().encode_lines(result.trajectories)
        return PlayedCohort(lines, token_table(result.tokens, self._policy), result.retried)


def play_cohorts(
    plan: CollectPlan, cohorts: dict[int, list[PlannedEpisode]], on_tick: Callable[[], None]
) -> Generator[tuple[int, PlayedCohort], None, None]:
    """Play the cohorts, by number, in `plan.workers` processes, or in this process if there is one cohort or worker;
    yield (number, played cohort) as each one ends.

    `on_tick` is called several times a second and may raise to stop. Raises InfrastructureError if a worker died. Close
    the generator to stop the workers.
    """
    if plan.workers == 1 or len(cohorts) <= 1:
        player = CohortPlayer.load(plan, on_tick) if cohorts else None
        for index, cohort in cohorts.items():
            assert player is not None
            yield index, player.play(cohort)
        return
    with ProcessPoolExecutor(
        min(plan.workers, len(cohorts)),
        # A fork would copy the locks of torch's and tokenizers' threads in whatever state they are.
        mp_context=multiprocessing.get_context("spawn"),
        initializer=_start_worker,
        initargs=(plan, os.getpid()),
    ) as pool:
        futures = {pool.submit(_play_in_worker, cohort): index for index, cohort in cohorts.items()}
        try:
            yield from _collected(futures, on_tick)
        except BrokenProcessPool as error:
            raise InfrastructureError(
                "a collection worker died (out of memory?); run the same command again"
            ) from error
        finally:
            _stop_workers(pool, futures)


def _collected(
    futures: "dict[Future[PlayedCohort], int]", on_tick: Callable[[], None]
) -> Generator[tuple[int, PlayedCohort], None, None]:
    running = set(futures)
    while running:
        done, running = wait(running, timeout=DEADLINE_CHECK_SECONDS, return_when=FIRST_COMPLETED)
        for future in done:
            yield futures[future], future.result()
        on_tick()


def _stop_workers(pool: ProcessPoolExecutor, futures: "dict[Future[PlayedCohort], int]") -> None:
    """Stop running workers: first ask, so that environments are closed, then kill."""
    pool.shutdown(wait=False, cancel_futures=True)
    pending = [future for future in futures if not future.done()]
    if not pending:
        return
    workers = list(multiprocessing.active_children())  # an executor has no public list of its processes
    for worker in workers:
        worker.terminate()
    wait(pending, timeout=GIVE_UP_SECONDS + 2)
    _await_idle_workers(workers)
    for worker in workers:
        with contextlib.suppress(ValueError):
            worker.kill()


def _await_idle_workers(workers: list[BaseProcess]) -> None:
    """Wait up to IDLE_EXIT_SECONDS for workers to exit by themselves.

    Killing one leaks semaphores, about which Python prints a warning after our last line.
    """
    limit = time.monotonic() + IDLE_EXIT_SECONDS
    running = {worker.sentinel for worker in workers}
    while running and (remaining := limit - time.monotonic()) > 0:
        running -= set(wait_for_any(running, timeout=remaining))


_worker_player: CohortPlayer | None = None
_stop_requested = threading.Event()


def _start_worker(plan: CollectPlan, parent: int) -> None:
    """Initialise a worker process."""
    global _worker_player
    # Ctrl-C reaches the whole process group: the parent alone decides, and sends SIGTERM to its workers.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda number, frame: _stop_requested.set())
    threading.Thread(target=exit_with_parent, args=(parent,), daemon=True).start()
    _worker_player = CohortPlayer.load(plan, _check_stop_requested)


def _play_in_worker(planned: list[PlannedEpisode]) -> PlayedCohort:
    assert _worker_player is not None
    return _worker_player.play(planned)


def _check_stop_requested() -> None:
    if _stop_requested.is_set():
        raise Interrupted("the worker was asked to end")
