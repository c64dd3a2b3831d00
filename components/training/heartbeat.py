"""Heartbeat: a thread of a job that says that it lives, and what it does."""

import threading
import time
from pathlib import Path
from types import TracebackType
from typing import Any

import msgspec
from transformers import TrainerCallback

from .beat import FILE, Beat


class Heartbeat(TrainerCallback):  # type: ignore[misc]
    """Beats every `seconds` from a thread of its own while it is entered; `phase` and every step say that the job moves."""

    def __init__(self, output: Path, seconds: float) -> None:
        self._path, self._seconds = output / FILE, seconds
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._beat, name="heartbeat", daemon=True)
        self._said: tuple[float, str, int] = (time.time(), "starting", 0)

    def __enter__(self) -> "Heartbeat":
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end.set()
        self._thread.join()
        self._path.unlink(missing_ok=True)

    def phase(self, name: str) -> None:
        """What the job does from now on."""
        self._said = (time.time(), name, self._said[2])

    def _beat(self) -> None:
        while True:
            moved, phase, step = self._said
            temporary = self._path.with_suffix(".tmp")
            try:
                temporary.write_bytes(msgspec.json.encode(Beat(time.time(), moved, phase, step)))
                temporary.replace(self._path)
            except OSError:
                pass  # a full disk ends the job where it saves, with a line of its own
            if self._end.wait(self._seconds):
                return

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """A step was made."""
        self._said = (time.time(), "training", state.global_step)

    def on_substep_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """A part of a step was made."""
        self._said = (time.time(), "training", state.global_step)

    def on_prediction_step(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """A batch was measured."""
        self._said = (time.time(), "evaluating", state.global_step)
