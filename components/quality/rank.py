"""Stage `rank`: the table of episodes and the quarantine in; the ranked table out, one row per episode.

python -m components.quality.rank --as-of 2026-11-21 --params params.yaml --data data
"""

import argparse
import math
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any

from components.protocol import ConfigurationError

from .params import RankParams, read_section
from .selection import Candidate, Choice, select
from .stage import run_stage
from .tables import Columns, read_columns, write_table

if TYPE_CHECKING:
    from .gdi import Gdi

KEPT = (
    "episode_id", "group_id", "night", "task_id", "taskset", "family", "kind", "role", "domain", "policy", "policy_version",
    "source", "attempt", "content_hash", "messages_hash", "turns", "steps", "success", "infrastructure_failure", "caught",
)  # fmt: skip
"""Columns that are taken over from the table of episodes."""


def main(arguments: list[str] | None = None) -> None:
    """Raises DataError for a missing table, ConfigurationError for a wrong parameter."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--as-of", required=True, help="the day from which ages are counted, YYYY-MM-DD")
    parser.add_argument("--params", type=Path, default=Path("params.yaml"))
    parser.add_argument("--data", type=Path, default=Path("data"), help="where the tables stand")
    given = parser.parse_args(arguments)
    params = read_section(given.params, "rank", RankParams)
    episodes = read_columns(given.data / "episodes.parquet", [*KEPT, "total", "process", "collected_on"])
    quarantine = read_columns(given.data / "quarantine.parquet", ["episode_id", "expectation"])
    columns = ranked(episodes, _first_reason(quarantine), _day(given.as_of, "--as-of"), params)
    write_table(given.data / "ranked.parquet", columns, schema())


def ranked(episodes: Columns, quarantined: dict[str, str], as_of: date, params: RankParams) -> Columns:
    """The ranked table by column, sorted by `episode_id`. `quarantined` names the expectation that an episode failed."""
    import numpy as np

    from . import gdi

    success = _floats(episodes["success"])
    rate = gdi.pass_rate(success, _codes(episodes["group_id"]))
    terms = {
        "reward": _floats(episodes["total"]),
        "process": _floats(episodes["process"]),
        "learnability": gdi.learnability(rate),
        "uniqueness": gdi.uniqueness(_codes(list(zip(episodes["task_id"], episodes["messages_hash"], strict=True)))),
        "recency": gdi.recency(_ages(episodes["collected_on"], as_of), params.half_life_days),
        "use": gdi.use(np.full(len(success), np.nan)),  # no ledger of exports is kept yet: not known
    }
    result = gdi.weighted(np.stack([terms[name] for name in gdi.TERMS], axis=1), params.weights)
    result = gdi.Gdi(np.where(np.isnan(terms["reward"]), np.nan, result.total), result.contributions)
    rates, totals = _nullable(rate), _nullable(result.total)
    choices = select(_candidates(episodes, quarantined, totals, rates), params)
    columns = {name: episodes[name] for name in KEPT}
    columns |= {name: _nullable(terms[name]) for name in gdi.TERMS}
    columns |= _explained(result, totals)
    columns |= {"gdi": totals, "pass_rate": rates, "quarantined": [i in quarantined for i in episodes["episode_id"]]}
    columns |= {field: [getattr(choice, field) for choice in choices] for field in Choice.__struct_fields__}
    return columns


def _explained(result: "Gdi", totals: list[float | None]) -> Columns:
    """What each term added to the gdi; null where there is no gdi."""
    from .gdi import TERMS

    return {
        f"gdi_{name}": [
            None if total is None else value
            for total, value in zip(totals, result.contributions[:, index].tolist(), strict=True)
        ]
        for index, name in enumerate(TERMS)
    }


def _candidates(
    episodes: Columns, quarantined: dict[str, str], totals: list[float | None], rates: list[float | None]
) -> list[Candidate]:
    names = ("episode_id", "task_id", "source", "messages_hash", "success")
    reasons = [quarantined.get(episode) for episode in episodes["episode_id"]]
    own = (episodes[name] for name in names)
    return list(map(Candidate, *own, totals, rates, episodes["infrastructure_failure"], reasons, episodes["caught"]))


def _first_reason(quarantine: Columns) -> dict[str, str]:
    reasons: dict[str, str] = {}
    for episode, expectation in zip(quarantine["episode_id"], quarantine["expectation"], strict=True):
        reasons.setdefault(episode, expectation)
    return reasons


def _floats(values: list[Any]) -> Any:
    import numpy as np

    return np.array([math.nan if value is None else float(value) for value in values], dtype=np.float64)


def _nullable(values: Any) -> list[float | None]:
    return [None if math.isnan(value) else value for value in values.tolist()]


def _codes(values: list[Any]) -> Any:
    """Equal values get equal numbers from 0 on."""
    import numpy as np

    seen: dict[Any, int] = {}
    return np.array([seen.setdefault(value, len(seen)) for value in values], dtype=np.int64)


def _ages(days: list[str | None], as_of: date) -> Any:
    """Days before `as_of`; NaN where the day is not known."""
    known = {day: float((as_of - _day(day, "collected_at")).days) for day in set(days) if day is not None}
    return _floats([None if day is None else known[day] for day in days])


def _day(text: str, where: str) -> date:
    try:
        return date.fromisoformat(text)
    except ValueError as error:
        raise ConfigurationError(f"{where} '{text}' is not a day; write YYYY-MM-DD") from error


def schema() -> Any:
    """The Arrow schema of the ranked table."""
    import pyarrow as pa

    from .facts import FIELDS
    from .gdi import TERMS

    kept = [(name, pa.type_for_alias(FIELDS[name])) for name in KEPT]
    numbers = [*TERMS, *(f"gdi_{name}" for name in TERMS), "gdi", "pass_rate", "weight"]
    fields = [*kept, *((name, pa.float64()) for name in numbers)]
    return pa.schema([*fields, ("quarantined", pa.bool_()), ("accepted", pa.bool_()), ("reason", pa.string())])


if __name__ == "__main__":
    run_stage(main)
