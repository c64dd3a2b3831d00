"""The declared suites, run by Great Expectations: each expectation catches what it is there for."""

from typing import Any

import pytest

from ratchet.components.datasets.parquet_tables import ColumnLists
from ratchet.components.datasets.stage_params import QualityParams
from ratchet.components.datasets.validation.episode_features import EPISODE_COLUMNS
from ratchet.components.datasets.validation.quality_report import ExpectationResult, decide
from ratchet.components.datasets.validation.run_expectations import declared_suite, run_expectations
from ratchet.components.datasets.validation.validate import rollout_suite

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("great_expectations")]

SOUND: dict[str, Any] = {
    "domain": "coding",
    "schema_version": 1, "role": "train", "hash_matches": True, "turns": 3, "steps": 3, "parse_errors": 0, "attempt": 0,
    "calls_answered": True, "longest_observation": 100, "success": True, "outcome_known": True, "truncated": False,
    "outcome_consistent": True, "infrastructure_failure": False, "played": True, "total": 0.9, "outcome": 1.0,
    "process": 0.8, "efficiency": None, "scored": True, "failure_unscored": True, "judge": None, "learned": None,
    "group_size": 4, "source": "on_policy", "secrets_remaining": 0, "caught": False, "identity_fault": None,
    "fault": None, "chat_fault": None, "days_ahead": 0, "bytes": 4000, "tokens": 900, "trainable": 200, "trains": True,
    "numbers_sane": True, "prompted": True, "alternates": True, "script": "latin", "script_share": 1.0,
    "repeated": False, "script_usual": True, "collected_on": "2026-11-20",
}  # fmt: skip


def table(rows: int = 10, **broken: Any) -> ColumnLists:
    """Sound rows, of which the first has the values given."""
    made = [
        {name: f"{name} {i}" for name in EPISODE_COLUMNS} | SOUND | {"episode_id": f"ep-{i:024x}"} for i in range(rows)
    ]
    made[0] |= broken
    return {name: [row[name] for row in made] for name in EPISODE_COLUMNS}


def failures(columns: ColumnLists, **params: Any) -> dict[str, ExpectationResult]:
    return {
        each.name: each
        for each in run_expectations(columns, rollout_suite(QualityParams(**params)))
        if not each.success
    }


def test_sound_rows_pass_every_expectation() -> None:
    findings = run_expectations(table(), rollout_suite(QualityParams(scripts=("latin",))))
    assert [each.name for each in findings if not each.success] == []
    assert len({each.name for each in findings}) == len(findings) >= 40
    assert {each.severity for each in findings} == {"critical", "warning", "info"}
    assert {each.type for each in findings if each.severity == "warning"} <= {
        "expect_column_values_to_be_in_set",
        "expect_column_values_to_be_between",
        "expect_column_values_to_be_null",
    }  # a quarantine needs to know which rows


FAULTS: list[tuple[dict[str, Any], str, str]] = [
    ({"schema_version": 2}, "schema_version_known", "critical"),
    ({"episode_id": "ep-xyz"}, "episode_id_formed", "critical"),
    ({"task_id": None}, "task_id_present", "critical"),
    ({"policy_version": None}, "policy_version_present", "critical"),
    ({"hash_matches": False}, "content_hash_matches", "critical"),
    ({"identity_fault": "group_id is 'x'"}, "identity_matches", "critical"),
    ({"role": "holdout"}, "role_known", "critical"),
    ({"role": "promote"}, "only_train_tasks", "critical"),
    ({"role": "audit"}, "only_train_tasks", "critical"),
    ({"role": "reserve"}, "only_train_tasks", "critical"),
    ({"total": 1.2}, "total_in_range", "critical"),
    ({"failure_unscored": False}, "failures_unscored", "critical"),
    ({"scored": False, "total": None}, "episode_scored", "warning"),
    ({"fault": "turns[1].index is 7"}, "record_sound", "warning"),
    ({"played": False}, "turns_present", "warning"),
    ({"trains": False}, "trainable_part", "warning"),
    ({"calls_answered": False}, "calls_answered", "warning"),
    ({"outcome_known": False}, "outcome_known", "warning"),
    ({"outcome_consistent": False}, "outcome_consistent", "warning"),
    ({"numbers_sane": False}, "numbers_sane", "warning"),
    ({"days_ahead": 8}, "not_from_the_future", "warning"),
    ({"turns": 101}, "turns_in_range", "warning"),
    ({"steps": 201}, "steps_in_range", "warning"),
    ({"longest_observation": 300_000}, "observation_length", "warning"),
    ({"bytes": 100_000_000, "secrets_remaining": None}, "record_size", "warning"),
    ({"secrets_remaining": 2}, "no_secret_remains", "warning"),
    ({"prompted": False}, "prompt_present", "warning"),
    ({"chat_fault": "message 2 has the unknown role 'robot'"}, "chat_sound", "warning"),
    ({"script_share": 0.5}, "one_script", "warning"),
    ({"tokens": 40_000}, "context_length", "warning"),
    ({"caught": True}, "no_hack_found", "info"),
    ({"alternates": False}, "roles_alternate", "info"),
    ({"script_usual": False}, "script_usual", "info"),
    ({"group_size": 1}, "group_size", "info"),
]


@pytest.fixture(scope="module")
def faulty() -> tuple[ColumnLists, dict[str, ExpectationResult]]:
    """A table whose first rows have a fault each, and what is found in it; to judge a table for each takes seconds."""
    columns = table(len(FAULTS) + 10)
    for row, (broken, _, _) in enumerate(FAULTS):
        for name, value in broken.items():
            columns[name][row] = value
    return columns, failures(columns)


@pytest.mark.parametrize("row", range(len(FAULTS)), ids=[name for _, name, _ in FAULTS])
def test_a_fault_is_found_with_its_severity_and_its_episode(
    faulty: tuple[ColumnLists, dict[str, ExpectationResult]], row: int
) -> None:
    (columns, found), (_, name, severity) = faulty, FAULTS[row]
    assert found[name].severity == severity and columns["episode_id"][row] in found[name].rows
    assert not set(columns["episode_id"][len(FAULTS) :]) & set(found[name].rows), "the sound rows"
    with_it = sum(each == name for _, each, _ in FAULTS)
    assert with_it <= found[name].failing == len(found[name].rows) <= with_it + 1


def test_what_is_wrong_with_a_row_is_told() -> None:
    found = failures(table(chat_fault="message 2 has the unknown role 'robot'", turns=1_000, played=False))
    assert found["chat_sound"].values == ("message 2 has the unknown role 'robot'",)
    assert found["turns_in_range"].values == ("1000",)
    assert found["turns_present"].values == ()  # the reason says it


def test_an_identity_that_occurs_twice_is_critical() -> None:
    columns = table()
    columns["episode_id"][1] = columns["episode_id"][0]
    found = failures(columns)["episode_id_unique"]
    assert (found.severity, found.rows) == ("critical", (columns["episode_id"][0],))


def test_rates_are_judged_over_the_whole_table() -> None:
    columns = table()
    columns["infrastructure_failure"][:2] = [True, True]
    columns["truncated"][:8], columns["repeated"][:10] = [True] * 8, [True] * 10
    found = failures(columns, max_infrastructure_rate=0.1)
    assert found["infrastructure_failure_rate"].observed == pytest.approx(0.2)
    assert {"truncation_rate", "repeat_rate"} <= found.keys()
    assert "infrastructure_failure_rate" not in failures(columns, max_infrastructure_rate=0.2)


def test_scripts_and_a_context_are_judged_where_they_are_asked_for() -> None:
    assert failures(table(script="han"), scripts=["latin"])["script_allowed"].values == ("han",)
    assert not {"script_allowed", "context_length"} & failures(table(script="han", tokens=10**9), context=None).keys()


def test_an_empty_table_is_critical() -> None:
    assert failures({name: [] for name in EPISODE_COLUMNS})["episodes_present"].severity == "critical"


def test_all_rows_failing_is_one_stop_with_few_names() -> None:
    columns = table(rows=500)
    columns["turns"] = [1000] * 500
    findings = run_expectations(columns, rollout_suite(QualityParams()))
    (found,) = (each for each in findings if not each.success)
    assert found.failing == 500
    assert len(found.rows) <= 20
    verdict = decide(findings, 500, 0.2)
    assert verdict.stop is not None and "500 of 500" in verdict.stop


def test_what_is_found_is_the_same_twice(faulty: tuple[ColumnLists, dict[str, ExpectationResult]]) -> None:
    columns, found = faulty
    assert failures(columns) == found


SCORES: dict[str, Any] = dict.fromkeys(
    ("known", "once", "finite", "in_range", "one_version", "placed", "steps_match", "earns_nothing"), True
)


def test_what_is_wrong_with_scores_is_critical_and_names_the_episode() -> None:
    columns = {"episode_id": ["sound", *SCORES]} | {name: [True, *(name != each for each in SCORES)] for name in SCORES}
    found = {each.column: each for each in run_expectations(columns, declared_suite("scores"))}
    assert found.keys() == SCORES.keys()
    for name, each in found.items():
        assert (each.success, each.suite, each.severity, each.rows) == (False, "scores", "critical", (name,))


def test_a_figure_that_moved_is_told_and_one_that_left_its_distribution_stops() -> None:
    columns = {
        "figure": ["a", "b", "c", "a length"],
        "psi": [0.1, 0.4, 9.0, 9.0],
        "ks": [0.1, 0.2, 0.9, 1.0],
        "reward_ks": [0.1, 0.2, 0.9, None],
        "rescored": [None, "scored by b, the baseline by a", None, None],
    }
    found = {
        each.name: each
        for each in run_expectations(columns, declared_suite("drift", **QualityParams().model_dump()), key="figure")
    }
    assert (found["population_stable"].severity, found["population_stable"].rows) == ("info", ("a length", "b", "c"))
    assert (found["distribution_kept"].severity, found["distribution_kept"].rows) == ("critical", ("c",))
    assert found["distribution_kept"].values == ("0.9",)
    assert (found["scored_alike"].severity, found["scored_alike"].rows) == ("info", ("b",))


def test_what_fails_is_validated_once_and_its_rows_are_all_listed_up_to_the_limit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from great_expectations.datasource.fluent.interfaces import Batch

    calls: list[Any] = []
    validate = Batch.validate
    monkeypatch.setattr(Batch, "validate", lambda *words, **more: calls.append(words) or validate(*words, **more))
    columns = table(60)
    columns["turns"] = [1000 if row < 30 else 3 for row in range(60)]
    suite = rollout_suite(QualityParams())
    for share, listed in ((0.2, 20), (0.5, 30)):
        found = {each.name: each for each in run_expectations(columns, suite, max_listed_share=share)}
        assert (found["turns_in_range"].failing, len(found["turns_in_range"].rows)) == (30, listed)
    assert len(calls) == 2
