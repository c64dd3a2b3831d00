"""Branches of a session: what a client retries, edits or compacts becomes a record of its own with the right prefix."""

from ratchet.components.core import PolicyReply, TokenTrace, ToolCall, ToolSpec
from ratchet.components.models.gateway.message_tree import MessageTree, SessionRecord, branch_records
from ratchet.components.trajectories.trajectory import Agent, Outcome, Provenance, TaskRef

TASK = TaskRef("t", "h", "s", "f", "k", "train", "coding", "d")
RECORD = SessionRecord("ep-1", "gr-1", 0, 0, TASK, Agent("a", "p", "v"), Outcome(True, 1.0), Provenance("gateway"))
TOOLS = (ToolSpec("look", "", {"type": "object"}),)
SYSTEM, ASKED = {"role": "system", "content": "s"}, {"role": "user", "content": "u"}


def said(text, *calls):
    listed = [
        {"id": call, "type": "function", "function": {"name": "look", "arguments": {"at": call}}} for call in calls
    ]
    return {"role": "assistant", "content": text, **({"tool_calls": listed} if listed else {})}


def result(call, text="seen"):
    return {"role": "tool", "tool_call_id": call, "content": text}


def ask(tree, messages, text, prompt, completion, *calls, tools=TOOLS):
    node = tree.place(messages, tools)
    trace = TokenTrace(tuple(prompt), tuple(completion), (-0.5,) * len(completion))
    called = tuple(ToolCall(call, "look", {"at": call}) for call in calls)
    tree.add_reply(node, said(text, *calls), PolicyReply(text, called, tokens=trace), 0.1)


def test_a_linear_session_is_one_record_with_new_token_ids_only():
    tree = MessageTree()
    ask(tree, [SYSTEM, ASKED], "one", [1, 2], [3, 4], "c0", "c1")
    history = [SYSTEM, ASKED, said("one", "c0", "c1"), result("c0"), result("c1")]
    ask(tree, history, "two", [1, 2, 3, 4, 5, 6], [7])
    ((record, tokens),) = branch_records(tree, RECORD)
    assert record.episode_id == "ep-1" and record.parent is None
    assert [(m.role, m.content) for m in record.messages] == [("system", "s"), ("user", "u")]
    assert [(turn.text, len(turn.calls), len(turn.results)) for turn in record.turns] == [("one", 2, 2), ("two", 0, 0)]
    assert [turn.env_reward for turn in record.turns] == [0.0, 1.0]
    assert [(row.trace.kept, row.trace.prompt_ids, row.trace.completion_ids) for row in tokens] == [
        (0, (1, 2), (3, 4)),
        (4, (5, 6), (7,)),
    ]


def test_a_retry_is_a_branch_that_names_the_turn_at_which_it_left():
    tree = MessageTree()
    ask(tree, [ASKED], "one", [1], [2], "c0")
    history = [ASKED, said("one", "c0"), result("c0")]
    ask(tree, history, "two", [1, 2, 3], [4], "c1")
    ask(tree, history, "other", [1, 2, 3], [5])
    ask(tree, [*history, said("two", "c1"), result("c1")], "three", [1, 2, 3, 4, 6], [7])
    (main, first_rows), (branch, rows) = branch_records(tree, RECORD)
    assert [turn.text for turn in main.turns] == ["one", "two", "three"]
    assert [turn.text for turn in branch.turns] == ["one", "other"]
    assert (branch.parent.episode_id, branch.parent.turn) == ("ep-1", 1)
    assert branch.source_extra["shared_turns"] == 1  # the export gives them no weight
    assert rows[0].trace is first_rows[0].trace  # many retries of a long session hold its tokens once
    assert branch.episode_id != main.episode_id and rows[-1].episode_id == branch.episode_id


def test_a_compacted_history_begins_a_record_whose_opening_is_what_the_model_read():
    tree = MessageTree()
    ask(tree, [ASKED], "one", [1], [2], "c0")
    ask(tree, [{"role": "user", "content": "summary of it"}], "two", [9], [8])
    records = [record for record, _ in branch_records(tree, RECORD)]
    assert [record.messages[0].content for record in records] == ["u", "summary of it"]
    assert all(record.parent is None for record in records)


def test_a_reply_that_the_client_wrote_is_no_turn():
    tree = MessageTree()
    ask(tree, [ASKED], "one", [1], [2], "c0")
    edited = [ASKED, said("edited", "c0"), result("c0", "seen")]
    ask(tree, edited, "two", [1, 5, 6], [7])
    edited_record = next(r for r, _ in branch_records(tree, RECORD) if r.turns[0].text == "two")
    assert [turn.text for turn in edited_record.turns] == ["two"]
    texts = [message.content for message in edited_record.messages]
    assert texts[0] == "u" and '<tool_call>{"name":"look"' in texts[1] and "<tool_response>" in texts[2]


def test_a_reply_in_front_of_one_that_the_client_wrote_is_a_turn_of_another_record():
    tree = MessageTree()
    ask(tree, [ASKED], "one", [1], [2])
    more = {"role": "user", "content": "more"}
    ask(tree, [ASKED, said("one"), more, said("written"), more], "two", [1, 2, 3, 9, 3], [7])
    ask(tree, [ASKED, said("one"), more, said("written"), more, said("two"), more], "three", [1, 2, 3, 9, 3, 7, 3], [8])
    records = [record for record, _ in branch_records(tree, RECORD)]
    assert [[turn.text for turn in record.turns] for record in records] == [["two", "three"], ["one"]]
    assert [record.parent for record in records] == [None, None]


def test_a_result_has_the_id_and_the_name_of_its_call_also_where_an_equal_reply_had_another_id():
    tree = MessageTree()
    for number in range(2):  # the same request twice, answered alike
        node = tree.place([ASKED], TOOLS)
        call = {"id": f"c{number}", "type": "function", "function": {"name": "look", "arguments": {"at": 1.0}}}
        reply = PolicyReply("one", (ToolCall(f"c{number}", "look", {"at": 1.0}),))
        tree.add_reply(node, {"role": "assistant", "content": "one", "tool_calls": [call]}, reply, 0.1)
    # A client in JavaScript, which has one kind of numbers, goes on from the first.
    call = {"id": "c0", "type": "function", "function": {"name": "look", "arguments": {"at": 1}}}
    node = tree.place([ASKED, {"role": "assistant", "content": "one", "tool_calls": [call]}, result("c0")], TOOLS)
    assert node.message == {"role": "tool", "tool_call_id": "c1", "name": "look", "content": "seen"}
    assert node.parent is tree.replies[1]


def test_what_a_user_says_between_replies_stays_in_its_turn():
    tree = MessageTree()
    ask(tree, [ASKED], "one", [1], [2])
    ask(tree, [ASKED, said("one"), {"role": "user", "content": "more"}], "two", [1, 2, 3], [4])
    ((record, _),) = branch_records(tree, RECORD)
    assert [(r.call_id, r.content) for r in record.turns[0].results] == [("", "more")]
    assert record.source_extra["turns"] == {"0": {"notes": [{"result": 0, "role": "user"}]}}


def test_other_ids_of_calls_and_white_space_do_not_make_a_branch():
    tree = MessageTree()
    ask(tree, [ASKED], "one \n", [1], [2], "c0")
    renamed = said("one")
    renamed["tool_calls"] = [{"id": "x", "type": "function", "function": {"name": "look", "arguments": {"at": "c0"}}}]
    ask(tree, [ASKED, renamed, result("x")], "two", [1, 2, 3], [4])
    assert len(branch_records(tree, RECORD)) == 1


def test_a_sub_agent_with_other_tools_is_a_record_of_its_own():
    tree = MessageTree()
    ask(tree, [ASKED], "one", [1], [2], "c0")
    ask(tree, [ASKED], "sub", [1], [3], tools=())
    ask(tree, [ASKED, said("one", "c0"), result("c0")], "two", [1, 2, 5], [4])
    records = [record for record, _ in branch_records(tree, RECORD)]
    assert [[turn.text for turn in record.turns] for record in records] == [["one", "two"], ["sub"]]
