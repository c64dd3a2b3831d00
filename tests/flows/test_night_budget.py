"""A night stops before a step that would exceed its budget, and goes on where the budget is raised."""

import msgspec
import night_world
import pytest
from night_world import FakeRun, World, begin_night, load_recipe, night_episodes, run, small_scale

from ratchet.components.core.errors import BudgetReached
from ratchet.components.core.files import file_sha256
from ratchet.components.core.home import home
from ratchet.components.nights.scale_config import NightBudget, NightJudgeConfig
from ratchet.flows import night_budget
from ratchet.flows.night_budget import _BudgetCheck, allocated_bytes
from ratchet.flows.night_context import NightContext

pytestmark = pytest.mark.slow


def with_budget(monkeypatch, **limits):
    scale = small_scale().model_copy(update={"budget": NightBudget(**limits)})
    monkeypatch.setattr(night_world, "small_scale", lambda: scale)


def shards(folder):
    return sorted((str(path.relative_to(folder)), file_sha256(path)) for path in folder.rglob("shard-*"))


def outcome(world, night, decision):
    """All that a night leaves, without its name."""
    told = [effect.replace(night.id, "NIGHT") for effect in world.effects]
    files = [shards(home() / "evaluations" / night.id), shards(night_budget.ROLLOUTS_FOLDER / night.id)]
    record = {name: decision[name] for name in ("verdict", "why", "versus_champion", "champion", "challenger")}
    return told, files, msgspec.json.decode(msgspec.json.encode(record))


def test_a_night_that_stops_before_each_of_its_steps_ends_as_an_undisturbed_one(world, tmp_path, monkeypatch):
    undisturbed = outcome(world, *run())
    monkeypatch.chdir((tmp_path / "again").mkdir() or tmp_path / "again")
    monkeypatch.setenv("RATCHET_HOME", str(tmp_path / "again" / "home"))
    vars(world).update(vars(World()))
    monkeypatch.setattr(_BudgetCheck, "_hours", lambda self: float(len(self.night.results)))
    stopped, limit = [], 3
    while True:
        with_budget(monkeypatch, hours=limit)
        try:
            night, decision = run(seed=1 if not stopped else None)
            break
        except BudgetReached as error:
            stopped.append(str(error).split("'")[1])
            limit += 1
    assert outcome(world, night, decision) == undisturbed
    missed = set(night.results) - set(stopped) - {"deciding tasks", "rule", "declared"}
    assert missed == {"train challenger"}, "it begins beside the control's, with nothing spent in between"
    assert len(set(stopped)) > 20


def check_of(monkeypatch, *, past=(), spent=(), judge=None, **limits):
    """The check of a night of the smoke scale. `past`, `spent`: steps with seconds, of a night before and of this one."""
    if past:
        before = begin_night("smoke", 1)
        before.durations = list(past)
        before.results = {step: {} for step, _ in past}
        before.finish()
    night = begin_night("smoke", 2)
    night.durations = list(spent)
    scale = small_scale().model_copy(update={"budget": NightBudget(**limits), "judge": judge})
    return _BudgetCheck(NightContext(night, scale, FakeRun(), load_recipe("sft", "smoke"), night_episodes(night.id)))


def test_what_past_nights_took_is_expected_and_a_step_that_fits_begins(world, monkeypatch):
    check = check_of(monkeypatch, past=[("train challenger", 7200.0)], spent=[("build", 3600.0)], hours=3.1)
    check.check("train challenger")
    check.budget = NightBudget(hours=2.9)
    with pytest.raises(BudgetReached) as error:
        check.check("train challenger")
    assert error.value.exit_code == 5
    assert str(error.value) == (
        f"night {check.night.id} stops before 'train challenger': 1 hours spent and about 2 expected of the step, with a budget "
        "of 2.9; raise budget.hours of scale smoke and repeat the command"
    )
    check.check("publish")


def test_a_step_that_no_night_took_begins_as_long_as_anything_is_left(world, monkeypatch):
    check = check_of(monkeypatch, spent=[("build", 3600.0)], hours=1.01)
    check.check("train challenger")
    check.before = 3700.0
    with pytest.raises(BudgetReached, match=r"'train challenger': 1.03 hours spent, with a budget of 1.01"):
        check.check("train challenger")


def test_looks_that_are_done_are_no_longer_expected_of_the_evaluation(world, monkeypatch):
    past = [("evaluate", 3600.0)]
    check = check_of(monkeypatch, past=past, spent=[("look 1", 1800.0)], hours=1.1)
    check._plan["evaluate"] = night_budget.PlannedStep("evaluate", seconds=3600.0)
    check.check("evaluate")


def test_gpu_hours_are_those_of_the_steps_that_run_a_model_on_every_gpu(world, monkeypatch):
    monkeypatch.setattr(night_budget, "visible_gpus", lambda: ["0", "1"])
    spent = [("build", 9999.0), ("collect attempts", 1800.0)]
    check = check_of(monkeypatch, past=[("train challenger", 3600.0)], spent=spent, gpu_hours=2.9)
    assert check._gpu_hours() == 1.0
    with pytest.raises(BudgetReached, match="1 gpu_hours spent and about 2 expected"):
        check.check("train challenger")
    check.check("build")


def test_money_of_judges_counts_and_their_own_limit_is_expected(world, monkeypatch):
    model = {"base_url": "http://127.0.0.1:1/v1", "model": "m", "price": {"prompt": 1.0, "completion": 1.0}}
    judge = NightJudgeConfig.load({"models": [model], "budget": {"money": 5.0}})
    check = check_of(monkeypatch, judge=judge, money=6.0)
    check.check("judge")
    check.night.results["judge extra"] = {"money": 1.5}
    with pytest.raises(BudgetReached, match=r"1\.5 money spent and about 5 expected"):
        check.check("judge")
    check.check("publish")


def test_a_budget_without_money_stops_nothing_that_costs_none(world, monkeypatch):
    check_of(monkeypatch, money=0.0).check("train challenger")


def test_the_disk_of_the_home_and_the_data_is_measured(world, monkeypatch):
    check = check_of(monkeypatch, disk_gb=0.002)
    check.check("build")
    (home() / "large").write_bytes(bytes(1_500_000))
    night_budget.ROLLOUTS_FOLDER.mkdir(parents=True)
    (night_budget.ROLLOUTS_FOLDER / "large").write_bytes(bytes(1_500_000))
    with pytest.raises(BudgetReached, match=r"before 'build': 0\.003\d* disk_gb spent"):
        check.check("build")


def test_a_file_with_two_names_takes_its_space_once(tmp_path):
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "file").write_bytes(b"x" * 8192)
    once = allocated_bytes(tmp_path)
    (tmp_path / "same").hardlink_to(tmp_path / "folder" / "file")
    (tmp_path / "link").symlink_to(tmp_path)
    assert once >= 8192 and allocated_bytes(tmp_path) - once < 8192
    assert allocated_bytes(tmp_path / "absent") == 0


def test_without_a_limit_nothing_is_checked(world, monkeypatch):
    monkeypatch.setattr(_BudgetCheck, "check", lambda self, step: pytest.fail(step))
    run()
