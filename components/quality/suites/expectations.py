"""Expectations as the factories of suites write them: each has a name, a severity, and in words why a row fails it.

Great Expectations passes over null. A column that says what is wrong (null where nothing is) is expected to be null: see `sound`.
"""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    import great_expectations as gx

Severity = Literal["critical", "warning", "info"]


def suite(name: str, *groups: Iterable[Any]) -> "gx.ExpectationSuite":
    """The expectations of all groups, in order."""
    import great_expectations as gx

    return gx.ExpectationSuite(name=name, expectations=[each for group in groups for each in group])


def expect(kind: str, name: str, severity: Severity, reason: str, **arguments: Any) -> Any:
    """An expectation of that class of Great Expectations."""
    from great_expectations import expectations

    return getattr(expectations, kind)(severity=severity, meta={"name": name, "reason": reason}, **arguments)


def true(column: str, name: str, severity: Severity, reason: str) -> Any:
    """The column is true in every row."""
    return one_of(column, name, severity, reason, [True])


def sound(column: str, name: str, severity: Severity, reason: str) -> Any:
    """The column, which says what is wrong with a row, says nothing."""
    return expect("ExpectColumnValuesToBeNull", name, severity, reason, column=column)


def filled(column: str, reason: str, severity: Severity = "critical") -> Any:
    """The column stands in every row. Its name is `<column>_present`."""
    return expect("ExpectColumnValuesToNotBeNull", f"{column}_present", severity, reason, column=column)


def one_of(column: str, name: str, severity: Severity, reason: str, values: Sequence[Any]) -> Any:
    """The column holds one of these values, or null."""
    return expect("ExpectColumnValuesToBeInSet", name, severity, reason, column=column, value_set=list(values))


def unique(column: str, name: str, severity: Severity, reason: str) -> Any:
    """No value of the column occurs twice."""
    return expect("ExpectColumnValuesToBeUnique", name, severity, reason, column=column)


def between(
    column: str, name: str, severity: Severity, reason: str, low: float | None = None, high: float | None = None
) -> Any:
    """The column lies within the limits, both included, or is null."""
    return expect("ExpectColumnValuesToBeBetween", name, severity, reason, column=column, min_value=low, max_value=high)


def mean_below(column: str, name: str, severity: Severity, reason: str, high: float) -> Any:
    """The mean of the column is at most that."""
    return expect("ExpectColumnMeanToBeBetween", name, severity, reason, column=column, max_value=high)


def rows_present(name: str, severity: Severity, reason: str, least: int = 1) -> Any:
    """The table has at least so many rows."""
    return expect("ExpectTableRowCountToBeBetween", name, severity, reason, min_value=least)


def columns_known(columns: Iterable[str]) -> Any:
    """The table has these columns and no other."""
    reason = "the table has other columns than this suite knows"
    return expect(
        "ExpectTableColumnsToMatchSet",
        "columns_known",
        "critical",
        reason,
        column_set=list(columns),
        exact_match=True,
    )
