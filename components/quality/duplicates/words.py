"""Words: texts as arrays of word hashes, and as sets of n-grams. The same text gives the same numbers in every process.

A word is a run of ASCII letters, digits and underscores, or a single character beyond ASCII (so that languages without spaces
have words too). Case, spacing, punctuation and the forms of Unicode do not count.
"""

import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

GRAM = 5
"""Words of an n-gram."""
PIECE = 1 << 20
"""Bytes of text that are hashed at once."""

Hashes = NDArray[np.uint32]

NOTHING, ASCII, LEAD, MORE = range(4)


def _kinds() -> NDArray[np.uint8]:
    kinds = np.zeros(256, np.uint8)
    kinds[[ord(each) for each in "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_"]] = ASCII
    kinds[0x80:0xC0], kinds[0xC0:] = MORE, LEAD
    return kinds


KINDS = _kinds()
"""What each byte of UTF-8 is: no part of a word, of an ASCII word, the first of a character beyond ASCII, a later one."""


def _mixed(values: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """The finaliser of SplitMix64 (Steele, Lea, Flood 2014): every bit of the input reaches every bit of the result."""
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))


def random_numbers(count: int, stream: int) -> NDArray[np.uint64]:
    """Fixed numbers without pattern: SplitMix64 from a seed of the stream's own."""
    steps = np.arange(1, count + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    return _mixed(steps + np.uint64(stream))


PLACES = random_numbers(256, 1) | np.uint64(1)
"""A multiplier for each place of a byte in its word; they repeat in longer words."""
WEIGHTS = random_numbers(64, 2) | np.uint64(1)
"""A multiplier for each place of a word in its n-gram."""


class Words(NamedTuple):
    """The words of some texts in order: a hash of each, and the number of its text."""

    hashes: NDArray[np.uint64]
    texts: NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Sets:
    """Sets of n-grams, one a text: the values of set i, ascending, are `values[bounds[i] : bounds[i + 1]]`."""

    values: Hashes
    bounds: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.bounds) - 1

    def of(self, index: int) -> Hashes:
        """One set."""
        return self.values[self.bounds[index] : self.bounds[index + 1]]

    @property
    def sizes(self) -> NDArray[np.int64]:
        """How many n-grams each has."""
        return np.diff(self.bounds)


UNSEEN = dict.fromkeys((0x00AD, *range(0x200B, 0x2010), *range(0x2060, 0x2065), 0xFEFF))
"""Characters that a reader does not see."""
NUMBERED = re.compile(r"\n[ \t]*\d+[ \t]*(?:[:|\t]|\u2192)")
"""The numbers that tools print before lines."""
_WORD = re.compile(rb"[0-9a-z_]+|[\x80-\xff]+")


def plain(text: str) -> bytes:
    """A text as it is compared, in UTF-8: lower case, one form of each character (NFKC), single spaces, no line numbers.

    A line break that is written `\\n`, as in JSON, is one.
    """
    if not text.isascii():
        text = unicodedata.normalize("NFKC", text.translate(UNSEEN))
    if "\\" in text:
        text = text.replace("\\n", "\n").replace("\\t", "\t")
    text = NUMBERED.sub("\n", "\n" + text)
    return " ".join(text.casefold().split()).encode("utf-8", "replace")


def bare(text: bytes) -> bytes:
    """The words of a `plain` text and nothing between them: equal where two texts read the same."""
    return b" ".join(_WORD.findall(text))


def words_of(texts: Iterable[bytes]) -> Words:
    """The words of texts in UTF-8, however long they are."""
    hashes: list[NDArray[np.uint64]] = []
    numbers: list[NDArray[np.int64]] = []
    for piece, owners in _batches(texts):
        found, starts = _hashed(np.frombuffer(piece, np.uint8))
        hashes.append(found)
        ends, texts_of = owners
        numbers.append(texts_of[np.searchsorted(ends, starts, side="right")])
    if not hashes:
        return Words(np.empty(0, np.uint64), np.empty(0, np.int64))
    return Words(np.concatenate(hashes), np.concatenate(numbers))


def _batches(texts: Iterable[bytes]) -> Iterator[tuple[bytes, tuple[NDArray[np.int64], NDArray[np.int64]]]]:
    """About PIECE bytes at a time, with where each text's part ends in them and the number of the text."""
    parts: list[bytes] = []
    ends: list[int] = []
    owners: list[int] = []
    size = 0
    for number, text in enumerate(texts):
        for part in _parts(text):
            parts.append(part)
            size += len(part) + 1
            ends.append(size)
            owners.append(number)
            if size >= PIECE:
                yield b"\0".join(parts) + b"\0", (np.array(ends), np.array(owners))
                parts, ends, owners, size = [], [], [], 0
    if parts:
        yield b"\0".join(parts) + b"\0", (np.array(ends), np.array(owners))


def _parts(text: bytes) -> Iterator[bytes]:
    """A long text in parts, cut at spaces where there are any, and never within a character."""
    begin = 0
    while len(text) - begin > PIECE:
        end = text.rfind(b" ", begin + 1, begin + PIECE)
        if end < 0:
            end = begin + PIECE
            while KINDS[text[end]] == MORE:
                end -= 1
        yield text[begin:end]
        begin = end
    yield text[begin:] if begin else text


def _hashed(data: NDArray[np.uint8]) -> tuple[NDArray[np.uint64], NDArray[np.int64]]:
    """The hash of each word in bytes that end with no word, and where it begins."""
    kinds = KINDS[data]
    before = np.empty_like(kinds)
    before[0], before[1:] = NOTHING, kinds[:-1]
    begins = (kinds == LEAD) | ((kinds == ASCII) & (before != ASCII))
    places = np.flatnonzero(kinds)
    starts = np.flatnonzero(begins)
    if not len(starts):
        return np.empty(0, np.uint64), starts
    firsts = np.searchsorted(places, starts)
    offsets = places - np.repeat(starts, np.diff(np.append(firsts, len(places))))
    values = (data[places].astype(np.uint64) + np.uint64(1)) * PLACES[offsets & 255]
    return _mixed(np.add.reduceat(values, firsts)), starts


def gram_sets(texts: Sequence[bytes]) -> Sets:
    """The set of n-grams of each text; a text of fewer than GRAM words has none."""
    words = words_of(texts)
    keys = _keys(words)
    keys.sort()  # np.unique goes by a hash table, which takes ten times as long
    keys = keys[np.append(True, keys[1:] != keys[:-1])] if len(keys) else keys
    bounds = np.searchsorted(keys >> np.uint64(32), np.arange(len(texts) + 1, dtype=np.uint64))
    return Sets((keys & np.uint64(0xFFFFFFFF)).astype(np.uint32), bounds.astype(np.int64))


def _keys(words: Words) -> NDArray[np.uint64]:
    """Text and n-gram in one number each: the text's number in the upper half."""
    count = len(words.hashes) - GRAM + 1
    if count <= 0:
        return np.empty(0, np.uint64)
    value = np.zeros(count, np.uint64)
    for place in range(GRAM):
        value += words.hashes[place : place + count] * WEIGHTS[place]
    whole = words.texts[:count] == words.texts[GRAM - 1 :]
    texts = words.texts[:count][whole].astype(np.uint64)
    keys: NDArray[np.uint64] = (texts << np.uint64(32)) | (_mixed(value[whole]) >> np.uint64(32))
    return keys


def shared(one: Hashes, other: Hashes) -> int:
    """How many values two sets share."""
    if not len(one) or not len(other):
        return 0
    small, large = (one, other) if len(one) <= len(other) else (other, one)
    places = np.minimum(large.searchsorted(small), len(large) - 1)
    return int(np.count_nonzero(large[places] == small))


def jaccard(one: Hashes, other: Hashes) -> float:
    """What two sets share, of all that either has; 0 where both are empty."""
    both = shared(one, other)
    return both / max(1, len(one) + len(other) - both)
