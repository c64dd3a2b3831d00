"""Commands about data: build, score, data checkout."""

from pathlib import Path
from typing import Annotated

import typer

from .terminal import emit, note, say, table

data = typer.Typer(no_args_is_help=True, help="Versioned nights.")


def add(app: typer.Typer) -> None:
    """Register the commands."""
    app.command()(build)
    app.command()(score)
    app.add_typer(data, name="data")


def build(
    nights: Annotated[
        list[str] | None, typer.Argument(help="The nights to build from; default: those of the last build.")
    ] = None,
    scale: Annotated[str, typer.Option(help="The scale that stands in the build's record.")] = "smoke",
    seed: Annotated[int, typer.Option(help="The seed of splits and draws.")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="The report as one JSON line.")] = False,
) -> None:
    """Rebuild the datasets from sealed nights: score, validate, rank, pair, export, gate. Unchanged stages are not repeated.

    Example: `ratchet build demonstrations-s0 2026-11-21-a1b2`
    """
    from flows.parts import build_nights

    report = build_nights(nights or None, scale=scale, seed=seed)
    if as_json:
        emit(report)
    else:
        for name, value in report.items():
            say(f"{name}: {value}")


def score(
    file: Annotated[Path, typer.Argument(help="Trajectories, one JSON line each (a shard), or a folder of shards.")],
    domain: Annotated[str, typer.Option(help="The domain's profile: coding, generic, or a JSON file.")] = "coding",
    as_json: Annotated[bool, typer.Option("--json", help="One line a trajectory, with every step.")] = False,
) -> None:
    """Score trajectories by the rules of the process reward. A score that does not apply is null, not zero.

    Example: `ratchet score data/rollouts/2026-11-21-a1b2/shard-00000.jsonl --json`
    """
    from flows.parts import score_file

    rows = []
    for line in score_file(file, domain):
        if as_json:
            emit(line)
        else:
            rows.append(
                (line["episode_id"], *(_short(line[name]) for name in ("total", "outcome", "process", "efficiency")))
            )
    if rows:
        table(("episode", "total", "outcome", "process", "efficiency"), rows)


@data.command("checkout")
def checkout(night: Annotated[str, typer.Argument(help="A night's id: see `git tag -l 'night/*'`.")]) -> None:
    """Bring a night's data back, hash for hash, without touching the work tree's own files.

    Example: `ratchet data checkout 2026-11-21-a1b2`
    """
    from flows.parts import checkout_night

    note(f"fetching night {night}")
    for line in checkout_night(night):
        say(line)


def _short(value: object) -> str | None:
    return f"{value:.3f}" if isinstance(value, float | int) else None
