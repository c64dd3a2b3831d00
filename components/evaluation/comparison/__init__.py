"""Comparison: two agents, pair by pair. `compare` decides, `compare_agents` answers by hand, `flips` says what to open first."""

from .agents import AgentComparison, KindBelief, TestRow, compare_agents
from .compare import AgentRef, Comparison, KindRow, compare
from .flips import Flip, FlippedAttempt, flips
from .pairing import Measure, TaskPair

__all__ = [
    "AgentComparison",
    "AgentRef",
    "Comparison",
    "Flip",
    "FlippedAttempt",
    "KindBelief",
    "KindRow",
    "Measure",
    "TaskPair",
    "TestRow",
    "compare",
    "compare_agents",
    "flips",
]
