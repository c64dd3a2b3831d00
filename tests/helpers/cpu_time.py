"""Limits on CPU time, measured again where they seem to be exceeded: other processes slow a measurement, never speed it up."""

import gc
import time
from collections.abc import Callable

TRIES = 6


def cpu_seconds(work: Callable[..., object], *arguments: object) -> float:
    """Return the CPU seconds of a call without garbage collection, whose time is that of all objects of the process."""
    gc.disable()
    try:
        begin = time.process_time()
        work(*arguments)
        return time.process_time() - begin
    finally:
        gc.enable()


def assert_takes_at_most(limit: float, work: Callable[..., object], *arguments: object) -> None:
    """Fails where ``work`` takes more than ``limit`` CPU seconds in each of several runs."""
    taken = []
    for _ in range(TRIES):
        taken.append(cpu_seconds(work, *arguments))
        if taken[-1] <= limit:
            return
    raise AssertionError(f"at best {min(taken):.3f} s of CPU time in {TRIES} runs, over the limit of {limit:g} s")


def assert_grows_at_most(
    factor: float, seconds: Callable[[int], float], small: int, large: int, floor: float = 1e-3
) -> None:
    """Fails where size ``large`` takes over ``factor`` times as long as ``small``, by the least of several measurements.

    What takes less than ``floor`` seconds at size ``small`` counts as ``floor``: the clock is too coarse for less.
    """
    least = {small: float("inf"), large: float("inf")}
    for _ in range(TRIES):
        for size in least:
            least[size] = min(least[size], seconds(size))
        if least[large] <= factor * max(floor, least[small]):
            return
    raise AssertionError(f"{least[large]:.4f} s for {large}, {least[small]:.4f} s for {small}: over {factor:g} times")
