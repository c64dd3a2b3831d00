"""Control tokens of chat templates, and how to keep text that contains them from being tokenised as such."""

import re
from collections.abc import Iterable
from pathlib import Path

import msgspec

from ratchet.components.core import DataError

ZERO_WIDTH_SPACE = "\u200b"
MATCH_NOTHING = r"(?!)"
"""Pattern that matches nothing."""
_ANGLE_TOKENS = re.compile(
    r"<(?:\|[^\s<>|]{1,64}\|>|｜[^\s<>｜]{1,64}｜>|/?(?:s|bos|eos|pad|unk)>"
    r"|(?:start|end)_of_turn>|/?tool_(?:call|response)>)"
)
COMMON_TOKENS = re.compile(_ANGLE_TOKENS.pattern + r"|\[/?INST\]")
"""Control tokens of widely used chat templates, for models whose tokenizer is not available."""


def special_tokens(checkpoint: Path) -> re.Pattern[str]:
    """Return a pattern of the special tokens of a checkpoint's tokenizer. Raises DataError without a readable
    tokenizer.json.
    """
    path = checkpoint / "tokenizer.json"
    try:
        added = msgspec.json.decode(path.read_bytes()).get("added_tokens", [])
        return any_token_pattern(token["content"] for token in added if token.get("special"))
    except (OSError, msgspec.DecodeError, AttributeError, KeyError, TypeError) as error:
        raise DataError(f"{path} is no tokenizer: {error}; use another checkpoint") from error


def any_token_pattern(tokens: Iterable[str]) -> re.Pattern[str]:
    """Return a pattern that matches any of the tokens; single characters are left out."""
    longest_first = sorted((token for token in tokens if len(token) > 1), key=len, reverse=True)
    return re.compile("|".join(map(re.escape, longest_first)) or MATCH_NOTHING)


def break_matches(text: str, specials: re.Pattern[str], by: str = ZERO_WIDTH_SPACE) -> str:
    """Insert a zero-width space (or `by`) after the first character of every match of `specials`."""
    if specials is COMMON_TOKENS and "INST]" not in text:
        # `re` finds a single first character ten times as fast as either of two, and every turn searches its whole prompt.
        specials = _ANGLE_TOKENS
    while specials.search(text):  # again, because a break may leave half of two that overlap
        text = specials.sub(lambda match: match[0][0] + by + match[0][1:], text)
    return text
