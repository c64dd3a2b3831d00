"""Print conversions, validations, comparisons and summaries of trajectories, with untrusted text escaped."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from ratchet.components.core.errors import count_text
from ratchet.components.interop.log_conversion import ConversionReport
from ratchet.components.statistics.result_types import percent
from ratchet.components.trajectories.collection_summary import CollectionSummary, Distribution
from ratchet.components.trajectories.file_validation import ValidationSummary
from ratchet.components.trajectories.terminal_rendering import single_line
from ratchet.components.trajectories.trajectory_diff import ComparisonTotals, FieldDifference, TrajectoryComparison

from .terminal import print_fields, print_table, print_text

MAX_DIFFERENCES = 12
"""Differences printed per pair; --json prints all."""
MAX_VALUE_CHARACTERS = 72
"""Maximum characters of a value."""
BAR_CHARACTERS = 40
"""Characters of the longest bar."""
MAX_NAMES = 8
"""Names on one line; others are summed."""


def conversion_lines(report: ConversionReport, log: Path, out: Path) -> Iterator[str]:
    """Yield the lines that summarise a conversion. `log`: file of the conversion log; `out`: the output."""
    formats = ", ".join(f"{name} {count:,}" for name, count in report.formats.items())
    read = f"{count_text(report.trajectories, 'trajectory')} of {count_text(report.steps, 'step')}"
    read += f" from {count_text(report.files, 'file')}"
    yield f"{read} ({formats}): {out}"
    unknown = f"{report.success_unknown:,} unknown"
    yield f"success: {report.succeeded:,} yes, {report.not_succeeded:,} no, {unknown}"
    if report.repeated:
        yield f"{count_text(report.repeated, 'duplicate')} written once"
    if report.rejects:
        yield f"{count_text(report.rejected, 'part')} could not be read: {report.rejects}"
    if report.lost:
        yield f"{report.to} cannot represent: {report.lost}"
    if report.blobs:
        yield f"images and other bytes: {report.blobs}"
    if report.blobs_absent:
        yield f"{count_text(report.blobs_absent, 'referenced blob')} missing beside {log}"


def validation_line(summary: ValidationSummary) -> str:
    """Return the line that summarises a validation."""
    records, files = count_text(summary.records, "record"), count_text(summary.files, "file")
    problems = f"{count_text(summary.errors, 'error')}, {count_text(summary.warnings, 'warning')}"
    identities, contents = (
        count_text(summary.repeated_ids, "identity"),
        count_text(summary.repeated_contents, "content"),
    )
    return f"{records} in {files}: {problems}; repeated: {identities}, {contents}"


def comparison_lines(comparison: TrajectoryComparison) -> Iterator[str]:
    """Yield the differences of two trajectories as lines of text."""
    left, right = single_line(comparison.left_id), single_line(comparison.right_id)
    names = left if left == right else f"{left} | {right}"
    yield f"{single_line(comparison.task_id)}, attempt {comparison.attempt}: {names}"
    if comparison.divergence is not None:
        turn = comparison.divergence.turn
        yield "  they diverge " + ("before the first turn" if turn is None else f"at turn {turn}")
        yield from (f"    {line}" for line in _difference_lines(comparison.divergence.difference))
    else:
        yield "  no divergence"
    for name in ("success", "score", "turns", "steps"):
        one, other = getattr(comparison, name)
        if one != other:
            yield f"  {name}: {_json_text(one)} | {_json_text(other)}"
    more = ", the first:" if len(comparison.differences) > MAX_DIFFERENCES else ":"
    yield f"  {count_text(len(comparison.differences), 'difference')}{more}"
    for difference in comparison.differences[:MAX_DIFFERENCES]:
        yield from (f"    {line}" for line in _difference_lines(difference))


def _difference_lines(difference: FieldDifference) -> Iterator[str]:
    field = single_line(difference.field)
    left, right = _json_text(difference.left), _json_text(difference.right)
    if difference.absent is not None:
        only = right if difference.absent == "left" else left
        side = "right" if difference.absent == "left" else "left"
        yield f"{field}: only {side}: {single_line(only, MAX_VALUE_CHARACTERS)}"
    elif max(len(left), len(right)) <= MAX_VALUE_CHARACTERS // 2:
        yield f"{field}: {single_line(left)} | {single_line(right)}"
    else:
        at = next((i for i, (a, b) in enumerate(zip(left, right, strict=False)) if a != b), min(len(left), len(right)))
        yield f"{field}:"
        yield f"  - {_text_around(left, at)}"
        yield f"  + {_text_around(right, at)}"


def _text_around(text: str, at: int) -> str:
    """Return `text` near the character `at`."""
    begin = max(0, min(at - MAX_VALUE_CHARACTERS // 3, len(text) - MAX_VALUE_CHARACTERS))
    end = begin + MAX_VALUE_CHARACTERS
    return (
        ("…" if begin else "") + single_line(text[begin:end], MAX_VALUE_CHARACTERS) + ("…" if end < len(text) else "")
    )


def totals_lines(totals: ComparisonTotals, left: str, right: str) -> Iterator[str]:
    """Yield the totals of a comparison of two files as lines; `left`, `right`: their names."""
    yield f"{count_text(totals.pairs, 'pair')}: {totals.equal:,} the same, {totals.different:,} different"
    for name, only in ((left, totals.only_left), (right, totals.only_right)):
        if only:
            more = f" and {len(only) - MAX_NAMES:,} more" if len(only) > MAX_NAMES else ""
            yield f"{len(only):,} only in {name}: {', '.join(map(single_line, only[:MAX_NAMES]))}{more}"
    succeeded, outcomes = totals.succeeded, totals.known
    yield f"success of the pairs: {succeeded[0]:,} of {outcomes[0]:,} known | {succeeded[1]:,} of {outcomes[1]:,} known"


def show_description(summary: CollectionSummary) -> None:
    """Print the summary of a collection."""
    outcomes = summary.succeeded + summary.not_succeeded
    rate = "" if summary.success_rate is None else f" ({percent(summary.success_rate)})"
    print_fields(
        {
            "episodes": f"{summary.episodes:,} of {count_text(summary.tasks, 'task')}",
            "success": f"{summary.succeeded:,} of {outcomes:,} known{rate}, {summary.success_unknown:,} unknown",
            "ended": f"{summary.cut_short:,} cut short, {summary.policy_failures:,} failures of the policy, "
            f"{summary.infrastructure_failures:,} of the infrastructure",
            "repeated": f"{count_text(summary.repeated_ids, 'identity')}, "
            f"{count_text(summary.repeated_contents, 'content')}",
            "turns": f"{summary.turns:,}",
            "steps": _distribution_text(summary.steps),
            "tokens": f"{summary.prompt_tokens:,} + {summary.completion_tokens:,} "
            f"in {summary.episodes_with_usage:,} episodes"
            if summary.episodes_with_usage
            else "unknown",
            "cost": "unknown" if summary.cost is None else f"{summary.cost:.4g}",
            "seconds": _distribution_text(summary.seconds),
            "collected": " to ".join(
                single_line(timestamp)
                for timestamp in (summary.first_collected, summary.last_collected)
                if timestamp is not None
            )
            or "unknown",
            **{name: _counts_text(getattr(summary, name)) for name in ("sources", "agents", "tasksets", "domains")},
        }
    )
    print_text("\nsteps of an episode")
    widest = max((bar.episodes for bar in summary.histogram), default=0)
    labels = [f"{bar.least}-{bar.most}" if bar.most > bar.least else f"{bar.least}" for bar in summary.histogram]
    width = max(map(len, labels), default=0)
    for bar, label in zip(summary.histogram, labels, strict=True):
        print_text(f"  {label:>{width}}  {'█' * -(-bar.episodes * BAR_CHARACTERS // max(widest, 1))} {bar.episodes:,}")
    print_text()
    rows = [
        (_name_text(name), use.calls, use.answered, use.errors, _percent_text(use.error_rate), use.unreadable)
        for name, use in summary.tools.items()
    ]
    print_table(("tool", "calls", "answered", "errors", "rate", "unreadable"), rows)


def _distribution_text(distribution: Distribution | None) -> str:
    if distribution is None:
        return "unknown"
    parts = (
        ("total", distribution.total),
        ("mean", distribution.mean),
        ("median", distribution.median),
        ("90 %", distribution.p90),
        ("most", distribution.most),
    )
    return (
        ", ".join(f"{name} {value:,.1f}".removesuffix(".0") for name, value in parts)
        + f" of {distribution.count:,} episodes"
    )


def _counts_text(counts: Mapping[str, int]) -> str:
    parts = [f"{single_line(name) or '(none)'} {count:,}" for name, count in list(counts.items())[:MAX_NAMES]]
    rest = list(counts.values())[MAX_NAMES:]
    return ", ".join([*parts, f"{len(rest):,} others {sum(rest):,}"] if rest else parts)


def _name_text(name: str) -> str:
    return single_line(name) or "(unreadable)"


def _percent_text(share: float | None) -> str | None:
    return None if share is None else percent(share)


def _json_text(value: Any) -> str:
    return msgspec.json.encode(value).decode()
