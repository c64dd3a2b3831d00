"""Gauss-Legendre quadrature: the integral of a smooth function over an interval as a weighted sum."""

from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .checks import Floats

NODES = 200


@cache
def _standard() -> "tuple[Floats, Floats]":
    import numpy as np

    nodes, weights = np.polynomial.legendre.leggauss(NODES)
    return nodes, weights


def gauss_legendre(low: float, high: float) -> "tuple[Floats, Floats]":
    """NODES points within (low, high) and their weights, which sum to high - low."""
    nodes, weights = _standard()
    return low + (nodes + 1) * (high - low) / 2, weights * (high - low) / 2
