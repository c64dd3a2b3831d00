"""Measure what each stage of a recipe changes: the models of a finished night play all held-out tasks with the same seeds.

    python benchmarks/recipe_stages.py [--night NIGHT] [--attempts 4] [--seed 0] [--out FOLDER]

Run it in the home of a finished night of a recipe of several stages, such as `ratchet night --scale sums` (recipe `r1`). The
champion that the night began from, every policy that the recipe trained, and the control play the promote and audit tasks. Each
line gives a model's success, and its lead over the model that it began from and over the stage before it: intervals of 95 % and
two-sided sign-flip tests, both over families of tasks. A model from scratch is compared with the champion. The same command
resumes. Only tasks, seeds and models decide the figures.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from ratchet.components.core import DataError, Role
from ratchet.components.evaluation.agent_comparison import AgentComparison, compare_agents
from ratchet.components.nights.episode_sets import summarise_episodes
from ratchet.components.nights.night_models import NightModel
from ratchet.components.nights.night_state import Night, list_nights, open_night
from ratchet.components.nights.recipe_config import CHAMPION, SCRATCH, load_recipe
from ratchet.components.nights.scale_config import Scale, load_scale
from ratchet.components.rollouts.collection import collect
from ratchet.components.statistics.result_types import interval_text, p_text, percent, percentage_points
from ratchet.components.tasksets import load_taskset
from ratchet.components.trajectories.shards import read_folder
from ratchet.components.trajectories.trajectory import Trajectory

HELD_OUT = (Role.PROMOTE, Role.AUDIT)


class PlayingModel(NamedTuple):
    """A model of the night, by its name in the recipe; `base` and `before`: names of the models that it is compared with."""

    name: str
    policy: str
    base: str = CHAMPION
    before: str = CHAMPION


def night_models(night: Night, scale: Scale) -> list[PlayingModel]:
    """Return champion, trained policies in order, and control. Raises DataError where the night has not come so far."""
    recipe = load_recipe(night.recipe or scale.recipe, scale.size)

    def registered(title: str) -> str:
        model = night.result(f"register {title}", NightModel)
        if model is None:
            raise DataError(f"night {night.id} has no model '{title}' yet; finish it with `ratchet night`")
        return model.policy_name

    champion = night.result("champion", NightModel)
    models = [PlayingModel(CHAMPION, champion.policy_name if champion else registered("cold-start"))]
    for stage in (stage for stage in recipe.stages if stage.makes_policy):
        base = CHAMPION if stage.begin == SCRATCH else stage.begin
        models.append(PlayingModel(stage.name, registered(recipe.model_title(stage)), base, models[-1].name))
    return [*models, PlayingModel("control", registered("control"))]


def play(model: PlayingModel, scale: Scale, attempts: int, seed: int, out: Path) -> list[Trajectory]:
    """Play every held-out task; return the episodes."""
    how = scale.evaluation.model_copy(update={"attempts": attempts})
    taskset = load_taskset(scale.taskset)
    for role in HELD_OUT:
        tasks = tuple(task.task_id for task in taskset.tasks(role))
        collect(scale.plan(how, model.policy, role, tasks, seed), out / model.name / role.value)
    return [episode for role in HELD_OUT for episode in read_folder(out / model.name / role.value)]


def lead(comparison: AgentComparison) -> str:
    """Return the difference in points with its interval and p-value."""
    difference = comparison.difference
    points = f"{percentage_points(difference.value)} {interval_text(difference, signed=True)}"
    return f"{points}, {p_text(comparison.p_value)}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Play every model and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--night", help="default: the newest")
    parser.add_argument("--attempts", type=int, default=4)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path(".ratchet/stages"), help="folder of the episodes")
    options = parser.parse_args(arguments)
    nights = list_nights()
    if not nights:
        print("0 nights in this home; play one with `ratchet night --scale sums`")
        return 0
    night = open_night(options.night or nights[-1].id)
    scale = load_scale(night.scale)
    out = options.out / night.id
    models = night_models(night, scale)
    results = summarise_episodes(
        {model.name: play(model, scale, options.attempts, options.seed, out) for model in models}
    )
    print("| model | success | lead over its base | lead over the stage before |")
    print("|---|---|---|---|")
    for model in models:
        over_base = compare_agents(results[model.base], results[model.name])
        leads = ["", ""]
        if model.name != CHAMPION:
            before = compare_agents(results[model.before], results[model.name])
            leads = [
                f"{model.base}: {lead(over_base)}",
                "" if model.before == model.base else f"{model.before}: {lead(before)}",
            ]
        success = over_base.mean_b
        print(f"| {model.name} | {percent(success.value)} {interval_text(success)} | {' | '.join(leads)} |")
    return 0


if __name__ == "__main__":
    sys.exit(main())
