"""Formatting: conversations and trajectories as rows of tokens, of which exactly what the agent wrote is trained.

Sampling and training render the same text, byte for byte, with any chat template; see `conversation.py` for what is trained of it,
and `fitting.py` for what becomes of rows that are too long.
"""

from .conversation import AGENT, reply_weights, tokenize_chat
from .fitting import Fitted, fit
from .row import IGNORE, TrainingRow, Turn
from .trajectory import tokenize

__all__ = ["AGENT", "IGNORE", "Fitted", "TrainingRow", "Turn", "fit", "reply_weights", "tokenize", "tokenize_chat"]
