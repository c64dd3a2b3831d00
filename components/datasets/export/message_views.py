"""Views of an episode that dataset rows contain, as JSON or as values: a conversation, a prompt, a message, the tools."""

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple, TypeVar

import msgspec

from ratchet.components.core import DataError, Message
from ratchet.components.interop.trajectory_writers import BUNDLED_WRITERS
from ratchet.components.trajectories.branch_completion import has_shared_turns, read_completed
from ratchet.components.trajectories.chat_messages import as_chat_messages, edited_turn, inline_tools, turn_messages
from ratchet.components.trajectories.trajectory import Trajectory

from .dataset_rows import Row, dpo_row
from .ranked_episodes import RankedEpisode, RankedPair
from .raw_json import RawRecord, decode_record, opening_parts, reply_json, turn_parts
from .shard_offsets import ShardOffsets, read_record

ViewKind = Literal["chat", "opening", "history", "message", "rest", "tools", "trace", "rollout"]
"""Kind of view.

`chat` is the whole conversation, `opening` the messages before the first turn, `history` the messages before turn t,
`message` the assistant message of turn t, `rest` all turns without the opening, `tools` the tool definitions, `trace`
and `rollout` the record in the format of verifiers and of prime-rl.
"""
AgentFormat = Literal["tools", "text"]
WHOLE_RECORD_VIEWS: frozenset[ViewKind] = frozenset({"trace", "rollout"})
"""Views that need the fully decoded record."""


class MessageView(NamedTuple):
    """One view of an episode. `turn` counts from 0 and is read by `history` and `message` only. `weights` are the
    weights of the assistant messages, one per turn; missing ones are 1, and if it is empty, no message has a weight.

    A `chat` view with an `end` is a complete SFT line: `end` is the JSON text from after the tools to the closing
    brace.
    """

    what: ViewKind
    turn: int = 0
    weights: tuple[float, ...] = ()
    end: bytes | None = None


def raw_view_json(record: RawRecord, want: MessageView) -> bytes:
    """Return the same bytes as `view_json` in the format `tools`, copied from the raw record. Not for branches, nor for
    WHOLE_RECORD_VIEWS.

    Raises DataError if the episode does not have the requested turn.
    """
    what, turns = want.what, record.turns
    if what == "tools":
        return record.tools
    _check_turn(record.episode_id, want, len(turns))
    if what == "message":
        return b"[%b]" % reply_json(turns[want.turn])[1:]
    parts = [] if what == "rest" else opening_parts(record)
    if what == "history":
        turns = turns[: want.turn]
    if want.weights and what != "opening":
        for turn, weight in zip(turns, _weights_json(want.weights, len(turns)), strict=True):
            parts += turn_parts(turn, weight)
    elif what != "opening":
        for turn in turns:
            parts += turn_parts(turn)
    begin = b"[" if want.end is None else b'{"messages":['
    parts[:1] = (begin, parts[0][1:]) if parts else (begin,)  # the first message follows none
    parts += (b"]",) if want.end is None else (b'],"tools":', record.tools, want.end)
    return b"".join(parts)


def _weights_json(weights: Sequence[float], turns: int) -> list[bytes]:
    """Return the JSON fragment `,"weight":W` of each turn. Turns without a weight get 1."""
    # A record may have more turns than scores, where the episode was cut off.
    padded = [*weights[:turns], *([1.0] * (turns - len(weights)))]
    return [b',"weight":' + number for number in msgspec.json.encode(padded)[1:-1].split(b",")] if padded else []


def view_json(trajectory: Trajectory, want: MessageView, *, agent_format: AgentFormat) -> bytes:
    """Return part of an episode as JSON: the messages that `want` selects, or the complete SFT line if `want.end` is
    set.

    Raises DataError for a turn that the episode does not have, and for values that JSON cannot represent.
    """
    encode = msgspec.json.encode
    try:
        messages = encode(episode_view(trajectory, want, agent_format))
        if want.end is None:
            return messages
        tools = encode(episode_view(trajectory, MessageView("tools"), agent_format))
    except (OverflowError, RecursionError, ValueError) as error:
        raise DataError(f"{trajectory.episode_id} cannot be written as JSON: {error}; leave it out") from error
    return b'{"messages":%b,"tools":%b%b' % (messages, tools, want.end)


def episode_view(trajectory: Trajectory, want: MessageView, agent_format: AgentFormat = "tools") -> Any:
    """Return a view as JSON values. In the format `text`, calls and tool definitions are part of the messages, and the
    view `tools` is empty. Raises DataError if the episode does not have the requested turn.
    """
    what, tools = want.what, recorded_tools(trajectory)
    if what == "tools":
        return tools if agent_format == "tools" else []
    if what == "trace":
        return BUNDLED_WRITERS["verifiers"].row(trajectory)
    if what == "rollout":
        return _rollout(trajectory)
    messages = _messages(trajectory, want)
    if agent_format == "tools":
        return messages
    return inline_tools(messages, tools if what in ("chat", "opening", "history") else ())


def _messages(trajectory: Trajectory, want: MessageView) -> list[Message]:
    what, turns = want.what, trajectory.turns
    _check_turn(trajectory.episode_id, want, len(turns))
    if what == "message":
        return turn_messages(turns[want.turn])[:1]
    messages = [] if what == "rest" else as_chat_messages(trajectory.messages)
    if what == "opening":
        return messages
    for index, turn in enumerate(turns[: want.turn] if what == "history" else turns):
        of_turn = turn_messages(turn)
        if want.weights:
            of_turn[0]["weight"] = want.weights[index] if index < len(want.weights) else 1.0
        messages += of_turn
    return messages


def _check_turn(episode_id: str, want: MessageView, turns: int) -> None:
    if want.turn >= max(1, turns) or (want.what == "message" and not turns):
        raise DataError(f"{episode_id} has {turns} turns, and a pair names turn {want.turn}; run the build again")


def edited_view(edit: str, agent_format: AgentFormat) -> bytes:
    """Return a person's message as JSON, a list of one assistant message. Raises DataError."""
    message = turn_messages(edited_turn(edit))[:1]
    return msgspec.json.encode(message if agent_format == "tools" else inline_tools(message, ()))


def pair_views(pair: RankedPair) -> tuple[tuple[ViewKind, int], tuple[ViewKind, int]]:
    """Return the kind and turn of the view for the prompt of a pair, and of the view for either side."""
    return (("history", pair.turn), ("message", pair.turn)) if pair.turn >= 0 else (("opening", 0), ("rest", 0))


def pair_row(pair: RankedPair, chosen: Trajectory, rejected: Trajectory, *ranked: RankedEpisode) -> Row:
    """Return the DPO row of a pair from its complete episodes (branches with their parents' turns).

    `ranked`: the chosen and the rejected ranked episode. Raises DataError for a turn that an episode does not have.
    """
    (before, prompt_turn), (side, turn) = pair_views(pair)
    prompt = episode_view(chosen, MessageView(before, prompt_turn))
    sides = [episode_view(trajectory, MessageView(side, turn)) for trajectory in (chosen, rejected)]
    return dpo_row(prompt, sides[0], sides[1], recorded_tools(chosen), pair, ranked)


def recorded_tools(trajectory: Trajectory) -> list[Any]:
    """Return the tools offered to the policy, in OpenAI's format, as the collector recorded them; empty if it did not."""
    tools = trajectory.source_extra.get("tools")
    return list(tools) if isinstance(tools, list) else []


def _rollout(trajectory: Trajectory) -> dict[str, Any]:
    """Return the fields of a prime-rl row that come from the record alone."""
    messages = BUNDLED_WRITERS["openai_chat"].row(trajectory)["messages"]
    outcome, begin = trajectory.outcome, len(trajectory.messages)
    return {
        "prompt": messages[:begin],
        "completion": messages[begin:],
        "tools": recorded_tools(trajectory),
        "example_id": trajectory.task.task_id,
        "task": trajectory.task.taskset,
        "model": trajectory.agent.policy_version,
        "is_completed": outcome.terminated or outcome.truncated,
        "is_truncated": outcome.truncated,
        "stop_condition": outcome.reason or None,
    }


RecordT = TypeVar("RecordT")
CACHED_RECORDS = 8
"""Number of decoded records that are kept: rows that follow each other show the same episodes."""


class EpisodeViews:
    """Views of the episodes of some nights. A branch is completed with the turns that it shares with its parents."""

    def __init__(self, places: ShardOffsets, agent_format: AgentFormat) -> None:
        self._places, self._form = places, agent_format
        self._records: dict[str, RawRecord] = {}
        self._whole: dict[str, Trajectory] = {}

    def json(self, episode_id: str, want: MessageView) -> bytes:
        """Return a view of an episode as JSON.

        Raises DataError for a branch whose parent is in none of the nights, and for a turn that the episode does not
        have.
        """
        if self._form == "tools" and want.what not in WHOLE_RECORD_VIEWS:
            record = self._record(episode_id)
            if not record.is_branch:
                return raw_view_json(record, want)
        trajectory = self._trajectory(episode_id)
        return view_json(trajectory, _without_shared(trajectory, want), agent_format=self._form)

    def _record(self, episode_id: str) -> RawRecord:
        record = self._records.get(episode_id)
        if record is None:
            record = decode_record(self._places.line(episode_id), self._places[episode_id])
            _remember(self._records, episode_id, record)
        return record

    def _trajectory(self, episode_id: str) -> Trajectory:
        trajectory = self._whole.get(episode_id)
        if trajectory is None:
            trajectory = read_record(self._places, episode_id)
            trajectory = self._completed(trajectory) if trajectory.parent else trajectory
            _remember(self._whole, episode_id, trajectory)
        return trajectory

    def _completed(self, branch: Trajectory) -> Trajectory:
        """Return a branch with its parents' turns. Raises DataError if these turns are in none of the nights."""
        lineage, last = {branch.episode_id: branch}, branch
        while last.parent and last.parent.episode_id in self._places and last.parent.episode_id not in lineage:
            last = read_record(self._places, last.parent.episode_id)
            lineage[last.episode_id] = last
        whole = next(
            trajectory for trajectory in read_completed(lineage.values) if trajectory.episode_id == branch.episode_id
        )
        if not has_shared_turns(whole) and whole.parent is not None:
            raise DataError(
                f"{whole.episode_id} lacks the turns that it shares with {whole.parent.episode_id}, which is in none of the "
                "nights; build from its night too"
            )
        return whole


def _without_shared(trajectory: Trajectory, want: MessageView) -> MessageView:
    """Return a view of a whole conversation in which the turns that another record of the same session holds weigh
    nothing, so that they are not trained on twice.
    """
    shared = trajectory.source_extra.get("shared_turns", 0)
    if want.what != "chat" or not isinstance(shared, int) or shared < 1:
        return want
    own = want.weights[shared:] or (1.0,) * (len(trajectory.turns) - shared)
    return want._replace(weights=(*(0.0,) * shared, *own))


def _remember(records: dict[str, RecordT], episode_id: str, record: RecordT) -> None:
    """Add a record, and drop the oldest of more than CACHED_RECORDS."""
    records[episode_id] = record
    if len(records) > CACHED_RECORDS:
        del records[next(iter(records))]
