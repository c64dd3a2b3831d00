"""The nightly report as blocks, in the order of a reader's questions: is it better, where, in which episodes, and what
next?
"""

import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Literal

import msgspec

from ratchet.components.evaluation.agent_comparison import TaskFlip
from ratchet.components.evaluation.night_trends import BenchmarkDrift, NightChange, NightPoint
from ratchet.components.evaluation.promotion.decision_record import Decision
from ratchet.components.statistics.result_types import interval_text, p_text, percent, percentage_points

from . import decision_sections, episode_pairs
from .episode_pairs import EpisodePair
from .report_blocks import (
    CollapsedBlocks,
    CommandList,
    Paragraph,
    ReportBlock,
    ReportDocument,
    ReportFigure,
    ReportTable,
    SectionHeading,
    Tone,
    VerdictBanner,
)

NightState = Literal["finished", "failed", "unfinished"]


class FailedExpectation(msgspec.Struct, frozen=True):
    """A failed expectation on data. `rows`: how many rows fail; 0 where it is about the whole table."""

    suite: str
    name: str
    severity: str
    reason: str
    rows: int = 0


class StageVerdict(msgspec.Struct, frozen=True):
    """The gate's verdict on the data of a build stage. `unit`: plural noun for its rows, such as `episodes`."""

    stage: str
    passed: bool
    rows: int | None
    unit: str
    quarantined: int
    expectations: int
    failures: tuple[FailedExpectation, ...] = ()


class NightReport(msgspec.Struct, frozen=True):
    """One night as it stands. `point` holds its figures; `decision` is None before it was made.

    `error`: one line if the night failed; `ended`: when (ISO 8601, UTC); `done`: number of finished steps, `last`: the
    latest of them. `before`: the latest earlier decided night of the same taskset; `changes`: differences from it by
    role; `drifts`: unchanged agents whose success drifted. `version`: the challenger's registered version; `holder`:
    version that stayed champion although the night decided otherwise. `missing`: one sentence for each part that could
    not be gathered. `flips`: every task with different success rates.
    """

    state: NightState
    point: NightPoint
    seed: int
    decision: Decision | None = None
    error: str | None = None
    ended: str | None = None
    done: int = 0
    last: str | None = None
    before: NightPoint | None = None
    changes: tuple[NightChange, ...] = ()
    drifts: tuple[BenchmarkDrift, ...] = ()
    flips: tuple[TaskFlip, ...] = ()
    duels: tuple[EpisodePair, ...] = ()
    pictures: tuple[ReportFigure, ...] = ()
    verdicts: tuple[StageVerdict, ...] = ()
    version: int | None = None
    holder: int | None = None
    missing: tuple[str, ...] = ()


MAX_FAILURES_LISTED = 20
"""Failed expectations that are listed; further ones are counted."""
SEVERITY_TONES: dict[str, Tone] = {"critical": "bad", "warning": "plain"}
_COUNTED_COSTS = (
    ("episodes", "episodes played"),
    ("trained_tokens", "tokens trained on"),
    ("judge_tokens", "tokens judged"),
)


def unfinished_banner(report: NightReport) -> VerdictBanner:
    """Return the banner of a night without a decision."""
    last = f", the last one '{report.last}'" if report.last else ""
    done = f"{report.done} steps are finished{last}; the same command continues from there."
    if report.state == "failed":
        return VerdictBanner("Failed", f"{report.error or 'The error was not saved'}: {done}", "bad")
    return VerdictBanner("Not finished", f"Nothing is decided yet: {done}", "plain")


def quality_blocks(report: NightReport) -> Iterator[ReportBlock]:
    """Yield the gates' verdicts on the night's data, with failed expectations by name."""
    if not report.verdicts:
        episodes = _quality_text(report.point, "episodes")
        quarantined = _quality_text(report.point, "quarantined") or "0"
        yield Paragraph(f"{episodes} episodes, {quarantined} in quarantine." if episodes else "No data was checked.")
        return
    yield ReportTable(
        ("stage", "verdict", "rows", "failed"),
        tuple(_stage_row(verdict) for verdict in report.verdicts),
        tones=tuple("good" if verdict.passed else "bad" for verdict in report.verdicts),
    )
    failures = [(verdict.stage, failure) for verdict in report.verdicts for failure in verdict.failures]
    if failures:
        yield ReportTable(
            ("expectation", "severity", "why", "rows"),
            tuple(
                (f"{stage}, {failure.suite}: {failure.name}", failure.severity, failure.reason, f"{failure.rows:,}")
                for stage, failure in failures[:MAX_FAILURES_LISTED]
            ),
            "What failed"
            + (f", and {len(failures) - MAX_FAILURES_LISTED:,} more" if len(failures) > MAX_FAILURES_LISTED else ""),
            tuple(SEVERITY_TONES.get(failure.severity, "quiet") for _, failure in failures[:MAX_FAILURES_LISTED]),
        )


def cost_blocks(report: NightReport) -> Iterator[ReportBlock]:
    """Yield the blocks on the cost of a night: totals, and the time of each step. A paragraph says where nothing is known."""
    point, cost = report.point, report.point.cost
    if cost is None:
        yield Paragraph("Neither time nor cost is known.", "quiet")
        return
    totals = [f"{getattr(cost, name):,} {what}" for name, what in _COUNTED_COSTS if getattr(cost, name)]
    if (elapsed := _elapsed(point.begun, report.ended)) is not None:
        totals.insert(0, f"{format_duration(elapsed)} from start to end")
    if cost.money:
        totals.append(f"{cost.money:,.2f} paid to judges")
    yield Paragraph(", ".join(totals) + "." if totals else "Neither the number of episodes nor the cost is known.")
    if cost.seconds:
        yield ReportTable(
            ("step", "time", "share"),
            tuple(_time_shares(cost.seconds)),
            "Steps ran in parallel where possible",
        )


def _time_shares(seconds: Mapping[str, float]) -> Iterator[tuple[str, str, str]]:
    """Yield the steps that took at least a hundredth of the time, and all others in one row."""
    total = sum(seconds.values())
    long = {name: duration for name, duration in seconds.items() if duration >= total / 100}
    # Steps run in parallel: the total may exceed the duration of the night.
    rest = total - sum(long.values())
    rows = {**long, "all other steps": rest} if len(long) < len(seconds) else long
    for name, duration in rows.items():
        yield name, format_duration(duration), percent(duration / total if total else None)


def previous_night_blocks(report: NightReport) -> Iterator[ReportBlock]:
    """Yield the blocks that compare tonight's figures with the previous night's, and name the significant changes."""
    before, now = report.before, report.point
    if before is None:
        yield Paragraph("There is no earlier night to compare with.", "quiet")
        return
    rows = ((name, text(before), text(now)) for name, text in _NIGHT_FIGURES.items())
    yield ReportTable(("", before.night, now.night), tuple(row for row in rows if any(row[1:])))
    for change in report.changes:
        yield Paragraph(_change_text(change), "bad" if change.worse else "plain")
    yield from (Paragraph(_drift_text(drift), "bad") for drift in report.drifts)
    yield Paragraph("Nights play different tasks: small changes between them are chance.", "quiet")


def next_commands(report: NightReport) -> CommandList:
    """Return the shell commands that fit the night's state, such as resuming it or inspecting its decision."""
    night, scale = report.point.night, shlex.quote(report.point.scale or "smoke")
    if report.decision is None:
        return CommandList(
            (
                (f"ratchet night --scale {scale} --night {night}", "resume this night"),
                ("ratchet status", "the progress of each night"),
                (f"ratchet report {night}", "this report again"),
            )
        )
    more, by_hand = [], []
    if report.state != "finished":
        more.append((f"ratchet night --scale {scale} --night {night}", "resume this night"))
    if report.decision.verdict == "promote" and report.holder is None:
        more.append(('ratchet rollback --why "REASON"', "make the previous champion the champion again"))
        more.append(("ratchet trace @champion", "from the new champion to every rollout it was trained on"))
    elif report.version is not None:
        by_hand.append((f'ratchet promote {report.version} --why "REASON"', "against the verdict, by hand: promote it"))
    return CommandList(
        (
            (f"ratchet promote --explain {night}", "the whole decision: every test, margin and level"),
            (
                f"ratchet compare {night}/champion {night}/challenger",
                "the two agents: tests, kinds and tasks won and lost",
            ),
            *more,
            ("ratchet inspect", "every episode: turns, rewards, other attempts, tokens as trained"),
            ("ratchet ui", "the runs, the figures and the episodes in MLflow"),
            (f"ratchet data checkout {night}", "the night's data, hash for hash"),
            (f"ratchet night --scale {scale}", "the next night"),
            *by_hand,
        )
    )


def format_duration(seconds: float) -> str:
    """Format seconds as `42 s`, `16 min 38 s` or `2 h 05 min`."""
    whole = round(seconds)
    if whole < 60:
        return f"{seconds:.1f} s" if seconds < 10 else f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"


def _elapsed(begun: str, ended: str | None) -> float | None:
    """Return the seconds between two times; None where either is unreadable."""
    try:
        return (datetime.fromisoformat(ended) - datetime.fromisoformat(begun)).total_seconds() if ended else None
    except ValueError:
        return None


def format_time(moment: str) -> str:
    """Format an ISO time as `21 November 2026, 21:37 UTC`; other text is returned unchanged."""
    try:
        return f"{datetime.fromisoformat(moment):%-d %B %Y, %H:%M} UTC"
    except ValueError:
        return moment


def _stage_row(verdict: StageVerdict) -> tuple[str, ...]:
    rows = "n/a" if verdict.rows is None else f"{verdict.rows:,} {verdict.unit}"
    aside = f", {verdict.quarantined:,} in quarantine" if verdict.quarantined else ""
    failed = f"{len(verdict.failures)} of {verdict.expectations} expectations"
    return verdict.stage, "passed" if verdict.passed else "STOPPED", rows + aside, failed


def _success_text(point: NightPoint, role: str) -> str:
    agent = point.agents.get(role)
    return "" if agent is None else percent(agent.success.value)


def _quality_text(point: NightPoint, name: str) -> str:
    count = None if point.quality is None else getattr(point.quality, name)
    return "" if count is None else f"{count:,}"


_NIGHT_FIGURES: dict[str, Callable[[NightPoint], str]] = {
    "verdict": lambda point: point.verdict or "",
    "champion, success": lambda point: _success_text(point, "champion"),
    "challenger, success": lambda point: _success_text(point, "challenger"),
    "control, success": lambda point: _success_text(point, "control"),
    "challenger's lead, points": lambda point: percentage_points(point.lead.value) if point.lead else "",
    "champion, tokens an episode": lambda point: (
        f"{point.champion.tokens:,.0f}" if point.champion and point.champion.tokens is not None else ""
    ),
    "episodes of the build": lambda point: _quality_text(point, "episodes"),
    "episodes in quarantine": lambda point: _quality_text(point, "quarantined"),
    "time of all steps": lambda point: (
        format_duration(sum(point.cost.seconds.values())) if point.cost and point.cost.seconds else ""
    ),
}


def _drift_text(drift: BenchmarkDrift) -> str:
    nights = f"{len(drift.appearances)} nights"
    p_values = [p for p in (drift.heterogeneity, drift.trend_p) if p is not None]
    sure = f" ({p_text(min(p_values))})" if p_values else ""
    return (
        f"{drift.policy_version} is unchanged, but its success rate changed over {nights}{sure}: "
        "the tasks or the system changed."
    )


def _change_text(change: NightChange) -> str:
    who = f"The {change.role} is {'the same agent as' if change.same else 'a different agent than'} in {change.before}"
    lead = f"{percentage_points(change.difference.value)} points {interval_text(change.difference, signed=True)}"
    sure = "" if change.p_value is None else f", {p_text(change.p_value)}"
    worse = ": worse than chance explains" if change.worse else ""
    return f"{who}: {lead}{sure}{worse}."


FIGURES_BESIDE_TABLES = ("difference_forest", "success_bars")
"""Figures that stand beside the tables that they draw; all others follow the episodes."""


def report_document(report: NightReport) -> ReportDocument:
    """Lay out a night's report as titled blocks, ready to be rendered."""
    point = report.point
    details = [format_time(point.begun), f"scale {point.scale}" if point.scale else "", f"seed {report.seed}"]
    recipe = f"recipe {point.recipe}" if point.recipe else ""
    subtitle = ", ".join(detail for detail in [*details, recipe] if detail)
    return ReportDocument(f"Night {point.night}", subtitle, tuple(_report_blocks(report)))


def _report_blocks(report: NightReport) -> Iterator[ReportBlock]:
    if report.decision is None:
        yield unfinished_banner(report)
    else:
        yield decision_sections.verdict_banner(report.decision)
        if report.state == "failed":
            yield Paragraph(f"The night failed after its decision: {report.error or 'the error was not saved'}.", "bad")
        elif report.state == "unfinished":
            yield Paragraph("The night has decided, but is not finished yet.", "bad")
        if report.holder is not None:
            yield Paragraph(f"Version {report.holder}, promoted while the night ran, stays champion.", "bad")
        yield from _decision_blocks(report)
    yield SectionHeading("Data quality", "data")
    yield from quality_blocks(report)
    yield SectionHeading("Time and cost", "cost")
    yield from cost_blocks(report)
    yield SectionHeading("Compared with the previous night", "since")
    yield from previous_night_blocks(report)
    yield SectionHeading("Next steps", "next")
    yield next_commands(report)
    yield from (Paragraph(f"Not shown: {omission}", "quiet") for omission in report.missing)


def _decision_blocks(report: NightReport) -> Iterator[ReportBlock]:
    decision = report.decision
    assert decision is not None
    pictures = {picture.name: picture for picture in report.pictures}
    yield SectionHeading("Success", "success")
    yield from decision_sections.success_blocks(decision)
    yield from _find_figure(pictures, "success_bars")
    yield SectionHeading("Where", "where")
    yield decision_sections.kind_table(decision)
    yield from _find_figure(pictures, "difference_forest")
    yield SectionHeading("Guardrails", "guardrails")
    yield decision_sections.guardrail_table(decision)
    yield decision_sections.rule_details(decision)
    yield SectionHeading("Episodes", "episodes")
    lead = decision.versus_champion
    yield Paragraph(
        f"The challenger won {lead.won} tasks, lost {lead.lost_to} and tied {lead.tied}. "
        "The most informative ones follow."
    )
    for word in ("lost", "won"):
        if rows := [flip for flip in report.flips if flip.won is (word == "won")]:
            yield _flipped_tasks(word, rows)
    for pair in report.duels:
        yield from episode_pairs.episode_pair_blocks(pair)
    others = [picture for picture in report.pictures if picture.name not in FIGURES_BESIDE_TABLES]
    if others:
        yield SectionHeading("Figures", "figures")
        yield from others


def _flipped_tasks(word: str, flips: Sequence[TaskFlip]) -> CollapsedBlocks:
    rows = tuple((flip.task_id, flip.kind, percent(flip.a), percent(flip.b)) for flip in flips)
    table = ReportTable(("task", "kind", "champion", "challenger"), rows)
    return CollapsedBlocks(f"All tasks that the challenger {word}: {len(rows)}", (table,))


def _find_figure(pictures: dict[str, ReportFigure], name: str) -> Iterator[ReportFigure]:
    if name in pictures:
        yield pictures[name]
