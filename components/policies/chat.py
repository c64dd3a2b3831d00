"""A conversation as a model reads it: the one way from messages to a template, for sampling and for training alike."""

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from components.endpoints.control_tokens import any_of, broken
from components.protocol import Message

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

__all__ = ["any_of", "break_tokens", "encode", "inert"]


def inert(messages: Sequence[Message], tokenizer: "PreTrainedTokenizerBase") -> list[Message]:
    """The messages with every special token that an observation or a user spells out broken by a zero-width space.

    A file that contains `<|im_end|>` must stay text: it may neither end a message nor begin one in the assistant's name.
    """
    return break_tokens(messages, any_of(tokenizer.all_special_tokens))


def break_tokens(messages: Sequence[Message], specials: re.Pattern[str]) -> list[Message]:
    """The messages with every match of `specials` outside of the assistant's broken after its first character."""
    return [message if message["role"] == "assistant" else _broken(message, specials) for message in messages]


def _broken(message: Message, specials: re.Pattern[str]) -> Message:
    content = broken(message["content"], specials)
    return message if content is message["content"] else {**message, "content": content}


def encode(
    messages: Sequence[Message],
    tools: list[dict[str, Any]] | None,
    tokenizer: "PreTrainedTokenizerBase",
    *,
    prompt: bool,
) -> tuple[list[int], list[int]]:
    """Token ids of a conversation, and a mask that is 1 on what the assistant wrote, its end token included.

    With `prompt` the ids end where the assistant's next message begins, and the mask is not asked of the template.
    """
    encoded = tokenizer.apply_chat_template(
        inert(messages, tokenizer),
        tools=tools or None,
        add_generation_prompt=prompt,
        return_dict=True,
        return_assistant_tokens_mask=not prompt,
    )
    return encoded["input_ids"], encoded.get("assistant_masks", [])
