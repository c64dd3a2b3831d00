"""Requests to the receiver: what is taken, and one clear error for each that is not."""

import asyncio
import gzip
import json
import threading
import zlib

import httpx
import pytest

from ratchet.components.core import InfrastructureError, http_requests
from ratchet.components.traffic import span_receiver
from ratchet.components.traffic.span_receiver import SpanReceiver
from ratchet.components.traffic.traffic_store import TrafficStore

JSON = {"content-type": "application/json"}


@pytest.fixture
def receiver(tmp_path):
    made = SpanReceiver(tmp_path / "traffic.db", "the key of the home")
    yield made
    made.close()


@pytest.fixture
def stored(tmp_path):
    def read():
        store = TrafficStore(tmp_path / "traffic.db")
        conversations = list(store.settled(0))
        store.close()
        return conversations

    return read


def post(receiver, *requests):
    """Send requests at once: (path, arguments of httpx). Return the responses."""

    async def all_of_them():
        transport = httpx.ASGITransport(receiver)
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
            return await asyncio.gather(*(client.post(path, **arguments) for path, arguments in requests))

    return asyncio.run(all_of_them())


def value(content):
    return {"stringValue": content} if isinstance(content, str) else {"intValue": str(content)}


def export(*spans):
    return {"resourceSpans": [{"scopeSpans": [{"spans": list(spans)}]}]}


def span(number=1, trace="a", **attributes):
    listed = [{"key": key.replace("_", "."), "value": value(content)} for key, content in attributes.items()]
    times = {"startTimeUnixNano": "1795843692016001893", "endTimeUnixNano": "1795843692016015152"}
    return {"traceId": trace * 32, "spanId": f"{number:016x}", "name": "chat", "attributes": listed, **times}


def traces(*spans, **arguments):
    return "/v1/traces", {"json": export(*spans), **arguments}


GOOD = traces(span(session_id="s"))
BOMB = gzip.compress(b" " * (40 << 20))


@pytest.mark.parametrize(
    ("request_", "status", "reason"),
    [
        (("/v1/traces", {"content": b"", "headers": JSON}), 400, "not JSON"),
        (("/v1/traces", {"content": b"{", "headers": JSON}), 400, "truncated"),
        (("/v1/traces", {"content": b"[]", "headers": JSON}), 400, "no JSON object"),
        (("/v1/traces", {"content": b'"\xff\xfe"', "headers": JSON}), 400, "not UTF-8"),
        (("/v1/traces", {"content": b"[" * 200_000, "headers": JSON}), 400, "unreadable"),
        (
            ("/v1/traces", {"content": b"\x0a\xff\xff", "headers": {"content-type": "application/x-protobuf"}}),
            400,
            "cut short",
        ),
        (("/v1/traces", {"content": b"{}"}), 415, "send application/json or application/x-protobuf"),
        (
            ("/v1/traces", {"content": b"{}", "headers": JSON | {"content-encoding": "br"}}),
            415,
            "send gzip, deflate or none",
        ),
        (("/v1/traces", {"content": b"{}", "headers": JSON | {"content-encoding": "gzip"}}), 400, "no valid gzip"),
        (
            ("/v1/traces", {"content": gzip.compress(b"{}")[:-6], "headers": JSON | {"content-encoding": "gzip"}}),
            400,
            "cut short",
        ),
        (
            ("/v1/traces", {"content": 2 * gzip.compress(b"{}"), "headers": JSON | {"content-encoding": "gzip"}}),
            400,
            "followed by something else",
        ),
        (("/v1/traces", {"content": BOMB, "headers": JSON | {"content-encoding": "gzip"}}), 413, "send less at once"),
        (("/v1/traces", {"content": b" " * (17 << 20), "headers": JSON}), 413, "send less at once"),
        (("/v1/metrics", {"json": {}}), 404, "send to /v1/traces"),
        (
            ("/v1/feedback", {"content": b"x", "headers": {"content-type": "application/x-protobuf"}}),
            415,
            "application/json",
        ),
        (("/v1/feedback", {"json": {"success": True}}), 400, "give trace_id or conversation_id"),
        (("/v1/feedback", {"json": {"trace_id": "jane.roe@shop.example.org", "success": True}}), 400, "no id of 32"),
        (("/v1/feedback", {"json": {"trace_id": "a"}}), 400, "give success, score or comment"),
        (("/v1/feedback", {"json": {"trace_id": "a", "sucess": True}}), 400, "its fields are trace_id"),
        (("/v1/feedback", {"json": {"trace_id": "a", "success": "yes"}}), 400, "Expected `bool | null`"),
    ],
)
def test_a_bad_request_gets_one_sentence_and_the_others_are_not_disturbed(receiver, stored, request_, status, reason):
    good, bad, later = post(receiver, GOOD, request_, traces(span(2, session_id="s")))
    assert (good.status_code, later.status_code) == (200, 200)
    assert bad.status_code == status and reason in bad.text and len(bad.text) < 600 and "\n" not in bad.text
    (conversation,) = stored()
    assert len(conversation.spans) == 2


def test_the_error_of_a_protobuf_request_is_a_status_message(receiver):
    status = pytest.importorskip("google.rpc.status_pb2", reason="googleapis-common-protos").Status
    headers = {"content-type": "application/x-protobuf"}
    bad, long = post(
        receiver,
        ("/v1/traces", {"content": b"\xff", "headers": headers}),
        ("/v1/traces", {"content": b"", "headers": headers | {"content-encoding": "x" * 300}}),
    )
    assert "no protocol buffer" in status.FromString(bad.content).message
    assert "send gzip" in status.FromString(long.content).message


def test_spans_without_valid_ids_are_rejected_and_counted_and_the_rest_is_stored(receiver, stored):
    bad = [{**span(), "traceId": "xyz"}, {**span(), "spanId": "0" * 16}, {**span(), "spanId": 7}]
    (response,) = post(receiver, traces(span(5), *bad))
    assert response.status_code == 200 and response.json()["partialSuccess"]["rejectedSpans"] == "3"
    assert [item["spanId"] for one in stored() for item in one.spans] == [f"{5:016x}"]


def test_log_records_of_no_span_are_counted_by_the_name_that_otlp_has_for_them(receiver):
    records = {"resourceLogs": [{"scopeLogs": [{"logRecords": [{"body": {"stringValue": "started"}}]}]}]}
    (response,) = post(receiver, ("/v1/logs", {"json": records}))
    partial = response.json()["partialSuccess"]
    assert partial["rejectedLogRecords"] == "1" and partial["errorMessage"].startswith("log records need")


def test_langfuses_sdk_may_send_to_the_path_that_it_knows(receiver, stored):
    (response,) = post(receiver, ("/api/public/otel/v1/traces", GOOD[1]))
    assert response.status_code == 200 and len(stored()) == 1


def test_a_batch_that_is_sent_again_doubles_nothing(receiver, stored):
    assert {answer.status_code for answer in post(receiver, GOOD, GOOD, GOOD)} == {200}
    assert len(stored()[0].spans) == 1 and receiver.counts["duplicates"] == 2


def test_log_records_are_kept_apart_from_their_span(receiver, stored):
    record = {**span(), "body": {"stringValue": "hello"}, "eventName": "gen_ai.user.message"}
    logs = {
        "resourceLogs": [{"scopeLogs": [{"logRecords": [record, {**record, "body": {"stringValue": "you"}}, record]}]}]
    }
    assert [answer.status_code for answer in post(receiver, GOOD, ("/v1/logs", {"json": logs}))] == [200, 200]
    assert len(stored()[0].spans) == 3


SECRETS = "mail jane.roe@shop.example.org, the key is sk-proj-4fT9wQz7LmNp2RsVx8Ya1BcD3eFgHj5K"


def test_nothing_is_written_before_it_is_sanitised_and_a_value_has_one_placeholder_in_all_requests(
    receiver, stored, tmp_path
):
    tricky = {**span(3, session_id="s"), "parentSpanId": SECRETS, "startTimeUnixNano": SECRETS, "name": SECRETS}
    tricky["links"] = [{"attributes": [{"key": "password", "value": {"stringValue": "hunter3-9x"}}]}]
    tricky["events"] = [{"name": SECRETS, "attributes": [{"key": "password", "value": {"stringValue": "hunter2-9x"}}]}]
    answers = post(
        receiver,
        traces(span(1, session_id="s", input_value=SECRETS)),
        traces(span(2, session_id="s", output_value=f"you wrote: {SECRETS}"), tricky),
        ("/v1/feedback", {"json": {"conversation_id": "s", "success": True, "comment": SECRETS}}),
    )
    assert {answer.status_code for answer in answers} == {200}
    (conversation,) = stored()
    texts = json.dumps(conversation.spans) + conversation.feedback[0].comment
    receiver.close()
    raw = b"".join(file.read_bytes() for file in tmp_path.iterdir())
    for secret in ("jane.roe", "4fT9wQz7LmNp2RsVx8Ya1BcD3eFgHj5K", "hunter2-9x", "hunter3-9x"):
        assert secret not in texts and secret.encode() not in raw
    values = {
        item["attributes"].get("input.value") or item["attributes"].get("output.value") for item in conversation.spans
    }
    first, second = sorted(filter(None, values), key=len)
    assert second == f"you wrote: {first}" and "[EMAIL_" in first


def test_a_session_id_that_is_personal_still_joins_feedback_also_after_a_restart(receiver, tmp_path):
    post(receiver, traces(span(1, session_id="jane.roe@shop.example.org")))
    again = SpanReceiver(tmp_path / "traffic.db", "the key of the home")
    note = {"conversation_id": "jane.roe@shop.example.org", "success": True}
    post(again, ("/v1/feedback", {"json": note}), traces(span(2, "b", session_id="jane.roe@shop.example.org")))
    again.close()
    store = TrafficStore(tmp_path / "traffic.db")
    (conversation,) = store.settled(0)
    assert len(conversation.spans) == 2 and conversation.feedback[0].success is True
    assert len({item["attributes"]["session.id"] for item in conversation.spans}) == 1


def test_feedback_that_is_sent_again_counts_once(receiver, stored):
    note = ("/v1/feedback", {"json": [{"trace_id": "A" * 32, "success": True}]})
    post(receiver, GOOD, note, note)
    assert len(stored()[0].feedback) == 1


def test_a_full_disk_asks_the_client_to_come_back(receiver, monkeypatch):
    def full(*_):
        raise InfrastructureError("the file is full")

    with monkeypatch.context() as patch:
        patch.setattr(TrafficStore, "commit", full)
        (answer,) = post(receiver, GOOD)
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "1") and "is full" in answer.text
    assert post(receiver, GOOD)[0].status_code == 200


def test_requests_that_would_wait_beyond_the_limit_are_refused_and_the_memory_is_free_again(receiver, monkeypatch):
    go_on = threading.Event()
    commit = TrafficStore.commit
    monkeypatch.setattr(TrafficStore, "commit", lambda *arguments: (go_on.wait(10), commit(*arguments))[1])
    monkeypatch.setattr(span_receiver, "MAX_WAITING_BYTES", 60_000)
    batches = [traces(*(span(number * 100 + index) for index in range(1, 51))) for number in range(20)]

    async def send():
        transport = httpx.ASGITransport(receiver)
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
            waiting = [asyncio.create_task(client.post(path, **arguments)) for path, arguments in batches]
            while not any(task.done() for task in waiting):
                await asyncio.sleep(0.01)
            go_on.set()
            return await asyncio.gather(*waiting)

    statuses = [answer.status_code for answer in asyncio.run(send())]
    assert set(statuses) == {200, 503}
    assert [answer.status_code for answer in post(receiver, batches[0])] == [200] and receiver._waiting_bytes == 0
    assert receiver.counts["stored"] + receiver.counts["duplicates"] == 50 * (statuses.count(200) + 1)


def test_a_body_that_does_not_arrive_is_given_up(receiver, monkeypatch):
    monkeypatch.setattr(http_requests, "BODY_SECONDS", 0.05)
    sent = []

    async def never():
        await asyncio.sleep(10)

    async def send(message):
        sent.append(message)

    scope = {
        "type": "http",
        "method": "POST",
        "path": "/v1/traces",
        "headers": [(b"content-type", b"application/json")],
    }
    asyncio.run(receiver(scope, never, send))
    assert sent[0]["status"] == 408 and b"did not arrive" in sent[1]["body"]


def test_a_client_that_leaves_before_its_answer_does_not_disturb_the_others(receiver, monkeypatch):
    commit, go_on = TrafficStore.commit, threading.Event()
    monkeypatch.setattr(TrafficStore, "commit", lambda *arguments: (go_on.wait(10), commit(*arguments))[1])

    async def send():
        async with httpx.AsyncClient(transport=httpx.ASGITransport(receiver), base_url="http://127.0.0.1") as client:
            tasks = [asyncio.create_task(client.post("/v1/traces", json=export(span(number)))) for number in (1, 2, 3)]
            await asyncio.sleep(0.1)
            tasks[0].cancel()
            tasks[1].cancel()
            go_on.set()
            return (await asyncio.gather(*tasks, return_exceptions=True))[2]

    assert asyncio.run(send()).status_code == 200
    assert post(receiver, traces(span(4)))[0].status_code == 200 and receiver._waiting_bytes == 0


def test_deflate_and_a_charset_are_read(receiver):
    body = zlib.compress(json.dumps(export(span())).encode())
    headers = {"content-type": "application/json; charset=utf-8", "content-encoding": "deflate"}
    assert post(receiver, ("/v1/traces", {"content": body, "headers": headers}))[0].status_code == 200


def test_the_status_counts_what_is_stored(receiver):
    post(receiver, GOOD)
    status = receiver.status()
    assert (status["spans"], status["traces"], status["since_start"]["stored"]) == (1, 1, 1)
