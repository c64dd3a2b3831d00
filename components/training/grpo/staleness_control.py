"""When asynchronous GRPO starts a group of attempts, and when it hands a finished one to the trainer."""


class StalenessControl:
    """Bound the staleness of every trained group by admission (AReaL, Fu et al. 2025, arXiv:2505.24298, eq. 3), without
    discarding anything. Pure bookkeeping; versions count from 0.

    The trainer trains `batch` groups per version in the order of `release`, so the k-th one (from 0) at version
    k // batch. A group started at version v is within the bound if k is below its deadline
    (v + max_staleness + 1) * batch. No more groups start than that allows; and since episodes end out of order, a
    finished group is held back while its release could make a group that still plays miss its own deadline. Releasing
    in the order of starts always meets all deadlines, so a hold ends with the straggler. `inflight`: most groups that
    play at a time.
    """

    def __init__(self, batch: int, max_staleness: int, inflight: int | None = None) -> None:
        self.batch, self.max_staleness = batch, max_staleness
        self.version = 0
        self.released = 0
        self._inflight = inflight
        self._playing: set[int] = set()
        self._deadlines: dict[int, int] = {}  # of groups that were started and not released

    def can_start(self) -> bool:
        """Return whether another group may be started."""
        has_room = self._inflight is None or len(self._playing) < self._inflight
        return has_room and self.released + len(self._deadlines) < self._next_deadline

    def start(self, group: int) -> None:
        """Record that a group was started."""
        self._playing.add(group)
        self._deadlines[group] = self._next_deadline

    def end(self, group: int) -> None:
        """Record that all attempts of a group have ended."""
        self._playing.discard(group)

    def drop(self, group: int) -> None:
        """Forget an ended group that will not be trained; another one may take its place."""
        self._deadlines.pop(group)

    def can_release(self, group: int) -> bool:
        """Return whether an ended group may be handed over now: all others could still follow in time."""
        others = sorted(deadline for number, deadline in self._deadlines.items() if number != group)
        return all(self.released + 1 + index < deadline for index, deadline in enumerate(others))

    def release(self, group: int) -> None:
        """Record that a group was handed to the trainer."""
        self._deadlines.pop(group)
        self.released += 1

    @property
    def playing(self) -> int:
        """Number of groups that play."""
        return len(self._playing)

    @property
    def _next_deadline(self) -> int:
        return (self.version + self.max_staleness + 1) * self.batch
