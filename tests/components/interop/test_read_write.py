"""A log is one thing, however it is read: the same episodes, with the rewards that it states."""

import json

import pytest

from ratchet.components.interop.read_write import convert, read
from ratchet.components.operations.dataset_export import export_grpo, export_sft
from ratchet.components.trajectories.trajectory_list import Trajectories

USER, REPLY = {"role": "user", "content": "Which?"}, {"role": "assistant", "content": "This one."}


def write(path, *lines):
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


@pytest.fixture
def rewarded(tmp_path):
    replies = [[{**REPLY, "content": f"Number {number}."}] for number in range(3)]
    rows = [
        {"example_id": 1, "prompt": [USER], "completion": reply, "reward": reward}
        for reply, reward in zip(replies, (1.0, 0.7, 0.0), strict=True)
    ]
    return write(tmp_path / "results.jsonl", *rows)


def test_a_log_without_a_model_has_one_identity(tmp_path):
    log = write(tmp_path / "chats.jsonl", {"messages": [USER, REPLY]})
    convert(log, tmp_path / "out.jsonl")
    assert list(read(log)) == list(read(tmp_path / "out.jsonl"))
    assert (read(log)[0].agent.policy, read(log)[0].agent.policy_version) == ("openai_chat", "openai_chat")


@pytest.mark.parametrize("converted", [False, True])
def test_the_rewards_of_a_verifiers_log_are_exported_unchanged(rewarded, tmp_path, converted):
    if converted:
        convert(rewarded, tmp_path / "out.jsonl")
    episodes = read(tmp_path / "out.jsonl" if converted else rewarded)
    assert sorted(export_grpo(episodes)[0]["rewards"]) == [0.0, 0.7, 1.0]
    assert len(export_sft(episodes, min_reward=0.7)) == 2
    assert Trajectories(episodes).rewards == {}
    assert set(episodes.with_rewards(lambda each: 0.5).rewards.values()) == {0.5}


def test_a_log_without_rewards_has_none(tmp_path):
    chats = write(tmp_path / "chats.jsonl", {"messages": [USER, REPLY]})
    rows = write(tmp_path / "rows.jsonl", {"example_id": 1, "prompt": [USER], "completion": [REPLY], "reward": None})
    assert read(chats).rewards == read(rows).rewards == {}
