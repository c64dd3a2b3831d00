"""The report of a night: what it is gathered from, where it goes, and that it never costs a night anything."""

import json
import logging
from types import SimpleNamespace

import msgspec
import pytest
from episodes import write_night
from mornings import challenger_solves, champion_solves, decided, morning, played

from ratchet.components.core import DataError
from ratchet.components.core.home import home
from ratchet.components.datasets.versioning.dvc_lock import dvc_md5
from ratchet.components.nights.episode_sets import NightEpisodes, night_episodes
from ratchet.components.nights.night_state import begin_night, open_night
from ratchet.components.nights.report_contents import gather_report, stage_verdict
from ratchet.flows.steps import report
from ratchet.flows.steps.report import (
    HTML_FILE,
    MARKDOWN_FILE,
    end_flow_run,
    latest_night,
    night_report,
    report_at_end,
    write_report,
)

pytestmark = pytest.mark.slow

SECRET = "ghp_" + "0a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R"


NOBODY = NightEpisodes({})
"""Of a night in which nobody played."""


class FakeRun:
    """What MLflow is told."""

    def __init__(self, broken=False):
        self.artifacts, self.broken = {}, broken

    def log_artifact(self, path, content):
        if self.broken:
            raise RuntimeError("MLflow has ended")
        self.artifacts[path] = content


@pytest.fixture(autouse=True)
def place(tmp_path, monkeypatch):
    monkeypatch.setenv("RATCHET_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def shown(monkeypatch):
    """What Prefect is shown; and a morning that is at hand, so that nothing is drawn."""
    pages = []
    monkeypatch.setattr(report, "show_report", lambda night, page: pages.append(page))
    told = {}

    def gather(night, error=None, ended=None, played=None):
        told.update(error=error, ended=ended)
        return morning(state="failed" if error else "finished" if ended else "unfinished", error=error)

    monkeypatch.setattr(report, "gather_report", gather)
    pages.append(told)
    return pages


def leaking(episode):
    """The episode with a secret in what a tool returned."""
    first = episode.turns[0]
    results = tuple(msgspec.structs.replace(each, content=f"token: {SECRET}") for each in first.results)
    return msgspec.structs.replace(episode, turns=(msgspec.structs.replace(first, results=results), *episode.turns[1:]))


@pytest.fixture
def night(place):
    """A night of this home that was played and decided."""
    made = begin_night("smoke", 3)
    agents = {
        "champion": [leaking(each) for each in played("weights-1", champion_solves)],
        "challenger": [leaking(each) for each in played("weights-2", challenger_solves)],
    }
    for name, episodes in agents.items():
        write_night(home() / "evaluations" / made.id / name, episodes)
    decision = decided(*agents.values(), made.id)
    made.run_once("evaluate", lambda: {"champion": {"seconds": 2.0}})
    made.run_once("decision", lambda: decision)
    return made


def test_the_report_of_a_night_that_ends_well_goes_to_its_folder_to_mlflow_and_to_prefect(shown):
    night, run = begin_night("smoke", 0), FakeRun()
    with report_at_end(night, run, NOBODY):
        pass
    assert (night.folder / HTML_FILE).read_bytes() == run.artifacts[f"report/{HTML_FILE}"]
    assert (night.folder / MARKDOWN_FILE).read_text() == run.artifacts[f"report/{MARKDOWN_FILE}"] == shown[1]
    assert shown[0]["error"] is None and shown[0]["ended"] is not None


def test_the_report_of_a_night_that_fails_says_why_and_the_error_goes_on(shown):
    night, run = begin_night("smoke", 0), FakeRun()
    with pytest.raises(DataError, match="two policy versions"), report_at_end(night, run, NOBODY):
        raise DataError(f"episodes of two policy versions\nwith {SECRET}")
    assert "episodes of two policy versions with [" in shown[0]["error"] and SECRET not in shown[0]["error"]
    assert run.artifacts and (night.folder / HTML_FILE).is_file()
    assert not any(SECRET.encode() in path.read_bytes() for path in night.folder.iterdir())


def test_a_failure_that_nobody_foresaw_is_named_by_its_type(shown):
    with pytest.raises(ZeroDivisionError), report_at_end(begin_night("smoke", 0), FakeRun(), NOBODY):
        raise ZeroDivisionError("division by zero")
    assert shown[0]["error"] == "ZeroDivisionError: division by zero"


def test_a_night_that_failed_and_went_on_to_its_end_no_longer_says_that_it_failed(shown):
    night = begin_night("smoke", 0)
    with pytest.raises(DataError), report_at_end(night, FakeRun(), NOBODY):
        raise DataError("no")
    assert "no" in night_report(night).markdown and shown[0]["error"] == "no"
    with report_at_end(night, FakeRun(), NOBODY):
        pass
    assert shown[0]["error"] is None


@pytest.mark.parametrize("broken", ["gather", "MLflow", "disk"])
def test_a_report_that_cannot_be_written_costs_no_night(shown, broken, monkeypatch, caplog):
    if broken == "gather":
        monkeypatch.setattr(report, "gather_report", lambda *args, **kwargs: 1 / 0)
    if broken == "disk":
        monkeypatch.setattr(report, "write_atomically", lambda *args: (_ for _ in ()).throw(OSError("full")))
    told = FakeRun(broken == "MLflow")
    with caplog.at_level(logging.ERROR), report_at_end(begin_night("smoke", 0), told, NOBODY):
        pass
    assert "could not be written; try `ratchet report" in caplog.text
    with pytest.raises(DataError, match="the first error"), report_at_end(begin_night("smoke", 0), told, NOBODY):
        raise DataError("the first error")


def test_a_killed_night_leaves_no_report_of_a_failure(shown):
    night = begin_night("smoke", 0)
    with pytest.raises(KeyboardInterrupt), report_at_end(night, FakeRun(), NOBODY):
        raise KeyboardInterrupt
    assert "Not finished" in night_report(night).markdown or shown[0]["ended"] is None


def test_a_night_is_gathered_from_its_state_its_episodes_and_the_reports_on_its_data(night, place):
    (place / "data").mkdir()
    failed = {"severity": "warning", "success": False, "failing": 3, "reason": "too long"}
    said = {
        "episodes": 9,
        "quarantined": 1,
        "expectations": 2,
        "passed": True,
        "results": {"rollouts": {"turns": failed}},
    }
    (place / "data/quality_report.json").write_text(json.dumps(said))
    (place / "data/gate.json").write_text(json.dumps(said | {"passed": False}))
    hashes = {
        "data/quality_report.json": dvc_md5(place / "data/quality_report.json"),
        "data/gate.json": "of another build",
    }
    night.run_once("build", lambda: {"outputs": hashes, "metrics": {"episodes": 9.0, "quarantined": 1.0}})
    found = gather_report(open_night(night.id))
    assert found.missing == () and found.state == "unfinished" and found.done == 3 and found.last == "build"
    assert found.decision is not None and found.point.verdict == found.decision.verdict
    assert len(found.duels) == 5 and all(each.champion.task == each.challenger.task for each in found.duels)
    assert {"difference_forest", "success_bars", "failure_confusion"} <= {each.name for each in found.pictures}
    assert [(each.stage, each.rows, each.failures[0].name) for each in found.verdicts] == [("validate", 9, "turns")]
    made = night_report(night)
    assert SECRET not in made.markdown and SECRET.encode() not in made.html
    assert "token: [" in made.markdown


@pytest.mark.parametrize(
    ("steps", "holder"),
    [
        ({"register challenger": {"version": 2}}, None),
        ({"register challenger": {"version": 2}, "promote": 2}, None),
        ({"register challenger": {"version": 2}, "promote": 9}, 9),
        ({"register challenger": {"version": 2}, "anchor": {"version": 1}, "roll back": 1}, None),
        ({"register challenger": {"version": 2}, "anchor": {"version": 1}, "roll back": 9}, 9),
    ],
)
def test_who_kept_the_place_against_the_night_is_told(steps, holder):
    night = begin_night("smoke", 1)
    for step, result in steps.items():
        night.run_once(step, lambda result=result: result)
    assert gather_report(night).holder == holder


def test_parts_that_are_gone_or_damaged_are_named_and_the_rest_stands(night):
    for shard in (home() / "evaluations" / night.id / "champion").glob("*.jsonl"):
        shard.write_bytes(b"{ not whole\n")
    found = gather_report(night)
    assert found.decision is not None and found.duels == () and found.point.champion is not None
    assert any("the agents' episodes" in each for each in found.missing)
    assert {each.name for each in found.pictures} == {"difference_forest", "success_bars"}
    night.results["decision"] = {"verdict": "promote"}
    found = gather_report(night)
    assert found.decision is None and "its decision cannot be read: not a decision record" in found.missing[0]
    assert night_report(night).markdown.startswith(f"# Night {night.id}")


def test_the_report_reads_nothing_that_the_night_has_read(night, monkeypatch):
    seen = night_episodes(night.id)
    monkeypatch.setattr("ratchet.components.nights.report_contents._pictures", lambda *args: ())
    wanted = gather_report(night, played=seen)
    monkeypatch.setattr("ratchet.components.nights.episode_sets.score", lambda *args: 1 / 0)
    assert gather_report(night, played=seen) == wanted and len(wanted.duels) == 5
    assert "division by zero" in gather_report(night).missing[0]


def test_the_latest_decided_night_of_the_same_taskset_is_the_one_before(night):
    night.finish()
    second = begin_night("smoke", 4)
    second.run_once("decision", lambda: open_night(night.id).results["decision"])
    found = gather_report(open_night(second.id))
    assert found.before is not None and found.before.night == night.id and len(found.changes) == 1
    assert "learning_curves" in {each.name for each in found.pictures}
    assert latest_night().id == second.id


def test_a_night_that_has_only_begun_has_a_report():
    night = begin_night("smoke", 0)
    found = gather_report(night)
    assert found.missing == () and found.decision is None and found.done == 0 and found.state == "unfinished"
    assert write_report(night, night_report(night)).read_bytes().startswith(b"<!doctype html>")


def test_a_finished_night_is_told_as_finished_with_its_end():
    night = begin_night("smoke", 0)
    night.run_once("collect", lambda: {"episodes": 1})
    night.finish()
    made = night_report(open_night(night.id))
    assert (
        gather_report(open_night(night.id), ended=night.ended).state == "finished"
        and "from start to end" in made.markdown
    )


@pytest.mark.parametrize(
    "said", [{}, {"results": {"suite": {"name": {}}}}, {"rows": 3, "passed": True, "failed": None}]
)
def test_a_report_on_data_may_lack_anything(said):
    found = stage_verdict("gate", said)
    assert found.stage == "gate" and found.passed is bool(said.get("passed"))


@pytest.mark.parametrize(("retries", "raised"), [(0, False), (2, True)])
def test_an_error_is_raised_where_prefect_would_repeat_the_flow(monkeypatch, retries, raised):
    from prefect.context import FlowRunContext

    def fail():
        raise DataError("a shard is damaged")

    context = SimpleNamespace(flow=SimpleNamespace(retries=retries))
    monkeypatch.setattr(FlowRunContext, "get", staticmethod(lambda: context))
    if raised:
        with pytest.raises(DataError, match="a shard is damaged"):
            end_flow_run(fail, str)
    else:
        state = end_flow_run(fail, str)
        assert state.is_failed() and state.message.startswith("a shard is damaged; finished work is kept")
