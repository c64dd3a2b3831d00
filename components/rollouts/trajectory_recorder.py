"""Record a running episode as a Trajectory: `EpisodeRecorder`, and `RecordTrajectory`, an environment wrapper for any
other agent loop.
"""

import itertools
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any, overload

import msgspec

from ratchet.components.core import (
    Action,
    ConfigurationError,
    Environment,
    PolicyReply,
    TaskSpec,
    TimeStep,
    TokenTrace,
    ToolCall,
    ToolResult,
    ToolSpec,
)
from ratchet.components.core import Message as ChatMessage
from ratchet.components.core.environment_wrappers import Wrapper
from ratchet.components.trajectories.chat_messages import as_chat_messages, turn_messages
from ratchet.components.trajectories.token_sidecar import TurnTokens, common_prefix
from ratchet.components.trajectories.trajectory import (
    Agent,
    Failure,
    FailureKind,
    Message,
    Outcome,
    Parent,
    Provenance,
    TaskRef,
    Trajectory,
    Turn,
    with_content_hash,
)

from .collection_plan import PlannedEpisode, environment_task


class ConversationView(Sequence[ChatMessage]):
    """Lazy read-only sequence of the first `length` messages of a recorder. All views of a recorder share its messages,
    which are built on first access.
    """

    __slots__ = ("_length", "_recorder")

    def __init__(self, recorder: "EpisodeRecorder", length: int) -> None:
        self._recorder = recorder
        self._length = length

    def __len__(self) -> int:
        return self._length

    def __repr__(self) -> str:
        return repr(list(self))

    def __iter__(self) -> Iterator[ChatMessage]:
        return itertools.islice(self._recorder.messages, self._length)

    @overload
    def __getitem__(self, index: int) -> ChatMessage: ...

    @overload
    def __getitem__(self, index: slice) -> list[ChatMessage]: ...

    def __getitem__(self, index: int | slice) -> ChatMessage | list[ChatMessage]:
        messages = self._recorder.messages
        if isinstance(index, slice):
            return [messages[i] for i in range(*index.indices(self._length))]
        return messages[range(self._length)[index]]


class EpisodeRecorder:
    """Recorder of one episode. The cost per turn does not grow with the episode's length.

    `tools`: those that the policy may call. `observation`: the first one, recorded as the user message, after the
    `system` prompt where there is one. `tokens`: token rows of the turns so far.
    """

    def __init__(
        self,
        planned: PlannedEpisode,
        agent: Agent,
        tools: tuple[ToolSpec, ...],
        observation: str,
        system: str | None = None,
    ) -> None:
        self.planned = planned
        self.agent = agent
        self.tools = tools
        self.opening = (*([Message("system", system)] if system else ()), Message("user", observation))
        self.turns: list[Turn] = []
        self.tokens: list[TurnTokens] = []
        self._messages = as_chat_messages(self.opening)
        self._rendered = 0
        self._length = len(self._messages)
        self._context: tuple[int, ...] = ()

    @property
    def messages(self) -> list[ChatMessage]:
        """Return the conversation so far, as the policy sees it: one growing list, not to be modified."""
        for index in range(self._rendered, len(self.turns)):
            self._messages.extend(turn_messages(self.turns[index]))
        self._rendered = len(self.turns)
        return self._messages

    @property
    def conversation(self) -> ConversationView:
        """Return a view of the messages so far; later turns do not change it."""
        return ConversationView(self, self._length)

    def record(
        self,
        reply: PolicyReply,
        results: list[ToolResult],
        reward: float | None,
        seconds: float,
        call_seconds: Sequence[float] = (),
    ) -> None:
        """Record one turn: the reply and the results of its calls, in order. `reward`: the environment's, None if
        unknown; `seconds`: time spent in the environment; `call_seconds`: in each of the executed calls.
        """
        turn = Turn(
            index=len(self.turns),
            agent_id=self.agent.name,
            text=reply.text,
            thought=reply.thought,
            calls=reply.calls,
            results=tuple(results),
            env_reward=reward,
            stop_reason=reply.stop_reason,
            usage=reply.usage,
            seconds=round(reply.seconds + seconds, 4),
            call_seconds=tuple(round(one, 4) for one in call_seconds) or msgspec.UNSET,
        )
        if reply.tokens is not None:
            self.tokens.append(
                TurnTokens(self.planned.episode_id, turn.index, self._without_known_prefix(reply.tokens))
            )
        self.turns.append(turn)
        self._length += 1 + len(turn.results)

    def record_replayed(self, turn: Turn) -> None:
        """Record a replayed turn of the parent episode, without its token usage and duration."""
        self.turns.append(msgspec.structs.replace(turn, usage=None, seconds=None, call_seconds=msgspec.UNSET))
        self._length += 1 + len(turn.results)

    def _without_known_prefix(self, trace: TokenTrace) -> TokenTrace:
        """Reduce a token trace to the prompt ids that earlier turns do not contain."""
        prefix = common_prefix(self._context, trace.prompt_ids)
        self._context = trace.prompt_ids + trace.completion_ids
        return msgspec.structs.replace(trace, prompt_ids=trace.prompt_ids[prefix:], kept=prefix)

    def finish(
        self,
        outcome: dict[str, Any],
        *,
        terminated: bool,
        truncated: bool,
        provenance: Provenance,
        policy_error: Exception | None = None,
    ) -> Trajectory:
        """Return the record of an episode that was graded. `outcome`: other fields of Outcome; `policy_error`: the
        exception of a policy that ended the episode. Raises ConfigurationError for an outcome with other fields.
        """
        failure = None
        if policy_error is not None:
            failure = Failure(FailureKind.POLICY, type(policy_error).__name__, str(policy_error))
        try:
            graded = msgspec.convert({**outcome, "terminated": terminated, "truncated": truncated}, Outcome)
        except msgspec.ValidationError as error:
            raise ConfigurationError(f"the environment's info['outcome']: {error}; see ratchet.Environment") from error
        return self._trajectory(graded, failure, provenance)

    def fail(self, error: BaseException, provenance: Provenance) -> Trajectory:
        """Return the record of an episode that infrastructure ended; it has no outcome."""
        failure = Failure(FailureKind.INFRASTRUCTURE, type(error).__name__, str(error))
        return self._trajectory(Outcome(truncated=True, reason="infrastructure"), failure, provenance)

    def _trajectory(self, outcome: Outcome, failure: Failure | None, provenance: Provenance) -> Trajectory:
        branch = self.planned.branch
        return with_content_hash(
            Trajectory(
                episode_id=self.planned.episode_id,
                group_id=self.planned.group_id,
                attempt=self.planned.attempt,
                seed=self.planned.seed,
                task=TaskRef.from_task(self.planned.task),
                agent=self.agent,
                messages=self.opening,
                turns=tuple(self.turns),
                outcome=outcome,
                failure=failure,
                parent=None if branch is None else Parent(branch.parent.episode_id, branch.turn),
                provenance=provenance,
                source_extra={"tools": [tool.as_openai() for tool in self.tools]},
            )
        )


def utc_now() -> str:
    """Return the time in UTC, ISO 8601, to the second."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


class RecordTrajectory(Wrapper):
    """Pass each finished episode to `keep`; an episode abandoned by a reset is not recorded.

    `agent` identifies the player. Each step is recorded as a turn with one call. Attempts at a task are counted from 0
    within this wrapper. A reset without a task is recorded as an attempt at the last task given, or before the first
    one as an episode of the environment.
    """

    def __init__(self, env: Environment, keep: Callable[[Trajectory], None], agent: Agent) -> None:
        super().__init__(env)
        self.agent = agent
        self._keep_trajectory = keep
        self._attempts: Counter[str] = Counter()
        inner = self.unwrapped
        self._task = environment_task(type(getattr(inner, "inner", inner)).__name__, self.domain)
        self._recorder: EpisodeRecorder | None = None
        self._sandbox: dict[str, str | None] = {}

    def reset(self, *, task: TaskSpec | None = None, seed: int | None = None) -> TimeStep:
        """Begin an episode and its record."""
        self._task = task or self._task
        first = super().reset(task=task, seed=seed)
        self._sandbox = first.info.get("sandbox", {})
        attempt = self._attempts[self._task.task_id]
        self._attempts[self._task.task_id] += 1
        planned = PlannedEpisode.create(self._task, attempt, seed or 0, self.agent.policy_version)
        self._recorder = EpisodeRecorder(planned, self.agent, self.tools, first.observation)
        return first

    def answer(self, text: str, *, truncated: bool = False) -> TimeStep:
        """Record the reply as the last turn."""
        if self._recorder is not None and self._last is None:
            self._recorder.record(PolicyReply(text), [], None, 0.0)
        return super().answer(text, truncated=truncated)

    def transform_step(self, action: Action | None, step: TimeStep) -> TimeStep:
        """Record one turn, and pass the finished record to `keep` after the last one; return `step` unchanged."""
        if self._recorder is not None:
            if action is not None:
                self._record_turn(self._recorder, action, step)
            if step.done:
                self._record_end(self._recorder, step)
        return step

    def _record_turn(self, recorder: EpisodeRecorder, action: Action, step: TimeStep) -> None:
        call_id = str(action.get("call_id", f"{len(recorder.turns)}-0"))
        params = action.get("params", {})
        call = ToolCall(call_id, str(action.get("tool")), params if isinstance(params, dict) else {})
        result = step.info.get("result") or ToolResult(call_id, step.observation)
        reply = PolicyReply("", (call,), action.get("thought"))
        recorder.record(reply, [msgspec.structs.replace(result, call_id=call_id)], step.reward, 0.0)

    def _record_end(self, recorder: EpisodeRecorder, step: TimeStep) -> None:
        self._keep_trajectory(
            recorder.finish(
                step.info.get("outcome") or {},
                terminated=step.terminated,
                truncated=step.truncated,
                provenance=msgspec.structs.replace(Provenance(collected_at=utc_now()), **self._sandbox),
            )
        )
        self._recorder = None
