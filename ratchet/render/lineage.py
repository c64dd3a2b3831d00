"""Print traces, explanations, differences and statistics of the data."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from ratchet.components.core.errors import count_text
from ratchet.components.trajectories.terminal_rendering import single_line

from . import terminal
from .terminal import decimals, print_fields, print_table

if TYPE_CHECKING:
    from ratchet.components.datasets.lineage.build_changes import EpisodeExplanation
    from ratchet.components.datasets.lineage.episode_impact import EpisodeImpact
    from ratchet.components.datasets.lineage.trace import LineageTrace
    from ratchet.components.operations.lineage_queries import DataDiff, DataStats

MAX_ROWS_SHOWN = 12
"""Lines of a list; --json prints all."""


def print_record_text(line: str) -> None:
    """Print a text from records on one line."""
    terminal.print_text(single_line(line, terminal.MAX_CHARACTERS))


def show_trace(trace: "LineageTrace") -> None:
    """Print where a model, dataset or row comes from."""
    print_record_text(trace.model.label if trace.model else trace.subject)
    trained = [row for row in trace.rows if row.split == "train"]
    rows_unknown = trace.rollouts and not trace.rows
    rows = "its rows are not known" if rows_unknown else f"{count_text(len(trace.rows), 'row')} ({len(trained)} train)"
    print_fields(
        {
            "  trained in": trace.model.night if trace.model else None,
            "  weights from": (trace.model.base or None) if trace.model else None,
            "  dataset": f"{trace.dataset}: {rows}",
            "  build": f"{(trace.build or 'a folder without a lock')[:16]} ({trace.known_from})",
            "  code": trace.code or "not known",
            "  nights": ", ".join(trace.nights),
            "  rollouts": f"{len(trace.rollouts)} of {trace.tasks} tasks",
            **{f"  {name}": _counts_text(counts) for name, counts in _provenance_counts(trace).items()},
        }
    )
    if len(trace.rows) <= MAX_ROWS_SHOWN:
        places = {rollout.episode_id: f"{rollout.night}/{rollout.shard}:{rollout.line}" for rollout in trace.rollouts}
        for row in trace.rows:
            for episode in row.episode_ids:
                print_record_text(
                    f"  {row.name}  {episode}  {places.get(episode, 'not here')}  {row.reason or ''}".rstrip()
                )
    columns = ("recomputed", "equal", "different", "not here")
    print_table(columns, [(what, check.equal, check.different, check.absent) for what, check in trace.checks.items()])
    for line in trace.wrong:
        print_record_text(f"differs: {line}")
    for line in trace.unknown:
        print_record_text(f"not known: {line}")


def _provenance_counts(trace: "LineageTrace") -> dict[str, Mapping[str, int]]:
    kinds = ("scorers", "policies", "images", "sandboxes", "commits")
    named = {name: getattr(trace, name) for name in kinds}
    return {name: counts for name, counts in named.items() if counts}


def _counts_text(counts: Mapping[str, int]) -> str:
    listing = ", ".join(f"{name} ({count})" for name, count in list(counts.items())[:4])
    return listing + (f" and {len(counts) - 4} more" if len(counts) > 4 else "")


def show_reverse(impact: "EpisodeImpact") -> None:
    """Print every dataset and model that an episode contributed to."""
    here = (
        f"is in {', '.join(impact.places)}"
        if impact.places
        else "is in no rollouts of this clone (deleted, or never pulled)"
    )
    print_record_text(f"{impact.episode_id} {here}")
    if impact.branches:
        print_record_text(f"branches that contain its turns: {', '.join(impact.branches)}")
    rows = [
        (
            dataset.dataset,
            ", ".join(dataset.builds.values()),
            len(dataset.rows),
            ", ".join(row.name for row in dataset.rows[:4]),
        )
        for dataset in impact.datasets
    ]
    print_table(("dataset", "builds", "rows", "such as"), rows, title=count_text(len(impact.datasets), "dataset"))
    models = [
        (
            affected_model.model.version if affected_model.model else None,
            affected_model.policy_version,
            ", ".join(f"@{alias}" for alias in affected_model.model.aliases) if affected_model.model else "",
            affected_model.dataset,
            affected_model.rows,
            affected_model.measured,
            " and ".join(affected_model.how),
        )
        for affected_model in impact.models
    ]
    columns = ("version", "model", "alias", "dataset", "trained on", "validated on", "known by")
    print_table(columns, models, title=count_text(len(models), "model"))
    if impact.heirs:
        print_record_text("models trained from these:")
        for heir in impact.heirs:
            print_record_text(f"  {heir.label}, trained from {heir.base}")
    for line in impact.unknown:
        print_record_text(f"not known: {line}")


def show_why(explanation: "EpisodeExplanation") -> None:
    """Print why an episode is in, out or quarantined."""
    print_record_text(f"{explanation.episode_id}: {explanation.verdict}: {explanation.reason}")
    print_fields({f"  {name}": value for name, value in explanation.about.items() if name != "episode_id"})
    print_fields({f"  {name}": _joined(value) for name, value in explanation.task.items()})
    for expectation in explanation.expectations:
        print_record_text(f"  {expectation.severity}: {expectation.name}: {expectation.reason}")
    if explanation.terms:
        rows = [(term.name, decimals(term.value, 4), decimals(term.contribution, 4)) for term in explanation.terms]
        print_table(("term", "value", "adds to gdi"), [*rows, ("gdi", "", decimals(explanation.gdi, 4))])
    for dataset, own in explanation.rows.items():
        for row in own[:MAX_ROWS_SHOWN]:
            print_record_text(f"  {dataset}/{row.name}  {row.reason or ''}".rstrip())
        if len(own) > MAX_ROWS_SHOWN:
            terminal.print_note(f"{len(own) - MAX_ROWS_SHOWN} more rows of {dataset}: see --json")


def _joined(value: object) -> object:
    return ", ".join(map(str, value)) if isinstance(value, list | tuple) else value


def show_diff(difference: "DataDiff") -> None:
    """Print the differences between two states of the data."""
    print_record_text(f"{difference.a} -> {difference.b}")
    print_fields(
        {
            "  nights added": ", ".join(difference.nights_added) or None,
            "  nights removed": ", ".join(difference.nights_removed) or None,
        }
    )
    episodes = difference.episodes
    counted = [("episodes", episodes, 0)] + [
        (name, change, len(change.moved)) for name, change in difference.datasets.items()
    ]
    own = [
        (name, change.before, change.after, len(change.added), len(change.removed), len(change.changed), moved)
        for name, change, moved in counted
    ]
    print_table(("what", "before", "after", "added", "removed", "changed", "other split"), own)
    shifts = [
        (
            name,
            shift.episodes,
            decimals(shift.before, 4),
            decimals(shift.after, 4),
            decimals(shift.mean_shift, 4),
            shift.moved,
        )
        for name, shift in episodes.shifts.items()
    ]
    print_table(("score", "episodes in both", "mean before", "mean after", "mean shift", "moved"), shifts)
    for flip, count in episodes.flips.items():
        print_record_text(f"{flip}: {count}")
    decided_anew = [
        episode
        for episode in episodes.changed
        if any(episode.before[name] != episode.after[name] for name in ("accepted", "quarantined"))
    ]
    for episode in decided_anew[:MAX_ROWS_SHOWN]:
        print_record_text(f"  {episode.episode_id}: {episode.before['reason']} -> {episode.after['reason']}")


def show_stats(stats: "DataStats") -> None:
    """Print the figures of a build."""
    print_fields({name: value for name, value in stats.figures.items() if not isinstance(value, dict)})
    for name, values in stats.figures.items():
        if isinstance(values, dict):
            print_fields({f"{name} {key}": value for key, value in values.items()})
    print_table(("dataset", "rows"), stats.rows.items())
    for name, groups in stats.episodes.items():
        columns = (name, "episodes", "tasks", "succeeded", "accepted", "quarantined", "broken", "mean gdi")
        rows = [
            (g.value, g.episodes, g.tasks, g.succeeded, g.accepted, g.quarantined, g.broken, decimals(g.gdi, 4))
            for g in groups[:MAX_ROWS_SHOWN]
        ]
        print_table(columns, rows)
    print_table(("reason", "episodes"), list(stats.reasons.items())[:MAX_ROWS_SHOWN])
