from pathlib import Path

import pytest

from components.evaluation.promotion import PromotionRule
from components.protocol import ConfigurationError, Role
from flows.scale import FOLDER, Scale, known_scales, load_scale

SMOKE = (FOLDER / "smoke.yaml").read_text()


def scale(tmp_path, old, new):
    (tmp_path / "mine.yaml").write_text(SMOKE.replace(old, new))
    return load_scale(str(tmp_path / "mine.yaml"))


@pytest.mark.parametrize("name", known_scales())
def test_every_bundled_scale_can_be_loaded(name):
    found = load_scale(name)
    assert found.name == name and isinstance(found.promotion, PromotionRule)


def test_the_smoke_scale_decides_on_enough_to_be_believed():
    smoke = load_scale("smoke")
    assert smoke.evaluation.promote >= 100 and smoke.evaluation.attempts >= 4 and smoke.promotion.alpha == 0.025
    assert smoke.collection.attempts >= 4
    assert smoke.cold_start.patience is not None, "the first champion is trained to convergence"


def test_challenger_and_control_share_a_recipe_and_a_budget_of_tokens():
    assert load_scale("smoke").training.token_budget is not None
    assert not {"challenger", "control"} & set(Scale.model_fields)


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("token_budget:", "tokenbudget:", "unknown key 'training.tokenbudget'; did you mean 'token_budget'"),
        ("demonstrations:", "demonstration:", "unknown key 'demonstration'; did you mean 'demonstrations'"),
        ("backend: auto", "backend: dokcer", "key 'sandbox.backend'"),
        ("alpha: 0.025", "alfa: 0.025", "alfa"),
        ("alpha: 0.025", "alpha: 0.9", "alpha 0.9 must lie in"),
        ("training: ", "training:\n  base: /somewhere", "'base' is filled in by the flow"),
        ("tasks: 500", "tasks: many", "key 'collection.tasks'"),
    ],
)
def test_what_is_wrong_in_a_scale_is_said_in_one_line_with_its_place(tmp_path, old, new, said):
    with pytest.raises(ConfigurationError) as found:
        scale(tmp_path, old, new)
    assert said in str(found.value) and "mine.yaml" in str(found.value) and "\n" not in str(found.value)


def test_an_unknown_scale_names_the_nearest():
    with pytest.raises(ConfigurationError, match="did you mean 'smoke'"):
        load_scale("smokey")


def test_a_plan_takes_its_numbers_from_the_scale():
    smoke = load_scale("smoke")
    plan = smoke.plan(smoke.collection, "teacher", Role.TRAIN, ("a", "b"), 7)
    assert (plan.attempts, plan.seed, plan.task_ids) == (smoke.collection.attempts, 7, ("a", "b"))
    assert (plan.max_turns, plan.taskset, plan.cohort_size) == (smoke.max_turns, "repair", smoke.collection.cohort_size)


def test_a_job_takes_its_paths_and_seed_from_the_flow():
    job = load_scale("smoke").training.job(Path("out"), Path("t"), Path("v"), seed=5, base=Path("b"))
    assert (job.output, job.train, job.validation, job.base, job.seed) == (
        Path("out"),
        Path("t"),
        Path("v"),
        Path("b"),
        5,
    )
