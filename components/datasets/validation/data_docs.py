"""Write the kept results of a build as a project of Great Expectations with its Data Docs. Nothing is validated again.

The project holds what users of Great Expectations expect: a suite, a validation definition and a checkpoint for each table,
and the validation results of the builds. It is made from the stages' reports, outside of DVC's stages.
"""

import html
import logging
import os
import shutil
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from ratchet.components.core import DataError

from ..deduplication.split_assignment import SPLITS
from ..stage_params import GateParams, QualityParams
from .run_expectations import declared_suite
from .validate import rollout_suite

if TYPE_CHECKING:
    import great_expectations as gx
    from great_expectations.core import ExpectationSuiteValidationResult

TRAIN_ROWS = "_train"
"""Suffix of the suites that count the training rows of a dataset."""
VALUE_EXPECTATIONS = "expect_column_values_"
"""Prefix of the types of expectations about each value of a column."""


class QualityRun(NamedTuple):
    """The verdicts of one build: its name and end, its reports by stage (see `report_values`), and its parameters."""

    name: str
    ended: datetime
    reports: Mapping[str, Mapping[str, Any]]
    quality: QualityParams
    gate: GateParams


def write_data_docs(runs: Sequence[QualityRun], folder: Path) -> Path:
    """Write the project `folder/gx` anew, newest run last, and return the index page of its Data Docs. Raises DataError
    without a result.
    """
    results = [(run, suite, report) for run in runs for report in run.reports.values() for suite in report["results"]]
    if not results:
        raise DataError("no build has left results of expectations here; run `ratchet build` or `ratchet night` first")
    os.environ["GX_ANALYTICS_ENABLED"] = "false"
    import great_expectations as gx

    logging.getLogger(gx.__name__).setLevel(logging.ERROR)
    shutil.rmtree(folder / "gx", ignore_errors=True)
    folder.mkdir(parents=True, exist_ok=True)
    context = gx.get_context(mode="file", project_root_dir=folder)
    # GX's pages would otherwise invite to tutorials that are loaded from the network.
    for site, settings in list(context.variables.data_docs_sites.items()):
        context.update_data_docs_site(site, {**settings, "show_how_to_buttons": False})
    source = context.data_sources.add_pandas("tables")
    for run, name, report in results:
        suite = context.suites.add_or_update(build_suite(name, run.quality, run.gate))
        if name not in {asset.name for asset in source.assets}:
            batch = source.add_dataframe_asset(name).add_batch_definition_whole_dataframe("whole table")
            definition = context.validation_definitions.add(gx.ValidationDefinition(name=name, data=batch, suite=suite))
            update = gx.checkpoint.UpdateDataDocsAction(name="update Data Docs")
            context.checkpoints.add(gx.Checkpoint(name=name, validation_definitions=[definition], actions=[update]))
        _store_result(context, run, suite, report)
    context.build_data_docs()
    return next((folder / "gx").glob("uncommitted/data_docs/*/index.html"))


def build_suite(name: str, quality: QualityParams, gate: GateParams) -> "gx.ExpectationSuite":
    """Return the suite of a name in the reports, as the stages run it with these parameters."""
    if name == "rollouts":
        return rollout_suite(quality)
    if name.endswith(TRAIN_ROWS):
        least = getattr(gate, f"min_{name}")
        return declared_suite("train_rows", name, dataset=name.removesuffix(TRAIN_ROWS), min_rows=least)
    parameters = quality.model_dump() if name == "drift" else {"max_row_bytes": gate.max_row_bytes, "splits": SPLITS}
    return declared_suite(name, **parameters)


def _store_result(context: Any, run: QualityRun, suite: "gx.ExpectationSuite", report: Mapping[str, Any]) -> None:
    from great_expectations.core import RunIdentifier
    from great_expectations.data_context.types import resource_identifiers as ids

    run_id = RunIdentifier(run_name=run.name, run_time=run.ended)
    key = ids.ValidationResultIdentifier(ids.ExpectationSuiteIdentifier(suite.name), run_id, f"tables-{suite.name}")
    context.validation_results_store.set(key, _suite_result(suite, report, run_id))


def _suite_result(
    suite: "gx.ExpectationSuite", report: Mapping[str, Any], run_id: Any
) -> "ExpectationSuiteValidationResult":
    """Return the results of a suite as Great Expectations keeps them. An expectation that the suite no longer has keeps its type
    and column.
    """
    from great_expectations import __version__
    from great_expectations.core import ExpectationSuiteValidationResult, ExpectationValidationResult
    from great_expectations.expectations.expectation_configuration import ExpectationConfiguration
    from great_expectations.validator.validation_statistics import calc_validation_statistics

    known = {expectation.meta["name"]: expectation.configuration for expectation in suite.expectations}
    entries, rows = report["results"][suite.name], _row_count(suite.name, report)
    results = [
        ExpectationValidationResult(
            success=entry["success"],
            expectation_config=known.get(name)
            or ExpectationConfiguration(
                type=entry["type"], kwargs={"column": entry["column"]} if entry["column"] else {}, meta={"name": name}
            ),
            result=_result_details(entry, rows),
        )
        for name, entry in entries.items()
    ]
    statistics = calc_validation_statistics(results)._asdict()
    meta = {
        "run_id": run_id,
        "great_expectations_version": __version__,
        "batch_spec": {"data_asset_name": suite.name},
        "validation_time": run_id.run_time.isoformat(),
    }
    return ExpectationSuiteValidationResult(
        success=statistics.pop("success"), results=results, suite_name=suite.name, meta=meta, statistics=statistics
    )


def _row_count(suite: str, report: Mapping[str, Any]) -> int | None:
    """Return the number of rows that a suite has checked; None where the report does not say it."""
    count = report.get("episodes") if suite == "rollouts" else report.get("datasets", {}).get(suite, {}).get("rows")
    return count or None


def _result_details(entry: Mapping[str, Any], rows: int | None) -> dict[str, Any]:
    """Return the details of one result; a failed one lists the rows and reasons that the report lists."""
    details: dict[str, Any] = {} if entry["observed"] is None else {"observed_value": entry["observed"]}
    if entry["success"] and entry["type"].startswith(VALUE_EXPECTATIONS):
        details |= {"unexpected_count": 0, "unexpected_percent": 0.0} | ({"element_count": rows} if rows else {})
    if entry["success"] or not entry["failing"]:
        return details
    named = [_page_text(reason if row in reason else f"{row}: {reason}") for row, reason in entry["rows"]]
    if rows is None:
        # Without the number of rows GX's page cannot show a share, and its table of rows needs one.
        count = "1 row fails" if entry["failing"] == 1 else f"{entry['failing']:,} rows fail"
        return {"observed_value": f"{count}: {'; '.join(named)}"}
    share = 100 * entry["failing"] / rows
    counts = {"element_count": rows, "unexpected_count": entry["failing"], "unexpected_percent": share}
    return details | counts | {"partial_unexpected_list": named}


def _page_text(text: str) -> str:
    """Escape a text of a log: GX's templates do not escape HTML, and read `$name` as a parameter."""
    return html.escape(text).replace("$", "&#36;")
