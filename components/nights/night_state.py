"""The state of a night on disk, the lock that allows one night at a time, and the decision that the state holds.

Finished steps are not repeated when the same command is given again. The lock ends with the process that holds it.
"""

import contextlib
import re
import secrets
import threading
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal, TypeVar, overload

import msgspec

from ratchet.components.core import ConfigurationError, DataError
from ratchet.components.core.files import LockHeld, OwnedLock, lock_owner, write_atomically
from ratchet.components.core.home import home, home_folder
from ratchet.components.core.run_context import working_on
from ratchet.components.evaluation.promotion.decision_record import Decision, read_decision

T = TypeVar("T")
SCHEMA_VERSION = 2
"""Raised when an unfinished night of the version before cannot be resumed, because names of steps, files or modules changed."""
FAILURE_FILE = "failure.json"
"""File of a night's folder that holds the error which ended its latest start."""
RUNNING_FILE = "running.json"
"""File of a night's folder that names the steps which run. A killed night leaves it; the start that resumes it removes it."""
NIGHT_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


class _Versioned(msgspec.Struct):
    schema_version: int = 1
    home: str = ""


class Night(msgspec.Struct, forbid_unknown_fields=True, dict=True):
    """A night, as `.ratchet/nights/<night>/state.json` holds it. Thread-safe within one process.

    `id`: its name in `data/rollouts/`, git tags and MLflow. `seed`: all other seeds are derived from it. `begun` and
    `ended`: times of its first start and its last step (ISO 8601, UTC). `results`: return value of each finished step.
    `recipe`: as requested; None for the scale's own. `durations`: seconds of each finished step, in the order in which
    they ended; older nights did not record them. `schema_version`: of the Ratchet that began it. `home`: the folder of
    local state when it was saved; older nights did not record it. `number`: its place in the order of the home's nights,
    from 1; 0 for older nights.
    """

    id: str = msgspec.field(name="night")
    scale: str
    seed: int
    begun: str
    ended: str | None = msgspec.field(default=None, name="finished")
    results: dict[str, Any] = {}
    recipe: str | None = None
    durations: list[tuple[str, float]] = msgspec.field(default=[], name="seconds")
    schema_version: int = SCHEMA_VERSION
    home: str = ""
    number: int = 0

    def __post_init__(self) -> None:
        self._lock = threading.Lock()
        self._check: Callable[[str], None] | None = None
        self._on_end: Callable[[str, int, Exception | None], None] = lambda step, begin, error: None
        self._checked: set[str] = set()
        self._running: list[str] = []

    @property
    def is_finished(self) -> bool:
        """Whether every step is done."""
        return self.ended is not None

    @property
    def seconds(self) -> dict[str, float]:
        """Duration of each finished step, in the order in which they ended."""
        return dict(self.durations)

    @property
    def folder(self) -> Path:
        """Folder of the night's state, training data and reports."""
        folder: Path | None = self.__dict__.get("own_folder")
        return folder or night_folder(self.id)

    @overload
    def run_once(self, step: str, work: Callable[[], T], kind: type[T]) -> T: ...

    @overload
    def run_once(self, step: str, work: Callable[[], Any], kind: Any = Any) -> Any: ...

    def run_once(self, step: str, work: Callable[[], Any], kind: Any = Any) -> Any:
        """Run a step once: return the result of `work`, or the stored result of a finished step, decoded as `kind`.

        The result is stored as JSON under `step`. Raises what `work` raises and the check of `before_each_step`, and
        DataError for a stored result of another type.
        """
        with self._lock:
            is_done = step in self.results
        if not is_done:
            self.check_step(step)
            start_time, begin = time.monotonic(), time.time_ns()
            try:
                with working_on(night=self.id, step=step), self._listed(step):
                    # Kept before it is used, and read back below: a resumed night sees the same value as this one.
                    result = msgspec.to_builtins(work())
            except Exception as error:
                self._on_end(step, begin, error)
                raise
            with self._lock:
                self.results[step] = result
                self.durations.append((step, round(time.monotonic() - start_time, 3)))
                self._save()
            self._on_end(step, begin, None)
        return self.result(step, kind)

    @contextlib.contextmanager
    def _listed(self, step: str) -> Iterator[None]:
        """Name a step in RUNNING_FILE during the block."""

        def write() -> None:
            with contextlib.suppress(OSError):  # a file for readers alone must neither fail a step nor hide its error
                self.folder.mkdir(parents=True, exist_ok=True)
                write_atomically(self.folder / RUNNING_FILE, msgspec.json.encode(self._running), durable=False)

        with self._lock:
            self._running.append(step)
            write()
        try:
            yield
        finally:
            with self._lock:
                self._running.remove(step)
                write()

    @overload
    def result(self, step: str, kind: type[T]) -> T | None: ...

    @overload
    def result(self, step: str, kind: Any = Any) -> Any: ...

    def result(self, step: str, kind: Any = Any) -> Any:
        """Return the stored result of a step, decoded as `kind`; None if the step is not finished.

        Raises DataError for a stored result of another type.
        """
        if (stored := self.results.get(step)) is None:
            return None
        try:
            return msgspec.convert(stored, kind)
        except msgspec.ValidationError as error:
            raise DataError(
                f"night {self.id}: the result of its step '{step}' cannot be read: {error}; put its state.json back, or remove "
                f"{self.folder} to give the night up"
            ) from error

    def before_each_step(self, check: Callable[[str], None]) -> None:
        """Call `check` with the name of each step that is about to run, once; what it raises ends the night there."""
        self._check = check

    def after_each_step(self, report: Callable[[str, int, Exception | None], None]) -> None:
        """Call `report` after each step of this start that finished or failed, with its name, its begin in nanoseconds
        since 1970, and its error, if any.
        """
        self._on_end = report

    def check_step(self, step: str) -> None:
        """Make the check of `before_each_step`, for a step whose work begins before `run_once` is called."""
        if self._check is not None and step not in self._checked:
            self._check(step)
            self._checked.add(step)

    def forget(self, *steps: str) -> None:
        """Drop the results of steps, so that they are run again."""
        with self._lock:
            for step in steps:
                self.results.pop(step, None)
            self.durations = [(step, seconds) for step, seconds in self.durations if step not in steps]
            self._save()

    def finish(self) -> None:
        """Mark the night as done: the next start begins another."""
        with self._lock:
            self.ended = _now()
            self._save()

    def _save(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        self.home = str(self.folder.absolute().parents[1])
        encoded = msgspec.json.format(msgspec.json.encode(self, order="sorted"))
        write_atomically(self.folder / "state.json", encoded + b"\n")


def night_folder(night: str) -> Path:
    """Return the folder of a night's state, which may not exist. Raises ConfigurationError for an invalid name."""
    if not NIGHT_NAME.fullmatch(night):
        raise ConfigurationError(f"'{night}' cannot name a night; use letters, digits, '.', '_' and '-', at most 64")
    return home() / "nights" / night


def decision_file(night: str) -> Path:
    """Return the path of the decision record's readable copy."""
    return night_folder(night) / "decision.json"


def begin_night(scale: str, seed: int | None = None, night: str | None = None, recipe: str | None = None) -> Night:
    """Return the night to resume, or a new one, with its state on disk and no running step. Arguments and errors as in
    `next_night`.
    """
    state = next_night(scale, seed, night, recipe)
    if not (state.folder / "state.json").is_file():
        state._save()
    (state.folder / RUNNING_FILE).unlink(missing_ok=True)
    return state


def next_night(scale: str, seed: int | None = None, night: str | None = None, recipe: str | None = None) -> Night:
    """Return the night that the same arguments would resume or begin; nothing is written. An unfinished night of the
    same scale (and seed and recipe, if given) is resumed; `night`, if given, is the id of the night to resume or begin.

    Raises ConfigurationError where the arguments contradict an existing night, or an older Ratchet began it.
    """

    def matches(night_state: Night) -> bool:
        return night_state.scale == scale and seed in (None, night_state.seed) and recipe in (None, night_state.recipe)

    if night is not None and (night_folder(night) / "state.json").is_file():
        existing = open_night(night)
        if not matches(existing):
            recipe_text = f", recipe {existing.recipe}" if existing.recipe else ""
            raise ConfigurationError(
                f"night {night} was begun with scale {existing.scale}{recipe_text} and seed {existing.seed}; "
                "repeat those or name another night"
            )
        return _resumable(existing)
    nights = list_nights()
    unfinished = [night_state for night_state in nights if not night_state.is_finished and matches(night_state)]
    if night is None and unfinished:
        return _resumable(unfinished[-1])
    begin_time = _now()
    # The day alone would not do: two nights may begin on one day.
    name = night or f"{begin_time[:10]}-{secrets.token_hex(2)}"
    # consecutive nights draw other tasks and samples
    night_seed = (
        max((night_state.seed for night_state in nights if night_state.scale == scale), default=-1) + 1
        if seed is None
        else seed
    )
    number = nights[-1].number + 1 if nights else 1
    return Night(id=name, scale=scale, seed=night_seed, begun=begin_time, recipe=recipe, number=number)


def begin_in(folder: Path, id: str, *, scale: str, seed: int, begun: str) -> Night:
    """Return the state in `folder` of work that takes a night's steps and is none of this home's nights, such as one
    training of a comparison; a new one where the folder holds none. Raises DataError.
    """
    path = folder / "state.json"
    if path.is_file():
        return open_state_file(path)
    state = Night(id=id, scale=scale, seed=seed, begun=begun)
    state.__dict__["own_folder"] = folder
    return state


def open_state_file(path: Path) -> Night:
    """Return the state in a file, whose folder is its own. Raises DataError."""
    try:
        state = _decoded(path)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise DataError(f"{path}: {error}; remove {path.parent} to give this work up") from error
    state.__dict__["own_folder"] = path.parent
    return state


def _resumable(night: Night) -> Night:
    if night.is_finished or night.schema_version == SCHEMA_VERSION:
        return night
    raise ConfigurationError(
        f"night {night.id} was begun by an older Ratchet and cannot be resumed by this one; finish it with that version, "
        f"or remove {night.folder} to give it up"
    )


def open_night(night: str) -> Night:
    """Return the state of an existing night. Raises ConfigurationError, DataError."""
    path = night_folder(night) / "state.json"
    try:
        state = _decoded(path)
    except FileNotFoundError as error:
        latest = ", ".join(other.id for other in list_nights()[-3:]) or "none"
        raise ConfigurationError(f"there is no night {night} here; the latest: {latest}") from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise DataError(f"{path}: {error}; remove the folder to give the night up") from error
    if state.id != night:
        raise DataError(f"{path} is of night {state.id!r}, not {night}; put the folder back under that name")
    return state


def _decoded(path: Path) -> Night:
    content = path.read_bytes()
    # The version first: a newer record may have fields that `Night` forbids, and would be reported as damaged.
    known = msgspec.json.decode(content, type=_Versioned)
    if known.schema_version > SCHEMA_VERSION:
        raise DataError(
            f"{path}: schema_version {known.schema_version} is newer than {SCHEMA_VERSION}; upgrade Ratchet"
        )
    return msgspec.json.decode(_with_own_paths(content, known.home, path.parent), type=Night)


def _with_own_paths(content: bytes, saved_home: str, folder: Path) -> bytes:
    """Return a state whose absolute paths below the home lie in the home of `folder`, also after it was moved or copied.
    Older states do not record their home; it is then taken from a path of the night's own folder.
    """
    own, old = msgspec.json.encode(str(folder.absolute().parents[1]))[:-1], msgspec.json.encode(saved_home)[:-1]
    if not saved_home:
        place = msgspec.json.encode(f"/{folder.parent.name}/{folder.name}/")[1:-1]
        found = re.search(rb'"/(?:[^"\\]|\\.)*?(?=%s)' % re.escape(place), content)
        old = found[0] if found else own
    return content if old == own else content.replace(old + b"/", own + b"/")


def list_nights() -> list[Night]:
    """Return every night of this home, in the order in which they began."""
    states = [open_night(path.parent.name) for path in (home() / "nights").glob("*/state.json")]
    # Not by name: a night may be named by hand.
    return sorted(states, key=night_order)


def night_order(night: Night) -> tuple[int, str, str]:
    """Return the sort key of the order in which nights began. Times alone would not do: the clock may have been set back."""
    return night.number, night.begun, night.id


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="microseconds")


Locked = Literal["night", "comparison"]
"""Kinds of run with a lock each: a clone runs one night and one comparison of recipes at a time."""


def lock_path(kind: Locked = "night") -> Path:
    """Return the file that a running night, or a comparison, holds locked."""
    return home_folder("run") / f"{kind}.lock"


@contextlib.contextmanager
def hold_night_lock(kind: Locked = "night") -> Iterator[Callable[[str], None]]:
    """Hold the lock for the block; call the yielded function with the night's id to record whose lock it is. Raises
    ConfigurationError where another night (or comparison) runs.
    """
    with OwnedLock(lock_path(kind)) as lock:
        try:
            lock.acquire()
        except LockHeld as held:
            raise ConfigurationError(
                f"{kind} {held.owner or 'of another process'} is running in this clone; wait for it or end it (`ratchet status`)"
            ) from held
        yield lock.set_owner


def running_night(kind: Locked = "night") -> str | None:
    """Return the id of the night (or the comparison) that runs now, or None."""
    return lock_owner(lock_path(kind)) or None


def running_steps(night: Night) -> list[str]:
    """Return the steps that a running night is at, in the order in which they began."""
    try:
        return msgspec.json.decode((night.folder / RUNNING_FILE).read_bytes(), type=list[str])
    except FileNotFoundError:  # its first step has not begun
        return []


DECISION_STEP = "decision"
"""Step of the night's state that holds the decision record. `decision.json` is a copy for people."""


def night_decision(night: Night) -> Decision | None:
    """Return a night's decision, of this or an older version; None before it has decided. Raises DataError."""
    record = night.results.get(DECISION_STEP)
    if record is None:
        return None
    try:
        return read_decision(msgspec.json.encode(record))
    except DataError as error:
        raise DataError(f"night {night.id}: its decision cannot be read: {error}") from error
