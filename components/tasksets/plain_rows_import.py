"""Import plain rows of one's own as a taskset: JSON lines, JSON, CSV, Parquet, or YAML, in which files are readable.

A row has the keys of a TaskSpec, or their common names (ALIASES), and needs no more than a description and what decides:
`tests`, an `answer`, or `criteria`. docs/tasksets.md has every key with its default.
"""

import difflib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

import msgspec

from ratchet.components.core import ConfigurationError, DataError, Role, TaskSpec, spec
from ratchet.components.core.files import InvalidYaml, file_sha256, load_yaml
from ratchet.components.core.task_spec import REFERENCE_ACTIONS_FILE, REFERENCE_REPLY_FILE

from .benchmark_import import Row, read_table
from .reasoning_gym_import import assign_roles, reference_reply, with_role
from .row_import import ImportResult, RowFault, read_tasks
from .task_filter import TaskFilter
from .taskset_files import Taskset, TasksetHead, check_families, check_import_folder, check_task, write_taskset

GENERATOR = "ratchet tasks import rows"
SANDBOX_ENVIRONMENT, REASONING_ENVIRONMENT = "ratchet/sandbox", "ratchet/reasoning"
ALIASES = {
    "id": "task_id",
    "prompt": "description",
    "question": "description",
    "instruction": "description",
    "problem": "description",
    "solution": "reference",
    "canonical_solution": "reference",
    "category": "kind",
}
"""Common name of a key -> the key of TaskSpec."""
METADATA_KEYS = ("language", "difficulty")
"""Keys of a row that are kept in `metadata`, as every key that is not known."""
STRUCTURED_KEYS = ("editable", "criteria", "world", "repository")
"""Keys whose value CSV holds as JSON, beside those that `_mapping` reads."""
TEST_FILE = "check_solution.py"
"""Name of the hidden test of a row whose `tests` is a text."""


def read_plain_rows(file: Path) -> Iterator[tuple[str, Any]]:
    """Yield the rows of a file, each with its place for messages. Raises DataError."""
    if file.suffix not in (".yaml", ".yml"):
        yield from read_table(file)
        return
    try:
        rows = load_yaml(file.read_bytes())
    except OSError as error:
        raise DataError(f"{file} cannot be read: {error.strerror or error}; check the path") from error
    except InvalidYaml as error:
        raise DataError(f"{file} is {error}") from error
    if not isinstance(rows, list):
        raise DataError(f"{file} must be a list of tasks, each beginning with `- `")
    for number, row in enumerate(rows, start=1):
        yield f"{file}, task {number}", row


def import_plain_rows(
    folder: Path,
    file: Path,
    *,
    role: Role | None = None,
    environment: str = "",
    split_by: Literal["family", "instance"] = "family",
    seed: int = 0,
    task_filter: TaskFilter | None = None,
) -> ImportResult:
    """Write the rows of `file` as a taskset to `folder`, whose name becomes the taskset's; return its tasks and the
    refused rows.

    `role`: of rows without one; None splits those by ROLE_SHARES of whole families (of single tasks with `split_by`
    instance), in an order that depends on `seed`. `environment`: id of a registered one; empty: `ratchet/reasoning` for
    rows with an answer, else `ratchet/sandbox`. Raises DataError where the file cannot be read, no row became a task or
    the roles split a family; ConfigurationError for an unknown environment or a folder with another taskset.
    """
    check_import_folder(folder, GENERATOR)
    if environment:
        spec(environment)
    name, played_in = folder.resolve().name, environment
    has_role: dict[str, bool] = {}

    def read_row(row: Any, number: int) -> TaskSpec:
        nonlocal played_in
        values, row_environment = _task_values(row, environment)
        task = _task(values, name, row_environment, number + 1)
        played_in = played_in or row_environment
        if row_environment != played_in:
            raise RowFault(f"it is played in {row_environment} and an earlier row in {played_in}; import it apart")
        has_role.setdefault(task.task_id, "role" in values)
        return task

    result = read_tasks(read_plain_rows(file), read_row).select(file, task_filter)
    open_tasks = [task for task in result.tasks if not has_role[task.task_id]]
    assigned = with_role(open_tasks, role) if role else assign_roles(open_tasks, seed, split_by)
    by_id = {task.task_id: task for task in (*result.tasks, *assigned)}
    selected = tuple(by_id.values())
    if split_by == "family":
        check_families(file, selected)
    head = TasksetHead(
        name,
        "1",
        spec(played_in).domain,
        {},
        played_in,
        split_by,
        f"Tasks of {file.name}.",
        GENERATOR,
        seed,
        file_sha256(file),
    )
    readme = folder / "README.md"
    card = readme.read_text(encoding="utf-8") if readme.is_file() else _card(name, file, folder, environment)
    by_role = {a_role: [task for task in selected if task.role == a_role] for a_role in Role}
    write_taskset(folder, head, {key: rows for key, rows in by_role.items() if rows}, card)
    return ImportResult(selected, result.refused)


def _task_values(row: Any, environment: str) -> tuple[Row, str]:
    """Return the fields of the task of a row that its defaults do not give, and its environment. Raises RowFault."""
    if not isinstance(row, dict):
        raise RowFault("it is no object with keys and values")
    values: Row = {}
    metadata: Row = dict(_mapping(row.get("metadata"), "metadata"))
    known = {*TaskSpec.__struct_fields__, *ALIASES, *METADATA_KEYS, "answer"}
    for given, value in row.items():
        key = ALIASES.get(str(given), str(given))
        if value is None or value == "" or key == "metadata":
            continue
        if key not in known and (near := difflib.get_close_matches(key, known, 1, 0.8)):
            raise RowFault(f"unknown key '{key}'; did you mean '{near[0]}'?")
        if key in METADATA_KEYS or key not in known:
            metadata[key] = value
        elif key in values:
            raise RowFault(f"'{given}' and another key both give the {key}")
        else:
            values[key] = _from_json(value, key) if key in STRUCTURED_KEYS else value
    if metadata:
        values["metadata"] = metadata
    return values, environment or (REASONING_ENVIRONMENT if "answer" in values else SANDBOX_ENVIRONMENT)


def _task(values: Row, taskset: str, environment: str, number: int) -> TaskSpec:
    """Return the task of these values, with the defaults of those that are missing. Raises RowFault."""
    if "description" not in values:
        raise RowFault("description (or prompt) is missing or empty")
    values = dict(values)
    values["task_id"] = str(values.get("task_id", f"{taskset}/{number:04}"))
    answer = values.pop("answer", None)
    if answer is not None:
        if not isinstance(answer, str | int | float) or isinstance(answer, bool):
            raise RowFault(f"answer is {type(answer).__name__} and must be a text or a number")
        values.setdefault("criteria", {"answer": str(answer)})
    values["files"] = _mapping(values.get("files"), "files")
    values.setdefault("editable", list(values["files"]))
    _add_tests(values)
    if "reference" in values or answer is not None:
        values["reference"] = _reference(values, answer)
    defaults = {"family": values["task_id"], "kind": taskset, "role": Role.TRAIN, "domain": spec(environment).domain}
    try:
        task = msgspec.convert({**defaults, **values, "taskset": taskset}, TaskSpec)
        check_task(task)
    except (msgspec.ValidationError, DataError) as error:
        raise RowFault(" ".join(str(error).split())) from error
    return task


def _add_tests(values: Row) -> None:
    """Replace a text of tests by its file, split the lines of a text of expected output, and add the default command."""
    tests = values.get("tests")
    if isinstance(tests, str) and not _is_json_object(tests):
        tests = {TEST_FILE: tests}
    values["tests"] = tests = dict(_mapping(tests, "tests"))
    if isinstance(expected := values.get("expected_output"), str):
        values["expected_output"] = expected.removesuffix("\n").split("\n")
    if tests and "test_command" not in values:
        if len(tests) > 1 or not (file := next(iter(tests))).endswith(".py"):
            raise RowFault("test_command is missing; only a single Python file of tests is run without one")
        values["test_command"] = f"python3 {file}"


def _reference(values: Row, answer: object) -> Any:
    """Return the reference as files: a text is the only editable file, or a reply; a list is actions. Raises RowFault."""
    reference = values.get("reference", "")
    if isinstance(reference, list):
        return {REFERENCE_ACTIONS_FILE: json.dumps(reference, ensure_ascii=False)}
    if not isinstance(reference, str) or _is_json_object(reference):
        return _mapping(reference, "reference")
    if answer is not None:
        return {REFERENCE_REPLY_FILE: reference_reply(reference.strip() or "This is the given answer.", str(answer))}
    if len(values["editable"]) != 1:
        raise RowFault("reference is a text, and the task has not one editable file; write `reference: {PATH: TEXT}`")
    return {values["editable"][0]: reference}


def _mapping(value: Any, key: str) -> Mapping[str, Any]:
    """Return an object, which CSV and some Parquet files hold as JSON; empty for a missing one. Raises RowFault."""
    value = _from_json(value, key)
    if value is not None and not isinstance(value, dict):
        raise RowFault(f"{key} is {type(value).__name__} and must be an object such as {{PATH: TEXT}}")
    # Parquet gives every row the keys of all rows, null where a row has none.
    return {str(path): text for path, text in (value or {}).items() if text is not None}


def _from_json(value: Any, key: str) -> Any:
    """Return the value that a text of JSON holds; any other value as it is. Raises RowFault."""
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value)
    except (ValueError, RecursionError) as error:
        raise RowFault(f"{key} is a text that is not JSON") from error


def _is_json_object(text: str) -> bool:
    try:
        return isinstance(json.loads(text), dict)
    except (ValueError, RecursionError):
        return False


def _card(name: str, file: Path, folder: Path, environment: str) -> str:
    option = f" --environment {environment}" if environment else ""
    return (
        f"# {name}\n\nTasks of `{file}`. After a change there: `ratchet tasks import {file} -o {folder}{option}`, then "
        f"`ratchet tasks validate {folder}`.\n\nSay here what the tasks measure, where they come from, and their licence.\n"
    )


TEMPLATE = Path(__file__).with_name("new_taskset.yaml")
ROWS_FILE = "rows.yaml"


def new_taskset(folder: Path) -> ImportResult:
    """Write a small taskset to a new or empty `folder`: the commented rows in ROWS_FILE, and what is imported from them.

    Raises ConfigurationError for a folder with files.
    """
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ConfigurationError(f"{folder} exists and is not empty; give a new folder")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / ROWS_FILE).write_text(TEMPLATE.read_text(encoding="utf-8"), encoding="utf-8")
    return import_plain_rows(folder, folder / ROWS_FILE)


def changed_rows(taskset: Taskset, folder: Path) -> Path | None:
    """Return the ROWS_FILE in the folder of a taskset if its tasks were imported from another content; else None."""
    rows, imported = folder / ROWS_FILE, taskset.head.source_hash
    return rows if imported and rows.is_file() and file_sha256(rows) != imported else None
