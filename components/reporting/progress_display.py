"""Show progress: bars on a terminal (stderr), plain lines in a pipe or a file.

Every line also goes to the logger `ratchet`: to the night's log, and in a flow run to Prefect's Logs tab. A running
step is logged at least once a minute. There is one display per process; one that was never opened only logs.
"""

import contextvars
import logging
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from ratchet.components.trajectories.terminal_rendering import escape_terminal

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress, TaskID


REPORT_SECONDS = 30.0
"""Seconds between two progress lines of a step, where lines are printed or logged."""

logger = logging.getLogger("ratchet")
logger.setLevel(logging.INFO)


class ProgressStep:
    """One line of the progress display: a running step with its bar, speed and remark."""

    def __init__(self, display: "ProgressDisplay", name: str) -> None:
        self._display = display
        self.name = name
        self.remark = ""
        self._begun = time.monotonic()
        self._first: tuple[float, float] | None = None  # time and amount; a resumed step does not begin at 0
        self._last: tuple[float, float] | None = None  # of the last movement
        self._done: float | None = None
        self._total: float | None = None
        self._bar: TaskID | None = display._add(name)

    def update(self, done: float | None = None, total: float | None = None, remark: str | None = None) -> None:
        """Move the bar. `done` and `total` are absolute, in the step's own unit; None leaves a value unchanged.
        `remark` is shown beside the bar and in the closing line.
        """
        if remark is not None:
            self.remark = remark
        if done is not None:
            moment = (time.monotonic(), done)
            if self._first is None or done < self._first[1]:
                self._first = moment
            if done != self._done:
                self._last = moment
            self._done = done
        if total is not None:
            self._total = total
        status = " · ".join(filter(None, (self._speed(time.monotonic()), self.remark)))
        self._display._move(self._bar, done, total, status)

    def progress(self, now: float) -> str:
        """Return the progress at the monotonic time `now`: `collect: 1,200/5,600, 12.3/s, 5:58 left; remark`, as far as
        known.
        """
        parts = []
        if self._done is not None:
            parts.append(f"{self._done:,.0f}" + (f"/{self._total:,.0f}" if self._total else ""))
        if speed := self._speed(now):
            parts.append(speed)
        status = ", ".join(parts or [f"{_clock(now - self._begun)} so far"])
        return f"{self.name}: {status}" + (f"; {self.remark}" if self.remark else "")

    def _speed(self, now: float) -> str:
        """Return `12.3/s, 5:58 left`; empty while nothing has been done since the first update.

        The rate is that up to the last movement, so that the time left only falls while nothing is reported.
        """
        if (
            self._first is None
            or self._last is None
            or self._last[1] <= self._first[1]
            or self._last[0] <= self._first[0]
        ):
            return ""
        rate = (self._last[1] - self._first[1]) / (self._last[0] - self._first[0])
        speed = f"{rate:,.1f}/s" if rate >= 1 else f"{60 * rate:,.1f}/min"
        if not self._total:
            return speed
        return f"{speed}, {_clock(max(0.0, (self._total - self._last[1]) / rate - (now - self._last[0])))} left"


def _clock(seconds: float) -> str:
    """Format seconds as `5:58` or `1:02:03`."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


class ProgressDisplay:
    """Context manager: bars on a terminal, lines elsewhere. `quiet`: only log."""

    def __init__(self, *, quiet: bool = False) -> None:
        self._quiet = quiet
        self._lock = threading.Lock()
        self._console: Console | None = None
        self._progress: Progress | None = None

    def __enter__(self) -> Self:
        global _current
        if not self._quiet:
            self._open()
        _current = self
        return self

    def _open(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

        self._console = Console(stderr=True, highlight=False, soft_wrap=True)
        if self._console.is_terminal:
            columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(24), MofNCompleteColumn())
            self._progress = Progress(
                *columns,
                TimeElapsedColumn(),
                TextColumn("[dim]{task.fields[remark]}"),
                console=self._console,
                transient=True,
            )
            self._progress.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        global _current
        _current = _silent
        if self._progress is not None:
            self._progress.stop()

    def say(self, message: str, *, style: str | None = None) -> None:
        """Print and log a line that stays above the bars. `style`: of rich."""
        message = escape_terminal(message)
        logger.info(message)
        with self._lock:
            if self._console is not None:
                self._console.print(message, style=style, markup=False)

    @contextmanager
    def step(self, name: str) -> Iterator[ProgressStep]:
        """Show a step while it runs, and a line with its time and remark when it succeeds or fails."""
        begin = time.monotonic()
        step = ProgressStep(self, name)
        self._say_plainly(f"… {name}")
        ended = threading.Event()
        context = contextvars.copy_context()  # Prefect finds the run of a log line there
        reporter = threading.Thread(
            target=context.run, args=(self._report, step, ended), name=f"progress {name}", daemon=True
        )
        reporter.start()
        sign = "✗"
        try:
            yield step
            sign = "✓"
        finally:
            ended.set()
            reporter.join()  # else its last line could follow the closing line
            remark = step.remark if sign == "✓" else ""
            self.say(f"{sign} {name:<28} {time.monotonic() - begin:7.1f} s  {remark}".rstrip())
            if self._progress is not None and step._bar is not None:
                self._progress.remove_task(step._bar)

    def _report(self, step: ProgressStep, ended: threading.Event) -> None:
        while not ended.wait(REPORT_SECONDS):
            self._say_plainly(f"… {step.progress(time.monotonic())}")

    def _say_plainly(self, message: str) -> None:
        """Print a line to logs and pipes only."""
        if self._progress is None:
            self.say(message)
        else:
            logger.info(message)

    def _add(self, name: str) -> "TaskID | None":
        return None if self._progress is None else self._progress.add_task(escape_terminal(name), total=None, remark="")

    def _move(self, bar: "TaskID | None", done: float | None, total: float | None, remark: str) -> None:
        if self._progress is not None and bar is not None:
            from rich.markup import escape

            moved: dict[str, Any] = {"remark": escape(escape_terminal(remark))}
            if done is not None:
                moved["completed"] = done
            if total is not None:
                moved["total"] = total
            self._progress.update(bar, **moved)


_silent = ProgressDisplay(quiet=True)
_current = _silent


def current_display() -> ProgressDisplay:
    """Return the open display, else one that only logs."""
    return _current
