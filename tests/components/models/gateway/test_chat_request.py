"""Requests of the three protocols become one form, and what no policy can honour is refused."""

import json

import pytest

from ratchet.components.core.http_requests import RequestFault
from ratchet.components.models.gateway.chat_request import (
    decode_body,
    read_anthropic,
    read_completions,
    read_responses,
)

SCHEMA = {"type": "object", "properties": {"path": {"type": "string"}}}
CALL = {"id": "c1", "type": "function", "function": {"name": "read", "arguments": {"path": "a"}}}
CONVERSATION = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "Read."},
    {"role": "assistant", "content": "I read.", "tool_calls": [CALL]},
    {"role": "tool", "tool_call_id": "c1", "content": "text"},
    {"role": "user", "content": "On."},
]


def completions():
    wire = {**CALL, "function": {"name": "read", "arguments": '{"path": "a"}'}}
    return {
        "model": "m",
        "messages": [
            {"role": "developer", "content": "Be brief."},
            {"role": "user", "content": [{"type": "text", "text": "Read."}]},
            {"role": "assistant", "content": "I read.", "tool_calls": [wire]},
            {"role": "tool", "tool_call_id": "c1", "content": "text"},
            {"role": "user", "content": "On."},
        ],
        "tools": [{"type": "function", "function": {"name": "read", "description": "R", "parameters": SCHEMA}}],
    }


def responses():
    return {
        "model": "m",
        "instructions": "Be brief.",
        "input": [
            {"role": "user", "content": [{"type": "input_text", "text": "Read."}]},
            {"type": "reasoning", "id": "r", "summary": []},
            {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "I read."}]},
            {"type": "function_call", "call_id": "c1", "name": "read", "arguments": '{"path": "a"}'},
            {"type": "function_call_output", "call_id": "c1", "output": "text"},
            {"role": "user", "content": "On."},
        ],
        "tools": [
            {"type": "function", "name": "read", "description": "R", "parameters": SCHEMA},
            {"type": "web_search"},
        ],
    }


def anthropic():
    return {
        "model": "m",
        "max_tokens": 9,
        "system": [{"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}}],
        "messages": [
            {"role": "user", "content": "Read."},
            {
                "role": "assistant",
                "content": [
                    {"type": "thinking", "thinking": "hm", "signature": ""},
                    {"type": "text", "text": "I read."},
                    {"type": "tool_use", "id": "c1", "name": "read", "input": {"path": "a"}},
                ],
            },
            {
                "role": "user",
                "content": [
                    {"type": "tool_result", "tool_use_id": "c1", "content": [{"type": "text", "text": "text"}]},
                    {"type": "text", "text": "On."},
                ],
            },
        ],
        "tools": [{"name": "read", "description": "R", "input_schema": SCHEMA}],
    }


READERS = [(read_completions, completions), (read_responses, responses), (read_anthropic, anthropic)]


@pytest.mark.parametrize(("read", "body"), READERS)
def test_a_conversation_is_the_same_in_every_protocol(read, body):
    request = read(body())
    assert request.messages == CONVERSATION
    assert [(tool.name, tool.description, tool.parameters) for tool in request.tools] == [("read", "R", SCHEMA)]


@pytest.mark.parametrize(("read", "body"), READERS)
def test_tools_that_may_not_be_called_are_not_offered(read, body):
    none = {"type": "none"} if read is read_anthropic else "none"
    assert read({**body(), "tool_choice": none}).tools == ()


@pytest.mark.parametrize(
    ("read", "change"),
    [
        (read_completions, {"tool_choice": "required"}),
        (read_completions, {"n": 2}),
        (read_completions, {"response_format": {"type": "json_schema", "json_schema": {}}}),
        (read_completions, {"messages": []}),
        (read_completions, {"messages": "hello"}),
        (read_completions, {"messages": [{"role": "king", "content": "x"}]}),
        (read_completions, {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {}}]}]}),
        (read_completions, {"messages": [{"role": "assistant", "tool_calls": [{"id": "x"}]}]}),
        (read_completions, {"max_tokens": 0}),
        (read_completions, {"max_tokens": "many"}),
        (read_completions, {"stop": [1]}),
        (read_completions, {"tools": [{"type": "function", "function": {"name": ""}}]}),
        (read_completions, {"functions": [{"name": "read"}]}),
        (read_completions, {"tools": [{"type": "custom", "custom": {"name": "patch"}}]}),
        (read_responses, {"text": {"format": {"type": "json_schema"}}}),
        (read_responses, {"conversation": "conv_1"}),
        (read_responses, {"prompt": {"id": "pmpt_1"}}),
        (read_responses, {"tools": [{"type": "shell"}]}),
        (read_responses, {"input": [{"type": "computer_call"}]}),
        (read_anthropic, {"tool_choice": {"type": "any"}}),
        (read_anthropic, {"output_config": {"format": {"type": "json_schema", "schema": {}}}}),
        (read_anthropic, {"output_format": {"type": "json_schema", "schema": {}}}),
        (read_anthropic, {"tools": [{"type": "bash_20250124", "name": "bash"}]}),
        (read_anthropic, {"messages": [{"role": "user", "content": "x"}, {"role": "assistant", "content": "{"}]}),
        (read_anthropic, {"messages": [{"role": "user", "content": [{"type": "image", "source": {}}]}]}),
    ],
)
def test_what_a_policy_cannot_honour_is_refused_and_not_ignored(read, change):
    body = dict(READERS)[read]()
    with pytest.raises(RequestFault) as refusal:
        read({**body, **change})
    assert refusal.value.status == 400 and "\n" not in str(refusal.value)


def test_a_custom_tool_of_responses_takes_one_text():
    request = read_responses(
        {"input": "x", "tools": [{"type": "custom", "name": "patch", "format": {"type": "grammar"}}]}
    )
    assert request.custom_tools == {"patch"}
    assert request.tools[0].parameters["required"] == ["input"]


@pytest.mark.parametrize(
    "body", [b"", b"{", b"[]", b'"x"', b"\xff\xfe", b'{"a":' * 100_000, json.dumps({"a": 1}).encode()[:-1]]
)
def test_a_body_that_is_no_json_object_is_refused(body):
    with pytest.raises(RequestFault):
        decode_body(body)


def test_a_deep_body_is_refused_before_anything_walks_through_it():
    with pytest.raises(RequestFault, match="nested"):
        decode_body(b'{"messages":' + b"[" * 200 + b"]" * 200 + b"}")


@pytest.mark.parametrize("part", [b"[]", b"{}", b'{"role":"user","content":"x"}'])
def test_a_body_of_very_many_small_values_is_refused_before_it_costs_time(part):
    body = b'{"messages":[' + b",".join([part] * ((8 << 20) // len(part))) + b"]}"
    with pytest.raises(RequestFault) as refusal:
        read_completions(decode_body(body))
    assert refusal.value.status in (400, 413) and "\n" not in str(refusal.value)
