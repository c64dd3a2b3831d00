"""Rooms: regions of a spool that were read and may be written over, told by who reads to those who write, through a named pipe.

A fresh page of a file costs several times as much as one that is there. A room that nobody hears of is only lost.
"""

import os
import struct
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

TRIES = 8
"""Rooms that are looked at before new room is made."""
_ROOM = struct.Struct("<qq")


class Room(NamedTuple):
    """So many bytes of a file, from `begin` on."""

    begin: int
    size: int


class Rooms:
    """The rooms that are free in a spool; kept by the process that reads it until it is closed."""

    def __init__(self, spool: Path) -> None:
        self._path = _beside(spool)
        self._pipe: int | None = None
        with suppress(OSError):  # a file system without pipes
            os.mkfifo(self._path, 0o600)
            self._pipe = os.open(self._path, os.O_RDWR | os.O_NONBLOCK)

    def give(self, room: Room) -> None:
        """Tell of a room that nobody reads any more."""
        if self._pipe is not None and room.size:
            with suppress(BlockingIOError):  # the pipe is full
                os.write(self._pipe, _ROOM.pack(*room))

    def close(self) -> None:
        """Let the pipe go."""
        if self._pipe is not None:
            os.close(self._pipe)
        self._path.unlink(missing_ok=True)


def take_room(spool: Path, size: int) -> Room | None:
    """A room of at least so many bytes, which is nobody else's from now on; None where there is none."""
    try:
        pipe = os.open(_beside(spool), os.O_RDWR | os.O_NONBLOCK)
    except OSError:
        return None
    small: list[bytes] = []
    found: Room | None = None
    try:
        with suppress(BlockingIOError):  # no more rooms
            while found is None and len(small) < TRIES:
                told = os.read(pipe, _ROOM.size)  # as a whole: pipes keep what is so small together
                room = Room(*_ROOM.unpack(told))
                if room.size >= size:
                    found = room
                else:
                    small.append(told)
        with suppress(BlockingIOError):
            for told in small:
                os.write(pipe, told)
    finally:
        os.close(pipe)
    return found


def _beside(spool: Path) -> Path:
    return spool.with_suffix(".rooms")
