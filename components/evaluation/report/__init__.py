"""What a decision and a night say to a reader: in words for the terminal, and as a page for a phone."""

from .words import (
    AUDIT_MEANING,
    VERDICTS,
    effect_text,
    explain,
    interval_text,
    meaning,
    number,
    p_text,
    percent,
    points,
    render,
    sentence,
    summary_sentence,
)

__all__ = [
    "AUDIT_MEANING",
    "VERDICTS",
    "effect_text",
    "explain",
    "interval_text",
    "meaning",
    "number",
    "p_text",
    "percent",
    "points",
    "render",
    "sentence",
    "summary_sentence",
]
