"""Aliases: the names, such as `champion`, under which versions of a registered model are known."""

from .models import AGENT, ModelRef, versions
from .place import client
from .spool import Refused, reach


def aliases(name: str = AGENT) -> dict[str, int]:
    """Every alias with the version that it points to; none where nothing is registered. Raises InfrastructureError."""
    try:
        found = reach(lambda: client().get_registered_model(name))
    except Refused:
        return {}
    return {alias: int(version) for alias, version in sorted(dict(found.aliases).items())}


def named_versions(name: str = AGENT) -> list[tuple[ModelRef, tuple[str, ...]]]:
    """All versions, oldest first, each with its aliases. Raises InfrastructureError."""
    names = aliases(name)
    return [(ref, tuple(alias for alias, version in names.items() if version == ref.version)) for ref in versions(name)]
