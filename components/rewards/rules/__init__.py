"""Layer 1 of the process reward: rules that judge each call by what the episode has done and seen before it."""

from .engine import RuleEngine
from .scores import RULES, RULES_VERSION, StepScores
from .wrapper import RuleReward

__all__ = ["RULES", "RULES_VERSION", "RuleEngine", "RuleReward", "StepScores"]
