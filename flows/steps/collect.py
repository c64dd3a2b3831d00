"""Collect: demonstrations of the teacher before the first champion, then the champion's own attempts."""

from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from ratchet.components.core import Role
from ratchet.components.core.home import home_folder
from ratchet.components.nights.night_models import NightModel
from ratchet.components.nights.night_sampling import check_first_night, draw_tasks, draw_undemonstrated
from ratchet.components.nights.scale_config import PlayConfig, TrafficConfig
from ratchet.components.tasksets import load_taskset
from ratchet.components.training.base_model import base_model_info
from ratchet.components.trajectories.shards import read_folder
from ratchet.flows.mlflow_log import log_collection
from ratchet.flows.night_context import ROLLOUTS_FOLDER, NightContext
from ratchet.tasks.build import add_night
from ratchet.tasks.collect import play_and_seal, take_traffic

DEMONSTRATIONS_PREFIX = "demonstrations-"
"""Prefix of the names of nights in which the teacher played."""


def demonstrations_night(tonight: NightContext) -> str:
    """Return the name of the night of demonstrations that tonight's first champion learns from."""
    return f"{DEMONSTRATIONS_PREFIX}s{tonight.seed}"


def collect_demonstrations(tonight: NightContext) -> str:
    """Let the teacher play a number of train tasks once; return the name of the sealed night."""
    name, scale = demonstrations_night(tonight), tonight.scale
    train_tasks = load_taskset(scale.taskset).tasks(Role.TRAIN)
    check_first_night(scale, tonight.recipe, len(train_tasks))
    if (base := scale.cold_start.model.base) is not None:  # one that cannot be had ends the night before it plays
        base_model_info(base, scale.cold_start.model.revision)
    tasks = draw_tasks(train_tasks, scale.demonstrations.tasks, tonight.seed, "demonstrations")
    _collect_and_seal(tonight, "demonstrations", name, scale.demonstrations, scale.teacher, tasks)
    return name


def collect_attempts(tonight: NightContext, champion: NightModel) -> None:
    """Let the champion play undemonstrated train tasks, several attempts each, and seal the night. A scale with `traffic`
    seals a service's episodes instead, and plays none.
    """
    if tonight.scale.traffic is not None:
        _seal_traffic(tonight, tonight.scale.traffic)
        return
    how = tonight.scale.collection
    tasks = choose_tasks(tonight, "choose tasks", how.tasks, champion.nights)
    _collect_and_seal(tonight, "attempts", tonight.id, how, champion.policy_name, tasks)


def collect_samples(tonight: NightContext, stage: str, how: PlayConfig, policy: str, nights: tuple[str, ...]) -> str:
    """Let a policy play a stage's train tasks, those played least in `nights` first; return the name of the sealed night."""
    tasks = choose_tasks(tonight, f"choose tasks of {stage}", how.tasks, nights)
    _collect_and_seal(tonight, stage, f"{tonight.id}-{stage}", how, policy, tasks)
    return f"{tonight.id}-{stage}"


def choose_tasks(tonight: NightContext, step: str, count: int, nights: Iterable[str]) -> tuple[str, ...]:
    """Choose `count` train tasks that the teacher never demonstrated in `nights`, those played least first.

    The choice is stored as `step` and made once per night.
    """

    def work() -> tuple[str, ...]:
        demonstrated_tasks, plays = count_plays(nights, tonight.scale.teacher, tonight.root)
        tasks = load_taskset(tonight.scale.taskset).tasks(Role.TRAIN)
        return draw_undemonstrated(tasks, count, tonight.seed, demonstrated=demonstrated_tasks, plays=plays)

    return tuple(tonight.night.run_once(step, work))


def count_plays(nights: Iterable[str], teacher: str, root: Path = Path()) -> tuple[set[str], Counter[str]]:
    """Return the tasks that the teacher demonstrated in those nights of the project `root`, and the number of groups of
    attempts that other agents played of each task.
    """
    demonstrated_tasks: set[str] = set()
    groups: set[tuple[str, str]] = set()
    for night in nights:
        for trajectory in read_folder(root / ROLLOUTS_FOLDER / night, verify=False):
            if trajectory.agent.policy == teacher:
                demonstrated_tasks.add(trajectory.task.task_id)
            else:
                groups.add((trajectory.task.task_id, trajectory.group_id))
    return demonstrated_tasks, Counter(task_id for task_id, _ in groups)


def _seal_traffic(tonight: NightContext, how: TrafficConfig) -> None:
    def work() -> Any:
        domain = load_taskset(tonight.scale.taskset).head.domain
        report = take_traffic(tonight.id, how, domain, home_folder("spool") / tonight.id, ROLLOUTS_FOLDER / tonight.id)
        add_night(tonight.id, tonight.root)
        return report

    log_collection(tonight.run, "traffic", tonight.night.run_once("collect attempts", work))


def _collect_and_seal(
    tonight: NightContext, title: str, name: str, how: PlayConfig, policy: str, tasks: tuple[str, ...]
) -> None:
    """Collect and seal episodes, add them to DVC, and log the collection. Finished steps are not repeated."""
    plan = tonight.scale.plan(how, policy, Role.TRAIN, tasks, tonight.seed)

    def work() -> Any:
        target = tonight.root / ROLLOUTS_FOLDER / name
        report = play_and_seal(f"collect {title}", plan, home_folder("spool") / name, target)
        add_night(name, tonight.root)
        return report

    log_collection(tonight.run, title, tonight.night.run_once(f"collect {title}", work))
