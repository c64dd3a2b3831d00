"""The gate opens for sound exports alone, and says in one line why it does not."""

from pathlib import Path
from typing import Any

import pytest

from components.datasets.checks import check_manifest, problems, read_split
from components.datasets.files import write_dataset
from components.datasets.params import GateParams
from components.datasets.ranked import Ranked
from components.protocol import DataError

INPUTS = {"nights": ["n1"], "as_of": "2026-11-21", "on_policy_only": False, "shards": {}}


def sft(task: str, episode: str, text: str = "hello", **changes: Any) -> dict[str, Any]:
    messages = [{"role": "user", "content": task}, {"role": "assistant", "content": text}]
    row = {
        "messages": messages,
        "tools": [],
        "episode_id": episode,
        "task_id": task,
        "night": "n1",
        "source": "on_policy",
    }
    return row | {"weight": 1.0, "kind": "k", "family": "f"} | changes


def origin(episode: str, **changes: Any) -> Ranked:
    fields = ("group", "n1", "t1", "k", "f", "train", "on_policy", 1.0, 0.5, True, False, False)
    return Ranked(**dict(zip(Ranked.__struct_fields__, (episode, *fields), strict=False)) | changes)


TABLE = {f"ep-{i}": origin(f"ep-{i}") for i in range(5)}


def found(
    train: list[dict[str, Any]], validation: list[dict[str, Any]] | None = None, name: str = "sft", **options: Any
) -> list[str]:
    table = options.pop("table", TABLE)
    return problems(
        name,
        {"train": train, "validation": validation or []},
        table,
        GateParams(),
        **({"on_policy_only": False} | options),
    )


def test_a_sound_export_has_no_problem() -> None:
    assert found([sft("t1", "ep-1"), sft("t2", "ep-2")], [sft("t3", "ep-3")]) == []


def test_an_empty_train_part_shuts_the_gate() -> None:
    assert found([], [sft("t1", "ep-1")]) == ["sft/train has 0 rows, fewer than min_sft_train 1"]


def test_a_task_in_both_splits_shuts_the_gate() -> None:
    assert "task t1 stands in train and in validation" in found([sft("t1", "ep-1")], [sft("t1", "ep-2", "other")])


def test_a_held_out_or_unknown_or_refused_episode_shuts_the_gate() -> None:
    table = TABLE | {"ep-1": origin("ep-1", role="audit"), "ep-2": origin("ep-2", accepted=False)}
    assert "may not be trained on" in found([sft("t1", "ep-1")], table=table)[0]
    assert found([sft("t1", "ep-2")], table=table) == ["ep-2 was not accepted"]


def test_an_episode_that_is_not_ranked_shuts_the_gate() -> None:
    assert found([sft("t1", "ep-99")])[0] == "train: ep-99 is not in the ranked table"


def test_duplicates_shut_the_gate() -> None:
    assert found([sft("t1", "ep-1"), sft("t1", "ep-1")]) == ["episode ep-1 stands in sft more than once"]
    assert found([sft("t1", "ep-1"), sft("t1", "ep-2")]) == ["sft holds 1 rows twice"]


def test_a_missing_column_shuts_the_gate() -> None:
    row = sft("t1", "ep-1")
    del row["weight"]
    assert found([row]) == ["sft/train, row 1: column 'weight' is missing"]


def test_a_demonstration_in_an_on_policy_export_shuts_the_gate() -> None:
    assert found([sft("t1", "ep-1", source="demonstration")], on_policy_only=True) == ["ep-1 is a demonstration"]


def test_a_pair_of_equals_shuts_the_gate() -> None:
    said = [{"role": "assistant", "content": "same"}]
    row = {
        "prompt": said,
        "chosen": said,
        "rejected": said,
        "tools": [],
        "episode_ids": ["ep-1", "ep-2"],
        "task_id": "t",
    }
    assert found([row], name="dpo") == ["ep-1: both sides are equal"]


def test_a_changed_file_does_not_match_its_manifest(tmp_path: Path) -> None:
    write_dataset(tmp_path, "sft", {"train": [sft("t1", "ep-1")], "validation": []}, INPUTS)
    with (tmp_path / "train.jsonl").open("a") as file:
        file.write("{}\n")
    with pytest.raises(DataError, match=r"train.jsonl differs from the hash in its manifest"):
        check_manifest(tmp_path)


@pytest.mark.parametrize(
    ("line", "said"), [(b'{"a": 1', "line 1: not a JSON object"), (b'{"a": "xxxxxxxxxxx"}', "more than")]
)
def test_a_line_that_is_no_row_is_named(tmp_path: Path, line: bytes, said: str) -> None:
    path = tmp_path / "train.jsonl"
    path.write_bytes(line)
    with pytest.raises(DataError, match=said):
        read_split(path, 15)
