"""Nights in a row: how many are played, when they end, and what an interrupted series does."""

import os
import shutil
import signal
import subprocess
import sys

import night_world
import pytest
from patience import LIMIT, gone, until

from ratchet import cli
from ratchet.components.core import ConfigurationError
from ratchet.components.nights.night_state import list_nights
from ratchet.flows.night_series import play_series, series_file

pytestmark = pytest.mark.slow


@pytest.fixture
def played(world):
    """Plays nights in the world of fakes; the promotions that are yet to come are `played.better`."""

    def play(night):
        play.ids.append(night.id)
        if play.codes and (code := play.codes.pop(0)):
            return code
        world.effects.clear()
        world.jobs.clear()
        world.better = not play.better or play.better.pop(0)
        world.skills = {} if world.better else {"challenger": 0.1}
        decided, _ = night_world.run(seed=night.seed)
        assert decided.id == night.id
        return 0

    play.ids, play.codes, play.better = [], [], []
    return play


def series(count, patience=None, *, play, seed=1):
    said = []
    return play_series(count, patience, "smoke", seed, say=said.append, play=play), said


def test_as_many_nights_are_played_as_were_asked_for_each_with_the_next_seed(played):
    played.better = [True, False]
    code, said = series(2, play=played)
    assert code == 0 and [night.seed for night in list_nights()] == [1, 2]
    assert said == [
        "1 of 2 nights finished, 1 promoted; the last: promoted",
        "2 of 2 nights finished, 1 promoted; the last: 1 in a row promoted nothing",
    ]


def test_nights_that_promote_nothing_in_a_row_end_the_series(played):
    played.better = [False, True, False, False, True]
    assert series(9, 2, play=played)[0] == 0
    assert len(list_nights()) == 4 and all(night.is_finished for night in list_nights())


def test_a_finished_series_is_not_continued_and_an_interrupted_one_is(played):
    played.codes = [0, 4]
    assert series(2, play=played)[0] == 4
    first, second = played.ids
    assert series(2, play=played)[0] == 0
    assert played.ids == [first, second, second] and len(list_nights()) == 2
    assert series(1, play=played, seed=3)[0] == 0
    assert len(list_nights()) == 3, "a new series"


def test_a_night_that_the_user_gave_up_is_replaced(played):
    played.codes = [3]
    assert series(1, play=played)[0] == 3
    (given_up,) = list_nights()
    shutil.rmtree(given_up.folder)
    assert series(1, play=played)[0] == 0
    (night,) = list_nights()
    assert night.id != given_up.id and night.seed == 1


def test_a_damaged_list_of_nights_begins_a_new_series(played):
    series(1, play=played)
    series_file().write_text('{"scale": ')
    assert series(1, play=played, seed=2)[0] == 0 and len(list_nights()) == 2


def test_two_series_do_not_run_at_once(played):
    def nested(night):
        with pytest.raises(ConfigurationError, match="another `ratchet online` runs"):
            series(1, play=played)
        return 5

    assert series(1, play=nested)[0] == 5


NIGHT = """
import os, sys, time
from pathlib import Path
if os.environ.get("HOW") == "long":
    Path(os.environ["MARKER"]).write_text(str(os.getpid()))
    time.sleep(600)
print(*sys.argv[1:], file=sys.stderr)
sys.exit(3)
"""
SERIES = """
import sys, ratchet.flows.night_series as module
popen, script = module.subprocess.Popen, sys.argv[1]
module.subprocess.Popen = lambda command, **how: popen([sys.executable, script, *command[3:]], **how)
sys.argv = ["ratchet", "online", "--nights", "2", "--seed", "7", "--recipe", "dpo"]
from ratchet import cli
cli.main()
"""


@pytest.fixture
def online(tmp_path):
    """Starts `ratchet online` with a stand-in for `ratchet night`."""
    (tmp_path / "night.py").write_text(NIGHT)
    (tmp_path / "dvc.yaml").touch()

    def start(**environment):
        command = [sys.executable, "-c", SERIES, str(tmp_path / "night.py")]
        environment = os.environ | {"RATCHET_HOME": str(tmp_path / "home")} | environment
        return subprocess.Popen(command, cwd=tmp_path, env=environment, stderr=subprocess.PIPE, text=True)

    return start


def test_the_exit_code_is_that_of_the_night_which_got_the_arguments(online):
    process = online()
    _, err = process.communicate(timeout=LIMIT)
    assert process.returncode == 3
    words = err.split()
    assert words[:2] == ["night", "--night"] and words[3:] == ["--scale", "smoke", "--seed", "7", "--recipe", "dpo"]


def test_sigterm_ends_the_night_too(online, tmp_path):
    process = online(HOW="long", MARKER=str(tmp_path / "it runs"))
    until(lambda: (tmp_path / "it runs").exists() and (tmp_path / "it runs").read_text())
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=LIMIT)
    assert process.returncode == 130
    until(lambda: gone(int((tmp_path / "it runs").read_text())))


def test_a_series_needs_a_number_of_nights(capsys):
    assert cli.run(["online"]) == 2
    assert "--nights" in capsys.readouterr().err
