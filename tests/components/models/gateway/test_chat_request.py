"""Requests of the three protocols become one form, and what no policy can honour is refused."""

import json

import pytest
from cpu_time import assert_grows_at_most, cpu_seconds

from ratchet.components.core.http_requests import RequestFault
from ratchet.components.models.gateway.chat_request import (
    MAX_BRACKETS,
    MAX_MESSAGES,
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


def test_calls_and_text_of_a_reply_are_one_message_in_any_order():
    body = responses()
    body["input"][2:4] = reversed(body["input"][2:4])
    assert read_responses(body).messages == CONVERSATION


@pytest.mark.parametrize(("read", "body"), READERS)
def test_tools_that_may_not_be_called_are_not_offered(read, body):
    none = {"type": "none"} if read is read_anthropic else "none"
    assert read({**body(), "tool_choice": none}).tools == ()


@pytest.mark.parametrize(
    ("read", "change"),
    [
        (read_completions, {"tool_choice": {"type": "function", "function": {"name": "absent"}}}),
        (read_completions, {"tool_choice": {"type": "allowed_tools", "allowed_tools": {"tools": [1]}}}),
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
        (read_completions, {"logprobs": True}),
        (read_completions, {"tools": [{"type": "custom", "custom": {"name": "patch"}}]}),
        (read_completions, {"response_format": {"type": "grammar"}}),
        (read_completions, {"response_format": "json_schema"}),
        (read_responses, {"text": {"format": {"type": "json_schema"}}}),
        (read_responses, {"conversation": "conv_1"}),
        (read_responses, {"prompt": {"id": "pmpt_1"}}),
        (read_responses, {"tools": [{"type": "shell"}]}),
        (read_responses, {"input": [{"type": "computer_call"}]}),
        (read_anthropic, {"tool_choice": {"type": "tool", "name": "absent"}}),
        (read_anthropic, {"output_config": {"format": {"type": "json_schema"}}}),
        (read_anthropic, {"tools": [{"type": "bash_20250124", "name": "bash"}]}),
        (read_anthropic, {"messages": [{"role": "user", "content": [{"type": "image", "source": {}}]}]}),
    ],
)
def test_what_a_policy_cannot_honour_is_refused_and_not_ignored(read, change):
    body = dict(READERS)[read]()
    with pytest.raises(RequestFault) as refusal:
        read({**body, **change})
    assert refusal.value.status == 400 and "\n" not in str(refusal.value)


@pytest.mark.parametrize(
    ("read", "choice", "offered"),
    [
        (read_completions, "required", ["read", "write"]),
        (read_completions, {"type": "function", "function": {"name": "read"}}, ["read"]),
        (
            read_completions,
            {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": [{"function": {"name": "write"}}]}},
            ["write"],
        ),
        (read_responses, "required", ["read", "write"]),
        (read_responses, {"type": "function", "name": "read"}, ["read"]),
        (read_responses, {"type": "allowed_tools", "mode": "required", "tools": [{"name": "write"}]}, ["write"]),
        (read_anthropic, {"type": "any", "disable_parallel_tool_use": True}, ["read", "write"]),
        (read_anthropic, {"type": "tool", "name": "read"}, ["read"]),
    ],
)
def test_a_choice_of_tools_decides_which_are_offered(read, choice, offered):
    body = dict(READERS)[read]()
    (tool, *_) = body["tools"]
    other = (
        {**tool, "function": {**tool["function"], "name": "write"}} if "function" in tool else {**tool, "name": "write"}
    )
    request = read({**body, "tools": [tool, other], "tool_choice": choice})
    assert [each.name for each in request.tools] == offered


FORMAT = {"type": "json_schema", "name": "place", "strict": True, "schema": SCHEMA}


@pytest.mark.parametrize(
    ("read", "change"),
    [
        (read_completions, {"response_format": {"type": "json_schema", "json_schema": FORMAT}}),
        (read_responses, {"text": {"format": FORMAT, "verbosity": "low"}}),
        (read_anthropic, {"output_config": {"format": FORMAT}}),
        (read_anthropic, {"output_format": FORMAT}),
    ],
)
def test_a_schema_for_the_answer_is_read_by_the_model(read, change):
    request = read({**dict(READERS)[read](), **change})
    first, *others = request.messages
    schema = json.dumps(SCHEMA, separators=(",", ":"))
    assert first == {"role": "system", "content": f"Be brief.\n\n# Response Formats\n\n## place\n\n{schema}"}
    assert others == CONVERSATION[1:]


def test_a_schema_is_a_message_of_its_own_where_there_is_none_of_the_system():
    form = {"type": "json_schema", "json_schema": {"schema": SCHEMA, "description": "A place."}}
    request = read_completions({"messages": [{"role": "user", "content": "x"}], "response_format": form})
    assert [message["role"] for message in request.messages] == ["system", "user"]
    assert request.messages[0]["content"].startswith("# Response Formats\n\n## answer\n\n// A place.\n\n{")
    form = {"type": "json_object"}  # which API and prompt have to say in words
    assert (
        len(read_completions({"messages": [{"role": "user", "content": "x"}], "response_format": form}).messages) == 1
    )


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


@pytest.mark.parametrize(
    ("part", "number"),
    [(b"[]", MAX_BRACKETS), (b"{}", MAX_BRACKETS), (b'{"role":"user","content":"x"}', MAX_MESSAGES + 1)],
)
def test_a_body_of_very_many_small_values_is_refused_before_it_costs_time(part, number):
    body = b'{"messages":[' + b",".join([part] * number) + b"]}"
    with pytest.raises(RequestFault) as refusal:
        read_completions(decode_body(body))
    assert refusal.value.status in (400, 413) and "\n" not in str(refusal.value)


def test_the_calls_of_one_reply_are_read_in_time_proportional_to_their_number():
    def seconds(count):
        body = {"input": [{"type": "function_call", "call_id": "c", "name": "f"}] * count}
        (message,) = read_responses(body).messages
        assert len(message["tool_calls"]) == count
        return cpu_seconds(read_responses, body)

    # 64 times as long where each call copies the others.
    assert_grows_at_most(3 * 8, seconds, 5_000, 40_000, floor=0.01)
