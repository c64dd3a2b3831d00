"""What requests to servers have in common: how many tokens one can take at most."""

import msgspec

from .config import ModelConfig
from .model import Question

TEMPLATE_TOKENS = 1024
"""More than a chat template and the preamble of tools put around a prompt."""


def most_tokens(question: Question, config: ModelConfig) -> tuple[int, int]:
    """An upper bound of the tokens of prompt and reply: no tokenizer makes more tokens than there are bytes."""
    schema = len(msgspec.json.encode(question.schema))
    prompt = len(question.system.encode("utf-8", "replace")) + len(question.text.encode("utf-8", "replace"))
    return prompt + 2 * schema + TEMPLATE_TOKENS, config.max_tokens
