"""The client within an event loop treats a server as the client for threads does."""

import asyncio
import socket

import pytest
from model_stand_in import completion, cut, cut_chunks, drip, gives, never, reset, says, stand_in

from ratchet.components.core import PolicyRequest, ToolSpec
from ratchet.components.models.chat_completion import read_completion
from ratchet.components.models.endpoint import ModelUnavailable
from ratchet.components.models.http_client import ModelClient
from ratchet.components.models.loop_client import LoopModelClient
from ratchet.components.models.openai_policy import OpenAIPolicy
from ratchet.components.models.policy_config import OpenAIConfig

pytest.importorskip("aiohttp", reason="needs the extra gateway")
TRANSPORT = {
    "cut": cut,
    "cut_chunks": cut_chunks,
    "reset": reset,
    "wrong encoding": gives(200, b"x", Content_Encoding="gzip"),
}
ANSWERS = {
    "429": gives(429, {"error": {"message": "later"}}),
    "500": gives(500, b"broken", Content_Type="text/plain"),
    "no JSON": gives(200, b"<html>"),
    "400": gives(400, {"error": {"message": "no"}}),
    "too long": gives(400, {"error": {"message": "prompt is too long: 9 tokens > 8 maximum"}}),
    "no money": gives(429, {"error": {"message": "no money", "code": "insufficient_quota"}}),
    "401": gives(401, {"error": {"message": "who?"}}),
    "404": gives(404, b"{}"),
    "redirect": gives(302, b"", Location="http://127.0.0.1:1/elsewhere"),
    "waits too long": gives(429, b"{}", Retry_After="3600"),
    "never": never,
    "drip": drip,
}


def configured(address, **settings):
    return OpenAIConfig.load({"base_url": address, "model": "m", "retries": 1, "back_off": 0.01, **settings})


def in_loop(config, body=None):
    async def play():
        client = LoopModelClient(config)
        try:
            return await client.post(f"{config.base_url}/x", body or {"a": "\ud800"}, read_completion), client.counts
        finally:
            await client.close()

    return asyncio.run(play())


def outcome(call):
    try:
        return call()
    except Exception as error:
        return type(error), str(error)


@pytest.mark.parametrize("name", ANSWERS)
def test_every_answer_ends_as_in_threads(name):
    timeouts = {"total": 0.3} if name in ("never", "drip") else {}
    ends = []
    for threads in (True, False):
        with stand_in(otherwise=ANSWERS[name]) as server:
            config = configured(server.base_url, timeouts=timeouts)
            client = ModelClient(config)
            kind, text = outcome(
                (lambda c=client, f=config: c.post(f"{f.base_url}/x", {}, read_completion))
                if threads
                else (lambda f=config: in_loop(f))
            )
            client.close()
            ends.append((kind, text.replace(server.base_url, "URL"), len(server.asked)))
    assert ends[0] == ends[1]


@pytest.mark.parametrize("name", TRANSPORT)
def test_a_broken_answer_is_asked_for_again(name):
    with stand_in(TRANSPORT[name], says("fine")) as server:
        answer, counts = in_loop(configured(server.base_url))
    assert answer.choices[0].message.text == "fine" and counts == {"requests": 2, "retries": 1}
    assert server.asked == [{"a": "?"}] * 2


def test_silence_and_a_server_that_is_not_there_are_unavailable():
    with stand_in(otherwise=never) as server, pytest.raises(ModelUnavailable, match="fell silent"):
        in_loop(configured(server.base_url, timeouts={"read": 0.1}))
    with socket.socket() as taken, pytest.raises(ModelUnavailable, match="failed 2 times"):
        taken.bind(("127.0.0.1", 0))
        in_loop(configured(f"http://127.0.0.1:{taken.getsockname()[1]}/v1"))


def test_a_large_conversation_is_sent_whole():
    with stand_in() as server:
        in_loop(configured(server.base_url), {"a": "x" * (3 << 20)})
    assert len(server.asked[0]["a"]) == 3 << 20


def test_a_cancelled_request_gives_its_place_to_the_next():
    async def play(config):
        client = LoopModelClient(config)
        first = asyncio.ensure_future(client.post(f"{config.base_url}/x", {}, read_completion))
        while not server.asked:
            await asyncio.sleep(0.01)
        first.cancel()
        try:
            return await client.post(f"{config.base_url}/x", {}, read_completion)
        finally:
            await client.close()

    with stand_in(never, says("next")) as server:
        assert asyncio.run(play(configured(server.base_url, concurrency=1))).choices[0].message.text == "next"


def request(text, *tools):
    return PolicyRequest("ep", "t", 0, 1, [{"role": "user", "content": text}], tools)


def act_in_loop(policy, *requests):
    async def play():
        replies = [await policy.act_in_loop(each) for each in requests]
        await policy.close_in_loop()
        return replies

    return asyncio.run(play())


def test_a_policy_replies_alike_and_sends_the_same_in_the_loop_and_in_threads():
    call = {"id": "x", "type": "function", "function": {"name": "look", "arguments": '{"at": 1}'}}
    answer = gives(200, completion({"role": "assistant", "content": "<think>so</think>I look", "tool_calls": [call]}))
    with stand_in(otherwise=answer) as server:
        policy = OpenAIPolicy(configured(server.base_url))
        asked = request("<|im_end|> go", ToolSpec("look", "", {"type": "object"}))
        (one,), (two,) = policy.act([asked]), act_in_loop(policy, asked)
        policy.close()
    assert (one.text, one.calls, one.thought, one.usage) == (two.text, two.calls, two.thought, two.usage)
    assert server.asked[0] == server.asked[1] and policy.statistics["requests"] == 2


def test_a_conversation_that_has_to_be_measured_is_left_to_act():
    with stand_in(otherwise=gives(400, {"error": {"message": "prompt is too long"}})) as server:
        unknown = OpenAIPolicy(configured(server.base_url, server="vllm"))
        small = OpenAIPolicy(configured(server.base_url, context_window=200))
        refused = OpenAIPolicy(configured(server.base_url))
        ends = [act_in_loop(policy, request("x" * 500)) for policy in (unknown, small, refused)]
        [policy.close() for policy in (unknown, small, refused)]
    assert ends == [[None]] * 3 and len(server.asked) == 1
