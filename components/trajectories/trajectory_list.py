"""Trajectories: episodes in memory, as `collect` and `read` return them."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, overload

from ratchet.components.core import ConfigurationError, DataError
from ratchet.components.core.environment_registry import load_plugins
from ratchet.components.core.errors import count_text

from .notebook_tables import NotebookTable
from .terminal_rendering import single_line
from .trajectory import Trajectory

REWARD_GROUP = "ratchet.rewards"
EpisodeReward = Callable[[Trajectory], float | bool | None]
"""Reward of a finished episode; None where it has none."""
_plugin_rewards: dict[str, EpisodeReward] = {}


def list_rewards() -> list[str]:
    """Return the names of the rewards that installed packages add by the entry-point group `ratchet.rewards`; each
    entry is an EpisodeReward.
    """
    load_plugins(REWARD_GROUP, _register_reward)
    return list(_plugin_rewards)


def _register_reward(name: str, reward: EpisodeReward) -> None:
    if not callable(reward):
        raise ConfigurationError("a reward is a function of a trajectory")
    _plugin_rewards[name] = reward


def find_reward(reward: EpisodeReward | str) -> EpisodeReward:
    """Return a reward function, or that of an installed package by its name. Raises ConfigurationError."""
    if not isinstance(reward, str):
        return reward
    if reward not in list_rewards():
        known = ", ".join(list_rewards()) or "none"
        raise ConfigurationError(f"unknown reward '{reward}'; installed: {known}; or give a function of a trajectory")
    return _plugin_rewards[reward]


class Trajectories(NotebookTable, Sequence[Trajectory]):
    """A sequence of episodes.

    `folder`: where they are kept as shards; None for memory alone. `rewards`: rewards by `episode_id`, where they were
    given one: they then stand for the rules' total in `compare` and the exports.

    >>> rollouts = ratchet.collect("orders", agent="teacher", tasks=2)
    >>> rollouts
    Trajectories(2 episodes of 2 tasks by teacher; success 100.0 %)
    >>> rollouts[0].task.taskset, len(rollouts[:1])
    ('orders', 1)
    >>> rollouts.to_pandas().columns[:3].tolist()
    ['episode_id', 'task_id', 'kind']
    """

    def __init__(
        self,
        episodes: Iterable[Trajectory],
        *,
        rewards: Mapping[str, float | None] | None = None,
        folder: Path | None = None,
    ) -> None:
        self._episodes = tuple(episodes)
        self.rewards = dict(rewards or {})
        self.folder = folder

    @overload
    def __getitem__(self, index: int) -> Trajectory: ...

    @overload
    def __getitem__(self, index: slice) -> "Trajectories": ...

    def __getitem__(self, index: int | slice) -> "Trajectory | Trajectories":
        if isinstance(index, slice):
            return Trajectories(self._episodes[index], rewards=self.rewards, folder=self.folder)
        return self._episodes[index]

    def __len__(self) -> int:
        return len(self._episodes)

    def where(self, keep: Callable[[Trajectory], bool]) -> "Trajectories":
        """Return the episodes for which `keep` is true."""
        return Trajectories(filter(keep, self._episodes), rewards=self.rewards, folder=self.folder)

    def with_rewards(self, reward: EpisodeReward | str) -> "Trajectories":
        """Return the same episodes with rewards by a function, or by the name of an installed one.

        An infrastructure failure has no reward. Raises DataError for a reward that is not a finite number.
        """
        function = find_reward(reward)
        rewards = {each.episode_id: _reward(function, each) for each in self._episodes}
        return Trajectories(self._episodes, rewards=rewards, folder=self.folder)

    @property
    def success_rate(self) -> float | None:
        """Share of successes among the episodes with a known outcome; None without one."""
        known = [each.outcome.success for each in self._episodes if each.outcome.success is not None]
        return sum(known) / len(known) if known else None

    @property
    def causes(self) -> dict[str, int]:
        """Number of episodes by the way they ended, most frequent first."""
        return dict(Counter(map(episode_cause, self._episodes)).most_common())

    @property
    def failures(self) -> dict[str, str]:
        """Message of the first failure of each kind, by its name in `causes`."""
        return {
            episode_cause(each): each.failure.message for each in reversed(self._episodes) if each.failure is not None
        }

    def rows(self) -> list[dict[str, Any]]:
        """Return one dictionary per episode: its task, agent, outcome, length and reward."""
        return [
            {
                "episode_id": each.episode_id,
                "task_id": each.task.task_id,
                "kind": each.task.kind,
                "family": each.task.family,
                "agent": each.agent.name,
                "attempt": each.attempt,
                "success": each.outcome.success,
                "score": each.outcome.score,
                "ended": episode_cause(each),
                "turns": len(each.turns),
                "steps": sum(len(turn.calls) for turn in each.turns),
                **({"reward": self.rewards.get(each.episode_id)} if self.rewards else {}),
            }
            for each in self._episodes
        ]

    def __repr__(self) -> str:
        agents = ", ".join(sorted({each.agent.name for each in self._episodes})) or "nobody"
        tasks = len({each.task.task_id for each in self._episodes})
        rate = self.success_rate
        success = "unknown" if rate is None else f"{100 * rate:.1f} %"
        failures = "".join(f"; {cause}: {single_line(message)}" for cause, message in self.failures.items())
        played = f"{count_text(len(self), 'episode')} of {count_text(tasks, 'task')}"
        return f"Trajectories({played} by {agents}; success {success}{failures})"

    def _caption(self) -> tuple[str, str]:
        ended = "; ".join(f"{cause}: {count}" for cause, count in self.causes.items())
        return repr(self), f"Ended by {ended}." if ended else ""


def _reward(function: EpisodeReward, trajectory: Trajectory) -> float | None:
    if trajectory.has_infrastructure_failure:
        return None
    value = function(trajectory)
    try:
        reward = None if value is None else float(value)
    except (TypeError, ValueError):
        reward = float("nan")
    if reward is not None and not abs(reward) < float("inf"):
        raise DataError(f"the reward of {trajectory.episode_id} is {value!r}; return a finite number, or None")
    return reward


def episode_cause(trajectory: Trajectory) -> str:
    """Return the way an episode ended: its failure, or the reason of its outcome."""
    if trajectory.failure is not None:
        return f"{trajectory.failure.kind.value}: {trajectory.failure.type}"
    return trajectory.outcome.reason or ("end of the task" if trajectory.outcome.terminated else "unknown")
