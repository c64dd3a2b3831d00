"""The contracts between the parts of an episode: Environment, Policy and Sandbox, and the values that they exchange.

One turn: a PolicyRequest goes to `Policy.act`, the calls of its PolicyReply become actions for `Environment.step`,
which runs commands in a Sandbox and returns a TimeStep. EpisodePlayer plays whole episodes: on-policy training uses it
instead of importing environments or sandboxes.
"""

import importlib
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any, Generic, Self, TypeVar

import msgspec

from .errors import ConfigurationError, InfrastructureError, RatchetError
from .task_spec import FREE_PARAMETERS, TaskSpec, ToolCall, ToolSpec


class TimeStep(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Result of `Environment.reset`, `step` or `finish`; unpacks as Gymnasium's five-tuple.

    - `observation`: text for the policy.
    - `reward`: reward of the environment for this step.
    - `terminated`: the task itself ended (the answer was submitted, the goal was reached).
    - `truncated`: a limit outside the task ended the episode (steps, time, a policy that stopped).
    - `info`: further values; its keys are described at Environment.
    """

    observation: str = ""
    reward: float = 0.0
    terminated: bool = False
    truncated: bool = False
    info: dict[str, Any] = {}

    @property
    def done(self) -> bool:
        """Whether the episode has ended: no further step may be taken."""
        return self.terminated or self.truncated

    def __iter__(self) -> Iterator[Any]:
        return iter((self.observation, self.reward, self.terminated, self.truncated, self.info))


Action = dict[str, Any]
"""`{"tool": str, "params": dict}` and, optionally, the strings `thought` and `call_id`."""


class Environment(ABC):
    """Base class of every environment. An environment plays one episode at a time; `reset` starts the next one.

    - `reset` sets up a TaskSpec and returns the first observation. `info["sandbox"]` describes where commands run, with
      the fields of a record's provenance; it is absent where the environment runs none.
    - `step` executes one action. An unknown tool or wrong parameters are an observation with `info["result"].error`,
      never an exception. `info["result"]` is the ToolResult of the call. When the step ends the episode,
      `info["outcome"]` is a dict `{success, score, tests_passed, tests_total, reason}`, with None for unknown values.
    - `finish` ends and grades an episode from outside (the policy stopped, the turn limit was reached).
    - `answer` ends it with a reply that calls no tool, which is `finish("no_call")` unless the environment overrides it.
    - A step after the end of the episode repeats the last TimeStep.

    `reset`, `step`, `finish` and `answer` raise InfrastructureError, and nothing else, when the world outside the policy fails.

    A small environment needs only `reset`, `step`, and `tools` or `available_tools`. Its tools then take free
    parameters, the observation is the result of a call, and an outcome that it does not state is unknown.
    """

    domain: str = "generic"

    @property
    def tools(self) -> tuple[ToolSpec, ...]:
        """The tools as they are described to the policy. Default: those of `available_tools`, with free parameters."""
        if type(self).available_tools is Environment.available_tools:
            raise NotImplementedError(f"{type(self).__name__} defines neither tools nor available_tools")
        return tuple(ToolSpec(name, "", FREE_PARAMETERS) for name in self.available_tools)

    @property
    def available_tools(self) -> tuple[str, ...]:
        """Names of the tools."""
        return tuple(tool.name for tool in self.tools)

    @property
    def unwrapped(self) -> "Environment":
        """The innermost environment, without wrappers."""
        return self

    @abstractmethod
    def reset(self, *, task: TaskSpec | None = None, seed: int | None = None) -> TimeStep:
        """Start an episode of `task`; None plays the task of the previous episode again."""

    @abstractmethod
    def step(self, action: Action) -> TimeStep:
        """Execute one action."""

    def finish(self, reason: str) -> TimeStep:
        """End the running episode as truncated and grade its present state; its outcome records `reason`.

        Default: no grade, so that success is unknown.
        """
        return TimeStep(truncated=True, info={"outcome": {"reason": reason}})

    def answer(self, text: str, *, truncated: bool = False) -> TimeStep:
        """End the running episode with a reply that calls no tool. `truncated`: the reply was cut off at its limit.

        Environments that are answered in text grade it; for any other the policy has stopped.
        """
        return self.finish("no_call")

    def close(self) -> None:  # noqa: B027 - small environments hold nothing
        """Release all resources; safe to call twice."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


Message = dict[str, Any]
"""One chat message in OpenAI's format: role, content, tool_calls (arguments as a dict), tool_call_id, name."""


def assistant_message(text: str, calls: Sequence[ToolCall]) -> Message:
    """Return an assistant's message. The raw text of each call that could not be parsed follows `text`."""
    parsed = [
        {"id": call.call_id, "type": "function", "function": {"name": call.tool, "arguments": call.arguments}}
        for call in calls
        if call.parse_error is None
    ]
    content = text + "".join(call.raw for call in calls if call.parse_error is not None)
    return {"role": "assistant", "content": content} | ({"tool_calls": parsed} if parsed else {})


class Usage(msgspec.Struct, frozen=True, forbid_unknown_fields=True, gc=False):
    """Token counts and price of one turn; None where they were not counted."""

    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    cost: float | None = None


class TokenTrace(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Token ids of one turn. `logprobs`: natural-log probability of each of `completion_ids` when it was sampled.

    The whole prompt is the first `kept` ids of the previous turn (its whole prompt, then its completion), followed by
    `prompt_ids`. With `kept` = 0, as at the first turn, `prompt_ids` is the whole prompt.

    `version`: number of the weights that sampled the turn, where they change during an episode; it is not recorded.
    """

    prompt_ids: tuple[int, ...]
    completion_ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    kept: int = 0
    version: int = 0


class PolicyRequest(msgspec.Struct, frozen=True):
    """One episode that waits for its next turn. `turn` counts from 0; the sampling of a turn is seeded by `seed`, the
    same for all turns of the episode, together with `turn`.

    `messages` is a read-only view of the conversation up to this turn, which later turns do not change. `max_new_tokens`:
    limit of this reply below the policy's own; None for the policy's. Policies that return no tokens may ignore it.
    """

    episode_id: str
    task_id: str
    turn: int
    seed: int
    messages: Sequence[Message]
    tools: tuple[ToolSpec, ...]
    max_new_tokens: int | None = None


class PolicyReply(msgspec.Struct, frozen=True):
    """One turn of the policy. An empty `calls` means that the policy stopped, or that its text could not be parsed.

    `thought`: reasoning that is not part of `text`. `seconds`: wall-clock time. `tokens`: None where the policy reports
    no token ids.
    """

    text: str
    calls: tuple[ToolCall, ...] = ()
    thought: str | None = None
    stop_reason: str = "stop"
    usage: Usage = Usage()
    tokens: TokenTrace | None = None
    seconds: float = 0.0


class Policy(ABC):
    """Base class of every policy. Stateless between calls: each request holds the whole conversation.

    - `name`: kind of policy. `version`: identifies these weights or this script; it is hashed into `episode_id`.
    - `sampling`: parameters of sampling (temperature, top_p, max_new_tokens).
    - `system`: system prompt that each episode begins with and records; None for none. `version` must depend on it.
    - `tokenizer_hash`, `template_hash`: set by policies that return token ids.
    - `lockstep`: True where batches are cheapest: many episodes then advance together, one turn at a time, and each
      call of `act` gets all their requests. If False, `act` is called from many threads, with one request per call.

    `act` raises InfrastructureError when the model cannot be reached.
    """

    name: str
    version: str
    sampling: dict[str, Any]
    system: str | None = None
    tokenizer_hash: str | None = None
    template_hash: str | None = None
    lockstep: bool = False

    @abstractmethod
    def act(self, requests: Sequence[PolicyRequest]) -> list[PolicyReply]:
        """Return one reply per request, in order. Batched policies answer all requests in one forward pass."""

    def close(self) -> None:  # noqa: B027 - most policies hold nothing
        """Release all resources; safe to call twice."""


class CommandResult(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Result of a command. A non-zero `exit_code` is a result, not a failure. `seconds`: wall-clock time.

    `timed_out`, `truncated`: the time limit or the output limit ended the command; set only in `CommandFailure.result`.
    """

    exit_code: int
    stdout: bytes = b""
    stderr: bytes = b""
    seconds: float = 0.0
    timed_out: bool = False
    truncated: bool = False

    @property
    def stdout_text(self) -> str:
        """`stdout` decoded as UTF-8, with replacement characters."""
        return self.stdout.decode("utf-8", "replace")

    @property
    def stderr_text(self) -> str:
        """`stderr` decoded as UTF-8, with replacement characters."""
        return self.stderr.decode("utf-8", "replace")


class SandboxUnavailable(InfrastructureError):
    """The sandbox cannot be started or was lost: an infrastructure failure."""


class SandboxFileError(RatchetError):
    """A path that cannot be read or written (absent, a folder, outside the workspace): an error of the caller, not of
    the sandbox.
    """


class CommandFailure(RatchetError):
    """A command that the time or output limit ended; `result` holds its output up to then."""

    def __init__(self, message: str, result: CommandResult) -> None:
        super().__init__(message)
        self.result = result


class CommandTimeout(CommandFailure):
    """The time limit passed and the whole process tree was killed. The sandbox stays usable."""


class OutputLimitExceeded(CommandFailure):
    """The output exceeded its limit, at which it is cut; the command was killed. The sandbox stays usable."""


class Sandbox(ABC):
    """Base class of every sandbox: a workspace of files in which untrusted commands run. A context manager.

    - `start` makes it ready. `stop` removes it with everything that ran in it, and is safe to call twice.
    - Paths are relative to the workspace, or absolute inside it; any other path is a SandboxFileError.
    - `snapshot` and `restore` save and reset the files of the workspace; running processes are not part of a snapshot.
    - `isolation` (once started) names what separates commands from the host: `container` or the engine's runtime
      (docker), or a level of ratchet.components.sandboxes.local_sandbox (local).

    Every method may raise SandboxUnavailable when the sandbox is lost.
    """

    backend: str
    workspace: str = "/workspace"
    image_digest: str | None = None
    isolation: str | None = None

    @property
    def loss_reason(self) -> str:
        """Reason why the sandbox and its workspace are lost for good; empty while they exist."""
        return ""

    @abstractmethod
    def start(self) -> None:
        """Make the sandbox ready. Raises SandboxUnavailable."""

    @abstractmethod
    def run(
        self,
        command: str | Sequence[str],
        *,
        timeout: float = 30.0,
        stdin: bytes | None = None,
        env: Mapping[str, str] | None = None,
        output_limit: int = 10 * 1024 * 1024,
    ) -> CommandResult:
        """Run a command in the workspace: a string by `sh -c`, a sequence as its argv. `timeout` in seconds,
        `output_limit` in bytes. `env`: variables added to the sandbox's own; the host's are not passed on.

        Raises CommandTimeout, OutputLimitExceeded, SandboxUnavailable.
        """

    @abstractmethod
    def read(self, path: str) -> bytes:
        """Return the content of a file. Raises SandboxFileError, SandboxUnavailable."""

    @abstractmethod
    def write(self, path: str, data: bytes) -> None:
        """Write a file and create its parent folders. Raises SandboxFileError, SandboxUnavailable."""

    def write_files(self, files: Mapping[str, bytes]) -> None:
        """Write several files, keyed by path. Back ends with slow calls override it to write all of them in one call."""
        for path, data in files.items():
            self.write(path, data)

    @abstractmethod
    def snapshot(self) -> str:
        """Save the files of the workspace; return the id for `restore`."""

    @abstractmethod
    def restore(self, snapshot_id: str) -> None:
        """Reset the workspace to a snapshot. Raises SandboxFileError for an unknown id."""

    @abstractmethod
    def stop(self) -> None:
        """Remove the sandbox and every process in it."""

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()


Record = TypeVar("Record")
"""Type of the record of an episode: Trajectory."""


class EpisodeAttempt(msgspec.Struct, frozen=True):
    """One attempt at one task. `seed` sets up the environment: the attempts of one GRPO group have the same seed.

    `number` distinguishes the attempts at a task; `stream` seeds the policy's sampling in this attempt.
    """

    task_id: str
    seed: int
    number: int
    stream: int


class PlayableTask(msgspec.Struct, frozen=True):
    """A task that a player can play, with its family and kind (see TaskSpec)."""

    task_id: str
    family: str
    kind: str


class PlayedEpisode(msgspec.Struct, Generic[Record], frozen=True):
    """Result of an attempt. `traces`: token ids of each turn for which the policy returned them, in order.

    `record` is None, or has a failure of kind infrastructure, where the world outside the policy failed.
    """

    record: Record | None
    traces: tuple[TokenTrace, ...] = ()


class EpisodeStream(ABC, Generic[Record]):
    """Attempts that are played independently of each other: a slow one delays no other. One thread uses a stream."""

    @abstractmethod
    def submit(self, attempt: EpisodeAttempt) -> None:
        """Play an attempt as soon as there is room; returns at once. Raises ConfigurationError for an unknown task."""

    @abstractmethod
    def wait(self) -> tuple[EpisodeAttempt, PlayedEpisode[Record]] | None:
        """Return the next attempt that ended, in any order; None after a fraction of a second without one.

        Call it repeatedly: hung attempts are found here. Raises ConfigurationError, and InfrastructureError for an outage
        that lasted too long.
        """

    @abstractmethod
    def close(self) -> None:
        """Give up the running attempts and release their environments; safe to call twice."""


class EpisodePlayer(ABC, Generic[Record]):
    """Base class of players: play many attempts with one policy at once.

    Tools of different attempts run concurrently; an attempt that fails does not affect the others.
    """

    @abstractmethod
    def tasks(self) -> list[PlayableTask]:
        """Return the tasks that may be trained on, in a fixed order."""

    @abstractmethod
    def play(self, policy: Policy, attempts: Sequence[EpisodeAttempt]) -> list[PlayedEpisode[Record]]:
        """Play every attempt to its end; return one result per attempt, in order.

        Raises ConfigurationError for an unknown task, and InfrastructureError where no attempt could be played.
        """

    def stream(self, policy: Policy) -> EpisodeStream[Record]:
        """Return a stream of attempts with one policy, whose `act` is called by many threads. Raises ConfigurationError
        where the player has none.
        """
        raise ConfigurationError(f"{type(self).__name__} plays whole batches only; unset grpo.asynchronous")

    def solution(self, task_id: str) -> Sequence[str]:
        """Return the steps of a reference solution as text, in order; the first few may serve as a hint. Empty where no
        solution is known.
        """
        return ()

    def close(self) -> None:
        """Release all resources; safe to call twice."""


def make_player(entry: str, settings: dict[str, Any]) -> EpisodePlayer[Any]:
    """Import the factory `entry`, written `module:name`, and call it as `factory(settings)`. Raises ConfigurationError
    where it cannot be imported.
    """
    module, _, name = entry.partition(":")
    try:
        factory = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise ConfigurationError(f"player '{entry}' cannot be found: {error}; name it as module:name") from error
    player: EpisodePlayer[Any] = factory(settings)
    return player
