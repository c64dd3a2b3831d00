"""Whatever observations, users and replies hold: each reply is trained, whole and once, and nobody else is."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("transformers")

from chat_templates import END, FAMILIES, SPECIALS, chat_tokenizer, row_text, trained_texts

from components.policies.chat import encode
from components.training.format import tokenize_chat

TOOL = {"type": "function", "function": {"name": "look", "description": "Look.", "parameters": {"type": "object"}}}
PIECES = st.sampled_from(
    [
        *sorted({token for tokens in SPECIALS.values() for token in tokens}),
        *("<think>", "</think>", "<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>"),
        *(
            "assistant\n",
            "model\n",
            "user",
            "\n",
            "\n\n",
            "  ",
            "{",
            '"',
            "\\",
            "{{",
            "{% generation %}",
            "{% endfor %}",
        ),
        *("Action: look", "Thought:", "\u200b", "é", "🦜", "word", "zqreply", "\x00", "<"),
    ]
)
JUNK = st.lists(PIECES, max_size=6).map("".join)
STEP = st.tuples(JUNK, st.integers(0, 2), JUNK)


def talk(asked, steps):
    """Every observation holds OBS and its number, every reply begins with R and ends with SAY and its number."""
    messages = [{"role": "system", "content": "OBS" + asked}, {"role": "user", "content": asked + "OBS?"}]
    for number, (said, calls, answer) in enumerate(steps):
        ids = [f"{number}-{i}" for i in range(calls)]
        reply = {"role": "assistant", "content": f"R{said}SAY{number}"}
        if ids:
            function = {"name": "look", "arguments": {"at": f"AT{number}"}}
            reply["tool_calls"] = [{"id": each, "type": "function", "function": function} for each in ids]
        messages.append(reply)
        messages += [
            {"role": "tool", "tool_call_id": each, "name": "look", "content": f"{answer}OBS{each}"} for each in ids
        ]
        if not ids:
            messages.append({"role": "user", "content": f"{answer}OBS{number}"})
    return messages


@pytest.mark.parametrize("family", FAMILIES)
@settings(max_examples=40, deadline=None)
@given(asked=JUNK, steps=st.lists(STEP, min_size=1, max_size=4))
def test_each_reply_is_trained_whole_and_nobody_else(family, asked, steps):
    tokenizer = chat_tokenizer(family)
    messages = talk(asked, steps)
    row = tokenize_chat(messages, [TOOL], tokenizer)
    texts = trained_texts(row, row_text(messages, [TOOL], tokenizer), tokenizer)
    assert len(texts) == len(row.turns) == len(steps)
    for number, (text, (said, calls, _)) in enumerate(zip(texts, steps, strict=True)):
        assert "OBS" not in text
        assert text.count(f"SAY{number}") == 1 and text.endswith(END[family])
        assert text.count(f"AT{number}") == calls
        if not (family == "qwen3" and "</think>" in said):  # this template takes a thought apart
            assert f"R{said}SAY{number}" in text


@pytest.mark.parametrize("family", ["chatml", "qwen2_5", "llama3", "gemma"])
@settings(max_examples=15, deadline=None)
@given(asked=JUNK, steps=st.lists(STEP, min_size=1, max_size=4))
def test_each_prompt_is_a_prefix_that_ends_where_the_reply_begins(family, asked, steps):
    tokenizer = chat_tokenizer(family)
    messages = talk(asked, steps)
    row = tokenize_chat(messages, [TOOL], tokenizer)
    replies = [index for index, message in enumerate(messages) if message["role"] == "assistant"]
    for index, turn in zip(replies, row.turns, strict=True):
        prompt, _ = encode(messages[:index], [TOOL], tokenizer, prompt=True)
        assert row.input_ids[: turn.start] == prompt
