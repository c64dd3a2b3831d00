"""Options that are passed on to a library by its own names: a wrong name is refused, and so is what Ratchet decides itself.

The names are read from the library's source and nothing is imported: vLLM stands in another environment, and TRL takes seconds.
"""

import ast
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from .errors import ConfigurationError, suggest_name


def declared_fields(source: Path, *class_names: str) -> set[str]:
    """Return the annotated fields in the bodies of classes, base classes not included; empty if there is no such file or
    class.
    """
    try:
        tree = ast.parse(source.read_bytes())
    except (OSError, SyntaxError):
        return set()
    classes = (node for node in tree.body if isinstance(node, ast.ClassDef) and node.name in class_names)
    return {
        item.target.id
        for node in classes
        for item in node.body
        if isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name)
    }


def check_options(
    section: str, library: str, options: Mapping[str, Any], decided: Mapping[str, str], names: Collection[str]
) -> None:
    """Raise ConfigurationError for an option of `section` that is in `decided` (by name, where it is set instead), or that
    is not one of the library's `names`; without `names` every name passes.
    """
    for name in options:
        if (place := decided.get(name)) is not None:
            raise ConfigurationError(f"{section}.{name}: {place}; remove it here")
        if names and name not in names:
            raise ConfigurationError(
                f"{section}.{name}: {library} has no such argument; {suggest_name(name, sorted(names), 'see its documentation')}"
            )
