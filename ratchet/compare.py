"""Command: compare."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from .night import show_decision
from .terminal import emit, note, say, table

if TYPE_CHECKING:
    from components.evaluation.rewards import RewardComparison
    from components.evaluation.statistics import Estimate

SHOWN = 20
"""Tasks in the table; --json gives all."""
PARTS = ("total", "outcome", "process", "efficiency")


def compare(
    sets: Annotated[
        list[Path],
        typer.Argument(
            help="Folders of a champion's and a challenger's episodes, as `ratchet evaluate` leaves them; or files of "
            "trajectories, two or more.",
            show_default=False,
        ),
    ],
    control: Annotated[Path | None, typer.Option(help="Of folders: the folder of the control's episodes.")] = None,
    scale: Annotated[str, typer.Option(help="Of folders: whose taskset and promotion rule hold.")] = "smoke",
    domain: Annotated[
        str | None, typer.Option(help="Of files: the profile to score by; default: what each record says.")
    ] = None,
    judgements: Annotated[
        list[Path] | None, typer.Option(help="Of files: what judges said, as for `ratchet score`; a file or a folder.")
    ] = None,
    calibration: Annotated[Path | None, typer.Option(help="Of files: how judgements are corrected.")] = None,
    seed: Annotated[int, typer.Option(help="Of the resampling; a night resamples with its own seed.")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="The decision record, or the comparison, as JSON.")] = False,
) -> None:
    """Two agents on the same tasks: the difference, how sure it is, and for folders the verdict. Nothing is promoted.

    Files are compared by reward, each with the first, task by task: total, outcome, process, efficiency, with 95 % intervals
    that resample families of tasks. Examples:

    `ratchet compare .ratchet/evaluations/2026-11-21-a1b2/champion .ratchet/evaluations/2026-11-21-a1b2/challenger`

    `ratchet compare before.jsonl after.jsonl`
    """
    from components.protocol import ConfigurationError

    if not any(path.is_file() for path in sets):
        if domain or judgements or calibration:
            raise ConfigurationError(
                "--domain, --judgements and --calibration are for files; folders are compared by success"
            )
        _by_success(sets, control, scale, seed, as_json)
        return
    if control is not None:
        raise ConfigurationError("--control is for folders of `ratchet evaluate`; give its file as one more set")
    from flows.rewards import Scoring, compare_files

    found = compare_files(sets, Scoring(domain, judgements or (), calibration), seed)
    emit(found) if as_json else _show(found)


def _by_success(sets: Sequence[Path], control: Path | None, scale: str, seed: int, as_json: bool) -> None:
    from components.protocol import ConfigurationError

    if len(sets) != 2:
        raise ConfigurationError("give two folders: the champion's and the challenger's; a third one is --control")
    from flows.parts import compare_folders

    decision = compare_folders(sets[0], sets[1], control, scale, seed)
    if as_json:
        emit(decision)
    else:
        show_decision(decision)


def _show(found: "RewardComparison") -> None:
    columns = ("set", "episodes", "tasks", *PARTS)
    table(
        columns,
        [
            (each.name, each.episodes, each.tasks, *(_estimate(each.means[part]) for part in PARTS))
            for each in found.sets
        ],
        title="mean over tasks [95 % interval]",
    )
    for each in found.differences:
        say()
        rows = [
            (part, _estimate(estimate, signed=True), estimate.tasks, estimate.families)
            for part, estimate in each.parts.items()
        ]
        table(("part", "difference", "tasks", "families"), rows, title=f"{each.name} less {each.against}")
        unpaired = f"; {each.unpaired} tasks only in one of them" if each.unpaired else ""
        say(
            f"total: {each.verdict}; higher at {each.higher} tasks, lower at {each.lower}, equal at {each.equal}{unpaired}"
        )
    say()
    _show_tasks(found)


def _show_tasks(found: "RewardComparison") -> None:
    """Those that differ most first."""
    ranked = sorted(found.tasks, key=lambda task: (-_spread(task.totals), task.task_id))
    rows = [
        (task.task_id, *(None if each is None else f"{each:.3f}" for each in task.totals)) for task in ranked[:SHOWN]
    ]
    table(("task", *(each.name for each in found.sets)), rows, title="mean total of each task")
    if len(ranked) > SHOWN:
        note(f"{len(ranked) - SHOWN} more tasks; --json gives all")


def _spread(totals: Sequence[float | None]) -> float:
    known = [total for total in totals if total is not None]
    return max(known) - min(known) if known else 0.0


def _estimate(estimate: "Estimate", *, signed: bool = False) -> str | None:
    if estimate.value is None:
        return None
    sign = "+" if signed else ""
    interval = estimate.interval
    around = f" [{interval.low:{sign}.3f}, {interval.high:{sign}.3f}]" if interval else ""
    return f"{estimate.value:{sign}.3f}{around}"
