"""The declared suite, run by Great Expectations: each expectation catches what it is there for."""

from pathlib import Path
from typing import Any

import pytest

from components.quality.facts import FIELDS
from components.quality.judge import judge
from components.quality.params import QualityParams
from components.quality.tables import Columns
from components.quality.verdict import Finding, judge_findings, report

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("great_expectations")]

SOUND: dict[str, Any] = {
    "schema_version": 1, "role": "train", "hash_matches": True, "turns": 3, "steps": 3, "parse_errors": 0, "attempt": 0,
    "calls_answered": True, "longest_observation": 100, "success": True, "outcome_known": True, "truncated": False,
    "outcome_consistent": True, "infrastructure_failure": False, "played": True, "total": 0.9, "outcome": 1.0,
    "process": 0.8, "efficiency": None, "scored": True, "scores_in_range": True, "failure_unscored": True,
    "group_size": 4, "source": "on_policy", "secrets_remaining": 0, "caught": False,
}  # fmt: skip


def table(rows: int = 10, **broken: Any) -> Columns:
    """Sound rows, of which the first has the values given."""
    made = [{name: f"{name} {i}" for name in FIELDS} | SOUND | {"episode_id": f"ep-{i:024x}"} for i in range(rows)]
    made[0] |= broken
    return {name: [row[name] for row in made] for name in FIELDS}


def failures(columns: Columns, **params: Any) -> dict[str, Finding]:
    return {each.name: each for each in judge(columns, QualityParams(**params)) if not each.success}


def test_sound_rows_pass_every_expectation() -> None:
    findings = judge(table(), QualityParams())
    assert [each.name for each in findings if not each.success] == []
    assert len(findings) >= 12
    assert {each.severity for each in findings} == {"critical", "warning", "info"}


@pytest.mark.parametrize(
    ("broken", "name", "severity"),
    [
        ({"schema_version": 2}, "schema_version_known", "critical"),
        ({"episode_id": "ep-xyz"}, "episode_id_formed", "critical"),
        ({"task_id": None}, "task_id_present", "critical"),
        ({"hash_matches": False}, "content_hash_matches", "critical"),
        ({"role": "holdout"}, "role_known", "critical"),
        ({"role": "promote"}, "only_train_tasks", "critical"),
        ({"role": "audit"}, "only_train_tasks", "critical"),
        ({"role": "reserve"}, "only_train_tasks", "critical"),
        ({"total": 1.2}, "total_in_range", "critical"),
        ({"scores_in_range": False}, "scores_in_range", "critical"),
        ({"failure_unscored": False}, "failures_unscored", "critical"),
        ({"scored": False, "total": None}, "episode_scored", "warning"),
        ({"played": False}, "turns_present", "warning"),
        ({"calls_answered": False}, "calls_answered", "warning"),
        ({"outcome_known": False}, "outcome_known", "warning"),
        ({"outcome_consistent": False}, "outcome_consistent", "warning"),
        ({"turns": 101}, "turns_in_range", "warning"),
        ({"steps": 201}, "steps_in_range", "warning"),
        ({"longest_observation": 300_000}, "observation_length", "warning"),
        ({"secrets_remaining": 2}, "no_secret_remains", "warning"),
        ({"caught": True}, "no_hack_found", "info"),
        ({"group_size": 1}, "group_size", "info"),
    ],
)
def test_a_fault_is_found_with_its_severity_and_its_episode(broken: dict[str, Any], name: str, severity: str) -> None:
    columns = table(**broken)
    found = failures(columns)[name]
    assert (found.severity, found.failing, found.episodes) == (severity, 1, (columns["episode_id"][0],))


def test_an_identity_that_occurs_twice_is_critical() -> None:
    columns = table()
    columns["episode_id"][1] = columns["episode_id"][0]
    assert failures(columns)["episode_id_unique"].severity == "critical"


def test_rates_are_judged_over_the_whole_table() -> None:
    columns = table()
    columns["infrastructure_failure"][:2] = [True, True]
    assert failures(columns, max_infrastructure_rate=0.1)["infrastructure_failure_rate"].observed == pytest.approx(0.2)
    assert "infrastructure_failure_rate" not in failures(columns, max_infrastructure_rate=0.2)


def test_an_empty_table_is_critical() -> None:
    assert failures({name: [] for name in FIELDS})["episodes_present"].severity == "critical"


def test_every_warning_is_about_single_rows() -> None:
    findings = judge(table(), QualityParams())
    assert {each.type for each in findings if each.severity == "warning"} <= {
        "expect_column_values_to_be_in_set",
        "expect_column_values_to_be_between",
    }


def test_all_rows_failing_is_one_stop_with_few_names() -> None:
    columns = table(rows=500)
    columns["turns"] = [1000] * 500
    findings = judge(columns, QualityParams())
    (found,) = (each for each in findings if not each.success)
    assert found.failing == 500
    assert len(found.episodes) <= 20
    verdict = judge_findings(findings, 500, 0.2)
    assert verdict.stop is not None and "500 of 500" in verdict.stop


def test_the_report_is_the_same_twice(tmp_path: Path) -> None:
    reports = [report(judge_findings(judge(table(turns=1000), QualityParams()), 10, 0.2)) for _ in range(2)]
    assert reports[0] == reports[1]
