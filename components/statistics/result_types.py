"""Result types of the statistics (interval, estimate, test result), and their numbers as text."""

from typing import Literal

import msgspec

from ratchet.components.core.errors import count_text

Alternative = Literal["greater", "less", "two-sided"]


class Interval(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A confidence interval; `level` is its confidence."""

    low: float
    high: float
    level: float = 0.95


class Estimate(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A mean over tasks with its interval, and the numbers of tasks and families. `value` is None without data,
    `interval` where none could be computed, as for a single family.
    """

    value: float | None
    interval: Interval | None
    tasks: int
    families: int


class TestResult(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The result of a test of a against b. Signs are those of a - b; the alternative "greater" means that a is greater.

    - `estimate`: the difference in the unit of the data; `interval`: its two-sided interval, whatever the alternative.
    - `effect_size`: dimensionless; each test names its measure.
    - `families`: number of independent units (values, pairs or clusters).
    - `exact`: whether the p-value is exact, neither approximated nor sampled.
    - `resamples`: number of sign assignments that a permutation test enumerated or drew; 0 for other tests.
    - `df`: degrees of freedom of a t test.

    Where the data do not define a field it is None, and `p_value` is 1.
    """

    __test__ = False  # keep pytest from collecting the class

    statistic: float | None
    p_value: float
    effect_size: float | None
    interval: Interval | None
    alternative: Alternative
    families: int
    exact: bool
    resamples: int = 0
    estimate: float | None = None
    df: float | None = None


def percent(value: float | None) -> str:
    """Format a rate as `71.3 %`; `n/a` for None."""
    return "n/a" if value is None else f"{100 * value:.1f} %"


def percentage_points(value: float | None) -> str:
    """Format a difference of rates in percentage points with its sign; `n/a` for None."""
    return "n/a" if value is None else f"{100 * value:+z.1f}"


def interval_text(estimate: Estimate, *, signed: bool = False) -> str:
    """Format an interval in percent as `[64.9, 77.2]`, or `[no interval]`; `signed` adds a plus to positive bounds."""
    if estimate.interval is None:
        return "[no interval]"
    sign = "+" if signed else ""
    return f"[{100 * estimate.interval.low:{sign}z.1f}, {100 * estimate.interval.high:{sign}z.1f}]"


FEW_FAMILIES = 10
"""Below this number of families bootstrap intervals are too narrow: of 5 normal values they cover 92 % instead of 95 %, of skewed
ones 86 % (docs/statistics.md).
"""


def few_families_remark(families: int) -> str:
    """Return the remark beside bootstrap intervals over so few families that they are too narrow; empty otherwise."""
    if families >= FEW_FAMILIES:
        return ""
    return (
        f"Bootstrap intervals are too narrow below {FEW_FAMILIES} families, and these are of {count_text(families, 'family')}: the "
        "permutation test's p decides."
    )


def p_text(p_value: float) -> str:
    """Format a p-value as `p = 0.0012`, with two significant digits below 0.001."""
    return f"p = {p_value:.2g}" if p_value < 0.001 else f"p = {p_value:.4f}"


def format_number(value: float | None) -> str:
    """Format a number with three significant digits; `n/a` for None."""
    return "n/a" if value is None else f"{value:z.3g}"
