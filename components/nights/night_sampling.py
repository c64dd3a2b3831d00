"""Choose the tasks that a night plays and the episodes that it judges, as pure functions of their inputs and a seed."""

import hashlib
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import groupby

from ratchet.components.core import ConfigurationError, TaskSpec
from ratchet.components.rewards.annotation_records import Judgement
from ratchet.components.rewards.judges.judge import Judge
from ratchet.components.rewards.judges.judgement_cache import JudgementCache
from ratchet.components.rewards.judges.judging_run import can_be_judged, count_pending
from ratchet.components.trajectories.trajectory import Trajectory, digest

from .recipe_config import Recipe
from .scale_config import Scale


def shuffle_tasks(tasks: Sequence[TaskSpec], seed: int, purpose: str) -> list[TaskSpec]:
    """Shuffle tasks by a hash of seed, purpose and task id; the order in the taskset has no influence."""
    # Not `random.shuffle`: a task that is added to the taskset must not change the order of the others.
    return sorted(tasks, key=lambda task: hashlib.sha256(f"{seed}/{purpose}/{task.task_id}".encode()).digest())


def order_by_family(tasks: Sequence[TaskSpec], seed: int) -> tuple[str, ...]:
    """Return task ids grouped by family; the order of families is a hash of seed and family name."""

    def family_key(task: TaskSpec) -> tuple[bytes, str]:
        return hashlib.sha256(f"{seed}/families/{task.family}".encode()).digest(), task.family

    return tuple(task.task_id for task in sorted(tasks, key=family_key))


def draw_tasks(tasks: Sequence[TaskSpec], count: int, seed: int, purpose: str) -> tuple[str, ...]:
    """Draw `count` task ids without replacement, by a hash of seed, `purpose` and task id. Raises ConfigurationError
    where there are fewer tasks.
    """
    if len(tasks) < count:
        raise ConfigurationError(
            f"{purpose}: {count} tasks were asked for and the taskset has {len(tasks)} of the role that it plays; "
            "lower the number, or see the roles with `ratchet tasks list`"
        )
    return tuple(task.task_id for task in shuffle_tasks(tasks, seed, purpose)[:count])


def draw_undemonstrated(
    tasks: Sequence[TaskSpec],
    count: int,
    seed: int,
    *,
    demonstrated: Collection[str],
    plays: Mapping[str, int] | None = None,
) -> tuple[str, ...]:
    """Draw `count` task ids that are not in `demonstrated`, those played least on earlier nights (`plays`) first.

    Raises ConfigurationError where there are fewer.
    """
    play_counts = Counter(plays or {})
    # The sort below is stable: tasks that were played equally often keep the order that the seed gave them.
    allowed = [task for task in shuffle_tasks(tasks, seed, "collection") if task.task_id not in set(demonstrated)]
    if len(allowed) < count:
        raise ConfigurationError(
            f"collection: {count} tasks were asked for and {len(allowed)} were never demonstrated; lower the number"
        )
    return tuple(task.task_id for task in sorted(allowed, key=lambda task: play_counts[task.task_id])[:count])


def check_first_night(scale: Scale, recipe: Recipe, tasks: int) -> None:
    """Check that `tasks` train tasks are enough for a first night: no later step plays a task that the teacher
    demonstrates. Raises ConfigurationError.
    """
    asked = {"collection": scale.collection.tasks}
    asked |= {stage.name: how.tasks for stage in recipe.stages if (how := stage.sample or stage.choose) is not None}
    step, most = max(asked.items(), key=lambda item: item[1])
    if (shown := scale.demonstrations.tasks) + most > tasks:
        raise ConfigurationError(
            f"{scale.taskset} has {tasks} train tasks: too few for {shown} demonstrations and {most} other tasks ({step}); "
            "lower one of the numbers"
        )


def draw_least_used(
    pools: Mapping[str, Sequence[TaskSpec]], count: int, seed: int, uses: Mapping[str, int]
) -> tuple[str, ...]:
    """Draw `count` task ids from all pools, those used least (`uses` by id) first; at equal use an earlier pool comes
    first.

    Raises ConfigurationError where there are fewer tasks.
    """
    candidates = [task for name, tasks in pools.items() for task in shuffle_tasks(tasks, seed, name)]
    if len(candidates) < count:
        raise ConfigurationError(
            f"evaluation: {count} tasks were asked for, {' and '.join(pools)} have {len(candidates)}; lower the number"
        )
    return tuple(task.task_id for task in sorted(candidates, key=lambda task: uses.get(task.task_id, 0))[:count])


def affordable_groups(
    chosen: Sequence[Trajectory], judges: Sequence[Judge], cache: JudgementCache, calls: int | None
) -> list[Trajectory]:
    """Return the episodes of the first groups of `chosen` that `calls` judge requests suffice for, if every answer is
    valid; all if `calls` is None. Cached judgements need no request.
    """
    if calls is None:
        return list(chosen)
    affordable: list[Trajectory] = []
    for group in group_episodes(chosen):
        calls -= count_pending(group, judges, cache)[1]
        if calls < 0:
            break
        affordable += group
    return affordable


def incomplete_judgements(
    chosen: Sequence[Trajectory], judges: Sequence[Judge], judgements: Iterable[Judgement]
) -> dict[str, Judgement]:
    """Return the judgements of groups in which a judgement is missing, by key, so that the caller can drop them: they
    would bias comparisons within the group.
    """
    by_content: dict[str, list[Judgement]] = defaultdict(list)
    for judgement in judgements:
        by_content[judgement.content_hash].append(judgement)
    incomplete: dict[str, Judgement] = {}
    for group in group_episodes(chosen):
        contents = {trajectory.content_hash: trajectory for trajectory in group}
        group_judgements = [judgement for content in contents for judgement in by_content[content]]
        # With an empty cache everything is pending: the number of judgements of a group that is judged completely.
        if len(group_judgements) < count_pending(contents.values(), judges, JudgementCache(None))[0]:
            incomplete |= {judgement.key: judgement for judgement in group_judgements}
    return incomplete


def group_episodes(chosen: Iterable[Trajectory]) -> list[list[Trajectory]]:
    """Group consecutive episodes by their group id; the episodes of a group must be adjacent."""
    return [list(group) for _, group in groupby(chosen, key=lambda trajectory: trajectory.group_id)]


def sample_groups(trajectories: Iterable[Trajectory], episodes: int | None, seed: int) -> list[Trajectory]:
    """Return whole groups of attempts, at least one, with at most `episodes` episodes (None: all), ordered by a hash of
    seed and group.

    Episodes without a step are left out.
    """
    groups: dict[str, list[Trajectory]] = defaultdict(list)
    for trajectory in trajectories:
        if can_be_judged(trajectory):
            groups[trajectory.group_id].append(trajectory)
    chosen: list[Trajectory] = []
    for name in sorted(groups, key=lambda group: digest(seed, group)):
        if episodes is not None and chosen and len(chosen) + len(groups[name]) > episodes:
            break
        chosen += sorted(groups[name], key=lambda trajectory: trajectory.episode_id)
    return chosen
