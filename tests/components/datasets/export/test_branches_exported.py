"""A branch is exported with its whole conversation, whatever its record holds."""

from pathlib import Path

import msgspec
import pytest
from built import Built
from episodes import make_episode, turn
from msgspec.structs import replace

from ratchet.components.core import DataError
from ratchet.components.trajectories.chat_messages import chat_messages
from ratchet.components.trajectories.trajectory import Parent, with_content_hash

LOST = make_episode("t0", 0, success=False)
WON = make_episode("t0", 1)
OWN = (turn(0, "edit_file", path="main.py", old="x", new="return good"), turn(1, "submit"))


@pytest.mark.parametrize("whole", [True, False], ids=["all turns", "only new turns"])
def test_its_prompt_is_what_its_parent_saw_and_its_row_the_whole_conversation(tmp_path: Path, whole: bool) -> None:
    turns = (LOST.turns[0], *(replace(each, index=n) for n, each in enumerate(OWN, start=1))) if whole else OWN
    branch = with_content_hash(replace(WON, turns=turns, parent=Parent(LOST.episode_id, 1)))
    built = Built(tmp_path, {"two": [branch], "one": [LOST]})
    built.pair([(branch, LOST, 1, 0.5)])
    built.export(tmp_path / "out")
    row = msgspec.json.decode((tmp_path / "out/dpo/train.jsonl").read_bytes())
    assert row["prompt"] == chat_messages(LOST)[:3]
    assert row["chosen"][0]["tool_calls"][0]["function"]["arguments"]["new"] == "return good"
    messages = msgspec.json.decode((tmp_path / "out/sft/train.jsonl").read_bytes())["messages"]
    assert [message["role"] for message in messages] == ["user"] + ["assistant", "tool"] * 3


def test_a_branch_of_a_branch_is_completed_from_its_root(tmp_path: Path) -> None:
    first = with_content_hash(replace(WON, turns=OWN, parent=Parent(LOST.episode_id, 1), outcome=LOST.outcome))
    second = make_episode("t0", 2, turns=[turn(0, "submit")], parent=Parent(first.episode_id, 2))
    Built(tmp_path, {"n1": [second, first, LOST]}).export(tmp_path / "out", ("sft",))
    messages = msgspec.json.decode((tmp_path / "out/sft/train.jsonl").read_bytes())["messages"]
    called = [message["tool_calls"][0]["function"]["name"] for message in messages if "tool_calls" in message]
    assert called == ["read_file", "edit_file", "submit"]


def test_a_branch_without_its_parent_is_refused_and_named(tmp_path: Path) -> None:
    own = tuple(replace(each, index=n) for n, each in enumerate(OWN, start=1))
    branch = with_content_hash(replace(WON, turns=own, parent=Parent(LOST.episode_id, 1)))
    built = Built(tmp_path, {"n1": [branch]})
    with pytest.raises(DataError, match=rf"{branch.episode_id} lacks the turns .* {LOST.episode_id}"):
        built.export(tmp_path / "out", ("sft",))


def test_turns_that_another_record_of_the_same_session_holds_are_not_trained_on_twice(tmp_path: Path) -> None:
    parent = make_episode("t0", 0)
    turns = (parent.turns[0], *(replace(each, index=n) for n, each in enumerate(OWN, start=1)))
    extra = {**WON.source_extra, "shared_turns": 1}
    branch = with_content_hash(replace(WON, turns=turns, parent=Parent(parent.episode_id, 1), source_extra=extra))
    Built(tmp_path, {"n1": [parent, branch]}).export(tmp_path / "out", ("sft",))
    weights = []
    for line in (tmp_path / "out/sft/train.jsonl").read_bytes().splitlines():
        replies = [each for each in msgspec.json.decode(line)["messages"] if each["role"] == "assistant"]
        weights.append([each.get("weight", 1.0) for each in replies])
    assert sorted([weight > 0 for weight in each] for each in weights) == [[False, True, True], [True, True, True]]
