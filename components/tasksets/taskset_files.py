"""Taskset: a versioned collection of TaskSpecs in a folder, loaded with validation and written as sharded JSONL.

A taskset is `taskset.yaml`, a README, and compact JSONL by role, split so that no file reaches 1 MiB.
"""

import hashlib
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import msgspec
import yaml

from ratchet.components.core import ConfigurationError, DataError, Role, TaskSpec
from ratchet.components.core.errors import suggest_name
from ratchet.components.core.files import InvalidYaml, load_yaml
from ratchet.components.environments.outcome_criteria import read_criteria
from ratchet.components.environments.peer_task import read_peer_task
from ratchet.components.environments.reasoning_environment import DOMAIN as REASONING
from ratchet.components.environments.reasoning_environment import read_answer_criteria
from ratchet.components.environments.task_grading import read_deciding_tests

TASKSETS_FOLDER = Path("data/tasksets")
BUNDLED_FOLDER = Path(__file__).resolve().parents[2] / TASKSETS_FOLDER
HEAD_FILE = "taskset.yaml"
ROWS_FILE = re.compile(rf"({'|'.join(role.value for role in Role)})(-\d+)?\.jsonl")


class TasksetHead(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The content of `taskset.yaml`.

    - `counts`: number of tasks by role. `split_by`: with `family`, all tasks of a family have the same role; `instance`
      allows several.
    - `generator`, `seed`: the program that made the taskset, and its seed; None if there is none.
    - `source_hash`: SHA-256 of the file of rows that it was imported from; empty if there is none.
    - `environment`: id of the registered environment in which the tasks are played.
    """

    name: str
    version: str
    domain: str
    counts: dict[Role, int]
    environment: str = "ratchet/sandbox"
    split_by: Literal["family", "instance"] = "family"
    description: str = ""
    generator: str | None = None
    seed: int | None = None
    source_hash: str = ""


class Taskset:
    """An immutable taskset; see `load_taskset`."""

    def __init__(self, head: TasksetHead, tasks: tuple[TaskSpec, ...]) -> None:
        self.head = head
        self.name = head.name
        self.version = head.version
        self.split_by = head.split_by
        self._tasks = tasks

    def tasks(self, role: Role | str | None = None) -> list[TaskSpec]:
        """Return the tasks of one role, or all, in the order of the files. Raises ConfigurationError for an unknown role."""
        if role is None:
            return list(self._tasks)
        if role not in list(Role):
            role_names = ", ".join(choice.value for choice in Role)
            raise ConfigurationError(f"unknown role '{role}' of taskset {self.name}; choose one of {role_names}")
        return [task for task in self._tasks if task.role == role]

    @cached_property
    def by_id(self) -> dict[str, TaskSpec]:
        """The tasks by `task_id`."""
        return {task.task_id: task for task in self._tasks}

    @cached_property
    def hash(self) -> str:
        """SHA-256 (first 16 hex digits) over id, role and `task_hash` of every task, independent of their order."""
        # With the role: a task that moves from train to promote makes another taskset, though no task has changed.
        lines = sorted(f"{task.task_id} {task.role.value} {task.task_hash}" for task in self._tasks)
        return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:16]


def load_taskset(name_or_path: str | Path) -> Taskset:
    """Load a taskset by its folder, or by its name from `data/tasksets` of the working directory or of the installation.

    Raises ConfigurationError for an unknown taskset, and DataError, which names file, line and field, for an invalid one.

    >>> taskset = ratchet.load_taskset("orders")
    >>> taskset.head.environment, taskset.tasks("train")[0].kind
    ('ratchet/conversation', 'cancel')
    """
    folder = taskset_folder(name_or_path)
    head = _read_head(folder / HEAD_FILE)
    tasks = tuple(task for path in _row_files(folder) for task in _read_rows(path, head))
    _check_ids(folder, tasks)
    _check_counts(folder, head, tasks)
    if head.split_by == "family":
        check_families(folder, tasks)
    return Taskset(head, tasks)


def taskset_names() -> list[str]:
    """Return the names of all tasksets that `load_taskset` finds by name."""
    return sorted(
        {path.parent.name for folder in (TASKSETS_FOLDER, BUNDLED_FOLDER) for path in folder.glob(f"*/{HEAD_FILE}")}
    )


def tasksets_played_in(environment: str) -> list[str]:
    """Return the names of the tasksets for a registered environment. Reads only their `taskset.yaml`."""
    return [name for name in taskset_names() if _read_head(taskset_folder(name) / HEAD_FILE).environment == environment]


def taskset_folder(name_or_path: str | Path) -> Path:
    """Return the folder of a taskset by its path or name, as `load_taskset` finds it. Raises ConfigurationError."""
    for folder in (Path(name_or_path), TASKSETS_FOLDER / name_or_path, BUNDLED_FOLDER / name_or_path):
        if (folder / HEAD_FILE).is_file():
            return folder
    hint = suggest_name(str(name_or_path), taskset_names(), cutoff=0.5)
    raise ConfigurationError(f"unknown taskset '{name_or_path}': no folder with a {HEAD_FILE}; {hint}")


def _read_head(path: Path) -> TasksetHead:
    try:
        return msgspec.convert(load_yaml(path.read_bytes()), TasksetHead)
    except (InvalidYaml, msgspec.ValidationError) as error:
        raise DataError(f"{path}: {' '.join(str(error).split())}") from error


def _row_files(folder: Path) -> list[Path]:
    """Return the JSONL files in the order of roles and shard numbers."""
    roles = [role.value for role in Role]
    shards = [(match, path) for path in folder.glob("*.jsonl") if (match := ROWS_FILE.fullmatch(path.name))]
    # Group 2 is `-7`, with its sign: negated, the numbers of shards ascend.
    shards.sort(key=lambda shard: (roles.index(shard[0].group(1)), -int(shard[0].group(2) or 0)))
    return [path for _, path in shards]


def _read_rows(path: Path, head: TasksetHead) -> Iterator[TaskSpec]:
    decoder = msgspec.json.Decoder(TaskSpec)
    # bytes.splitlines() splits at CR and LF only, which JSON escapes; that of str also splits at U+2028 inside a string.
    for number, line in enumerate(path.read_bytes().splitlines(), start=1):
        try:
            task = decoder.decode(line)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise DataError(f"{path}, line {number}: {error}; regenerate the taskset or restore the file") from error
        _check_row(f"{path}, line {number}", path, task, head)
        yield task


def _check_row(where: str, path: Path, task: TaskSpec, head: TasksetHead) -> None:
    role = path.name.removesuffix(".jsonl").partition("-")[0]
    for field, value, expected in (("role", task.role.value, role), ("taskset", task.taskset, head.name)):
        if value != expected:
            raise DataError(f"{where}: {field} is '{value}' and must be '{expected}'")
    try:
        check_task(task)
    except DataError as error:
        raise DataError(f"{where}: {error}") from error


def check_task(task: TaskSpec) -> None:
    """Raise DataError for a task that cannot be graded, or names files that it does not have."""
    missing = [path for path in task.editable if path not in task.files]
    if missing:
        raise DataError(f"editable names '{missing[0]}', which is not in files")
    if task.criteria:
        _criteria_reader(task)(task.criteria)
    if not task.test_command and not task.criteria:
        raise DataError("test_command and criteria are empty; without one of them nothing can be graded")


def _criteria_reader(task: TaskSpec) -> Callable[[dict[str, Any]], object]:
    if "graded_by" in task.criteria:
        return read_peer_task
    if task.repository is not None:
        return read_deciding_tests
    return read_answer_criteria if task.domain == REASONING else read_criteria


def _check_ids(folder: Path, tasks: tuple[TaskSpec, ...]) -> None:
    repeated = [task_id for task_id, times in Counter(task.task_id for task in tasks).items() if times > 1]
    if repeated:
        raise DataError(f"{folder}: task_id '{repeated[0]}' occurs more than once; ids are unique in a taskset")


def _check_counts(folder: Path, head: TasksetHead, tasks: tuple[TaskSpec, ...]) -> None:
    counts = Counter(task.role for task in tasks)
    for role in Role:
        expected = head.counts.get(role, 0)
        if counts[role] != expected:
            raise DataError(
                f"{folder / HEAD_FILE}: counts.{role.value} is {expected} and the rows are {counts[role]}; restore the missing file"
            )


def check_families(where: Path, tasks: Iterable[TaskSpec]) -> None:
    """Raise DataError where a family has tasks of two roles."""
    role_of_family: dict[str, Role] = {}
    for task in tasks:
        first = role_of_family.setdefault(task.family, task.role)
        if first != task.role:
            raise DataError(
                f"{where}: family '{task.family}' is in {first.value} and {task.role.value}; move it into one role, "
                "or say `split_by: instance`"
            )


MAX_FILE_BYTES = 1024 * 1024 - 1
HEAD_FIELDS = (
    "name",
    "version",
    "environment",
    "split_by",
    "domain",
    "generator",
    "seed",
    "source_hash",
    "counts",
    "description",
)

Tasks = Mapping[Role, Sequence[TaskSpec]]


def check_import_folder(folder: Path, generator: str) -> None:
    """Raise ConfigurationError if `folder` has a taskset that `generator` did not write, and must not replace."""
    if (folder / HEAD_FILE).is_file() and generator not in (folder / HEAD_FILE).read_text(encoding="utf-8"):
        raise ConfigurationError(f"{folder} holds a taskset that was not imported; give another folder")


def write_taskset(folder: Path, head: TasksetHead, tasks: Tasks, readme: str) -> None:
    """Write all files of a taskset to `folder`, with the counts of `tasks` in its head; old files are replaced."""
    folder.mkdir(parents=True, exist_ok=True)
    # A shard of an earlier version would be loaded too.
    for old in _row_files(folder):
        old.unlink()
    for role, rows in tasks.items():
        shards = list(_shards(rows))
        for number, data in enumerate(shards, start=1):
            name = f"{role.value}.jsonl" if len(shards) == 1 else f"{role.value}-{number}.jsonl"
            (folder / name).write_bytes(data)
    counts = {role: len(rows) for role, rows in tasks.items()}
    content = msgspec.to_builtins(msgspec.structs.replace(head, counts=counts))
    fields = {key: content[key] for key in HEAD_FIELDS if key in content}
    (folder / HEAD_FILE).write_text(yaml.safe_dump(fields, sort_keys=False, width=120), encoding="utf-8")
    (folder / "README.md").write_text(readme, encoding="utf-8")


def _shards(rows: Sequence[TaskSpec]) -> Iterator[bytes]:
    encoder = msgspec.json.Encoder()
    shard = bytearray()
    for row in rows:
        line = encoder.encode(row) + b"\n"
        if shard and len(shard) + len(line) > MAX_FILE_BYTES:
            yield bytes(shard)
            shard.clear()
        shard += line
    yield bytes(shard)
