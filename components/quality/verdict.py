"""The verdict: what the findings of suites mean for the build. Pure; Great Expectations is in `judge`."""

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

SHOWN = 3
"""How many rows an error names."""
LISTED = 20
"""How many rows the report lists of an expectation that failed."""


class Finding(msgspec.Struct, frozen=True):
    """How one expectation fared. `failing` counts rows (0 for one about the whole table); `rows` names the failing ones by their
    keys, all of them unless they are too many to matter singly; `values` is what stands in them, empty where the reason says it.
    """

    name: str
    type: str
    column: str | None
    severity: str
    reason: str
    success: bool
    failing: int = 0
    observed: Any = None
    rows: tuple[str, ...] = ()
    values: tuple[str, ...] = ()
    suite: str = ""

    def reasons(self) -> Iterator[tuple[str, str]]:
        """The key of each failing row that is named, once, and why it fails."""
        told = self.values or ("",) * len(self.rows)
        seen = dict(zip(reversed(self.rows), reversed(told), strict=True))
        for row in dict.fromkeys(self.rows):
            yield row, f"{self.reason} ({seen[row]})" if seen[row] else self.reason


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
            Quarantined(row, finding.name, finding.severity, reason)
            for finding in failed
            if finding.severity == "warning"
            for row, reason in finding.reasons()
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
    taken = len({row for finding in warnings for row in finding.rows})
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
    shown = dict(list(finding.reasons())[:SHOWN])
    told = {row: reason.removeprefix(finding.reason) for row, reason in shown.items()}
    named = ", ".join(row + why for row, why in told.items())
    rest = f" and {finding.failing - SHOWN} more" if finding.failing > SHOWN else ""
    return f"{finding.reason}: {named}{rest}" if named else f"{finding.reason}: {finding.failing} rows"


def report(verdict: Verdict, unit: str = "episodes") -> dict[str, Any]:
    """The normalised report: the same verdict gives the same bytes, without run ids or dates. `unit`: what the rows are."""
    failed = [finding for finding in verdict.findings if not finding.success]
    results: dict[str, dict[str, Any]] = {}
    for finding in verdict.findings:
        results.setdefault(finding.suite, {})[finding.name] = _entry(finding)
    return {
        unit: verdict.rows,
        "quarantined": len({row.episode_id for row in verdict.quarantine}),
        "expectations": len(verdict.findings),
        "failed": {
            severity: sum(finding.severity == severity for finding in failed)
            for severity in ("critical", "warning", "info")
        },
        "passed": verdict.stop is None,
        "results": results,
    }


def _entry(finding: Finding) -> dict[str, Any]:
    """A finding as the report holds it; one that failed says why, and lists rows."""
    number = isinstance(finding.observed, int | float)
    entry: dict[str, Any] = {
        "type": finding.type,
        "column": finding.column,
        "severity": finding.severity,
        "success": finding.success,
        "failing": finding.failing,
        "observed": round(float(finding.observed), 6) if number else None,
    }
    if not finding.success:
        rows = [[row, reason] for row, reason in finding.reasons()][:LISTED]
        entry |= {"reason": finding.reason, "rows": rows}
    return entry
