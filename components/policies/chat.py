"""A conversation as a model reads it: the one way from messages to a template, for sampling and for training alike."""

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from components.endpoints.control_tokens import any_of, broken
from components.protocol import ConfigurationError, Message

from .abilities import abilities
from .adapted import adapted

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

__all__ = ["any_of", "break_tokens", "encode", "prepared", "refused", "render"]
_AS_IT_IS = ("role", "tool_call_id")


def break_tokens(messages: Sequence[Message], specials: re.Pattern[str]) -> list[Message]:
    """The messages with every match of `specials` outside of the assistant's broken after its first character.

    A file that contains `<|im_end|>` must stay text: it may neither end a message nor begin one in the assistant's name.
    """
    return [message if message["role"] == "assistant" else _broken(message, specials) for message in messages]


def _broken(value: Any, specials: re.Pattern[str]) -> Any:
    """The value, itself where nothing in it matches; lists and dicts are looked through."""
    if isinstance(value, str):
        return broken(value, specials)
    if isinstance(value, dict):
        found = {key: each if key in _AS_IT_IS else _broken(each, specials) for key, each in value.items()}
        return found if any(found[key] is not value[key] for key in value) else value
    if isinstance(value, list):
        items = [_broken(each, specials) for each in value]
        return items if any(new is not old for new, old in zip(items, value, strict=True)) else value
    return value


def prepared(
    messages: Sequence[Message], tools: list[dict[str, Any]] | None, tokenizer: "PreTrainedTokenizerBase"
) -> tuple[list[Message], list[dict[str, Any]] | None]:
    """What the template is given: control tokens broken, and said in the words that this template has (see `adapted`)."""
    specials = any_of(tokenizer.all_special_tokens)
    listed = [_broken(tool, specials) for tool in tools or ()]
    return adapted(break_tokens(messages, specials), listed or None, abilities(tokenizer))


def render(
    messages: Sequence[Message],
    tools: list[dict[str, Any]] | None,
    tokenizer: "PreTrainedTokenizerBase",
    *,
    prompt: bool,
) -> str:
    """The text of a conversation; with `prompt` it ends where the assistant's next message begins.

    Raises ConfigurationError where the template refuses the conversation.
    """
    told, listed = prepared(messages, tools, tokenizer)
    try:
        text: str = tokenizer.apply_chat_template(told, tools=listed, add_generation_prompt=prompt, tokenize=False)
    except Exception as error:
        raise refused(error) from error
    return text


def refused(error: Exception) -> ConfigurationError:
    """What is said of a conversation that a template refuses: templates are programs, and may raise anything."""
    said = " ".join(str(error).split())[:200] or type(error).__name__
    return ConfigurationError(f"the chat template refuses the conversation: {said}; use another template")


def encode(
    messages: Sequence[Message],
    tools: list[dict[str, Any]] | None,
    tokenizer: "PreTrainedTokenizerBase",
    *,
    prompt: bool,
) -> tuple[list[int], list[int]]:
    """Token ids of a conversation, and a mask that is 1 on what stands between the template's `{% generation %}` marks.

    With `prompt` the ids end where the assistant's next message begins, and the mask is not asked of the template.
    """
    told, listed = prepared(messages, tools, tokenizer)
    try:
        encoded = tokenizer.apply_chat_template(
            told,
            tools=listed,
            add_generation_prompt=prompt,
            return_dict=True,
            return_assistant_tokens_mask=not prompt,
        )
    except Exception as error:
        raise refused(error) from error
    return encoded["input_ids"], encoded.get("assistant_masks", [])
