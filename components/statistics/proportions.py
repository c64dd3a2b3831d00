"""Proportions: intervals of success rates, McNemar's exact test, and k attempts at one task (pass@k, pass^k, cons@k)."""

from math import comb

from ratchet.components.core import DataError

from .numerics import check_level
from .result_types import Alternative, Interval, TestResult


def wilson(successes: int, n: int, level: float = 0.95) -> Interval | None:
    """Return Wilson's score interval (1927) of a proportion, `successes` of `n` independent trials; None for n = 0.

    >>> interval = ratchet.wilson(8, 10)
    >>> round(interval.low, 2), round(interval.high, 2)
    (0.49, 0.94)
    """
    from scipy import special

    _check_trials(successes, n, level, "wilson interval")
    if n == 0:
        return None
    z = float(special.ndtri(0.5 + level / 2))
    centre = (successes + z**2 / 2) / (n + z**2)
    half = z / (n + z**2) * (successes * (n - successes) / n + z**2 / 4) ** 0.5
    # Rounding leaves the bounds a few units in the last place off 0 and 1 where nothing or everything succeeded.
    low, high = 0.0 if successes == 0 else centre - half, 1.0 if successes == n else centre + half
    return Interval(low, high, level)


def clopper_pearson(successes: int, n: int, level: float = 0.95) -> Interval | None:
    """Return the exact interval of a proportion (Clopper & Pearson 1934), which covers at least `level`; None for n = 0."""
    from scipy import special

    _check_trials(successes, n, level, "exact interval")
    if n == 0:
        return None
    # The beta quantile of either bound is undefined at 0 and at n successes.
    low = special.betaincinv(successes, n - successes + 1, (1 - level) / 2) if successes else 0.0
    high = special.betaincinv(successes + 1, n - successes, (1 + level) / 2) if successes < n else 1.0
    return Interval(float(low), float(high), level)


def _check_trials(successes: int, n: int, level: float, caller: str) -> None:
    if not 0 <= successes <= n:
        raise DataError(f"{caller}: {successes} successes of {n} trials cannot be; count the trials again")
    check_level(level, caller)


def pass_at_k(n: int, c: int, k: int) -> float:
    """Return pass@k, the chance that at least one of k attempts succeeds, unbiased from c successes in n (Chen et al. 2021).

    >>> ratchet.pass_at_k(n=4, c=1, k=2)
    0.5
    """
    _check_k(n, c, k)
    return 1.0 - comb(n - c, k) / comb(n, k)


def pass_hat_k(n: int, c: int, k: int) -> float:
    """Return pass^k, the chance that all of k attempts succeed, unbiased from c successes in n (Yao et al. 2024, tau-bench)."""
    _check_k(n, c, k)
    return comb(c, k) / comb(n, k)


def cons_at_k(n: int, c: int, k: int) -> float:
    """Return cons@k, the chance that the majority of k attempts succeeds, unbiased from c successes in n.

    All failures count as the same wrong answer, the hardest case for a vote. A tie counts one half.
    """
    _check_k(n, c, k)
    ways = sum(comb(c, won) * comb(n - c, k - won) * _vote(won, k) for won in range(k + 1))
    return ways / (2 * comb(n, k))


def _vote(won: int, k: int) -> int:
    """Return 2 for a majority of `won` in `k` votes, 1 for a tie, 0 otherwise: twice the share, in integers."""
    return (2 * won > k) + (2 * won >= k)


def _check_k(n: int, c: int, k: int) -> None:
    if not (0 <= c <= n and 1 <= k <= n):
        raise DataError(f"k = {k} attempts of n = {n} with c = {c} successes: needs 1 <= k <= n and 0 <= c <= n")


def mcnemar(b01: int, b10: int, *, alternative: Alternative = "two-sided", level: float = 0.95) -> TestResult:
    """Test pairs that only b solved (`b01`) against pairs that only a solved (`b10`), by the exact binomial test (McNemar 1947).

    `statistic` is the smaller count. `estimate`, and the effect, is Cohen's g: a's share of these pairs less one half, with
    Clopper and Pearson's interval. The pairs must be independent; for several attempts at a task, or tasks of one family, use
    `permutation_test`. Without such a pair p = 1.
    """
    # scipy.special has the binomial tails without scipy.stats, whose import costs 0.7 s of every `ratchet compare`.
    from scipy import special

    if b01 < 0 or b10 < 0 or b01 != int(b01) or b10 != int(b10):
        raise DataError(f"mcnemar: {b01} and {b10} are not numbers of pairs; count the pairs that only one side solved")
    pairs = int(b01) + int(b10)
    if not pairs:
        return TestResult(0.0, 1.0, None, None, alternative, 0, True)
    share = clopper_pearson(int(b10), pairs, level)
    below, above = float(special.bdtr(b10, pairs, 0.5)), float(special.bdtr(b01, pairs, 0.5))
    p_value = {"less": below, "greater": above, "two-sided": min(1.0, 2 * min(below, above))}[alternative]
    return TestResult(
        statistic=float(min(b01, b10)),
        p_value=p_value,
        effect_size=b10 / pairs - 0.5,
        interval=Interval(share.low - 0.5, share.high - 0.5, level) if share else None,
        alternative=alternative,
        families=pairs,
        exact=True,
        estimate=b10 / pairs - 0.5,
    )
