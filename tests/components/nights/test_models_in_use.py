"""Which models unfinished nights still need."""

from ratchet.components.nights.night_history import models_in_use
from ratchet.components.nights.night_models import NightModel
from ratchet.components.nights.night_state import begin_night


def test_the_models_of_an_unfinished_night_are_in_use_and_those_of_a_finished_one_are_not(tmp_path, monkeypatch):
    monkeypatch.setenv("RATCHET_HOME", str(tmp_path))
    for name in ("done", "open"):
        night = begin_night("smoke", None, name)
        night.run_once("champion", lambda: NightModel("ckpt-1", "/models/1", ("n",), version=3))
        night.run_once("register challenger", lambda name=name: NightModel(f"ckpt-{name}", "/models/2", ("n",)))
        night.run_once("evaluate", lambda: {"champion": {"episodes": 3, "policy_version": "not-a-model"}})
        if name == "done":
            night.finish()
    assert models_in_use() == {"ckpt-1": "unfinished open", "ckpt-open": "unfinished open"}
