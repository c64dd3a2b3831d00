"""The final answer of a completion: what stands in its set place."""

import re

from .tags import ANSWER, ANSWER_END

_BOXES = ("\\boxed{", "\\fbox{")
_FENCE = re.compile(r"^```[\w+-]*[ \t]*\n(.*?)^```", re.DOTALL | re.MULTILINE)


def final_answer(completion: str) -> str | None:
    """What stands between the one pair of answer tags, or in its box there; without any tag, in the last box of the text.

    None where there is no such place, or more than one pair of tags: whoever gives two answers gives none.
    """
    text = _place(completion)
    if text is None:
        return None
    return _boxed(text) or (text if text is not completion else None)


def final_program(completion: str) -> str | None:
    """The last fenced block between the answer tags, or all that stands there; without any tag, the last block of the text."""
    text = _place(completion)
    blocks = _FENCE.findall(text or "")
    if blocks:
        return str(blocks[-1])
    return text if text is not completion else None


def _place(completion: str) -> str | None:
    """Between the tags; the completion itself where it has none; None where they are no single pair, or hold nothing."""
    begins, ends = completion.count(ANSWER), completion.count(ANSWER_END)
    if not begins and not ends:
        return completion
    first, last = completion.find(ANSWER), completion.find(ANSWER_END)
    if begins != 1 or ends != 1 or last < first:
        return None
    return completion[first + len(ANSWER) : last].strip() or None


def _boxed(text: str) -> str | None:
    """The content of the last box; None where there is none, or it is empty or not closed."""
    start, box = max((text.rfind(box), box) for box in _BOXES)
    if start < 0:
        return None
    depth, begin = 1, start + len(box)
    for place in range(begin, len(text)):
        if text[place] == "{":
            depth += 1
        elif text[place] == "}":
            depth -= 1
            if depth == 0:
                return text[begin:place].strip() or None
    return None
