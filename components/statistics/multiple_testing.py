"""Corrections for several tests at once (Bonferroni, Holm), and alpha spending over a season of nights (LORD++).

Thirty nightly tests at 2.5 % each promote a challenger that is no better in more than half of all months. `lord` is LORD++ (Ramdas,
Yang, Wainwright & Jordan 2017, arXiv:1710.00499, with the sequence of Javanmard & Montanari 2018, doi:10.1214/17-AOS1559) over a
*season* of a declared number of tests:

    level(t) = w0 g(t) + (alpha - w0) g(t - t1) + alpha sum_{j >= 2} g(t - tj)        with tj < t the season's promotions

`g` sums to one over the season. It follows that:
- A season in which no challenger is better promotes one with probability at most `w0`. Any `nights` tests in a row touch at most
  two seasons: without a promotion before them they do so with probability at most 2 `w0` (w0 = alpha / 2: at most alpha).
- Of the promotions at most the share `alpha` is wrong in expectation, whatever the truth. A promotion raises the levels of the
  nights after it: more than one wrong promotion a season is bounded in share, not in probability.

Both need p-values that are valid given the past: tasks that decide must not have been trained on, nor chosen after the fact.
`fixed` tests every night at `alpha` and guarantees nothing over many nights.
"""

import math
from collections.abc import Iterable, Sequence
from functools import cache
from typing import Literal

import msgspec

from ratchet.components.core import ConfigurationError, DataError

from .numerics import Values, require_finite

SpendingMethod = Literal["lord", "fixed"]


def bonferroni(p: Values) -> tuple[float, ...]:
    """Return each p-value times their number, at most 1, in the order given. An adjusted p at or below the level rejects."""
    values = _p_values(p, "bonferroni")
    return tuple(min(1.0, len(values) * value) for value in values)


def holm(p: Values) -> tuple[float, ...]:
    """Return Holm's step-down adjusted p-values (1979), in the order given. Never above Bonferroni's, with the same guarantee.

    >>> ratchet.holm([0.01, 0.04])
    (0.02, 0.04)
    """
    values = _p_values(p, "holm")
    adjusted, highest = [0.0] * len(values), 0.0
    for rank, place in enumerate(sorted(range(len(values)), key=values.__getitem__)):
        highest = max(highest, values[place] * (len(values) - rank))
        adjusted[place] = min(1.0, highest)
    return tuple(adjusted)


def _p_values(p: Values, caller: str) -> list[float]:
    values: list[float] = require_finite(p, caller).tolist()
    if values and (min(values) < 0 or max(values) > 1):
        raise DataError(f"{caller}: a p-value lies in [0, 1], got {min(values):g} to {max(values):g}")
    return values


class AlphaSpending(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Rule that divides the error rate of a season among its nightly tests; declared before the season begins.

    `method`: `lord` (LORD++) or `fixed`. `alpha`: one-sided level, per season for `lord`, per night for `fixed`.
    `nights`: number of tests in a season. `w0`: initial wealth of LORD++ in (0, alpha]; None for half of alpha.
    """

    method: SpendingMethod = "lord"
    alpha: float = 0.05
    nights: int = 30
    w0: float | None = None

    def __post_init__(self) -> None:
        if not 0 < self.alpha < 0.5:
            raise ConfigurationError(f"spending: alpha {self.alpha} must lie in (0, .5)")
        if not 1 <= self.nights <= 10_000:
            raise ConfigurationError(f"spending: a season of {self.nights} nights must have 1 to 10000")
        if self.w0 is not None and not 0 < self.w0 <= self.alpha:
            raise ConfigurationError(f"spending: w0 {self.w0} must lie in (0, alpha = {self.alpha:g}]")

    @property
    def wealth(self) -> float:
        """Initial wealth of a season: `w0`, or half of `alpha` where it is None."""
        return self.alpha / 2 if self.w0 is None else self.w0


class PastTest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An earlier night: whether its test was made (its outcomes were seen, so its level is spent), and whether it promoted."""

    tested: bool
    promoted: bool

    def __post_init__(self) -> None:
        if self.promoted and not self.tested:
            raise DataError("spending: a night that promoted has tested; look at its decision record")


class AlphaAllowance(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The one-sided level of tonight's test: promote where p <= `level`.

    `season` and `test` count from 1. `promotions`: of the season so far; `spent`: sum of the levels of its earlier tests.
    """

    level: float
    method: SpendingMethod
    alpha: float
    nights: int
    season: int
    test: int
    promotions: int
    spent: float


def alpha_allowance(spending: AlphaSpending, past: Iterable[PastTest]) -> AlphaAllowance:
    """Return tonight's level after `past`, every earlier night from the first on.

    Nights that did not test cost nothing. After `nights` tests a new season begins. The same past gives the same level, so
    that restarting a night gives it no second chance.
    """
    tests = [look.promoted for look in past if look.tested]
    season, done = divmod(len(tests), spending.nights)
    current = tests[season * spending.nights :]
    # A level depends only on earlier tests: tonight's outcome, False here, changes nothing.
    levels = season_levels(spending, [*current, False])
    return AlphaAllowance(
        level=levels[-1],
        method=spending.method,
        alpha=spending.alpha,
        nights=spending.nights,
        season=season + 1,
        test=done + 1,
        promotions=sum(current),
        spent=math.fsum(levels[:-1]),
    )


def season_levels(spending: AlphaSpending, promoted: Sequence[bool]) -> tuple[float, ...]:
    """Return the level of each of the first t tests of a season; `promoted`, shape (t,): whether each of them promoted.

    A level depends only on the tests before it. Raises DataError where the season is longer than declared.
    """
    if len(promoted) > spending.nights:
        raise DataError(
            f"spending: {len(promoted)} tests in a season of {spending.nights}; begin another after the last"
        )
    if spending.method == "fixed":
        return (spending.alpha,) * len(promoted)
    sequence = lord_sequence(spending.nights)
    times: list[int] = []
    levels: list[float] = []
    for test, was_promoted in enumerate(promoted):
        levels.append(_lord(spending, sequence, times, test))
        if was_promoted:
            times.append(test)
    return tuple(levels)


@cache
def lord_sequence(nights: int) -> tuple[float, ...]:
    """Return g(1), ..., g(nights): log(max(t, 2)) / (t exp(sqrt(log t))), scaled to sum to one."""
    if nights < 1:
        raise DataError(f"spending: a season of {nights} nights has no test; declare 1 or more")
    raw = [math.log(max(t, 2)) / (t * math.exp(math.sqrt(math.log(t)))) for t in range(1, nights + 1)]
    total = math.fsum(raw)
    return tuple(value / total for value in raw)


def _lord(spending: AlphaSpending, sequence: Sequence[float], times: Sequence[int], test: int) -> float:
    """Return the LORD++ level (Ramdas et al. 2017, section 3.1) of one test after promotions at `times`; all count from 0."""
    level = spending.wealth * sequence[test]
    for number, time in enumerate(times):
        level += (spending.alpha - spending.wealth if number == 0 else spending.alpha) * sequence[test - time - 1]
    return level
