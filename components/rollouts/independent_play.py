"""Play episodes independently of each other, one thread per episode, many in parallel.

The thread pool replaces a thread whose job hangs. Its threads are daemons, so that a hung one delays neither the other
episodes nor the end of the process.

An episode that infrastructure ended is played again after a back-off. If everything fails for one reason, a circuit
breaker opens, so that an outage does not use up every episode's retries.
"""

import contextlib
import heapq
import itertools
import random
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence, Set
from queue import Empty, SimpleQueue
from typing import Generic, Protocol, TypeVar

from ratchet.components.core import InfrastructureError, Policy

from .collection_plan import PlannedEpisode
from .collection_progress import CollectionProgress
from .episode_runner import Episode, EpisodeSettings
from .harness_episode import HarnessEpisode

FAILURES_TO_OPEN = 8
"""Consecutive first attempts that must fail for one reason to open the circuit breaker."""
FIRST_PROBE_SECONDS = 1.0
"""Seconds until the first probe. The pause doubles for each further one, up to a tenth of the remaining patience."""


class CircuitBreaker:
    """Circuit breaker for outages. While closed, everything is played; while open, single episodes probe at growing
    intervals until one succeeds or `patience` (seconds since the opening) ends. The caller asks and reports; no I/O.

    `clock`: returns seconds, such as `time.monotonic`. `cause`: that of the last failures, None after a success.

    Only first attempts open it: an episode that keeps failing while others succeed has a fault of its own. Before
    anything has succeeded only a tenth of `patience` is granted, because then the configuration is the likely cause.
    """

    def __init__(self, patience: float, clock: Callable[[], float]) -> None:
        self.patience = patience
        self.cause: str | None = None
        self._clock = clock
        self._consecutive_failures = 0
        self._opened_at: float | None = None
        self._pause = FIRST_PROBE_SECONDS
        self._probe_at = 0.0
        self._has_succeeded = False

    @property
    def is_failing(self) -> bool:
        """Return whether nothing has succeeded since the last failed first attempt. New episodes are then played before
        retries.
        """
        return self._consecutive_failures > 0

    @property
    def is_open(self) -> bool:
        """Return whether the breaker is open."""
        return self._opened_at is not None

    def record_success(self) -> None:
        """Record an episode that reached its end."""
        self._has_succeeded = True
        self._consecutive_failures = 0
        self._opened_at = None
        self.cause = None

    def record_failure(self, cause: str, *, first_try: bool) -> None:
        """Record an attempt that infrastructure ended. Consecutive first attempts with the same `cause` open the
        breaker, retries never; while it is open, any failure lengthens the pause.
        """
        now = self._clock()
        if self.is_open:
            self._pause = min(2 * self._pause, self._limit / 10)
            self._probe_at = now + self._pause
        elif first_try:
            self._consecutive_failures = self._consecutive_failures + 1 if cause == self.cause else 1
            self.cause = cause
            if self._consecutive_failures >= FAILURES_TO_OPEN:
                self._opened_at, self._pause = now, min(FIRST_PROBE_SECONDS, self._limit / 10)
                self._probe_at = now + self._pause

    def delay(self) -> float:
        """Return the seconds until the next probe; 0 if it is due or the breaker is closed."""
        return max(0.0, self._probe_at - self._clock()) if self.is_open else 0.0

    @property
    def is_exhausted(self) -> bool:
        """Return whether the patience is used up."""
        return self._opened_at is not None and self._clock() - self._opened_at > self._limit

    @property
    def _limit(self) -> float:
        return self.patience if self._has_succeeded else self.patience / 10


BACK_OFF_SECONDS = 1.0
"""Base delay before the second attempt; doubled for each further one, with a random factor of 0.5 to 1.5."""
LONGEST_BACK_OFF = 30.0


def back_off(tries: int) -> float:
    """Return the random delay in seconds after `tries` (from 1) failed attempts: exponential, with jitter."""
    return min(BACK_OFF_SECONDS * 2.0 ** (tries - 1), LONGEST_BACK_OFF) * random.uniform(0.5, 1.5)


class EpisodeQueue:
    """Thread-safe queue of episodes to play, and to play again after an infrastructure failure.

    `retries`: further attempts per episode. `patience`: seconds that an outage may last; see CircuitBreaker. `retried`:
    repeated attempts by cause. `set_aside`: ids of the episodes whose retries are used up.
    """

    def __init__(self, planned: Iterable[PlannedEpisode], *, retries: int, patience: float) -> None:
        self.retried: Counter[str] = Counter()
        self.set_aside: set[str] = set()
        self._new = deque(planned)
        self._delayed: list[tuple[float, int, PlannedEpisode]] = []
        self._number = itertools.count()
        self._tries: dict[str, int] = {}
        self._retries = retries
        self._circuit = CircuitBreaker(patience, time.monotonic)
        self._running = 0
        self._closed = False
        self._changed = threading.Condition()

    def add(self, planned: PlannedEpisode) -> None:
        """Add an episode that was not planned at the start."""
        with self._changed:
            self._new.append(planned)
            self._changed.notify()

    def take(self) -> PlannedEpisode | None:
        """Block until an episode may be played and return it; None once the queue is closed."""
        with self._changed:
            while not self._closed:
                wait = self._wait()
                if wait == 0:
                    self._running += 1
                    return self._pop_next()
                self._changed.wait(wait)
            return None

    def _wait(self) -> float | None:
        """Return the seconds until something can be played; None if only the end of another episode can change that."""
        if self._circuit.is_open and (self._running or self._circuit.delay()):
            return None if self._running else self._circuit.delay()
        if self._new:
            return 0.0
        return max(0.0, self._delayed[0][0] - time.monotonic()) if self._delayed else None

    def _pop_next(self) -> PlannedEpisode:
        due = self._delayed and self._delayed[0][0] <= time.monotonic() and not self._circuit.is_failing
        if due or not self._new:
            return heapq.heappop(self._delayed)[2]
        return self._new.popleft()

    def record_end(self, episode: Episode) -> None:
        """Record the end of an attempt returned by `take`: an infrastructure failure is queued again or set aside, a
        configuration error closes the queue.
        """
        with self._changed:
            self._running -= 1
            if episode.configuration_error is not None:
                self._closed = True
            elif episode.infrastructure_error is None:
                self._circuit.record_success()
            elif not self._closed:
                self._record_failure(episode.planned, type(episode.infrastructure_error).__name__)
            self._changed.notify_all()

    def _record_failure(self, planned: PlannedEpisode, cause: str) -> None:
        counted = not self._circuit.is_open  # an attempt during a known outage uses up no retry
        tries = self._tries.get(planned.episode_id, 0)
        self._circuit.record_failure(cause, first_try=tries == 0)
        tries += counted
        self._tries[planned.episode_id] = tries
        if tries > self._retries:
            self.set_aside.add(planned.episode_id)
            return
        self.retried[cause] += 1
        # The number keeps equal times apart: planned episodes cannot be compared.
        heapq.heappush(self._delayed, (time.monotonic() + back_off(max(tries, 1)), next(self._number), planned))

    @property
    def waiting_for(self) -> str | None:
        """Return the cause of the current outage, if any."""
        with self._changed:
            return self._circuit.cause if self._circuit.is_open else None

    @property
    def is_exhausted(self) -> bool:
        """Return whether an outage has outlasted the patience."""
        with self._changed:
            return self._circuit.is_exhausted

    def close(self) -> None:
        """Let every `take` return None."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()


DEADLINE_CHECK_SECONDS = 0.1
"""Seconds between checks of the running jobs' deadlines."""
GIVE_UP_SECONDS = 10.0
"""How long an interrupted collection waits for its environments to close."""
RELEASE_THREADS = 32
"""Number of threads that release jobs in parallel."""


class PoolJob(Protocol):
    """A job of the thread pool. `deadline` (`time.monotonic`) moves with its stages."""

    @property
    def deadline(self) -> float:
        """When the running stage counts as hung; infinity between stages."""

    def run(self) -> None:
        """Do the work. Never raises; after `give_up` its result is ignored."""

    def give_up(self, error: BaseException | None = None) -> None:
        """End the job from another thread: with `error`, or as hung if `error` is None."""

    def release(self) -> None:
        """Release the job's resources after it was reported. Never raises; idempotent, and safe while `run` hangs."""


J = TypeVar("J", bound=PoolJob)


class _PoolThread(Generic[J]):
    """One thread and its current job. `reported`: the job is in the queue of finished jobs. `replaced`: another thread
    took its place because the job hung.
    """

    __slots__ = ("job", "replaced", "reported", "thread")

    def __init__(self) -> None:
        self.job: J | None = None
        self.reported = True
        self.replaced = False
        self.thread: threading.Thread | None = None


class WatchedThreadPool(Generic[J]):
    """Pool of `size` threads that run the jobs returned by `next_job` and start at once. `next_job` blocks until there
    is a job; None ends the thread.

    Each job is returned once by `wait`, when it has finished or its deadline has passed. A hung thread is replaced.
    """

    def __init__(self, size: int, next_job: Callable[[], J | None]) -> None:
        self._next_job = next_job
        self._lock = threading.Lock()
        self._done: SimpleQueue[J] = SimpleQueue()
        self._deadlines_checked_at = time.monotonic()
        self._releasing: list[threading.Thread] = []
        self._threads = [self._start_thread() for _ in range(size)]

    def _start_thread(self) -> _PoolThread[J]:
        slot: _PoolThread[J] = _PoolThread()
        slot.thread = threading.Thread(target=self._work, args=(slot,), daemon=True, name="rollout")
        slot.thread.start()
        return slot

    def _work(self, slot: _PoolThread[J]) -> None:
        while not slot.replaced and (job := self._next_job()) is not None:
            slot.reported = False
            slot.job = job
            job.run()
            self._report(slot, job)  # before the release, which may take long or hang
            job.release()
            slot.job = None

    def _report(self, slot: _PoolThread[J], job: J) -> None:
        with self._lock:
            if slot.reported:
                return
            slot.reported = True
            self._done.put(job)

    def wait(self) -> J | None:
        """Return the next job that finished or was given up; None after DEADLINE_CHECK_SECONDS without one.

        Deadlines are checked only here, so call it repeatedly.
        """
        job = None
        with contextlib.suppress(Empty):
            job = self._done.get(timeout=DEADLINE_CHECK_SECONDS)
        now = time.monotonic()
        if now - self._deadlines_checked_at >= DEADLINE_CHECK_SECONDS:
            self._deadlines_checked_at = now
            self._check_deadlines(now)
        return job

    def _check_deadlines(self, now: float) -> None:
        for index, slot in enumerate(self._threads):
            job = slot.job
            if job is not None and job.deadline < now:
                slot.replaced = True
                self._give_up(slot, job, None)
                self._threads[index] = self._start_thread()

    def _give_up(self, slot: _PoolThread[J], job: J, error: BaseException | None) -> None:
        with self._lock:
            if slot.reported:  # its thread has finished the job and is releasing it
                return
            slot.reported = True
            slot.replaced = True
        job.give_up(error)
        self._done.put(job)
        self.release([job])

    def release(self, jobs: Sequence[J]) -> None:
        """Release the jobs' resources in parallel, without waiting."""
        waiting: SimpleQueue[J] = SimpleQueue()
        for job in jobs:
            waiting.put(job)

        def work() -> None:
            with contextlib.suppress(Empty):
                while True:
                    waiting.get_nowait().release()

        for _ in range(min(len(jobs), RELEASE_THREADS)):
            thread = threading.Thread(target=work, daemon=True, name="release")
            thread.start()
            self._releasing.append(thread)

    def abandon(self, error: BaseException) -> list[J]:
        """Give up every running job with `error`; return the finished jobs that `wait` has not returned, then those."""
        for slot in self._threads:
            if (job := slot.job) is not None:
                self._give_up(slot, job, error)
        finished: list[J] = []
        with contextlib.suppress(Empty):
            while True:
                finished.append(self._done.get_nowait())
        return finished

    def join(self, seconds: float) -> None:
        """Wait at most `seconds` for all threads to finish. `next_job` must return None from now on."""
        limit = time.monotonic() + seconds
        for thread in [slot.thread for slot in self._threads if not slot.replaced] + self._releasing:
            if thread is not None:
                thread.join(max(0.0, limit - time.monotonic()))


class Interruption(InfrastructureError):
    """Error of episodes that were running when a collection was interrupted; they are not recorded."""


def play_independently(
    planned: Sequence[PlannedEpisode],
    policy: Policy,
    settings: EpisodeSettings,
    *,
    progress: CollectionProgress,
    save: Callable[[Episode], None],
    on_tick: Callable[[], None],
) -> list[Episode]:
    """Play every episode, `settings.concurrency` in parallel. `save` receives each played episode in order of
    completion; `progress` is updated for lost episodes and retries, and by `save` for played ones.

    Returns the last attempts of the lost episodes: their retries were used up, or an outage lasted longer than
    `settings.patience` seconds. `on_tick` is called ten times a second and may raise to stop: running episodes are
    given up, their environments closed, finished ones saved. Raises the ConfigurationError of an episode.
    """
    if not planned:
        return []
    queue = EpisodeQueue(planned, retries=settings.retries, patience=settings.patience)

    def next_job() -> Episode | None:
        next_episode = queue.take()
        kind = Episode if settings.harness is None else HarnessEpisode
        return None if next_episode is None else kind(next_episode, settings, policy, queue.record_end)

    progress.retried = queue.retried
    ledger = _EpisodeLedger(queue.set_aside, progress, save)
    pool: WatchedThreadPool[Episode] = WatchedThreadPool(min(settings.concurrency, len(planned)), next_job)
    try:
        while len(ledger.settled) < len(planned) and not queue.is_exhausted:
            episode = pool.wait()
            if episode is not None:
                ledger.settle(episode)
            progress.waiting_for = queue.waiting_for
            on_tick()
    finally:
        queue.close()
        if len(ledger.settled) == len(planned):
            pool.join(settings.timeouts.close)
        else:
            finished = pool.abandon(Interruption("the collection was ended"))
            try:
                # `settle` raises a configuration error: played episodes are saved before.
                for episode in sorted(finished, key=lambda episode: episode.configuration_error is not None):
                    if not isinstance(episode.infrastructure_error, Interruption):
                        ledger.settle(episode)
            finally:
                pool.join(GIVE_UP_SECONDS)
    return ledger.set_aside(planned, settings)


class _EpisodeLedger:
    """Saves played episodes and counts lost ones. `settled`: ids of the episodes that are either."""

    def __init__(
        self, without_attempts: Set[str], progress: CollectionProgress, save: Callable[[Episode], None]
    ) -> None:
        self.settled: set[str] = set()
        self._without_attempts = without_attempts
        self._last_attempts: dict[str, Episode] = {}
        self._progress = progress
        self._save = save
        self._last: BaseException | None = None

    def settle(self, episode: Episode) -> None:
        """Save a played episode, or count as lost one without remaining attempts. Raises its configuration error."""
        if episode.configuration_error is not None:
            raise episode.configuration_error
        identity = episode.planned.episode_id
        if identity in self.settled:  # attempts of hung threads may end out of order
            return
        if episode.trajectory is not None:
            self._last_attempts.pop(identity, None)
            self.settled.add(identity)
            self._save(episode)
            return
        self._last = episode.infrastructure_error
        self._last_attempts[identity] = episode
        if identity in self._without_attempts:
            self.settled.add(identity)
            self._progress.add(episode.lost_record())

    def set_aside(self, planned: Sequence[PlannedEpisode], settings: EpisodeSettings) -> list[Episode]:
        """Return the last attempt of every episode that was not saved.

        An episode that was never started gets the error of the last failed one.
        """
        for episode_plan in planned:
            if episode_plan.episode_id in self.settled:
                continue
            episode = self._last_attempts.setdefault(episode_plan.episode_id, Episode(episode_plan, settings))
            episode.give_up(self._last or InfrastructureError("the episode was never played"))
            self._progress.add(episode.lost_record())
        return [
            self._last_attempts[episode_plan.episode_id]
            for episode_plan in planned
            if episode_plan.episode_id in self._last_attempts
        ]
