"""A gateway over HTTP: real SDKs, sessions and their limits, and requests of people who mean it ill."""

import asyncio
import http.client
import json
import multiprocessing
import os
import resource
import signal
import socket
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from pathlib import Path

import pytest

from ratchet.components.core import (
    ConfigurationError,
    InfrastructureError,
    Policy,
    PolicyReply,
    ToolCall,
    Usage,
    http_requests,
)
from ratchet.components.models.gateway import gateway_server, gateway_sessions
from ratchet.components.models.gateway.gateway_server import GatewayServer
from ratchet.components.models.gateway.gateway_sessions import Gateway, SessionLimits
from ratchet.components.models.gateway.policy_queue import PolicyQueue

pytestmark = pytest.mark.slow
KEY = "k" * 32
TOOL = {"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}
AUTH = {"Authorization": f"Bearer {KEY}"}


class Scripted(Policy):
    """Two parallel calls to the first message, then text. `busy`: requests in work wait for `release`."""

    name, version, sampling = "scripted", "v1", {}

    def __init__(self):
        self.release = threading.Event()
        self.release.set()
        self.asked = []

    def act(self, requests):
        return [self._reply(request) for request in requests]

    def _reply(self, request):
        self.asked.append(request)
        self.release.wait(30)
        content = request.messages[-1]["content"]
        if content == "unreachable":
            raise InfrastructureError("the model is away")
        calls = ()
        if request.tools and request.messages[-1]["role"] == "user":
            calls = (ToolCall("0", "look", {"at": "a"}), ToolCall("1", "look", {"at": "b"}))
        return PolicyReply("Hello END rest", calls, usage=Usage(11, 5))


@contextmanager
def serving(policy=None, waiting=1024, concurrency=64, keeping=None, **limits):
    policy, kept = policy or Scripted(), []

    async def keep(session, branches):
        if keeping is not None:
            await keeping(session)
        kept.append((session, branches))

    def make():
        queue = PolicyQueue(policy, concurrency=concurrency, waiting=waiting)
        return Gateway(policy, "test", keep, key=KEY, limits=SessionLimits(**limits), queue=queue)

    with GatewayServer(make) as server:
        server.kept, server.policy = kept, policy
        yield server


def post(server, path, body, headers=None, method="POST"):
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=20)
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    connection.request(method, path, data, AUTH if headers is None else headers)
    answer = connection.getresponse()
    text = answer.read()
    return answer.status, json.loads(text) if text[:1] in (b"{", b"[") else text, answer


def wait_until(condition):
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


def hello(content="hi", **more):
    return {"model": "m", "messages": [{"role": "user", "content": content}], **more}


def finished(server, name="default", **outcome):
    assert post(server, f"/s/{name}/finish", outcome)[0] == 200
    return [trajectory for trajectory, _ in server.kept[-1][1]]


# real clients


@pytest.mark.parametrize("stream", [False, True])
def test_openai_sdk_over_chat_completions(stream):
    openai = pytest.importorskip("openai")
    with serving() as server, openai.OpenAI(base_url=f"{server.root}/s/a/v1", api_key=KEY, max_retries=0) as client:
        messages = [{"role": "user", "content": "go"}]
        if stream:
            with client.chat.completions.stream(model="m", messages=messages, tools=[TOOL]) as events:
                for _ in events:
                    pass
                choice = events.get_final_completion().choices[0]
        else:
            choice = client.chat.completions.create(model="m", messages=messages, tools=[TOOL]).choices[0]
        assert choice.finish_reason == "tool_calls" and len(choice.message.tool_calls) == 2
        messages.append(choice.message.model_dump(exclude_none=True))
        messages += [{"role": "tool", "tool_call_id": call.id, "content": "x"} for call in choice.message.tool_calls]
        assert client.chat.completions.create(model="m", messages=messages, tools=[TOOL]).usage.prompt_tokens == 11
        (record,) = finished(server, "a", success=True)
    assert [len(turn.calls) for turn in record.turns] == [2, 0]
    assert [result.call_id for result in record.turns[0].results] == [call.call_id for call in record.turns[0].calls]


@pytest.mark.parametrize("stream", [False, True])
def test_openai_sdk_over_responses(stream):
    openai = pytest.importorskip("openai")
    tools = [{"type": "function", "name": "look", "parameters": {"type": "object"}, "strict": False}]
    with serving() as server, openai.OpenAI(base_url=f"{server.root}/s/a/v1", api_key=KEY, max_retries=0) as client:
        if stream:
            with client.responses.stream(model="m", input="go", tools=tools) as events:
                for _ in events:
                    pass
                first = events.get_final_response()
        else:
            first = client.responses.create(model="m", input="go", tools=tools)
        calls = [item for item in first.output if item.type == "function_call"]
        assert len(calls) == 2 and first.output_text == "Hello END rest" and first.usage.output_tokens == 5
        outputs = [{"type": "function_call_output", "call_id": call.call_id, "output": "x"} for call in calls]
        second = client.responses.create(model="m", input=outputs, previous_response_id=first.id)
        assert second.output_text == "Hello END rest"
        (record,) = finished(server, "a")
    assert [len(turn.calls) for turn in record.turns] == [2, 0]


@pytest.mark.parametrize("stream", [False, True])
def test_anthropic_sdk_over_messages(stream):
    anthropic = pytest.importorskip("anthropic")
    asked = {"model": "m", "max_tokens": 9, "tools": [{"name": "look", "input_schema": {"type": "object"}}]}
    with serving() as server, anthropic.Anthropic(base_url=f"{server.root}/s/a", api_key=KEY, max_retries=0) as client:
        talk = [{"role": "user", "content": "go"}]
        if stream:
            with client.messages.stream(messages=talk, **asked) as events:
                first = events.get_final_message()
        else:
            first = client.messages.create(messages=talk, **asked)
        uses = [block for block in first.content if block.type == "tool_use"]
        assert first.stop_reason == "tool_use" and [use.input for use in uses] == [{"at": "a"}, {"at": "b"}]
        results = [{"type": "tool_result", "tool_use_id": use.id, "content": "x"} for use in uses]
        talk += [{"role": "assistant", "content": first.content}, {"role": "user", "content": results}]
        assert client.messages.create(messages=talk, **asked).stop_reason == "end_turn"
        assert client.messages.count_tokens(model="m", messages=talk).input_tokens > 0
        (record,) = finished(server, "a")
    assert len(record.turns) == 2 and server.policy.asked[0].max_new_tokens == 9


@pytest.mark.parametrize("stream", [False, True])
def test_the_tool_runner_of_anthropics_sdk_sends_new_messages_alone(stream):
    anthropic = pytest.importorskip(
        "anthropic", minversion="2.14", reason="needs anthropic 2.14, whose runner has threads"
    )
    places = []

    @anthropic.beta_tool
    def look(at: str) -> str:
        """Look."""
        places.append(at)
        return "seen"

    asked = {"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": "go"}]}
    with serving() as server, anthropic.Anthropic(base_url=f"{server.root}/s/a", api_key=KEY, max_retries=0) as client:
        for turn in client.beta.messages.tool_runner(**asked, tools=[look], stream=stream):
            last = turn.get_final_message() if stream else turn
        assert last.stop_reason == "end_turn" and places == ["a", "b"]
        (record,) = finished(server, "a")
    assert [len(turn.results) for turn in record.turns] == [2, 0]


# sessions


def test_a_stop_text_ends_the_reply_and_is_named():
    with serving() as server:
        assert post(server, "/v1/messages", hello(stop_sequences=["END"]))[1]["stop_sequence"] == "END"
        assert (
            post(server, "/v1/chat/completions", hello(stop="END"))[1]["choices"][0]["message"]["content"] == "Hello "
        )


def test_nothing_behind_a_stop_text_is_recorded_or_read_by_the_model_later():
    pytest.importorskip("transformers")
    from chat_templates import chat_tokenizer

    from ratchet.components.models.sampled_policy import Sampled, SampledPolicy, SamplingParameters

    tokenizer, prompts = chat_tokenizer("chatml"), []
    ids = tuple(tokenizer.encode("Action: look\nObservation: invented", add_special_tokens=False))

    class Sampler:
        stops, context_length = (), 4096

        def sample(self, asked, seeds, sampling):
            prompts.extend(asked)
            return [Sampled(ids, (-1.0,) * len(ids)) for _ in asked]

    policy = SampledPolicy(Sampler(), tokenizer, SamplingParameters(max_new_tokens=64), version="v")
    policy.name = "sampled"
    with serving(policy) as server:
        asked = hello(stop="Observation:")
        reply = post(server, "/v1/chat/completions", asked)[1]["choices"][0]["message"]
        asked["messages"] += [{"role": "assistant", "content": reply["content"].strip()}, *hello("seen")["messages"]]
        post(server, "/v1/chat/completions", asked)
        finished(server)
    ((_, ((record, rows),)),) = server.kept
    assert [turn.text for turn in record.turns] == ["Action: look\n"] * 2
    sampled = rows[0].trace.completion_ids
    assert sampled == ids[: len(sampled)] and tokenizer.decode(sampled).startswith("Action: look\nObservation:")
    assert "invented" not in tokenizer.decode(prompts[1]) and prompts[1][: rows[1].trace.kept] == [
        *prompts[0],
        *sampled,
    ]


def test_the_list_of_models_has_the_form_of_both_apis_and_every_name_is_a_model():
    with serving() as server:
        _, listed, _ = post(server, "/v1/models?limit=20", b"", method="GET")
        (model,) = listed["data"]
        assert (model["object"], model["type"], listed["has_more"], listed["last_id"]) == (
            "model",
            "model",
            False,
            "v1",
        )
        _, one, _ = post(server, "/v1/models/vendor/some-model", b"", method="GET")
        assert one == {**model, "id": "vendor/some-model", "display_name": "vendor/some-model"}
        assert post(server, "/v1/models/m", b"", {}, "GET")[0] == 401


def test_a_websocket_is_refused_with_the_status_at_which_clients_go_on_without():
    upgrade = {**AUTH, "Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "13"}
    with serving() as server:
        status, error, _ = post(server, "/v1/responses", b"", {**upgrade, "Sec-WebSocket-Key": "eA=="}, "GET")
        assert status == 426 and "POST" in error["error"]["message"]


def test_a_chunk_of_a_chat_stream_has_text_or_one_call():
    with serving() as server:
        _, text, _ = post(server, "/v1/chat/completions", hello(stream=True, tools=[TOOL]))
    lines = [line[6:] for line in text.decode().splitlines() if line.startswith("data: {")]
    deltas = [choice["delta"] for line in lines for choice in json.loads(line)["choices"]]
    assert deltas[:2] == [{"role": "assistant", "content": ""}, {"content": "Hello END rest"}]
    assert [list(delta) for delta in deltas[2:]] == [["tool_calls"]] * 4 + [[]]
    calls = [call for delta in deltas[2:-1] for call in delta["tool_calls"]]
    assert [call["index"] for call in calls] == [0, 0, 1, 1] and calls[0]["function"]["name"] == "look"
    assert [json.loads(call["function"]["arguments"])["at"] for call in calls[1::2]] == ["a", "b"]


def test_a_thread_of_messages_continues_a_reply_and_a_lost_one_is_told_in_anthropics_words():
    tools = [{"name": "look", "input_schema": {"type": "object"}}]
    with serving() as server:
        start = hello("go", system="Look.", tools=tools, thread={"type": "create"})
        _, first, _ = post(server, "/v1/messages", start)
        uses = [block for block in first["content"] if block["type"] == "tool_use"]
        results = [{"type": "tool_result", "tool_use_id": use["id"], "content": "x"} for use in uses]
        talk = {"messages": [{"role": "user", "content": results}]}
        thread = {"type": "continue", "previous_message_id": first["id"]}
        assert post(server, "/v1/messages", {**talk, "thread": thread})[1]["stop_reason"] == "end_turn"
        lost = {**thread, "previous_message_id": "msg_x"}
        status, body, _ = post(server, "/v1/messages", {**talk, "thread": lost})
        (record,) = finished(server)
    assert (status, body["error"]["type"]) == (404, "not_found_error")
    assert body["error"]["details"]["error_code"] == "thread_not_found"
    assert [(len(turn.calls), len(turn.results)) for turn in record.turns] == [(2, 2), (0, 0)]
    assert [message.role for message in record.messages] == ["system", "user"]


def test_a_thread_keeps_its_tools_while_each_request_chooses_among_them_and_asks_for_its_own_schema():
    tools = [{"name": name, "input_schema": {"type": "object"}} for name in ("look", "go")]
    form = {"output_config": {"format": {"type": "json_schema", "schema": {"type": "object"}}}}
    demanded = {"tool_choice": {"type": "tool", "name": "look"}}
    with serving() as server:
        _, last, _ = post(
            server, "/v1/messages", hello("x", tools=tools, thread={"type": "create"}, **demanded, **form)
        )
        for change in ({**demanded, **form}, {}, {"tool_choice": {"type": "none"}}):
            thread = {"type": "continue", "previous_message_id": last["id"]}
            body = hello("y", thread=thread, **change)
            assert post(server, "/v1/messages/count_tokens", body)[1]["input_tokens"] > 6  # those of the whole thread
            status, last, _ = post(server, "/v1/messages", body)
            assert status == 200
        finished(server)
    asked = server.policy.asked
    assert [[tool.name for tool in each.tools] for each in asked] == [["look"], ["look"], ["look", "go"], []]
    roles = [[message["role"] for message in each.messages if message["role"] != "assistant"] for each in asked]
    assert roles == [["system", "user"], ["system", "user", "user"], ["user"] * 3, ["user"] * 4]


def test_messages_may_end_with_a_begun_reply_where_they_are_counted_and_not_where_they_are_answered():
    body = {"messages": [{"role": "user", "content": "x"}, {"role": "assistant", "content": "{"}]}
    with serving() as server:
        assert post(server, "/v1/messages/count_tokens", body)[1]["input_tokens"] > 0
        status, error, _ = post(server, "/v1/messages", body)
        assert (status, error["error"]["type"]) == (400, "invalid_request_error")


@pytest.mark.parametrize(("second", "roles"), [("Look.", ["system", "user"]), ("Look on.", None), (None, None)])
def test_instructions_are_for_one_response_and_not_for_those_that_continue_it(second, roles):
    with serving() as server:
        _, first, _ = post(server, "/v1/responses", {"instructions": "Look.", "input": "go"})
        further = {"instructions": second, "input": "on", "previous_response_id": first["id"]}
        assert post(server, "/v1/responses", further)[0] == 200
        records = finished(server)
    read = [message for message in server.policy.asked[1].messages if message["role"] == "system"]
    assert [message["content"] for message in read] == ([second] if second else [])
    assert len(records) == (1 if roles else 2)


def test_a_request_may_refer_to_the_items_of_earlier_replies():
    tools = [{"type": "function", "name": "look", "parameters": {"type": "object"}}]
    with serving() as server:
        _, first, _ = post(server, "/v1/responses", {"input": "go", "tools": tools})
        kinds = ("item_reference", "item_reference", None)
        references = [
            {"id": item["id"], **({"type": kind} if kind else {})}
            for kind, item in zip(kinds, first["output"], strict=True)
        ]
        calls = [item for item in first["output"] if item["type"] == "function_call"]
        outputs = [{"type": "function_call_output", "call_id": call["call_id"], "output": "x"} for call in calls]
        body = {"input": [{"role": "user", "content": "go"}, *references, *outputs], "tools": tools}
        assert post(server, "/v1/responses", body)[0] == 200
        own = [item["id"] for item in first["output"]]
        strange = ("msg_" + "0" * 30, own[0][:-1] + "9", own[1] + "7", own[0] + "_0", own[0] + "0" * 9_000, "x")
        for names in (*([name] for name in strange), [own[0]] * 2):
            references = [{"type": "item_reference", "id": name} for name in names]
            status, error, _ = post(server, "/v1/responses", {"input": references})
            assert status == 400 and names[0][:60] in error["error"]["message"]
        (record,) = finished(server)
    assert [(len(turn.calls), len(turn.results)) for turn in record.turns] == [(2, 2), (0, 0)]


def test_a_session_has_a_key_of_its_own_that_opens_no_other_session():
    with serving() as server:
        _, one, _ = post(server, "/sessions", {"name": "one", "task_id": "t", "seed": 5})
        _, two, _ = post(server, "/sessions", {"name": "two"})
        assert post(server, "/v1/chat/completions", hello(), {"x-api-key": one["key"]})[0] == 200
        assert post(server, "/s/two/v1/chat/completions", hello(), {"x-api-key": one["key"]})[0] == 403
        assert post(server, "/sessions", {}, {"x-api-key": two["key"]})[0] == 401
        (record,) = finished(server, "one", score=0.5)
        assert post(server, "/v1/chat/completions", hello(), {"x-api-key": one["key"]})[0] == 403
    assert record.task.task_id == "t" and record.outcome.score == 0.5 and record.provenance.source == "gateway"


def test_attempts_at_one_task_have_seeds_of_their_own_unless_the_caller_names_one():
    with serving() as server:
        asked = [{"task_id": "t"}, {"task_id": "t"}, {"task_id": "t", "seed": 5}]
        names = [post(server, "/sessions", body)[1]["name"] for body in asked]
        records = []
        for name in names:
            assert post(server, f"/s/{name}/v1/chat/completions", hello())[0] == 200
            records += finished(server, name)
    sampled = [request.seed for request in server.policy.asked]
    assert sampled == [record.seed for record in records] and len(set(sampled)) == 3 and sampled[2] == 5
    assert len({record.group_id for record in records}) == 1


def test_sessions_end_with_the_gateway_and_when_they_are_idle(monkeypatch):
    monkeypatch.setattr(gateway_server, "SWEEP_SECONDS", 0.05)
    with serving(idle_seconds=0.1) as server:
        post(server, "/s/a/v1/chat/completions", hello())
        end = time.monotonic() + 10
        while not server.kept and time.monotonic() < end:
            time.sleep(0.02)
        post(server, "/s/b/v1/chat/completions", hello())
    assert [branches[0][0].outcome.reason for _, branches in server.kept] == ["idle", "gateway_stopped"]


@pytest.mark.parametrize("error", [InfrastructureError("the disk is full"), ValueError("a fault of ours")])
def test_a_session_that_cannot_be_recorded_costs_no_other_one_and_is_reported_at_the_end(error, monkeypatch):
    monkeypatch.setattr(gateway_server, "SWEEP_SECONDS", 0.05)

    async def keeping(session):
        if session.name == "bad":
            raise error

    reported = pytest.raises(InfrastructureError, match=f"1 of 1 sessions .*{error}")
    with reported, serving(keeping=keeping, idle_seconds=0.1) as server:
        for name in ("bad", "good"):
            post(server, f"/s/{name}/v1/chat/completions", hello())
        wait_until(lambda: server.kept)  # the idle one behind it
        wait_until(lambda: post(server, "/health", {}, method="GET")[1]["sessions"] == 1)
    assert [session.name for session, _ in server.kept] == ["good"]


@pytest.mark.parametrize("stopped", [False, True])
def test_a_session_that_is_being_recorded_is_recorded_once_and_every_answer_waits_for_it(stopped):
    begun, release, answers = threading.Event(), threading.Event(), []

    async def keeping(session):
        begun.set()
        await asyncio.to_thread(release.wait, 20)

    def finish():
        answers.append(post(server, "/s/a/finish", {"success": True}, {"x-api-key": key})[1])

    with serving(keeping=keeping) as server:
        key = post(server, "/sessions", {"name": "a"})[1]["key"]
        post(server, "/s/a/v1/chat/completions", hello())
        threads = [threading.Thread(target=finish, daemon=True) for _ in range(1 if stopped else 2)]
        for thread in threads:
            thread.start()
            begun.wait(10)
        if stopped:
            threading.Timer(0.3, release.set).start()
        else:
            time.sleep(0.2)
            assert not answers
            release.set()
            [thread.join() for thread in threads]
    ((_, branches),) = server.kept
    assert branches[0][0].outcome.success
    assert stopped or answers == [{"episodes": [branches[0][0].episode_id]}] * 2


@pytest.mark.parametrize(("limits", "asked"), [({"requests": 1}, 1), ({"tokens": 4}, 1), ({"seconds": 1e-9}, 0)])
def test_a_budget_is_refused_for_good_so_that_clients_do_not_repeat(limits, asked):
    with serving(**limits) as server:
        statuses = [post(server, "/v1/chat/completions", hello())[0] for _ in range(3)]
    assert statuses == [200] * asked + [403] * (3 - asked)


def test_a_request_that_got_no_reply_uses_nothing_of_the_limit():
    with serving(requests=2) as server:
        statuses = [post(server, "/v1/chat/completions", hello(text))[0] for text in ("unreachable", "hi", "hi", "hi")]
        assert statuses == [502, 200, 200, 403]
        seeds = {request.turn for request in server.policy.asked}
    assert len(seeds) == 3  # a repeated request is sampled anew


def test_a_model_that_does_not_answer_in_time_is_a_failure_of_the_infrastructure():
    policy = Scripted()
    policy.release.clear()
    with serving(policy, request_seconds=0.05) as server:
        assert post(server, "/v1/chat/completions", hello())[0] == 504
        policy.release.set()
        assert server.gateway.find({KEY}, None).model_failure


def test_too_many_requests_are_put_off_and_not_lost():
    policy = Scripted()
    policy.release.clear()
    with serving(policy, concurrency=1, waiting=1) as server:
        replies = []
        threads = [
            threading.Thread(target=lambda n=n: replies.append(post(server, f"/s/s{n}/v1/messages", hello())[0]))
            for n in range(2)
        ]
        [thread.start() for thread in threads]
        while server.gateway.queue.pending < 2:
            time.sleep(0.01)
        status, body, answer = post(server, "/s/x/v1/messages", hello())
        assert (status, body["error"]["type"], answer.getheader("retry-after")) == (429, "rate_limit_error", "1")
        policy.release.set()
        [thread.join() for thread in threads]
    assert replies == [200, 200]


def test_a_model_that_is_away_is_a_bad_gateway():
    with serving() as server:
        assert post(server, "/v1/chat/completions", hello("unreachable"))[0] == 502


def test_a_client_that_goes_away_in_a_stream_costs_no_turn_and_disturbs_nobody(monkeypatch):
    monkeypatch.setattr(gateway_server, "PING_SECONDS", 0.05)
    policy = Scripted()
    policy.release.clear()
    with serving(policy) as server:
        connection = http.client.HTTPConnection("127.0.0.1", server.port)
        connection.request("POST", "/v1/chat/completions", json.dumps(hello(stream=True)), AUTH)
        assert connection.getresponse().read(6) == b": ping"
        connection.sock.close() if connection.sock else None
        connection.close()
        policy.release.set()
        assert post(server, "/s/other/v1/chat/completions", hello())[0] == 200


def test_a_client_that_goes_away_before_its_reply_costs_no_turn():
    policy = Scripted()
    policy.release.clear()
    with serving(policy) as server:
        connection = http.client.HTTPConnection("127.0.0.1", server.port)
        connection.request("POST", "/v1/chat/completions", json.dumps(hello()), AUTH)
        wait_until(lambda: policy.asked)
        connection.close()
        wait_until(lambda: server.gateway.state()["waiting"] == 0)
        policy.release.set()
        assert post(server, "/s/other/v1/chat/completions", hello())[0] == 200
        assert post(server, "/finish", {})[1] == {"episodes": []}


@pytest.mark.parametrize("path", ["chat/completions", "responses", "messages"])
def test_a_fault_of_the_policy_in_a_stream_that_has_begun_is_an_event_of_the_stream(monkeypatch, path):
    monkeypatch.setattr(gateway_server, "PING_SECONDS", 0.05)

    class Faulty(Scripted):
        def _reply(self, request):
            super()._reply(request)
            raise ValueError("a fault of ours")

    policy = Faulty()
    policy.release.clear()
    with serving(policy) as server:
        threading.Timer(0.3, policy.release.set).start()
        status, text, _ = post(server, f"/v1/{path}", hello(stream=True, input="hi", max_tokens=9))
    assert status == 200 and b"ping" in text and b"its log has the reason" in text.splitlines()[-2]


def test_other_sessions_are_answered_while_the_record_of_a_long_one_is_made(monkeypatch):
    made, make = threading.Event(), gateway_sessions.branch_records
    monkeypatch.setattr(gateway_sessions, "branch_records", lambda *given: made.wait(10) and make(*given))
    with serving() as server:
        post(server, "/s/long/v1/chat/completions", hello())
        thread = threading.Thread(target=post, args=(server, "/s/long/finish", {}))
        thread.start()
        wait_until(lambda: server.gateway.find({KEY}, "long").ended)
        assert post(server, "/s/other/v1/chat/completions", hello())[0] == 200
        assert not server.kept
        made.set()
        thread.join()
    assert len(server.kept) == 2


def test_an_answer_is_one_packet():
    body = json.dumps(hello()).encode()
    head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {KEY}\r\nContent-Length: {len(body)}"
    with serving() as server, socket.create_connection(("127.0.0.1", server.port), 20) as client:
        for _ in range(3):
            client.sendall(f"{head}\r\n\r\n".encode() + body)
            answer = client.recv(1 << 16).partition(b"\r\n\r\n")
            assert json.loads(answer[2])["object"] == "chat.completion"


# hostile requests


HOSTILE = {
    "no key": (hello(), {}, {401}),
    "wrong key": (hello(), {"x-api-key": "x" * 32}, {401}),
    "empty key": (hello(), {"Authorization": "Bearer "}, {401}),
    "two keys": (hello(), {**AUTH, "x-api-key": "other"}, {400}),
    "basic password": (hello(), {"Authorization": "Basic eDp5"}, {401}),
    "session with a path": (hello(), {**AUTH, "X-Ratchet-Session": "../../etc"}, {400}),
    "session of 10,000 characters": (hello(), {**AUTH, "X-Ratchet-Session": "a" * 10_000}, {400}),
    "foreign host": (hello(), {**AUTH, "Host": "evil.example"}, {403}),
    "foreign origin": (hello(), {**AUTH, "Origin": "http://evil.example"}, {403}),
    "page of another site": (hello(), {**AUTH, "Sec-Fetch-Site": "cross-site"}, {403}),
    "no json": (b"{", AUTH, {400}),
    "empty body": (b"", AUTH, {400}),
    "not utf-8": (b'{"messages": "\xff"}', AUTH, {400}),
    "list": (b"[]", AUTH, {400}),
    "deep": (b'{"a":' * 5000 + b"1" + b"}" * 5000, AUTH, {400}),
    "deeper than the parser": (b"[" * 2_000_000, AUTH, {400}),
    "no messages": ({"model": "m"}, AUTH, {400}),
    "messages are text": ({"messages": "x"}, AUTH, {400}),
    "message is a number": ({"messages": [1]}, AUTH, {400}),
    "unknown role": ({"messages": [{"role": "root", "content": "x"}]}, AUTH, {400}),
    "content is a number": ({"messages": [{"role": "user", "content": 1}]}, AUTH, {400}),
    "image": ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, AUTH, {400}),
    "tool without a name": (hello(tools=[{"type": "function", "function": {}}]), AUTH, {400}),
    "tool with a schema of text": (hello(tools=[{"function": {"name": "x", "parameters": "y"}}]), AUTH, {400}),
    "choice of no tool": (hello(tool_choice={"type": "function", "function": {"name": "x"}}), AUTH, {400}),
    "choice that is a list": (hello(tool_choice=["x"]), AUTH, {400}),
    "negative limit": (hello(max_tokens=-1), AUTH, {400}),
    "limit of 400 digits": (
        b'{"messages":[{"role":"user","content":"x"}],"max_tokens":' + b"9" * 400 + b"}",
        AUTH,
        {200, 400},
    ),
    "stream is text": (hello(stream="yes"), AUTH, {400}),
    "announced length of a terabyte": (b"", {**AUTH, "Content-Length": str(1 << 40)}, {413}),
}


def test_thirty_hostile_requests_get_one_clear_error_each_and_disturb_nobody(monkeypatch):
    monkeypatch.setattr(gateway_server, "MAX_BODY", 4 << 20)
    answered = 0
    with serving() as server:
        for name, (body, headers, statuses) in HOSTILE.items():
            status, error, _ = post(server, "/v1/chat/completions", body, headers)
            assert status in statuses, name
            if isinstance(error, dict) and status != 200:
                message = error["error"]["message"]
                assert message and "\n" not in message and "Traceback" not in message, name
            answered += 1
            assert post(server, "/s/honest/v1/chat/completions", hello())[0] == 200, name
        paths = [("/v1/nothing", "POST", 404), ("/v1/chat/completions/", "GET", 405)]
        for path, method, expected in (*paths, ("/s/../v1/messages", "POST", 400), ("//", "POST", 404)):
            assert post(server, path, hello(), AUTH, method)[0] == expected, path
            answered += 1
        # a body that grows without an announced length
        assert (
            raw(
                server,
                head("Transfer-Encoding: chunked")
                + b"400000\r\n"
                + b"a" * 0x400000
                + b"\r\n400000\r\n"
                + b"a" * 0x400000
                + b"\r\n",
            )[:12]
            == b"HTTP/1.1 413"
        )
        # smuggling: two lengths, a length beside chunks, a second request inside the body
        assert raw(server, head("Content-Length: 3", "Content-Length: 5") + b"{}{}{")[:12] == b"HTTP/1.1 400"
        smuggled = raw(server, head("Content-Length: 2") + b"{}GET /sessions HTTP/1.1\r\nHost: x\r\n\r\n")
        assert smuggled[:12] == b"HTTP/1.1 400"
        # slow: headers that never end are cut off, a body that never comes is refused
        with monkeypatch.context() as patch:
            patch.setattr(http_requests, "HEAD_SECONDS", 0.3)
            assert raw(server, b"POST /v1/messages HTTP/1.1\r\nHost: 127") == b""
        with monkeypatch.context() as patch:
            patch.setattr(http_requests, "BODY_SECONDS", 0.3)
            assert raw(server, head("Content-Length: 10") + b"{")[:12] == b"HTTP/1.1 408"
        answered += 5
        assert post(server, "/s/honest/v1/chat/completions", hello())[0] == 200
        (record,) = finished(server, "honest")[:1]
    assert answered >= 30 and record.turns
    assert not {session.name for session, _ in server.kept} - {"honest", "default"}


def head(*fields):
    return "\r\n".join(
        ["POST /v1/chat/completions HTTP/1.1", "Host: 127.0.0.1", f"Authorization: Bearer {KEY}", *fields, "", ""]
    ).encode()


def raw(server, data):
    with socket.create_connection(("127.0.0.1", server.port), timeout=10) as connection:
        try:
            connection.sendall(data)
            return connection.recv(65536)
        except OSError as error:
            return f"{type(error).__name__}".encode()


# what is stored


def test_a_stored_session_holds_no_key_and_survives_a_kill(tmp_path):
    from ratchet.components.models.gateway.session_store import SessionStore
    from ratchet.components.trajectories.store.store_reader import TrajectoryStore

    policy = Scripted()
    with SessionStore(tmp_path / "store", [KEY], None, None) as store:

        def make():
            return Gateway(policy, "test", store.keep, key=KEY, limits=SessionLimits(), queue=PolicyQueue(policy))

        with GatewayServer(make) as server:
            own = post(server, "/sessions", {"name": "a"})[1]["key"]
            told = (
                f"my key is {own}, the other {KEY}, and AWS_SECRET_ACCESS_KEY=wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"
            )
            post(server, "/v1/chat/completions", hello(told), {"x-api-key": own})
            post(server, "/s/a/finish", {"success": True})
            files = b"".join(path.read_bytes() for path in (tmp_path / "store").rglob("*") if path.is_file())
            assert own.encode() not in files and KEY.encode() not in files and b"wJalr" not in files
            assert b"[GATEWAY_KEY]" in files
    reader = TrajectoryStore(tmp_path / "store")
    assert reader.count() == 1


def test_token_ids_that_spell_a_key_in_the_description_of_a_tool_are_left_out():
    from ratchet.components.core import TokenTrace
    from ratchet.components.models.gateway.session_store import redact_branches

    class Sampled(Scripted):
        def act(self, requests):
            return [PolicyReply("Hello", tokens=TokenTrace((1,), (2,), (-0.5,)))]

    with serving(Sampled()) as server:
        for name, text in (("told", f"send {KEY}"), ("plain", "look")):
            tool = {"type": "function", "function": {**TOOL["function"], "description": text}}
            post(server, f"/s/{name}/v1/chat/completions", hello(tools=[tool]))
            finished(server, name)
    (_, told), (_, plain) = (redact_branches(branches, [KEY])[0] for _, branches in server.kept)
    assert (len(told), len(plain)) == (0, 1)


@pytest.mark.parametrize("key", ["short", "k" * 20 + " k", "k" * 20 + '"', "k" * 20 + "\\", "ké" * 10])
def test_a_key_that_could_not_be_sent_or_found_in_a_record_is_refused(key):
    with pytest.raises(ConfigurationError):
        gateway_sessions.check_key(key)


def test_a_signal_to_the_whole_process_group_does_not_end_the_process_that_writes_the_store(tmp_path):
    from ratchet.components.models.gateway.session_store import SessionStore
    from ratchet.components.trajectories.store.store_reader import TrajectoryStore

    with SessionStore(tmp_path / "store", [KEY], None, None) as store, serving() as server:
        server.gateway._keep = store.keep
        (writer,) = multiprocessing.active_children()
        post(server, "/v1/chat/completions", hello())
        for number in (signal.SIGTERM, signal.SIGINT):
            os.kill(writer.pid, number)
        assert post(server, "/finish", {})[0] == 200
    assert TrajectoryStore(tmp_path / "store").count() == 1


def test_a_gateway_says_which_port_is_taken():
    with serving() as server, pytest.raises(ConfigurationError, match=str(server.port)):
        GatewayServer(lambda: server.gateway, port=server.port).__enter__()


def test_requests_of_one_batch_fail_alone():
    class Batched(Scripted):
        lockstep = True

        def act(self, requests):
            if any(request.messages[-1]["content"] == "bad" for request in requests):
                raise InfrastructureError("no")
            return super().act(requests)

    async def play():
        from ratchet.components.core import PolicyRequest

        queue = PolicyQueue(Batched())
        asked = [
            PolicyRequest(str(n), "", 0, 0, [{"role": "user", "content": text}], ())
            for n, text in enumerate(("a", "bad", "b"))
        ]
        return await asyncio.gather(*(queue.ask(request, None) for request in asked), return_exceptions=True)

    one, bad, two = asyncio.run(play())
    assert one.text == two.text == "Hello END rest" and bad.status == 502


def test_openai_agents_plays_with_parallel_tools():
    agents = pytest.importorskip("agents", reason="needs the package openai-agents")
    openai = pytest.importorskip("openai")
    places = []

    @agents.function_tool
    def look(at: str) -> str:
        """Look."""
        places.append(at)
        return "seen"

    with serving() as server:
        client = openai.AsyncOpenAI(base_url=f"{server.root}/s/a/v1", api_key=KEY, max_retries=0)
        model = agents.OpenAIResponsesModel(model="m", openai_client=client)
        agents.set_tracing_disabled(True)
        result = agents.Runner.run_sync(agents.Agent("looker", instructions="Look.", model=model, tools=[look]), "go")
        (record,) = finished(server, "a")
    assert result.final_output == "Hello END rest" and sorted(places) == ["a", "b"]
    assert [len(turn.results) for turn in record.turns] == [2, 0]


@pytest.mark.parametrize("protocol", ["chat", "responses", "messages"])
def test_pydantic_ai_plays_with_parallel_tools(protocol):
    pydantic_ai = pytest.importorskip("pydantic_ai", reason="needs the package pydantic-ai-slim[anthropic,openai]")
    places = []

    def look(at: str) -> str:
        """Look."""
        places.append(at)
        return "seen"

    async def play(root):
        if protocol == "messages":
            from pydantic_ai.models.anthropic import AnthropicModel
            from pydantic_ai.providers.anthropic import AnthropicProvider

            model = AnthropicModel("m", provider=AnthropicProvider(api_key=KEY, base_url=root))
        else:
            from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
            from pydantic_ai.providers.openai import OpenAIProvider

            kind = OpenAIChatModel if protocol == "chat" else OpenAIResponsesModel
            model = kind("m", provider=OpenAIProvider(api_key=KEY, base_url=f"{root}/v1"))
        return await pydantic_ai.Agent(model, instructions="Look.", tools=[look]).run("go")

    with serving() as server:
        result = asyncio.run(play(f"{server.root}/s/a"))
        (record,) = finished(server, "a")
    assert result.output == "Hello END rest" and sorted(places) == ["a", "b"]
    assert [len(turn.results) for turn in record.turns] == [2, 0]


def test_autogen_plays_with_parallel_tools_in_a_stream():
    autogen = pytest.importorskip("autogen_ext.models.openai", reason="needs the package autogen-ext[openai]")
    agents = pytest.importorskip("autogen_agentchat.agents", reason="needs the package autogen-agentchat")
    places = []

    def look(at: str) -> str:
        """Look."""
        places.append(at)
        return "seen"

    async def play(root):
        info = {"vision": False, "function_calling": True, "json_output": True, "family": "unknown"}
        client = autogen.OpenAIChatCompletionClient(
            model="m", base_url=f"{root}/v1", api_key=KEY, model_info={**info, "structured_output": True}
        )
        agent = agents.AssistantAgent("looker", client, tools=[look], model_client_stream=True, max_tool_iterations=3)
        return await agent.run(task="go")

    with serving() as server:
        result = asyncio.run(play(f"{server.root}/s/a"))
        (record,) = finished(server, "a")
    assert result.messages[-1].content == "Hello END rest" and sorted(places) == ["a", "b"]
    assert [len(turn.results) for turn in record.turns] == [2, 0]


def test_bodies_on_their_way_count_as_requests_in_work():
    with serving(parallel=2) as server:
        slow = [socket.create_connection(("127.0.0.1", server.port), timeout=10) for _ in range(2)]
        for connection in slow:
            connection.sendall(head("Content-Length: 1000000") + b"{")
        wait_until(lambda: any(session.running == 2 for session in server.gateway._by_name.values()))
        assert post(server, "/v1/chat/completions", hello())[0] == 429
        for connection in slow:
            connection.close()
        wait_until(lambda: post(server, "/v1/chat/completions", hello())[0] == 200)


def test_a_session_holds_a_bounded_number_of_characters(monkeypatch):
    monkeypatch.setattr(gateway_sessions, "MAX_CHARACTERS", 10_000)
    with serving() as server:
        text = "a" * 4_000
        for _ in range(5):  # the same text is kept once
            assert post(server, "/v1/chat/completions", hello(text))[0] == 200
        status, error, _ = post(server, "/v1/chat/completions", hello("b" * 6_000))
        assert status == 200
        status, error, _ = post(server, "/v1/chat/completions", hello("c"))
        assert (status, error["error"]["code"]) == (403, "budget_exceeded")
        assert post(server, "/s/other/v1/chat/completions", hello(text))[0] == 200


def test_a_second_head_that_never_ends_is_cut_off(monkeypatch):
    monkeypatch.setattr(http_requests, "HEAD_SECONDS", 1.0)
    request = b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
    with serving() as server, socket.create_connection(("127.0.0.1", server.port), timeout=10) as connection:
        for _ in range(2):
            connection.sendall(request)
            assert connection.recv(65536).startswith(b"HTTP/1.1 200")
            time.sleep(1.1)  # kept open between requests
        connection.sendall(request[:20])
        assert connection.recv(65536) == b""


BURST = """
import resource, socket, sys
resource.setrlimit(resource.RLIMIT_NOFILE, (2000, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
held = [socket.socket() for _ in range(1500)]
for each in held:
    each.setblocking(False)
    each.connect_ex(("127.0.0.1", int(sys.argv[1])))
print(flush=True)
sys.stdin.read()
"""


def test_a_burst_of_connections_leaves_descriptors_to_the_rest_of_the_process(caplog):
    limit, go_on = resource.getrlimit(resource.RLIMIT_NOFILE), threading.Event()
    others = len(list(Path("/proc/self/fd").iterdir()))  # of tests before
    resource.setrlimit(resource.RLIMIT_NOFILE, (600 + 2 * others, limit[1]))
    try:
        with serving() as server:
            server.loop.call_soon_threadsafe(go_on.wait, 60)  # as on a busy machine
            command = [sys.executable, "-c", BURST, str(server.port)]
            with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as client:
                assert client.stdout.readline()
                go_on.set()
                assert post(server, "/health", b"", method="GET")[0] == 200
                client.kill()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limit)
    assert "out of system resource" not in caplog.text


def test_a_large_body_is_read_while_other_sessions_are_answered(monkeypatch):
    decode, begun, answered = gateway_server.decode_body, threading.Event(), threading.Event()

    def decode_slowly(body):
        if len(body) > gateway_server.LARGE_BODY:
            begun.set()
            assert answered.wait(30)
        return decode(body)

    monkeypatch.setattr(gateway_server, "decode_body", decode_slowly)
    with serving() as server:
        statuses = []
        large = hello("x" * (gateway_server.LARGE_BODY + 1))
        thread = threading.Thread(
            target=lambda: statuses.append(post(server, "/s/large/v1/chat/completions", large)[0])
        )
        thread.start()
        assert begun.wait(30) and post(server, "/s/small/v1/chat/completions", hello())[0] == 200
        answered.set()
        thread.join()
    assert statuses == [200]


def test_a_client_that_sends_on_and_never_reads_is_closed(monkeypatch):
    monkeypatch.setattr(http_requests, "BODY_SECONDS", 0.3)
    path = f"/v1/models/{'m' * 20_000}".encode()  # the answer has it twice
    request = b"GET " + path + f" HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {KEY}\r\n\r\n".encode()
    with serving() as server, socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.settimeout(60)
        client.connect(("127.0.0.1", server.port))
        with pytest.raises((ConnectionResetError, BrokenPipeError)):
            while True:  # until the answers fill the buffers of the kernel, and the server reads no further request
                client.sendall(request)
        wait_until(lambda: not server._server.server_state.connections)
        assert post(server, "/v1/chat/completions", hello())[0] == 200


def test_connections_beyond_the_bound_end_idle_ones_and_disturb_no_request_in_work(monkeypatch):
    monkeypatch.setattr(http_requests.resource, "getrlimit", lambda _: (20, 20))
    policy = Scripted()
    policy.release.clear()
    with serving(policy) as server:
        answers = []
        thread = threading.Thread(target=lambda: answers.append(post(server, "/v1/chat/completions", hello())[0]))
        thread.start()
        wait_until(lambda: policy.asked)
        idle = [socket.create_connection(("127.0.0.1", server.port), timeout=10) for _ in range(50)]
        wait_until(lambda: len(server._server.server_state.connections) == 10)
        assert post(server, "/health", b"", method="GET")[0] == 200
        policy.release.set()
        thread.join()
        assert answers == [200]
        for connection in idle:
            connection.close()
