"""Tree: what episodes and their branches say of a way that was gone, each sample counted once.

Many branches of one episode share all that came before them. Taken as so many independent episodes, they would outvote, at
every earlier fork, the episodes that were never branched. So the value of an episode seen from a turn is nested: at each
later turn where branches left it, the mean over it and them, each seen from there. Without branches it is the episode's worth.

Only branches of the same policy refine the value of what came before them: what another one (or a planted error) makes of the
situation says nothing of what this policy would have earned.
"""

from collections import defaultdict
from collections.abc import Iterable
from math import fsum

from .played import Left, Played


class Tree:
    """The branching of some episodes. A branch whose parent is not among them counts as an episode of its own."""

    def __init__(self, episodes: Iterable[Played]) -> None:
        self._by_id = {each.episode_id: each for each in episodes}
        self._left = {name: self._leave(each) for name, each in self._by_id.items()}
        self._branches: dict[str, list[tuple[int, Played]]] = defaultdict(list)
        for name, left in self._left.items():
            branch = self._by_id[name]
            if left is not None and branch.policy == self._by_id[left.episode_id].policy:
                self._branches[left.episode_id].append((left.turn, branch))
        self._values: dict[str, list[tuple[int, float]]] = {}
        for name in self._deepest_first():
            self._values[name] = self._seen_from(self._by_id[name])

    def is_own(self, episode: Played, turn: int) -> bool:
        """Whether the episode's policy chose the message of that turn: it was not taken over from the parent."""
        left = self._left[episode.episode_id]
        return left is None or turn >= left.turn

    def value(self, episode: Played, turn: int) -> float:
        """What the episode is worth, seen from that turn on: with the branches that left it later."""
        later = (value for left_at, value in self._values.get(episode.episode_id, ()) if left_at > turn)
        return next(later, episode.worth)

    def _leave(self, episode: Played) -> Left | None:
        """Where the episode left another: that one's ancestor, where it left within what was taken over from it."""
        left, seen = episode.parent, {episode.episode_id}
        while left is not None and (parent := self._by_id.get(left.episode_id)) is not None:
            if parent.episode_id in seen:
                return None
            seen.add(parent.episode_id)
            if parent.parent is None or left.turn > parent.parent.turn or parent.parent.episode_id not in self._by_id:
                return left
            left = Left(parent.parent.episode_id, left.turn)
        return None

    def _deepest_first(self) -> list[str]:
        """Branches before those that they left; no recursion, for a chain of branches may be long."""
        depths: dict[str, int] = {}
        for name in self._by_id:
            chain: dict[str, None] = {}
            above: str | None = name
            while above is not None and above not in depths and above not in chain:
                chain[above] = None
                left = self._left[above]
                above = left.episode_id if left is not None else None
            depth = depths.get(above, 0) if above is not None else 0
            for each in reversed(chain):
                depth += 1
                depths[each] = depth
        return sorted(depths, key=lambda name: (-depths[name], name))

    def _seen_from(self, episode: Played) -> list[tuple[int, float]]:
        """For each turn at which branches left the episode, in order, its value from there on."""
        at: dict[int, list[float]] = defaultdict(list)
        for turn, branch in self._branches[episode.episode_id]:
            at[turn].append(self.value(branch, turn))
        value = episode.worth
        found: list[tuple[int, float]] = []
        for turn in sorted(at, reverse=True):
            others = sorted(at[turn])
            value = fsum((value, *others)) / (1 + len(others))
            found.append((turn, value))
        return found[::-1]
