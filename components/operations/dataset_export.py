"""Export episodes in memory as datasets for training: the rows of `ratchet export`, without a data build."""

import warnings
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

import msgspec

from ratchet.components.core import DataError
from ratchet.components.datasets.deduplication.split_assignment import Split, TaskToSplit, assign_splits
from ratchet.components.datasets.export.dataset_rows import Row
from ratchet.components.datasets.export.export_datasets import FORMATS, ExportFormat, write_rendered
from ratchet.components.datasets.export.export_plan import ExportTables, ProcessRewards, plan_rows
from ratchet.components.datasets.export.message_views import EpisodeViews, MessageView, recorded_tools, view_json
from ratchet.components.datasets.export.ranked_episodes import RankedEpisode, RankedPair, unranked_episode
from ratchet.components.datasets.export.render_batches import RenderWork, rendered_batches
from ratchet.components.datasets.stage_params import ExportParams, QualityParams
from ratchet.components.datasets.validation.episode_features import episode_source
from ratchet.components.interop.trajectory_writers import RATCHET_FORMAT
from ratchet.components.rewards.episode_score import EpisodeScore
from ratchet.components.rewards.preferences.comparable_episodes import comparable_episode, episode_failed
from ratchet.components.rewards.preferences.pair_building import BuiltPairs, PairConfig, make_pairs
from ratchet.components.trajectories.branch_completion import has_shared_turns, read_completed
from ratchet.components.trajectories.shards import has_valid_hash
from ratchet.components.trajectories.trajectory import Trajectory, content_hash
from ratchet.components.trajectories.trajectory_list import Trajectories

from .episode_scores import score

DEMONSTRATORS = frozenset(QualityParams().demonstrators)


def export_sft(
    episodes: Iterable[Trajectory],
    out: Path | str | None = None,
    *,
    min_reward: float | None = None,
    validation: float = 0.0,
    agent_format: Literal["tools", "text"] = "tools",
) -> list[Row]:
    """Return the rows of an SFT dataset: `messages` and `tools` of each success, for TRL's SFTTrainer.

    Only tasks of the role `train` are exported. `min_reward`: take the episodes with at least this reward instead of the
    known successes. `validation`: share of the tasks that is held out, by whole families. `agent_format`: `text` for
    chat templates without tools. `out`: a new folder, written as by `ratchet export`: JSON lines by split, a card, the
    origin of each row. Raises DataError where no episode qualifies.

    >>> rows = ratchet.export_sft(ratchet.collect("orders", agent="teacher", tasks=2), "sft")
    >>> len(rows), [message["role"] for message in rows[0]["messages"]][:2]
    (2, ['user', 'assistant'])
    """
    work = _plan("sft", episodes, min_reward, validation, agent_format)
    advice = "no episode of a train task is a known success; give min_reward (--min-reward) to choose by reward instead"
    if min_reward is not None:
        advice = f"no episode of a train task has a reward of at least {min_reward:g}; see them with `ratchet score`"
    return _rows("sft", work, out, advice)


def export_dpo(
    episodes: Iterable[Trajectory],
    out: Path | str | None = None,
    *,
    level: Literal["step", "trajectory"] = "step",
    margin: float = 0.05,
    validation: float = 0.0,
    agent_format: Literal["tools", "text"] = "tools",
) -> list[Row]:
    """Return the rows of a DPO dataset: `prompt`, `chosen`, `rejected` and `tools`, for TRL's DPOTrainer.

    A pair is two attempts at one task whose rewards differ by at least `margin`. `level`: `step` pairs two assistant
    messages after the same history, `trajectory` whole episodes. The other arguments are those of `export_sft`. Raises
    DataError without a pair.

    >>> good = ratchet.collect("orders", agent="teacher", tasks=4)
    >>> bad = ratchet.collect("orders", agent=lambda request: {"tool": "respond", "params": {"text": "No."}}, tasks=4)
    >>> sorted(ratchet.export_dpo([*good, *bad])[0])[:3]
    ['chosen', 'episode_ids', 'family']
    """
    work = _plan("dpo", episodes, None, validation, agent_format, level, margin)
    return _rows("dpo", work, out, "no preference pair is of a train task")


def export_grpo(
    episodes: Iterable[Trajectory],
    out: Path | str | None = None,
    *,
    validation: float = 0.0,
    agent_format: Literal["tools", "text"] = "tools",
) -> list[Row]:
    """Return the rows of an offline GRPO dataset: each `prompt` with its `attempts`, `rewards` and `advantages`.

    A group is 2 to 8 attempts of one policy at one task, with different rewards. `out` also gets the tasks as prompts,
    for TRL's GRPOTrainer (`out/grpo` beside `out/groups`). Raises DataError without a group.

    >>> import random
    >>> coin = lambda trajectory: random.random()
    >>> rollouts = ratchet.collect("orders", agent=lambda request: "Done.", tasks=1, attempts=4, reward=coin)
    >>> len(ratchet.export_grpo(rollouts)[0]["advantages"])
    4
    """
    work = _plan("grpo", episodes, None, validation, agent_format)
    advice = "no policy has two attempts at one train task with different rewards; give several attempts at each"
    return _rows("grpo", work, out, advice)


def export_huggingface(
    episodes: Iterable[Trajectory],
    out: Path | str,
    *,
    validation: float = 0.0,
    agent_format: Literal["tools", "text"] = "tools",
) -> Path:
    """Write SFT, DPO, GRPO and benchmark datasets as one folder for the Hugging Face Hub, and return it.

    Each dataset is a configuration of its card: `datasets.load_dataset(folder, "sft")`.

    >>> folder = ratchet.export_huggingface(ratchet.collect("orders", agent="teacher", tasks=2), "hub")
    >>> sorted(path.name for path in folder.iterdir())
    ['README.md', 'benchmark', 'dpo', 'groups', 'grpo', 'sft']
    """
    work = _plan("huggingface", episodes, None, validation, agent_format)
    _write("huggingface", work, Path(out))
    return Path(out)


class _MemoryViews(EpisodeViews):
    """Views of episodes in memory."""

    def __init__(self, episodes: Iterable[Trajectory], agent_format: Literal["tools", "text"]) -> None:
        self._episodes = {each.episode_id: each for each in episodes}
        self._format = agent_format

    def json(self, episode_id: str, want: MessageView) -> bytes:
        """Return a view of an episode as JSON."""
        return view_json(self._episodes[episode_id], want, agent_format=self._format)


def _plan(
    format: ExportFormat,
    episodes: Iterable[Trajectory],
    min_reward: float | None,
    validation: float,
    agent_format: Literal["tools", "text"],
    level: Literal["step", "trajectory"] = "step",
    margin: float = 0.05,
) -> RenderWork:
    whole = _complete_episodes(episodes)
    if undefined := sum(any(turn.calls for turn in each.turns) and not recorded_tools(each) for each in whole):
        note = f"{undefined} of {len(whole)} episodes call tools that their log does not define: their rows have no `tools`"
        warnings.warn(note, stacklevel=3)
    scores = {each.episode_id: each for each in score(whole)}
    rewards = {name: own.total for name, own in scores.items()} | getattr(episodes, "rewards", {})
    ranked = _ranked(whole, rewards, min_reward, _splits(whole, validation))
    params = ExportParams.load({"agent_format": agent_format, "pair_levels": [level]})
    config = PairConfig.load({"margin": margin, "levels": [level]})
    made = _pairs(whole, rewards, ranked, config)
    if format == "dpo" and not made.preferences:
        raise DataError(f"{made.report.why_none(config)}; give several attempts at each train task, or another level")
    pairs = [
        RankedPair(pair.task_id, pair.level, pair.turn, pair.chosen.episode_id, pair.rejected.episode_id, pair.margin)
        for pair in made.preferences
    ]
    tables = ExportTables(ranked, pairs, _process_rewards(scores.values()), params, own_only=False)
    plans = {name: plan_rows(name, tables) for name in FORMATS[format]}
    return RenderWork(plans, tables, _MemoryViews(whole, agent_format))


def _complete_episodes(episodes: Iterable[Trajectory]) -> Trajectories:
    """Return each episode once, branches with the turns of their parents, without copies of a log under another name.
    Raises DataError for two with one id.
    """
    by_id: dict[str, Trajectory] = {}
    for each in episodes:
        if by_id.setdefault(each.episode_id, each).effective_hash != each.effective_hash:
            raise DataError(f"two different episodes have the id {each.episode_id}; give one of them")
    whole = [each for each in read_completed(by_id.values) if has_shared_turns(each)]
    task_of: dict[str, str] = {}
    copies = {
        each.episode_id for each in whole if task_of.setdefault(_content(each), each.task.task_id) != each.task.task_id
    }
    if copies:
        warnings.warn(f"{len(copies)} episodes repeat a log under the name of another task: left out", stacklevel=4)
        whole = [each for each in whole if each.episode_id not in copies]
    return Trajectories(each if has_valid_hash(each) else each.with_content_hash() for each in whole)


def _content(trajectory: Trajectory) -> str:
    """Return what a renamed copy of a log has in common with it; of an episode of ours, which is no copy, the id."""
    if trajectory.provenance.source == RATCHET_FORMAT:
        return trajectory.episode_id
    return content_hash(
        msgspec.structs.replace(trajectory, task=msgspec.structs.replace(trajectory.task, task_id="", family=""))
    )


def _splits(episodes: Sequence[Trajectory], validation: float) -> dict[str, Split | None]:
    families = {each.task.task_id: (each.task.family, each.task.kind) for each in episodes}
    tasks = [TaskToSplit(task_id, family, kind) for task_id, (family, kind) in sorted(families.items())]
    decisions = assign_splits(tasks, {"validation": validation})
    return {task.task_id: decision.split for task, decision in zip(tasks, decisions, strict=True)}


def _ranked(
    episodes: Sequence[Trajectory],
    rewards: dict[str, float | None],
    min_reward: float | None,
    splits: dict[str, Split | None],
) -> dict[str, RankedEpisode]:
    outcomes: dict[str, list[bool]] = defaultdict(list)
    for each in episodes:
        if each.outcome.success is not None:
            outcomes[each.group_id].append(each.outcome.success)
    rows = {}
    for each in episodes:
        task, own, reward = each.task, outcomes[each.group_id], rewards[each.episode_id]
        enough = reward is not None and min_reward is not None and reward >= min_reward
        rows[each.episode_id] = msgspec.structs.replace(
            unranked_episode(each),
            source=episode_source(each, DEMONSTRATORS),
            pass_rate=sum(own) / len(own) if own else None,
            accepted=enough if min_reward is not None else each.outcome.success is True,
            infrastructure_failure=each.has_infrastructure_failure,
            taskset=task.taskset,
            domain=task.domain,
            policy_version=each.agent.policy_version,
            success=each.outcome.success,
            turns=len(each.turns),
            steps=sum(len(turn.calls) for turn in each.turns),
            reward=reward,
            split=splits[task.task_id],
            reason="a success" if min_reward is None else f"a reward of at least {min_reward:g}, whatever the outcome",
        )
    return rows


def _pairs(
    episodes: Sequence[Trajectory],
    rewards: dict[str, float | None],
    ranked: dict[str, RankedEpisode],
    config: PairConfig,
) -> BuiltPairs:
    compared = [
        comparable_episode(each, reward, not episode_failed(each))
        for each in episodes
        if (reward := rewards[each.episode_id]) is not None and ranked[each.episode_id].usable
    ]
    return make_pairs(compared, config)


def _process_rewards(scores: Iterable[EpisodeScore]) -> ProcessRewards:
    means: dict[str, dict[int, float]] = {}
    versions: Counter[str] = Counter()
    for episode in scores:
        versions[episode.version] += 1
        by_turn: dict[int, list[float]] = defaultdict(list)
        for step in episode.steps:
            if step.total is not None:
                by_turn[step.turn].append(step.total)
        means[episode.episode_id] = {turn: round(sum(own) / len(own), 6) for turn, own in by_turn.items()}
    return ProcessRewards.of_means(means, versions)


def _rows(format: ExportFormat, work: RenderWork, out: Path | str | None, advice: str) -> list[Row]:
    """Return the rows of the format's last dataset, train first, and write all of them to `out`."""
    last = FORMATS[format][-1]
    lines = rendered_batches(work._replace(plans={last: work.plans[last]}), in_memory=True)
    rows: list[Any] = [msgspec.json.decode(line) for batch in lines for line in batch.data.splitlines()]
    if not rows:
        raise DataError(advice)
    if out is not None:
        _write(format, work, Path(out))
    return rows


def _write(format: ExportFormat, work: RenderWork, out: Path) -> None:
    inputs = {
        "nights": [],
        "as_of": datetime.now(UTC).date().isoformat(),
        "scorers": work.source.steps.versions,
        "params": work.source.params.model_dump(mode="json"),
        "selected": sorted({each.reason for each in work.source.ranked.values()}),
    }
    write_rendered(format, work, inputs, out)
