"""Score episodes in files, find preference pairs among them, and compare the rewards of several sets."""

from collections import Counter
from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from ratchet.components.core import HELD_OUT, ConfigurationError, DataError, list_domains
from ratchet.components.core.configuration import read_section
from ratchet.components.core.errors import suggest_name
from ratchet.components.core.home import params_file
from ratchet.components.datasets.export.message_views import pair_row
from ratchet.components.datasets.export.ranked_episodes import RankedPair, unranked_episode
from ratchet.components.evaluation.reward_comparison import (
    REWARD_COMPONENTS,
    RewardComparison,
    ScoredEpisode,
    compare_rewards,
)
from ratchet.components.nights.episode_sets import shortest_names
from ratchet.components.reporting.progress_display import ProgressDisplay, ProgressStep
from ratchet.components.rewards.annotation_records import JUDGEMENTS_FILE, Judgement, Label
from ratchet.components.rewards.calibration.calibration_record import Calibration
from ratchet.components.rewards.episode_score import EpisodeScore
from ratchet.components.rewards.episode_scoring import judgements_by_content, score_all
from ratchet.components.rewards.judges.judgement_cache import read_judgements
from ratchet.components.rewards.preferences.comparable_episodes import (
    ComparableEpisode,
    comparable_episode,
    episode_failed,
)
from ratchet.components.rewards.preferences.episode_worth import win_rate_labels
from ratchet.components.rewards.preferences.pair_building import (
    BuiltPairs,
    PairConfig,
    Preference,
    PreferenceSide,
    make_pairs,
)
from ratchet.components.rewards.preferences.pair_reasons import describe_turn, explain_preference
from ratchet.components.rewards.reference_steps import ReferenceSteps, reference_steps
from ratchet.components.rewards.reward_config import RewardConfig
from ratchet.components.trajectories.branch_completion import has_shared_turns, read_completed
from ratchet.components.trajectories.shards import read_folder, read_jsonl
from ratchet.components.trajectories.trajectory import Trajectory

CALIBRATION_FILE = Path("data/calibration.json")


def score_path(
    path: Path, domain: str | None, judgements: Sequence[Path] = (), calibration: Path | None = None
) -> Iterator[EpisodeScore]:
    """Yield the scores of a shard or a folder of shards, by `params.yaml` and, for judgements, `data/calibration.json`,
    if they exist.

    `domain` None: as each episode says. `judgements`: files, or folders with a `judgements.jsonl`. Raises
    ConfigurationError, DataError where there is no episode.
    """
    check_path(path, domain)
    config = read_section(params_file(), "score", RewardConfig)
    judged, calibrated = load_judgements(judgements, calibration)
    scores = score_all(_read(path), reference_steps(_read(path)), config, domain, judged, calibrated)
    first = next(scores, None)
    if first is None:
        raise DataError(f"{path} holds no trajectories; give a shard, or a folder that `ratchet collect` has filled")
    yield first
    yield from scores


def load_judgements(
    judgements: Sequence[Path], calibration: Path | None
) -> tuple[dict[str, list[Judgement]], Calibration | None]:
    """Return the judgements of files or folders by content hash of the episode, and the calibration: the given file's,
    else (with judgements) that of the last build; None if there is none.
    """
    by_content = judgements_by_content(judgement for file in judgements for judgement in read_judgement_file(file))
    calibration_file = calibration or (CALIBRATION_FILE if judgements and CALIBRATION_FILE.is_file() else None)
    return by_content, Calibration.load(calibration_file) if calibration_file else None


def check_path(path: Path, domain: str | None) -> None:
    """Raise ConfigurationError for a missing path, a pipe, or an unknown domain."""
    domains = list_domains()
    if domain is not None and domain not in domains:
        raise ConfigurationError(f"unknown domain '{domain}'; {suggest_name(domain, domains)}")
    if not path.exists():
        raise ConfigurationError(f"{path} is absent; give a JSONL file of trajectories or a folder of shards")
    if not path.is_dir() and not path.is_file():
        raise ConfigurationError(f"{path} can be read only once, and scoring reads twice; write it to a file first")


def _read(path: Path) -> Iterator[Trajectory]:
    return read_folder(path) if path.is_dir() else read_jsonl(path)


def read_judgement_file(path: Path) -> Iterator[Judgement]:
    """Return the judgements of a file, or of a folder's `judgements.jsonl`. Raises ConfigurationError where there is
    none, DataError.

    A cache may be written to meanwhile: an incomplete last line is skipped.
    """
    file = path / JUDGEMENTS_FILE if path.is_dir() else path
    if not file.is_file():
        raise ConfigurationError(f"{file} is absent; judge first (`ratchet judge`), or give another file")
    return read_judgements(file)


PROGRESS_EVERY = 100
"""Episodes between two progress updates."""


class EpisodeWithScore(NamedTuple):
    """An episode with its scores."""

    trajectory: Trajectory
    score: EpisodeScore


class EpisodeScorer:
    """Scores episodes as `ratchet score` does. `domain` None: as each episode says. `judgements` and `calibration` as
    in `load_judgements`.
    """

    def __init__(self, domain: str | None, judgements: Sequence[Path] = (), calibration: Path | None = None) -> None:
        self.domain = domain
        self._config = read_section(params_file(), "score", RewardConfig)
        self._known, self._calibration = load_judgements(judgements, calibration)

    def score(self, trajectory: Trajectory, references: ReferenceSteps) -> EpisodeScore:
        """Return the scores of one episode; `references`: number of calls that each task needs."""
        scores = score_all([trajectory], references, self._config, self.domain, self._known, self._calibration)
        return next(scores)


class EpisodesInFiles:
    """Episodes of files and folders of shards, without duplicates. Every iteration reads them again."""

    def __init__(self, paths: Sequence[Path], by: EpisodeScorer) -> None:
        for path in paths:
            check_path(path, by.domain)
        self._paths, self._by = paths, by

    def trajectories(self) -> Iterator[Trajectory]:
        """Yield every episode; branched episodes come last, each completed by the turns that it shares with its parent.

        Raises DataError, also where there is no episode.
        """
        yield from read_completed(self._each_once)

    def _each_once(self) -> Iterator[Trajectory]:
        seen_ids: set[str] = set()
        for path in self._paths:
            for trajectory in read_folder(path) if path.is_dir() else read_jsonl(path):
                if trajectory.episode_id not in seen_ids:
                    seen_ids.add(trajectory.episode_id)
                    yield trajectory
        if not seen_ids:
            names = ", ".join(map(str, self._paths))
            raise DataError(f"{names}: no trajectories; give a shard, or a folder that `ratchet collect` has filled")

    @cached_property
    def references(self) -> ReferenceSteps:
        """Number of calls that each task needs, derived from all these episodes; computed once."""
        return reference_steps(self.trajectories())

    def scored_episodes(
        self, references: ReferenceSteps, step: ProgressStep, only: set[str] | None = None
    ) -> Iterator[EpisodeWithScore]:
        """Yield every episode, or those with ids in `only`, with its scores; report the progress to `step`."""
        number = 0
        for number, trajectory in enumerate(self.trajectories(), start=1):
            if number % PROGRESS_EVERY == 0:
                step.update(done=number, remark=f"{number:,} episodes")
            if only is None or trajectory.episode_id in only:
                yield EpisodeWithScore(trajectory, self._by.score(trajectory, references))
        step.update(done=number, remark=f"{number:,} episodes")


class EpisodePreferences(NamedTuple):
    """Preference pairs (`made`), their episodes by id (`named`), and win rates where pairs are chosen by win rate."""

    made: BuiltPairs
    named: dict[str, EpisodeWithScore]
    win_rates: list[Label]

    def trainable(self) -> list[Preference]:
        """Return the pairs that may be trained on, without those of held-out tasks."""
        roles = {name: episode.trajectory.task.role for name, episode in self.named.items()}
        return [pair for pair in self.made.preferences if roles[pair.chosen.episode_id] not in HELD_OUT]

    def why(self, pair: Preference) -> str:
        """Return in one sentence why the chosen episode or step is preferred."""
        return explain_preference(pair, self.named[pair.chosen.episode_id], self.named[pair.rejected.episode_id])

    def describe(self, pair: Preference) -> dict[str, Any]:
        """Return the pair with what each side did, and the reason."""

        def side(one: PreferenceSide) -> dict[str, Any]:
            did = describe_turn(self.named[one.episode_id].trajectory, pair.turn)
            facts = {"worth": one.worth, "samples": one.samples, "length": one.summary.length}
            return {"episode_id": one.episode_id, **facts, "did": did}

        facts = {"task_id": pair.task_id, "level": pair.level, "turn": pair.turn, "margin": pair.margin}
        return {**facts, "chosen": side(pair.chosen), "rejected": side(pair.rejected), "why": self.why(pair)}

    def row(self, pair: Preference) -> dict[str, Any]:
        """Return the pair as a row for TRL's DPO trainer."""
        chosen, rejected = (self.named[side.episode_id].trajectory for side in (pair.chosen, pair.rejected))
        sides = pair.chosen.episode_id, pair.rejected.episode_id
        exported = RankedPair(pair.task_id, pair.level, pair.turn, *sides, pair.margin)
        return pair_row(exported, chosen, rejected, unranked_episode(chosen), unranked_episode(rejected))


def pair_config(**changes: Any) -> PairConfig:
    """Return the section `pairs` of `params.yaml` (else the defaults), overridden by changes that are not None."""
    base = read_section(params_file(), "pairs", PairConfig)
    return PairConfig.load(base.model_dump() | {name: value for name, value in changes.items() if value is not None})


def preferences_in(paths: Sequence[Path], by: EpisodeScorer, config: PairConfig) -> EpisodePreferences:
    """Return preference pairs among the episodes of files and folders, with a progress display.

    An episode that is known to have failed is never the chosen side.
    """
    episodes = EpisodesInFiles(paths, by)
    left_out: Counter[str] = Counter()
    with ProgressDisplay() as display, display.step("score episodes") as step:
        contents: dict[str, tuple[str, str]] = {}
        compared: list[ComparableEpisode] = []
        for trajectory, score in episodes.scored_episodes(episodes.references, step):
            if score.total is None:
                left_out["no_worth"] += 1
            elif not has_shared_turns(trajectory):
                left_out["no_parent"] += 1
            else:
                contents[trajectory.episode_id] = (trajectory.content_hash, trajectory.task.domain)
                compared.append(comparable_episode(trajectory, score.total, not episode_failed(trajectory)))
        built = make_pairs(compared, config, left_out)
        names = {side.episode_id for pair in built.preferences for side in (pair.chosen, pair.rejected)}
        paired = {
            episode.trajectory.episode_id: episode
            for episode in episodes.scored_episodes(episodes.references, step, names)
        }
    return EpisodePreferences(built, paired, win_rate_labels(compared, contents) if config.worth == "winrate" else [])


def compare_files(paths: Sequence[Path], by: EpisodeScorer, seed: int = 0) -> RewardComparison:
    """Compare the rewards of two or more files or folders with the first."""
    sets = {name: EpisodesInFiles([path], by) for name, path in zip(_names(paths), paths, strict=True)}
    all_files = EpisodesInFiles(paths, by)
    scored: dict[str, list[ScoredEpisode]] = {name: [] for name in sets}
    with ProgressDisplay() as display:
        for name, files in sets.items():
            with display.step(f"score {name}") as step:
                # The efficiency is relative to all files together, so that their rewards can be compared.
                for trajectory, score in files.scored_episodes(all_files.references, step):
                    task, parts = trajectory.task, {part: getattr(score, part) for part in REWARD_COMPONENTS}
                    scored[name].append(ScoredEpisode(task.task_id, task.task_hash, task.family, parts))
    return compare_rewards(scored, seed=seed)


def _names(paths: Sequence[Path]) -> list[str]:
    """Return display names of the files. Raises ConfigurationError for fewer than two, or for one that is given twice."""
    if len(paths) < 2:
        raise ConfigurationError("one set alone has nothing to be compared with; give two or more files")
    twice = [path for path, times in Counter(paths).items() if times > 1]
    if twice:
        raise ConfigurationError(f"{twice[0]} is given twice; compare different files")
    return shortest_names(paths)
