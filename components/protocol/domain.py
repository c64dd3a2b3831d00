"""DomainProfile: what the tools of a domain mean to the rules that score a step."""

from enum import StrEnum
from functools import cache
from pathlib import Path

import msgspec

from .errors import ConfigurationError

PROFILES = Path(__file__).parent / "profiles"


class Category(StrEnum):
    """What a tool does to the world."""

    READ = "read"
    WRITE = "write"
    SEARCH = "search"
    EXECUTE = "execute"
    NAVIGATE = "navigate"
    SUBMIT = "submit"
    THINK = "think"


class ToolProfile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`stateful_key` names the parameter that says what the call is about: a path that is read, say."""

    category: Category
    stateful_key: str | None = None
    aliases: tuple[str, ...] = ()


class OutcomeFields(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which fields of an outcome give partial credit."""

    passed: str = "tests_passed"
    total: str = "tests_total"


class DomainProfile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Tools by name, where the outcome stands, and the weight of each rubric line (they need not sum to 1)."""

    name: str
    tools: dict[str, ToolProfile]
    outcome: OutcomeFields
    rubric: dict[str, float]

    def tool(self, name: str) -> tuple[str, ToolProfile] | None:
        """The canonical name and profile of a tool or of its alias; None for one that the domain does not know."""
        if name in self.tools:
            return name, self.tools[name]
        for canonical, profile in self.tools.items():
            if name in profile.aliases:
                return canonical, profile
        return None


@cache
def load_domain(name: str) -> DomainProfile:
    """The bundled profile of that name; an unknown domain gets `generic`."""
    path = PROFILES / f"{name}.json"
    if not path.is_file() or path.parent != PROFILES:
        path = PROFILES / "generic.json"
    return read_domain(path)


def read_domain(path: Path) -> DomainProfile:
    """A profile from a JSON file. Raises ConfigurationError that names the file and the field."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=DomainProfile)
    except (OSError, msgspec.DecodeError) as error:
        raise ConfigurationError(f"domain profile {path}: {error}") from error
