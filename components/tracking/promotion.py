"""Promotion in the registry: who holds the place (`champion`), who held it before (`previous`), and the old champion that the
champion is measured against (`anchor`). Every change is one move (`moves`): whole, or completed by the next call.
"""

from collections.abc import Mapping
from datetime import UTC, datetime

from components.protocol import ConfigurationError

from .aliases import aliases
from .models import AGENT, CHAMPION, PREVIOUS, ModelRef, get, whole
from .moves import LINE, Move, alone, carry_out, tags_of

ANCHOR = "anchor"
_LONGEST = 1000
"""Characters of a reason."""


def promote(version: int, name: str = AGENT, *, why: str = "", anchor: bool = False) -> ModelRef:
    """Point `champion` at a version, and `previous` at the one before; promoting the champion again changes nothing.

    `anchor`: it becomes the anchor too, where there is none. Raises ConfigurationError for a version that there is not, or
    whose files are gone.
    """
    with alone(name):
        target = whole(get(version, name))
        named = aliases(name)
        holder = named.get(CHAMPION)
        if holder == version:
            return target
        wanted = {CHAMPION: version}
        if holder is not None:
            wanted[PREVIOUS] = holder
        if anchor and ANCHOR not in named:
            wanted[ANCHOR] = version
        said = {"promoted_at": _now(), **({"promoted_why": why[:_LONGEST]} if why else {})}
        texts = {str(version): why[:_LONGEST]} if why else {}
        line = (*_line(name, named), version)
        carry_out(Move(wanted, {str(version): said}, texts, line), name)
    return target


def roll_back(name: str = AGENT, *, to: int | None = None, steps: int = 1, why: str) -> ModelRef:
    """Give the place back to an earlier champion: `to`, or the one `steps` before. Rolling back to the champion changes nothing.

    The version that loses it is `previous` then, and says when and why; a second call goes back further, not forth. An anchor
    that is left behind comes along. Raises ConfigurationError where nobody held the place so long ago, where `to` never did,
    and where its files are gone.
    """
    with alone(name):
        named = aliases(name)
        line = _line(name, named)
        target = whole(get(_goal(line, to, steps, name), name))
        holder = named[CHAMPION]
        if target.version == holder:
            return target
        lost = {"rolled_back_at": _now(), "rolled_back_to": str(target.version), "rolled_back_why": why[:_LONGEST]}
        kept = line[: _last(line, target.version) + 1]
        wanted = {CHAMPION: target.version, PREVIOUS: holder}
        if named.get(ANCHOR, target.version) not in kept:
            wanted[ANCHOR] = target.version
        carry_out(Move(wanted, {str(holder): lost}, {}, kept), name)
    return target


def move_anchor(version: int, name: str = AGENT) -> ModelRef:
    """Point `anchor` at a version; once it points there, nothing changes."""
    with alone(name):
        target = whole(get(version, name))
        if aliases(name).get(ANCHOR) != version:
            carry_out(Move({ANCHOR: version}, {str(version): {"anchored_at": _now()}}), name)
    return target


def champions(name: str = AGENT) -> tuple[int, ...]:
    """The versions that held the place, the oldest first and the champion last; those that were rolled back are not among them."""
    return _line(name, aliases(name))


def _line(name: str, named: Mapping[str, int]) -> tuple[int, ...]:
    """What a registry of an older version, or a hand in MLflow, did not write down is added from the aliases."""
    written = tags_of(name).get(LINE, "")
    line = tuple(int(each) for each in written.split(",") if each.isdecimal())
    holder = named.get(CHAMPION)
    if holder is None:
        return line
    if not line and PREVIOUS in named and named[PREVIOUS] != holder:
        line = (named[PREVIOUS],)
    return line if line and line[-1] == holder else (*line, holder)


def _goal(line: tuple[int, ...], to: int | None, steps: int, name: str) -> int:
    if not line:
        raise ConfigurationError(
            f"'{name}' has no champion yet: there is nothing to roll back; `ratchet night` makes the first"
        )
    known = ", ".join(map(str, line))
    if to is None:
        if not 1 <= steps < len(line):
            raise ConfigurationError(
                f"cannot go {steps} champions back: the champions were {known} (the last one is it now); "
                "give fewer --steps, or `ratchet promote` another version"
            )
        return line[-1 - steps]
    if to not in line:
        raise ConfigurationError(
            f"version {to} was never champion (those were {known}); `ratchet promote {to}` makes it one"
        )
    return to


def _last(line: tuple[int, ...], version: int) -> int:
    return max(place for place, each in enumerate(line) if each == version)


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
