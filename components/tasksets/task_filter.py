"""Filters of tasks by language, difficulty, kind and number."""

from collections.abc import Callable, Iterable
from pathlib import PurePosixPath

import msgspec

from ratchet.components.core import ConfigurationError, TaskSpec

LANGUAGES = {
    ".py": "python", ".js": "javascript", ".ts": "typescript", ".go": "go", ".rs": "rust", ".java": "java", ".c": "c",
    ".cpp": "c++", ".cc": "c++", ".cs": "c#", ".rb": "ruby", ".php": "php", ".sh": "shell", ".sql": "sql",
}  # fmt: skip
"""Language by the suffix of a file."""


def task_language(task: TaskSpec) -> str:
    """Return the language in lower case: `language` or `repo_language` of the metadata, else that of the first editable
    file with a known suffix; empty if unknown.
    """
    named = task.metadata.get("language") or task.metadata.get("repo_language")
    suffixes = (PurePosixPath(path).suffix.lower() for path in task.editable)
    return str(named or next((LANGUAGES[suffix] for suffix in suffixes if suffix in LANGUAGES), "")).lower()


def task_difficulty(task: TaskSpec) -> str:
    """Return the difficulty in lower case: `difficulty` or `level` of the metadata; empty if unknown."""
    value = task.metadata.get("difficulty", task.metadata.get("level"))
    return "" if value is None else str(value).lower()


class TaskFilter(msgspec.Struct, frozen=True):
    """Conditions on tasks; an empty text matches every task. Texts are compared without case. `limit`: maximum number of
    tasks (0: all).
    """

    language: str = ""
    difficulty: str = ""
    kind: str = ""
    limit: int = 0

    def select(self, tasks: Iterable[TaskSpec]) -> list[TaskSpec]:
        """Return the matching tasks in their order. Raises ConfigurationError, which lists the values that occur, where a
        condition matches none of `tasks`.
        """
        selected = list(tasks)
        conditions: tuple[tuple[str, str, Callable[[TaskSpec], str]], ...] = (
            ("language", self.language, task_language),
            ("difficulty", self.difficulty, task_difficulty),
            ("kind", self.kind, lambda task: task.kind.lower()),
        )
        for name, wanted, value_of in conditions:
            if wanted and selected:
                values = sorted({value_of(task) for task in selected} - {""})
                selected = [task for task in selected if value_of(task) == wanted.lower()]
                if not selected:
                    raise ConfigurationError(
                        f"no task has the {name} '{wanted}'; there are {', '.join(values[:20]) or 'none'}"
                    )
        return selected[: self.limit or None]
