"""Verifiable rewards: what rules and tests can say of a reply with certainty. Each component stands apart."""

from .answers import final_answer, final_program
from .episode_components import EpisodeComponents, VerifiableConfig
from .gates import Gates, execution_gated, gates_of
from .language import LANGUAGES, language_share
from .mathematics import MathVerifier
from .programs import Case, ProgramResult, grade_program
from .rule_fraction import Rule, extract_rules, rule_fraction
from .tags import Reply, format_score, read_reply

__all__ = [
    "LANGUAGES",
    "Case",
    "EpisodeComponents",
    "Gates",
    "MathVerifier",
    "ProgramResult",
    "Reply",
    "Rule",
    "VerifiableConfig",
    "execution_gated",
    "extract_rules",
    "final_answer",
    "final_program",
    "format_score",
    "gates_of",
    "grade_program",
    "language_share",
    "read_reply",
    "rule_fraction",
]
