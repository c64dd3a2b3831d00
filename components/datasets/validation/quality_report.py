"""Verdict on a build from the results of its suites, as report values, an HTML page, and a Markdown summary.

Texts of a report may come from a log: the templates escape all of them, and the page contains no script and loads
nothing.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    from jinja2 import Template

MAX_NAMED_ROWS = 3
"""Maximum number of rows that an error names."""
MAX_LISTED_ROWS = 20
"""Maximum number of rows that the report lists for a failed expectation."""


class ExpectationResult(msgspec.Struct, frozen=True):
    """Result of one expectation. `failing` counts rows (0 for an expectation of the whole table); `rows` are the keys
    of failing rows, all of them unless there are too many; `values` are their values, empty if the reason already
    includes them.
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
        """Yield the key of each listed failing row, once, and the reason why it fails."""
        values = self.values or ("",) * len(self.rows)
        # Reversed: of a row that fails with several values the first is reported.
        value_of = dict(zip(reversed(self.rows), reversed(values), strict=True))
        for row in dict.fromkeys(self.rows):
            yield row, f"{self.reason} ({value_of[row]})" if value_of[row] else self.reason


class QuarantinedRow(msgspec.Struct, frozen=True):
    """Row of `quarantine.parquet`: one episode and one expectation that it fails. An episode may have several rows."""

    episode_id: str
    expectation: str
    severity: str
    reason: str


class BuildVerdict(msgspec.Struct, frozen=True):
    """Results, quarantine and verdict of a build. `stop` is the line that explains why the build stops, None if it may
    continue.
    """

    rows: int
    findings: tuple[ExpectationResult, ...]
    quarantine: tuple[QuarantinedRow, ...]
    stop: str | None


def decide(findings: Sequence[ExpectationResult], rows: int, max_quarantined: float) -> BuildVerdict:
    """Return the verdict: a critical failure stops the build; a warning quarantines its rows, and stops the build if
    more than the share `max_quarantined` of all `rows` (their number) would be quarantined.
    """
    failed = [finding for finding in findings if not finding.success]
    quarantine = sorted(
        (
            QuarantinedRow(row, finding.name, finding.severity, reason)
            for finding in failed
            if finding.severity == "warning"
            for row, reason in finding.reasons()
        ),
        key=lambda row: (row.episode_id, row.expectation),
    )
    return BuildVerdict(rows, tuple(findings), tuple(quarantine), _stop(failed, rows, max_quarantined))


def _stop(failed: Sequence[ExpectationResult], rows: int, max_quarantined: float) -> str | None:
    critical = [finding for finding in failed if finding.severity == "critical"]
    if critical:
        more = f"; {len(critical) - 1} more critical failures" if len(critical) > 1 else ""
        return f"expectation '{critical[0].name}' failed: {_describe(critical[0])}{more}"
    warnings = [finding for finding in failed if finding.severity == "warning"]
    # Of a large table only some failing rows are listed, but all are counted.
    listed = len({row for finding in warnings for row in finding.rows})
    quarantined = max([listed, *(finding.failing for finding in warnings)])
    if rows and quarantined > max_quarantined * rows:
        worst = max(warnings, key=lambda finding: finding.failing)
        way_out = (
            "; for logs without outcomes: `ratchet export LOG --min-reward`" if worst.name == "outcome_known" else ""
        )
        return (
            f"the quarantine would take {quarantined} of {rows} episodes, more than max_quarantined {max_quarantined} allows, "
            f"most by expectation '{worst.name}': {_describe(worst)}{way_out}"
        )
    return None


def _describe(finding: ExpectationResult) -> str:
    if not finding.failing:
        return f"{finding.reason} (found {finding.observed})" if finding.observed is not None else finding.reason
    first = list(finding.reasons())[:MAX_NAMED_ROWS]
    named = ", ".join(row + reason.removeprefix(finding.reason) for row, reason in first)
    rest = f" and {finding.failing - MAX_NAMED_ROWS} more" if finding.failing > MAX_NAMED_ROWS else ""
    return f"{finding.reason}: {named}{rest}" if named else f"{finding.reason}: {finding.failing} rows"


def report_values(verdict: BuildVerdict, unit: str = "episodes") -> dict[str, Any]:
    """Return the normalised report: equal verdicts give equal bytes, without run ids or dates. `unit`: name of the
    rows.
    """
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


def _entry(finding: ExpectationResult) -> dict[str, Any]:
    """Return a result as a report entry; a failed one includes its reason and rows."""
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
        rows = [[row, reason] for row, reason in finding.reasons()][:MAX_LISTED_ROWS]
        entry |= {"reason": finding.reason, "rows": rows}
    return entry


StageReports = Mapping[str, Mapping[str, Any]]
"""Reports of the stages by title; see `report_values`."""

SUITE_TITLES = {
    "rollouts": "Episodes", "scores": "Scores", "drift": "Drift from the last accepted build", "tasks": "Tasks and their splits",
    "preferences": "Pairs", "sft": "SFT", "dpo": "DPO", "grpo": "GRPO tasks", "groups": "GRPO groups",
}  # fmt: skip
"""Titles of the suites."""


def html_page(reports: StageReports) -> str:
    """Return the HTML page: failed expectations with their rows, and the others counted."""
    return _template("quality_page.html.jinja").render(reports=reports, titles=SUITE_TITLES)


def markdown_summary(reports: StageReports) -> str:
    """Return the Markdown summary: a table of failed expectations, by stage and suite."""
    template = _template("quality_summary.md.jinja")
    return template.render(reports=reports)


def _template(name: str) -> "Template":
    from jinja2 import Environment, FileSystemLoader

    # Reasons and values come from logs of strangers: autoescape is what keeps their HTML out of the page.
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent), autoescape=True, trim_blocks=True, keep_trailing_newline=True
    )
    environment.filters["cell"] = _cell
    return environment.get_template(name)


def _cell(value: object) -> str:
    """Return a text in a form that cannot end a cell or a code span of a Markdown table."""
    return str(value).replace("|", "\\|").replace("`", "'").replace("\n", " ")
