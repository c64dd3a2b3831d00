"""Frame: what a chat template puts around a reply. Found out once for a template, with two small conversations."""

from typing import TYPE_CHECKING, Any

import msgspec

from components.policies.chat import render
from components.protocol import ConfigurationError, Message

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

_WORD = "zqreply"
_THINK = "<think>"


class Frame(msgspec.Struct, frozen=True):
    """`headers`: how a reply may begin, the longest first; what of it a prompt holds already is not the policy's.

    `ends`: tokens of which the last thing in a reply is one.
    """

    headers: tuple[str, ...]
    ends: tuple[str, ...]


_known: dict[Any, Frame] = {}


def frame(tokenizer: "PreTrainedTokenizerBase") -> Frame:
    """That of the tokenizer's template. Raises ConfigurationError for one that ends a reply with no token of its own."""
    key = (str(tokenizer.chat_template), tuple(tokenizer.all_special_tokens), tokenizer.eos_token)
    if key not in _known:
        _known[key] = Frame(_headers(tokenizer), _ends(tokenizer))
    return _known[key]


def _headers(tokenizer: "PreTrainedTokenizerBase") -> tuple[str, ...]:
    """What a prompt ends with: in full, and without the thinking that it may open or rule out."""
    user: list[Message] = [{"role": "user", "content": _WORD}]
    without, full = (render(user, None, tokenizer, prompt=prompt) for prompt in (False, True))
    header = full.removeprefix(without) if full.startswith(without) else ""
    plain = header.partition(_THINK)[0]
    found = dict.fromkeys((header, plain, plain.rstrip()))
    return tuple(each for each in found if each) or ("",)


def _ends(tokenizer: "PreTrainedTokenizerBase") -> tuple[str, ...]:
    """The token after a reply, and the other special tokens that end something; closing tags of calls end no reply."""
    talk: list[Message] = [{"role": "user", "content": "."}, {"role": "assistant", "content": _WORD}]
    tail = render(talk, None, tokenizer, prompt=False).rpartition(_WORD)[2].lstrip()
    tokens = {str(token) for token in tokenizer.get_added_vocab()} | set(tokenizer.all_special_tokens)
    usual = [token for token in tokens if token and tail.startswith(token)]
    if not usual:
        raise ConfigurationError(
            f"the chat template ends a reply with no token of its own (after it stands {tail[:20]!r}), so nothing would teach the "
            "model to stop; add the end token to the template"
        )
    others = [token for token in tokenizer.all_special_tokens if len(token) > 1 and not token.startswith("</")]
    return tuple(dict.fromkeys((max(usual, key=len), *sorted(others, key=len, reverse=True))))
