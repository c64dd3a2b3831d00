"""DomainProfile: names and meanings of the tools of a domain, for the rules that score steps.

A package adds profiles through the entry-point group `ratchet.profiles`: each entry has the name of the domain, and is
a DomainProfile or the path of its file.
"""

from collections import Counter
from enum import StrEnum
from functools import cache
from pathlib import Path
from typing import Annotated

import msgspec

from .environment_registry import load_plugins
from .errors import ConfigurationError

PROFILES_FOLDER = Path(__file__).parent / "profiles"
PROFILE_GROUP = "ratchet.profiles"


Weight = Annotated[float, msgspec.Meta(ge=0)]


class Category(StrEnum):
    """Effect of a tool on its world."""

    READ = "read"
    WRITE = "write"
    SEARCH = "search"
    EXECUTE = "execute"
    NAVIGATE = "navigate"
    SUBMIT = "submit"
    THINK = "think"


class ToolProfile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Meaning of one tool. `stateful_key`: the parameter that identifies what a call reads or changes, such as the path
    of a file. `aliases`: other names of the tool.
    """

    category: Category
    stateful_key: str | None = None
    aliases: tuple[str, ...] = ()


class OutcomeFields(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Names of the fields of an outcome whose ratio, `passed` / `total`, is the partial credit."""

    passed: str = "tests_passed"
    total: str = "tests_total"


class DomainProfile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Tools by name, the outcome's fields, and the weight of each rubric criterion (>= 0; they need not sum to 1).

    `rubric`: criteria scored by rules; `model_rubric`: criteria scored by a language model. The rules fall back to
    heuristics over tool names where a profile lists no tools.
    """

    name: str
    tools: dict[str, ToolProfile] = {}
    outcome: OutcomeFields = OutcomeFields()
    rubric: dict[str, Weight] = msgspec.field(
        default_factory=lambda: {"non_redundancy": 0.5, "non_repetition": 0.3, "validity": 0.5}
    )
    model_rubric: dict[str, Weight] = {}

    @property
    def tool_names(self) -> tuple[str, ...]:
        """Names of all tools, aliases included."""
        return (*self.tools, *(alias for tool in self.tools.values() for alias in tool.aliases))

    def tool(self, name: str) -> tuple[str, ToolProfile] | None:
        """Return the canonical name and the profile of a tool or alias; None where the domain has no such tool."""
        if name in self.tools:
            return name, self.tools[name]
        for canonical, profile in self.tools.items():
            if name in profile.aliases:
                return canonical, profile
        return None


_profiles: dict[str, DomainProfile] = {}


def register_domain(profile: DomainProfile) -> None:
    """Register a profile under its name. Raises ConfigurationError where the name is taken.

    >>> ratchet.register_domain(ratchet.DomainProfile("doc-garden"))
    >>> ratchet.load_domain("doc-garden").name
    'doc-garden'
    """
    if profile.name in list_domains():
        raise ConfigurationError(f"domain '{profile.name}' is known already; give the profile another name")
    _profiles[profile.name] = profile


def list_domains() -> list[str]:
    """Names of all domains, sorted.

    >>> "coding" in ratchet.list_domains()
    True
    """
    load_plugins(PROFILE_GROUP, _register_plugin)
    return sorted({*_profiles, *(path.stem for path in PROFILES_FOLDER.glob("*.json"))})


def load_domain(name: str) -> DomainProfile:
    """Return the bundled, registered or plugin profile of a domain; the profile `generic` for an unknown name.

    >>> ratchet.load_domain("coding").tool("bash")[1].category.value
    'execute'
    """
    if profile := _load_bundled(name) or _profiles.get(name):
        return profile
    load_plugins(PROFILE_GROUP, _register_plugin)
    return _profiles.get(name) or _load_bundled("generic") or DomainProfile("generic")


def _register_plugin(name: str, value: DomainProfile | Path | str) -> None:
    profile = value if isinstance(value, DomainProfile) else read_domain(Path(value))
    if profile.name != name:
        raise ConfigurationError(f"the entry is named '{name}' and the profile '{profile.name}'; give them one name")
    _profiles[name] = profile


@cache
def _load_bundled(name: str) -> DomainProfile | None:
    path = PROFILES_FOLDER / f"{name}.json"
    # A name may come from a record: one with a slash must not read another file.
    return read_domain(path) if path.parent == PROFILES_FOLDER and path.is_file() else None


def read_domain(path: Path) -> DomainProfile:
    """Read a profile from a JSON or YAML file. Raises ConfigurationError that names the file and the field.

    >>> path = pathlib.Path("pond.yaml")
    >>> _ = path.write_text("name: pond\\ntools: {feed: {category: write, stateful_key: fish}}")
    >>> ratchet.read_domain(path).tool("feed")[0]
    'feed'
    """
    try:
        decode = msgspec.json.decode if path.suffix == ".json" else msgspec.yaml.decode
        profile = decode(path.read_bytes(), type=DomainProfile)
    except (OSError, msgspec.DecodeError) as error:
        raise ConfigurationError(f"domain profile {path}: {' '.join(str(error).split())}") from error
    if twice := [name for name, times in Counter(profile.tool_names).items() if times > 1]:
        raise ConfigurationError(f"domain profile {path}: '{twice[0]}' names two tools; a name or alias stands for one")
    return profile
