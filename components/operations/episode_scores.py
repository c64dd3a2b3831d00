"""Score episodes from Python as `ratchet score` does."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, overload

from ratchet.components.core.configuration import read_section
from ratchet.components.core.errors import count_text
from ratchet.components.core.home import params_file
from ratchet.components.rewards.episode_score import EpisodeScore
from ratchet.components.rewards.episode_scoring import score_all
from ratchet.components.rewards.reference_steps import reference_steps
from ratchet.components.rewards.reward_config import RewardConfig
from ratchet.components.trajectories.notebook_tables import NotebookTable
from ratchet.components.trajectories.trajectory import Trajectory
from ratchet.components.trajectories.trajectory_list import Trajectories


class EpisodeScores(NotebookTable, Sequence[EpisodeScore]):
    """The scores of several episodes, in their order."""

    def __init__(self, scores: Iterable[EpisodeScore], episodes: Sequence[Trajectory]) -> None:
        self._scores, self._episodes = tuple(scores), episodes

    @overload
    def __getitem__(self, index: int) -> EpisodeScore: ...

    @overload
    def __getitem__(self, index: slice) -> "EpisodeScores": ...

    def __getitem__(self, index: int | slice) -> "EpisodeScore | EpisodeScores":
        if isinstance(index, slice):
            return EpisodeScores(self._scores[index], self._episodes[index])
        return self._scores[index]

    def __len__(self) -> int:
        return len(self._scores)

    @property
    def mean(self) -> float | None:
        """Mean total of the episodes that have one; None without any."""
        totals = [each.total for each in self._scores if each.total is not None]
        return sum(totals) / len(totals) if totals else None

    def rows(self) -> list[dict[str, Any]]:
        """Return one dictionary per episode: its task, its total and the parts of it, and the first reason."""
        return [
            {
                "episode_id": each.episode_id,
                "task_id": episode.task.task_id,
                "success": episode.outcome.success,
                "total": each.total,
                "outcome": each.outcome,
                "process": each.process,
                "efficiency": each.efficiency,
                "steps": len(each.steps),
                "why": each.explanations[0].why if each.explanations else "",
            }
            for each, episode in zip(self._scores, self._episodes, strict=True)
        ]

    def __repr__(self) -> str:
        mean = "unknown" if self.mean is None else f"{self.mean:.3f}"
        return f"EpisodeScores({count_text(len(self), 'episode')}; mean total {mean})"


@overload
def score(
    episodes: Trajectory,
    *,
    domain: str | None = None,
    config: RewardConfig | None = None,
    judgements: Sequence[Path | str] = (),
    calibration: Path | str | None = None,
) -> EpisodeScore: ...


@overload
def score(
    episodes: Iterable[Trajectory],
    *,
    domain: str | None = None,
    config: RewardConfig | None = None,
    judgements: Sequence[Path | str] = (),
    calibration: Path | str | None = None,
) -> EpisodeScores: ...


def score(
    episodes: Trajectory | Iterable[Trajectory],
    *,
    domain: str | None = None,
    config: RewardConfig | None = None,
    judgements: Sequence[Path | str] = (),
    calibration: Path | str | None = None,
) -> EpisodeScore | EpisodeScores:
    """Return the process reward of each episode, with its parts and reasons; of a single one its score alone.

    `domain`: the profile that scores all of them; None: that of each task. `config`: weights; None: the section `score`
    of `params.yaml`, else the defaults. `judgements`: files or folders of `ratchet judge`. Efficiency is relative to
    the successful episodes given here. Raises ConfigurationError, DataError.

    >>> rollouts = ratchet.collect("orders", agent="teacher", tasks=3)
    >>> ratchet.score(rollouts)
    EpisodeScores(3 episodes; mean total 1.000)
    >>> ratchet.score(rollouts[0]).total
    1.0
    """
    from .score_files import load_judgements

    single = isinstance(episodes, Trajectory)
    whole: Sequence[Trajectory] = [episodes] if isinstance(episodes, Trajectory) else Trajectories(episodes)
    judged, calibrated = load_judgements(
        [Path(each) for each in judgements], Path(calibration) if calibration else None
    )
    weights = config or read_section(params_file(), "score", RewardConfig)
    scores = EpisodeScores(score_all(whole, reference_steps(whole), weights, domain, judged, calibrated), whole)
    return scores[0] if single else scores
