"""Episodes reduced to the data that pairing compares: for each turn the hashes of its message, its calls and its
results, and its length.

Two messages count as the same action if they make the same calls, whatever their text; without calls, if their texts
are equal up to white space and repeated sentences. Such messages differ by padding alone: a preference between them
would only teach a length. Shards are reduced in parallel.
"""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, overload

import msgspec

from ratchet.components.core import DataError, Message, Role, ToolCall, load_domain
from ratchet.components.trajectories.branch_completion import complete_branches, has_shared_turns, root_parents
from ratchet.components.trajectories.chat_messages import as_chat_messages, turn_messages
from ratchet.components.trajectories.parallel_shards import ShardSource, map_shards, print_progress
from ratchet.components.trajectories.trajectory import Trajectory, Turn, digest

from ..reward_formulas import is_success, outcome_score

_UNIT = re.compile(r"(?<=[.!?])[ \t]+|(?<=[。！？])|\n")
_SENTENCE_ENDS = (".", "!", "?", "。", "！", "？")
_BLANKS = re.compile(r"[ \t]+")
_MAY_BE_PADDED = re.compile(r"[\n\t。！？]|[.!? ] |\s\Z")


class TurnDigest(NamedTuple):
    """Digest of one turn. `message_hash`: of the message as a model reads it; `calls_hash`: of its calls (or, without
    calls, of its text without padding); `results_hash`: of the results.

    `tools`: names of the called tools in order. `text_length`: characters of the text without the calls. `length`:
    characters with the calls.
    """

    message_hash: str
    calls_hash: str
    results_hash: str
    tools: tuple[str, ...]
    text_length: int
    length: int


def digest_turn(turn: Turn) -> TurnDigest:
    """Return the digest of a turn. Call ids, thought, usage and timing are excluded."""
    message, *replies = _renumber_calls(turn, turn_messages(turn))
    calls = [call for call in turn.calls if call.parse_error is None]
    unreadable = "".join(call.raw for call in turn.calls if call.parse_error is not None)
    does = [[_plain_call(call) for call in calls], strip_padding(unreadable if calls else turn.text + unreadable)]
    words, tools = len(str(message["content"])), tuple(call.tool for call in calls)
    # In characters, of which an encoded text has fewer than bytes.
    length = words + sum(len(call.tool) + len(msgspec.json.encode(call.arguments).decode()) for call in calls)
    return TurnDigest(digest(message), digest(does), digest(replies), tools, words, length)


def _renumber_calls(turn: Turn, messages: list[Message]) -> list[Message]:
    """Return the messages of a turn with calls numbered by position."""
    # Many servers draw ids at random: equal messages would have different hashes.
    number = {call.call_id: str(index) for index, call in enumerate(turn.calls)}
    for part in messages[0].get("tool_calls", ()):
        part["id"] = number[part["id"]]
    for part in messages[1:]:
        part["tool_call_id"] = number.get(part["tool_call_id"], part["tool_call_id"])
    return messages


def _plain_call(call: ToolCall) -> tuple[str, Any]:
    try:
        return call.tool, _plain_value(call.arguments)
    except RecursionError:  # nested deeper than Python's stack: taken as it is
        return call.tool, call.arguments


def _plain_value(value: Any) -> Any:
    """Return a JSON value with `strip_padding` applied to every string."""
    if isinstance(value, str):
        return strip_padding(value)
    if isinstance(value, dict):
        return {name: _plain_value(item) for name, item in value.items()}
    return [_plain_value(item) for item in value] if isinstance(value, list) else value


def strip_padding(text: str) -> str:
    """Remove trailing and doubled blanks, empty lines, and repeated sentences.

    Indentation is kept, and so are repeated lines of code: only lines that end like a sentence are deduplicated.
    """
    if _MAY_BE_PADDED.search(text) is None:  # most arguments
        return text
    sentences: dict[str, None] = {}
    units: list[str] = []
    for unit in _UNIT.split(text):
        words = unit.rstrip()
        if not words.strip():
            continue
        indent = len(words) - len(words.lstrip())
        words = words[:indent] + _BLANKS.sub(" ", words[indent:])
        if words.endswith(_SENTENCE_ENDS):
            if words.strip() in sentences:
                continue
            sentences[words.strip()] = None
        units.append(words)
    return "\n".join(units)


class BranchOrigin(NamedTuple):
    """The parent of a branch, and the index of the first turn that the branch does not inherit from it."""

    episode_id: str
    turn: int


class PackedTurns(Sequence[TurnDigest]):
    """Turn digests as msgpack bytes, decoded on access, so that a hundred thousand episodes fit into memory and are
    cheap to send between processes.
    """

    __slots__ = ("_count", "_data")

    def __init__(self, turns: Sequence[TurnDigest]) -> None:
        self._count, self._data = len(turns), msgspec.msgpack.encode(turns)

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, index: int) -> TurnDigest: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[TurnDigest, ...]: ...
    def __getitem__(self, index: int | slice) -> TurnDigest | tuple[TurnDigest, ...]:
        if isinstance(index, slice):
            return _decoder.decode(self._data)[index]
        return _one.decode(_each.decode(self._data)[index])

    def __iter__(self) -> Iterator[TurnDigest]:
        return iter(_decoder.decode(self._data))


# One turn is read without decoding the others: `_each` splits the list, `_one` decodes a part.
_decoder = msgspec.msgpack.Decoder(tuple[TurnDigest, ...])
_each, _one = msgspec.msgpack.Decoder(list[msgspec.Raw]), msgspec.msgpack.Decoder(TurnDigest)


class ComparableEpisode(NamedTuple):
    """One reduced episode. `start`: identifies its task, opening messages and domain (and its policy, where `worth` is
    a win rate); only episodes of equal `start` are compared. `opening_hash`: hash of the opening messages alone.

    `policy`: version of the policy. `moves`: its turns. `worth`: its total or win rate, in [0, 1]. `may_be_chosen`:
    accepted by the ranking, and not known to have failed. `parent`: None for an episode that is no branch. `content_hash`: of
    the trajectory.
    """

    episode_id: str
    task_id: str
    policy: str
    start: str
    opening_hash: str
    moves: Sequence[TurnDigest]
    worth: float
    may_be_chosen: bool
    parent: BranchOrigin | None = None
    content_hash: str = ""


def comparable_episode(trajectory: Trajectory, worth: float, may_be_chosen: bool) -> ComparableEpisode:
    """Reduce a whole trajectory; a branch must contain the turns of its parent."""
    task, parent = trajectory.task, trajectory.parent
    before = as_chat_messages(trajectory.messages)
    return ComparableEpisode(
        trajectory.episode_id,
        task.task_id,
        trajectory.agent.policy_version,
        f"{digest(task.task_id, task.task_hash, before)} {task.domain}",
        digest(before),
        tuple(digest_turn(turn) for turn in trajectory.turns),
        worth,
        may_be_chosen,
        None if parent is None else BranchOrigin(parent.episode_id, parent.turn),
        trajectory.content_hash,
    )


Totals = Mapping[str, tuple[float | None, str]]
"""(total or None where not scored, version of the scorer) by episode."""


class ScoredAndAccepted(NamedTuple):
    """The totals by episode id, and the ids of the episodes that the ranking accepts."""

    totals: Totals
    accepted: frozenset[str]


class ShardEpisode(NamedTuple):
    """A train episode of a shard. `episode` is None where it has no total, or where it is a branch whose parent's turns
    are missing.
    """

    episode_id: str
    task_id: str
    domain: str
    episode: ComparableEpisode | None


class ReducedShard(NamedTuple):
    """The train episodes of a shard. Branches are kept as trajectories, because their parents may be in other
    shards.
    """

    found: list[ShardEpisode]
    branches: list[Trajectory]


def read_comparable_episodes(
    folders: Sequence[Path], scored: ScoredAndAccepted, left_out: Counter[str], workers: int | None = None
) -> list[ComparableEpisode]:
    """Return the train episodes in `folders` that have a total. An episode that occurs in several nights is returned
    once. `left_out` is updated: it counts episodes without a total, and branches without their parent's turns.

    Raises DataError for an episode without scores, and for a task whose episodes were scored by two versions.
    """
    episodes: dict[str, ComparableEpisode] = {}
    branches: dict[str, Trajectory] = {}
    versions: dict[tuple[str, str], str] = {}
    work, on_progress = partial(reduce_shard, scored), print_progress("pairs: shards read")
    for shard in map_shards(folders, work, workers=workers, on_progress=on_progress):
        _keep_first(shard.found, scored, versions, episodes, left_out)
        for branch in shard.branches:
            branches.setdefault(branch.episode_id, branch)
    for whole in _complete_branches(folders, branches, workers):
        _keep_first([_shard_episode(whole, scored)], scored, versions, episodes, left_out)
    return list(episodes.values())


def _keep_first(
    shard_episodes: Sequence[ShardEpisode],
    scored: ScoredAndAccepted,
    versions: dict[tuple[str, str], str],
    episodes: dict[str, ComparableEpisode],
    left_out: Counter[str],
) -> None:
    for name, task_id, domain, episode in shard_episodes:
        if name in episodes:
            continue
        total, version = scored.totals[name]
        if (other := versions.setdefault((task_id, domain), version)) != version:
            raise DataError(f"task {task_id} is scored by {other} and {version}; score its nights anew")
        if episode is not None:
            episodes[name] = episode
        else:
            left_out["no_worth" if total is None else "no_parent"] += 1


def reduce_shard(scored: ScoredAndAccepted, trajectories: list[Trajectory], source: ShardSource) -> ReducedShard:
    """Reduce the train episodes of a shard; its branches are returned as they are. Raises DataError for an episode
    without scores, or one that cannot be compared.
    """
    train = [trajectory for trajectory in trajectories if trajectory.task.role == Role.TRAIN]
    branches = [trajectory for trajectory in train if trajectory.parent is not None]
    return ReducedShard(
        [_shard_episode(trajectory, scored, source) for trajectory in train if trajectory.parent is None], branches
    )


def _shard_episode(
    trajectory: Trajectory, scored: ScoredAndAccepted, source: ShardSource | None = None
) -> ShardEpisode:
    name, task_id, domain = trajectory.episode_id, trajectory.task.task_id, trajectory.task.domain
    scored_total = scored.totals.get(name)
    if scored_total is None:
        raise DataError(f"episode {name} has no scores; score this night first")
    total = scored_total[0]
    if total is None or not has_shared_turns(trajectory):
        return ShardEpisode(name, task_id, domain, None)
    chosen = name in scored.accepted and not episode_failed(trajectory)
    try:
        episode = comparable_episode(trajectory, total, chosen)
    except (OverflowError, RecursionError) as error:
        where = f"{source.folder / source.shard}: " if source else ""
        raise DataError(f"{where}episode {name} cannot be compared: {error}; leave it out of its night") from error
    return ShardEpisode(name, task_id, domain, episode._replace(moves=PackedTurns(episode.moves)))


def episode_failed(trajectory: Trajectory) -> bool:
    """Return whether the episode is known to have failed; such an episode is never chosen. False where the outcome is
    unknown.
    """
    outcome = outcome_score(trajectory, load_domain(trajectory.task.domain))
    return is_success(trajectory.outcome, outcome) is False


def _complete_branches(
    folders: Sequence[Path], branches: Mapping[str, Trajectory], workers: int | None
) -> Iterator[Trajectory]:
    """Yield the branches together with the turns of their parents, which are read from the shards again."""
    root_ids = frozenset(root_parents(branches))
    roots: dict[str, Trajectory] = {}
    if root_ids:
        for selected in map_shards(folders, partial(_select_episodes, root_ids), workers=workers):
            roots |= {root.episode_id: root for root in selected}
    yield from complete_branches(branches, roots)


def _select_episodes(names: frozenset[str], trajectories: list[Trajectory], source: ShardSource) -> list[Trajectory]:
    return [
        trajectory
        for trajectory in trajectories
        if trajectory.episode_id in names and trajectory.task.role == Role.TRAIN
    ]
