"""Writers of other formats: each turns a trajectory into one line of JSON and states what the format cannot represent.

- `openai_chat`: `messages` with `tool_calls`, and `tools`, as fine-tuning expects them.
- `adp`: actions and observations of the Agent Data Protocol (Song et al. 2025, arXiv:2510.24702). A call becomes an
  `api_action` whose description is the text of its reply; a reply without a call, a `message_action`; a result, a
  `text_observation` of the environment; a user's message, a `text_observation` of the user. The protocol allows the
  id of a call only where there is a result.
- `verifiers`: traces of Prime Intellect's verifiers, as a message graph with a single path. `verifiers_reader` restores
  messages, calls, results, usage, rewards and the end of the episode.
- `atif`, `otel`: see `atif` and `otel_writer`.

The format `ratchet` is the record itself. Other packages add writers through the entry-point group `ratchet.writers`; each
entry names a `TrajectoryWriter`.
"""

import importlib
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple, Protocol

import msgspec

from ratchet.components.core import ConfigurationError, ToolCall, ToolResult
from ratchet.components.core.environment_registry import load_plugins
from ratchet.components.core.errors import suggest_name
from ratchet.components.trajectories.token_sidecar import TurnTokens
from ratchet.components.trajectories.trajectory import Outcome, Trajectory, Turn

from .log_values import as_mapping, as_mappings, drop_empty

WRITER_GROUP = "ratchet.writers"
RATCHET_FORMAT = "ratchet"


class TrajectoryWriter(Protocol):
    """Writer of one format. `loses`: what the format cannot represent, as one text that is shown to users."""

    loses: str

    def row(self, trajectory: Trajectory) -> dict[str, Any]:
        """Return the JSON object that represents a trajectory, written as one line; it depends on the record alone."""


_plugin_writers: dict[str, TrajectoryWriter] = {}


def register_writer(name: str, writer: TrajectoryWriter) -> None:
    """Register the writer of a format, with the format's id. Raises ConfigurationError where the id is taken."""
    if name in [*BUNDLED_WRITERS, *_WRITER_MODULES, *_plugin_writers, RATCHET_FORMAT]:
        raise ConfigurationError(f"a writer '{name}' is registered already; choose another name")
    _plugin_writers[name] = writer


def list_written_formats() -> list[str]:
    """Return the ids of all formats except `ratchet`."""
    load_plugins(WRITER_GROUP, register_writer)
    return [*BUNDLED_WRITERS, *_WRITER_MODULES, *_plugin_writers]


def get_writer(name: str) -> TrajectoryWriter:
    """Return the writer of a format other than `ratchet`.

    Raises ConfigurationError for an unknown id, with the most similar one.
    """
    formats = list_written_formats()
    if name not in formats:
        raise ConfigurationError(f"unknown format to write '{name}'; {suggest_name(name, [RATCHET_FORMAT, *formats])}")
    if name in _WRITER_MODULES:  # imported on use: they import this module
        writer: TrajectoryWriter = importlib.import_module(f"{__package__}.{_WRITER_MODULES[name]}").WRITER
        return writer
    return {**BUNDLED_WRITERS, **_plugin_writers}[name]


def line_encoder(
    name: str, tokens: Callable[[str], Iterable[TurnTokens]] | None = None
) -> Callable[[Trajectory], bytes]:
    """Return the function that encodes a trajectory as a line of the format `name`, with its newline.

    `tokens`: returns the rows of an episode's token sidecar; of the formats, only `atif` has a place for them. Raises
    ConfigurationError for an unknown format.
    """
    encode = msgspec.json.Encoder().encode
    if name == RATCHET_FORMAT:
        return lambda trajectory: encode(trajectory) + b"\n"
    if name == "atif" and tokens is not None:
        from .atif import to_atif

        return lambda trajectory: encode(to_atif(trajectory, tokens(trajectory.episode_id))) + b"\n"
    row = get_writer(name).row
    return lambda trajectory: encode(row(trajectory)) + b"\n"


class FollowingMessage(NamedTuple):
    """A message after a reply: the result of a call to `tool` (role "tool"), or another message (`tool` is None)."""

    role: str
    tool: str | None
    result: ToolResult


def following_messages(trajectory: Trajectory, turn: Turn) -> Iterator[FollowingMessage]:
    """Yield the results of a turn's calls and the messages after it, in order."""
    roles = note_roles(trajectory, turn)
    tools = {call.call_id: call.tool for call in turn.calls}
    for index, result in enumerate(turn.results):
        tool = tools.get(result.call_id)
        yield FollowingMessage(roles.get(index, "user") if tool is None else "tool", tool, result)


def note_roles(trajectory: Trajectory, turn: Turn) -> dict[int, str]:
    """Return the roles of the messages among a turn's results (results that answer no call), by index of the result."""
    extra = as_mapping(as_mapping(trajectory.source_extra.get("turns")).get(str(turn.index)))
    return {
        note["result"]: note["role"]
        for note in as_mappings(extra.get("notes"))
        if isinstance(note.get("result"), int) and isinstance(note.get("role"), str)
    }


def recorded_tools(trajectory: Trajectory) -> list[Any]:
    """Return the tool definitions that a reader stored in the record, in OpenAI's form; [] without any."""
    tools = trajectory.source_extra.get("tools")
    return tools if isinstance(tools, list) else []


def chat_messages(trajectory: Trajectory, *, nested: bool) -> Iterator[tuple[Turn | None, dict[str, Any]]]:
    """Yield (turn, chat message) for each message of a record; the turn is None for all but the agent's replies.

    `nested`: put name and arguments of a call into an object `function`, as in OpenAI's API, else into the call.
    """
    for message in trajectory.messages:
        yield None, {"role": message.role, "content": message.content}
    for turn in trajectory.turns:
        reply: dict[str, Any] = {"role": "assistant", "content": turn.text}
        if turn.thought is not None:
            reply["reasoning_content"] = turn.thought
        if turn.calls:
            reply["tool_calls"] = [_chat_call(call, nested) for call in turn.calls]
        yield turn, reply
        for role, tool, result in following_messages(trajectory, turn):
            answered = {} if tool is None else {"tool_call_id": result.call_id, "name": tool}
            yield None, {"role": role, **answered, "content": result.content}


def _chat_call(call: ToolCall, nested: bool) -> dict[str, Any]:
    # An unreadable call keeps its text, which is no JSON.
    arguments = call.raw if call.parse_error is not None else msgspec.json.encode(call.arguments).decode()
    function = {"name": call.tool, "arguments": arguments}
    return {"id": call.call_id, **({"type": "function", "function": function} if nested else function)}


class OpenAIChatWriter:
    """Writer of OpenAI chat. Thoughts become `reasoning_content`; an unreadable call keeps its text as its arguments."""

    loses = (
        "task, agent, outcome, failure, parent, dates, usage, timing and rewards; exit codes, errors and whether a result was cut; "
        "images; what the reader could not place"
    )

    def row(self, trajectory: Trajectory) -> dict[str, Any]:
        """Return `messages`, and `tools` where the record has them."""
        messages = [message for _, message in chat_messages(trajectory, nested=True)]
        tools = recorded_tools(trajectory)
        return {"messages": messages, **({"tools": tools} if tools else {})}


class ADPWriter:
    """Writer of the Agent Data Protocol."""

    loses = (
        "which calls stood in one reply; that a call was unreadable (its text is a message); usage, timing, stop reasons; "
        "exit codes, errors and whether a result was cut; images; what the reader could not place"
    )

    def row(self, trajectory: Trajectory) -> dict[str, Any]:
        """Return `id`, `content` and `details`. System prompts go to `details`: the protocol has no observation for them."""
        content = [
            _adp_observation("user", message.content) for message in trajectory.messages if message.role != "system"
        ]
        for turn in trajectory.turns:
            content.extend(_adp_turn(trajectory, turn))
        details: dict[str, Any] = {
            "task_id": trajectory.task.task_id,
            "taskset": trajectory.task.taskset,
            "agent": trajectory.agent.name,
            "model": trajectory.agent.policy_version,
            "source": trajectory.provenance.source,
        }
        outcome = trajectory.outcome
        outcome_fields = {"success": outcome.success, "score": outcome.score, "reason": outcome.reason or None}
        details |= {name: value for name, value in outcome_fields.items() if value is not None}
        details |= drop_empty(system=[message.content for message in trajectory.messages if message.role == "system"])
        return {"id": trajectory.episode_id, "content": content, "details": details}


def _adp_turn(trajectory: Trajectory, turn: Turn) -> Iterator[dict[str, Any]]:
    followed = list(following_messages(trajectory, turn))
    answers = {item.result.call_id: item for item in reversed(followed) if item.tool is not None}
    turn_fields = {"reasoning_content": turn.thought, "reward": turn.env_reward}
    turn_fields = {name: value for name, value in turn_fields.items() if value is not None}
    for index, call in enumerate(turn.calls):
        common = {} if index else turn_fields
        text = None if index else turn.text or None
        answer = answers.get(call.call_id)
        if call.parse_error is not None:
            yield {"class_": "message_action", "content": call.raw, "description": text, **common}
            if answer is not None:
                yield _adp_observation("environment", answer.result.content)
        else:
            id_field = {"tool_call_id": call.call_id} if answer is not None else {}
            action = {"class_": "api_action", "function": call.tool, "kwargs": call.arguments, "description": text}
            yield {**action, **common, **id_field}
            if answer is not None:
                yield {**_adp_observation("environment", answer.result.content), **id_field}
    if not turn.calls:
        yield {"class_": "message_action", "content": turn.text, "description": None, **turn_fields}
    for item in followed:
        # All but the first answer to a call, which stands behind it already.
        if item.tool is None or answers[item.result.call_id] is not item:
            source = "environment" if item.role in ("tool", "system") else "user"
            yield _adp_observation(source, item.result.content)


def _adp_observation(source: str, content: str) -> dict[str, Any]:
    return {"class_": "text_observation", "content": content, "source": source}


class VerifiersWriter:
    """Writer of verifiers' traces."""

    loses = (
        "exit codes, errors and whether a result was cut; rewards of steps; images; token ids, whose sidecar stays ours; family, "
        "kind and role of the task; a success beside a score; whose fault a failure was; what the reader could not place"
    )

    def row(self, trajectory: Trajectory) -> dict[str, Any]:
        """Return a trace: nodes, calls, rewards and end. An episode without score and success has no reward, not reward 0."""
        nodes: list[dict[str, Any]] = []
        calls: list[dict[str, Any]] = []
        for turn, message in chat_messages(trajectory, nested=False):
            if turn is not None:
                calls.append(_verifiers_call(trajectory, turn, len(nodes)))
            elif "tool_call_id" in message:
                message["name"] = message.pop("name")  # moved to the end, the order in which verifiers writes them
            else:
                message["role"] = _verifiers_role(message["role"])
            nodes.append({"parent": len(nodes) - 1 if nodes else None, "message": message, "sampled": turn is not None})
        failure, outcome, task = trajectory.failure, trajectory.outcome, trajectory.task
        functions = [
            tool["function"]
            for tool in as_mappings(recorded_tools(trajectory))
            if isinstance(tool.get("function"), dict)
        ]
        return {
            "id": trajectory.episode_id,
            "task": {
                "type": task.taskset,
                "data": {"idx": task.task_id, "prompt": task.description},
                "hash": task.task_hash,
            },
            "agent": {"name": trajectory.agent.name, "config": {"model": trajectory.agent.policy_version}},
            "tools": functions,
            "nodes": nodes,
            "calls": calls,
            "rewards": _verifiers_rewards(outcome),
            "metrics": {},
            "is_completed": outcome.terminated or outcome.truncated,
            "is_truncated": outcome.truncated,
            "ok": failure is None,
            "stop_condition": outcome.reason or None,
            "errors": [{"type": failure.type, "message": failure.message}] if failure is not None else [],
        }


def _verifiers_role(role: str) -> str:
    """Map a role to one that verifiers accepts: system, user or assistant. It accepts `tool` only as the answer to a call."""
    return role if role in ("system", "user", "assistant") else "system" if role == "developer" else "user"


def _verifiers_call(trajectory: Trajectory, turn: Turn, node: int) -> dict[str, Any]:
    call: dict[str, Any] = {"node": node, "model": trajectory.agent.policy_version or None}
    call["finish_reason"] = turn.stop_reason
    if turn.usage is not None:
        usage = msgspec.structs.asdict(turn.usage)
        call["usage"] = {name: value for name, value in usage.items() if value is not None}
    if turn.seconds is not None:
        call["time"] = {"start": 0.0, "end": turn.seconds}
    return call


def _verifiers_rewards(outcome: Outcome) -> dict[str, Any]:
    if outcome.score is not None:
        return {"score": {"score": outcome.score, "weight": 1.0}}
    if outcome.success is not None:
        return {"success": {"score": float(outcome.success), "weight": 1.0}}
    return {}


BUNDLED_WRITERS: dict[str, TrajectoryWriter] = {
    "openai_chat": OpenAIChatWriter(),
    "adp": ADPWriter(),
    "verifiers": VerifiersWriter(),
}
"""Writers by format id, as given to `--to`."""
_WRITER_MODULES = {"atif": "atif", "otel": "otel_writer"}
