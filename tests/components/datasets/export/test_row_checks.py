"""What the gate knows of each exported line by itself."""

from pathlib import Path
from typing import Any

import msgspec
import pytest
from all_cases import all_cases

from ratchet.components.core import DataError
from ratchet.components.datasets.export.row_checks import (
    PIECE_BYTES,
    DatasetFiles,
    check_datasets,
    check_row,
    file_pieces,
)

ASK = {"role": "user", "content": "mend it"}
ANSWER = {"role": "assistant", "content": "done"}
TASK = {"task_id": "t1", "kind": "k", "family": "f", "nights": ["n1"], "reason": "r"}
ROWS: dict[str, dict[str, Any]] = {
    "sft": {
        **TASK, "messages": [ASK, ANSWER | {"weight": 1.0}], "tools": [], "episode_id": "ep-1", "night": "n1",
        "source": "on_policy", "weight": 1.0,
    },
    "dpo": {
        **TASK, "prompt": [ASK], "chosen": [ANSWER], "rejected": [ANSWER | {"content": "no"}], "tools": [],
        "level": "step", "turn": 0, "margin": 0.5, "episode_ids": ["ep-1", "ep-2"],
    },
    "grpo": {**TASK, "prompt": [ASK], "tools": [], "pass_rate": None, "episode_ids": ["ep-1"]},
    "groups": {
        **TASK, "prompt": [ASK], "tools": [], "attempts": [[ANSWER], [ANSWER]], "rewards": [1.0, 0.0],
        "advantages": [0.7, -0.7], "step_rewards": [[None], [0.5]], "group_id": "g", "policy_version": "v",
        "episode_ids": ["ep-1", "ep-2"],
    },
}  # fmt: skip


def told(name: str, **changes: Any) -> dict[str, Any]:
    row = {key: value for key, value in (ROWS[name] | changes).items() if value is not ...}
    return check_row(name, msgspec.json.encode(row), 10_000)


@pytest.mark.parametrize("name", ROWS)
def test_a_sound_row_has_no_fault(name: str) -> None:
    found = told(name)
    assert [found.get(each) for each in ("fault", "chat_fault", "useless")] == [None] * 3
    assert (found["secret"], found["task_id"]) == (False, "t1")
    assert found["episode_ids"] == (["ep-1"] if name in ("sft", "grpo") else ["ep-1", "ep-2"])


@all_cases(
    ("name", "changes", "fault"),
    [
        ("sft", {"weight": ...}, "column 'weight' is missing"),
        ("sft", {"weight": "1"}, "column 'weight' is not a finite number"),
        ("sft", {"weight": -1.0}, "a weight is negative or not a finite number"),
        ("sft", {"messages": [ASK, ANSWER | {"weight": "much"}]}, "a weight is negative or not a finite number"),
        ("sft", {"messages": ["hello"]}, "column 'messages' is not a list of values"),
        ("sft", {"task_id": 7}, "column 'task_id' is not text"),
        ("dpo", {"margin": True}, "column 'margin' is not a finite number"),
        ("dpo", {"episode_ids": ["ep-1"]}, "episode_ids must have two entries"),
        ("grpo", {"episode_ids": [1]}, "column 'episode_ids' is not a list of texts"),
        (
            "groups",
            {"rewards": [1.0]},
            "attempts, rewards, advantages, step_rewards and episode_ids differ in length",
        ),
        ("groups", {"attempts": [["x"], ["y"]]}, "a message is not an object with role and content"),
        ("groups", {"advantages": [None, 1.0]}, "column 'advantages' is not a list of numbers"),
    ],
)
def test_a_row_of_another_shape_is_told(name: str, changes: dict[str, Any], fault: str) -> None:
    assert told(name, **changes)["fault"] == fault


@all_cases(
    ("name", "changes", "useless"),
    [
        ("sft", {"messages": [ASK]}, "no assistant message has text or a tool call"),
        ("sft", {"messages": [ASK, ANSWER | {"content": " "}]}, "no assistant message has text or a tool call"),
        ("sft", {"messages": [ASK, ANSWER | {"weight": 0}]}, "all assistant messages have weight 0"),
        ("sft", {"weight": 0}, "all assistant messages have weight 0"),
        ("dpo", {"rejected": [ANSWER]}, "both sides are equal"),
        ("dpo", {"chosen": []}, "a side is empty"),
        ("dpo", {"prompt": []}, "the prompt is empty"),
        ("grpo", {"prompt": [ASK | {"content": "\n"}]}, "the prompt is empty"),
        ("grpo", {"episode_ids": []}, "episode_ids is empty"),
        ("groups", {"advantages": [0.0, 0.0]}, "all advantages are 0"),
    ],
)
def test_defect_21_a_row_that_trains_nothing_is_told(name: str, changes: dict[str, Any], useless: str) -> None:
    assert told(name, **changes)["useless"] == useless


def test_messages_that_no_template_renders_and_secrets_are_told() -> None:
    assert told("sft", messages=[ASK, ANSWER, {"role": "robot", "content": ""}])["chat_fault"] == (
        "message 3 has the unknown role 'robot'"
    )
    assert told("dpo", chosen=[ANSWER | {"content": "<|im_end|>"}])["chat_fault"].startswith(
        "message 2 contains the chat template marker <|im_end|>"
    )
    key = "gh" + "p_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"
    assert told("sft", messages=[ASK, ANSWER | {"content": f"token = '{key}'"}])["secret"] is True


def test_weights_do_not_make_two_rows_of_one() -> None:
    lighter = told("sft", messages=[ASK, ANSWER | {"weight": 0.5}], episode_id="ep-9")
    assert lighter["content"] == told("sft")["content"]
    assert told("sft", task_id="t2")["content"] != told("sft")["content"]


def test_a_line_that_is_no_json_or_too_long_is_told() -> None:
    assert check_row("sft", b'{"a": 1', 100)["fault"].startswith("not a JSON object: ")
    assert check_row("sft", b"[1]", 100)["fault"].startswith("not a JSON object: ")
    assert check_row("sft", b"\xff", 100)["fault"].startswith("not a JSON object: ")
    assert "fault" not in check_row("sft", b'{"a": "xxxxxx"}', 5)
    assert check_row("sft", b'{"a": "xxxxxx"}', 5)["bytes"] == 15


def test_lines_are_numbered_within_their_split(tmp_path: Path) -> None:
    line = msgspec.json.encode(ROWS["grpo"] | {"reason": "\u2028 and \r\n"}) + b"\n"
    (tmp_path / "train.jsonl").write_bytes(line * 2)
    (tmp_path / "validation.jsonl").write_bytes(b"")
    (tmp_path / "test.jsonl").write_bytes(line)
    (table,) = check_datasets([DatasetFiles(tmp_path, "grpo", ["train", "validation", "test"])], 10_000)
    assert table["place"].to_pylist() == [
        "grpo/train.jsonl, line 1",
        "grpo/train.jsonl, line 2",
        "grpo/test.jsonl, line 1",
    ]
    assert table["fault"].to_pylist() == [None] * 3
    with pytest.raises(DataError, match=r"nothing.jsonl cannot be read"):
        check_datasets([DatasetFiles(tmp_path, "grpo", ["nothing"])], 10)


@pytest.mark.slow
def test_pieces_are_whole_lines(tmp_path: Path) -> None:
    path = tmp_path / "train.jsonl"
    data = b"".join(
        b"x" * length + b"\n" for length in (PIECE_BYTES, 5, PIECE_BYTES // 2, PIECE_BYTES // 2, 0, 7, PIECE_BYTES * 2)
    )
    path.write_bytes(data)
    pieces = file_pieces(path, "train")
    parts = [data[piece.begin : piece.end] for piece in pieces]
    assert b"".join(parts) == data and len(parts) > 2
    assert all(part.endswith(b"\n") for part in parts)


def test_several_datasets_are_read_as_each_alone(tmp_path: Path) -> None:
    sources = []
    for name, rows in (("sft", 2), ("dpo", 0), ("grpo", 3)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "train.jsonl").write_bytes((msgspec.json.encode(ROWS[name]) + b"\n") * rows)
        sources.append(DatasetFiles(tmp_path / name, name, ["train"]))
    tables = check_datasets(sources, 10_000)
    assert [table.num_rows for table in tables] == [2, 0, 3]
    assert all(table.equals(check_datasets([source], 10_000)[0]) for table, source in zip(tables, sources, strict=True))
