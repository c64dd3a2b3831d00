"""The plan of a collection: tasks, policy, attempts, seeds and stage timeouts. The plan alone determines every
episode's identity.
"""

import hashlib
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Literal, Self, TypeVar

import msgspec
from pydantic import Field, model_validator

from ratchet.components.core import ConfigurationError, InfrastructureError, Role, TaskSpec
from ratchet.components.core.configuration import Configuration
from ratchet.components.sandboxes import SandboxConfig
from ratchet.components.tasksets import Taskset
from ratchet.components.trajectories.trajectory import Trajectory, episode_id, group_id

from .harness_config import HarnessConfig

T = TypeVar("T")
Stage = Literal["reset", "act", "step", "grade", "close"]
Executor = Literal["local", "ray", "prefect"]


class StageTimeout(InfrastructureError):
    """A stage of an episode hung; the attempt is abandoned and the episode is played again."""


class StageTimeouts(Configuration):
    """Timeouts in seconds of `reset`, one policy call (`act`), one tool call (`step`), grading an unfinished episode
    (`grade`), and `close`.

    They are a safety net above the limits of sandboxes and policies and must be wider: the longest tool call is 120 s,
    and a step that submits also grades. A policy that plays in lock-step is not interrupted.
    """

    reset: float = Field(300.0, gt=0)
    act: float = Field(900.0, gt=0)
    step: float = Field(300.0, gt=0)
    grade: float = Field(300.0, gt=0)
    close: float = Field(60.0, gt=0)

    def limit(self, stage: Stage) -> float:
        """Return the timeout of a stage in seconds."""
        seconds: float = getattr(self, stage)
        return seconds


UNHASHED_FIELDS = {
    *("workers", "concurrency", "model_threads", "sandbox", "policy", "system"),
    *("retries", "patience", "min_completed", "timeouts", "until", "executor"),
}
"""Plan fields that may change between two runs over one folder. (`policy` and `system` are covered by the version.)"""


class CollectPlan(Configuration):
    """One collection. Running the same plan over the same folder resumes it.

    `policy` is a name known to `models.policy_factory`, and `system` a system prompt for it. With `harness`, a program plays
    and the policy is its model; it plays `concurrency` episodes in parallel, in this process. Otherwise a policy that answers many
    requests at once (transformers) plays cohorts of `cohort_size` episodes in lock-step, in `workers` processes with
    `model_threads` each (default: cores divided by workers), and runs `concurrency` tools of a cohort in parallel. Any
    other policy plays `concurrency` episodes in parallel, one thread each. In both cases a cohort becomes one shard.

    Played are the tasks of `role`, or those of `task_ids` whatever their role, of either only the first `limit`.
    `max_turns` limits the policy's replies (default: the registered limit of the environment). `retries`: further
    attempts after an infrastructure failure. `patience`: seconds to wait while everything fails. The collection fails,
    keeping what was played, if the share of episodes without an infrastructure failure is below `min_completed`.

    `parts`: ascending numbers of tasks after which a cohort ends in any case. `until`: one of `parts`; only that many
    tasks are played, and a later run over the same folder with a larger `until`, or none, continues from there.

    `executor`: where a night plays the cohorts: in this process's machine, on a Ray cluster or by Prefect workers.
    """

    taskset: str
    role: Role = Role.TRAIN
    task_ids: tuple[str, ...] | None = None
    limit: int | None = Field(None, gt=0)
    parts: tuple[int, ...] = ()
    until: int | None = None
    policy: str
    system: str | None = None
    harness: HarnessConfig | None = None
    attempts: int = Field(4, gt=0)
    seed: int = 0
    cohort_size: int = Field(250, gt=0, le=500)
    workers: int = Field(2, gt=0)
    concurrency: int = Field(16, gt=0)
    model_threads: int | None = Field(None, gt=0)
    max_turns: int | None = Field(None, gt=0)
    temperature: float = Field(0.8, ge=0)
    top_p: float = Field(1.0, gt=0, le=1)
    max_new_tokens: int = Field(96, gt=0)
    retries: int = Field(2, ge=0)
    patience: float = Field(300.0, gt=0)
    min_completed: float = Field(0.95, ge=0, le=1)
    timeouts: StageTimeouts = StageTimeouts()
    sandbox: SandboxConfig = SandboxConfig()
    executor: Executor = "local"

    @model_validator(mode="after")
    def _check_parts(self) -> Self:
        if list(self.parts) != sorted(set(self.parts)) or any(part < 1 for part in self.parts):
            raise ValueError(f"parts {list(self.parts)} must be rising numbers of tasks")
        if self.until is not None and self.until not in self.parts:
            raise ValueError(f"until {self.until} is none of the parts {list(self.parts)}")
        if self.harness is not None and self.system is not None:
            raise ValueError("a harness writes its own system prompt; leave `system` out")
        return self


class Branch(msgspec.Struct, frozen=True):
    """Starting point of a branched episode: the first `turn` turns of `parent` are replayed, then the policy plays."""

    parent: Trajectory
    turn: int


class PlannedEpisode(msgspec.Struct, frozen=True):
    """One attempt at one task, with its identity and seed. `branch`: the recorded episode that it continues.

    `policy_seed_override`: the policy's random seed if it differs from the environment's.
    """

    task: TaskSpec
    attempt: int
    seed: int
    episode_id: str
    group_id: str
    branch: Branch | None = None
    policy_seed_override: int | None = None

    @classmethod
    def create(
        cls,
        task: TaskSpec,
        attempt: int,
        seed: int,
        policy_version: str,
        *,
        branch: Branch | None = None,
        policy_seed_override: int | None = None,
    ) -> Self:
        """Return the attempt with its episode and group ids. Use this instead of the constructor, to keep ids
        consistent.
        """
        task_id, task_hash = task.task_id, task.task_hash
        identity = episode_id(
            task_id, task_hash, policy_version, attempt, seed if policy_seed_override is None else policy_seed_override
        )
        return cls(
            task, attempt, seed, identity, group_id(task_id, task_hash, policy_version), branch, policy_seed_override
        )

    @property
    def policy_seed(self) -> int:
        """The policy's random seed. A branch has its own, while its `seed` is that of the parent's environment."""
        if self.policy_seed_override is not None:
            return self.policy_seed_override
        return self.seed if self.branch is None else self.attempt


def environment_task(environment: str, domain: str) -> TaskSpec:
    """Return the task that stands for playing an environment that has no tasks."""
    return TaskSpec(f"{environment}/episode", environment, environment, "episode", Role.TRAIN, domain, "")


def episode_seed(seed: int, task_id: str, attempt: int) -> int:
    """Return the seed of one attempt from the plan's `seed`: 53 bits (exact in JSON), equal for all policies so that
    comparisons are paired.
    """
    raw = hashlib.blake2b(f"{seed}/{task_id}/{attempt}".encode(), digest_size=8).digest()
    return int.from_bytes(raw, "big") >> 11


def plan_episodes(plan: CollectPlan, taskset: Taskset, policy_version: str) -> list[PlannedEpisode]:
    """Return all episodes of the plan by task, then attempt. Raises ConfigurationError for unknown tasks, or none."""
    tasks = _tasks(plan, taskset)
    return _plan_range(plan, tasks, range(len(tasks) * plan.attempts), policy_version)


def plan_cohort(plan: CollectPlan, taskset: Taskset, policy_version: str, number: int) -> list[PlannedEpisode]:
    """Return the episodes of one cohort of the plan, without planning the others. Raises what `plan_episodes` raises."""
    tasks = _tasks(plan, taskset)
    return _plan_range(plan, tasks, plan_cohorts(plan, range(len(tasks) * plan.attempts))[number], policy_version)


def _plan_range(
    plan: CollectPlan, tasks: Sequence[TaskSpec], indices: Sequence[int], policy_version: str
) -> list[PlannedEpisode]:
    episodes = []
    for index in indices:
        task, attempt = tasks[index // plan.attempts], index % plan.attempts
        seed = episode_seed(plan.seed, task.task_id, attempt)
        episodes.append(PlannedEpisode.create(task, attempt, seed, policy_version))
    return episodes


def _tasks(plan: CollectPlan, taskset: Taskset) -> list[TaskSpec]:
    if plan.task_ids is None:
        tasks = taskset.tasks(plan.role)
    else:
        tasks_by_id = taskset.by_id
        missing = [task_id for task_id in plan.task_ids if task_id not in tasks_by_id]
        if missing:
            raise ConfigurationError(
                f"taskset '{taskset.name}' has no task '{missing[0]}' ({len(missing)} unknown ids)"
            )
        tasks = [tasks_by_id[task_id] for task_id in dict.fromkeys(plan.task_ids)]
    tasks = tasks[: plan.limit]
    if not tasks:
        raise ConfigurationError(f"taskset '{taskset.name}' has no task of role '{plan.role}'; choose another role")
    return tasks


def cohorts(episodes: Sequence[T], size: int, ends: Sequence[int] = (), until: int | None = None) -> list[Sequence[T]]:
    """Split episodes into consecutive cohorts of at most `size`, each of which becomes a shard.

    `ends`: numbers of episodes after which a cohort ends in any case. `until`: one of `ends`, after which episodes are
    left out (None: all are included).
    """
    edges = sorted({0, len(episodes), *(end for end in ends if end < len(episodes))})
    return [
        episodes[start : min(start + size, stop)]
        for begin, stop in pairwise(edges)
        if until is None or stop <= until
        for start in range(begin, stop, size)
    ]


def plan_cohorts(plan: CollectPlan, planned: Sequence[T]) -> dict[int, Sequence[T]]:
    """Return the cohorts of all of the plan's episodes, by number."""
    until = None if plan.until is None else plan.until * plan.attempts
    return dict(enumerate(cohorts(planned, plan.cohort_size, [part * plan.attempts for part in plan.parts], until)))


def plan_hash(plan: CollectPlan, policy_version: str, taskset_hash: str) -> str:
    """Return a hash (16 hex digits) of the policy, the taskset and every plan field that must stay the same to resume a
    collection.
    """
    # Of newer fields only what is set: a folder that was begun before they existed can be resumed.
    unset = {name for name in ("parts", "harness") if not getattr(plan, name)}
    content = plan.model_dump(mode="json", exclude={*UNHASHED_FIELDS, *unset})
    encoded = msgspec.json.encode([content, policy_version, taskset_hash], order="sorted")
    return hashlib.sha256(encoded).hexdigest()[:16]


def folder_plan(folder: Path) -> str | None:
    """Return the plan hash stored in a spool folder; None for a new folder."""
    path = folder / "plan.txt"
    return path.read_text().strip() if path.is_file() else None
