"""The conversations of one session as a tree, and its branches as trajectories.

A client sends its whole conversation with each request. Requests that continue what was sampled extend a path; a retry, a
history that was edited or compacted, and a conversation of a sub-agent begin branches. Each path from the root to a last
sampled reply is one trajectory, whose turns are the replies that were sampled on it: a reply that the client wrote itself is
part of the messages before the first turn, with everything in front of it.

Messages are compared by what a model reads of them (role, text, calls), not by the ids of calls or by the client's own
fields.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from ratchet.components.core import Message, PolicyReply, TokenTrace, ToolResult, ToolSpec
from ratchet.components.trajectories.chat_messages import inline_calls, inline_result
from ratchet.components.trajectories.token_sidecar import TurnTokens, common_prefix
from ratchet.components.trajectories.trajectory import (
    Agent,
    Outcome,
    Parent,
    Provenance,
    TaskRef,
    Trajectory,
    Turn,
    digest,
    with_content_hash,
)
from ratchet.components.trajectories.trajectory import Message as OpeningMessage


class MessageNode:
    """One message. `reply`: what the policy returned, where the message was sampled; `number`: of its request; `seconds`: from
    the request to the reply. `tools`: those of the conversation.
    """

    __slots__ = ("children", "key", "message", "number", "parent", "reply", "seconds", "tools")

    def __init__(self, message: Message | None, parent: "MessageNode | None", tools: tuple[ToolSpec, ...]) -> None:
        self.message = message
        self.key = None if message is None else message_key(message)
        self.parent = parent
        self.tools = tools
        self.children: list[MessageNode] = []
        self.reply: PolicyReply | None = None
        self.number = -1
        self.seconds = 0.0

    @property
    def path(self) -> list["MessageNode"]:
        """The nodes from the first message to this one."""
        nodes = []
        node: MessageNode | None = self
        while node is not None and node.message is not None:
            nodes.append(node)
            node = node.parent
        return nodes[::-1]


def message_key(message: Message) -> Any:
    """Return what two messages have in common if a model reads the same in both."""
    # Arguments as Python compares them: clients in JavaScript send 1.0 back as 1.
    calls = [(call["function"]["name"], call["function"]["arguments"]) for call in message.get("tool_calls", ())]
    return message["role"], (message["content"] or "").strip(), calls


class MessageTree:
    """The messages of one session; a root for each set of tools. `characters`: of what clients sent. One thread at a time."""

    def __init__(self) -> None:
        self._roots: dict[str, MessageNode] = {}
        self.replies: list[MessageNode] = []
        self.characters = 0

    def root(self, tools: tuple[ToolSpec, ...]) -> MessageNode:
        """Return the root of the conversations with these tools."""
        name = digest(tools)
        if name not in self._roots:
            self._roots[name] = MessageNode(None, None, tools)
            self.characters += len(str(tools))
        return self._roots[name]

    def place(self, messages: Sequence[Message], tools: tuple[ToolSpec, ...]) -> MessageNode:
        """Return the node of the last message, after adding those that the tree lacks. A result gets the id and the name of
        its call as the tree holds that: clients leave out names, and of equal replies the ids differ.
        """
        node, calls = self.root(tools), dict[str, Any]()
        for message in messages:
            key = message_key(message)
            # The latest first: of equal replies, an agent goes on from the one that it got last.
            same = next((child for child in reversed(node.children) if child.key == key), None)
            if same is None:
                if message["role"] == "tool" and (call := calls.get(message.get("tool_call_id", ""))):
                    message = {**message, "tool_call_id": call["id"], "name": call["function"]["name"]}
                same = MessageNode(message, node, tools)
                node.children.append(same)
                self.characters += 1_000 + len(message["content"] or "") + len(str(message.get("tool_calls", "")))
            node = same
            if (sent := message.get("tool_calls")) and node.message is not None:
                calls |= zip((call["id"] for call in sent), node.message["tool_calls"], strict=True)
        return node

    def add_reply(self, node: MessageNode, message: Message, reply: PolicyReply, seconds: float) -> MessageNode:
        """Add a sampled reply, as `message` shows it to the client, below the request's last message."""
        answer = MessageNode(message, node, node.tools)
        answer.reply, answer.number, answer.seconds = reply, len(self.replies), seconds
        node.children.append(answer)
        self.replies.append(answer)
        return answer

    def branch_ends(self) -> list[MessageNode]:
        """Return the last sampled reply of each branch, in the order in which the branches began."""
        inner: set[MessageNode] = set()
        for reply in self.replies:
            node = reply.parent
            # What is in front of a reply that the client wrote is no turn of this branch.
            while node is not None and node not in inner and not _is_foreign(node):
                inner.add(node)
                node = node.parent
        return [reply for reply in self.replies if reply not in inner]


class SessionRecord(msgspec.Struct, frozen=True):
    """What all trajectories of a session share. `episode_id`: of its main branch; see Trajectory for the other fields."""

    episode_id: str
    group_id: str
    attempt: int
    seed: int
    task: TaskRef
    agent: Agent
    outcome: Outcome
    provenance: Provenance
    session: str = ""


RecordedBranch = tuple[Trajectory, list[TurnTokens]]


def branch_records(tree: MessageTree, record: SessionRecord) -> list[RecordedBranch]:
    """Return the trajectory and the token rows of each branch, the one with most replies first.

    A branch holds all of its turns, and names as its parent the earlier branch with which it shares most of them. The outcome
    is the session's, so that each branch has it; a conversation that shares no turn has no parent.
    """
    ends = tree.branch_ends()
    ends.sort(key=lambda end: -len(_turn_nodes(end.path)[0]))
    earlier: list[tuple[str, list[MessageNode]]] = []
    records = []
    traces: dict[tuple[MessageNode | None, MessageNode], TokenTrace] = {}  # of the turns that branches share
    for index, end in enumerate(ends):
        path = end.path
        sampled, first = _turn_nodes(path)
        identity = record.episode_id if index == 0 else f"ep-{digest(record.episode_id, end.number)}"
        parent = _closest(earlier, sampled)
        earlier.append((identity, sampled))
        records.append(_branch(record, identity, parent, path, first, traces))
    return records


def _turn_nodes(path: list[MessageNode]) -> tuple[list[MessageNode], int]:
    """Return the replies that become turns, and the index in `path` of the first of them."""
    foreign = max((index for index, node in enumerate(path) if _is_foreign(node)), default=-1)
    first = next(index for index, node in enumerate(path) if index > foreign and node.reply is not None)
    return [node for node in path[first:] if node.reply is not None], first


def _is_foreign(node: MessageNode) -> bool:
    """Whether the client wrote this reply."""
    return node.reply is None and node.message is not None and node.message["role"] == "assistant"


def _closest(earlier: list[tuple[str, list[MessageNode]]], sampled: list[MessageNode]) -> Parent | None:
    best: Parent | None = None
    for identity, others in earlier:
        shared = next((i for i, pair in enumerate(zip(others, sampled, strict=False)) if pair[0] is not pair[1]), None)
        count = min(len(others), len(sampled)) if shared is None else shared
        if count > (best.turn if best else 0):
            best = Parent(identity, count)
    return best


def _branch(
    record: SessionRecord,
    identity: str,
    parent: Parent | None,
    path: list[MessageNode],
    first: int,
    traces: dict[tuple[MessageNode | None, MessageNode], TokenTrace],
) -> RecordedBranch:
    opening = tuple(OpeningMessage(message["role"], message["content"] or "") for message in _opening(path[:first]))
    turns: list[Turn] = []
    tokens: list[TurnTokens] = []
    notes: dict[str, list[dict[str, Any]]] = {}
    before: MessageNode | None = None
    for node, following in _replies_with_results(path[first:]):
        assert node.reply is not None
        # As in TrajectoryDraft.note: a message that answers no call has the call id "".
        results = [ToolResult(str(each.get("tool_call_id", "")), each["content"] or "") for each in following]
        extra = [{"result": at, "role": each["role"]} for at, each in enumerate(following) if each["role"] != "tool"]
        if extra:
            notes[str(len(turns))] = extra
        if (trace := node.reply.tokens) is not None:
            if (before, node) not in traces:
                traces[before, node] = _without_prefix(trace, before)
            tokens.append(TurnTokens(identity, len(turns), traces[before, node]))
            before = node
        turns.append(_turn(len(turns), node, results, record.agent.name))
    if record.outcome.score is not None:  # as an environment rewards: nothing until the end
        rewards = [0.0] * (len(turns) - 1) + [record.outcome.score]
        turns = [msgspec.structs.replace(turn, env_reward=reward) for turn, reward in zip(turns, rewards, strict=True)]
    extra_fields: dict[str, Any] = {"tools": [tool.as_openai() for tool in path[-1].tools]}
    if notes:
        extra_fields["turns"] = {index: {"notes": each} for index, each in notes.items()}
    if record.session:
        extra_fields["session"] = record.session
    if parent is not None:
        extra_fields["shared_turns"] = parent.turn
    extra_fields["requests"] = [node.number for node in path[first:] if node.reply is not None]
    trajectory = Trajectory(
        episode_id=identity,
        group_id=record.group_id,
        attempt=record.attempt,
        seed=record.seed,
        task=record.task,
        agent=record.agent,
        messages=opening,
        turns=tuple(turns),
        outcome=record.outcome,
        parent=parent,
        provenance=record.provenance,
        source_extra=extra_fields,
    )
    return with_content_hash(trajectory), tokens


def _opening(nodes: Sequence[MessageNode]) -> Iterator[Message]:
    """Yield the messages before the first turn, with calls and results as text: an opening has no other form for them."""
    for node in nodes:
        assert node.message is not None
        yield inline_result(node.message) if node.message["role"] == "tool" else inline_calls(node.message)


def _replies_with_results(path: Sequence[MessageNode]) -> Iterator[tuple[MessageNode, list[Message]]]:
    reply: MessageNode | None = None
    following: list[Message] = []
    for node in path:
        assert node.message is not None
        if node.reply is None:
            following.append(node.message)
            continue
        if reply is not None:
            yield reply, following
        reply, following = node, []
    if reply is not None:
        yield reply, following


def _without_prefix(trace: TokenTrace, before: MessageNode | None) -> TokenTrace:
    if before is None or before.reply is None or before.reply.tokens is None:
        return trace
    kept = common_prefix(before.reply.tokens.prompt_ids + before.reply.tokens.completion_ids, trace.prompt_ids)
    return msgspec.structs.replace(trace, prompt_ids=trace.prompt_ids[kept:], kept=kept)


def _turn(index: int, node: MessageNode, results: list[ToolResult], agent: str) -> Turn:
    reply = node.reply
    assert reply is not None
    return Turn(
        index=index,
        agent_id=agent,
        text=reply.text,
        thought=reply.thought,
        calls=reply.calls,
        results=tuple(results),
        stop_reason=reply.stop_reason,
        usage=reply.usage,
        seconds=round(node.seconds, 4),
    )
