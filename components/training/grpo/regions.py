"""Which region of its reply each token of an episode belongs to: reasoning, the form of a call, its tool's name, its arguments."""

from collections.abc import Sequence
from itertools import groupby
from typing import Any

from ..credit.regions import REASONING, reply_regions
from .episode import ENVIRONMENT


def regions_of(ids: Sequence[int], turns: Sequence[int], tokenizer: Any) -> list[int]:
    """The region of each id. `turns` parts the replies; what the policy did not write counts as reasoning, and is never trained."""
    found: list[int] = []
    for turn, pairs in groupby(zip(turns, ids, strict=True), key=lambda pair: pair[0]):
        own = [token for _, token in pairs]
        found += [REASONING] * len(own) if turn == ENVIRONMENT else reply_regions(tokenizer, own)
    return found
