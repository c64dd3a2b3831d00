"""Patience: tests wait until something holds, never for a time. A limit is met only where a promise is broken."""

import time
from collections.abc import Callable

import psutil

LIMIT = 120.0
"""Seconds in which even a machine that is busy with something else has done what takes it a moment."""


def until(holds: Callable[[], object], seconds: float = LIMIT) -> None:
    """Wait for a condition. Raises AssertionError where it does not come about within the limit."""
    limit = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < limit, "it did not come about"
        time.sleep(0.02)


def gone(pid: int) -> bool:
    """Whether a process has ended; one that nobody has asked after yet has."""
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True
