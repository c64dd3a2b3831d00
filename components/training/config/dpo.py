"""Section `dpo`: direct preference optimisation on pairs (Rafailov et al. 2023, arXiv:2305.18290)."""

from typing import Literal

from pydantic import Field

from components.protocol.configuration import Configuration


class Dpo(Configuration):
    """`beta`: how dear it is to leave the reference; `level`: which pairs are read; `precompute`: the reference is asked once."""

    beta: float = Field(0.1, gt=0)
    loss: Literal["sigmoid", "ipo", "robust"] = "sigmoid"
    label_smoothing: float = Field(0.0, ge=0, lt=0.5)
    level: Literal["step", "trajectory", "all"] = "all"
    token_weights: bool = False
    precompute: bool = True
