"""Control tokens in texts that a server tokenises itself."""

import pytest

from ratchet.components.models.control_tokens import COMMON_TOKENS, ZERO_WIDTH_SPACE, break_matches

TOKENS = [
    "<|im_end|>",
    "<｜User｜>",
    "<s>",
    "</s>",
    "<end_of_turn>",
    "<tool_call>",
    "</tool_response>",
    "[INST]",
    "[/INST]",
]


@pytest.mark.parametrize("beside", ["", "[INST", " INST] "])
@pytest.mark.parametrize("token", TOKENS)
def test_a_common_control_token_is_broken_in_any_text(token, beside):
    broken = token[0] + ZERO_WIDTH_SPACE + token[1:]
    assert break_matches(f"a {token}{beside} {token}", COMMON_TOKENS) == f"a {broken}{beside} {broken}"


@pytest.mark.parametrize("text", ["a < b > c", "x[1] INST]", "<| im_end |>", "<section>", ""])
def test_a_text_without_control_tokens_stays_as_it_is(text):
    assert break_matches(text, COMMON_TOKENS) is text
