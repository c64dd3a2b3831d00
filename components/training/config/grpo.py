"""Section `grpo`: group relative policy optimisation (Shao et al. 2024, arXiv:2402.03300)."""

from pydantic import Field

from components.protocol.configuration import Configuration


class Grpo(Configuration):
    """`group_size`: attempts at one task, compared with each other. `beta`: the weight of KL from the reference, 0 for none."""

    group_size: int = Field(8, gt=1)
    beta: float = Field(0.0, ge=0)
    clip: float = Field(0.2, gt=0)
