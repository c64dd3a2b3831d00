"""Conversations as training rows: token ids, labels for the assistant's own tokens, a weight per token.

The mask comes from the `{% generation %}` marks of the chat template: what the policy wrote, its end token
included, and nothing else. Observations are never trained, whatever they contain.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from components.policies.chat import encode
from components.protocol import ConfigurationError, Message

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

IGNORE = -100


class TrainingRow(msgspec.Struct, frozen=True):
    """`input_ids`, `labels` (-100 where nothing is trained) and `weights` are of equal length."""

    input_ids: list[int]
    labels: list[int]
    weights: list[float]

    @property
    def trained_tokens(self) -> int:
        """How many tokens carry a label."""
        return sum(label != IGNORE for label in self.labels)


def tokenize_chat(
    messages: Sequence[Message],
    tools: list[dict[str, Any]] | None,
    tokenizer: "PreTrainedTokenizerFast",
    *,
    weight: float = 1.0,
) -> TrainingRow:
    """One conversation as a row. Raises ConfigurationError for a template without `{% generation %}` marks."""
    if "generation" not in (tokenizer.chat_template or ""):
        raise ConfigurationError(
            "the chat template has no {% generation %} marks; add them around the assistant's text"
        )
    ids, mask = encode(messages, tools, tokenizer, prompt=False)
    labels = [token if own else IGNORE for token, own in zip(ids, mask, strict=True)]
    return TrainingRow(ids, labels, [weight * own for own in mask])
