"""Data Docs of Great Expectations, from the reports that stages keep."""

import json
import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from ratchet.components.core import DataError
from ratchet.components.datasets.stage_params import GateParams, QualityParams
from ratchet.components.datasets.validation.data_docs import QualityRun, build_suite, write_data_docs

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("great_expectations")]

HOSTILE = "<script>alert(1)</script> $reason"


def entry(type: str, column: str | None = None, failing: int = 0, observed: float | None = None, **more: Any) -> Any:
    values = {"type": type, "column": column, "severity": "warning", "success": not failing, "failing": failing}
    return values | {"observed": observed} | more


REPORTS = {
    "validate": {
        "episodes": 40,
        "results": {
            "rollouts": {
                "episodes_present": entry("expect_table_row_count_to_be_between", observed=40.0),
                "turns_in_range": entry(
                    "expect_column_values_to_be_between",
                    "turns",
                    2,
                    reason="more than 7 turns",
                    rows=[["ep-1", "more than 7 turns (9)"], ["ep-2", f"more than 7 turns ({HOSTILE})"]],
                ),
                "forgotten": entry("expect_column_values_to_be_null", "gone"),
            },
            "drift": {
                "population_stable": entry(
                    "expect_column_values_to_be_between", "psi", 1, reason="drifted", rows=[["total", "drifted (0.6)"]]
                )
            },
        },
    },
    "gate": {
        "datasets": {"sft": {"rows": 12}},
        "results": {"sft_train": {"rows_present": entry("expect_table_row_count_to_be_between", observed=12.0)}},
    },
}
QUALITY = QualityParams(max_turns=7)


def run_of(name: str, day: int) -> QualityRun:
    return QualityRun(name, datetime(2026, 11, day, tzinfo=UTC), REPORTS, QUALITY, GateParams(min_sft_train=5))


@pytest.fixture(scope="module")
def docs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_data_docs([run_of("failed build", 20), run_of("last build", 21)], tmp_path_factory.mktemp("docs"))


def page(docs: Path, suite: str, run: str = "last build") -> str:
    (path,) = docs.parent.glob(f"validations/{suite}/{run}/*/*.html")
    return path.read_text()


def test_every_suite_of_every_run_has_a_page_and_none_failed_to_render(docs: Path) -> None:
    assert docs.name == "index.html" and "failed build" in docs.read_text() and "last build" in docs.read_text()
    for suite in ("rollouts", "drift", "sft_train"):
        for run in ("failed build", "last build"):
            assert "Rendering failed" not in page(docs, suite, run)
        assert (docs.parent / "expectations" / f"{suite}.html").is_file()


def test_a_failure_is_shown_with_its_limit_its_share_and_its_rows(docs: Path) -> None:
    text = " ".join(re.sub("<[^>]+>", " ", page(docs, "rollouts")).split())
    assert "2 unexpected values found. 5% of 40 total rows." in re.sub(r" (?=\.)", "", text).replace("≈", "")
    assert "ep-1: more than 7 turns (9)" in text and "less than or equal to 7" in text
    assert "1 row fails: total: drifted (0.6)" in page(docs, "drift")


def test_text_of_a_log_stays_text(docs: Path) -> None:
    text = page(docs, "rollouts")
    assert "<script>alert(1)" not in text and "&lt;script&gt;alert(1)&lt;/script&gt; &#36;reason" in text


def test_the_project_opens_with_suites_validation_definitions_and_checkpoints(docs: Path) -> None:
    import great_expectations as gx
    import pandas as pd

    context = gx.get_context(mode="file", project_root_dir=docs.parents[4])
    names = {"rollouts", "drift", "sft_train"}
    assert {suite.name for suite in context.suites.all()} == names
    assert {each.name for each in context.validation_definitions.all()} == names
    checkpoint = context.checkpoints.get("sft_train")
    few = checkpoint.run(batch_parameters={"dataframe": pd.DataFrame({"place": range(4)})})
    enough = checkpoint.run(batch_parameters={"dataframe": pd.DataFrame({"place": range(5)})})
    assert (few.success, enough.success) == (False, True)


def test_the_results_are_those_of_the_report_and_nothing_is_validated_again(docs: Path) -> None:
    (kept,) = docs.parents[2].glob("validations/rollouts/last build/*/*.json")
    results = json.loads(kept.read_text())["results"]
    kinds = [result["expectation_config"]["type"] for result in results]
    assert kinds == [item["type"] for item in REPORTS["validate"]["results"]["rollouts"].values()]
    assert (
        results[1]["result"]["unexpected_count"] == 2 and results[1]["expectation_config"]["kwargs"]["max_value"] == 7
    )


@pytest.mark.parametrize(
    "name", ["rollouts", "scores", "drift", "tasks", "preferences", "sft", "dpo", "grpo", "groups", "dpo_train"]
)
def test_every_suite_of_the_stages_is_known_by_its_name(name: str) -> None:
    suite = build_suite(name, QualityParams(), GateParams())
    assert suite.name == name and len(suite.expectations) >= 1


def test_without_a_result_one_line_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="run `ratchet build`"):
        write_data_docs([], tmp_path)
    assert not list(tmp_path.iterdir())
