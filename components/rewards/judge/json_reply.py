"""The one JSON object in a model's reply: forgiving of what stands around it and of a cut end, never of two that differ.

Bounded: a reply is read in time linear in its length, up to LONGEST characters and CANDIDATES objects.
"""

import json
import string
from collections.abc import Callable, Iterator
from typing import Any

LONGEST = 65_536
CANDIDATES = 64
DEEPEST = 32
FENCE = "```"
Fits = Callable[[dict[str, Any]], bool]


class Unreadable(Exception):
    """A reply that holds no answer; says why, in a few words that may be told to the model."""


def read_object(text: str, fits: Fits) -> dict[str, Any]:
    """The object for which `fits` holds. Raises Unreadable.

    Where several stand in the text they must be equal: a model that quotes an answer which it was shown, and then gives its
    own, is not believed. A value that stands at a cut end is left out, because nobody knows how it went on.
    """
    if len(text) > LONGEST:
        raise Unreadable(f"the reply is longer than {LONGEST} characters")
    whole = _parsed(_unfenced(text))
    if isinstance(whole, dict) and fits(whole):
        return whole
    found = [each for each in _objects(text) if fits(each)]
    if not found:
        mended = _parsed(mend(text[text.find("{") :])) if "{" in text else None
        found = [mended] if isinstance(mended, dict) and fits(mended) else []
    if not found:
        raise Unreadable("the reply holds no JSON object with the lines that were asked for")
    if any(each != found[0] for each in found):
        raise Unreadable("the reply holds several answers that differ")
    return found[0]


def _unfenced(text: str) -> str:
    """What stands in the one fenced block that a reply is; any other text as it is. A pattern would be slow on endless blanks."""
    inner = text.strip()
    if len(inner) < 2 * len(FENCE) or not (inner.startswith(FENCE) and inner.endswith(FENCE)):
        return text
    return inner[len(FENCE) : -len(FENCE)].lstrip(string.ascii_letters)


def _parsed(text: str) -> Any:
    try:
        return json.loads(text, parse_constant=_no_number, object_pairs_hook=_once) if _is_flat(text) else None
    except (ValueError, RecursionError):
        return None


def _no_number(name: str) -> float:
    raise ValueError(f"{name} is no JSON")


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object that names a key twice has two answers."""
    found: dict[str, Any] = {}
    for name, value in pairs:
        if name in found and found[name] != value:
            raise ValueError(f"{name} stands twice")
        found[name] = value
    return found


def _is_flat(text: str) -> bool:
    """Whether nothing is nested deeper than DEEPEST, by a count that may only be too high."""
    depth = 0
    for character in text:
        if character in "{[":
            depth += 1
            if depth > DEEPEST:
                return False
        elif character in "}]":
            depth = max(0, depth - 1)
    return True


def _objects(text: str) -> Iterator[dict[str, Any]]:
    """Every object that begins at a brace outside of another object."""
    for begin, end in _spans(text):
        found = _parsed(text[begin:end])
        if not isinstance(found, dict):
            found = _parsed(mend(text[begin:end]))
        if isinstance(found, dict):
            yield found


def _spans(text: str) -> Iterator[tuple[int, int]]:
    """Where balanced braces begin and end; of those that are never closed, nothing."""
    depth = begin = given = 0
    for at, character in _outside_strings(text):
        if character == "{":
            begin, depth = (at, 1) if depth == 0 else (begin, depth + 1)
        elif character == "}" and depth:
            depth -= 1
            if depth == 0:
                given += 1
                yield begin, at + 1
                if given == CANDIDATES:
                    return


def _outside_strings(text: str) -> Iterator[tuple[int, str]]:
    """The characters outside of JSON strings; a quotation mark in prose opens none."""
    depth = 0
    within = escaped = False
    for at, character in enumerate(text):
        if within:
            if escaped:
                escaped = False
            elif character == "\\":
                escaped = True
            elif character == '"':
                within = False
            continue
        if character == '"' and depth:
            within = True
            continue
        depth += (character == "{") - (character == "}" and depth > 0)
        yield at, character


def mend(text: str) -> str:
    """An object whose end is cut off: back to its last whole value, then closed. Commas before a closing bracket go, too."""
    closers: list[str] = []
    kept: list[str] = []
    safe, open_then = 0, ""
    last = -1
    for at, character in _outside_strings(text):
        kept.append(text[last + 1 : at])
        last = at
        if character in "{[":
            closers.append("}" if character == "{" else "]")
            if len(closers) > DEEPEST:
                break
        elif character in "}]":
            if not closers or closers.pop() != character:
                break
            _drop_comma(kept)
        elif character != ",":
            kept.append(character)
            continue
        if character == ",":
            safe, open_then = len(kept), "".join(reversed(closers))
        kept.append(character)
        if character in "}]":
            safe, open_then = len(kept), "".join(reversed(closers))
            if not closers:
                break
    return "".join(kept[:safe]) + open_then


def _drop_comma(kept: list[str]) -> None:
    at = len(kept) - 1
    while at >= 0 and not kept[at].strip():
        at -= 1
    if at >= 0 and kept[at] == ",":
        kept[at] = ""
