from pathlib import Path

import pytest
import yaml

from ratchet.components.core import ConfigurationError, Role
from ratchet.components.evaluation.promotion.promotion_rule import PromotionRule
from ratchet.components.models.policy_config import VllmConfig
from ratchet.components.nights.recipe_config import load_recipe
from ratchet.components.nights.scale_config import SCALES_FOLDER, Scale, load_scale, yaml_names
from ratchet.components.rollouts.on_policy import OnPolicyConfig
from ratchet.components.training.config.shared_sections import DataOptions


def write_scale(path, change):
    """The smoke scale with `change` made to it, as a file."""
    settings = yaml.safe_load((SCALES_FOLDER / "smoke.yaml").read_text())
    change(settings)
    path.write_text(yaml.safe_dump(settings, sort_keys=False))


def put(value, *keys):
    """A change: `value` at the place that `keys` lead to."""

    def change(settings):
        for key in keys[:-1]:
            settings = settings.setdefault(key, {})
        settings[keys[-1]] = value

    return change


def rename(new, *keys):
    """A change: the last of `keys` is called `new`."""

    def change(settings):
        for key in keys[:-1]:
            settings = settings[key]
        settings[new] = settings.pop(keys[-1])

    return change


@pytest.mark.parametrize("name", yaml_names(SCALES_FOLDER))
def test_every_bundled_scale_can_be_loaded(name):
    found = load_scale(name)
    assert found.name == name and isinstance(found.promotion, PromotionRule)


def test_the_smoke_scale_decides_on_enough_to_be_believed():
    smoke = load_scale("smoke")
    assert smoke.evaluation.promote >= 100 and smoke.evaluation.attempts >= 4 and smoke.promotion.alpha == 0.025
    assert smoke.collection.attempts >= 4


def test_a_scale_names_a_recipe_and_one_of_its_sizes():
    smoke = load_scale("smoke")
    assert load_recipe(smoke.recipe, smoke.size).plain_sft_stage is not None
    assert not {"challenger", "control"} & set(Scale.model_fields)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (
            rename("learningrate", "cold_start", "optimization", "learning_rate"),
            "unknown key 'cold_start.optimization.learningrate'; did you mean 'learning_",
        ),
        (rename("demonstration", "demonstrations"), "unknown key 'demonstration'; did you mean 'demonstrations'"),
        (put("dokcer", "sandbox", "backend"), "key 'sandbox.backend'"),
        (put(0.025, "promotion", "alfa"), "unknown field `alfa`"),
        (put(0.9, "promotion", "alpha"), "alpha 0.9 must lie in"),
        (put(3, "cold_start", "seed"), "'seed' is filled in by the flow"),
        (put("many", "collection", "tasks"), "key 'collection.tasks'"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_is_wrong_in_a_scale_is_said_in_one_line_with_its_place(tmp_path, change, said):
    write_scale(tmp_path / "mine.yaml", change)
    with pytest.raises(ConfigurationError) as found:
        load_scale(str(tmp_path / "mine.yaml"))
    assert said in str(found.value) and "mine.yaml" in str(found.value) and "\n" not in str(found.value)


def test_the_scale_that_those_errors_are_made_from_has_none(tmp_path):
    write_scale(tmp_path / "mine.yaml", lambda settings: None)
    assert load_scale(str(tmp_path / "mine.yaml")).cold_start == load_scale("smoke").cold_start


def test_an_unknown_scale_names_the_nearest():
    with pytest.raises(ConfigurationError, match="did you mean 'smoke'"):
        load_scale("smokey")


def test_a_plan_takes_its_numbers_from_the_scale():
    smoke = load_scale("smoke")
    plan = smoke.plan(smoke.collection, "teacher", Role.TRAIN, ("a", "b"), 7)
    assert (plan.attempts, plan.seed, plan.task_ids) == (smoke.collection.attempts, 7, ("a", "b"))
    assert (plan.max_turns, plan.taskset, plan.cohort_size) == (
        smoke.max_turns,
        "programs",
        smoke.collection.cohort_size,
    )


def test_parallelism_sandbox_and_patience_of_a_scale_reach_the_plan():
    """Defect 3: such settings were read by nobody."""
    smoke = load_scale("smoke")
    asked = {"concurrency": 5, "model_threads": 3, "retries": 4, "patience": 7.0, "min_completed": 0.5}
    sandbox = smoke.sandbox.model_copy(update={"backend": "local", "memory_mb": 99, "max_containers": 3})
    play = smoke.collection.model_copy(update={"workers": 6, "cohort_size": 17})
    plan = smoke.model_copy(update={**asked, "sandbox": sandbox}).plan(play, "teacher", Role.TRAIN, ("a",), 0)
    assert {name: getattr(plan, name) for name in asked} == asked
    assert plan.sandbox == sandbox and (plan.workers, plan.cohort_size) == (6, 17)


def test_the_engine_of_a_play_computes_its_checkpoint_and_nobody_else():
    smoke = load_scale("smoke")
    served = smoke.collection.model_copy(update={"engine": "vllm"})

    def policy(scale, play, name):
        return scale.plan(play, name, Role.TRAIN, ("a",), 0).policy

    assert policy(smoke, smoke.collection, "transformers:a b/checkpoint") == "transformers:a b/checkpoint"
    assert policy(smoke, served, "transformers:a b/checkpoint") == "vllm:a b/checkpoint"
    assert policy(smoke, served, "teacher") == "teacher"
    more = smoke.model_copy(update={"vllm": {"max_model_len": 1024}})
    name = policy(more, served, 'transformers:odd"name/checkpoint')
    config = VllmConfig.named(name.removeprefix("vllm:"))
    assert str(config.checkpoint) == 'odd"name/checkpoint' and config.options == {"max_model_len": 1024}


def test_the_cold_start_takes_its_paths_and_seed_from_the_flow():
    files = {"train": Path("t"), "validation": Path("v")}
    job = load_scale("smoke").cold_start.job(Path("out"), files, seed=5)
    assert (job.output, job.data, job.seed) == (Path("out"), DataOptions(**files), 5)
    assert job.model.base == "data/models/programs-base"


def test_a_policy_in_training_plays_in_the_world_of_its_scale():
    smoke = load_scale("smoke")
    play = OnPolicyConfig.load(smoke.online())
    same = ("taskset", "max_turns", "concurrency", "retries", "patience", "timeouts", "sandbox")
    assert all(getattr(play, name) == getattr(smoke, name) for name in same)
