"""Language, as far as a script tells it: in which script a text is written, and how much of it.

Of the letters of a text each counts for its script; digits, signs and spaces count for none. An English text and a French one
are both Latin: this tells data in which languages are mixed, not which language it is.
"""

from collections.abc import Iterable
from typing import Any, NamedTuple

RANGES = (
    (0x0041, 0x005A, "latin"), (0x0061, 0x007A, "latin"), (0x00C0, 0x024F, "latin"), (0x0250, 0x02AF, "latin"),
    (0x0370, 0x03FF, "greek"), (0x0400, 0x052F, "cyrillic"), (0x0530, 0x058F, "armenian"), (0x0590, 0x05FF, "hebrew"),
    (0x0600, 0x06FF, "arabic"), (0x0750, 0x077F, "arabic"), (0x0870, 0x08FF, "arabic"), (0x0900, 0x097F, "devanagari"),
    (0x0980, 0x09FF, "bengali"), (0x0A00, 0x0A7F, "gurmukhi"), (0x0A80, 0x0AFF, "gujarati"), (0x0B80, 0x0BFF, "tamil"),
    (0x0C00, 0x0C7F, "telugu"), (0x0C80, 0x0CFF, "kannada"), (0x0D00, 0x0D7F, "malayalam"), (0x0E00, 0x0E7F, "thai"),
    (0x0E80, 0x0EFF, "lao"), (0x1000, 0x109F, "burmese"), (0x10A0, 0x10FF, "georgian"), (0x1100, 0x11FF, "hangul"),
    (0x1200, 0x137F, "ethiopic"), (0x1780, 0x17FF, "khmer"), (0x1C80, 0x1C8F, "cyrillic"), (0x1D00, 0x1D25, "latin"),
    (0x1E00, 0x1EFF, "latin"), (0x1F00, 0x1FFF, "greek"),
    (0x3040, 0x309F, "kana"), (0x30A0, 0x30FF, "kana"), (0x3130, 0x318F, "hangul"), (0x31F0, 0x31FF, "kana"),
    (0x3400, 0x4DBF, "han"), (0x4E00, 0x9FFF, "han"), (0xAC00, 0xD7AF, "hangul"), (0xF900, 0xFAFF, "han"),
    (0xFB50, 0xFDFF, "arabic"), (0xFE70, 0xFEFF, "arabic"), (0xFF21, 0xFF3A, "latin"), (0xFF41, 0xFF5A, "latin"),
    (0xFF66, 0xFF9D, "kana"), (0x20000, 0x3FFFF, "han"),
)  # fmt: skip
"""The blocks of Unicode whose letters are counted, first to last code point, in order."""
FEWEST = 20
"""Letters that a text must have for its script to be told."""
_NO_LETTERS = bytes(code for code in range(256) if not bytes((code,)).isalpha())


class Script(NamedTuple):
    """The script of most letters, their share among all letters, and all scripts in words (`latin 60 %, han 40 %`)."""

    name: str | None
    share: float | None
    told: str


NONE = Script(None, None, "")
LATIN = Script("latin", 1.0, "latin 100 %")


def script_of(texts: Iterable[str]) -> Script:
    """The script of these texts together. No name where they hold fewer than FEWEST letters; han beside kana is kana."""
    whole = "\n".join(texts)
    ascii_letters = len(whole.encode("ascii", "ignore").translate(None, _NO_LETTERS))
    if whole.isascii():
        return LATIN if ascii_letters >= FEWEST else NONE
    counts = _beyond_ascii(whole)
    if ascii_letters:
        counts["latin"] = counts.get("latin", 0) + ascii_letters
    if counts.get("kana"):  # Japanese is written in both
        counts["kana"] += counts.pop("han", 0)
    letters = sum(counts.values())
    if letters < FEWEST:
        return NONE
    ordered = sorted(counts, key=lambda name: (-counts[name], name))
    told = ", ".join(f"{name} {counts[name] / letters:.0%}" for name in ordered[:3]).replace("%", " %")
    return Script(ordered[0], counts[ordered[0]] / letters, told)


def _beyond_ascii(text: str) -> dict[str, int]:
    """The letters beyond ASCII by script; those of no known block count as `other`."""
    import numpy as np

    codes = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), dtype=np.uint32)
    starts, ends = _bounds()
    codes = codes[codes > 127]
    place = np.searchsorted(starts, codes, side="right") - 1
    inside = (place >= 0) & (codes <= ends[place])
    found = np.bincount(place[inside], minlength=len(RANGES))
    counts: dict[str, int] = {}
    for (_, _, name), count in zip(RANGES, found.tolist(), strict=True):
        if count:
            counts[name] = counts.get(name, 0) + count
    return counts


def _bounds() -> Any:
    import numpy as np

    return np.array([each[0] for each in RANGES], np.uint32), np.array([each[1] for each in RANGES], np.uint32)
