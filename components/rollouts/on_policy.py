"""On-policy rollouts for training: attempts at train tasks, kept in memory.

`play` is lock-step: each turn of all attempts is one call of the policy; then their tools run in parallel. `stream`
plays each attempt on its own thread. An attempt that infrastructure ended is repeated with the same seeds, and
returned as lost when its retries are used up.
"""

import json
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any

from pydantic import Field

from ratchet.components.core import (
    ConfigurationError,
    EpisodeAttempt,
    EpisodePlayer,
    EpisodeStream,
    InfrastructureError,
    PlayableTask,
    PlayedEpisode,
    Policy,
    Role,
    TaskSpec,
    TokenTrace,
)
from ratchet.components.core.configuration import Configuration
from ratchet.components.sandboxes import SandboxConfig
from ratchet.components.tasksets import load_taskset
from ratchet.components.trajectories.trajectory import Trajectory

from .collection_plan import CollectPlan, PlannedEpisode, StageTimeouts
from .episode_runner import Episode, EpisodeSettings, prepare_settings
from .independent_play import GIVE_UP_SECONDS, EpisodeQueue, Interruption, WatchedThreadPool
from .lockstep_play import LockstepPlayer


class OnPolicyConfig(Configuration):
    """Configuration of on-policy rollouts. Fields shared with CollectPlan have the same meaning.

    `concurrency`: attempts whose tools run in parallel. `kinds`: restrict to tasks of these kinds (None: all). `limit`:
    restrict to the first tasks of these.
    """

    taskset: str
    kinds: tuple[str, ...] | None = None
    limit: int | None = Field(None, gt=0)
    max_turns: int | None = Field(None, gt=0)
    concurrency: int = Field(32, gt=0)
    retries: int = Field(2, ge=0)
    patience: float = Field(300.0, gt=0)
    timeouts: StageTimeouts = StageTimeouts()
    sandbox: SandboxConfig = SandboxConfig()


class OnPolicyPlayer(EpisodePlayer[Trajectory]):
    """Plays the train tasks of a taskset; it has no access to held-out tasks. `settings`: the values of OnPolicyConfig."""

    def __init__(self, settings: dict[str, Any]) -> None:
        self.settings = OnPolicyConfig.load(settings)
        self._taskset = load_taskset(self.settings.taskset)
        kinds, limit = self.settings.kinds, self.settings.limit
        tasks = [task for task in self._taskset.tasks(Role.TRAIN) if kinds is None or task.kind in kinds][:limit]
        if not tasks:
            raise ConfigurationError(
                f"taskset '{self.settings.taskset}' has no train task to play; choose another taskset or other kinds"
            )
        self._tasks = {task.task_id: task for task in tasks}

    def tasks(self) -> list[PlayableTask]:
        """Return the train tasks in taskset order."""
        return [PlayableTask(task.task_id, task.family, task.kind) for task in self._tasks.values()]

    def solution(self, task_id: str) -> list[str]:
        """Return the reference solution as lines of text for a hint: its actions, or the files to look at and each line
        that the reference adds.
        """
        task = self._task(task_id)
        if task.reference_actions:
            return [
                f"{action['tool']} {json.dumps(action['params'], ensure_ascii=False)}"
                for action in task.reference_actions
            ]
        changed = []
        for path, reference in sorted(task.reference.items()):
            lines = task.files.get(path, "").splitlines()
            changed += [f"{path}: {line.strip()}" for line in reference.splitlines() if line not in lines]
        return [*(f"look at {path}" for path in sorted(task.reference)), *changed]

    def play(self, policy: Policy, attempts: Sequence[EpisodeAttempt]) -> list[PlayedEpisode[Trajectory]]:
        """Play every attempt and return one record each, in order; see EpisodePlayer.

        Raises InfrastructureError if every attempt was lost, ConfigurationError for an unknown task.
        """
        planned = [self._plan(attempt, policy) for attempt in attempts]
        result = LockstepPlayer(policy, self._episode_settings(policy)).play(planned)
        lost_attempts = [attempt for attempt in result.trajectories if attempt.has_infrastructure_failure]
        if planned and len(lost_attempts) == len(planned):
            failure = lost_attempts[0].failure
            raise InfrastructureError(
                f"none of {len(planned)} attempts could be played: {failure.message if failure else 'unknown'}; "
                "see `ratchet doctor`, then start the same command again"
            )
        traces: defaultdict[str, list[TokenTrace]] = defaultdict(list)
        for row in result.tokens:
            traces[row.episode_id].append(row.trace)
        return [PlayedEpisode(attempt, tuple(traces[attempt.episode_id])) for attempt in result.trajectories]

    def stream(self, policy: Policy) -> EpisodeStream[Trajectory]:
        """Return a stream that plays at most `concurrency` attempts at a time; see EpisodePlayer."""
        return _AttemptStream(policy, self._episode_settings(policy), lambda attempt: self._plan(attempt, policy))

    def _plan(self, attempt: EpisodeAttempt, policy: Policy) -> PlannedEpisode:
        task = self._task(attempt.task_id)
        return PlannedEpisode.create(
            task, attempt.number, attempt.seed, policy.version, policy_seed_override=attempt.stream
        )

    def _episode_settings(self, policy: Policy) -> EpisodeSettings:
        settings = self.settings
        plan = CollectPlan(
            taskset=settings.taskset,
            policy=policy.name,
            max_turns=settings.max_turns,
            sandbox=settings.sandbox,
            timeouts=settings.timeouts,
            concurrency=settings.concurrency,
            retries=settings.retries,
            patience=settings.patience,
        )
        return prepare_settings(plan, self._taskset, policy)

    def _task(self, task_id: str) -> TaskSpec:
        task = self._tasks.get(task_id)
        if task is None:
            raise ConfigurationError(
                f"taskset '{self.settings.taskset}' has no train task '{task_id}' to play; take the tasks from this taskset"
            )
        return task


class _AttemptStream(EpisodeStream[Trajectory]):
    """Plays attempts on a watched pool of threads. Those that the infrastructure ends are repeated with the same seeds."""

    def __init__(
        self, policy: Policy, settings: EpisodeSettings, plan: Callable[[EpisodeAttempt], PlannedEpisode]
    ) -> None:
        self._plan = plan
        self._attempts: dict[str, EpisodeAttempt] = {}
        self._queue = EpisodeQueue((), retries=settings.retries, patience=settings.patience)

        def next_job() -> Episode | None:
            planned = self._queue.take()
            return None if planned is None else Episode(planned, settings, policy, self._queue.record_end)

        self._pool: WatchedThreadPool[Episode] = WatchedThreadPool(settings.concurrency, next_job)

    def submit(self, attempt: EpisodeAttempt) -> None:
        planned = self._plan(attempt)
        self._attempts[planned.episode_id] = attempt
        self._queue.add(planned)

    def wait(self) -> tuple[EpisodeAttempt, PlayedEpisode[Trajectory]] | None:
        if self._queue.is_exhausted:
            raise InfrastructureError(
                f"no attempt could be played for too long: {self._queue.waiting_for}; see `ratchet doctor`, then start the "
                "same command again"
            )
        episode = self._pool.wait()
        if episode is None:
            return None
        if episode.configuration_error is not None:
            raise episode.configuration_error
        identity = episode.planned.episode_id
        # A failed attempt is played again until it is set aside; one of a hung thread may end after its repetition.
        is_final = episode.trajectory is not None or identity in self._queue.set_aside
        if not is_final or identity not in self._attempts:
            return None
        attempt = self._attempts.pop(identity)
        traces = tuple(row.trace for row in episode.recorder.tokens)
        return attempt, PlayedEpisode(episode.trajectory or episode.lost_record(), traces)

    def close(self) -> None:
        self._queue.close()
        self._pool.abandon(Interruption("the stream was closed"))
        self._pool.join(GIVE_UP_SECONDS)
