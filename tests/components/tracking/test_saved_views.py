"""Saved views have the form in which MLflow's pages write theirs."""

import json

from ratchet.components.tracking.saved_views import column, runs_view, traces_view


def state(tags):
    """The name and the state of the only view."""
    ((_, content),) = tags.items()
    envelope = json.loads(content)
    assert isinstance(envelope["createdAt"], int)
    return envelope["name"], json.loads(envelope["state"])


def test_a_view_of_runs_has_its_columns_in_order_and_the_largest_value_first():
    columns = [column("tags", "success"), column("metrics", "eval/lead")]
    tags = runs_view("board", "Leaderboard", columns, order_by=columns[1], widths={columns[0]: 160})
    name, found = state(tags)
    assert list(tags) == ["mlflow.sharedViewState.board"] and name == "Leaderboard"
    assert found["selectedColumns"] == ["tags.`success`", "metrics.`eval/lead`"]
    assert (found["orderByKey"], found["orderByAsc"]) == ("metrics.`eval/lead`", False)
    assert found["columnWidths"] == {"tags.`success`": 160}


def test_a_view_of_traces_has_all_its_tags_as_filters():
    tags = traces_view("lost", "Lost tasks", {"ratchet.flip": "lost"})
    name, found = state(tags)
    assert list(tags) == ["mlflow.tracesV4ViewState.lost"] and name == "Lost tasks"
    assert found["filters"] == [{"field": "tag", "operator": "=", "value": "lost", "key": "ratchet.flip"}]
    assert "assessment:success" in found["single"]["cols"].split(",")


def test_the_same_view_is_the_same_text():
    assert traces_view("a", "A", {"x": "y"}) == traces_view("a", "A", {"x": "y"})
