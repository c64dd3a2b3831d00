"""Aliases: the names, such as `champion`, under which versions of a registered model are known."""

from .models import AGENT, LAST, ModelRef, versions
from .place import client
from .spool import Refused, reach


def aliases(name: str = AGENT) -> dict[str, int]:
    """Every alias with the version that it points to; none where nothing is registered. Raises InfrastructureError."""
    try:
        found = reach(lambda: client().get_registered_model(name))
    except Refused:
        return {}
    return {alias: int(version) for alias, version in sorted(dict(found.aliases).items())}


def version_named(which: str, name: str = AGENT) -> int | None:
    """The version that a number or an alias means, with or without @; None for what is neither. Raises InfrastructureError."""
    word = which.removeprefix("@")
    if word.isdecimal():
        return int(word) if len(word) <= len(str(LAST)) else None
    return aliases(name).get(word)


def named_versions(name: str = AGENT) -> list[tuple[ModelRef, tuple[str, ...]]]:
    """All versions, oldest first, each with its aliases. Raises InfrastructureError."""
    names = aliases(name)
    return [(ref, tuple(alias for alias, version in names.items() if version == ref.version)) for ref in versions(name)]
