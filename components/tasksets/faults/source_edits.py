"""Faults as edits of Python source: mutations, removals, and compositions of two faults in one function.

An edit replaces bytes of the source and leaves its formatting alone. Mutations follow those of mutmut and cosmic-ray
(operators, constants, logic), with swapped arguments and misused parameters added; removals drop a statement or a guard.
"""

import ast
import hashlib
import io
import re
import sys
import tokenize
from collections.abc import Iterator, Mapping
from itertools import pairwise
from types import MappingProxyType

import msgspec

MUTATION, REMOVAL, COMPOSITION = "mutation", "removal", "composition"
_COMPARISONS: Mapping[type[ast.AST], tuple[str, str]] = MappingProxyType(
    {
        **{ast.Lt: ("<", "<="), ast.LtE: ("<=", "<"), ast.Gt: (">", ">="), ast.GtE: (">=", ">")},
        **{ast.Eq: ("==", "!="), ast.NotEq: ("!=", "=="), ast.Is: ("is", "is not"), ast.IsNot: (r"is\s+not", "is")},
        **{ast.In: ("in", "not in"), ast.NotIn: (r"not\s+in", "in")},
    }
)
_ARITHMETIC: Mapping[type[ast.AST], tuple[str, str]] = MappingProxyType(
    {
        **{ast.Add: (r"\+", "-"), ast.Sub: ("-", "+"), ast.Mult: (r"\*", "+"), ast.Div: ("/", "*")},
        **{ast.FloorDiv: ("//", "/"), ast.Mod: ("%", "//"), ast.BitAnd: ("&", "|"), ast.BitOr: (r"\|", "&")},
    }
)
_LEAVES_BLOCK = (ast.Return, ast.Raise, ast.Continue, ast.Break)
Function = ast.FunctionDef | ast.AsyncFunctionDef


class SourceEdit(msgspec.Struct, frozen=True):
    """Replace the bytes `start` to `end` of a file by `text`. `fault`: what the edit does, such as wrong_comparison."""

    start: int
    end: int
    text: str
    fault: str


class Fault(msgspec.Struct, frozen=True):
    """A fault in one function: edits that do not overlap. `kind`: mutation, removal or composition.

    `line` is that of the function's code object (its first decorator's), 1-based. `digest`: a hash of the function
    without its docstring, equal for copies in other packages.
    """

    path: str
    function: str
    line: int
    digest: str
    kind: str
    edits: tuple[SourceEdit, ...]

    @property
    def fault_id(self) -> str:
        """The first 12 hex digits of a hash over the place and the edits."""
        return hashlib.sha256(msgspec.json.encode(self)).hexdigest()[:12]

    def apply(self, source: bytes) -> bytes:
        """Return the source with the fault."""
        for edit in sorted(self.edits, key=lambda edit: edit.start, reverse=True):
            source = source[: edit.start] + edit.text.encode() + source[edit.end :]
        return source


def find_faults(path: str, source: bytes) -> list[Fault]:
    """Return the single faults of all functions of a file, in order; none if it is no Python that this version parses.

    A few give the same program or none that compiles: their tests prove nothing, and drop them.
    """
    try:
        if tokenize.detect_encoding(io.BytesIO(source).readline)[0] != "utf-8":
            return []  # the offsets of `ast` count UTF-8 without a byte order mark
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError):
        return []
    faults = []
    for name, function in _functions(tree, ""):
        line = min(node.lineno for node in (function, *function.decorator_list))
        digest = hashlib.sha256("\n".join(map(_dump, _body(function))).encode()).hexdigest()[:16]
        for edit in _FunctionEdits(source, function).edits():
            kind = REMOVAL if edit.fault.startswith("removed") else MUTATION
            faults.append(Fault(path, name, line, digest, kind, (edit,)))
    return faults


def _dump(node: ast.AST) -> str:
    """Return the text of a syntax tree as Python 3.11 writes it: a fault has the same id in later versions."""
    # 3.13 leaves empty lists out, 3.12 added a field to functions and classes.
    options: dict[str, bool] = {"show_empty": True} if sys.version_info >= (3, 13) else {}
    return ast.dump(node, **options).replace(", type_params=[]", "")


def compose(first: Fault, second: Fault) -> Fault | None:
    """Return a fault with the edits of two faults of one function; None if they touch each other's lines."""
    edits = sorted((*first.edits, *second.edits), key=lambda edit: edit.start)
    if any(after.start <= before.end for before, after in pairwise(edits)):
        return None
    return Fault(first.path, first.function, first.line, first.digest, COMPOSITION, tuple(edits))


def _functions(node: ast.AST, prefix: str) -> Iterator[tuple[str, Function]]:
    """Yield the functions and methods with their qualified names; functions inside of functions belong to the outer one."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, Function):
            yield prefix + child.name, child
        elif isinstance(child, ast.ClassDef):
            yield from _functions(child, f"{prefix}{child.name}.")
        elif isinstance(child, ast.If | ast.Try):
            yield from _functions(child, prefix)


def _body(function: Function) -> list[ast.stmt]:
    """Return the statements of a function without its docstring."""
    return function.body if ast.get_docstring(function) is None else function.body[1:]


class _FunctionEdits:
    """The single edits of one function's body."""

    def __init__(self, source: bytes, function: Function) -> None:
        self._source = source
        self._function = function
        self._line_starts = [0, *(match.end() for match in re.finditer(rb"\n", source))]
        arguments = function.args
        names = [argument.arg for argument in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)]
        self._parameters = [name for name in names if name not in ("self", "cls")]

    def edits(self) -> Iterator[SourceEdit]:
        for statement in _body(self._function):
            for node in ast.walk(statement):
                if not isinstance(node, ast.JoinedStr | ast.FormattedValue):
                    yield from self._expression_edits(node)
        for node in ast.walk(self._function):
            for field in ("body", "orelse", "finalbody"):
                block = getattr(node, field, None)
                if isinstance(block, list) and len(block) > 1:
                    yield from self._removals(block)

    def _expression_edits(self, node: ast.AST) -> Iterator[SourceEdit]:
        match node:
            case ast.Compare(left=left, ops=[operator], comparators=[right]):
                yield from self._operator(left, right, _COMPARISONS.get(type(operator)), "wrong_comparison")
            case ast.BinOp(left=left, op=operator, right=right):
                yield from self._operator(left, right, _ARITHMETIC.get(type(operator)), "wrong_arithmetic")
            case ast.AugAssign(target=left, op=operator, value=right):
                yield from self._operator(left, right, _ARITHMETIC.get(type(operator)), "wrong_arithmetic")
            case ast.BoolOp(op=operator, values=[left, right, *_]):
                words = ("and", "or") if isinstance(operator, ast.And) else ("or", "and")
                yield from self._operator(left, right, words, "wrong_logic")
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                yield SourceEdit(*self._span(node), self._text(operand), "wrong_logic")
            case ast.Constant(value=bool() as value):
                yield SourceEdit(*self._span(node), str(not value), "wrong_constant")
            case ast.Constant(value=int() as value) if abs(value) < 1 << 16:
                yield SourceEdit(*self._span(node), str(value + 1), "wrong_constant")
            case ast.Call(args=[first, second, *_]) if not isinstance(first, ast.Starred) and not isinstance(
                second, ast.Starred
            ):
                start, end = self._span(first)[0], self._span(second)[1]
                gap = self._source[self._span(first)[1] : self._span(second)[0]].decode()
                yield SourceEdit(start, end, f"{self._text(second)}{gap}{self._text(first)}", "swapped_arguments")
            case ast.Name(id=name, ctx=ast.Load()) if name in self._parameters and len(self._parameters) > 1:
                other = self._parameters[(self._parameters.index(name) + 1) % len(self._parameters)]
                yield SourceEdit(*self._span(node), other, "wrong_name")

    def _operator(
        self, left: ast.expr, right: ast.expr, words: tuple[str, str] | None, fault: str
    ) -> Iterator[SourceEdit]:
        """Yield the edit of an operator: `words` are its pattern and the replacement."""
        start, end = self._span(left)[1], self._span(right)[0]
        gap = self._source[start:end].decode()
        found = re.search(words[0], gap) if words and "#" not in gap else None
        if words and found:
            yield SourceEdit(start + found.start(), start + found.end(), words[1], fault)

    def _removals(self, block: list[ast.stmt]) -> Iterator[SourceEdit]:
        for statement in block:
            match statement:
                case ast.If(body=[*_, last], orelse=[]) if isinstance(last, _LEAVES_BLOCK):
                    yield self._removal(statement, "removed_guard")
                case ast.Expr(value=ast.Call()) | ast.AugAssign():
                    yield self._removal(statement, "removed_statement")
                case ast.Assign(targets=[ast.Attribute() | ast.Subscript()]):
                    yield self._removal(statement, "removed_statement")

    def _removal(self, statement: ast.stmt, fault: str) -> SourceEdit:
        """Return the edit that drops a statement's lines. Where others share them, what is left does not compile."""
        assert statement.end_lineno is not None
        starts = [*self._line_starts, len(self._source)]
        return SourceEdit(starts[statement.lineno - 1], starts[statement.end_lineno], "", fault)

    def _span(self, node: ast.AST) -> tuple[int, int]:
        lines = self._line_starts
        assert isinstance(node, ast.expr | ast.stmt) and node.end_lineno is not None and node.end_col_offset is not None
        return lines[node.lineno - 1] + node.col_offset, lines[node.end_lineno - 1] + node.end_col_offset

    def _text(self, node: ast.AST) -> str:
        start, end = self._span(node)
        return self._source[start:end].decode()
