import pytest

from ratchet.components.core import ConfigurationError, Role, TaskSpec
from ratchet.components.nights.night_sampling import check_first_night, draw_least_used, draw_tasks, draw_undemonstrated
from ratchet.components.nights.recipe_config import known_recipes, load_recipe, recipe_sizes
from ratchet.components.nights.scale_config import SCALES_FOLDER, load_scale, yaml_names
from ratchet.components.tasksets import load_taskset

TASKS = [
    TaskSpec(f"t{number}", "repair", f"f{number % 7}", "k", Role.TRAIN, "coding", "fix it") for number in range(50)
]


def test_the_same_seed_draws_the_same_tasks_wherever_they_stand():
    assert draw_tasks(TASKS, 10, 4, "promote") == draw_tasks(TASKS[::-1], 10, 4, "promote")


def test_another_seed_or_purpose_draws_others():
    assert draw_tasks(TASKS, 10, 4, "promote") != draw_tasks(TASKS, 10, 5, "promote")
    assert draw_tasks(TASKS, 10, 4, "promote") != draw_tasks(TASKS, 10, 4, "audit")


def test_tasks_are_drawn_once_each_and_not_more_than_there_are():
    assert sorted(draw_tasks(TASKS, 50, 0, "all")) == sorted(task.task_id for task in TASKS)
    with pytest.raises(ConfigurationError, match="51 tasks were asked for"):
        draw_tasks(TASKS, 51, 0, "all")


def test_what_a_demonstration_showed_is_never_collected():
    shown = set(draw_tasks(TASKS, 20, 0, "demonstrations"))
    assert shown.isdisjoint(draw_undemonstrated(TASKS, 30, 0, demonstrated=shown))
    with pytest.raises(ConfigurationError, match="30 were never demonstrated"):
        draw_undemonstrated(TASKS, 31, 0, demonstrated=shown)


def test_what_was_played_least_comes_first():
    played = {task.task_id: 1 for task in TASKS[:40]}
    assert set(draw_undemonstrated(TASKS, 10, 0, demonstrated=(), plays=played)) == {
        task.task_id for task in TASKS[40:]
    }


def test_least_used_tasks_come_first_and_of_those_the_earlier_pool():
    pools = {"promote": TASKS[:20], "reserve": TASKS[20:]}
    first = draw_least_used(pools, 10, 4, {})
    assert first == draw_tasks(TASKS[:20], 10, 4, "promote")
    then = draw_least_used(pools, 15, 5, dict.fromkeys(first, 1))
    assert set(then[:10]) == {task.task_id for task in TASKS[:20]} - set(first)
    assert set(then[10:]) <= {task.task_id for task in TASKS[20:]}
    assert set(draw_least_used(pools, 50, 6, dict.fromkeys(first, 1))[40:]) == set(first)
    with pytest.raises(ConfigurationError, match="51 tasks were asked for, promote and reserve have 50"):
        draw_least_used(pools, 51, 0, {})


@pytest.mark.parametrize(
    "scale", [load_scale(name) for name in yaml_names(SCALES_FOLDER)], ids=lambda scale: scale.name
)
def test_the_first_night_of_every_scale_has_tasks_for_every_step(scale):
    tasks = len(load_taskset(scale.taskset).tasks(Role.TRAIN))
    for recipe in known_recipes():
        if scale.size in recipe_sizes(recipe):
            check_first_night(scale, load_recipe(recipe, scale.size), tasks)


def test_a_first_night_with_too_few_tasks_is_refused_before_it_plays():
    scale = load_scale("sums")
    recipe = load_recipe("r1", "sums")
    with pytest.raises(ConfigurationError, match="too few for 1200 demonstrations and 380 other tasks"):
        check_first_night(scale, recipe, 1579)
    check_first_night(scale, recipe, 1580)
