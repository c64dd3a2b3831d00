"""Pages of a build's verdicts on the data: one page of Ratchet's own, and the Data Docs of Great Expectations.

Both are written from the reports that the stages keep, into `.ratchet/quality`: no output or hash of the build changes.
"""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from ratchet.components.core.configuration import read_section
from ratchet.components.core.files import write_atomically
from ratchet.components.core.home import home_folder
from ratchet.components.datasets.stage_params import GateParams, QualityParams
from ratchet.components.datasets.validation.data_docs import QualityRun, write_data_docs
from ratchet.components.datasets.validation.quality_report import html_page
from ratchet.components.datasets.versioning.dvc_lock import LOCK, read_lock
from ratchet.components.datasets.versioning.run_build import local_folder
from ratchet.components.nights.report_contents import QUALITY_REPORTS, read_quality_reports

QUALITY_FOLDER = "quality"
"""Folder of the pages in the home."""


def write_quality_page(*, failed: bool = False) -> Path | None:
    """Write `quality.html` of the last build, or of the last failed one; return its path, None where no stage of it has
    left a report.
    """
    reports = read_quality_reports(failed=failed)
    if not reports:
        return None
    page = home_folder(QUALITY_FOLDER) / "quality.html"
    write_atomically(page, html_page(reports).encode())
    return page


def build_docs() -> Path:
    """Build the Data Docs of the last build and of the last failed one; return their index page. Raises DataError where
    there is neither.
    """
    runs = [run for failed in (True, False) if (run := _run(failed)) is not None]
    return write_data_docs(sorted(runs, key=lambda run: run.ended), home_folder(QUALITY_FOLDER))


def _run(failed: bool) -> QualityRun | None:
    """Return the verdicts of a build with the parameters that its stages ran with: the lock's, or for a failed build
    those of `params.yaml`.
    """
    reports = read_quality_reports(failed=failed)
    if not reports:
        return None
    folder = local_folder(Path(), "build", "failed") if failed else Path("data")
    written = [(folder / QUALITY_REPORTS[stage]).stat().st_mtime for stage in reports]
    stages: dict[str, Any] = {} if failed else read_lock(LOCK).get("stages") or {}

    def section(stage: str, name: str) -> dict[str, Any] | None:
        values: dict[str, Any] | None = stages.get(stage, {}).get("params", {}).get("params.yaml", {}).get(name)
        return values

    quality, gate = section("validate", "quality"), section("gate", "gate")
    params = Path("params.yaml")
    return QualityRun(
        "failed build" if failed else "last build",
        datetime.fromtimestamp(max(written), UTC),
        reports,
        read_section(params, "quality", QualityParams) if quality is None else QualityParams.load(quality),
        read_section(params, "gate", GateParams) if gate is None else GateParams.load(gate),
    )
