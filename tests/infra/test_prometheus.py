"""The alert rules and the dashboard: what promtool says of them, and that they use only metrics that exist."""

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from ratchet.components.operations.home_metrics import METRICS

ROOT = Path(__file__).parents[2]
RULES, DASHBOARD = ROOT / "infra/prometheus/alerts.yml", ROOT / "infra/grafana/ratchet.json"
ALERTS = {rule["alert"]: rule for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]}
PANELS = json.loads(DASHBOARD.read_text())["panels"]
DCGM = {"DCGM_FI_DEV_GPU_UTIL", "DCGM_FI_DEV_FB_USED", "DCGM_FI_DEV_XID_ERRORS"}
"""Metrics of NVIDIA's exporter, by its default list of counters."""
needs_promtool = pytest.mark.skipif(
    shutil.which("promtool") is None, reason="promtool is not installed; apt-get install prometheus"
)


@needs_promtool
@pytest.mark.parametrize(
    "arguments",
    [
        ("check", "rules", "infra/prometheus/alerts.yml"),
        ("check", "config", "infra/prometheus/prometheus.yml"),
        ("test", "rules", "tests/infra/alerts_test.yml"),
    ],
    ids=" ".join,
)
def test_promtool_accepts(arguments):
    checked = subprocess.run(["promtool", *arguments], cwd=ROOT, capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_every_alert_fires_in_one_unit_test_and_is_silent_in_another():
    cases = [
        case
        for test in yaml.safe_load((ROOT / "tests/infra/alerts_test.yml").read_text())["tests"]
        for case in test["alert_rule_test"]
    ]
    for expected in (True, False):
        assert {case["alertname"] for case in cases if bool(case.get("exp_alerts")) is expected} == set(ALERTS)


@pytest.mark.parametrize("name", ALERTS)
def test_every_alert_says_what_happened_where_to_read_on_and_how_bad_it_is(name):
    notes = ALERTS[name]["annotations"]
    assert notes["summary"] and notes["runbook_url"].endswith(f"runbook.html#{name.lower()}")
    assert ALERTS[name]["labels"]["severity"] in ("info", "warning", "critical")


def queries():
    yield from (rule["expr"] for rule in ALERTS.values())
    yield from (target["expr"] for panel in PANELS for target in panel.get("targets", ()))


def test_alerts_and_dashboard_use_metrics_and_labels_that_exist():
    used = set()
    for query in queries():
        assert set(re.findall(r"\b[A-Z]+_[A-Z_]{3,}\b", query)) <= DCGM
        for name, labels in re.findall(r"\bratchet_([a-z_]+)(?:\{([^}]*)\})?", query):
            used.add(name)
            assert set(re.findall(r"(\w+)\s*[=!]", labels)) <= {"instance", *METRICS[name][1]}, query
    assert set(METRICS) - used == {"night_begun_timestamp_seconds", "lead_p_value"}


def test_panels_do_not_overlap_and_have_titles():
    cells = set()
    for panel in PANELS:
        place = panel["gridPos"]
        own = {(place["x"] + x, place["y"] + y) for x in range(place["w"]) for y in range(place["h"])}
        assert panel["title"] and not own & cells and max(x for x, _ in own) < 24
        cells |= own
    assert len({panel["id"] for panel in PANELS}) == len(PANELS)
