"""Strings: what stands between the quotes of a JSON text, cut out of its bytes: mostly enough to know that it holds nothing.

Walking through a record's values takes ten times as long. What the walk would look at is all in here, and a little more.
"""

from functools import lru_cache

from .fields import HEADERS, SEPARATOR, VALUES
from .keys import meaning
from .patterns import compile_pattern

_SLASH, _QUOTE = b"\x01", b"\x02"
"""Stand for an escaped backslash and an escaped quote: JSON holds no such bytes."""
_OTHER = compile_pattern(rb"[:,\[][0-9]{10}[0-9]*[,}\]]|[ \t\r\n]")
"""Between strings: a whole number that is looked at as a text is; white space, with which a key could be taken for a value."""
_ESCAPES = ((b"\\n", b"\n"), (b"\\t", b"\t"), (b"\\r", b"\r"), (b"\\/", b"/"), (b"\\b", b"\b"), (b"\\f", b"\f"))


def strings_of(encoded: bytes) -> bytes | None:
    """The strings of a JSON object without white space, keys too, unescaped and laid end to end as `fields.joined` lays them.

    None where they do not tell everything: a key tells of its value, a number may be a text, or an escape is a rare one.
    """
    escaped = b"\\" in encoded
    if escaped:
        if _SLASH in encoded or _QUOTE in encoded:
            return None
        encoded = encoded.replace(b"\\\\", _SLASH)
        if b"\\u" in encoded:
            return None
        encoded = encoded.replace(b'\\"', _QUOTE)
    parts = encoded.split(b'"')
    strings, between = parts[1::2], parts[::2]
    keys = {string for string, sign in zip(strings, between[1:], strict=True) if sign[:1] == b":"}
    signs = b"".join(between)
    if any(map(_is_telling, keys)) or _OTHER.search(signs):
        return None
    return _unescaped(SEPARATOR.join(strings)) if escaped else SEPARATOR.join(strings)


def _unescaped(strings: bytes) -> bytes:
    for written, meant in _ESCAPES:
        if b"\\" not in strings:
            break
        strings = strings.replace(written, meant)
    return strings.replace(_QUOTE, b'"').replace(_SLASH, b"\\")


@lru_cache(maxsize=65_536)
def _is_telling(key: bytes) -> bool:
    """Whether what stands under the key, or beside it, is told by it; also of a key that would have to be unescaped."""
    if any(each in key for each in (b"\\", _SLASH, _QUOTE)):
        return True
    name = key.decode("utf-8", "surrogatepass")
    return name in VALUES or name.lower() in HEADERS or meaning(name) is not None
