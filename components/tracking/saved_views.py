"""Saved views: named columns, filter and order of MLflow's tables, which its pages list under *Views*.

MLflow keeps a view as a tag of the experiment. The tags' names and JSON are those that its pages write themselves
(MLflow 3.17); a version that does not know them ignores them.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

RUNS_VIEW, TRACES_VIEW = "mlflow.sharedViewState.", "mlflow.tracesV4ViewState."
"""Prefixes of the tags' names; what follows is the view's id in links."""
NOTE_TAG, KIND_TAG = "mlflow.note.content", "mlflow.experimentKind"
RUNS_KIND = "custom_model_development"
"""Kind of an experiment that opens on its table of runs. MLflow would infer another kind from traces, whose pages call
every run an evaluation.
"""
_CREATED = 1_700_000_000_000
"""A constant time: the same view written again is the same tag."""


def column(kind: str, name: str) -> str:
    """Return the name of a column. `kind`: metrics, params, tags or attributes."""
    return f"{kind}.`{name}`"


def runs_view(
    view: str,
    name: str,
    columns: Sequence[str],
    *,
    order_by: str,
    where: str = "",
    widths: Mapping[str, int] | None = None,
) -> dict[str, str]:
    """Return the tag of a view of the table of runs, largest first. `view`: id of the view; `columns` and `order_by`:
    from `column`; `where`: a filter of MLflow's search; `widths`: pixels by column.
    """
    state = {
        "searchFilter": where,
        "orderByKey": order_by,
        "orderByAsc": False,
        "startTime": "ALL",
        "lifecycleFilter": "Active",
        "datasetsFilter": [],
        "modelVersionFilter": "All Runs",
        "selectedColumns": list(columns),
        "columnOrder": list(columns),
        "columnWidths": dict(widths or {}),
        "runsHiddenMode": "FIRST_10_RUNS",
    }
    return _view(RUNS_VIEW, view, name, state)


TRACE_COLUMNS = "trace_name,input,output,duration,tokens,run_name,start_time,assessment:success,assessment:total"


def traces_view(view: str, name: str, tags: Mapping[str, str]) -> dict[str, str]:
    """Return the tag of a view of the table of traces that have all these `tags`. `view`: id of the view."""
    filters = [{"field": "tag", "operator": "=", "value": value, "key": key} for key, value in tags.items()]
    assessments = {"success": True, "total": True, "outcome": False, "process": False, "efficiency": False}
    state = {
        "single": {"startTimeLabel": "ALL", "cols": TRACE_COLUMNS},
        "multi": {},
        "filters": filters,
        "assessmentColumns": assessments,
    }
    return _view(TRACES_VIEW, view, name, state)


def _view(prefix: str, view: str, name: str, state: Mapping[str, Any]) -> dict[str, str]:
    content = {"name": name, "createdAt": _CREATED, "updatedAt": _CREATED, "state": json.dumps(state)}
    return {f"{prefix}{view}": json.dumps(content)}
