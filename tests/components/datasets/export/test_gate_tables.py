"""Manifests, lines, pairs and tasks held against what the build knows: each lie is told, and where."""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from exported import EPISODES, datasets, pair, ranked, ranks, table, task, write

from ratchet.components.core import DataError
from ratchet.components.datasets.export.gate import (
    PAIR_COLUMNS,
    TASK_COLUMNS,
    RankedTable,
    pair_checks,
    task_checks,
    with_episode_checks,
)
from ratchet.components.datasets.export.row_checks import DatasetFiles, check_datasets, check_manifest, with_unchanged

SPLITS = ("train", "validation")


def lines(folder: Path, name: str, known: RankedTable, **options: Any) -> list[dict[str, Any]]:
    (found,) = check_datasets([DatasetFiles(folder / "datasets" / name, name, SPLITS)], 10_000)
    rows: list[dict[str, Any]] = with_episode_checks(
        found, known, name, **({"own_only": False, "comparable": True} | options)
    ).to_pylist()
    return rows


FAULTS = ("unknown", "unusable", "strayed", "shown", "preference_fault", "group_fault")


def faults(rows: list[dict[str, Any]]) -> list[tuple[str, str]]:
    return [(row["place"], f"{name}: {row[name]}") for row in rows for name in FAULTS if row.get(name) is not None]


@pytest.mark.parametrize("name", ["sft", "dpo", "grpo", "groups"])
def test_sound_lines_have_no_fault(tmp_path: Path, name: str) -> None:
    write(tmp_path)
    rows = lines(tmp_path, name, ranks(*EPISODES))
    assert faults(rows) == []
    assert all(row["accepted"] for row in rows) or name == "grpo"


def test_episodes_that_may_not_be_trained_on_are_told(tmp_path: Path) -> None:
    write(tmp_path)
    known = ranks(ranked("ep-1", role="audit"), ranked("ep-3", "t2", split="test"), ranked("ep-9"))
    assert faults(lines(tmp_path, "sft", known)) == [
        ("sft/train.jsonl, line 1", "unusable: ep-1: task t1 has the role audit"),
        ("sft/train.jsonl, line 2", "unknown: ep-4"),
        ("sft/validation.jsonl, line 1", "strayed: ep-3 belongs to test"),
    ]
    why = {"quarantined": "quarantined", "infrastructure_failure": "infrastructure failure"}
    for flag, told in why.items():
        flagged = ranks(ranked("ep-1", **{flag: True}), *EPISODES[2:])
        assert ("sft/train.jsonl, line 1", f"unusable: ep-1: {told}") in faults(lines(tmp_path, "sft", flagged))
    left_out = ranks(ranked("ep-1", split=None), *EPISODES[2:])
    assert ("sft/train.jsonl, line 1", "unusable: ep-1: task t1 is in no split") in faults(
        lines(tmp_path, "sft", left_out)
    )


def test_an_episode_that_was_refused_or_shown_is_told(tmp_path: Path) -> None:
    write(tmp_path)
    known = ranks(ranked("ep-1", accepted=False), *EPISODES[1:3], ranked("ep-4", "t3", source="demonstration"))
    rows = lines(tmp_path, "sft", known, own_only=True)
    assert [row["accepted"] for row in rows] == [False, True, True]
    assert faults(rows) == [("sft/train.jsonl, line 2", "shown: ep-4")]


def test_a_ranked_table_without_rows_knows_nobody(tmp_path: Path) -> None:
    write(tmp_path)
    assert {fault for _, fault in faults(lines(tmp_path, "sft", ranks()))} == {f"unknown: ep-{i}" for i in (1, 3, 4)}


def test_a_pair_whose_sides_were_swapped_is_told(tmp_path: Path) -> None:
    row = datasets()["dpo"]["train"][0]
    swapped = row | {"chosen": row["rejected"], "rejected": row["chosen"], "episode_ids": ["ep-2", "ep-1"]}
    write(tmp_path, {"dpo": {"train": [swapped]}})
    assert faults(lines(tmp_path, "dpo", ranks(*EPISODES))) == [
        ("dpo/train.jsonl, line 1", "preference_fault: ep-2 failed")
    ]
    close = ranks(EPISODES[0], ranked("ep-2", reward=0.5, group_id="other"))
    assert [fault for _, fault in faults(lines(tmp_path, "dpo", close))] == [
        "preference_fault: reward 0.500 of ep-2, 0.900 of ep-1"
    ]
    assert faults(lines(tmp_path, "dpo", close, comparable=False)) == []  # win rates of two groups are not compared


def test_attempts_of_another_group_or_with_other_rewards_are_told(tmp_path: Path) -> None:
    row = datasets()["groups"]["train"][0]
    write(tmp_path, {"groups": {"train": [row, row | {"rewards": [0.9, 0.8]}, row | {"policy_version": "w"}]}})
    told = [fault.split(": ")[1] for _, fault in faults(lines(tmp_path, "groups", ranks(*EPISODES)))]
    assert told == ["ep-2 has another group or another reward", "policy_version differs"]
    mixed = ranks(EPISODES[0], EPISODES[1] | {"group_id": "other"})
    assert len(faults(lines(tmp_path, "groups", mixed))) == 3


def unchanged(folder: Path, name: str = "sft") -> list[bool]:
    place = folder / "datasets" / name
    (found,) = check_datasets([DatasetFiles(place, name, SPLITS)], 10_000)
    result: list[bool] = with_unchanged(found, place, json.loads((place / "manifest.json").read_text()))[
        "unchanged"
    ].to_pylist()
    return result


def test_a_line_that_was_changed_after_the_export_is_told(tmp_path: Path) -> None:
    write(tmp_path)
    assert unchanged(tmp_path) == [True, True, True]
    path = tmp_path / "datasets/sft/train.jsonl"
    path.write_bytes(path.read_bytes().replace(b'"content":"ep-4"', b'"content":"ep-5"'))
    assert unchanged(tmp_path) == [True, False, True]
    with pytest.raises(DataError, match=r"train.jsonl differs from the hash in its manifest, first in line 2; run"):
        check_manifest(tmp_path / "datasets/sft")


def test_a_table_of_rows_that_names_another_origin_is_told(tmp_path: Path) -> None:
    write(tmp_path)
    path = tmp_path / "datasets/sft/rows.parquet"
    rows = pq.read_table(path)
    index = rows.schema.get_field_index("episode_ids")
    pq.write_table(rows.set_column(index, "episode_ids", pa.array([["ep-1"], ["ep-1"], ["ep-3"]])), path)
    assert unchanged(tmp_path) == [True, False, True]


def test_lines_more_or_fewer_than_were_written_are_told(tmp_path: Path) -> None:
    write(tmp_path)
    path = tmp_path / "datasets/sft/train.jsonl"
    path.write_bytes(path.read_bytes() * 2)
    with pytest.raises(
        DataError, match=r"sft/train.jsonl, rows.parquet and manifest.json have different numbers of rows \(2, 4\)"
    ):
        unchanged(tmp_path)


MANIFESTS: dict[str, tuple[dict[str, Any], str]] = {
    "newer": ({"schema_version": 2}, "has schema_version 2, not 1; upgrade Ratchet"),
    "of another": ({"dataset": "dpo"}, "is of another dataset"),
    "no files": ({"files": {}}, "does not list train.jsonl"),
    "above": (
        {"files": {"../train.jsonl": {"sha256": "", "bytes": 0}}},
        r"lists '../train.jsonl', which is no file of its",
    ),
    "absent": (
        {"files": {"test.jsonl": {"sha256": "", "bytes": 0}}},
        r"test.jsonl is listed in the manifest and absent",
    ),
    "no hash": ({"files": {"train.jsonl": {}}}, "cannot be read as a manifest"),
    "a list": ({"files": [1]}, "cannot be read as a manifest"),
}


@pytest.mark.parametrize("kind", MANIFESTS)
def test_a_manifest_that_lies_is_refused(tmp_path: Path, kind: str) -> None:
    write(tmp_path)
    changes, told = MANIFESTS[kind]
    path = tmp_path / "datasets/sft/manifest.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))
    with pytest.raises(DataError, match=told):
        check_manifest(path.parent)


def test_a_link_a_stray_and_what_is_no_manifest_are_refused(tmp_path: Path) -> None:
    write(tmp_path)
    folder = tmp_path / "datasets/sft"
    (folder / "more.jsonl").write_text("{}\n")
    with pytest.raises(DataError, match=r"more.jsonl is not in the manifest"):
        check_manifest(folder)
    (folder / "more.jsonl").unlink()
    (folder / "train.jsonl").rename(tmp_path / "elsewhere")
    (folder / "train.jsonl").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(DataError, match=r"train.jsonl is a link"):
        check_manifest(folder)
    (folder / "manifest.json").write_bytes(b"[" * 99_999)
    with pytest.raises(DataError, match=r"cannot be read as a manifest"):
        check_manifest(folder)


def judged_pairs(folder: Path, rows: list[dict[str, Any]], *known: dict[str, Any]) -> list[dict[str, Any]]:
    pq.write_table(table(PAIR_COLUMNS, rows), folder / "pairs.parquet")
    found: list[dict[str, Any]] = pair_checks(
        folder / "pairs.parquet", ranks(*(known or EPISODES)), comparable=True
    ).to_pylist()
    return found


def test_a_sound_pair_has_no_fault(tmp_path: Path) -> None:
    assert judged_pairs(tmp_path, [pair("ep-1", "ep-2")]) == [
        {
            "pair": "ep-1 over ep-2, step 0", "level": "step", "margin_positive": True, "unknown": None, "one_task": True,
            "accepted": True, "preference_fault": None, "agrees": True,
        }
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("wrong", "column", "value"),
    [
        (pair("ep-1", "ep-2", margin=-0.5), "margin_positive", False),
        (pair("ep-1", "ep-2", margin=float("nan")), "margin_positive", False),
        (pair("ep-1", "ep-9"), "unknown", "ep-9"),
        (pair("ep-1", None), "unknown", "(no episode)"),  # type: ignore[arg-type]
        (pair("ep-1", "ep-3"), "one_task", False),
        (pair("ep-1", "ep-2", task_id="t2"), "one_task", False),
        (pair("ep-1", "ep-2", task_id="elsewhere"), "one_task", False),
        (pair("ep-2", "ep-1"), "accepted", False),
        (pair("ep-2", "ep-1"), "preference_fault", "ep-2 failed"),
    ],
)
def test_a_pair_that_prefers_nothing_is_told(tmp_path: Path, wrong: dict[str, Any], column: str, value: Any) -> None:
    assert judged_pairs(tmp_path, [wrong])[0][column] == value


def test_pairs_that_contradict_each_other_are_told(tmp_path: Path) -> None:
    both = [pair("ep-1", "ep-2"), pair("ep-2", "ep-1"), pair("ep-2", "ep-1", turn=1)]
    assert [row["agrees"] for row in judged_pairs(tmp_path, both)] == [False, False, True]


def judged_tasks(folder: Path, *rows: dict[str, Any], known: tuple[dict[str, Any], ...] = ()) -> dict[str, list[str]]:
    pq.write_table(table(TASK_COLUMNS, list(rows)), folder / "tasks.parquet")
    found = task_checks(folder / "tasks.parquet", ranks(*known)).to_pylist()
    return {row["task_id"]: [name for name, value in row.items() if value is False] for row in found}


def test_a_leak_across_splits_is_told(tmp_path: Path) -> None:
    found = judged_tasks(
        tmp_path,
        task("fine"),
        task("left out", split=None, reason="it is near to both"),
        task("lost", split=None),
        task("met", contaminated_by="promote-1"),
        task("a", unit="u"),
        task("b", unit="u", split="validation"),
        task("c", cluster="d"),
        task("d", split="test"),
        task("near but out", cluster="fine", split=None, reason="x"),
    )
    assert found == {
        "fine": [], "left out": [], "lost": ["placed"], "met": ["clean"], "a": ["unit_whole"], "b": ["unit_whole"],
        "c": ["cluster_whole"], "d": ["cluster_whole"], "near but out": [],
    }  # fmt: skip


def test_a_ranked_table_with_another_split_is_told(tmp_path: Path) -> None:
    known = (ranked("ep-1", "t1"), ranked("ep-2", "t2", split="test"), ranked("ep-3", "t2"))
    assert judged_tasks(tmp_path, task("t1"), task("t2"), known=known) == {"t1": [], "t2": ["ranked_agrees"]}
    with pytest.raises(DataError, match=r"tasks.parquet lacks task t2, which has ranked episodes"):
        judged_tasks(tmp_path, task("t1"), known=known)
