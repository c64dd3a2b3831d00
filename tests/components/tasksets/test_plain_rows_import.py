"""Rows of one's own become tasks; a new taskset is proven; the published schema and page are the code's."""

import csv
import json
import re
from pathlib import Path

import jsonschema
import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from ratchet.components.core import ConfigurationError, DataError, Role, TaskSpec
from ratchet.components.sandboxes import SandboxConfig, make_sandbox
from ratchet.components.tasksets import TasksetHead, load_taskset
from ratchet.components.tasksets.plain_rows_import import ALIASES, ROWS_FILE, import_plain_rows, new_taskset
from ratchet.components.tasksets.task_filter import TaskFilter, task_difficulty, task_language
from ratchet.components.tasksets.taskset_schema import schema_text
from ratchet.components.tasksets.validation import validate_taskset

DOCS = Path(__file__).parents[3] / "docs"
PAGE = (DOCS / "tasksets.md").read_text(encoding="utf-8")
CODE = {
    "prompt": "add(a, b) in main.py must return the sum.",
    "files": {"main.py": "def add(a, b):\n    return a - b\n"},
    "tests": "from main import add\nassert add(2, 3) == 5\n",
    "solution": "def add(a, b):\n    return a + b\n",
}
QUESTION = {"question": "What is 2 + 2?", "answer": 4}


def imported(tmp_path, *rows, **options):
    file = tmp_path / "rows.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return import_plain_rows(tmp_path / "mine", file, **options)


def refusal(tmp_path, row):
    (refused,) = imported(tmp_path, CODE, row).refused
    return refused


def problems(folder):
    report = validate_taskset(load_taskset(folder), lambda: make_sandbox(SandboxConfig(backend="local")))
    return [problem.message for problem in report.problems]


class TestRows:
    def test_a_prompt_a_file_and_a_text_of_tests_are_a_coding_task(self, tmp_path):
        (task,) = imported(tmp_path, CODE, role=Role.TRAIN).tasks
        assert (task.task_id, task.kind, task.editable) == ("mine/0001", "mine", ("main.py",))
        assert (task.test_command, list(task.tests)) == ("python3 check_solution.py", ["check_solution.py"])
        assert task.reference == {"main.py": CODE["solution"]}
        assert load_taskset(tmp_path / "mine").head.environment == "ratchet/sandbox"

    @pytest.mark.slow
    @pytest.mark.parametrize("row", [CODE, QUESTION])
    def test_an_imported_row_is_proven(self, tmp_path, row):
        imported(tmp_path, row)
        assert problems(tmp_path / "mine") == []

    def test_a_question_with_an_answer_is_played_as_reasoning(self, tmp_path):
        (task,) = imported(tmp_path, QUESTION).tasks
        assert (task.criteria, task.domain) == ({"answer": "4"}, "reasoning")
        assert load_taskset(tmp_path / "mine").head.environment == "ratchet/reasoning"

    def test_a_list_of_actions_is_the_reference_of_a_world(self, tmp_path):
        actions = [{"tool": "finish", "params": {}}]
        row = {"description": "Close it.", "world": {"open": True}, "reference": actions,
               "criteria": {"lines": [{"kind": "state", "path": ["open"], "equals": False}]}}  # fmt: skip
        (task,) = imported(tmp_path, row, environment="ratchet/conversation").tasks
        assert (task.reference_actions, task.domain) == (actions, "conversation")

    def test_csv_parquet_json_and_yaml_hold_the_same_rows(self, tmp_path):
        rows = [CODE | {"id": name, "kind": name, "editable": ["main.py"], "prompt": "Ünï,\ncode"} for name in "ab"]
        with (tmp_path / "a.csv").open("w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, list(rows[0]))
            writer.writeheader()
            writer.writerows(row | {key: json.dumps(row[key]) for key in ("files", "editable")} for row in rows)
        pq.write_table(pa.Table.from_pylist(rows), tmp_path / "a.parquet")
        (tmp_path / "a.json").write_text(json.dumps(rows))
        (tmp_path / "a.yaml").write_text(yaml.safe_dump(rows), encoding="utf-8")
        tasks = [
            import_plain_rows(tmp_path / "mine", tmp_path / f"a.{suffix}").tasks
            for suffix in ("csv", "parquet", "json", "yaml")
        ]
        assert tasks[0][0].files == CODE["files"] and all(each == tasks[0] for each in tasks)

    def test_a_parquet_row_lacks_what_only_other_rows_have(self, tmp_path):
        other = CODE | {"files": {"b.py": "x = 1\n"}, "solution": "x = 2\n"}
        pq.write_table(pa.Table.from_pylist([CODE, other]), tmp_path / "a.parquet")
        tasks = import_plain_rows(tmp_path / "mine", tmp_path / "a.parquet").tasks
        assert [list(task.files) for task in tasks] == [["main.py"], ["b.py"]]

    def test_unknown_keys_become_metadata(self, tmp_path):
        (task,) = imported(tmp_path, CODE | {"author": "me", "difficulty": "Hard"}).tasks
        assert task.metadata == {"author": "me", "difficulty": "Hard"}

    @pytest.mark.parametrize(
        ("row", "reason"),
        [
            (CODE | {"test_comand": "x"}, "did you mean 'test_command'?"),
            (CODE | {"prompt": ""}, "description"),
            (CODE | {"description": "twice"}, "both give the description"),
            (CODE | {"files": ["main.py"]}, "files is list"),
            (CODE | {"files": {"main.py": 3}}, "files"),
            (CODE | {"tests": {"a.py": "", "b.py": ""}}, "test_command is missing"),
            (CODE | {"tests": {}}, "nothing can be graded"),
            (CODE | {"editable": ["other.py"]}, "other.py"),
            (CODE | {"editable": "main.py"}, "editable is a text that is not JSON"),
            (CODE | {"world": "{broken"}, "world is a text that is not JSON"),
            (CODE | {"role": "test"}, "test"),
            (CODE | {"id": "mine/0001"}, "also in an earlier row"),
            (CODE | {"files": {"a": "", "b": ""}}, "not one editable file"),
            (QUESTION, "played in ratchet/reasoning"),
            (QUESTION | {"answer": [4]}, "answer is list"),
            ([1], "no object"),
            ("text", "no object"),
        ],
    )
    def test_a_row_that_is_no_task_is_refused_with_its_place_and_reason(self, tmp_path, row, reason):
        refused = refusal(tmp_path, row)
        assert reason in refused.why and refused.where.endswith("rows.jsonl, line 2") and "\n" not in refused.why

    @pytest.mark.parametrize(
        ("name", "content"),
        [
            ("rows.jsonl", b""), ("rows.jsonl", b"\xff\xfe"), ("rows.jsonl", b'{"prompt": '), ("rows.parquet", b"PAR1"),
            ("rows.yaml", b""), ("rows.yaml", b"\xff"), ("rows.yaml", b"a: 1"), ("rows.yaml", b"- [1"), ("none.jsonl", None),
        ],
    )  # fmt: skip
    def test_a_file_without_a_task_is_refused_in_one_line_and_nothing_is_written(self, tmp_path, name, content):
        if content is not None:
            (tmp_path / name).write_bytes(content)
        with pytest.raises(DataError) as caught:
            import_plain_rows(tmp_path / "mine", tmp_path / name)
        assert "\n" not in str(caught.value) and not (tmp_path / "mine").exists()


class TestRoles:
    def test_rows_without_a_role_are_split_by_whole_families(self, tmp_path):
        rows = [CODE | {"id": f"{family}-{number}", "family": str(family)} for family in range(40) for number in (1, 2)]
        tasks = imported(tmp_path, *rows).tasks
        roles = {family: {task.role for task in tasks if task.family == family} for family in map(str, range(40))}
        assert all(len(each) == 1 for each in roles.values())
        assert {role: sum(each == {role} for each in roles.values()) for role in Role} == {
            Role.TRAIN: 28, Role.PROMOTE: 4, Role.AUDIT: 4, Role.RESERVE: 4,
        }  # fmt: skip

    def test_a_rows_own_role_stays(self, tmp_path):
        tasks = imported(tmp_path, CODE | {"role": "audit"}, CODE, role=Role.PROMOTE).tasks
        assert [task.role for task in tasks] == [Role.AUDIT, Role.PROMOTE]

    def test_roles_that_split_a_family_are_refused_unless_single_tasks_are_split(self, tmp_path):
        rows = [CODE | {"family": "f", "role": role} for role in ("train", "audit")]
        with pytest.raises(DataError, match="family 'f'"):
            imported(tmp_path, *rows)
        imported(tmp_path, *rows, split_by="instance")
        assert load_taskset(tmp_path / "mine").split_by == "instance"


class TestFolders:
    def test_a_second_import_replaces_the_tasks_and_keeps_the_rows_and_the_readme(self, tmp_path):
        rows = tmp_path / "mine" / "my-rows.jsonl"
        rows.parent.mkdir()
        rows.write_text(json.dumps(CODE | {"role": "audit"}) + "\n")
        import_plain_rows(rows.parent, rows)
        (rows.parent / "README.md").write_text("Mine.")
        rows.write_text(json.dumps(CODE | {"role": "train"}) + "\n")
        import_plain_rows(rows.parent, rows)
        assert {path.name for path in rows.parent.iterdir()} == {
            "my-rows.jsonl", "train.jsonl", "taskset.yaml", "README.md",
        }  # fmt: skip
        assert (rows.parent / "README.md").read_text() == "Mine."

    def test_a_taskset_that_was_not_imported_is_not_replaced(self, tmp_path):
        (tmp_path / "mine").mkdir()
        (tmp_path / "mine/taskset.yaml").write_text("name: mine\n")
        with pytest.raises(ConfigurationError, match="not imported"):
            imported(tmp_path, CODE)

    @pytest.mark.slow
    def test_a_new_taskset_is_proven_and_has_a_role_for_collection_and_each_for_evaluation(self, tmp_path):
        new_taskset(tmp_path / "mine")
        assert problems(tmp_path / "mine") == []
        assert {task.role for task in load_taskset(tmp_path / "mine").tasks()} == {"train", "promote", "audit"}

    def test_a_new_taskset_overwrites_nothing(self, tmp_path):
        (tmp_path / ROWS_FILE).write_text("mine")
        with pytest.raises(ConfigurationError, match="not empty"):
            new_taskset(tmp_path)
        assert (tmp_path / ROWS_FILE).read_text() == "mine"


class TestFilters:
    def test_the_language_is_the_metadatas_or_the_suffixs(self, tmp_path):
        go = {"files": {"main.go": ""}, "solution": "package main\n"}
        first, second = imported(tmp_path, CODE | go, CODE | {"language": "Rust"}).tasks
        assert (task_language(first), task_language(second)) == ("go", "rust")

    def test_filters_join_and_the_limit_comes_last(self, tmp_path):
        rows = [CODE | {"kind": "ab"[number % 2], "difficulty": number // 4} for number in range(8)]
        tasks = imported(tmp_path, *rows, task_filter=TaskFilter(kind="B", difficulty="1", limit=1)).tasks
        assert [(task.task_id, task_difficulty(task)) for task in tasks] == [("mine/0006", "1")]
        assert load_taskset(tmp_path / "mine").tasks() == list(tasks)

    def test_a_filter_that_matches_nothing_lists_the_values_and_writes_nothing(self, tmp_path):
        with pytest.raises(ConfigurationError, match="there are python"):
            imported(tmp_path, CODE, task_filter=TaskFilter(language="go"))
        assert not (tmp_path / "mine").exists()


class TestPage:
    def test_the_published_schema_is_the_codes(self):
        published = (DOCS / "taskset.schema.json").read_text(encoding="utf-8")
        assert published == schema_text(), "run: ratchet tasks schema > docs/taskset.schema.json"

    @pytest.mark.parametrize("name", ["programs", "orders", "sums"])
    def test_the_files_of_bundled_tasksets_fit_the_schema(self, name):
        folder = Path("data/tasksets") / name
        validator = jsonschema.Draft202012Validator(json.loads(schema_text()))
        validator.validate(yaml.safe_load((folder / "taskset.yaml").read_bytes()))
        first = json.loads((folder / "promote.jsonl").read_bytes().splitlines()[0])
        validator.validate(first)
        with pytest.raises(jsonschema.ValidationError):
            validator.validate(first | {"extra": 1})

    @pytest.mark.parametrize(("heading", "record"), [("taskset.yaml", TasksetHead), ("a task", TaskSpec)])
    def test_the_page_has_every_key_in_order_with_its_default(self, heading, record):
        rows = re.search(rf"\| key of {heading} .*\n\|---.*\n((?:\|.*\n)+)", PAGE)[1].splitlines()
        cells = [[cell.strip() for cell in row.strip("|").split("|")] for row in rows]
        fields = msgspec.structs.fields(record)
        assert [row[0].strip("`") for row in cells] == [field.encode_name for field in fields]
        required = [field.encode_name for field in fields if field.required]
        assert [row[0].strip("`") for row in cells if row[2] == "required"] == required

    def test_the_page_has_every_key_of_a_row(self):
        rows = re.search(r"\| key of a row .*\n\|---.*\n((?:\|.*\n)+)", PAGE)[1]
        named = set(re.findall(r"`(\w+)`", "".join(row.split("|")[1] for row in rows.splitlines()))) | {"category"}
        ours = {*ALIASES, *TaskSpec.__struct_fields__, "answer", "language", "difficulty"}
        assert named == ours - {"taskset", "schema_version"}

    @pytest.mark.slow
    def test_the_examples_of_the_page_are_proven(self, tmp_path):
        head, task, rows = (
            re.search(rf"```{kind}\n(.*?)```", PAGE, re.DOTALL)[1] for kind in ("yaml", "json", "jsonl")
        )
        (tmp_path / "mine").mkdir()
        (tmp_path / "mine/taskset.yaml").write_text(head)
        (tmp_path / "mine/promote.jsonl").write_text(task)
        assert len(load_taskset(tmp_path / "mine").tasks()) == 1 and problems(tmp_path / "mine") == []
        (tmp_path / "rows.jsonl").write_text(rows)
        assert len(import_plain_rows(tmp_path / "other", tmp_path / "rows.jsonl").tasks) == 2
        assert problems(tmp_path / "other") == []
