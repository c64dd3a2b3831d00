"""The strict layout of a reasoned reply: one `<think>...</think>`, then one `<answer>...</answer>`, and nothing else.

It is judged on the completion alone: what a template or a prompt put before it earns nothing.
"""

import re
import unicodedata
from typing import NamedTuple

THINK, THINK_END, ANSWER, ANSWER_END = "<think>", "</think>", "<answer>", "</answer>"
_TAGS = (THINK, THINK_END, ANSWER, ANSWER_END)
# Whatever a lenient reader might take for one of the tags. Every quantifier is possessive: linear on hostile text.
_LOOKALIKE = re.compile(r"<\s*+/?+\s*+(?:think|answer)(?![\w-])[^<>]*+>", re.IGNORECASE)


class Reply(NamedTuple):
    """The two parts of a reply in the strict layout, without the blanks around them. Neither is empty."""

    reasoning: str
    answer: str


def read_reply(completion: str) -> Reply | None:
    """The parts of a completion; None where it departs from the layout in anything.

    A tag that stands there twice, in another order, nested, in capitals, with blanks or attributes, or in full-width or invisible
    characters is a departure; so are text outside of the tags and a part without text.
    """
    text = completion.strip()
    if not (text.startswith(THINK) and text.endswith(ANSWER_END)):
        return None
    if any(text.count(tag) != 1 for tag in _TAGS) or len(_LOOKALIKE.findall(_unmasked(text))) != len(_TAGS):
        return None
    end, begin = text.index(THINK_END), text.index(ANSWER)
    if begin < end or text[end + len(THINK_END) : begin].strip():
        return None
    reasoning = text[len(THINK) : end].strip()
    answer = text[begin + len(ANSWER) : -len(ANSWER_END)].strip()
    return Reply(reasoning, answer) if reasoning and answer else None


def format_score(completion: str) -> float:
    """1 where the completion has the strict layout, else 0."""
    return float(read_reply(completion) is not None)


def _unmasked(text: str) -> str:
    """The text as a person sees it: compatible characters unified, invisible ones left out."""
    if text.isascii():
        return text
    return "".join(each for each in unicodedata.normalize("NFKC", text) if unicodedata.category(each) != "Cf")
