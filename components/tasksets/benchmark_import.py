"""Import published benchmarks, from their files, as tasksets for `ratchet/reasoning`.

| format | fields read, as published | decided by |
|---|---|---|
| `aime` | problem (or question), answer, solution | mathematics |
| `math` | problem, solution, answer (MATH-500; else the solution's last box), subject or type, level | mathematics |
| `gpqa` | Question, Correct Answer, Incorrect Answer 1 to 3, Explanation, Record ID | the letter; options are shuffled |
| `humaneval` | task_id, prompt, entry_point, canonical_solution, test | its tests in a sandbox |
| `mbpp` | task_id, text (or prompt), code, test_list, test_setup_code (or test_imports) | its tests in a sandbox |
| `livecodebench` | question_id, question_content, starter_code, public and private test cases, metadata | its cases in a sandbox |

Field names are compared without case and blanks. Rows come from JSON lines, a JSON array, CSV or Parquet, gzipped or
not. Benchmarks are for measuring: a task's role is `audit` unless the caller says otherwise. LiveCodeBench publishes no
solutions, so its tasks have no reference.
"""

import base64
import binascii
import csv
import gzip
import io
import json
import pickle
import random
import re
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from ratchet.components.core import DataError, Role, TaskSpec
from ratchet.components.core.task_spec import REFERENCE_REPLY_FILE
from ratchet.components.environments.reasoning_environment import DOMAIN
from ratchet.components.rewards.verifiable.program_tests import ProgramCase
from ratchet.components.rewards.verifiable.reply_format import last_boxed

from .reasoning_gym_import import reference_reply
from .row_import import ImportResult, RowFault, read_tasks
from .task_filter import TaskFilter
from .taskset_files import TasksetHead, check_import_folder, write_taskset

GENERATOR = "ratchet tasks import benchmark"
PROGRAM = "solution.py"
_MAX_TESTS = 256 << 20  # bytes of a row's test cases after decompression
Row = dict[str, Any]


class _Question(NamedTuple):
    """Content of one benchmark row. `id`: empty if the row has none; `fields`: further fields of TaskSpec."""

    id: str
    kind: str
    description: str
    reply: str | None
    fields: dict[str, Any]


def read_table(file: Path) -> Iterator[tuple[str, Row]]:
    """Yield the rows of a published file, each with its place for messages. Raises DataError."""
    try:
        data = file.read_bytes()
        if data[:2] == b"\x1f\x8b":
            data = gzip.decompress(data)
        if data[:4] == b"PAR1":
            import pyarrow.parquet

            rows: list[Any] = pyarrow.parquet.read_table(io.BytesIO(data)).to_pylist()
            unit = "row"
        else:
            rows, unit = _text_rows(data.decode("utf-8-sig"), file)
    except OSError as error:
        raise DataError(f"{file} cannot be read: {error.strerror or error}; check the path") from error
    except (ValueError, EOFError, zlib.error, csv.Error, RecursionError) as error:
        raise DataError(
            f"{file} is no table of JSON lines, JSON, CSV or Parquet: {error}; download it again"
        ) from error
    for number, row in enumerate(rows, start=1):
        if row is not None:
            yield f"{file}, {unit} {number}", row


def _text_rows(text: str, file: Path) -> tuple[list[Any], str]:
    """Return the rows, None for an empty line, and what they are called in messages."""
    if ".csv" in file.suffixes:
        csv.field_size_limit(_MAX_TESTS)
        return list(csv.DictReader(io.StringIO(text, newline=""), strict=True)), "row"
    if text.lstrip().startswith("["):
        return list(json.loads(text)), "row"
    # Not splitlines(), which also splits at U+2028 inside of a JSON string.
    return [_json_or_text(line) if line.strip() else None for line in text.split("\n")], "line"


def _json_or_text(line: str) -> Any:
    try:
        return json.loads(line)
    except (ValueError, RecursionError):
        return line  # refused with its line number


def _text(row: Row, *names: str, required: bool = True) -> str:
    """Return the first of the fields that is there, numbers as text. Raises RowFault."""
    for name in names:
        value = row.get(name)
        if value is not None and str(value).strip():
            if not isinstance(value, str | int | float):
                raise RowFault(f"{name} is {type(value).__name__} and must be text")
            return str(value)
    if required:
        raise RowFault(f"{names[0]} is missing or empty")
    return ""


def _aime(row: Row, seed: int) -> _Question:
    answer = _text(row, "answer").strip()
    question = _text(row, "problem", "question")
    thought = _text(row, "solution", required=False)
    return _mathematics(_text(row, "id", "uniqueid", required=False), "aime", question, thought, answer)


def _math(row: Row, seed: int) -> _Question:
    solution = _text(row, "solution", required=False)
    answer = _text(row, "answer", required=False).strip() or last_boxed(solution)
    if not answer:
        raise RowFault("there is neither an answer nor a solution with \\boxed{}")
    kind = _text(row, "subject", "type", required=False) or "mathematics"
    question = _mathematics(_text(row, "uniqueid", required=False), kind, _text(row, "problem"), solution, answer)
    question.fields["metadata"] = {"level": _text(row, "level", required=False)}
    return question


def _mathematics(id: str, kind: str, question: str, thought: str, answer: str) -> _Question:
    return _Question(id, kind, question, _reply(thought, answer), {"criteria": {"answer": answer}})


def _reply(thought: str, answer: str) -> str:
    """Return a reference reply; a thought that holds tags of the layout is left out."""
    usable = thought.strip() if not re.search(r"</?\s*(?:think|answer)", thought, re.IGNORECASE) else ""
    return reference_reply(usable or "This is the published answer.", answer)


def _gpqa(row: Row, seed: int) -> _Question:
    question = _text(row, "question").strip()
    options = [_text(row, "correctanswer"), *(_text(row, f"incorrectanswer{number}") for number in (1, 2, 3))]
    record = _text(row, "recordid", required=False)
    order = random.Random(f"{seed}/{record or question}").sample(range(len(options)), len(options))
    letters = "ABCD"
    listed = "\n".join(f"{letter}) {options[index].strip()}" for letter, index in zip(letters, order, strict=True))
    right = letters[order.index(0)]
    return _Question(
        record,
        _text(row, "high-leveldomain", required=False) or "gpqa",
        f"{question}\n\n{listed}\n\nAnswer with the letter alone.",
        _reply(_text(row, "explanation", required=False), right),
        {"criteria": {"choice": right}, "metadata": {"option_seed": seed, "option_order": order}},
    )


def _humaneval(row: Row, seed: int) -> _Question:
    prompt, entry = _text(row, "prompt"), _text(row, "entrypoint")
    program = prompt + _text(row, "canonicalsolution")
    tests = f"from solution import {entry}\n\n{_text(row, 'test')}\n\ncheck({entry})\n"
    description = (
        f"Complete this Python function. The answer is the whole program.\n\n```python\n{prompt.rstrip()}\n```"
    )
    return _tested(_text(row, "taskid"), "humaneval", description, prompt, program, tests)


def _mbpp(row: Row, seed: int) -> _Question:
    program, tests = _text(row, "code"), row.get("testlist")
    setup = row.get("testimports") or _text(row, "testsetupcode", required=False)
    if not isinstance(tests, list) or not tests or not all(isinstance(test, str) for test in tests):
        raise RowFault("test_list is no list of assertions")
    lines = [setup] if isinstance(setup, str) else [str(line) for line in setup]
    script = "\n".join(["from solution import *", *lines, *tests]) + "\n"
    shown = "\n".join(tests)
    description = f"{_text(row, 'text', 'prompt').strip()} Write it in Python; it must pass\n\n```python\n{shown}\n```"
    return _tested(_text(row, "taskid"), "mbpp", description, "", program, script)


def _tested(id: str, kind: str, description: str, stub: str, program: str, tests: str) -> _Question:
    fields = {
        "files": {PROGRAM: stub}, "editable": (PROGRAM,),
        "tests": {"check_solution.py": tests}, "test_command": "python3 check_solution.py",
    }  # fmt: skip
    return _Question(id, kind, description, _reply("", f"```python\n{program.rstrip()}\n```"), fields)


def _livecodebench(row: Row, seed: int) -> _Question:
    starter = _text(row, "startercode", required=False)
    raw_cases = [*_test_cases(row.get("publictestcases")), *_test_cases(row.get("privatetestcases"))]
    metadata = row.get("metadata") or {}
    try:
        function = (json.loads(metadata) if isinstance(metadata, str) else metadata).get("func_name")
        cases = [_live_case(case, f"Solution.{function}" if function and "class Solution" in starter else function)
                 for case in raw_cases]  # fmt: skip
    except (KeyError, TypeError, AttributeError, ValueError, RecursionError) as error:
        raise RowFault(f"a test case cannot be read: {type(error).__name__}: {error}") from error
    if not cases:
        raise RowFault("there are no test cases")
    how = (
        f"Complete this class; import what you use.\n\n```python\n{starter.rstrip()}\n```"
        if function
        else "Write a Python program that reads standard input and writes standard output."
    )
    dates = {key: _text(row, key.replace("_", ""), required=False) for key in ("contest_date", "platform")}
    criteria = {"cases": msgspec.to_builtins(cases)}
    kind = _text(row, "difficulty", required=False) or "livecodebench"
    description = f"{_text(row, 'questioncontent').strip()}\n\n{how}"
    return _Question(_text(row, "questionid"), kind, description, None, {"criteria": criteria, "metadata": dates})


def _live_case(case: dict[str, Any], function: str | None) -> ProgramCase:
    if case.get("testtype") != "functional":
        return ProgramCase(case["output"], stdin=case["input"])
    if not function:
        raise KeyError("metadata.func_name")
    arguments = [json.loads(line) for line in case["input"].split("\n") if line.strip()]
    return ProgramCase(json.loads(case["output"]), function=function, arguments=arguments)


class _TextUnpickler(pickle.Unpickler):
    """Reads a pickled text. Anything else could run code, and is refused."""

    def find_class(self, module: str, name: str) -> Any:
        raise RowFault(f"private_test_cases names {module}.{name}; it must be a text")


def _test_cases(value: Any) -> list[dict[str, Any]]:
    """Return test cases from JSON, or from base64 of zlib of a pickled text of JSON. Raises RowFault."""
    try:
        if isinstance(value, str) and not value.lstrip().startswith("["):
            reader = zlib.decompressobj()
            pickled = reader.decompress(base64.b64decode(value, validate=True), _MAX_TESTS)
            value = _TextUnpickler(io.BytesIO(pickled)).load()
        cases = json.loads(value) if isinstance(value, str) else value or []
    except (ValueError, binascii.Error, zlib.error, pickle.UnpicklingError, EOFError, RecursionError) as error:
        raise RowFault(f"test cases cannot be read: {error}") from error
    if not isinstance(cases, list) or not all(isinstance(case, dict) for case in cases):
        raise RowFault("test cases are no list of objects")
    return cases


FORMATS: dict[str, Callable[[Row, int], _Question]] = {
    "aime": _aime,
    "math": _math,
    "gpqa": _gpqa,
    "humaneval": _humaneval,
    "mbpp": _mbpp,
    "livecodebench": _livecodebench,
}


def import_benchmark(
    folder: Path, format: str, file: Path, *, role: Role, seed: int, task_filter: TaskFilter | None = None
) -> ImportResult:
    """Write the rows of a published file as a taskset to `folder`; return its tasks and the refused rows.

    Every problem is a family of its own. `seed`: order of GPQA's options. Raises DataError where the file cannot be read
    or no row became a task, ConfigurationError for a folder with another taskset.
    """
    check_import_folder(folder, GENERATOR)
    name = folder.resolve().name
    result = read_tasks(read_table(file), lambda row, number: _task(row, format, name, role, seed, number))
    result = result.select(file, task_filter)
    description = f"{format}, imported from {file.name}."
    head = TasksetHead(name, "1", DOMAIN, {}, "ratchet/reasoning", "family", description, GENERATOR, seed)
    card = (
        f"# {name}\n\n{len(result.tasks)} tasks of {format}, imported from `{file.name}`; {len(result.refused)} rows refused. "
        f"Role {role.value}.\n\nLicence and conditions are those of the benchmark. It may be part of what a model was pretrained "
        "on: a figure on it is no proof of generalisation. Do not train on it what is measured by it.\n"
    )
    write_taskset(folder, head, {role: result.tasks}, card)
    return result


def _task(row: Any, format: str, taskset: str, role: Role, seed: int, number: int) -> TaskSpec:
    if not isinstance(row, dict):
        raise RowFault("it is no JSON object")
    question = FORMATS[format]({re.sub(r"[\s_]", "", str(key)).lower(): value for key, value in row.items()}, seed)
    task_id = f"{format}/{question.id or number}"
    return TaskSpec(
        task_id, taskset, task_id, question.kind, role, DOMAIN, question.description.strip(),
        reference={} if question.reply is None else {REFERENCE_REPLY_FILE: question.reply},
        **question.fields,
    )  # fmt: skip
