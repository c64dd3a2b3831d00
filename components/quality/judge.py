"""Running the suite with Great Expectations: in memory, silent, without analytics."""

import os
from typing import Any

from .params import QualityParams
from .suite import suite
from .tables import Columns
from .verdict import Finding

NAMED = 20
"""How many failing rows are named where nearly all fail."""


def judge(columns: Columns, params: QualityParams) -> list[Finding]:
    """The findings of every expectation, in the suite's order.

    The rows are judged in summary first; the failing ones are listed only where they are few enough to be set aside
    (listing every row of a large table takes seconds).
    """
    os.environ["GX_ANALYTICS_ENABLED"] = "false"
    import great_expectations as gx
    import pandas as pd
    from great_expectations.data_context.types.base import ProgressBarsConfig

    expectations = suite(params)
    context = gx.get_context(mode="ephemeral")
    context.variables.progress_bars = ProgressBarsConfig(globally=False)
    frame = pd.DataFrame(columns)
    asset = context.data_sources.add_pandas("rollouts").add_dataframe_asset("episodes")
    batch = asset.add_batch_definition_whole_dataframe("all").get_batch({"dataframe": frame})
    results = batch.validate(expectations, result_format=_format("SUMMARY")).results
    limit = params.max_quarantined * len(frame)
    findings = []
    for expectation, result in zip(expectations.expectations, results, strict=True):
        short = not result.success and 0 < result.result.get("unexpected_count", 0) <= limit
        whole = batch.validate(expectation, result_format=_format("COMPLETE")) if short else result
        findings.append(_finding(expectation, whole))
    return findings


def _format(detail: str) -> dict[str, Any]:
    return {
        "result_format": detail,
        "unexpected_index_column_names": ["episode_id"],
        "partial_unexpected_count": NAMED,
        "include_unexpected_rows": False,
    }


def _finding(expectation: Any, result: Any) -> Finding:
    found = result.result
    rows = found.get("unexpected_index_list") or found.get("partial_unexpected_index_list") or []
    severity = expectation.severity
    reason = expectation.meta["reason"]
    if result.exception_info.get("raised_exception"):
        severity, reason = "critical", f"it could not be judged ({result.exception_info['exception_message']})"
    return Finding(
        name=expectation.meta["name"],
        type=expectation.expectation_type,
        column=getattr(expectation, "column", None),
        severity=getattr(severity, "value", str(severity)),
        reason=reason,
        success=bool(result.success),
        failing=int(found.get("unexpected_count") or 0),
        observed=_plain(found.get("observed_value")),
        episodes=tuple(sorted({str(row["episode_id"]) for row in rows})),
    )


def _plain(value: Any) -> Any:
    """A numpy number as a Python one."""
    return value.item() if hasattr(value, "item") else value
