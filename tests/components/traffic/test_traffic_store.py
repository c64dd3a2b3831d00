"""The store of traffic: once, durably, within its size, and no conversation for two nights."""

import os

import msgspec
import pytest

from ratchet.components.core import InfrastructureError
from ratchet.components.traffic.traffic_store import Feedback, StoredSpan, TrafficStore


@pytest.fixture
def store(tmp_path):
    made = TrafficStore(tmp_path / "traffic" / "traffic.db")
    yield made
    made.close()


def span(trace, number=0, session=None, **body):
    return StoredSpan(
        trace, f"{number:016x}", session, msgspec.json.encode({"traceId": trace, "number": number, **body})
    )


def numbers(conversation):
    return [item["number"] for item in conversation.spans]


def claim(store, night, conversations):
    store.claim(night, [(item.traces, item.sessions) for item in conversations])


def test_a_span_that_is_sent_again_is_stored_once(store):
    assert store.commit([span("a"), span("a", 1)]).stored == 2
    counts = store.commit([span("a"), span("a", 2)])
    assert (counts.stored, counts.duplicates) == (1, 1)
    assert store.stats().spans == 3


def test_traces_that_share_a_session_are_one_conversation(store):
    store.commit([span("a", 0, "s"), span("b", 1), span("a", 2, "t"), span("c", 3, "t")])
    assert [(item.traces, numbers(item)) for item in store.settled(0)] == [(("a", "c"), [0, 2, 3]), (("b",), [1])]


def test_feedback_joins_by_trace_or_session_also_before_the_spans(store):
    store.commit([], [Feedback(trace_id="a", success=True, id="1"), Feedback(conversation_id="s", score=0.5, id="2")])
    store.commit([span("a", 0, "s"), span("b")])
    first, second = store.settled(0)
    assert [note.id for note in first.feedback] == ["1", "2"] and second.feedback == []


def test_feedback_under_the_same_id_replaces_the_former(store):
    store.commit([span("a")], [Feedback(trace_id="a", success=False, id="1")])
    store.commit([], [Feedback(trace_id="a", success=True, id="1")])
    assert [note.success for note in next(store.settled(0)).feedback] == [True]


def test_a_conversation_to_which_something_is_added_is_not_settled(store):
    store.commit([span("a")])
    assert list(store.settled(60)) == [] and len(list(store.settled(0))) == 1


def test_a_claimed_conversation_is_not_offered_again_and_takes_nothing_more(store):
    store.commit([span("a", 0, "s"), span("b", 1)])
    claim(store, "n1", list(store.settled(0))[:1])
    assert [item.traces for item in store.settled(0)] == [("b",)]
    assert [numbers(item) for item in store.claimed("n1")] == [[0]]
    # The same conversation goes on in a new trace: it would be a second episode of one identity.
    assert store.commit([span("a", 2), span("c", 3, "s")]).late == 2
    store.delete("n1")
    assert store.commit([span("a", 0, "s")]).late == 1, "a retry after the night does not bring it back"
    assert store.stats().spans == 1 and store.stats().taken == 1


def test_a_session_that_continues_while_it_is_claimed_is_not_offered_again(store):
    store.commit([span("a", 0, "s")])
    conversations = list(store.settled(0))
    store.commit([span("c", 3, "s")])
    claim(store, "n1", conversations)
    assert list(store.settled(0)) == []


def test_deleting_a_nights_conversations_leaves_the_feedback_on_others(store):
    notes = [Feedback(conversation_id="s", success=True, id="1"), Feedback(trace_id="b", success=True, id="2")]
    store.commit([span("a", 0, "s"), span("b")], notes)
    claim(store, "n1", list(store.settled(0))[:1])
    store.delete("n1")
    assert [note.id for item in store.settled(0) for note in item.feedback] == ["2"] and store.stats().feedback == 1


def test_a_conversation_of_too_many_spans_is_never_offered(store, monkeypatch):
    monkeypatch.setattr("ratchet.components.traffic.traffic_store.MAX_CONVERSATION_SPANS", 2)
    store.commit([span(trace, 0, "everything") for trace in "abc"] + [span("d")])
    assert [item.traces for item in store.settled(0)] == [("d",)]


def test_what_no_night_takes_expires(store):
    store.commit([span("a")], [Feedback(trace_id="a", success=True, id="1")])
    assert store.expire(1) == 0 and store.expire(-1) == 1
    assert store.stats().spans == store.stats().feedback == 0


def test_a_full_store_takes_a_whole_commit_or_nothing_and_keeps_what_it_has(tmp_path):
    store = TrafficStore(tmp_path / "t.db", max_bytes=200_000)
    store.commit([span("a")])
    with pytest.raises(InfrastructureError, match="is full; let a night take"):
        store.commit([span("b", number, text=os.urandom(4000).hex()) for number in range(100)])
    assert store.stats().spans == 1
    assert sum(file.stat().st_size for file in tmp_path.iterdir()) < 2_000_000
    store.commit([span("c")])
    assert store.stats().spans == 2


def test_spans_are_there_after_the_file_is_opened_again(store):
    store.commit([span("a")])
    assert TrafficStore(store.path).stats().spans == 1
