"""Which of two ways was better: one rule, for single turns and for whole episodes.

Episodes of one task with the same opening messages form a tree: they share turns until one of them says something else.
The *options* at a fork are the different assistant messages there (for whole episodes: the different transcripts), each
worth the mean total of the episodes that went through it. Options are paired best with worst, inwards, as long as the margin
holds: the difference of worth, and that of the two episodes that stand for them, is at least `margin`. An option is
chosen only through an episode that may be chosen (accepted, and no known failure). No option occurs twice at a fork, so no
two pairs contradict each other. What differs by a result and not by a message is no fork: the world differed, not the agent.
"""

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from math import fsum
from typing import NamedTuple

import msgspec

from components.trajectories.messages import opening, turn_messages
from components.trajectories.record import Trajectory, Turn, digest

WHOLE = -1


class Played(NamedTuple):
    """What pairing needs of an episode. `said` and `heard`: one hash per turn, of its message and of what came back."""

    episode_id: str
    task_id: str
    start: str
    said: tuple[str, ...]
    heard: tuple[str, ...]
    total: float
    may_be_chosen: bool


class Pair(NamedTuple):
    """`level` is step or trajectory; `turn` the assistant turn that differs, -1 for whole episodes."""

    task_id: str
    level: str
    turn: int
    chosen_episode_id: str
    rejected_episode_id: str
    margin: float


def played(trajectory: Trajectory, total: float, may_be_chosen: bool) -> Played:
    """A trajectory reduced to what pairing compares: what a model would read, without the ids of calls."""
    task = trajectory.task
    start = digest(task.task_id, task.task_hash, opening(trajectory.messages))
    turns = [_without_ids(turn) for turn in trajectory.turns]
    said = tuple(digest(messages[0]) for messages in turns)
    heard = tuple(digest(messages[1:]) for messages in turns)
    return Played(trajectory.episode_id, task.task_id, start, said, heard, total, may_be_chosen)


def _without_ids(turn: Turn) -> list[dict[str, object]]:
    """The messages of a turn with its calls numbered by position."""
    number = {call.call_id: str(place) for place, call in enumerate(turn.calls)}
    calls = tuple(msgspec.structs.replace(call, call_id=number[call.call_id]) for call in turn.calls)
    results = tuple(
        msgspec.structs.replace(each, call_id=number.get(each.call_id, each.call_id)) for each in turn.results
    )
    return turn_messages(msgspec.structs.replace(turn, calls=calls, results=results))


def step_pairs(episodes: Iterable[Played], margin: float) -> Iterator[Pair]:
    """Pairs of single assistant messages after the same history, in a fixed order."""
    forks: dict[tuple[int, str], list[tuple[Played, str]]] = defaultdict(list)
    for episode in episodes:
        history = episode.start
        for turn, (said, heard) in enumerate(zip(episode.said, episode.heard, strict=True)):
            forks[turn, history].append((episode, said))
            history = digest(history, said, heard)
    for (turn, _), through in sorted(forks.items(), key=lambda fork: fork[0]):
        yield from _pairs("step", turn, through, margin)


def trajectory_pairs(episodes: Iterable[Played], margin: float) -> Iterator[Pair]:
    """Pairs of whole episodes of one task, in a fixed order."""
    starts: dict[str, list[tuple[Played, Hashable]]] = defaultdict(list)
    for episode in episodes:
        starts[episode.start].append((episode, (episode.said, episode.heard)))
    for _, through in sorted(starts.items(), key=lambda start: start[0]):
        yield from _pairs("trajectory", WHOLE, through, margin)


def _pairs(level: str, turn: int, through: Sequence[tuple[Played, Hashable]], margin: float) -> Iterator[Pair]:
    options: dict[Hashable, list[Played]] = defaultdict(list)
    for episode, option in through:
        options[option].append(episode)
    for chosen, rejected, difference in _inwards([_Option(each) for each in options.values()], margin):
        yield Pair(chosen.task_id, level, turn, chosen.episode_id, rejected.episode_id, difference)


class _Option:
    """One of the ways at a fork. `best` stands for it where it is chosen, `worst` where it is rejected."""

    def __init__(self, episodes: list[Played]) -> None:
        order: Callable[[Played], tuple[float, str]] = lambda each: (each.total, each.episode_id)  # noqa: E731
        self.worth = fsum(episode.total for episode in episodes) / len(episodes)
        self.best = max((each for each in episodes if each.may_be_chosen), key=order, default=None)
        self.worst = min(episodes, key=order)


def _inwards(options: list[_Option], margin: float) -> Iterator[tuple[Played, Played, float]]:
    """Best with worst, then the next within, each option once."""
    ranked = sorted(options, key=lambda option: (option.worth, option.worst.episode_id))
    low, high = 0, len(ranked) - 1
    while low < high:
        best, worst = ranked[high], ranked[low]
        difference = best.worth - worst.worth
        if difference < margin:
            return
        if best.best is None or best.best.total - worst.worst.total < margin:
            high -= 1
            continue
        yield best.best, worst.worst, round(difference, 9)
        low, high = low + 1, high - 1
