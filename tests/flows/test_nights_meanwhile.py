"""What happens to a night while it stands still: other nights declare and promote, and people move the place by hand."""

import msgspec
import pytest
from night_world import Killed, run, tonight_of

from ratchet.components.nights.night_state import begin_night, open_night
from ratchet.flows.steps import declare, promote, train

pytestmark = pytest.mark.slow


def test_a_night_that_declares_after_one_that_began_later_counts_it_and_takes_other_tasks(world, monkeypatch):
    monkeypatch.setattr(declare, "has_seen_outcomes", lambda night: declare.DECLARED_STEP in night.results)
    first, second = begin_night("smoke", 1), begin_night("smoke", 2)
    for night in (second, first):
        declare.declare_tonight(tonight_of(night))
    tests = [open_night(night.id).results["declared"]["allowance"]["test"] for night in (second, first)]
    assert tests == [1, 2]
    assert not set(first.results["deciding tasks"]) & set(second.results["deciding tasks"])
    third = begin_night("smoke", 3)
    declare.declare_tonight(tonight_of(third))
    assert third.results["declared"]["allowance"]["test"] == 3


def test_a_night_that_goes_on_declares_nothing_anew_where_others_have_only_declared_since(world):
    first = begin_night("smoke", 1)
    before = declare.declare_tonight(tonight_of(first))
    declare.declare_tonight(tonight_of(begin_night("smoke", 2)))
    assert declare.declare_tonight(tonight_of(open_night(first.id))) == before


def test_a_champion_of_the_meantime_is_not_displaced_by_a_challenger_that_never_met_it(world, monkeypatch):
    said = []
    monkeypatch.setattr(promote, "current_display", lambda: type("Display", (), {"say": said.append}))
    world.die_at = 8
    with pytest.raises(Killed):
        run()
    assert world.champion.version == 1
    world.champion = msgspec.structs.replace(world.champion, version=9)
    night, decision = run(seed=None)
    assert decision["verdict"] == "promote" and world.champion.version == 9
    assert night.results["promote"] == 9 and "promote 2" not in world.effects
    assert said == [
        "version 9, promoted while the night ran, stays champion; "
        "`ratchet promote 2` makes tonight's choice the champion"
    ]


def test_a_training_that_changed_nothing_leaves_the_champion_the_decision_by_which_it_came_to_its_place(
    world, monkeypatch
):
    def trained(checkpoint, nights, build):
        return world.registry[0] if checkpoint.name == "challenger" else world.trained(checkpoint, nights, build)

    monkeypatch.setattr(train, "trained_model", trained)
    _, decision = run()
    assert decision["challenger"]["agent"]["policy_version"] == decision["champion"]["agent"]["policy_version"]
    assert decision["verdict"] == "undecided" and world.champion.version == 1
    assert not any(effect.startswith("decision") for effect in world.effects)
