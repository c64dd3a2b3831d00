"""Many nights of a home: what each declares before it plays, fresh tasks, and the match with the anchor."""

from datetime import datetime

import msgspec
import night_world
import pytest
from night_world import Killed, World, load, run, small_scale, tonight_of

from ratchet.components.core import Role
from ratchet.components.core.home import home
from ratchet.components.evaluation.promotion.decision_record import read_decision
from ratchet.components.evaluation.promotion.promotion_rule import NightDeclaration, PromotionRule
from ratchet.components.evaluation.promotion.season_plan import PastNight
from ratchet.components.nights.night_sampling import draw_tasks
from ratchet.components.nights.night_state import begin_night, open_night
from ratchet.components.reporting.decision_text import explain_tests
from ratchet.components.statistics.multiple_testing import AlphaSpending
from ratchet.components.trajectories.shards import read_folder
from ratchet.flows.steps import declare

pytestmark = pytest.mark.slow

REPAIR = load("repair")


@pytest.fixture
def matches(monkeypatch):
    """Every night is one of a match."""
    rule = msgspec.structs.replace(small_scale().promotion, anchor_every=1)
    scale = small_scale().model_copy(update={"promotion": rule})
    monkeypatch.setattr(night_world, "small_scale", lambda: scale)


@pytest.fixture
def lord(monkeypatch):
    """Nights of a season of LORD++."""
    rule = msgspec.structs.replace(small_scale().promotion, spending=AlphaSpending())
    scale = small_scale().model_copy(update={"promotion": rule})
    monkeypatch.setattr(night_world, "small_scale", lambda: scale)


def declared(night):
    return open_night(night.id).results["declared"]


def test_a_night_declares_before_anything_is_played_and_keeps_to_it(world):
    world.die_at = 0
    with pytest.raises(Killed):
        run()
    night = begin_night("smoke", 1)
    before = night.results
    assert set(before) == {"deciding tasks", "rule", "declared", "champion"} and world.effects == []
    again, decision = run(seed=None)
    assert again.id == night.id
    assert msgspec.convert(decision["declared"], NightDeclaration) == msgspec.convert(
        before["declared"], NightDeclaration
    )
    assert decision["level"] == before["declared"]["level"] == 0.025
    assert decision["declared"]["tasks"] == 40 and decision["declared"]["attempts"] == 2


def test_a_rule_that_is_changed_during_the_night_holds_from_the_next_one_on(world, monkeypatch):
    world.die_at = 8
    with pytest.raises(Killed):
        run()
    rule = msgspec.structs.replace(small_scale().promotion, min_tasks=41)
    scale = small_scale().model_copy(update={"promotion": rule})
    monkeypatch.setattr(night_world, "small_scale", lambda: scale)
    _, decision = run(seed=None)
    assert decision["rule"]["min_tasks"] == 20 and decision["verdict"] == "promote"


def test_the_first_night_decides_on_the_promote_tasks_that_its_seed_draws(world):
    night, _ = run()
    wanted = draw_tasks(REPAIR.tasks(Role.PROMOTE), 40, night.seed, "promote")
    assert tuple(open_night(night.id).results["deciding tasks"]) == wanted
    assert world.plans["evaluate champion"].task_ids[:40] == wanted


def test_tasks_decide_again_only_when_all_of_promote_and_reserve_have(world, monkeypatch):
    """Ten nights of 40 tasks use each of the 400 once: promote first, then reserve; audit never."""
    monkeypatch.setattr(declare, "has_seen_outcomes", lambda night: True)
    chosen, roles = [], []
    for seed in range(10):
        night = begin_night("smoke", seed)
        declare.declare_tonight(tonight_of(night))
        chosen += night.results["deciding tasks"]
        roles += [{REPAIR.by_id[task].role for task in night.results["deciding tasks"]}]
        night.finish()
    assert len(set(chosen)) == len(chosen) == 400
    assert roles == [{"promote"}] * 5 + [{"reserve"}] * 5
    night = begin_night("smoke", 10)
    declare.declare_tonight(tonight_of(night))
    assert {REPAIR.by_id[task].role for task in night.results["deciding tasks"]} == {"promote"}


def test_under_lord_the_next_night_pays_for_what_one_night_tested(world, lord):
    world.better = False
    first, decision = run()
    world.better = True
    second, _ = run(seed=None)
    levels = [declared(night)["level"] for night in (first, second)]
    assert decision["verdict"] == "undecided" and levels[1] < levels[0]
    assert declared(second)["allowance"]["test"] == 2
    third = begin_night("smoke")
    declare.declare_tonight(tonight_of(third))
    assert declared(third)["level"] > levels[1] and declared(third)["allowance"]["promotions"] == 1


def test_each_night_declares_the_p_values_and_levels_of_the_season_before_it(world):
    world.better = False
    _, decision = run()
    declare.declare_tonight(tonight_of(another := begin_night("smoke", 7)))
    assert declared(another)["p_values"] == [decision["versus_champion"]["p_value"]]
    assert declared(another)["expected_false"] == pytest.approx(0.05)


def killed_before(effect, world, seed=1):
    """A night that dies before an effect; the night, which goes on when it is given again."""
    seen = []
    happens = world.happens

    def happen(name):
        if name == effect and not seen:
            seen.append(name)
            raise Killed(name)
        happens(name)

    world.happens = happen
    with pytest.raises(Killed):
        run(seed=seed)
    return begin_night("smoke", seed)


@pytest.mark.parametrize("effect", ["seal {night}", "train challenger", "evaluate champion", "evaluate challenger"])
def test_a_night_that_ended_before_the_challenger_was_seen_costs_nothing(world, lord, effect):
    first = killed_before(effect.format(night=begin_night("smoke", 1).id), world)
    declare.declare_tonight(tonight_of(another := begin_night("smoke", 7)))
    assert declared(another)["level"] == declared(first)["level"]
    assert declared(another)["allowance"]["test"] == 1 and declared(another)["p_values"] == []
    assert declare.past_night(first) == PastNight(False, level=declared(first)["level"])


def test_a_night_that_ended_after_the_challenger_was_seen_has_spent(world, lord):
    first = killed_before("evaluate control", world)
    declare.declare_tonight(tonight_of(another := begin_night("smoke", 7)))
    assert declared(another)["level"] < declared(first)["level"] and declared(another)["allowance"]["test"] == 2
    assert declared(another)["p_values"] == [None] and declare.past_night(first).tasks


def test_a_night_that_lost_what_it_would_have_decided_by_costs_nothing(world, lord, monkeypatch):
    rule = msgspec.structs.replace(night_world.small_scale().promotion, min_tasks=41)
    scale = night_world.small_scale().model_copy(update={"promotion": rule})
    monkeypatch.setattr(night_world, "small_scale", lambda: scale)
    first, decision = run()
    declare.declare_tonight(tonight_of(another := begin_night("smoke", 7)))
    assert decision["verdict"] == "undecided" and declared(another)["level"] == declared(first)["level"]
    assert set(declare.past_night(first).tasks) == set(first.results["deciding tasks"]), "its tasks were seen"


@pytest.mark.parametrize("effect", ["train challenger", "evaluate challenger"])
def test_a_night_that_goes_on_after_another_has_tested_declares_anew(world, lord, effect):
    first = killed_before(effect, world)
    before = declared(first)
    second, _ = run(seed=7)
    assert declared(second)["level"] == before["level"]
    again, decision = run(seed=1)
    assert again.id == first.id and decision["declared"]["allowance"]["test"] == 2
    assert decision["level"] == declared(again)["level"] != before["level"]
    tasks = [set(open_night(night.id).results["deciding tasks"]) for night in (second, again)]
    assert not tasks[0] & tasks[1], "fresh tasks again"
    for agent in ("champion", "challenger"):
        assert tasks[1] <= {each.task.task_id for each in episodes(again, agent)}, (
            "what it had played was of other tasks"
        )


def test_a_night_that_declares_after_the_clock_was_set_back_keeps_what_it_has_played(world, monkeypatch):
    class Earlier(datetime):
        @classmethod
        def now(cls, zone=None):
            return datetime(2020, 1, 1, tzinfo=zone)

    first, _ = run()
    monkeypatch.setattr(declare, "datetime", Earlier)
    world.effects.clear()
    world.jobs.clear()
    killed = killed_before("evaluate challenger", world, seed=7)
    assert declared(killed)["at"] > declared(first)["at"]
    played = len(episodes(killed, "champion"))
    run(seed=7)
    assert played and world.effects.count("evaluate champion") == 1, "it is not taken for overtaken"


def test_nothing_is_declared_after_the_fact(world):
    """A night that an older version began goes on as it was begun."""
    night = begin_night("smoke", 1)
    night.run_once("champion", lambda: None)
    _, decision = run()
    assert decision["declared"] is None and decision["level"] == 0.025
    assert world.plans["evaluate champion"].task_ids[:40] == draw_tasks(REPAIR.tasks(Role.PROMOTE), 40, 1, "promote")


def test_the_first_champion_is_the_first_anchor_and_meets_itself_nowhere(world, matches):
    run()
    assert "evaluate anchor" not in world.effects
    assert world.effects[-3:-1] == ["promote 2", "anchor 1"]


def test_a_champion_that_is_shown_better_than_the_anchor_becomes_it(world, matches):
    run()
    assert (world.champion.version, world.anchor.version) == (2, 1)
    world.effects.clear()
    world.jobs.clear()
    _, decision = run(seed=None)
    assert "evaluate anchor" in world.effects and "anchor 2" in world.effects
    assert not decision["match"]["rollback"] and decision["match"]["anchor"]["agent"]["policy_version"] == "first"
    assert world.plans["evaluate anchor"].task_ids == world.plans["evaluate champion"].task_ids


def test_the_anchor_does_not_slide_to_a_champion_that_is_not_shown_better(world, matches):
    """A champion by hand that is as good as the anchor, or a little worse: later losses still count from the anchor."""
    run()
    world.effects.clear()
    world.jobs.clear()
    world.skills = {world.champion.policy_version.removesuffix("-v").split("-")[0]: 0.42}
    _, decision = run(seed=None)
    assert not decision["match"]["rollback"] and not decision["match"]["better"]
    assert "evaluate anchor" in world.effects and "anchor 2" not in world.effects
    assert world.anchor.version == 1


@pytest.fixture
def early(monkeypatch):
    """Nights that may end after half of their families."""
    rule = PromotionRule(
        n_resamples=2_000,
        looks=(0.5,),
        min_tasks=10,
        min_families=5,
        kind_margin=None,
        invalid_call_margin=0.5,
        steps_margin=2.0,
        tokens_margin=2.0,
        unsafe_margin=0.5,
    )
    scale = small_scale().model_copy(update={"promotion": rule})
    monkeypatch.setattr(night_world, "small_scale", lambda: scale)


def episodes(night, agent):
    return list(read_folder(home() / "evaluations" / night.id / agent))


def test_a_night_that_may_end_early_plays_family_by_family_and_declares_when(world, early):
    night = begin_night("smoke", 1)
    made = declare.declare_tonight(tonight_of(night))
    tasks = [REPAIR.by_id[task] for task in night.results["deciding tasks"]]
    first, last = made.looks
    assert len({each.family for each in tasks[: first.tasks]}) == first.families == round(last.families / 2)
    assert not {each.family for each in tasks[: first.tasks]} & {each.family for each in tasks[first.tasks :]}
    assert (last.tasks, last.families) == (40, len({each.family for each in tasks}))
    assert first.level < last.level <= made.level and first.guardrail_alpha < last.guardrail_alpha <= 0.05


def test_what_is_far_better_is_promoted_at_the_first_look_and_no_more_is_played(world, early, monkeypatch):
    monkeypatch.setattr(world, "skills", {"first": 0.0, "control": 0.0, "challenger": 1.0})
    night, decision = run()
    (found,) = decision["looked"]
    played = found["look"]["tasks"]
    assert decision["verdict"] == "promote" and found["stopped"] and decision["level"] == found["look"]["level"]
    assert decision["n_tasks"] == played < 40 and world.champion.version == 2
    assert len(episodes(night, "control")) == 2 * (played + 6), "the sealed tasks are played with the first part"
    assert decision["audit"]["n_tasks"] == 6 and world.effects.count("evaluate champion") == 1
    assert declare.past_night(open_night(night.id)).tasks == tuple(night.results["deciding tasks"][:played])


def test_what_is_not_clear_at_a_look_is_played_to_the_end(world, early, monkeypatch):
    monkeypatch.setattr(world, "skills", {"first": 0.5, "control": 0.5, "challenger": 0.65})
    night, decision = run()
    first, last = decision["looked"]
    assert not first["stopped"] and last["stopped"] and decision["n_tasks"] == last["look"]["tasks"] == 40
    assert world.effects.count("evaluate champion") == 2 and len(episodes(night, "champion")) == 2 * 46
    assert len({each.episode_id for each in episodes(night, "champion")}) == 2 * 46
    assert "it continued" in explain_tests(read_decision(msgspec.json.encode(decision)))


def test_a_lead_that_is_ruled_out_ends_the_night_early(world, early, monkeypatch):
    monkeypatch.setattr(world, "skills", {"first": 0.9, "control": 0.9, "challenger": 0.1})
    _, decision = run()
    (found,) = decision["looked"]
    assert decision["verdict"] == found["verdict"] == "keep" and found["stopped"] and decision["n_tasks"] < 40


def test_a_night_with_looks_killed_between_them_goes_on_to_the_same_end(world, early, tmp_path, monkeypatch):
    monkeypatch.setattr(world, "skills", {"first": 0.5, "control": 0.5, "challenger": 0.65})
    run()
    undisturbed = [effect.split()[0] for effect in world.effects]
    first = undisturbed.index("evaluate")
    for moment in (first, first + 2, first + 3, first + 5, first + 6):
        (home := tmp_path / f"killed-{moment}").mkdir()
        monkeypatch.chdir(home)
        monkeypatch.setenv("RATCHET_HOME", str(home / "home"))
        again = World()
        again.die_at, again.skills = moment, world.skills
        vars(world).update(vars(again))
        with pytest.raises(Killed):
            run()
        night, decision = run(seed=None)
        assert len(decision["looked"]) == 2 and decision["n_tasks"] == 40
        assert [effect.split()[0] for effect in world.effects] == undisturbed, moment
        assert len({each.episode_id for each in episodes(night, "champion")}) == 2 * 46


def test_a_night_of_a_match_plays_everything(world, early, monkeypatch):
    rule = msgspec.structs.replace(night_world.small_scale().promotion, anchor_every=1)
    scale = night_world.small_scale().model_copy(update={"promotion": rule})
    monkeypatch.setattr(night_world, "small_scale", lambda: scale)
    _, decision = run()
    assert decision["declared"]["match"] and not decision["declared"]["looks"] and decision["n_tasks"] == 40


def worse_than_its_anchor(world):
    """A home whose champion (version 1) succeeds half as often as the anchor (version 2)."""
    run()
    first, challenger = world.registry[:2]
    world.champion = msgspec.structs.replace(first, version=1)
    world.anchor = msgspec.structs.replace(challenger, version=2)
    world.effects.clear()
    world.jobs.clear()


def test_a_champion_that_is_worse_than_the_anchor_is_rolled_back_and_nobody_is_promoted(world, matches):
    worse_than_its_anchor(world)
    _, decision = run(seed=None)
    assert decision["match"]["rollback"] and decision["verdict"] == "keep"
    assert "roll back 2" in world.effects and world.champion.version == 2
    assert not any(effect.startswith(("promote", "anchor")) for effect in world.effects)


def test_a_night_of_a_rollback_killed_before_any_of_its_last_effects_goes_on_to_the_same_end(world, matches):
    worse_than_its_anchor(world)
    run(seed=None)
    undisturbed = [effect.split()[0] for effect in world.effects]
    for moment in range(undisturbed.index("decision"), len(undisturbed)):
        worse_than_its_anchor(world)
        world.die_at = moment
        with pytest.raises(Killed):
            run(seed=None)
        _, decision = run(seed=None)
        assert decision["match"]["rollback"] and world.champion.version == 2
        assert [effect.split()[0] for effect in world.effects] == undisturbed, moment
