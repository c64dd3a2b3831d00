"""TrainingRow: one conversation as a model is trained on it."""

import msgspec

IGNORE = -100
"""The label of a token that is not trained."""


class Turn(msgspec.Struct, frozen=True, gc=False):
    """Where a reply stands among the tokens: its frame from `begin` on, its own words from `start` up to `end`.

    A reply of which nothing is shown has `start == end`.
    """

    begin: int
    start: int
    end: int


class TrainingRow(msgspec.Struct, frozen=True):
    """`input_ids`, `labels` (-100 where nothing is trained) and `weights` (0 there) are of equal length.

    `turns`: one per reply of the assistant, in order. Empty where nobody looked for them (`agent_format` off); in a chunk those
    that are not only context.
    """

    input_ids: list[int]
    labels: list[int]
    weights: list[float]
    turns: tuple[Turn, ...] = ()

    @property
    def trained_tokens(self) -> int:
        """How many tokens carry a label."""
        return sum(label != IGNORE for label in self.labels)
