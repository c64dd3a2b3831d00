"""Truths: tests of the rows of a table, with three values: true, false, and not known (null), as in SQL."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

if TYPE_CHECKING:
    import pyarrow as pa

Kind = Literal["number", "text", "truth"]
Test = Callable[["pa.Table"], Any]
"""A column of truths for a table."""


class Value(NamedTuple):
    """One side of a comparison: the column of that name, or a literal. `place`: the character where it stands in a text."""

    kind: Kind
    name: str
    place: int
    literal: float | str | bool | None = None

    def of(self, table: "pa.Table") -> Any:
        """The column as its kind, or the literal."""
        import pyarrow as pa
        import pyarrow.compute as pc

        types = {"number": pa.float64(), "text": pa.string(), "truth": pa.bool_()}
        if self.literal is not None:
            return pa.scalar(self.literal, types[self.kind])
        return pc.cast(table[self.name], types[self.kind])


def joined(function: str, tests: list[Test]) -> Test:
    """Tests joined by Arrow's `and_kleene` or `or_kleene`."""
    if len(tests) == 1:
        return tests[0]

    def test(table: "pa.Table") -> Any:
        import pyarrow.compute as pc

        result = tests[0](table)
        for each in tests[1:]:
            result = pc.call_function(function, [result, each(table)])
        return result

    return test


def opposite(of: Test) -> Test:
    """True where a test is false."""

    def test(table: "pa.Table") -> Any:
        import pyarrow.compute as pc

        return pc.invert(of(table))

    return test


def compared(function: str, left: Value, right: Value) -> Test:
    """Arrow's `equal`, `less`, ... of two values, one of which is a column."""

    def test(table: "pa.Table") -> Any:
        import pyarrow.compute as pc

        return pc.call_function(function, [left.of(table), right.of(table)])

    return test


def among(value: Value, literals: list[Any]) -> Test:
    """Whether a column holds one of the literals."""

    def test(table: "pa.Table") -> Any:
        import pyarrow as pa
        import pyarrow.compute as pc

        column = value.of(table)
        found = pc.is_in(column, pa.array(literals, type=column.type))
        return pc.if_else(pc.is_valid(column), found, pa.scalar(None, pa.bool_()))

    return test


def unknown(value: Value) -> Test:
    """Whether a column is null."""

    def test(table: "pa.Table") -> Any:
        import pyarrow.compute as pc

        return pc.is_null(value.of(table))

    return test
