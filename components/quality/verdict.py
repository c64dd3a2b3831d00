"""The verdict: what the findings of a suite mean for the build. Pure; Great Expectations is in `judge`."""

from collections.abc import Sequence
from typing import Any

import msgspec

SHOWN = 3
"""How many episodes an error names."""


class Finding(msgspec.Struct, frozen=True):
    """How one expectation fared. `failing` counts rows (0 for one about the whole table); `episodes` names the failing ones,
    all of them unless they are too many to matter singly."""

    name: str
    type: str
    column: str | None
    severity: str
    reason: str
    success: bool
    failing: int = 0
    observed: Any = None
    episodes: tuple[str, ...] = ()


class Quarantined(msgspec.Struct, frozen=True):
    """One row of `quarantine.parquet`: an episode may stand there for several expectations."""

    episode_id: str
    expectation: str
    severity: str
    reason: str


class Verdict(msgspec.Struct, frozen=True):
    """`stop` is the one line that stops the build, None where it may go on."""

    rows: int
    findings: tuple[Finding, ...]
    quarantine: tuple[Quarantined, ...]
    stop: str | None


def judge_findings(findings: Sequence[Finding], rows: int, max_quarantined: float) -> Verdict:
    """Critical failures stop; warnings quarantine, and stop where they would take more than `max_quarantined` of the rows."""
    failed = [finding for finding in findings if not finding.success]
    quarantine = sorted(
        (
            Quarantined(episode, finding.name, finding.severity, finding.reason)
            for finding in failed
            if finding.severity == "warning"
            for episode in set(finding.episodes)
        ),
        key=lambda row: (row.episode_id, row.expectation),
    )
    return Verdict(rows, tuple(findings), tuple(quarantine), _stop(failed, rows, max_quarantined))


def _stop(failed: Sequence[Finding], rows: int, max_quarantined: float) -> str | None:
    critical = [finding for finding in failed if finding.severity == "critical"]
    if critical:
        more = f"; {len(critical) - 1} more critical failures" if len(critical) > 1 else ""
        return f"expectation '{critical[0].name}' failed: {_describe(critical[0])}{more}"
    warnings = [finding for finding in failed if finding.severity == "warning"]
    taken = len({episode for finding in warnings for episode in finding.episodes})
    taken = max([taken, *(finding.failing for finding in warnings)])
    if rows and taken > max_quarantined * rows:
        worst = max(warnings, key=lambda finding: finding.failing)
        return (
            f"the quarantine would take {taken} of {rows} episodes, more than max_quarantined {max_quarantined} allows, "
            f"most by expectation '{worst.name}': {_describe(worst)}"
        )
    return None


def _describe(finding: Finding) -> str:
    if not finding.failing:
        return f"{finding.reason} (found {finding.observed})" if finding.observed is not None else finding.reason
    named = ", ".join(finding.episodes[:SHOWN])
    rest = f" and {finding.failing - SHOWN} more" if finding.failing > SHOWN else ""
    return f"{finding.reason}: {named}{rest}" if named else f"{finding.reason}: {finding.failing} rows"


def report(verdict: Verdict) -> dict[str, Any]:
    """The normalised report: the same verdict gives the same bytes, without run ids or dates."""
    failed = [finding for finding in verdict.findings if not finding.success]
    return {
        "episodes": verdict.rows,
        "quarantined": len({row.episode_id for row in verdict.quarantine}),
        "expectations": len(verdict.findings),
        "failed": {
            severity: sum(finding.severity == severity for finding in failed)
            for severity in ("critical", "warning", "info")
        },
        "passed": verdict.stop is None,
        "results": {finding.name: _entry(finding) for finding in verdict.findings},
    }


def _entry(finding: Finding) -> dict[str, Any]:
    observed = finding.observed if isinstance(finding.observed, int | float) else None
    return {
        "type": finding.type,
        "column": finding.column,
        "severity": finding.severity,
        "success": finding.success,
        "failing": finding.failing,
        "observed": None if observed is None else round(float(observed), 6),
    }
