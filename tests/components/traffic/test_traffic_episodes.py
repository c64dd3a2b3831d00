"""Episodes of traffic: success only where somebody states it, and a night that takes them once."""

import json

import msgspec
import pytest

from ratchet.components.core import DataError
from ratchet.components.datasets.stage_params import DuplicatesParams
from ratchet.components.traffic.traffic_episodes import TrafficPlan, conversation_episodes, take_night
from ratchet.components.traffic.traffic_store import Conversation, Feedback, StoredSpan, TrafficStore
from ratchet.components.trajectories.shards import read_folder

PARTS = [{"type": "text", "content": "it is done"}]


def chat(trace="a" * 32, session="s", request="water the plants", events=(), span="1" * 16, **fields):
    attributes = {
        "gen_ai.operation.name": "chat",
        "gen_ai.request.model": "m",
        "gen_ai.input.messages": json.dumps([{"role": "user", "parts": [{"type": "text", "content": request}]}]),
        "gen_ai.output.messages": json.dumps([{"role": "assistant", "parts": PARTS}]),
    }
    if session:
        attributes["gen_ai.conversation.id"] = session
    return {
        "traceId": trace,
        "spanId": span,
        "name": "chat",
        "attributes": attributes,
        "events": list(events),
        **fields,
    }


def evaluation(name="task_success", **score):
    values = {f"gen_ai.evaluation.score.{key}": value for key, value in score.items()}
    return {"name": "gen_ai.evaluation.result", "attributes": {"gen_ai.evaluation.name": name, **values}}


def outcome(feedback=(), **span):
    (episode,) = conversation_episodes(Conversation(("a" * 32,), ("s",), [chat(**span)], list(feedback)))
    return episode.outcome


def note(success=None, conversation="s", **fields):
    return Feedback(conversation_id=conversation, success=success, **fields)


@pytest.mark.parametrize(
    ("feedback", "events", "success"),
    [
        ([], [], None),
        ([note(True)], [], True),
        ([note(False)], [], False),
        ([note(score=1.0)], [], None),
        ([note(comment="great success")], [], None),
        ([note(True), note(False)], [], None),
        ([note(True), note(True), note(comment="!")], [], True),
        ([note(True, conversation="another")], [], None),
        ([Feedback(trace_id="a" * 32, success=False)], [], False),
        ([], [evaluation(label="pass")], True),
        ([], [evaluation(label="Failed")], False),
        ([], [evaluation(label="excellent")], None),
        ([], [evaluation(value=1)], True),
        ([], [evaluation(value=0.0)], False),
        ([], [evaluation(value=0.7)], None),
        ([], [evaluation("politeness", label="pass")], None),
        ([note(False)], [evaluation(label="pass")], None),
    ],
)
def test_success_is_what_all_statements_on_the_task_agree_on_and_else_unknown(feedback, events, success):
    assert outcome(feedback, events=events).success is success


def test_feedback_on_a_service_that_failed_proves_nothing():
    assert outcome([note(True)], status={"code": 2, "message": "timeout"}).success is None


def test_a_score_and_the_words_of_the_feedback_are_kept():
    (episode,) = conversation_episodes(
        Conversation(("a" * 32,), ("s",), [chat()], [note(True, score=0.5, comment="fine", id="7")])
    )
    assert episode.outcome.score == 0.5 and episode.source_extra["feedback"][0]["comment"] == "fine"


def test_feedback_on_a_trace_of_two_conversations_decides_neither():
    spans = [chat(session="s"), chat(session="t", span="2" * 16)]
    feedback = [Feedback(trace_id="a" * 32, success=True), note(True, conversation="t")]
    episodes = conversation_episodes(Conversation(("a" * 32,), ("s", "t"), spans, feedback))
    assert [episode.outcome.success for episode in episodes] == [None, True]


def test_an_evaluation_that_arrives_hours_later_in_a_trace_of_its_own_is_joined_by_the_session():
    late = {"traceId": "b" * 32, "spanId": "3" * 16, "name": "grade", "attributes": {"session.id": "s"}}
    conversation = Conversation((), ("s",), [chat(), {**late, "events": [evaluation(label="pass")]}], [])
    (episode,) = conversation_episodes(conversation)
    assert episode.outcome.success is True


HELD_OUT = "count the red tulips that stand in the third bed behind the old greenhouse and write the number down"


@pytest.fixture
def plan(tmp_path):
    """A taskset of one train task and one held-out task."""
    folder = tmp_path / "tasksets" / "garden"
    folder.mkdir(parents=True)
    (folder / "taskset.yaml").write_text("name: garden\ndomain: coding\nenvironment: ratchet/sandbox\nversion: 1\n")
    common = {"taskset": "garden", "kind": "k", "domain": "coding"}
    tasks = [
        {"task_id": "garden/1", "family": "f1", "role": "train", "description": "sweep the path", **common},
        {"task_id": "garden/2", "family": "f2", "role": "promote", "description": HELD_OUT, **common},
    ]
    for task in tasks:
        (folder / f"{task['role']}.jsonl").write_text(json.dumps(task) + "\n")
    return TrafficPlan(100, 0, "coding", tmp_path / "tasksets", DuplicatesParams())


@pytest.fixture
def store(tmp_path):
    """Three conversations; feedback on all but the last, and the second repeats the held-out task."""
    made = TrafficStore(tmp_path / "traffic.db")
    requests = ["water the plants", HELD_OUT, "close the gate", "mow the lawn for jane.roe@example.org"]
    for number, request in enumerate(requests):
        trace = f"{number + 1:032x}"
        body = msgspec.json.encode(chat(trace, f"s{number}", request))
        feedback = [note(number != 0, f"s{number}", id=str(number))] if number != 2 else []
        made.commit([StoredSpan(trace, "1" * 16, f"s{number}", body)], feedback)
    yield made
    made.close()


def test_a_night_takes_the_proven_conversations_and_leaves_the_others_and_held_out_tasks(store, plan, tmp_path):
    report = take_night(store, "n1", plan, tmp_path / "spool", tmp_path / "n1")
    assert (report.episodes, report.successes, report.policy_version) == (2, 1, "m")
    sealed = list(read_folder(tmp_path / "n1"))
    assert [episode.outcome.success for episode in sealed] == [False, True]
    assert {episode.task.role for episode in sealed} == {"train"} and {episode.task.domain for episode in sealed} == {
        "coding"
    }
    assert "jane.roe" not in (tmp_path / "n1" / "shard-00000.jsonl").read_text()
    assert [item.sessions for item in store.settled(0)] == [("s1",), ("s2",)]


def test_feedback_that_arrives_after_a_night_counts_in_the_next(store, plan, tmp_path):
    take_night(store, "n1", plan, tmp_path / "spool", tmp_path / "n1")
    with pytest.raises(DataError, match="no conversation with an outcome yet"):
        take_night(store, "n2", plan, tmp_path / "spool", tmp_path / "n2")
    store.commit([], [note(True, "s2", id="late")])
    assert take_night(store, "n2", plan, tmp_path / "spool", tmp_path / "n2").episodes == 1
    ids = [item.episode_id for night in ("n1", "n2") for item in read_folder(tmp_path / night)]
    assert len(set(ids)) == 3


@pytest.mark.parametrize("effect", ["write_shard", "seal_folder", "store.delete"])
def test_a_night_that_is_killed_takes_the_same_episodes_again(store, plan, tmp_path, monkeypatch, effect):
    import ratchet.components.traffic.traffic_episodes as module

    target, name = (store, "delete") if effect == "store.delete" else (module, effect)
    with monkeypatch.context() as patch:
        patch.setattr(target, name, lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            take_night(store, "n1", plan, tmp_path / "spool", tmp_path / "n1")
    store.commit([], [note(True, "s2", id="late")])
    report = take_night(store, "n1", plan, tmp_path / "spool", tmp_path / "n1")
    assert report.episodes == 2
    assert take_night(store, "n2", plan, tmp_path / "spool", tmp_path / "n2").episodes == 1


def test_a_killed_night_whose_outcomes_were_all_contradicted_meanwhile_is_free_for_others(
    store, plan, tmp_path, monkeypatch
):
    import ratchet.components.traffic.traffic_episodes as module

    with monkeypatch.context() as patch:
        patch.setattr(module, "write_shard", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            take_night(store, "n1", plan, tmp_path / "spool", tmp_path / "n1")
    store.commit([], [note(True, "s0", id="no"), note(False, "s3", id="no, too"), note(True, "s2", id="late")])
    with pytest.raises(DataError, match="later feedback contradicts"):
        take_night(store, "n1", plan, tmp_path / "spool", tmp_path / "n1")
    assert take_night(store, "n1", plan, tmp_path / "spool", tmp_path / "n1").episodes == 1


def test_a_night_takes_at_most_the_episodes_that_it_may(store, plan, tmp_path):
    assert take_night(store, "n1", plan._replace(episodes=1), tmp_path / "spool", tmp_path / "n1").episodes == 1
    assert take_night(store, "n2", plan, tmp_path / "spool", tmp_path / "n2").episodes == 1
