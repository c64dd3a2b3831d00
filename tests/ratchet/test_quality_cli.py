"""`ratchet data docs` and the page that a build leaves."""

import json

import pytest

from ratchet.components.core import DataError
from ratchet.components.datasets import versioning
from ratchet.components.operations import quality_pages
from ratchet.components.operations.quality_pages import build_docs, write_quality_page

REPORT = {
    "episodes": 3,
    "quarantined": 0,
    "expectations": 1,
    "failed": {"critical": 0, "warning": 0, "info": 0},
    "passed": True,
}
RESULT = {
    "type": "expect_column_values_to_be_null",
    "column": "x",
    "severity": "info",
    "success": True,
    "failing": 0,
    "observed": None,
}


@pytest.fixture
def clone(tmp_path, monkeypatch):
    """A project with the report of a build."""
    monkeypatch.setenv("RATCHET_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "dvc.yaml").write_text("stages: {}\n")
    (tmp_path / "params.yaml").write_text("data: {rollouts: null}\nquality: {max_turns: 3}\ngate: {}\n")
    (tmp_path / "data").mkdir()
    report = REPORT | {"results": {"rollouts": {"kept": RESULT}}}
    (tmp_path / "data" / "quality_report.json").write_text(json.dumps(report))
    return tmp_path


def test_before_any_build_one_line_says_what_to_do(run, clone):
    (clone / "data" / "quality_report.json").unlink()
    code, out, err = run("data", "docs")
    assert code == 3 and out == "" and "run `ratchet build`" in err and err.count("\n") == 1
    assert write_quality_page() is None


def test_the_page_of_a_build_is_in_the_home_and_the_data_stays_as_it_was(clone):
    before = {path: path.read_bytes() for path in (clone / "data").rglob("*")}
    page = write_quality_page()
    assert page == clone / "home" / "quality" / "quality.html" and b"<html" in page.read_bytes()
    assert {path: path.read_bytes() for path in (clone / "data").rglob("*")} == before


def test_docs_use_the_limits_of_the_lock_and_of_a_failed_build_those_of_params(clone, monkeypatch):
    runs = []
    monkeypatch.setattr(quality_pages, "write_data_docs", lambda made, folder: runs.extend(made) or folder)
    stages = {"validate": {"params": {"params.yaml": {"quality": {"max_turns": 5}}}}}
    (clone / "dvc.lock").write_text(json.dumps({"schema": "2.0", "stages": stages}))
    build_docs()
    failed = clone / "home" / "build" / "failed"
    failed.mkdir(parents=True, exist_ok=True)
    (failed / "quality_report.json").write_bytes((clone / "data" / "quality_report.json").read_bytes())
    build_docs()
    assert [(run.name, run.quality.max_turns) for run in runs] == [
        ("last build", 5),
        ("last build", 5),
        ("failed build", 3),
    ]


def test_a_build_that_is_refused_leaves_its_page_too(run, clone, monkeypatch):
    def refuse(*_, **__):
        failed = clone / "home" / "build" / "failed"
        failed.mkdir(parents=True, exist_ok=True)
        (failed / "gate.json").write_text(json.dumps({**REPORT, "rows": 3, "passed": False, "results": {}}))
        raise DataError("the gate refused the datasets")

    monkeypatch.setattr(versioning, "requested_inputs", lambda *_: None)
    monkeypatch.setattr(versioning, "build", refuse)
    code, _, err = run("build")
    assert code == 3 and "quality.html" in err and (clone / "home" / "quality" / "quality.html").is_file()
