"""A branch is exported with its whole conversation, whatever its record holds."""

import pytest
from episodes import make_episode, turn, write_night
from msgspec.structs import replace

from components.datasets.build import read_needed
from components.datasets.ranked import Pair, Ranked
from components.datasets.rows import dpo_row, sft_row
from components.trajectories.messages import chat
from components.trajectories.record import Parent, sealed

LOST = make_episode("t0", 0, success=False)
WON = make_episode("t0", 1)
OWN = (turn(0, "edit_file", path="main.py", old="x", new="return good"), turn(1, "submit"))
RANKED = Ranked(WON.episode_id, "g", "n", "t0", "k", "f", "train", "on_policy", 1.0, None, True, False, False)


@pytest.mark.parametrize("whole", [True, False], ids=["all turns", "only new turns"])
def test_its_prompt_is_what_its_parent_saw_and_its_row_the_whole_conversation(tmp_path, whole):
    turns = (LOST.turns[0], *(replace(each, index=n) for n, each in enumerate(OWN, start=1))) if whole else OWN
    branch = sealed(replace(WON, turns=turns, parent=Parent(LOST.episode_id, 1)))
    nights = [write_night(tmp_path / "two", [branch]), write_night(tmp_path / "one", [LOST])]
    found = read_needed(nights, {branch.episode_id, LOST.episode_id})
    row = dpo_row(
        Pair("t0", "step", 1, branch.episode_id, LOST.episode_id, 0.5),
        found[branch.episode_id],
        found[LOST.episode_id],
        RANKED,
    )
    assert row["prompt"] == chat(LOST)[:3]
    assert row["chosen"][0]["tool_calls"][0]["function"]["arguments"]["new"] == "return good"
    messages = sft_row(found[branch.episode_id], RANKED)["messages"]
    assert [message["role"] for message in messages] == ["user"] + ["assistant", "tool"] * 3


def test_a_parent_that_no_row_shows_is_read_for_its_branch(tmp_path):
    branch = sealed(replace(WON, turns=OWN, parent=Parent(LOST.episode_id, 1)))
    night = write_night(tmp_path / "night", [LOST, branch])
    found = read_needed([night], {branch.episode_id})
    assert list(found) == [branch.episode_id] and len(found[branch.episode_id].turns) == 3
