"""Whether a text says a fact: by whole words and by the value of numbers, whatever the case and the punctuation.

Not understood: negation, synonyms and units. A taskset gives a fact's other wordings as alternatives, and forbids what is wrong.
"""

import re
import unicodedata
from collections.abc import Iterable
from decimal import Decimal

_NUMBERS = frozenset(
    re.findall(
        r"\w+",
        "zero two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen eighteen "
        "nineteen twenty thirty forty fifty sixty seventy eighty ninety hundred thousand dozen half",
    )
)
"""Words for numbers; `one` is left out, which is mostly a pronoun."""
_TOKEN = re.compile(r"(?<!\w)(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?(?!\w)|\w+(?:'\w+)*")


def tokens(text: str) -> tuple[str, ...]:
    """The words of a text in one form: `$1,250.00` and `1250` are the same number, `Can’t` and `can't` the same word."""
    plain = unicodedata.normalize("NFKC", text).casefold().replace("’", "'")
    return tuple(_number(word) if word[0].isdecimal() else word for word in _TOKEN.findall(plain))


def _number(word: str) -> str:
    try:
        return format(Decimal(word.replace(",", "")).normalize(), "f")
    except ArithmeticError:
        return word


def says(text: tuple[str, ...], fact: tuple[str, ...]) -> bool:
    """Whether `fact` stands in `text` word by word; both as `tokens` gives them. An empty fact is never said."""
    width = len(fact)
    return width > 0 and any(text[at : at + width] == fact for at in range(len(text) - width + 1))


def hedges(text: tuple[str, ...], facts: Iterable[str]) -> bool:
    """Whether a text names a number, in digits or as a word, that none of the facts names."""
    meant = {word for fact in facts for word in tokens(fact)}
    return any(word not in meant and (word in _NUMBERS or any(map(str.isdigit, word))) for word in text)
