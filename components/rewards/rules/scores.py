"""StepScores: what the rules say of one call, line by line."""

from functools import lru_cache

import msgspec

RULES = ("non_redundancy", "non_regression", "non_repetition", "information_use", "validity")
RULES_VERSION = 4


class StepScores(msgspec.Struct, frozen=True, eq=False):
    """A score in [0, 1] of each rule; None where it has nothing to say.

    `reasons`: why, in one line for a person, for each rule that scored less than 1. Scores without reasons are shared between
    steps: they are read, never changed, and equal only to themselves.
    """

    non_redundancy: float | None = None
    non_regression: float | None = None
    non_repetition: float | None = None
    information_use: float | None = None
    validity: float | None = None
    reasons: dict[str, str] = {}

    @property
    def lines(self) -> dict[str, float | None]:
        """The scores by the names of the rules, in the order of RULES."""
        return {
            "non_redundancy": self.non_redundancy,
            "non_regression": self.non_regression,
            "non_repetition": self.non_repetition,
            "information_use": self.information_use,
            "validity": self.validity,
        }

    def total(self, rubric: dict[str, float]) -> float | None:
        """The mean of the lines that are not None, weighted by the rubric; None where no weight is left."""
        weight = weighted = 0.0
        for name, score in self.lines.items():
            if score is not None and name in rubric:
                each = rubric[name]
                weight += each
                weighted += each * score
        return min(1.0, weighted / weight) if weight > 0 else None


@lru_cache(maxsize=256)
def faultless(
    non_redundancy: float | None = None,
    non_regression: float | None = None,
    non_repetition: float | None = None,
    information_use: float | None = None,
    validity: float | None = None,
) -> StepScores:
    """Scores that need no reason: the same object for the same scores."""
    return StepScores(non_redundancy, non_regression, non_repetition, information_use, validity)
