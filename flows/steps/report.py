"""Report: write the night's report when it ends, also after a failure.

A report that cannot be written, or a part that cannot be gathered, never ends a night; missing parts are named in the
report.
"""

import contextlib
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import msgspec

from ratchet.components.core import ConfigurationError, RatchetError
from ratchet.components.core.files import open_atomically, write_atomically
from ratchet.components.nights.episode_sets import NightEpisodes
from ratchet.components.nights.night_state import FAILURE_FILE, Night, list_nights
from ratchet.components.nights.report_contents import gather_report
from ratchet.components.redaction import error_line
from ratchet.components.reporting.night_report import NightReport, report_document
from ratchet.components.reporting.progress_display import current_display
from ratchet.components.reporting.report_rendering import report_html, report_markdown
from ratchet.components.tracking.run_writer import TrackedRun

T = TypeVar("T")
HTML_FILE, MARKDOWN_FILE = "report.html", "report.md"
REPORT_ARTIFACT = "night-report"
"""Key of the report in the Prefect run."""
_log = logging.getLogger(__name__)


class NightFailure(msgspec.Struct, frozen=True):
    """When a night failed (ISO 8601, UTC), and the error in one line without secrets."""

    at: str
    line: str


class RenderedReport(NamedTuple):
    """A report as HTML and as Markdown."""

    html: bytes
    markdown: str


@contextmanager
def report_at_end(night: Night, run: TrackedRun, played: NightEpisodes) -> Iterator[None]:
    """Write the night's report when the block ends. Only errors of the block are raised."""
    failure = night.folder / FAILURE_FILE
    failure.unlink(missing_ok=True)
    try:
        yield
    except Exception as error:  # not an interrupt: that ends the process at once, and the night is resumed
        _save_failure(failure, error)
        _write_and_log(night, run, played, failed=True)
        raise
    _write_and_log(night, run, played, failed=False)


def night_report(night: Night, *, ended: str | None = None, played: NightEpisodes | None = None) -> RenderedReport:
    """Render the report of a night. `ended`: time of its last step. `played`: its evaluation, if
    it was read already.
    """
    failure = _read_failure(night)
    if failure is not None:
        return render_report(gather_report(night, failure.line, failure.at, played))
    return render_report(gather_report(night, ended=ended or night.ended, played=played))


def render_report(report: NightReport) -> RenderedReport:
    """Render a report as HTML and Markdown."""
    document = report_document(report)
    return RenderedReport(report_html(document), report_markdown(document))


def write_report(night: Night, report: RenderedReport) -> Path:
    """Write both files beside the night's state, and return the path of the page."""
    night.folder.mkdir(parents=True, exist_ok=True)
    write_atomically(night.folder / MARKDOWN_FILE, report.markdown.encode())
    write_atomically(night.folder / HTML_FILE, report.html)
    return night.folder / HTML_FILE


def save_report(report: RenderedReport, out: Path) -> Path:
    """Write the report to `out` as HTML or Markdown, by the suffix `.html` or `.md`; return `out`. Raises
    ConfigurationError for another suffix.
    """
    if out.suffix not in (".html", ".md"):
        raise ConfigurationError(f"--out {out}: name a file that ends in .html or .md")
    with open_atomically(out) as file:
        file.write(report.html if out.suffix == ".html" else report.markdown.encode())
    return out


def latest_night() -> Night:
    """Return the night that began last. Raises ConfigurationError where there is none."""
    nights = list_nights()
    if not nights:
        raise ConfigurationError("no nights yet: `ratchet night` starts one")
    return nights[-1]


def _write_and_log(night: Night, run: TrackedRun, played: NightEpisodes, *, failed: bool) -> None:
    try:
        with current_display().step("report") as step:
            report = night_report(night, ended=None if failed else _now(), played=played)
            path = write_report(night, report)
            run.log_artifact(f"report/{HTML_FILE}", report.html)
            run.log_artifact(f"report/{MARKDOWN_FILE}", report.markdown)
            show_report(night.id, report.markdown)
            step.update(remark=str(path))
    except Exception:  # a missing report must not fail a finished night
        _log.exception("the report of night %s could not be written; try `ratchet report %s`", night.id, night.id)


def show_report(night: str, markdown: str) -> None:
    """Add the report's Markdown to the Prefect run. Does nothing without a Prefect server."""
    from prefect.artifacts import create_markdown_artifact

    with contextlib.suppress(Exception):  # a missing page must not fail a night
        create_markdown_artifact(markdown, key=REPORT_ARTIFACT, description=f"Report of night {night}")


def end_flow_run(work: Callable[[], T], message: Callable[[T], str]) -> Any:
    """Run `work`, and return the state in which its Prefect flow run ends: Prefect hands the flow's caller the result, or
    raises the error.

    A state's message is `message` of the result, or the expected error in one line with how to go on. Other errors are
    raised: Prefect's Logs tab then shows their traceback. So is every error of a flow with retries, which Prefect repeats
    only after an exception.
    """
    from prefect.context import FlowRunContext
    from prefect.states import Completed, Failed

    try:
        result = work()
    except RatchetError as error:
        context = FlowRunContext.get()
        if context is not None and context.flow is not None and context.flow.retries:
            raise
        advice = "finished work is kept, and the same command continues from there"
        return Failed(message=f"{error_line(error)}; {advice}", data=error)
    return Completed(message=message(result), data=result)


def _save_failure(path: Path, error: Exception) -> None:
    failure = NightFailure(_now(), error_line(error))
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, msgspec.json.encode(failure))
    except OSError as full:
        _log.warning("the error of the night could not be saved in %s: %s", path, full)


def _read_failure(night: Night) -> NightFailure | None:
    try:
        return msgspec.json.decode((night.folder / FAILURE_FILE).read_bytes(), type=NightFailure)
    except (OSError, msgspec.DecodeError):
        return None


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
