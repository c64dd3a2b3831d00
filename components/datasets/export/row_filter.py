"""Filters over the columns of a table (`--where`): parsed, turned into Arrow expressions, and never run as code.

    success and gdi >= 0.6 and (kind in ("off_by_one", "wrong_operator") or not source == "demonstration")

The grammar is that of Python's comparisons over columns, numbers, texts, `true` and `false`, joined by `and`, `or` and
`not`; also `=` for `==`, and `is null`. A boolean column is a test by itself. Comparisons may be chained: `0.2 < gdi <=
0.8`. Tests are three-valued, as in SQL: a comparison with null is null, and a row is included only if the whole filter
is true.
"""

import ast
import math
import operator
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import reduce
from itertools import pairwise
from typing import Any, Literal, NamedTuple, NoReturn

import pyarrow as pa
import pyarrow.compute as pc

from ratchet.components.core import ConfigurationError
from ratchet.components.core.errors import suggest_name

Kind = Literal["number", "text", "truth"]

MAX_FILTER_LENGTH = 2_000
"""Maximum length of a filter in characters."""
_TOKENS = re.compile(
    r"""\s*(?:(?P<number>-?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)|(?P<text>'[^']*'|"[^"]*")|(?P<sign>[=!<>]=|[=<>(),\[\]])"""
    r"""|(?P<name>[A-Za-z_][A-Za-z_0-9]*)|(?P<other>\S))""",
    re.ASCII,
)
_WORDS = {word: word for word in ("and", "or", "not", "in", "is")}
_WORDS |= {"null": "None", "none": "None", "true": "True", "false": "False"}
_LITERALS: dict[type, Kind] = {float: "number", str: "text", bool: "truth"}
_COMPARISONS: dict[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}


class RowFilter(NamedTuple):
    """A parsed filter: the Arrow expression, and the names of the columns that it reads."""

    expression: "pc.Expression"
    columns: frozenset[str]

    def test(self, table: pa.Table) -> pa.ChunkedArray:
        """Return a boolean per row of the table; null where a compared value is null."""
        import pyarrow.dataset  # imports pandas

        return pyarrow.dataset.dataset(table).to_table(columns={"passes": self.expression})["passes"]


def parse_filter(text: str, columns: Mapping[str, Kind]) -> RowFilter:
    """Parse a filter over the given columns. Raises ConfigurationError that names the character at fault."""
    if len(text) > MAX_FILTER_LENGTH:
        raise ConfigurationError(f"the expression has {len(text)} characters, and the maximum is {MAX_FILTER_LENGTH}")
    return _FilterParser(text, columns).parse()


class _Token(NamedTuple):
    python: str
    place: int
    text: str


class _Operand(NamedTuple):
    """One side of a comparison: a column, or the value of a literal."""

    kind: Kind
    expression: Any
    literal: bool


class _FilterParser:
    """Translates a filter to Python token by token, has Python parse it, and walks the allowed nodes of the tree."""

    def __init__(self, text: str, columns: Mapping[str, Kind]) -> None:
        self._text, self._columns = text, columns
        self._tokens = list(self._translated())
        self._named: set[str] = set()

    def parse(self) -> RowFilter:
        # One token per line: the line number of a node of the tree is the number of its token.
        source = " \\\n".join(token.python for token in self._tokens)
        try:
            expression = self._test(ast.parse(source, mode="eval").body)
        except SyntaxError as error:
            number = (error.lineno or 1) - 1
            token = f"'{self._tokens[number].text}'" if number < len(self._tokens) else "the end"
            self._fail(number, f"{token} is not expected here; join tests with and, or")
        except (RecursionError, MemoryError):
            self._fail(0, "brackets and nots are nested too deeply")
        return RowFilter(expression, frozenset(self._named))

    def _translated(self) -> Iterator[_Token]:
        place = 0
        while token := _TOKENS.match(self._text, place):
            kind, place = str(token.lastgroup), token.end()
            word, begin = token[kind], token.start(kind) + 1
            python = {"=": "=="}.get(word, word)
            if kind == "number":
                if not math.isfinite(float(word)):
                    self._fail_at(begin, f"{word} is too large")
                python = repr(float(word))
            elif kind == "text":
                python = repr(word[1:-1])
            elif kind == "name":
                python = _WORDS.get(word.lower(), word)
                if python == word and word not in self._columns and word not in _WORDS:
                    self._fail_at(begin, f"there is no column '{word}'; {suggest_name(word, sorted(self._columns))}")
            elif kind == "other":
                self._fail_at(begin, f"'{word}' is not expected here")
            yield _Token(python, begin, word)

    def _fail(self, where: ast.AST | int, message: str) -> NoReturn:
        """Raise ConfigurationError for the token of a node, or of that number."""
        number = where if isinstance(where, int) else getattr(where, "lineno", 1) - 1
        self._fail_at(self._tokens[number].place if number < len(self._tokens) else len(self._text) + 1, message)

    def _fail_at(self, place: int, message: str) -> NoReturn:
        raise ConfigurationError(f"the expression is wrong at character {place}: {message}")

    def _test(self, node: ast.expr) -> Any:
        if isinstance(node, ast.BoolOp):
            return reduce(operator.and_ if isinstance(node.op, ast.And) else operator.or_, map(self._test, node.values))
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            return ~self._test(node.operand)
        if isinstance(node, ast.Compare):
            sides = pairwise([node.left, *node.comparators])
            return reduce(operator.and_, [self._compared(*pair, op) for pair, op in zip(sides, node.ops, strict=True)])
        operand = self._operand(node)
        if operand.kind != "truth" or operand.literal:
            self._fail(node, f"'{ast.unparse(node)}' is not a test; compare it with a value")
        return operand.expression

    def _compared(self, left: ast.expr, right: ast.expr, op: ast.cmpop) -> Any:
        one = self._operand(left)
        if isinstance(op, ast.Is | ast.IsNot | ast.In | ast.NotIn):
            if one.literal:
                self._fail(left, f"'{ast.unparse(left)}' is not a column")
            mask = self._is_null(one, right) if isinstance(op, ast.Is | ast.IsNot) else self._among(one, right)
            return mask if isinstance(op, ast.Is | ast.In) else ~mask
        other = self._operand(right)
        if one.kind != other.kind:
            self._fail(right, f"a {one.kind} is compared with a {other.kind}")
        if one.kind == "truth" and not isinstance(op, ast.Eq | ast.NotEq):
            self._fail(right, "truths are compared with == and != only")
        if one.literal and other.literal:
            self._fail(right, "one side must be a column")
        return _COMPARISONS[type(op)](one.expression, other.expression)

    def _is_null(self, column: _Operand, node: ast.expr) -> Any:
        if not (isinstance(node, ast.Constant) and node.value is None):
            self._fail(node, "'is' is followed by null or not null")
        return column.expression.is_null()

    def _among(self, column: _Operand, node: ast.expr) -> Any:
        literals: Sequence[ast.expr] = node.elts if isinstance(node, ast.Tuple | ast.List) else [node]
        for literal in literals:
            if not (isinstance(literal, ast.Constant | ast.UnaryOp) and self._operand(literal).kind == column.kind):
                self._fail(literal, f"'in' is followed by a list of {column.kind}s")
        mask = pc.is_in(column.expression, value_set=pa.array(map(ast.literal_eval, literals), _types()[column.kind]))
        return pc.if_else(column.expression.is_valid(), mask, pc.scalar(None))

    def _operand(self, node: ast.expr) -> _Operand:
        if isinstance(node, ast.Name):
            self._named.add(node.id)
            kind = self._columns[node.id]
            return _Operand(kind, pc.field(node.id).cast(_types()[kind]), literal=False)
        negative = isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub)
        if negative or (isinstance(node, ast.Constant) and node.value is not None):
            value = ast.literal_eval(node)
            return _Operand(_LITERALS[type(value)], pc.scalar(value), literal=True)
        self._fail(node, "a column or a value is expected")


def _types() -> "dict[Kind, pa.DataType]":
    return {"number": pa.float64(), "text": pa.string(), "truth": pa.bool_()}
