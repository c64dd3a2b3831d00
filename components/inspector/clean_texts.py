"""Texts of a record as an answer can hold them: valid Unicode, bounded, and JSON of bounded depth."""

import json
from typing import Any

TEXT_LIMIT = 16_384
"""Characters of a text in an answer; /content returns the rest of a result."""
LINE_LIMIT = 1_000


def clean_text(text: str) -> str:
    """Replace lone surrogates, which UTF-8 cannot hold."""
    return text.encode("utf-8", "replace").decode()


def cut_text(text: str) -> str:
    """Return the beginning of a text, clean."""
    return clean_text(text[:TEXT_LIMIT])


def clean_line(text: str) -> str:
    """Return a text as one line, clean and cut."""
    return clean_text(" ".join(text.split())[:LINE_LIMIT])


def clean_value(value: Any, depth: int = 50) -> Any:
    """Return a JSON value with clean and bounded texts; what is nested deeper than `depth` is left out."""
    if isinstance(value, str):
        return clean_text(value if len(value) <= TEXT_LIMIT else f"{value[:TEXT_LIMIT]}… ({len(value)} characters)")
    if isinstance(value, float) and not abs(value) < float("inf"):
        return str(value)
    if isinstance(value, dict | list | tuple) and depth == 0:
        return "…"
    if isinstance(value, dict):
        return {clean_text(str(key)): clean_value(inner, depth - 1) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [clean_value(inner, depth - 1) for inner in value]
    return value


def as_json(value: Any, **options: Any) -> str:
    """Return a JSON value as text. `options`: those of `json.dumps`."""
    try:
        return json.dumps(value, ensure_ascii=False, **options)
    except (RecursionError, ValueError):
        return "(nested too deeply to show)"
