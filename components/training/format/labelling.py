"""Labelling: from characters to tokens. One call of the tokenizer gives the ids and the characters that each stands for."""

from bisect import bisect_left
from collections.abc import Sequence
from typing import TYPE_CHECKING

from components.protocol import ConfigurationError

from .row import IGNORE, TrainingRow, Turn
from .spans import Span

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

Offsets = Sequence[tuple[int, int]]
"""The characters of each token: from, up to. In order."""


def tokens(text: str, tokenizer: "PreTrainedTokenizerBase") -> tuple[list[int], Offsets]:
    """Ids and offsets of a rendered conversation. Raises ConfigurationError for a tokenizer that tells no offsets."""
    if not tokenizer.is_fast:
        raise ConfigurationError(
            f"{type(tokenizer).__name__} does not tell which characters a token stands for; use a model with a tokenizer.json"
        )
    encoded = tokenizer(text, add_special_tokens=False, return_offsets_mapping=True, verbose=False)
    return encoded["input_ids"], encoded["offset_mapping"]


def labelled(
    text: str,
    ids: list[int],
    offsets: Offsets,
    replies: Sequence[Span],
    weights: Sequence[float | None],
    *,
    rest: float | None = None,
) -> TrainingRow:
    """The row in which the tokens of each reply are trained with its weight, and all others with `rest`; None: not trained.

    A token that stands for characters within and outside of a reply is not the reply's: a prompt ends before it begins.
    """
    labels = [IGNORE] * len(ids) if rest is None else list(ids)
    scales = [0.0 if rest is None else rest] * len(ids)
    turns = []
    for reply, weight in zip(replies, weights, strict=True):
        places = [place(text, offsets, start, end) for start, end in reply.parts]
        begin = bisect_left(offsets, reply.begin, key=_first)
        turns.append(Turn(begin, places[0][0], places[-1][1]) if places else Turn(begin, begin, begin))
        for start, end in places:
            labels[start:end] = [IGNORE] * (end - start) if weight is None else ids[start:end]
            scales[start:end] = [weight or 0.0] * (end - start)
    return TrainingRow(ids, labels, scales, tuple(turns))


def place(text: str, offsets: Offsets, start: int, end: int) -> tuple[int, int]:
    """The tokens that lie within the characters from `start` up to `end`: the first, and the first behind them.

    A token of no width stands for the characters before it, which its tokenizer cut off; one that takes in the white space behind
    it, as the end tokens of some models do, does not reach beyond.
    """
    first = bisect_left(offsets, start, key=_first)
    while first < len(offsets) and offsets[first] == (start, start):
        first += 1
    behind = bisect_left(offsets, end, lo=first, key=_first)
    while behind > first and text[end : offsets[behind - 1][1]].strip():
        behind -= 1
    return first, max(first, behind)


def _first(offset: tuple[int, int]) -> int:
    return offset[0]
