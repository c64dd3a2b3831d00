"""A home of the version before opens. `tests/fixtures/homes/0.1.0.tar.xz` holds the states of three nights that version 0.1.0
played at `/srv/ratchet`; the last one is cut off before its training, as a killed process leaves it.
"""

import json
import tarfile
from pathlib import Path

import msgspec
import pytest

from ratchet.components.nights.night_models import NightModel
from ratchet.components.nights.night_state import begin_night, list_nights

ROOT = Path(__file__).parents[2]
FIRST, SECOND, UNFINISHED = "2026-11-27-ed1a", "2026-11-27-9678", "2026-11-27-57b2"

pytestmark = pytest.mark.slow  # the report imports what draws it


@pytest.fixture(autouse=True)
def old_home(tmp_path, monkeypatch):
    with tarfile.open(ROOT / "tests/fixtures/homes/0.1.0.tar.xz") as archive:
        archive.extractall(tmp_path / "home", filter="data")
    monkeypatch.setenv("RATCHET_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(ROOT)
    return tmp_path / "home"


def test_its_nights_are_listed_with_their_verdicts(run):
    code, out, _ = run("status", "--json")
    nights = {row["night"]: row for row in map(json.loads, out.splitlines())}
    assert code == 0 and list(nights) == [FIRST, SECOND, UNFINISHED]
    assert [nights[night]["state"] for night in (FIRST, SECOND)] == ["finished"] * 2
    assert nights[FIRST]["verdict"] in ("promote", "keep") and nights[FIRST]["challenger"].endswith("%")
    assert nights[UNFINISHED]["state"] == "interrupted after 14 steps"


def test_decisions_are_explained_and_reports_written(run):
    for night in (FIRST, SECOND):
        code, out, _ = run("promote", "--explain", night)
        assert code == 0 and "challenger" in out
        code, out, _ = run("report", night, "--markdown")
        assert code == 0 and night in out
    assert run("report", UNFINISHED, "--markdown")[0] == 0


def test_an_unfinished_night_goes_on_with_its_finished_steps_in_the_home_where_it_lies_now(old_home):
    night = begin_night("smoke")
    assert night.id == UNFINISHED and not night.is_finished
    champion = night.run_once("champion", pytest.fail, NightModel | None)
    assert champion is not None
    texts = msgspec.json.encode(night.results).decode()
    assert str(old_home) in texts and "/srv/ratchet/.ratchet" not in texts
    night.run_once("train challenger", lambda: {"steps": 1})
    assert [each.is_finished for each in list_nights()] == [True, True, False]
    assert "train challenger" in list_nights()[-1].results
