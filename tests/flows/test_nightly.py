"""The flow over a world of fakes, from effect to effect."""

import hashlib
import json
import logging
from pathlib import Path

import pytest
from night_world import Killed, World, load, run, tonight_of

from ratchet.components.core import DataError
from ratchet.components.nights.night_state import begin_night
from ratchet.flows.night_context import ROLLOUTS_FOLDER
from ratchet.flows.steps import build

pytestmark = pytest.mark.slow


def test_the_first_night_makes_its_champion_from_demonstrations_and_promotes_what_beats_it(world):
    night, decision = run()
    assert decision["verdict"] == "promote" and decision["self_improvement"]
    assert world.effects == [
        "seal demonstrations-s1",
        "add demonstrations-s1",
        "build demonstrations-s1",
        "keep demonstrations-s1",
        "train cold start",
        "register cold-start",
        "promote 1",
        f"seal {night.id}",
        f"add {night.id}",
        f"judge {night.id}",
        f"labels {night.id}",
        f"build demonstrations-s1 {night.id}",
        f"traces {night.id}",
        "train control",
        "train challenger",
        "register challenger",
        "register control",
        f"uses {night.id}",
        *(f"evaluate {who}" for who in ("champion", "challenger", "control")),
        "decision 2",
        "promote 2",
        f"publish {night.id}",
    ]
    assert world.champion.nights == ("demonstrations-s1", night.id)


def test_tonights_tasks_were_never_demonstrated(world):
    night, _ = run()
    shown, collected = world.plans["demonstrations-s1"], world.plans[night.id]
    assert shown.policy == "teacher" and collected.policy == "transformers:/models/first"
    assert len(collected.task_ids) == 20 and set(shown.task_ids).isdisjoint(collected.task_ids)


def test_the_control_is_the_champion_trained_alike_on_its_old_data_alone(world):
    night, _ = run()
    challenger, control = world.jobs["train challenger"], world.jobs["train control"]
    assert challenger.model.base == control.model.base == "/models/first"
    other = {"output", "data"}
    assert challenger.model_dump(exclude=other) == control.model_dump(exclude=other)
    nights = [
        {json.loads(line)["night"] for line in job.data.train.read_text().splitlines()} for job in (challenger, control)
    ]
    assert nights == [{"demonstrations-s1", night.id}, {"demonstrations-s1"}]


def test_what_each_model_was_trained_on_is_sealed_with_the_night(world):
    night, _ = run()
    found = {}
    for use in world.uses:
        found.setdefault((use.model, use.build), {})[use.episode_id] = use.rows
    old = {f"demonstrations-s1-{row}": 1 for row in range(3)}
    both = f"demonstrations-s1-{night.id}"
    assert found == {
        ("first-v", "demonstrations-s1"): old,
        ("control-v", both): old,
        ("challenger-v", both): old | {f"{night.id}-{row}": 1 for row in range(3)},
    }


def test_the_registry_is_told_what_a_model_was_trained_on(world):
    run()
    wanted = {"base", "dataset", "data_sha256.train", "data_sha256.validation"}
    assert {title: set(tags) for title, tags in world.lineage.items()} == dict.fromkeys(
        ("cold-start", "challenger", "control"), wanted
    )
    assert [world.lineage[title]["base"] for title in ("cold-start", "challenger")] == ["", "first-v"]
    read = world.jobs["train challenger"].data.train.read_bytes()
    assert world.lineage["challenger"]["data_sha256.train"] == hashlib.sha256(read).hexdigest()


def test_the_agents_meet_on_the_same_tasks_with_the_same_seeds(world):
    run()
    plans = [world.plans[f"evaluate {who}"] for who in ("champion", "challenger", "control")]
    assert len({(plan.task_ids, plan.seed, plan.attempts, plan.temperature) for plan in plans}) == 1
    assert len({plan.policy for plan in plans}) == 3
    roles = [load("repair").by_id[task_id].role for task_id in plans[0].task_ids]
    assert (roles.count("promote"), roles.count("audit")) == (40, 6)


def test_the_next_night_starts_from_the_champion_without_a_cold_start(world):
    run()
    world.effects.clear()
    world.better = False
    second, decision = run(seed=None)
    # Forty families that all tie do not rule a lead of 8 points out.
    assert second.seed == 2 and decision["verdict"] == "undecided"
    assert world.effects[0] == f"seal {second.id}"
    assert world.plans[second.id].policy == "transformers:/models/challenger"
    assert not any(effect.startswith(("promote", "train cold")) for effect in world.effects)


def test_a_challenger_that_is_not_better_is_registered_and_not_promoted(world):
    world.better = False
    _, decision = run()
    assert decision["verdict"] == "undecided" and world.champion.version == 1


@pytest.mark.parametrize("every", [pytest.param(1, marks=pytest.mark.long), 6])
def test_a_night_killed_before_any_of_its_effects_goes_on_to_the_same_end(every, world, tmp_path, monkeypatch):
    run()
    undisturbed = len(world.effects)
    for moment in range(0, undisturbed, every):
        home = tmp_path / f"killed-{moment}"
        home.mkdir()
        monkeypatch.chdir(home)
        monkeypatch.setenv("RATCHET_HOME", str(home / "home"))
        again = World()
        again.die_at = moment
        for name, value in vars(again).items():
            setattr(world, name, value)
        with pytest.raises(Killed):
            run()
        night, decision = run(seed=None)
        assert decision["verdict"] == "promote"
        assert len(world.effects) == len(set(world.effects)) == undisturbed, f"killed at {moment}: {world.effects}"
        assert world.champion.version == 2 and night.is_finished


def test_a_first_night_that_goes_on_trains_its_champion_once_and_says_so_once(world, caplog):
    world.die_at = 8
    with caplog.at_level(logging.INFO, "ratchet"):
        with pytest.raises(Killed):
            run()
        run(seed=None)
    assert sum("no champion yet" in line for line in caplog.messages) == 1


def test_a_night_that_promoted_goes_on_with_the_champion_that_it_began_with(world):
    world.better = False
    run()
    first = world.champion
    world.effects.clear()
    world.jobs.clear()
    world.better, world.die_at = True, 16
    with pytest.raises(Killed, match="publish"):
        run(seed=None)
    assert world.champion != first
    night, decision = run(seed=None)
    assert world.effects[-2:] == [f"promote {world.champion.version}", f"publish {night.id}"]
    assert decision["champion"]["agent"]["policy_version"] == "first"


def test_an_export_without_rows_of_the_champions_nights_is_an_error(world):
    night = begin_night("smoke", 1)
    build.SFT_EXPORT.mkdir(parents=True)
    for part in ("train.jsonl", "validation.jsonl"):
        (build.SFT_EXPORT / part).write_text('{"night": "another"}\n')
    with pytest.raises(DataError, match="no training row of demonstrations-s1"):
        build.copy_rows(tonight_of(night), "control", ("demonstrations-s1",), "lock")


def test_rollouts_lie_where_the_data_build_looks_for_them():
    assert Path("data/rollouts") == ROLLOUTS_FOLDER
