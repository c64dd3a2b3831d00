"""Play one planned episode from reset to its end. An error ends that attempt and nothing else.

Also prepares what the episodes of a collection share (policy, settings). A branched episode first replays the recorded
turns of its parent; it is valid only if its environment repeats them, so any divergence ends the attempt.
"""

import contextlib
import logging
import math
import os
import subprocess
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec

from ratchet.components.core import (
    ConfigurationError,
    Environment,
    InfrastructureError,
    Policy,
    PolicyReply,
    PolicyRequest,
    TimeStep,
    ToolResult,
)
from ratchet.components.core.environment_registry import make, spec
from ratchet.components.core.run_context import working_on
from ratchet.components.models.callable_policy import SystemPromptPolicy, version_with_system
from ratchet.components.models.policy_factory import make_policy, policy_version
from ratchet.components.tasksets import Taskset
from ratchet.components.trajectories.trajectory import Agent, Provenance, Trajectory, Turn

from .collection_plan import Branch, CollectPlan, PlannedEpisode, Stage, StageTimeout, StageTimeouts
from .episode_replay import ReplayDivergence, opening_divergence, result_divergences
from .trajectory_recorder import EpisodeRecorder, utc_now

if TYPE_CHECKING:
    from .harness_episode import Harness

_log = logging.getLogger(__name__)


class Diverged(InfrastructureError):
    """The environment did not repeat the parent's recorded turns, so the branch is invalid and gets no reward."""


def check_replayed_step(parent: Trajectory, turn: Turn, tool: str, recorded: ToolResult, step: TimeStep) -> None:
    """Raise Diverged if a replayed call of `tool` (`step`) has another observation, blob or exit code than `recorded`,
    or if it ended the episode.
    """
    place = f"episode {parent.episode_id}, turn {turn.index} ({tool})"
    if step.done:
        raise Diverged(f"{place} ends the episode now; branch from that turn or an earlier one")
    now: ToolResult = step.info["result"]
    for divergence in result_divergences(recorded, now):
        if divergence.field == "observation":
            raise Diverged(f"{place} answers otherwise now{_line_text(divergence)}")
        if divergence.field in ("blob", "exit_code"):
            raise Diverged(
                f"{place} ends otherwise now: exit code {recorded.exit_code} recorded, {now.exit_code} played"
            )


def _line_text(divergence: ReplayDivergence) -> str:
    return f", line {divergence.line}: {divergence.recorded!r} recorded, {divergence.replayed!r} played"


class EpisodeSettings(msgspec.Struct, frozen=True):
    """Settings shared by all episodes of a collection: environment factory, recorded agent, limits, provenance, and the
    policy's system prompt; `harness`: the program that plays. Fields that CollectPlan has too have the same meaning.
    """

    make_environment: Callable[[], Environment]
    agent: Agent
    max_turns: int
    provenance: Provenance = Provenance()
    timeouts: StageTimeouts = StageTimeouts()
    concurrency: int = 16
    retries: int = 2
    patience: float = 300.0
    system: str | None = None
    harness: "Harness | None" = None


class Episode:
    """One attempt at a planned episode. It ends exactly once, and then has one of three results:

    - `trajectory`: played to an end (also if the policy failed: `trajectory.failure` has the kind policy);
    - `infrastructure_error`: infrastructure failed, or an environment raised an unexpected error;
    - `configuration_error`: a configuration error that affects every episode.

    `policy`: needed by `run` only; in lock-step, replies are passed to `execute_reply` instead.
    `deadline`: time (`time.monotonic`) at which the running stage counts as hung; another thread may then `give_up` the
    attempt. `on_end` is called once, by the thread that ended it.
    """

    def __init__(
        self,
        planned: PlannedEpisode,
        settings: EpisodeSettings,
        policy: Policy | None = None,
        on_end: Callable[["Episode"], None] = lambda episode: None,
    ) -> None:
        self.planned = planned
        self.settings = settings
        self.policy = policy
        self.provenance = msgspec.structs.replace(settings.provenance, collected_at=utc_now())
        self.recorder = EpisodeRecorder(planned, settings.agent, (), planned.task.description, settings.system)
        self.trajectory: Trajectory | None = None
        self.infrastructure_error: BaseException | None = None
        self.configuration_error: ConfigurationError | None = None
        self.ended = False
        self.stage: Stage = "reset"
        self.deadline = math.inf
        self._environment: Environment | None = None
        self._on_end = on_end
        self._lock = threading.Lock()

    def run(self) -> None:
        """Play the whole episode. Never raises."""
        self.run_guarded(self._play)

    def run_guarded(self, move: Callable[[], None]) -> None:
        """Call `move`, which plays a part of the attempt; an exception ends the attempt and is stored, not raised."""
        try:
            with working_on(task=self.planned.task.task_id, episode=self.planned.episode_id):
                move()
        except ConfigurationError as error:
            self._end(configuration_error=error)
        except BaseException as error:  # an environment may raise anything, SystemExit included
            self._end(infrastructure_error=error)
        finally:
            self.deadline = math.inf

    def _play(self) -> None:
        assert self.policy is not None
        self.begin()
        while not self.ended:
            self._enter("act")
            try:
                (reply,) = self.policy.act((self.request(),))
            except (InfrastructureError, ConfigurationError):
                raise
            except Exception as error:
                # Not repeated: the policy would fail again, and the episode is graded as it stands.
                self._finish(self._grade("policy_error"), error)
                return
            self.execute_reply(reply)

    def begin(self) -> None:
        """Create and reset the environment, and replay the prefix shared with the parent."""
        self._enter("reset")
        environment = self._environment = self.settings.make_environment()
        first = environment.reset(task=self.planned.task, seed=self.planned.seed)
        self.provenance = msgspec.structs.replace(self.provenance, **first.info.get("sandbox", {}))
        self.recorder = EpisodeRecorder(
            self.planned, self.settings.agent, environment.tools, first.observation, self.settings.system
        )
        if self.planned.branch is not None:
            self._replay_prefix(self.planned.branch, first.observation)

    def _replay_prefix(self, branch: Branch, observation: str) -> None:
        """Replay the parent's turns before the branching point. Raises Diverged."""
        if (divergence := opening_divergence(branch.parent, observation)) is not None:
            raise Diverged(f"episode {branch.parent.episode_id} opens otherwise now{_line_text(divergence)}")
        for turn in branch.parent.turns[: branch.turn]:
            for call, recorded in zip(turn.calls, turn.results, strict=False):
                if call.parse_error is None:
                    self._enter("step")
                    action = {"tool": call.tool, "params": call.arguments, "call_id": call.call_id}
                    check_replayed_step(branch.parent, turn, call.tool, recorded, self.environment.step(action))
            self.recorder.record_replayed(turn)

    def request(self) -> PolicyRequest:
        """Return the next request to the policy."""
        recorder, planned = self.recorder, self.planned
        return PolicyRequest(
            planned.episode_id,
            planned.task.task_id,
            len(recorder.turns),
            planned.policy_seed,
            recorder.conversation,
            recorder.tools,
        )

    def execute_reply(self, reply: PolicyReply) -> None:
        """Execute the calls of a reply, in order, until the episode ends, and record the turn.

        A reply without calls, or at the turn limit, ends the episode too: it is graded as it stands.
        """
        begin = time.perf_counter()
        results: list[ToolResult] = []
        call_seconds: list[float] = []
        step: TimeStep | None = None
        reward = 0.0
        for call in reply.calls:
            if call.parse_error is not None:
                results.append(ToolResult(call.call_id, f"error: {call.parse_error}", error=call.parse_error))
                call_seconds.append(0.0)
                continue
            self._enter("step")
            call_begin = time.perf_counter()
            step = self.environment.step({"tool": call.tool, "params": call.arguments, "call_id": call.call_id})
            reward += step.reward
            result: ToolResult = step.info.get("result") or ToolResult(call.call_id, step.observation)
            if result.call_id != call.call_id:
                result = msgspec.structs.replace(result, call_id=call.call_id)
            results.append(result)
            call_seconds.append(time.perf_counter() - call_begin)
            if step.done:
                break
        if not reply.calls and reply.stop_reason != "context":
            self._enter("grade")
            step = self.environment.answer(reply.text, truncated=reply.stop_reason == "length")
            # Where replies in text are no answers the policy stopped, and an end from outside is no reward of the turn.
            reward = step.reward if step.terminated else 0.0
        self.recorder.record(reply, results, reward, time.perf_counter() - begin, call_seconds)
        if step is None or not step.done:
            step = None
            if not reply.calls:
                step = self._grade("context")
            elif len(self.recorder.turns) >= self.settings.max_turns:
                step = self._grade("max_turns")
        if step is not None:
            self._finish(step)

    def _grade(self, reason: str) -> TimeStep:
        self._enter("grade")
        return self.environment.finish(reason)

    def _finish(self, step: TimeStep, policy_error: Exception | None = None) -> None:
        self._end(
            trajectory=self.recorder.finish(
                step.info.get("outcome") or {},
                terminated=step.terminated,
                truncated=step.truncated,
                provenance=self.provenance,
                policy_error=policy_error,
            )
        )

    @property
    def environment(self) -> Environment:
        """Return the environment created by `begin`."""
        assert self._environment is not None
        return self._environment

    def give_up(self, error: BaseException | None = None) -> None:
        """End the attempt from another thread, with `error` or because the running stage hung. Only the first end
        counts.
        """
        if error is None:
            limit = self.settings.timeouts.limit(self.stage)
            error = StageTimeout(f"{self.stage} took longer than {limit:g} s; the episode's try was given up")
        self._end(infrastructure_error=error)

    def release(self) -> None:
        """Close the environment. Idempotent, and safe while a hung stage is inside it, which usually ends that stage."""
        if self._environment is not None:
            self._enter("close")
            with contextlib.suppress(Exception):  # containers that it leaves behind are removed later, by their label
                self._environment.close()
            self.deadline = math.inf

    def lost_record(self) -> Trajectory:
        """Return the record of an attempt that infrastructure ended; it has no outcome."""
        return self.recorder.fail(self.infrastructure_error or InfrastructureError("never played"), self.provenance)

    def _enter(self, stage: Stage) -> None:
        self.stage = stage
        self.deadline = time.monotonic() + self.settings.timeouts.limit(stage)

    def _end(
        self,
        *,
        trajectory: Trajectory | None = None,
        infrastructure_error: BaseException | None = None,
        configuration_error: ConfigurationError | None = None,
    ) -> None:
        with self._lock:
            if self.ended:
                return
            self.trajectory = trajectory
            self.infrastructure_error, self.configuration_error = infrastructure_error, configuration_error
            self.ended = True
        _log.info("episode ended: %s", self._end_text())
        self._on_end(self)

    def _end_text(self) -> str:
        error = self.configuration_error or self.infrastructure_error
        outcome = self.trajectory.outcome if self.trajectory is not None else None
        if outcome is None:
            return f"{type(error).__name__}: {error}"
        return "success" if outcome.success else outcome.reason or "unknown"


SPARE_STEPS = 8
"""How much larger the environment's own step limit is than the turn limit. A turn may hold several calls, and the turn
limit is to be the one that ends an episode.
"""
DEFAULT_TURNS = 20
"""Limit of a policy's replies in an environment that is not registered."""


def prepare_policy(plan: CollectPlan, taskset: Taskset) -> Policy:
    """Load the plan's policy, or start its server; the caller closes it. Raises ConfigurationError, DataError."""
    policy = make_policy(
        plan.policy,
        taskset,
        temperature=plan.temperature,
        top_p=plan.top_p,
        max_new_tokens=plan.max_new_tokens,
        threads=plan.model_threads or max(1, (os.cpu_count() or 1) // plan.workers),
    )
    return policy if plan.system is None else SystemPromptPolicy(policy, plan.system)


def planned_version(plan: CollectPlan, taskset: Taskset) -> str:
    """Return the version of the plan's policy with its system prompt, without loading a model."""
    version = policy_version(plan.policy, taskset)
    return version if plan.system is None else version_with_system(version, plan.system)


def prepare_settings(
    plan: CollectPlan, taskset: Taskset, policy: Policy, make_environment: Callable[[], Environment] | None = None
) -> EpisodeSettings:
    """Return the settings shared by all episodes. `make_environment` None: the taskset's environment. Raises
    ConfigurationError if that is not registered.
    """
    environment = taskset.head.environment
    max_turns = plan.max_turns or (spec(environment).turns if make_environment is None else DEFAULT_TURNS)
    if make_environment is None:
        arguments: dict[str, Any] = {"max_steps": max_turns + SPARE_STEPS}
        if spec(environment).sandboxed:
            arguments["sandbox"] = plan.sandbox if plan.harness is None else plan.harness.sandbox(plan.sandbox)
        make_environment = partial(make, environment, **arguments)
    return EpisodeSettings(
        make_environment=make_environment,
        agent=Agent(policy.name, plan.policy.partition(":")[0], policy.version, environment, policy.sampling),
        max_turns=max_turns,
        provenance=Provenance(commit=_git_commit()),
        timeouts=plan.timeouts,
        concurrency=plan.concurrency,
        retries=plan.retries,
        patience=plan.patience,
        system=policy.system,
    )


def _git_commit() -> str | None:
    """Return the checkout's git commit, None outside of a repository."""
    try:
        result = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, timeout=5, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return result.stdout.strip() or None
