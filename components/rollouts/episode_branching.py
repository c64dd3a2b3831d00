"""Branching: continue a recorded episode from one of its turns with another policy sample.

Earlier turns are replayed in a fresh environment and must repeat the record; then the policy plays. The new record
holds every turn, including the shared ones, and names its `parent` and its first own turn. It is scored, paired and
exported like any other episode, and its pairs with the parent start at the turn that differs.

The outcomes of branches estimate the value of a prefix: `ratchet.components.rewards.monte_carlo_labels` turns them into
labels.
"""

import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

from ratchet.components.core import ConfigurationError, TaskSpec
from ratchet.components.core.environment_registry import spec
from ratchet.components.tasksets import Taskset, load_taskset
from ratchet.components.trajectories.trajectory import Trajectory, digest

from .collection import play_into
from .collection_plan import Branch, CollectPlan, PlannedEpisode, plan_hash
from .collection_progress import CollectionProgress, CollectReport
from .episode_replay import played_task
from .episode_runner import planned_version


def branch(
    parents: Sequence[Trajectory],
    plan: CollectPlan,
    folder: Path,
    *,
    turns: Iterable[int] | None = None,
    on_progress: Callable[[CollectionProgress], None] | None = None,
) -> CollectReport:
    """Continue each parent `plan.attempts` times with `plan.policy` at each of `turns` (None: every turn) into
    `folder`.

    `plan.taskset` must hold the parents' tasks; the plan's role, task ids and limit are ignored. `turns` count from 0;
    those that a parent does not have are skipped. The same call resumes an interrupted one. A branch whose environment
    does not repeat the parent's turns is counted as lost. Raises RatchetError as `collect` does, ConfigurationError if
    there is nothing to play, DataError for a task that is missing or has changed.
    """
    taskset = load_taskset(plan.taskset)
    spec(taskset.head.environment)
    version = planned_version(plan, taskset)
    branch_turns = None if turns is None else sorted(set(turns))
    planned = list(plan_branches(parents, taskset, branch_turns, plan.attempts, version))
    if not planned:
        most = max((len(episode.turns) for episode in parents), default=0)
        raise ConfigurationError(
            f"nothing to branch: {len(parents)} episodes of at most {most} turns, and --turn {branch_turns}; "
            "count turns from 0"
        )
    identity = digest(plan_hash(plan, version, taskset.hash), [episode.episode_id for episode in planned])
    return play_into(folder, planned, identity, plan, taskset, on_progress=on_progress)


def plan_branches(
    parents: Iterable[Trajectory], taskset: Taskset, turns: Sequence[int] | None, samples: int, version: str
) -> Iterator[PlannedEpisode]:
    """Yield the branches by parent, turn and sample, each episode id once. Raises DataError for a missing or changed
    task.

    `turns`: turns to branch from, None for every turn; `samples`: branches at each; `version`: the policy's.
    """
    seen: set[str] = set()
    for parent in parents:
        task = played_task(parent, taskset)
        for turn in range(len(parent.turns)) if turns is None else turns:
            if 0 <= turn < len(parent.turns):
                for sample in range(samples):
                    planned = plan_branch(parent, task, turn, str(sample), version)
                    if planned.episode_id not in seen:
                        seen.add(planned.episode_id)
                        yield planned


def plan_branch(parent: Trajectory, task: TaskSpec, turn: int, name: str, version: str) -> PlannedEpisode:
    """Plan one branch that shares its first `turn` turns with the parent. `name` distinguishes branches at one turn;
    `version` is the policy's.
    """
    raw = hashlib.blake2b(f"{parent.episode_id}/{turn}/{name}".encode(), digest_size=4).digest()
    attempt = int.from_bytes(raw, "big") >> 1  # 31 bits, as the columns of tables have
    return PlannedEpisode.create(task, attempt, parent.seed, version, branch=Branch(parent, turn))
