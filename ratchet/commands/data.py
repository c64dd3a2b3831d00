"""Commands on the data: build, export, trace, why, data checkout, data diff, data card, data stats, data docs."""

from pathlib import Path
from typing import Annotated, Any

import typer
from typer import Argument, Option

from ratchet.commands import AsJson
from ratchet.components.core import ConfigurationError, DataError
from ratchet.components.core.home import require_clone
from ratchet.render.terminal import (
    duration_text,
    explain_interrupt,
    open_page,
    print_fields,
    print_json,
    print_note,
    print_table,
    print_text,
)

data = typer.Typer(no_args_is_help=True, help="The data: statistics, cards, differences, and restored nights.")


def build(
    nights: Annotated[
        list[str] | None, Argument(help="Nights to build from; default: params.yaml's, else the last's.")
    ] = None,
    scale: Annotated[str | None, Option(help="Scale for the build's record; default: the last build's.")] = None,
    seed: Annotated[int | None, Option(help="The seed in the build's record.")] = None,
    as_of: Annotated[str | None, Option(help="Day from which ages are counted; default: today.")] = None,
    baseline: Annotated[str | None, Option(help="Profile for drift: a hash in data/baselines, none or last.")] = None,
    force: Annotated[bool, Option("--force", help="Repeat unchanged stages too.")] = False,
    as_json: AsJson = False,
) -> None:
    """Build the datasets from sealed nights, or from the folders of trajectories in `data.rollouts` of params.yaml. Unchanged
    stages are cached; a failed build leaves the last one unchanged.

    Example: `ratchet build demonstrations-s0 2026-11-21-a1b2`
    """
    from ratchet.components.datasets.versioning import BuildRequest
    from ratchet.components.operations.manual_evaluation import build_nights

    require_clone()
    request = BuildRequest(nights=tuple(nights or ()), scale=scale, seed=seed, as_of=as_of, baseline=baseline)
    report = build_nights(request, force=force)
    if as_json:
        print_json(report)
        return
    print_table(
        ("stage", "state", "time"),
        [(stage["name"], stage["state"], duration_text(stage["seconds"])) for stage in report["stages"]],
    )
    fields = {"nights": ", ".join(report["nights"]), "lock": report["lock_hash"], "profile": report["profile"]}
    print_fields(fields | report["metrics"] | {"verdicts": report["quality_page"]})


@data.command("checkout")
def checkout(
    night: Annotated[str, Argument(help="A night's id: see `git tag -l 'night/*'`.")],
    into: Annotated[Path | None, Option(help="A folder for it; default: in place, or data/nights/NIGHT.")] = None,
    remote: Annotated[str | None, Option(help="Path or URL of a DVC remote, instead of the configured one.")] = None,
    as_json: AsJson = False,
) -> None:
    """Restore a night's data and verify every hash. Files in the work tree are never overwritten.

    Example: `ratchet data checkout 2026-11-21-a1b2`
    """
    from ratchet.components.operations.manual_evaluation import checkout_night

    require_clone()
    night_checkout = checkout_night(night, into, remote)
    if as_json:
        print_json(night_checkout)
        return
    print_table(("path", "hash"), night_checkout["data"].items())
    print_text(f"night {night} ({night_checkout['commit'][:10]}) is in {night_checkout['place']}")


def export(
    logs: Annotated[
        list[Path] | None, Argument(help="Logs, or files and folders of trajectories; default: the last build.")
    ] = None,
    *,
    format: Annotated[str, Option("--format", help="sft, dpo, grpo, benchmark, huggingface, verifiers, prime-rl.")],
    out: Annotated[Path, Option("-o", "--out", help="The new folder.")],
    where: Annotated[str | None, Option(help="Only matching episodes: column comparisons with and, or, not.")] = None,
    min_gdi: Annotated[float | None, Option(help="Only episodes with at least this quality (GDI).")] = None,
    min_reward: Annotated[float | None, Option(help="Only episodes with at least this total reward.")] = None,
    parquet: Annotated[bool, Option("--parquet", help="Also write Parquet copies of the JSON lines.")] = False,
    level: Annotated[list[str] | None, Option(help="Pairs for DPO: step or trajectory (repeatable).")] = None,
    agent_format: Annotated[str | None, Option(help="tools, or text for templates without tools.")] = None,
    group_size: Annotated[int | None, Option(help="Maximum attempts of an offline GRPO group; 0: no groups.")] = None,
    as_json: AsJson = False,
) -> None:
    """Export what the last build ranked, for TRL, the Hugging Face Hub, verifiers or prime-rl; or logs, without a build.

    Of a log, SFT rows are the known successes; where no outcome is known, choose by reward with --min-reward.
    Columns for --where: those of data/ranked.parquet (gdi, reward, kind, family, source, policy_version, steps, ...).
    Examples: `ratchet export runs.jsonl --format sft --min-reward 0.8 -o out/sft`,
    `ratchet export --format sft -o out/sft --where "gdi >= 0.5 and kind in ('off_by_one', 'wrong_operator')"`
    """
    import warnings

    from ratchet.components.operations.lineage_queries import export_build, export_logs

    with explain_interrupt(out), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", UserWarning)
        options: dict[str, Any] = {"where": where, "min_gdi": min_gdi, "min_reward": min_reward, "parquet": parquet}
        options |= {"pair_levels": level, "agent_format": agent_format, "group_size": group_size}
        if logs:
            manifest = export_logs(format, logs, out, **options)
        else:
            require_clone()
            manifest = export_build(format, out, **options)
    for warning in caught:
        print_note(str(warning.message))
    if as_json:
        print_json(manifest)
        return
    columns = ("train", "validation", "test")
    print_table(
        ("dataset", *columns),
        [(name, *(rows.get(split) for split in columns)) for name, rows in manifest["rows"].items()],
    )
    print_text(f"written: {out}")
    if not any(sum(rows.values()) for rows in manifest["rows"].values()):
        print_note(
            "no episode matches: every dataset is empty; `ratchet why EPISODE` explains why an episode is left out"
        )


AtOption = Annotated[
    str | None,
    Option(help="Build to read: a night, a tag, a commit, the hash of a lock, or a folder; default: the current one."),
]


def trace(
    what: Annotated[
        str | None, Argument(help="A model (@champion, agent/3), dataset (sft) or row (sft/train/17).")
    ] = None,
    reverse: Annotated[str | None, Option(help="Trace forward what this episode reached.", metavar="EPISODE")] = None,
    at: AtOption = None,
    ancestors: Annotated[
        bool, Option("--ancestors", help="For a model: also the models that it was trained from.")
    ] = False,
    as_json: AsJson = False,
) -> int:
    """Trace a model or dataset back to its rollouts, or a rollout forward to models.

    Back to every rollout, task, scorer, image and commit, each hash recomputed; exit code 3 where one differs or something is
    missing. Forward with --reverse: every dataset and model, also after the rollout was deleted. Rows are counted from 0.

    Examples: `ratchet trace @champion`, `ratchet trace sft/train/17 --at 2026-11-21-a1b2`, `ratchet trace --reverse ep-3f2a...`
    """
    from ratchet.components.operations import lineage_queries
    from ratchet.render import lineage as pages

    require_clone()
    if (what is None) == (reverse is None):
        raise ConfigurationError(
            "give a model, a dataset or a row to trace back, or --reverse EPISODE to trace forward"
        )
    if reverse is not None:
        forward = lineage_queries.trace_forward(reverse)
        print_json(forward) if as_json else pages.show_reverse(forward)
        return 0
    traces = lineage_queries.trace(what or "", at, ancestors=ancestors)
    for lineage_trace in traces:
        print_json(lineage_trace) if as_json else pages.show_trace(lineage_trace)
    return 0 if all(lineage_trace.is_verified for lineage_trace in traces) else DataError.exit_code


def why(
    episode: Annotated[str, Argument(help="An episode's id.")], at: AtOption = None, as_json: AsJson = False
) -> None:
    """Explain why an episode is in the datasets, left out, or quarantined: its features, their contribution to its rank, its rows.

    Example: `ratchet why ep-3f2a6c1b9d0e4a5f7c8b1a2d`
    """
    from ratchet.components.operations import lineage_queries
    from ratchet.render import lineage as pages

    require_clone()
    explanation = lineage_queries.explain(episode, at)
    print_json(explanation) if as_json else pages.show_why(explanation)


@data.command("diff")
def diff(
    a: Annotated[str, Argument(help="A night, a tag, a commit, the hash of a lock or a folder.")],
    b: Annotated[str | None, Argument(help="Another one; default: the current data.")] = None,
    as_json: AsJson = False,
) -> None:
    """Compare two states of the data: episodes, decisions, scores, and the rows of each dataset.

    Example: `ratchet data diff 2026-11-20-a1b2 2026-11-21-c3d4`
    """
    from ratchet.components.operations import lineage_queries
    from ratchet.render import lineage as pages

    require_clone()
    changes = lineage_queries.diff(a, b)
    print_json(changes) if as_json else pages.show_diff(changes)


@data.command("card")
def card(
    dataset: Annotated[str, Argument(help="sft, dpo, grpo, ...")] = "sft", at: AtOption = None, as_json: AsJson = False
) -> None:
    """Print the card of a dataset as Markdown. --at takes a night, a tag, a commit, the hash of a lock or a folder; without it,
    the card of the data in the work tree is printed.

    Example: `ratchet data card dpo --at 2026-11-21-a1b2`
    """
    from ratchet.components.operations import lineage_queries

    require_clone()
    markdown = lineage_queries.card(dataset, at)
    print_json({"dataset": dataset, "card": markdown}) if as_json else print_text(markdown.rstrip("\n"))


@data.command("stats")
def stats(at: AtOption = None, as_json: AsJson = False) -> None:
    """Show figures of the data: rows by split, episodes by night, source and kind, and reasons of decisions.

    Example: `ratchet data stats --at 2026-11-21-a1b2`
    """
    from ratchet.components.operations import lineage_queries
    from ratchet.render import lineage as pages

    require_clone()
    data_stats = lineage_queries.stats(at)
    print_json(data_stats) if as_json else pages.show_stats(data_stats)


@data.command("docs")
def docs(
    show: Annotated[bool, Option("--open", help="Open the pages in a browser.")] = False, as_json: AsJson = False
) -> None:
    """Build the Data Docs of Great Expectations from the results of the last build, and of the last failed one.

    Nothing is validated again, and the build's outputs are not touched. The pages are part of a project of Great Expectations
    in .ratchet/quality/gx, with its suites, validation definitions and checkpoints. Example: `ratchet data docs --open`
    """
    from ratchet.components.operations.quality_pages import build_docs

    require_clone()
    index = build_docs()
    print_json({"index": str(index)}) if as_json else print_text(str(index))
    if show:
        open_page(index)
