"""API views of the last build and of the running night, by the readers that the commands use."""

from collections import Counter
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from ratchet.components.core import DataError
from ratchet.components.datasets.parquet_tables import read_table

from . import api_models as api
from .index import file_stamp

if TYPE_CHECKING:
    from ratchet.components.nights.night_state import Night

STARTING_SECONDS = 600.0
"""Age up to which a night without a step is begun: it has a state before it holds the lock, while its servers start."""
_RANKED = ("episode_id", "task_id", "gdi", "accepted", "quarantined", "reason")


def ranked_page(root: Path, verdict: str, offset: int, limit: int) -> api.RankedAnswer:
    """Return a page of the build's episodes, best first. Raises DataError without a build."""
    path = root / "data/ranked.parquet"
    if not path.is_file():
        raise DataError(f"{path} is absent: nothing was built here yet; run `ratchet build` or `ratchet night`")
    table = _ranked_table(path, file_stamp(path))
    counts = Counter({entry["values"]: entry["counts"] for entry in pc.value_counts(table["verdict"]).to_pylist()})
    if verdict:
        table = table.filter(pc.equal(table["verdict"], verdict))
    items = [api.RankedRow(**row) for row in table.slice(offset, limit).to_pylist()]
    found = [api.ValueCount(value=value, count=count) for value, count in counts.most_common()]
    return api.RankedAnswer(total=table.num_rows, items=items, counts=found)


@lru_cache(maxsize=1)
def _ranked_table(path: Path, stamp: str) -> pa.Table:
    table = read_table(path, _RANKED)
    accepted = pc.if_else(pc.fill_null(table["accepted"], False), "in", "out")
    verdict = pc.if_else(pc.fill_null(table["quarantined"], False), "quarantined", accepted)
    table = table.drop_columns(["accepted", "quarantined"]).append_column("verdict", verdict)
    table = table.set_column(table.schema.get_field_index("reason"), "reason", pc.fill_null(table["reason"], ""))
    return table.sort_by([("gdi", "descending"), ("episode_id", "ascending")])


def live(newest: Callable[[str], list[api.EpisodeRow]]) -> api.LiveAnswer:
    """Return the running night, or the latest. `newest(night)` returns its newest episodes."""
    from ratchet.components.nights.night_state import (
        FAILURE_FILE,
        RUNNING_FILE,
        list_nights,
        running_night,
        running_steps,
    )
    from ratchet.components.operations.home_metrics import night_collections, running_collections

    running = running_night()  # first: a night that ends meanwhile was not interrupted
    nights = list_nights()
    if not nights:
        return api.LiveAnswer()
    night = next((each for each in nights if each.id == running), nights[-1])
    age = datetime.now(UTC) - datetime.fromisoformat(night.begun)
    had_steps = night.results or (night.folder / RUNNING_FILE).exists()
    state = "begun" if not had_steps and age.total_seconds() < STARTING_SECONDS else "interrupted"
    answer = api.LiveAnswer(night=night.id, state=state, newest=newest(night.id))
    answer.steps = [api.LiveStep(name=name, state="done", seconds=seconds) for name, seconds in night.seconds.items()]
    causes: Counter[str] = Counter()
    for _, report in night_collections(night):
        causes.update(report.get("failures") or {})
    failure = night.folder / FAILURE_FILE
    if night.id == running:
        answer.state = "running"
        steps = {name: api.LiveStep(name=name, state="running") for name in running_steps(night)}
        for title, progress in running_collections(night.id):
            step = steps.setdefault(name := f"collect {title}", api.LiveStep(name=name, state="running"))
            step.done, step.total = progress.done, progress.total
            causes.update(progress.failures)
            if progress.eta is not None:
                answer.eta_seconds = max(answer.eta_seconds or 0.0, progress.eta)
            answer.note = progress.remark() or None
        answer.steps += steps.values()
        answer.steps += _waiting_steps(night, nights, {step.name for step in answer.steps})
    elif night.is_finished:
        answer.state = "finished"
    elif failure.is_file():
        answer.state = "failed"
        answer.note = " ".join(failure.read_text(encoding="utf-8", errors="replace").split())[:500]
    answer.causes = [api.ValueCount(value=value, count=count) for value, count in causes.most_common(20)]
    return answer


def _waiting_steps(night: "Night", nights: Sequence["Night"], begun: set[str]) -> list[api.LiveStep]:
    """Return the steps that came after those begun in the last finished night of the same scale and recipe."""
    alike = (each for each in reversed(nights) if each.is_finished and each.scale == night.scale)
    past = next((each for each in alike if each.recipe == night.recipe), None)
    steps = list(past.seconds.items()) if past else []
    begin = max((place for place, (name, _) in enumerate(steps, 1) if name in begun), default=0)
    return [api.LiveStep(name=name, state="waiting", seconds=seconds) for name, seconds in steps[begin:]]
