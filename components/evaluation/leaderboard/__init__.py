"""Leaderboard: many agents on the same tasks, with what can and what cannot be said of their order."""

from .board import CORRECTION, Duel, Leaderboard, Place, leaderboard
from .letters import compact_letters
from .words import columns, headings, markdown, rows, sentence

__all__ = [
    "CORRECTION",
    "Duel",
    "Leaderboard",
    "Place",
    "columns",
    "compact_letters",
    "headings",
    "leaderboard",
    "markdown",
    "rows",
    "sentence",
]
