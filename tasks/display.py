"""Display: what a person sees while a night runs. Progress goes to stderr; a pipe gets plain lines instead of bars.

One display serves the process; steps that run beside each other each have their own line. A display that was never opened prints
nothing, which is what a scheduled run wants: it has Prefect's UI and its log.
"""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress, TaskID


class Step:
    """One line of the display: what is going on, how far it is, a remark."""

    def __init__(self, display: "Display", name: str) -> None:
        self._display = display
        self.name = name
        self.remark = ""
        self._bar: TaskID | None = display._add(name)

    def update(self, done: float | None = None, total: float | None = None, remark: str | None = None) -> None:
        """Move the bar; `remark` stands beside it, and becomes part of the closing line."""
        if remark is not None:
            self.remark = remark
        self._display._move(self._bar, done, total, self.remark)


class Display:
    """A context manager: bars on a terminal, lines elsewhere."""

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
        """A line that stays."""
        with self._lock:
            if self._console is not None:
                self._console.print(message, style=style, markup=False)

    @contextmanager
    def step(self, name: str) -> Iterator[Step]:
        """A step while it runs; a line with its time and remark when it has succeeded, and when it has failed."""
        begin = time.monotonic()
        step = Step(self, name)
        if self._progress is None:
            self.say(f"… {name}")
        try:
            yield step
        except BaseException:
            self.say(f"✗ {name:<28} {time.monotonic() - begin:7.1f} s")
            raise
        else:
            self.say(f"✓ {name:<28} {time.monotonic() - begin:7.1f} s  {step.remark}".rstrip())
        finally:
            if self._progress is not None and step._bar is not None:
                self._progress.remove_task(step._bar)

    def _add(self, name: str) -> "TaskID | None":
        return None if self._progress is None else self._progress.add_task(name, total=None, remark="")

    def _move(self, bar: "TaskID | None", done: float | None, total: float | None, remark: str) -> None:
        if self._progress is not None and bar is not None:
            moved: dict[str, Any] = {"remark": remark}
            if done is not None:
                moved["completed"] = done
            if total is not None:
                moved["total"] = total
            self._progress.update(bar, **moved)


_silent = Display(quiet=True)
_current = _silent


def display() -> Display:
    """The display that is open now."""
    return _current
