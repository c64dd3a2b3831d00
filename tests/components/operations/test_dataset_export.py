"""Exports of episodes in memory hold what `ratchet export` would write, and refuse to be empty."""

import json

import pytest

from ratchet.components.core import ConfigurationError, DataError
from ratchet.components.interop.read_write import read
from ratchet.components.operations.agent_collection import collect
from ratchet.components.operations.dataset_export import export_dpo, export_grpo, export_huggingface, export_sft
from ratchet.components.trajectories.trajectory_list import Trajectories


def refuse(request):
    return {"tool": "respond", "params": {"text": "No."}}


@pytest.fixture(scope="module")
def good():
    return collect("orders", agent="teacher", tasks=6)


@pytest.fixture(scope="module")
def bad():
    return collect("orders", agent=refuse, tasks=6, attempts=2)


def test_sft_rows_are_the_successes_with_their_tools(good, bad):
    rows = export_sft([*good, *bad])
    assert {row["episode_id"] for row in rows} == {each.episode_id for each in good}
    assert all(row["messages"][-2]["role"] == "assistant" and row["tools"] for row in rows)


def test_a_minimum_reward_replaces_success(good, bad):
    rows = export_sft(bad.with_rewards(lambda each: float(each.attempt)), min_reward=1.0)
    assert {row["episode_id"] for row in rows} == {each.episode_id for each in bad if each.attempt == 1}


def test_the_folder_holds_every_row_once_and_no_family_in_two_splits(good, tmp_path):
    rows = export_sft(good, tmp_path / "sft", validation=0.5)
    files = {name: (tmp_path / "sft" / f"{name}.jsonl").read_text().splitlines() for name in ("train", "validation")}
    written = {name: [json.loads(line) for line in lines] for name, lines in files.items()}
    assert [*written["train"], *written["validation"]] == rows and written["validation"]
    families = {name: {row["family"] for row in own} for name, own in written.items()}
    assert not families["train"] & families["validation"]
    assert (tmp_path / "sft" / "README.md").is_file() and (tmp_path / "sft" / "rows.parquet").is_file()


def test_a_pair_prefers_the_better_attempt(good, bad):
    rows = export_dpo([*good, *bad])
    assert rows and {row["episode_ids"][0] for row in rows} <= {each.episode_id for each in good}
    assert all(row["chosen"] != row["rejected"] and row["margin"] >= 0.05 for row in rows)


def test_attempts_that_differ_by_less_than_the_margin_give_that_reason(good, bad):
    rewarded = Trajectories([*good, *bad]).with_rewards(lambda each: 0.76 * bool(each.outcome.success))
    with pytest.raises(DataError, match=r"6 forks differ by less than the margin 0\.9"):
        export_dpo(rewarded, level="trajectory", margin=0.9)
    assert export_dpo(rewarded, level="trajectory", margin=0.7)


def test_a_group_has_the_advantages_of_its_rewards(bad):
    (row, *_) = export_grpo(bad.with_rewards(lambda each: each.attempt))
    assert sorted(row["rewards"]) == [0.0, 1.0] and sum(row["advantages"]) == pytest.approx(0)


def test_held_out_tasks_are_never_exported(tmp_path):
    with pytest.raises(DataError, match="no episode of a train task"):
        export_sft(collect("orders", agent="teacher", tasks=2, role="audit"), tmp_path / "sft")
    assert not (tmp_path / "sft").exists()


@pytest.mark.parametrize("export", [export_sft, export_dpo, export_grpo])
def test_no_episodes_are_an_error(export):
    with pytest.raises(DataError):
        export([])


def test_a_folder_with_files_is_not_overwritten(good, tmp_path):
    (tmp_path / "mine.txt").write_text("x")
    with pytest.raises(ConfigurationError, match="there already"):
        export_huggingface(good, tmp_path)


def test_a_log_under_two_names_is_one_row_and_the_copy_is_named(tmp_path):
    call = {"action": "ls", "observation": "a", "response": "I look.\n```\nls\n```", "thought": "I look."}
    log = {"trajectory": [call], "history": [{"role": "user", "content": "Fix it."}], "info": {}}
    for name in ("a.traj", "b.traj"):
        (tmp_path / name).write_text(json.dumps(log))
    with pytest.warns(UserWarning, match="1 episodes repeat a log under the name of another task"):
        assert len(export_sft(read(tmp_path).with_rewards(lambda each: 1.0), min_reward=1.0)) == 1


def test_the_pairs_of_a_preference_log_are_exported_by_their_attempts(tmp_path):
    sides = {side: [{"role": "assistant", "content": side}] for side in ("chosen", "rejected")}
    (tmp_path / "pairs.jsonl").write_text(
        json.dumps({"prompt": [{"role": "user", "content": "Which?"}], **sides}) + "\n"
    )
    pairs = read(tmp_path / "pairs.jsonl").with_rewards(lambda each: 1 - each.attempt)
    (row,) = export_dpo(pairs, level="trajectory")
    assert (row["chosen"][0]["content"], row["rejected"][0]["content"]) == ("chosen", "rejected")


def test_an_episode_given_twice_is_one_row(good):
    assert len(export_sft([*good, *good])) == len(good)
