"""A night of a service's traffic: it plays no task at night, and everything after the collection is as ever."""

import night_world
import pytest
from night_world import Killed, run, small_scale

from ratchet.components.nights.night_state import open_night
from ratchet.components.nights.scale_config import TrafficConfig
from ratchet.flows.steps import collect

pytestmark = pytest.mark.slow


@pytest.fixture
def traffic(world, monkeypatch):
    """A world with a champion, whose scale takes traffic; the list of nights that took some."""
    run()
    scale = small_scale().model_copy(update={"traffic": TrafficConfig(episodes=9, quiet_minutes=2)})
    monkeypatch.setattr(night_world, "small_scale", lambda: scale)
    taken = []

    def take_traffic(night, how, domain, spool, target):
        world.happens(f"take {night}")
        taken.append((night, how.episodes, how.quiet_minutes, domain))
        world.write(world.plans["demonstrations-s1"], target)
        return {
            "episodes": 9,
            "successes": 4,
            "infrastructure_failures": 0,
            "failures": {},
            "seconds": 1.0,
            "policy_version": "m",
        }

    monkeypatch.setattr(collect, "take_traffic", take_traffic)
    return taken


def test_a_night_of_traffic_plays_nothing_and_trains_evaluates_and_decides_on_held_out_tasks(world, traffic):
    begun = len(world.effects)
    night, decision = run(seed=2)
    assert traffic == [(night.id, 9, 2.0, "coding")]
    effects = world.effects[begun:]
    assert effects[:2] == [f"take {night.id}", f"add {night.id}"]
    assert not any(effect.startswith("seal ") for effect in effects)
    assert {"register challenger", "register control", "evaluate challenger"} <= set(effects)
    assert (
        decision["verdict"] in ("promote", "keep", "undecided")
        and len(open_night(night.id).results["deciding tasks"]) == 40
    )


def test_a_night_of_traffic_that_is_killed_after_the_sealing_takes_nothing_twice(world, traffic):
    world.die_at = len(world.effects) + 2
    with pytest.raises(Killed):
        run(seed=2)
    run(seed=None)
    assert len(traffic) == 1
