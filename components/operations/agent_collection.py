"""Collect episodes from Python: any agent, in a taskset or an environment, kept in memory or in a folder."""

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from ratchet.components.core import (
    ConfigurationError,
    Environment,
    Policy,
    Role,
    TaskSpec,
    TimeStep,
    as_environment,
    list_envs,
    make,
    spec,
)
from ratchet.components.core.environment_wrappers import Wrapper
from ratchet.components.core.files import temporary_folder
from ratchet.components.models.callable_policy import AgentFunction, SystemPromptPolicy, as_policy
from ratchet.components.models.policy_factory import make_policy
from ratchet.components.rollouts.collection import LoadedAgent, play_into
from ratchet.components.rollouts.collection_plan import CollectPlan, environment_task, plan_episodes, plan_hash
from ratchet.components.rollouts.collection_progress import CollectionProgress
from ratchet.components.rollouts.lockstep_play import Interrupted
from ratchet.components.tasksets import Taskset, TasksetHead, load_taskset
from ratchet.components.trajectories.shards import read_folder
from ratchet.components.trajectories.trajectory_list import EpisodeReward, Trajectories, find_reward

Source = str | Path | Taskset | Environment | Any
"""A taskset, or an environment: any object with `reset`, `step` and `available_tools`."""


def collect(
    source: Source,
    agent: str | Policy | AgentFunction = "teacher",
    *,
    tasks: int | Sequence[str] | Sequence[TaskSpec] | None = None,
    attempts: int = 1,
    reward: EpisodeReward | str | None = None,
    system: str | None = None,
    workers: int = 8,
    role: str = "train",
    seed: int = 0,
    folder: Path | str | None = None,
    on_progress: Callable[[CollectionProgress], None] | None = None,
    **settings: Any,
) -> Trajectories:
    """Play tasks with an agent, and return the episodes.

    - `source`: a taskset (its name, folder or `load_taskset`), the id of a registered environment, or an environment
      object, which plays one episode at a time and stays open.
    - `agent`: a policy's name as in `ratchet collect --policy`, a Policy, or a function, sync or async, of a
      PolicyRequest. It returns a PolicyReply, a tool call `{"tool": ..., "params": {...}}`, or text that calls no tool.
    - `tasks`: how many (drawn by `seed`), which ids, or TaskSpecs; None: all of `role`. An environment without tasks is
      reset without one.
    - `attempts`: episodes per task. `workers`: episodes that are played at once; a function is called from as many
      threads.
    - `reward`: a function of a finished Trajectory, or the name of an installed one; see `Trajectories.rewards`.
    - `system`: a system prompt.
    - `folder`: keep the episodes there; the same call resumes an interrupted collection.
    - `settings`: further fields of a collection: max_turns, temperature, top_p, max_new_tokens, sandbox, retries,
      patience, timeouts, min_completed.

    An exception of the agent ends its episode as a failure of the policy. Raises ConfigurationError (unknown names,
    wrong replies), DataError, and InfrastructureError where more episodes were lost than `min_completed` allows.

    >>> def agent(request):
    ...     return {"tool": "respond", "params": {"text": "I have cancelled it."}}
    >>> ratchet.collect("orders", agent=agent, tasks=3, attempts=2)
    Trajectories(6 episodes of 3 tasks by agent; success 0.0 %)
    """
    reward_function = None if reward is None else find_reward(reward)
    with ExitStack() as stack:
        taskset, make_environment = _resolve(source, tasks, stack)
        policy = _load_policy(agent, system, taskset, settings, stack)
        plan = CollectPlan.load(
            {
                "taskset": taskset.name,
                "policy": agent if isinstance(agent, str) else policy.name,
                "task_ids": _task_ids(taskset, tasks, role, seed),
                "attempts": attempts,
                "seed": seed,
                "concurrency": workers if isinstance(source, str | Path | Taskset) else 1,
                **settings,
            }
        )
        planned = plan_episodes(plan, taskset, policy.version)
        place = Path(stack.enter_context(temporary_folder("play")) if folder is None else folder)
        identity = plan_hash(plan, policy.version, taskset.hash)
        loaded = LoadedAgent(policy, make_environment)
        try:
            play_into(place, planned, identity, plan, taskset, agent=loaded, on_progress=on_progress)
        except Interrupted:
            if folder is None:  # nothing is kept to continue from
                raise KeyboardInterrupt from None
            raise
        episodes = Trajectories(read_folder(place), folder=None if folder is None else place)
    return episodes if reward_function is None else episodes.with_rewards(reward_function)


def _load_policy(
    agent: str | Policy | AgentFunction,
    system: str | None,
    taskset: Taskset,
    settings: dict[str, Any],
    stack: ExitStack,
) -> Policy:
    if isinstance(agent, str):
        from .manual_evaluation import resolve_policy

        sampling = {name: settings[name] for name in ("temperature", "top_p", "max_new_tokens") if name in settings}
        policy = make_policy(resolve_policy(agent), taskset, **sampling)
        stack.callback(policy.close)
    else:
        policy = as_policy(agent)
        if policy is not agent:
            stack.callback(policy.close)
    return policy if system is None else SystemPromptPolicy(policy, system)


def _resolve(source: Source, tasks: object, stack: ExitStack) -> tuple[Taskset, "Callable[[], Environment] | None"]:
    """Return the taskset to play, and the factory of its environments; None for that of its registered environment."""
    specs = tuple(tasks) if isinstance(tasks, Sequence) and not isinstance(tasks, str) else ()
    own = tuple(task for task in specs if isinstance(task, TaskSpec))
    if isinstance(source, Taskset | Path) or (isinstance(source, str) and source not in list_envs()):
        taskset = source if isinstance(source, Taskset) else load_taskset(source)
        return (Taskset(taskset.head, own) if own else taskset), None
    if isinstance(source, str):
        name, domain = source, spec(source).domain
        if own:
            return _taskset_of(name, domain, own), None
        return _taskset_of(name, domain, ()), lambda: _WithoutTask(make(source))
    environment = as_environment(source)
    unwrapped = environment.unwrapped
    name = type(getattr(unwrapped, "inner", unwrapped)).__name__
    opened = _StaysOpen(environment) if own else _WithoutTask(_StaysOpen(environment))
    return _taskset_of(name, environment.domain, own), lambda: opened


def _taskset_of(environment: str, domain: str, tasks: tuple[TaskSpec, ...]) -> Taskset:
    tasks = tasks or (environment_task(environment, domain),)
    counts = {role: sum(task.role is role for task in tasks) for role in Role}
    return Taskset(TasksetHead(environment, "", domain, counts, environment), tasks)


def _task_ids(taskset: Taskset, tasks: object, role: str, seed: int) -> tuple[str, ...]:
    if isinstance(tasks, str):
        raise ConfigurationError(f"tasks={tasks!r} is one text; give a list of task ids, a number, or TaskSpecs")
    if isinstance(tasks, Sequence):
        return tuple(task.task_id if isinstance(task, TaskSpec) else str(task) for task in tasks)
    candidates = taskset.tasks(role)
    if tasks is None:
        return tuple(task.task_id for task in candidates)
    if not isinstance(tasks, int) or tasks < 1:
        raise ConfigurationError(f"tasks={tasks!r}: give a number of at least 1, a list of task ids, or TaskSpecs")
    from ratchet.components.nights.night_sampling import draw_tasks

    return draw_tasks(candidates, tasks, seed, "collection")


class _WithoutTask(Wrapper):
    """Resets an environment that is played without tasks."""

    def reset(self, *, task: TaskSpec | None = None, seed: int | None = None) -> TimeStep:
        """Reset the wrapped environment without a task."""
        return super().reset(task=None, seed=seed)


class _StaysOpen(Wrapper):
    """Leaves an environment of the caller open."""

    def close(self) -> None:
        """Do nothing."""
