"""The export: from nights, ranks, pairs and scores to datasets; one split, every row explained, no byte by chance."""

import hashlib
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from built import Built, ranked_row, write_ranked
from episodes import make_episode, night_of

from ratchet.components.core import ConfigurationError, DataError
from ratchet.components.datasets.export import export_datasets
from ratchet.components.datasets.export.export_datasets import DATASETS

ALL = (*DATASETS, "benchmark", "verifiers", "prime-rl")


def rows_of(folder: Path, name: str, split: str = "train") -> list[dict[str, Any]]:
    return [msgspec.json.decode(line) for line in (folder / name / f"{split}.jsonl").read_bytes().splitlines()]


def every_row(folder: Path, name: str) -> list[dict[str, Any]]:
    return [row for split in ("train", "validation") for row in rows_of(folder, name, split)]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    return Built(tmp_path_factory.mktemp("built"))


@pytest.fixture(scope="module")
def out(built: Built, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("out")
    built.export(folder, ALL)
    return folder


def test_one_split_holds_for_all_datasets(out: Path) -> None:
    for name in (*DATASETS, "benchmark"):
        for split in ("train", "validation"):
            tasks = {row["task_id"] for row in rows_of(out, name, split)}
            assert tasks and all(task.endswith("9") == (split == "validation") for task in tasks)


def test_what_is_exported_is_what_was_ranked_so(out: Path, built: Built) -> None:
    accepted = {each.episode_id for each in built.episodes if each.outcome.success}
    assert {row["episode_id"] for row in every_row(out, "sft")} == accepted
    assert len(every_row(out, "grpo")) == len(every_row(out, "benchmark")) == 20
    assert len(every_row(out, "verifiers")) == len(every_row(out, "prime-rl")) == len(built.episodes)


def test_defect_2_a_night_of_successes_is_exported_whole(tmp_path: Path) -> None:
    episodes = [make_episode(f"t{task}", attempt, success=True) for task in range(5) for attempt in range(2)]
    built = Built(tmp_path, {"n1": episodes})
    manifest = built.export(tmp_path / "out", ("sft",))["sft"]
    assert manifest["files"]["train.jsonl"]["rows"] == len(episodes) == len(rows_of(tmp_path / "out", "sft"))


def test_defect_21_the_weights_of_messages_come_from_the_scores_of_steps(out: Path) -> None:
    for row in every_row(out, "sft"):
        weights = [message["weight"] for message in row["messages"] if message["role"] == "assistant"]
        assert weights == [0.75, 1.5, 0.75]


def test_sides_of_whole_episodes_weigh_by_what_was_good_in_one_and_bad_in_the_other(tmp_path: Path) -> None:
    good, bad = make_episode("t1", 0, success=True), make_episode("t1", 1, success=False)
    built = Built(tmp_path, {"n1": [good, bad]})
    built.pair([(good, bad, -1, 0.5), (good, bad, 1, 0.5)])
    built.export(tmp_path / "out", ("dpo",), pair_levels=("step", "trajectory"))
    rows = {row["level"]: row for row in every_row(tmp_path / "out", "dpo")}
    lacking = [0.6, 0.2, 0.6]
    sides = (rows["trajectory"]["chosen"], rows["trajectory"]["rejected"])
    weights = [[each["weight"] for each in side if each["role"] == "assistant"] for side in sides]
    assert weights[0] == [0.75, 1.5, 0.75]
    assert weights[1] == pytest.approx([3 * each / sum(lacking) for each in lacking], abs=1e-6)
    assert not any("weight" in message for side in ("prompt", "chosen", "rejected") for message in rows["step"][side])
    built.export(tmp_path / "plain", ("dpo",), pair_levels=("trajectory",), step_weights=False)
    assert not any("weight" in each for row in every_row(tmp_path / "plain", "dpo") for each in row["rejected"])


def test_without_step_weights_no_message_has_one(built: Built, tmp_path: Path) -> None:
    built.export(tmp_path, ("sft",), step_weights=False)
    assert not any("weight" in message for row in every_row(tmp_path, "sft") for message in row["messages"])


def test_defect_31_what_is_paired_is_what_the_table_of_pairs_says_and_nothing_else(out: Path, built: Built) -> None:
    table = pq.read_table(built.pairs).to_pylist()
    said = {(row["chosen_episode_id"], row["rejected_episode_id"], row["turn"]) for row in table}
    assert {(*row["episode_ids"], row["turn"]) for row in every_row(out, "dpo")} == said
    assert all(row["prompt"][0]["content"] == f"repair {row['task_id']}" for row in every_row(out, "dpo"))


def test_every_row_says_why_it_is_in_and_stands_in_the_table_of_rows_with_its_hash(out: Path) -> None:
    for name in ALL:
        table = pq.read_table(out / name / "rows.parquet").to_pylist()
        lines = {
            (split, number): line
            for split in ("train", "validation")
            for number, line in enumerate((out / name / f"{split}.jsonl").read_bytes().splitlines())
        }
        assert [(row["split"], row["row"]) for row in table] == list(lines)
        for row in table:
            assert row["sha256"] == hashlib.sha256(lines[row["split"], row["row"]]).hexdigest()
            assert row["reason"] and row["episode_ids"] and row["task_id"]


def test_the_manifest_names_what_went_in_and_hashes_what_came_out(out: Path, built: Built) -> None:
    manifest = msgspec.json.decode((out / "dpo/manifest.json").read_bytes())
    for name, entry in manifest["files"].items():
        assert entry["sha256"] == hashlib.sha256((out / "dpo" / name).read_bytes()).hexdigest()
    assert manifest["scorers"] == {"n1": ["rules-1"]} and manifest["nights"] == ["n1"]
    shards = manifest["shards"]["n1"]
    assert shards == {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in built.rollouts[0].glob("shard-*.jsonl")
    }
    assert manifest["tables"]["ranked.parquet"] == hashlib.sha256(built.ranked.read_bytes()).hexdigest()
    assert manifest["params"]["group_size"] == 8 and manifest["schema_version"] == 1


@pytest.mark.slow
def test_the_number_of_workers_changes_no_byte(
    built: Built, out: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ratchet.components.datasets.export.shard_offsets.IN_MEMORY_BYTES", 0)
    export_datasets.export_datasets(built.request(), {name: tmp_path / name for name in DATASETS}, workers=3)
    for name in DATASETS:
        for path in (tmp_path / name).iterdir():
            assert path.read_bytes() == (out / name / path.name).read_bytes(), path


def test_the_order_of_the_nights_changes_no_row(tmp_path: Path) -> None:
    episodes = night_of(6, 4)
    halves = {"n1": episodes[::2], "n2": episodes[1::2]}
    one = Built(tmp_path / "one", halves)
    other = Built(tmp_path / "other", dict(reversed(halves.items())))
    one.export(tmp_path / "a")
    other.export(tmp_path / "b")
    for name in ("sft", "grpo", "groups"):
        assert (tmp_path / "a" / name / "train.jsonl").read_bytes() == (
            tmp_path / "b" / name / "train.jsonl"
        ).read_bytes()


@pytest.mark.parametrize(
    "changes", [{"role": "promote"}, {"quarantined": True}, {"infrastructure_failure": True}, {"split": None}]
)
def test_what_may_not_be_trained_on_reaches_no_dataset(tmp_path: Path, changes: dict[str, Any]) -> None:
    built = Built(tmp_path, {"n1": night_of(3, 4)})
    built.rank(**changes)
    built.export(tmp_path / "out", ALL)
    assert [every_row(tmp_path / "out", name) for name in ALL] == [[]] * len(ALL)


def test_a_test_split_has_files_only_where_it_has_rows(tmp_path: Path) -> None:
    built = Built(tmp_path, {"n1": night_of(3, 4)})
    built.export(tmp_path / "out", ("sft",))
    assert not (tmp_path / "out/sft/test.jsonl").exists()
    built.rank(split="test")
    manifest = built.export(tmp_path / "out", ("sft",))["sft"]
    assert manifest["files"]["test.jsonl"]["rows"] == len(rows_of(tmp_path / "out", "sft", "test")) > 0
    assert manifest["files"]["train.jsonl"]["rows"] == 0
    built.rank()
    built.export(tmp_path / "out", ("sft",))
    assert not (tmp_path / "out/sft/test.jsonl").exists()


def test_on_policy_only_leaves_demonstrations_out_of_what_is_imitated(tmp_path: Path) -> None:
    own = [make_episode("t1", 0), make_episode("t1", 1, success=False)]
    shown = [make_episode("t1", 0, policy="teacher", version="script")]
    built = Built(tmp_path, {"n1": own, "n2": shown})
    built.pair([(shown[0], own[1], 1, 0.5)])
    for only, sources, pairs in ((True, {"on_policy"}, 0), (False, {"on_policy", "demonstration"}, 1)):
        request = built.request()._replace(own_only=only)
        export_datasets.export_datasets(request, {name: tmp_path / "out" / name for name in DATASETS})
        assert {row["source"] for row in every_row(tmp_path / "out", "sft")} == sources
        assert len(every_row(tmp_path / "out", "dpo")) == pairs


def test_a_filter_takes_episodes_and_the_tasks_groups_and_pairs_that_they_stand_for(
    built: Built, tmp_path: Path
) -> None:
    chosen = built.episodes[0].task.task_id
    built.export(tmp_path, ALL, where=f"task_id == '{chosen}' and success")
    for name in (*DATASETS, "benchmark"):
        assert {row["task_id"] for row in every_row(tmp_path, name)} == {chosen}, name
    assert all(len(row["rewards"]) == 4 for row in every_row(tmp_path, "groups"))
    assert all(row["reward"] == 0.9 for row in every_row(tmp_path, "prime-rl"))


def test_bounds_leave_out_what_is_below_them_or_not_known(tmp_path: Path) -> None:
    episodes = night_of(4, 4)
    built = Built(tmp_path, {"n1": episodes})
    wins = [each for each in episodes if each.outcome.success]
    rows = [ranked_row(each, gdi=None if each is wins[0] else 0.3 if each is wins[1] else 0.7) for each in episodes]
    built.ranked = write_ranked(tmp_path / "ranked.parquet", rows)
    built.export(tmp_path / "out", ("sft",), min_gdi=0.5)
    assert {row["episode_id"] for row in every_row(tmp_path / "out", "sft")} == {each.episode_id for each in wins[2:]}
    built.export(tmp_path / "out", ("sft",), min_reward=0.95)
    assert every_row(tmp_path / "out", "sft") == []


def test_groups_are_written_only_where_they_are_asked_for(built: Built, tmp_path: Path) -> None:
    built.export(tmp_path, ("groups",), group_size=0)
    assert every_row(tmp_path, "groups") == []


def test_conversations_in_text_have_neither_tools_nor_their_role(built: Built, tmp_path: Path) -> None:
    built.export(tmp_path, DATASETS, agent_format="text")
    for row in every_row(tmp_path, "sft") + every_row(tmp_path, "dpo"):
        messages = row.get("messages") or row["prompt"] + row["chosen"]
        assert row["tools"] == [] and messages[0]["role"] == "system"
        assert {message["role"] for message in messages} <= {"system", "user", "assistant"}


def test_a_wrong_filter_is_one_line_with_its_place(built: Built, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="character 1: there is no column 'reword'; did you mean 'reward'"):
        built.export(tmp_path, where="reword > 1")


def test_an_episode_that_stands_in_no_night_is_named(tmp_path: Path) -> None:
    built = Built(tmp_path, {"n1": night_of(2, 4)})
    ghost = make_episode("t9", 0)
    rows = [ranked_row(each) for each in (*built.episodes, ghost)]
    built.ranked = write_ranked(tmp_path / "ranked.parquet", rows)
    with pytest.raises(DataError, match=rf"{ghost.episode_id} is ranked and is in none of the nights"):
        built.export(tmp_path / "out")


@pytest.mark.parametrize("margin", [float("nan"), float("inf"), 0.0, -0.4])
def test_a_pair_that_prefers_nothing_is_refused(tmp_path: Path, margin: float) -> None:
    built = Built(tmp_path, {"n1": night_of(2, 4)})
    built.pair([(built.episodes[0], built.episodes[2], 1, margin)])
    with pytest.raises(DataError, match=rf"{built.episodes[0].episode_id} over .* which must be above 0"):
        built.export(tmp_path / "out")


def test_a_pair_of_a_stranger_is_refused(tmp_path: Path) -> None:
    built = Built(tmp_path, {"n1": night_of(2, 4)})
    ghost = make_episode("t9", 0)
    built.pair([(ghost, built.episodes[0], 1, 0.5)])
    with pytest.raises(DataError, match=rf"{ghost.episode_id}, which is not ranked"):
        built.export(tmp_path / "out")


def test_damaged_tables_are_one_line(tmp_path: Path) -> None:
    built = Built(tmp_path, {"n1": night_of(2, 4)})
    table = pq.read_table(built.ranked)
    wrong = table.set_column(table.schema.get_field_index("gdi"), "gdi", pa.array(["high"] * len(table)))
    pq.write_table(wrong, built.ranked)
    with pytest.raises(DataError, match=r"ranked.parquet: column 'gdi' is string and must be double"):
        built.export(tmp_path / "out")
    pq.write_table(pa.concat_tables([table, table]), built.ranked)
    with pytest.raises(DataError, match="ranks an episode twice"):
        built.export(tmp_path / "out")
    built.ranked.write_bytes(built.ranked.read_bytes()[:-30])
    with pytest.raises(DataError, match="is not a Parquet table"):
        built.export(tmp_path / "out")


def test_the_stage_reads_its_section_and_writes_every_dataset(built: Built, out: Path, tmp_path: Path) -> None:
    params = tmp_path / "params.yaml"
    params.write_text("export: {group_size: 8}\n")
    flags = [flag for folder in built.rollouts for flag in ("--rollouts", str(folder))]
    flags += [flag for path in built.scores for flag in ("--scores", str(path))]
    flags += ["--ranked", str(built.ranked), "--pairs", str(built.pairs), "--as-of", "2026-11-21"]
    export_datasets.main([*flags, "--on-policy-only", "false", "--params", str(params), "--out", str(tmp_path / "out")])
    for name in DATASETS:
        assert (tmp_path / "out" / name / "train.jsonl").read_bytes() == (out / name / "train.jsonl").read_bytes()


@pytest.mark.parametrize("agent_format", ["tools", "text"])
def test_a_message_that_a_person_wrote_is_the_chosen_side(tmp_path: Path, agent_format: str) -> None:
    built = Built(tmp_path, {"n1": night_of(2, 4)})
    edit = '{"text": "Better.", "calls": [{"tool": "edit_file", "arguments": {"new": "by a person"}}]}'
    table = pq.read_table(built.pairs)
    pq.write_table(table.append_column("edit", pa.array([edit, *[""] * (len(table) - 1)])), built.pairs)
    built.export(tmp_path / "out", ["dpo"], agent_format=agent_format)
    edited = [row for row in every_row(tmp_path / "out", "dpo") if "a person wrote the chosen side" in row["reason"]]
    assert len(edited) == 1 < len(every_row(tmp_path / "out", "dpo"))
    (message,) = edited[0]["chosen"]
    assert message["content"].startswith("Better.") and "by a person" in str(message)
    assert ("tool_calls" in message) == (agent_format == "tools") and edited[0]["rejected"] != edited[0]["chosen"]
