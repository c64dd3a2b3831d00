"""The promotion rule: may the challenger take the champion's place? The answer is a record, with its reasons.

`rule` and `declared` stand before the night, `decision.decide` applies them, `guardrails` and `verdict` are its parts, `record` is
what is kept, `season` is what earlier nights leave for tonight, `looks` when it may end early.
"""

from .decision import CORRECTION, decide
from .declared import Declared
from .guardrails import KIND
from .looks import PlannedLook, TakenLook
from .record import (
    SCHEMA_VERSION,
    Audit,
    Contender,
    Decision,
    Effect,
    Guardrail,
    Match,
    TasksetRef,
    Trained,
    Verdict,
    read_decision,
)
from .rule import PromotionRule
from .tasks import DECIDING, deciding

__all__ = [
    "CORRECTION",
    "DECIDING",
    "KIND",
    "SCHEMA_VERSION",
    "Audit",
    "Contender",
    "Decision",
    "Declared",
    "Effect",
    "Guardrail",
    "Match",
    "PlannedLook",
    "PromotionRule",
    "TakenLook",
    "TasksetRef",
    "Trained",
    "Verdict",
    "decide",
    "deciding",
    "read_decision",
]
