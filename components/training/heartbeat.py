"""Heartbeat file of a job: its phase, its step and the time of its last progress, for the process that supervises it.

Times are seconds of the monotonic clock, which all processes of a machine share: a step of the system's clock must not look
like a stall.
"""

import contextlib
import threading
import time
from pathlib import Path

import msgspec

from ratchet.components.core.files import write_atomically
from ratchet.components.core.processes import owner_label

HEARTBEAT_FILE = "heartbeat.json"


class HeartbeatState(msgspec.Struct, frozen=True):
    """Contents of the heartbeat file. `at`: time of writing; `moved`: time of the last progress. `phase`: what the job was
    doing then; `step`: its optimiser step; `owner`: `owner_label` of its process.
    """

    at: float
    moved: float
    phase: str
    step: int = 0
    owner: str = ""


def read_heartbeat(output: Path) -> HeartbeatState | None:
    """Return the heartbeat of the job in an output folder; None if it is missing or unreadable."""
    try:
        return msgspec.json.decode((output / HEARTBEAT_FILE).read_bytes(), type=HeartbeatState)
    except (OSError, msgspec.DecodeError):
        return None


class Heartbeat:
    """Write the heartbeat file every `seconds` from a thread within the block, and delete it at the end; `phase`
    records progress.
    """

    def __init__(self, output: Path, seconds: float) -> None:
        self._path, self._seconds = output / HEARTBEAT_FILE, seconds
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._beat, name="heartbeat", daemon=True)
        self._progress: tuple[float, str, int] = (time.monotonic(), "starting", 0)

    def __enter__(self) -> "Heartbeat":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join()
        self._path.unlink(missing_ok=True)

    def phase(self, name: str, step: int | None = None) -> None:
        """Record progress: the current phase and, where given, the optimiser step."""
        self._progress = (time.monotonic(), name, self._progress[2] if step is None else step)

    def _beat(self) -> None:
        while True:
            moved, phase, step = self._progress
            state = HeartbeatState(time.monotonic(), moved, phase, step, owner_label())
            # A full disk or memory ends the job where it saves or trains, with a message about it.
            with contextlib.suppress(OSError, MemoryError):
                write_atomically(self._path, msgspec.json.encode(state), durable=False)
            if self._end.wait(self._seconds):
                return
