"""A cohort: some hundred episodes played in lock-step, so that each turn of all of them is one call of the policy.

An infrastructure failure ends one episode's try, never the cohort: the episode is played again with the same seed, and
set aside with its cause when its retries are spent. A policy that is wrong (no call, an unreadable call) is recorded as such.
"""

import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import msgspec

from components.protocol import (
    Environment,
    InfrastructureError,
    Policy,
    PolicyReply,
    PolicyRequest,
    TimeStep,
    ToolResult,
)
from components.trajectories.record import Agent, Provenance, Trajectory
from components.trajectories.tokens import TurnTokens

from .plan import PlannedEpisode
from .recorder import Recorder, utc_now

BACK_OFF_SECONDS = 0.5


class CohortSettings(msgspec.Struct, frozen=True):
    """What a cohort needs besides its episodes: makers of environments, limits, and where the records come from."""

    make_environment: Callable[[], Environment]
    agent: Agent
    max_turns: int
    threads: int
    retries: int
    provenance: Provenance


class CohortResult(msgspec.Struct, frozen=True):
    """Trajectories in the order of the plan, and the token rows of their turns."""

    trajectories: list[Trajectory]
    tokens: list[TurnTokens]


class _Episode:
    """One running episode: its environment, its recorder, and its end once it has come."""

    def __init__(self, planned: PlannedEpisode, settings: CohortSettings) -> None:
        self.planned = planned
        self.settings = settings
        self.provenance = msgspec.structs.replace(settings.provenance, collected_at=utc_now())
        self.environment = settings.make_environment()
        self.recorder = Recorder(planned, settings.agent, self.environment.tools, planned.task.description)
        self.trajectory: Trajectory | None = None
        self.broken: InfrastructureError | None = None

    def guarded(self, move: Callable[[], None]) -> None:
        """Make a move; an infrastructure failure ends this try and is kept."""
        try:
            move()
        except InfrastructureError as error:
            self.broken = error
        if self.broken is not None or self.trajectory is not None:
            self.environment.close()

    def begin(self) -> None:
        first = self.environment.reset(task=self.planned.task, seed=self.planned.seed)
        self.recorder = Recorder(self.planned, self.settings.agent, self.environment.tools, first.observation)

    def request(self) -> PolicyRequest:
        return PolicyRequest(
            self.planned.episode_id,
            self.planned.task.task_id,
            len(self.recorder.turns),
            self.planned.seed,
            tuple(self.recorder.messages),
            self.environment.tools,
        )

    def take(self, reply: PolicyReply) -> None:
        """Carry out the calls of one reply, in order, until the episode ends."""
        begin = time.perf_counter()
        results: list[ToolResult] = []
        step: TimeStep | None = None
        reward = 0.0
        for call in reply.calls:
            if call.parse_error is not None:
                results.append(ToolResult(call.call_id, f"error: {call.parse_error}", error=call.parse_error))
                continue
            step = self.environment.step({"tool": call.tool, "params": call.arguments, "call_id": call.call_id})
            reward += step.reward
            results.append(msgspec.structs.replace(step.info["result"], call_id=call.call_id))
            if step.done:
                break
        self.recorder.record(reply, results, reward, time.perf_counter() - begin)
        if step is None or not step.done:
            step = self._out_of_turns(reply)
        if step is not None and step.done:
            self.trajectory = self.recorder.finish(
                step.info["outcome"],
                terminated=step.terminated,
                truncated=step.truncated,
                provenance=self.provenance,
            )

    def _out_of_turns(self, reply: PolicyReply) -> TimeStep | None:
        if not reply.calls:
            return self.environment.finish("context" if reply.stop_reason == "context" else "no_call")
        if len(self.recorder.turns) >= self.settings.max_turns:
            return self.environment.finish("max_turns")
        return None


def play_cohort(planned: Sequence[PlannedEpisode], policy: Policy, settings: CohortSettings) -> CohortResult:
    """Play every episode to its end; one record each, in order."""
    ended: dict[str, _Episode] = {}
    pending = list(planned)
    for attempt in range(settings.retries + 1):
        if attempt:
            time.sleep(BACK_OFF_SECONDS * 2 ** (attempt - 1))
        for episode in _lockstep(pending, policy, settings):
            ended[episode.planned.episode_id] = episode
        pending = [each for each in planned if ended[each.episode_id].broken is not None]
        if not pending:
            break
    episodes = [ended[each.episode_id] for each in planned]
    return CohortResult(
        trajectories=[_record(episode) for episode in episodes],
        tokens=[row for episode in episodes for row in episode.recorder.tokens],
    )


def _record(episode: _Episode) -> Trajectory:
    if episode.trajectory is not None:
        return episode.trajectory
    return episode.recorder.fail(episode.broken or InfrastructureError("never played"), episode.provenance)


def _lockstep(planned: Sequence[PlannedEpisode], policy: Policy, settings: CohortSettings) -> list[_Episode]:
    episodes = [_Episode(each, settings) for each in planned]
    with ThreadPoolExecutor(settings.threads) as pool:
        list(pool.map(lambda episode: episode.guarded(episode.begin), episodes))
        while running := [each for each in episodes if each.trajectory is None and each.broken is None]:
            try:
                replies = policy.act([episode.request() for episode in running])
            except InfrastructureError as error:
                for episode in running:
                    episode.broken = error
                    episode.environment.close()
                break
            moves = [partial(episode.take, reply) for episode, reply in zip(running, replies, strict=True)]
            list(pool.map(lambda pair: pair[0].guarded(pair[1]), zip(running, moves, strict=True)))
    return episodes
