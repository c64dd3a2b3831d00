"""Backlog: the episodes that are still to be played, in the order of the plan; what the world broke comes back after a while."""

import heapq
import itertools
import random
import threading
import time
from collections import Counter, deque
from collections.abc import Iterable

from .circuit import Circuit
from .episode import Episode
from .plan import PlannedEpisode
from .progress import cause_of

BACK_OFF_SECONDS = 1.0
"""Before the second try; twice as long before each further one, half to one and a half times that by chance."""
LONGEST_BACK_OFF = 30.0


def back_off(tries: int) -> float:
    """Seconds to wait after `tries` failed tries, drawn at random: exponential, with jitter."""
    return min(BACK_OFF_SECONDS * 2.0 ** (tries - 1), LONGEST_BACK_OFF) * random.uniform(0.5, 1.5)


class Backlog:
    """Safe to use from many threads: `take` blocks until an episode may be played. An episode is with one thread at a time.

    `retried`: tries to be repeated, by what ended the one before. `set_aside`: the identities whose tries are used up.
    """

    def __init__(self, planned: Iterable[PlannedEpisode], *, retries: int, patience: float) -> None:
        self.retried: Counter[str] = Counter()
        self.set_aside: set[str] = set()
        self._fresh = deque(planned)
        self._again: list[tuple[float, int, PlannedEpisode]] = []
        self._number = itertools.count()
        self._tries: dict[str, int] = {}
        self._retries = retries
        self._circuit = Circuit(patience, time.monotonic)
        self._out = 0
        self._closed = False
        self._changed = threading.Condition()

    def take(self) -> PlannedEpisode | None:
        """The next episode; None once the backlog is closed."""
        with self._changed:
            while not self._closed:
                wait = self._wait()
                if wait == 0:
                    self._out += 1
                    return self._next()
                self._changed.wait(wait)
            return None

    def _wait(self) -> float | None:
        """Seconds until something may be played; None where only another episode's end can change that."""
        if self._circuit.open and (self._out or self._circuit.delay()):
            return None if self._out else self._circuit.delay()
        if self._fresh:
            return 0.0
        return max(0.0, self._again[0][0] - time.monotonic()) if self._again else None

    def _next(self) -> PlannedEpisode:
        due = self._again and self._again[0][0] <= time.monotonic() and not self._circuit.suspicious
        if due or not self._fresh:
            return heapq.heappop(self._again)[2]
        return self._fresh.popleft()

    def ended(self, episode: Episode) -> None:
        """The try of an episode that was taken has ended: done, or to be played again, or set aside, or the end of all."""
        with self._changed:
            self._out -= 1
            if episode.fatal is not None:
                self._closed = True
            elif episode.broken is None:
                self._circuit.succeeded()
            elif not self._closed:
                self._failed(episode.planned, cause_of(episode.broken))
            self._changed.notify_all()

    def _failed(self, planned: PlannedEpisode, cause: str) -> None:
        counted = not self._circuit.open  # while the world is known to be away, no try is counted
        tries = self._tries.get(planned.episode_id, 0)
        self._circuit.failed(cause, first_try=tries == 0)
        tries += counted
        self._tries[planned.episode_id] = tries
        if tries > self._retries:
            self.set_aside.add(planned.episode_id)
            return
        self.retried[cause] += 1
        heapq.heappush(self._again, (time.monotonic() + back_off(max(tries, 1)), next(self._number), planned))

    @property
    def waiting_for(self) -> str | None:
        """The cause of everything failing, while that is so."""
        with self._changed:
            return self._circuit.cause if self._circuit.open else None

    @property
    def exhausted(self) -> bool:
        """Whether the world stayed away for longer than the patience allows."""
        with self._changed:
            return self._circuit.exhausted

    def close(self) -> None:
        """No thread gets anything more."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
