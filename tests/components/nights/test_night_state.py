import time

import pytest

from ratchet.components.core import ConfigurationError, DataError
from ratchet.components.nights import night_state
from ratchet.components.nights.night_models import NightModel
from ratchet.components.nights.night_state import (
    RUNNING_FILE,
    begin_night,
    hold_night_lock,
    list_nights,
    next_night,
    open_night,
    running_night,
    running_steps,
)


@pytest.fixture(autouse=True)
def own_home(tmp_path, monkeypatch):
    monkeypatch.setenv("RATCHET_HOME", str(tmp_path / "home"))


def test_a_finished_step_is_not_done_again_by_the_process_that_comes_after():
    calls = []
    night = begin_night("smoke", 3)
    assert night.run_once("collect", lambda: calls.append(1) or {"episodes": 4}) == {"episodes": 4}
    again = begin_night("smoke")
    assert again.id == night.id and again.seed == 3
    assert again.run_once("collect", lambda: calls.append(2) or {"episodes": 9}) == {"episodes": 4}
    assert calls == [1]


def test_the_next_night_is_known_before_it_begins_and_nothing_of_it_is_written(tmp_path):
    first = next_night("smoke")
    assert (first.seed, first.results) == (0, {}) and not (tmp_path / "home").exists()
    begun = begin_night("smoke")
    begun.run_once("collect", lambda: 4)
    resumed = next_night("smoke")
    assert resumed.id == begun.id and resumed.results == {"collect": 4}
    begun.finish()
    assert next_night("smoke").seed == 1 and next_night("smoke", 7).seed == 7 and len(list_nights()) == 1


def test_a_step_that_failed_is_done_again():
    night = begin_night("smoke", 0)
    with pytest.raises(ZeroDivisionError):
        night.run_once("build", lambda: 1 / 0)
    assert open_night(night.id).run_once("build", lambda: "built") == "built"


def test_a_step_may_return_nothing_and_still_counts_as_done():
    night = begin_night("smoke", 0)
    assert night.run_once("champion", lambda: None) is None
    assert open_night(night.id).run_once("champion", lambda: "another") is None


@pytest.mark.parametrize(
    ("kept", "kind"), [(5, NightModel), ({"version": 1}, NightModel), ("text", int), ([1], tuple[str, ...])]
)
def test_a_result_of_the_wrong_shape_is_one_line_that_names_night_step_and_place(kept, kind):
    night = begin_night("smoke", 0, "tonight")
    night.run_once("champion", lambda: kept)
    for ask in (lambda: night.result("champion", kind), lambda: night.run_once("champion", lambda: 1 / 0, kind)):
        with pytest.raises(
            DataError, match="night tonight: the result of its step 'champion' cannot be read"
        ) as caught:
            ask()
        assert "\n" not in str(caught.value) and str(night.folder) in str(caught.value)
    assert night.result("another", kind) is None


def test_nights_stand_in_the_order_of_their_beginnings_also_where_the_clock_was_set_back(monkeypatch):
    for name, now in (("one", "2026-11-27"), ("two", "2036-01-01"), ("three", "2026-11-28")):
        monkeypatch.setattr(night_state, "_now", lambda now=now: f"{now}T01:00:00.000000+00:00")
        begin_night("smoke", None, name).finish()
    assert [night.id for night in list_nights()] == ["one", "two", "three"]


def test_a_finished_night_is_followed_by_another_with_the_next_seed():
    first = begin_night("smoke", 5)
    first.finish()
    second = begin_night("smoke")
    assert second.id != first.id and second.seed == 6
    assert [night.id for night in list_nights()] == [first.id, second.id]


@pytest.mark.parametrize("name", [None, "tonight"])
def test_an_unfinished_night_of_an_older_version_is_refused_in_one_line_and_a_finished_one_is_read(name):
    night = begin_night("smoke", 5, "tonight")
    path = night.folder / "state.json"
    path.write_text(path.read_text().replace('"schema_version": 2', '"schema_version": 1'))
    with pytest.raises(ConfigurationError, match="night tonight was begun by an older Ratchet") as caught:
        begin_night("smoke", None, name)
    assert "\n" not in str(caught.value) and str(night.folder) in str(caught.value)
    open_night("tonight").finish()
    assert open_night("tonight").is_finished and begin_night("smoke").seed == 6


def test_an_unfinished_night_of_another_scale_or_seed_is_left_alone():
    first = begin_night("smoke", 0)
    assert begin_night("night", 0).id != first.id
    assert begin_night("smoke", 1).id != first.id


@pytest.mark.parametrize(
    ("found", "wanted", "said"),
    [
        (b'"schema_version": 2', b'"schema_version": 3, "unheard_of": 3', "schema_version 3 is newer than 2; upgrade"),
        (b'"scale": "smoke"', b'"scale": "smo\xffke"', "remove the folder to give the night up"),
        (b'"night": "tonight"', b'"night": "../elsewhere"', "put the folder back under that name"),
    ],
)
def test_a_state_of_a_newer_version_or_of_another_night_is_refused_in_one_line(found, wanted, said):
    path = begin_night("smoke", 0, "tonight").folder / "state.json"
    before = path.read_bytes()
    assert found in before
    path.write_bytes(before.replace(found, wanted))
    with pytest.raises(DataError, match=said):
        list_nights()


def test_a_named_night_goes_on_only_with_the_scale_and_seed_that_it_was_begun_with():
    begin_night("smoke", 2, "tonight")
    assert begin_night("smoke", None, "tonight").seed == 2
    with pytest.raises(ConfigurationError, match="seed 2"):
        begin_night("smoke", 3, "tonight")
    with pytest.raises(ConfigurationError, match="scale smoke"):
        begin_night("night", None, "tonight")


@pytest.mark.parametrize("name", ["../up", "", "a b", "-x", "x" * 65])
def test_a_night_has_a_name_that_is_safe_in_paths_and_tags(name):
    with pytest.raises(ConfigurationError, match="cannot name a night"):
        begin_night("smoke", 0, name)


def test_an_unknown_night_and_a_broken_state_are_named(tmp_path):
    with pytest.raises(ConfigurationError, match="no night missing"):
        open_night("missing")
    night = begin_night("smoke", 0)
    (night.folder / "state.json").write_text("{")
    with pytest.raises(DataError, match=r"state\.json"):
        open_night(night.id)


def test_one_night_at_a_time_and_the_lock_says_which():
    with hold_night_lock() as claim:
        claim("tonight")
        assert running_night() == "tonight"
        with pytest.raises(ConfigurationError, match="night tonight is running"), hold_night_lock():
            pass
    assert running_night() is None
    with hold_night_lock():
        pass


def test_the_steps_that_ran_when_a_night_was_killed_do_not_run_in_the_one_that_resumes_it():
    night = begin_night("smoke", 0)
    killed = night.run_once("collect", lambda: (night.folder / RUNNING_FILE).read_bytes().decode())
    (night.folder / RUNNING_FILE).write_text(killed)
    assert running_steps(night) == ["collect"]
    assert running_steps(begin_night("smoke", 0)) == []


def test_a_step_ends_as_it_does_where_the_file_of_running_steps_cannot_be_written():
    night = begin_night("smoke", 0)
    (night.folder / RUNNING_FILE).mkdir(parents=True)
    assert night.run_once("collect", lambda: 4) == 4
    with pytest.raises(ZeroDivisionError):
        night.run_once("build", lambda: 1 / 0)


def test_a_night_goes_on_with_its_recipe_and_with_no_other():
    assert begin_night("smoke", 0).recipe is None
    asked = begin_night("smoke", 1, None, "r1")
    assert begin_night("smoke", 1).id == begin_night("smoke", 1, None, "r1").id == asked.id, "it is remembered"
    assert begin_night("smoke", 1, None, "dpo").id != asked.id
    with pytest.raises(ConfigurationError, match=r"scale smoke, recipe r1 and seed 1; repeat those"):
        begin_night("smoke", 1, asked.id, "dpo")


def test_a_night_keeps_how_long_each_finished_step_took_in_the_order_in_which_they_ended():
    night = begin_night("smoke", 0)
    night.run_once("second by name", lambda: time.sleep(0.02))
    night.run_once("a first by name", lambda: None)
    night.run_once("second by name", lambda: None)
    seconds = open_night(night.id).seconds
    assert list(seconds) == ["second by name", "a first by name"] and 0.02 <= seconds["second by name"] < 60


def test_a_night_says_when_it_ended():
    night = begin_night("smoke", 0)
    assert night.ended is None
    night.finish()
    assert open_night(night.id).ended >= night.begun


def test_a_night_of_a_home_that_was_moved_names_the_files_of_the_home_that_holds_it(tmp_path, monkeypatch):
    monkeypatch.setenv("RATCHET_HOME", str(tmp_path / 'a "first" home'))
    night = begin_night("smoke", night="n1")
    folder = night.folder
    paths = [str(folder / "training" / "checkpoint"), str(folder.parent / "n0" / "rows.jsonl"), "/elsewhere/model"]
    assert night.run_once("train", lambda: paths) == paths
    home = folder.parents[1].rename(tmp_path / "a second")
    monkeypatch.setenv("RATCHET_HOME", str(home))
    own = [str(home / "nights" / "n1" / "training" / "checkpoint"), str(home / "nights" / "n0" / "rows.jsonl")]
    assert open_night("n1").result("train") == [*own, "/elsewhere/model"]
