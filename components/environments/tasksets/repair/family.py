"""What makes two sources one family: the same syntax tree once the author's names and the constants are normalised."""

import ast


class _Normaliser(ast.NodeTransformer):
    """Renames what the source itself binds, in the order of appearance, and makes every constant of a type equal."""

    def __init__(self, bound: dict[str, str]) -> None:
        self.bound = bound

    def visit_Name(self, node: ast.Name) -> ast.AST:
        """A variable; a builtin keeps its name."""
        return ast.Name(self.bound.get(node.id, node.id), node.ctx)

    def visit_arg(self, node: ast.arg) -> ast.AST:
        """A parameter."""
        return ast.arg(self.bound[node.arg])

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        """A function."""
        self.generic_visit(node)
        node.name = self.bound[node.name]
        return node

    def visit_Constant(self, node: ast.Constant) -> ast.AST:
        """A constant becomes the name of its type."""
        return ast.Constant(type(node.value).__name__)


def normal_form(source: str) -> str:
    """The source with the names that it binds and its constants normalised: equal for two sources of one family."""
    tree = ast.parse(source)
    bound: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            name = node.name
        elif isinstance(node, ast.arg):
            name = node.arg
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            name = node.id
        else:
            continue
        bound.setdefault(name, f"v{len(bound)}")
    return ast.dump(_Normaliser(bound).visit(tree))
