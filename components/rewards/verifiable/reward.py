"""The verifiable reward of a reasoned reply: accuracy, format and language, each apart (DeepSeek-R1's rules).

No model judges anything here, and nothing in the prompt can earn reward: only the completion is read.
"""

from collections.abc import Sequence
from typing import Annotated

import msgspec
import pydantic

from components.protocol import Sandbox
from components.protocol.configuration import Configuration

from .answers import final_answer, final_program
from .language import language_share
from .mathematics import MathVerifier
from .programs import Case, grade_program
from .tags import format_score, read_reply

Weight = Annotated[float, pydantic.Field(ge=0, allow_inf_nan=False)]


class VerifiableConfig(Configuration):
    """The weights of the components, and the language that reasoning should keep to."""

    accuracy: Weight = 1.0
    format: Weight = 0.5
    language: Weight = 0.1
    target: str = "en"


class VerifiableScore(msgspec.Struct, frozen=True):
    """Each component in [0, 1]; None where there is nothing to say: a truth that is no mathematics, no tests, no words."""

    accuracy: float | None
    format: float
    language: float | None

    def total(self, config: VerifiableConfig) -> float | None:
        """The mean of those that are not None, by their weights; None where no weight is left."""
        parts = (
            (config.accuracy, self.accuracy),
            (config.format, self.format),
            (config.language, self.language),
        )
        known = [(weight, score) for weight, score in parts if score is not None and weight > 0]
        weight = sum(weight for weight, _ in known)
        return min(1.0, sum(each * score for each, score in known) / weight) if known else None


def score_mathematics(completion: str, truth: str, verifier: MathVerifier, target: str = "en") -> VerifiableScore:
    """A reply to a question of which the true answer is known, compared as mathematics."""
    answer = final_answer(completion)
    equal = False if answer is None else verifier.equal(truth, answer)
    return VerifiableScore(
        None if equal is None else float(equal), format_score(completion), _language(completion, target)
    )


def score_program(
    completion: str, cases: Sequence[Case], sandbox: Sandbox, seconds: float = 10.0, target: str = "en"
) -> VerifiableScore:
    """A reply whose answer is a program, by its tests in a started sandbox. Raises SandboxUnavailable."""
    program = final_program(completion)
    accuracy: float | None = 0.0 if cases else None
    if program is not None and cases:
        accuracy = grade_program(program, cases, sandbox, seconds).accuracy
    return VerifiableScore(accuracy, format_score(completion), _language(completion, target))


def _language(completion: str, target: str) -> float | None:
    """Of the reasoning; of the whole completion where that cannot be told apart, so that disorder hides nothing."""
    reply = read_reply(completion)
    return language_share(completion if reply is None else reply.reasoning, target)
