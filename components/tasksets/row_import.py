"""Read rows as tasks. A row that cannot become a task is refused, with its place and the reason."""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import msgspec

from ratchet.components.core import DataError, TaskSpec

from .task_filter import TaskFilter


class RowFault(Exception):
    """A row cannot become a task; the message is the reason."""


class RefusedRow(msgspec.Struct, frozen=True):
    """A row that cannot become a task. `where`: its file and line; `why`: the reason."""

    where: str
    why: str


class ImportResult(msgspec.Struct, frozen=True):
    """The tasks made of a file's rows, and the rows that were refused."""

    tasks: tuple[TaskSpec, ...]
    refused: tuple[RefusedRow, ...]

    def select(self, file: Path, task_filter: TaskFilter | None) -> "ImportResult":
        """Return the same with the matching tasks. Raises DataError where no row of `file` is a task."""
        if not self.tasks:
            first = f": {self.refused[0].where}: {self.refused[0].why}" if self.refused else "; it is empty"
            raise DataError(f"{file}: none of {len(self.refused)} rows is a task{first}")
        return ImportResult(tuple((task_filter or TaskFilter()).select(self.tasks)), self.refused)


def read_tasks(rows: Iterable[tuple[str, Any]], read_row: Callable[[Any, int], TaskSpec]) -> ImportResult:
    """Return the tasks of rows, each with its place for messages. `read_row` gets a row and its number, from 0, and raises
    RowFault.
    """
    tasks: dict[str, TaskSpec] = {}
    refused = []
    for number, (where, row) in enumerate(rows):
        try:
            task = read_row(row, number)
            if task.task_id in tasks:
                raise RowFault(f"id '{task.task_id}' is also in an earlier row")
            tasks[task.task_id] = task
        except RowFault as fault:
            refused.append(RefusedRow(where, str(fault)))
    return ImportResult(tuple(tasks.values()), tuple(refused))
