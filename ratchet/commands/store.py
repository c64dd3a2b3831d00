"""Commands on the store of trajectories: add, list, show, export, remove, verify, gc, stats."""

import time
from collections.abc import Callable, Sequence
from contextlib import closing
from functools import partial, wraps
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ratchet.render.terminal import (
    bytes_text,
    decimals,
    note_skipped_files,
    print_error,
    print_fields,
    print_json,
    print_note,
    print_table,
    print_text,
)

if TYPE_CHECKING:
    from ratchet.components.interop.log_ingest import IngestTotals, LogReport
    from ratchet.components.trajectories.store.episode_index import IndexedEpisode
    from ratchet.components.trajectories.store.record_admission import PutCounts
    from ratchet.components.trajectories.store.store_reader import EpisodeQuery, TrajectoryStore
    from ratchet.components.trajectories.store.store_writer import StoreWriter

_COUNT_NAMES = {"tokens_dropped": "without token ids", "found": "secrets removed"}


def show_log_report(report: "LogReport", as_json: bool, *, every: bool) -> None:
    """Print a log's error or note; with `every` also its counts."""
    if as_json:
        print_json(report)
        return
    if report.error:
        print_error(report.error)
    if report.blobs_absent:
        why = "absent, damaged, or containing a secret; put them beside the log and add a copy of it"
        print_error(f"{report.path}: {report.blobs_absent} referenced blobs are missing: {why}")
    if report.note:
        print_note(f"{report.path}: {report.note}")
    if every and report.tally.has_changes:
        print_note(f"{report.path} ({report.state}): {counts_text(report.tally)}")


def counts_text(tally: "PutCounts") -> str:
    """Format counts of records; zeros are left out."""
    values = {_COUNT_NAMES.get(name, name): getattr(tally, name) for name in tally.__struct_fields__}
    return ", ".join(f"{value} {name}" for name, value in values.items() if value or name == "added")


def show_totals(total: "IngestTotals", seconds: float, root: Path, strangers: Sequence[str] = ()) -> None:
    """Print the totals of `add`, after the names of skipped files."""
    note_skipped_files(strangers, ())
    parts = [f"{total.logs} logs, {total.read} read", counts_text(total.tally)]
    parts += [f"{total.strangers} files of no known format"] * bool(total.strangers)
    parts += [f"{total.rejected} rejected parts written to {root / 'rejected.jsonl'}"] * bool(total.rejected)
    parts += [f"conflicts written to {root / 'conflicts.jsonl'}"] * bool(total.tally.conflicts)
    parts += [f"{total.waiting} logs end in an incomplete line, which is read when it is complete"] * bool(
        total.waiting
    )
    parts += [f"{total.empty} logs are empty"] * bool(total.empty)
    parts += [f"scores or ranks of {total.attached} episodes"] * bool(total.attached)
    print_text(f"{root}: {'; '.join(parts)}; {seconds:.1f} s")


def episode_table(entries: Sequence["IndexedEpisode"]) -> tuple[Sequence[str], list[Sequence[object]]]:
    """Return columns and rows of a list of episodes."""
    columns = ("episode", "task", "policy", "source", "collected", "success", "turns", "reward", "quality")
    return columns, [
        (
            entry.episode_id,
            entry.task_id,
            entry.policy,
            entry.source,
            (entry.collected_at or "")[:16] or None,
            None if entry.success is None else "yes" if entry.success else "no",
            entry.turns,
            decimals(entry.reward),
            decimals(entry.quality),
        )
        for entry in entries
    ]


StoreOption = Annotated[
    Path | None, typer.Option("--store", help="The store's folder; default: .ratchet/store.", show_default=False)
]
Json = Annotated[bool, typer.Option("--json", help="JSON, one object a line.")]
Offset = Annotated[int, typer.Option(min=0, help="Number of episodes to skip.")]
FILTER_OPTIONS: dict[str, tuple[Any, str]] = {
    "task": (str, "Of this task."),
    "taskset": (str, "Of this taskset."),
    "family": (str, "Of this family of tasks."),
    "domain": (str, "Of this domain."),
    "policy": (str, "Played by this policy."),
    "source": (str, "From this source: a reader's name, or ratchet."),
    "success": (str, "yes, no, or unknown (not recorded)."),
    "since": (str, "Collected at or after: 2026-11-21 or 2026-11-21T08:00:00Z."),
    "until": (str, "Collected before."),
    "min_reward": (float, "With at least this reward, of an attached table."),
    "max_reward": (float, "With at most this reward."),
    "min_quality": (float, "With at least this quality (GDI)."),
    "max_quality": (float, "With at most this quality."),
}
"""Type and help of the options that select episodes, by the names of EpisodeQuery."""
ORDER_HELP = "stored, time, reward, quality, score, turns, steps, task or episode; -reward: greatest first."


def with_filters(command: Callable[..., None]) -> Callable[..., None]:
    """Replace the parameter `filters` of a command by the options of FILTER_OPTIONS and `--order`."""
    options = {
        name: Parameter(
            name,
            Parameter.POSITIONAL_OR_KEYWORD,
            default=None,
            annotation=Annotated[kind | None, typer.Option(help=text, show_default=False)],
        )
        for name, (kind, text) in FILTER_OPTIONS.items()
    }
    order = Annotated[str, typer.Option(help=ORDER_HELP)]
    options["order"] = Parameter("order", Parameter.POSITIONAL_OR_KEYWORD, default="stored", annotation=order)

    @wraps(command)
    def run(**values: Any) -> None:
        command(filters={name: values.pop(name) for name in options}, **values)

    parameters = signature(command).parameters
    replaced = [new for name, old in parameters.items() for new in (options.values() if name == "filters" else [old])]
    # Typer builds the options from the signature, and cannot see what **values accepts.
    run.__signature__ = Signature(replaced)  # type: ignore[attr-defined]
    return run


def build_query(filters: dict[str, Any], limit: int | None, offset: int) -> "EpisodeQuery":
    """Return the query of a command's options. Raises ConfigurationError."""
    from ratchet.components.core import ConfigurationError
    from ratchet.components.trajectories.store.store_reader import EpisodeQuery

    choices = {None: None, "yes": True, "no": False, "unknown": "unknown"}
    if filters["success"] not in choices:
        raise ConfigurationError(f"--success is '{filters['success']}'; give yes, no or unknown")
    return EpisodeQuery(**{**filters, "success": choices[filters["success"]]}, limit=limit, offset=offset)


def store_folder(place: Path | None) -> Path:
    """Return the folder of the store."""
    from ratchet.components.core.home import home

    return place or home() / "store"


def open_store(place: Path | None) -> "closing[TrajectoryStore]":
    """Open an existing store for reading. Raises DataError."""
    from ratchet.components.trajectories.store.store_reader import TrajectoryStore

    return closing(TrajectoryStore(store_folder(place)))


def open_writer(place: Path | None) -> "StoreWriter":
    """Open an existing store for writing, raw or sanitised as it is."""
    from ratchet.components.trajectories.store.store_reader import TrajectoryStore
    from ratchet.components.trajectories.store.store_writer import StoreWriter

    return StoreWriter(store_folder(place), raw=TrajectoryStore(store_folder(place)).marker.raw)


store = typer.Typer(no_args_is_help=True, help="The store of trajectories: sanitised, content-addressed, indexed.")


@store.command("add")
def add_logs(
    logs: Annotated[
        list[Path],
        typer.Argument(
            help="Logs, folders of them, sealed nights, or Parquet tables of scores or ranks.", show_default=False
        ),
    ],
    place: StoreOption = None,
    format: Annotated[
        str, typer.Option("--format", help="Format of the logs; auto detects it from their content.")
    ] = "auto",
    watch: Annotated[bool, typer.Option("--watch", help="Keep adding new episodes until Ctrl-C.")] = False,
    interval: Annotated[float, typer.Option(min=0.05, help="With --watch: seconds between two checks.")] = 1.0,
    raw: Annotated[
        bool, typer.Option("--raw", help="Add without sanitising; only for a store of raw records.")
    ] = False,
    policy: Annotated[
        str, typer.Option(help="Redaction policy: redact, drop or fail, or by severity: critical=fail,high=drop.")
    ] = "redact",
    as_json: Json = False,
) -> int:
    """Add new episodes from logs. Everything is sanitised first; a log that is added again adds nothing.

    Unreadable parts are kept in the store's rejected.jsonl, contradictions in conflicts.jsonl: exit code 3, as where
    every log is empty.
    Referenced images that are missing in X.blobs (for X.jsonl) or in blobs/ beside the file also give exit code 3.
    Example: `ratchet store add runs/ --watch`
    """
    from ratchet.components.interop.log_ingest import IngestTotals, LogIngest
    from ratchet.components.redaction import RedactionPolicy as Sanitising
    from ratchet.components.trajectories.store.store_writer import StoreWriter

    total, started = IngestTotals(), time.monotonic()
    unknown_files: list[str] = []
    with StoreWriter(store_folder(place), raw=raw, policy=Sanitising.parse(policy)) as writer:
        ingest = LogIngest(writer, format=format)
        for report in ingest.watch(logs, interval=interval) if watch else ingest.once(logs):
            total.include(report)
            unknown_files += [report.path] * (report.state == "stranger")
            show_log_report(report, as_json, every=watch)
    seconds = time.monotonic() - started
    if as_json:
        print_json({"total": total, "seconds": round(seconds, 3)})
    else:
        show_totals(total, seconds, store_folder(place), unknown_files)
    nothing = total.empty == total.logs > 0
    return 3 if nothing or total.errors or total.rejected or total.blobs_absent or total.tally.conflicts else 0


@store.command("list")
@with_filters
def list_episodes(
    place: StoreOption = None,
    filters: Any = None,
    limit: Annotated[int, typer.Option(min=0, help="Maximum number.")] = 20,
    offset: Offset = 0,
    as_json: Json = False,
) -> None:
    """List episodes, and count all matching ones. Example: `ratchet store list --success yes --order -reward --limit 5`"""
    query = build_query(filters, limit, offset)
    with open_store(place) as reader:
        entries, count = reader.query(query), reader.count(query)
    if as_json:
        for entry in entries:
            print_json(entry)
        return
    if entries:
        print_table(*episode_table(entries))
    print_text(f"{len(entries)} of {count} episodes")


@store.command("show")
def show_episode(
    episode: Annotated[str, typer.Argument(help="An episode's id, or its beginning.", show_default=False)],
    place: StoreOption = None,
    full: Annotated[bool, typer.Option("--full", help="Show texts in full.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="The record as one JSON line.")] = False,
) -> None:
    """Show one episode step by step, with scores if a table of them was added.

    Example: `ratchet store show ep-3f2a`
    """
    from ratchet.components.trajectories.terminal_rendering import render_trajectory

    with open_store(place) as reader:
        identity = reader.find_id(episode)
        trajectory, scores = reader.get(identity), reader.scores(identity)
    if as_json:
        print_json(trajectory)
    else:
        print_text(render_trajectory(trajectory, scores, full=full))


@store.command("export")
@with_filters
def export_episodes(
    out: Annotated[
        Path, typer.Option("-o", "--out", help="The file, or for shards the new folder.", show_default=False)
    ],
    to: Annotated[
        str, typer.Option(help="jsonl, shards (with token ids), openai_chat, adp, verifiers, atif or otel.")
    ] = "jsonl",
    place: StoreOption = None,
    filters: Any = None,
    limit: Annotated[int | None, typer.Option(min=0, help="Maximum number; default: all.", show_default=False)] = None,
    offset: Offset = 0,
    as_json: Json = False,
) -> None:
    """Write matching episodes to a file or folder. Example: `ratchet store export --success yes -o good.jsonl`"""
    from ratchet.components.interop.trajectory_writers import line_encoder
    from ratchet.components.trajectories.store.store_export import export_query

    query = build_query(filters, limit, offset)
    with open_store(place) as reader:
        count = export_query(reader, query, out, to, partial(line_encoder, tokens=reader.tokens))
    print_json({"out": str(out), "episodes": count}) if as_json else print_text(f"{out}: {count} episodes")


@store.command("remove")
def remove_episodes(
    episodes: Annotated[list[str], typer.Argument(help="Whole episode ids.", show_default=False)],
    place: StoreOption = None,
    as_json: Json = False,
) -> None:
    """Remove episodes permanently: hidden at once and never added again. `gc --removed` frees their bytes.

    Example: `ratchet store remove ep-3f2a901b6c5d4e7f80912a3b && ratchet store gc --removed`
    """
    with open_writer(place) as writer:
        count = writer.remove(episodes)
    print_json({"removed": count}) if as_json else print_text(
        f"{count} episodes removed; `ratchet store gc --removed` frees their bytes"
    )


@store.command("verify")
def verify_store(
    place: StoreOption = None,
    mend: Annotated[bool, typer.Option("--mend", help="Rebuild the index where it is wrong.")] = False,
    as_json: Json = False,
) -> int:
    """Verify all bytes against their hashes, and the index against the shards. Exit code 3 if there is a fault.

    Example: `ratchet store verify --mend`
    """
    from ratchet.components.trajectories.store.store_maintenance import check_store

    with open_store(place) as reader:
        checked = check_store(reader)
    if mend and any(fault.index for fault in checked.faults):
        with open_writer(place) as writer:
            writer.rebuild()
            checked = check_store(writer)
    if as_json:
        print_json(checked)
    else:
        for fault in checked.faults:
            print_error(
                f"{fault.where}: {fault.why}" + ("; `ratchet store verify --mend` rebuilds it" if fault.index else "")
            )
        print_text(
            f"{checked.segments} shards, {checked.records} records, {checked.blobs} blobs: {len(checked.faults)} faults"
        )
    return 3 if checked.faults else 0


@store.command("gc")
def collect_garbage(
    place: StoreOption = None,
    removed: Annotated[
        bool, typer.Option("--removed", help="Also free the bytes of removed and superseded records.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only list what would be removed.")] = False,
    as_json: Json = False,
) -> None:
    """Remove unreferenced files: temporary files, orphaned blobs. Example: `ratchet store gc --removed --dry-run`"""
    from ratchet.components.trajectories.store.store_maintenance import remove_garbage

    with open_writer(place) as writer:
        garbage = remove_garbage(writer, removed=removed, dry_run=dry_run)
    if as_json:
        for item in garbage:
            print_json(item)
        return
    if garbage:
        print_table(("path", "size", "why"), [(item.path, bytes_text(item.bytes), item.why) for item in garbage])
    print_text(f"{bytes_text(sum(item.bytes for item in garbage))} {'would be freed' if dry_run else 'freed'}")


@store.command("stats")
def show_stats(place: StoreOption = None, as_json: Json = False) -> None:
    """Show counts of episodes, tasks, policies and bytes in the store. Example: `ratchet store stats`"""
    import msgspec

    from ratchet.components.trajectories.store.store_export import store_stats

    with open_store(place) as reader:
        stats = store_stats(reader)
    if as_json:
        print_json(stats)
        return
    values: dict[str, Any] = msgspec.structs.asdict(stats)
    counts = {
        name: ", ".join(f"{key or '-'} {n}" for key, n in value.items())
        for name, value in values.items()
        if isinstance(value, dict)
    }
    print_fields({name.replace("_", " "): counts.get(name, value) for name, value in values.items()})
