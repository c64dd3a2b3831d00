"""Nights in a row: one after another until there are enough of them, or until several in a row promoted nothing.

Each night is a `ratchet night` in a process of its own, whose memory and servers end with it. `.ratchet/series.json` holds
the nights of the series, so that the same command goes on with an interrupted one.
"""

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from itertools import count, takewhile
from pathlib import Path

import msgspec

from ratchet.components.core import ConfigurationError, InfrastructureError
from ratchet.components.core.files import LockHeld, OwnedLock, write_json
from ratchet.components.core.home import home, home_folder
from ratchet.components.nights.night_state import Night, begin_night, night_decision, night_folder, open_night
from ratchet.flows.scheduled_run import SCHEDULER_VARIABLE


class NightSeries(msgspec.Struct):
    """A series: the arguments of its nights, and their ids in the order of their starts. `seed`: of the first night."""

    scale: str
    recipe: str | None
    seed: int | None
    nights: list[str] = []
    ended: bool = False

    def states(self) -> list[Night]:
        """Return the states of the nights; without those whose folder the user has removed."""
        return [open_night(id) for id in self.nights if (night_folder(id) / "state.json").is_file()]

    def next_night(self, states: list[Night]) -> Night:
        """Return the interrupted night of the series, or add and return the next one."""
        if states and not states[-1].is_finished:
            return states[-1]
        played = {state.seed for state in states}
        seed = None if self.seed is None else next(each for each in count(self.seed) if each not in played)
        state = begin_night(self.scale, seed, None, self.recipe)
        self.nights.append(state.id)
        write_json(series_file(), self)
        return state


def series_file() -> Path:
    """Return the file of this home's latest series, which may not exist."""
    return home() / "series.json"


def open_series(scale: str, seed: int | None, recipe: str | None) -> NightSeries:
    """Return the unfinished series of the same arguments, or a new one."""
    new = NightSeries(scale, recipe, seed)
    try:
        series = msgspec.json.decode(series_file().read_bytes(), type=NightSeries)
    except (OSError, msgspec.DecodeError):  # a damaged list of nights loses no night
        return new
    same = (series.scale, series.recipe, series.seed) == (scale, recipe, seed)
    return series if same and not series.ended else new


def play_night(night: Night) -> int:
    """Play or resume a night in a process that ends with this one; return its exit code."""
    command = [sys.executable, "-m", "ratchet.cli", "night", "--night", night.id, "--scale", night.scale]
    command += ["--seed", str(night.seed), *(["--recipe", night.recipe] if night.recipe else [])]
    process = subprocess.Popen(command, env={**os.environ, SCHEDULER_VARIABLE: str(os.getpid())})
    try:
        code = process.wait()
    except KeyboardInterrupt:  # Ctrl-C in a terminal reaches both processes; a SIGTERM only this one
        process.send_signal(signal.SIGINT)
        code = process.wait()
    return code if code >= 0 else 128 - code


def play_series(
    count: int,
    patience: int | None,
    scale: str,
    seed: int | None = None,
    recipe: str | None = None,
    *,
    say: Callable[[str], None],
    play: Callable[[Night], int] = play_night,
) -> int:
    """Play nights until `count` of them are finished, or the last `patience` promoted nothing; return 0, or the exit code
    of the night that ended the series early. `say`: called with a line after each night.

    Raises ConfigurationError where another series runs in this home.
    """
    with OwnedLock(home_folder("run") / "series.lock") as lock:
        try:
            lock.acquire()
        except LockHeld as held:
            raise ConfigurationError("another `ratchet online` runs in this clone; wait for it or end it") from held
        series = open_series(scale, seed, recipe)
        while True:
            states = series.states()
            decisions = [night_decision(state) for state in states if state.is_finished]
            promoted = [decision is not None and decision.verdict == "promote" for decision in decisions]
            fruitless = len(list(takewhile(lambda found: not found, reversed(promoted))))
            if promoted:
                verdict = "promoted" if promoted[-1] else f"{fruitless} in a row promoted nothing"
                say(f"{len(promoted)} of {count} nights finished, {sum(promoted)} promoted; the last: {verdict}")
            if len(promoted) >= count or (patience is not None and fruitless >= patience):
                series.ended = True
                write_json(series_file(), series)
                return 0
            night = series.next_night(states)
            if code := play(night):
                return code
            if not open_night(night.id).is_finished:
                raise InfrastructureError(
                    f"night {night.id} ended without an error and is not finished; repeat the command"
                )
