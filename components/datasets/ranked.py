"""What the exporters know of an episode from the ranked table."""

from collections.abc import Mapping
from pathlib import Path

import msgspec

from components.protocol import Role
from components.quality.tables import read_columns

from .params import ExportParams
from .split import Split, split_of


class Ranked(msgspec.Struct, frozen=True):
    """One row of the ranked table, as far as exporters need it."""

    episode_id: str
    group_id: str
    night: str
    task_id: str
    kind: str
    family: str
    role: str
    source: str
    weight: float
    pass_rate: float | None
    accepted: bool
    quarantined: bool
    infrastructure_failure: bool

    @property
    def usable(self) -> bool:
        """Whether the episode may appear in any dataset, chosen or not."""
        return self.role == Role.TRAIN and not self.quarantined and not self.infrastructure_failure

    def split(self, params: ExportParams) -> Split:
        """Where its task belongs."""
        return split_of(self.family if params.split_by == "family" else self.task_id, params.validation)


def read_ranked(path: Path) -> dict[str, Ranked]:
    """The ranked table by `episode_id`. Raises DataError."""
    names = list(Ranked.__struct_fields__)
    columns = read_columns(path, names)
    rows = (Ranked(*values) for values in zip(*(columns[name] for name in names), strict=True))
    return {row.episode_id: row for row in rows}


class Pair(msgspec.Struct, frozen=True):
    """One row of the table of pairs; `turn` -1 is a pair of whole episodes."""

    task_id: str
    level: str
    turn: int
    chosen_episode_id: str
    rejected_episode_id: str
    margin: float


def read_pairs(path: Path) -> list[Pair]:
    """The pairs in the table's order. Raises DataError."""
    names = list(Pair.__struct_fields__)
    columns = read_columns(path, names)
    return [Pair(*values) for values in zip(*(columns[name] for name in names), strict=True)]


def pairs_for(
    pairs: list[Pair], ranked: Mapping[str, Ranked], params: ExportParams, *, on_policy_only: bool
) -> list[Pair]:
    """The pairs that may be exported: both episodes usable and, where asked for, both of the policy's own."""
    kept = []
    for pair in pairs:
        sides = [ranked.get(pair.chosen_episode_id), ranked.get(pair.rejected_episode_id)]
        fits = all(side is not None and side.usable for side in sides) and pair.level in params.pair_levels
        own = all(side is not None and side.source == "on_policy" for side in sides)
        if fits and (own or not on_policy_only):
            kept.append(pair)
    return kept
