"""What Prometheus is told of a home."""

import socket
import urllib.request

import msgspec
import pytest

from ratchet.components.core import ConfigurationError
from ratchet.components.core.files import write_json
from ratchet.components.core.home import home_folder
from ratchet.components.core.processes import free_port
from ratchet.components.nights.night_state import FAILURE_FILE, begin_night, hold_night_lock
from ratchet.components.operations.home_metrics import METRICS, home_samples, metrics_server
from ratchet.components.rollouts.collect_job import JOB_FILE, PROGRESS_FILE, CollectJob
from ratchet.components.rollouts.collection_progress import CollectionProgress
from ratchet.components.tracking.record_upload import spool_folder

REPORT = {"episodes": 10, "successes": 6, "infrastructure_failures": 1, "seconds": 2.0, "taskset_hash": "t"} | {
    "failures": {"tests_failed": 3, "infrastructure: SandboxUnavailable": 1}
}


@pytest.fixture(autouse=True)
def own_home(tmp_path, monkeypatch):
    monkeypatch.setenv("RATCHET_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("OTEL_EXPORTER_PROMETHEUS_PORT", str(free_port()))
    monkeypatch.delenv("OTEL_EXPORTER_PROMETHEUS_HOST", raising=False)


def value(name, *labels):
    return home_samples()[name].get(labels)


def test_an_empty_home_has_a_disk_and_no_nights():
    samples = home_samples()
    assert samples["disk_free_bytes"][()] > 0 and samples["night_running"] == {(): False}
    assert samples["nights"] == {} and "night_unfinished" not in {name for name, rows in samples.items() if rows}


def test_episodes_are_counted_by_cause_of_failure_in_every_collection_of_the_latest_night():
    night = begin_night("smoke", 0, "monday")
    night.run_once("collect attempts", lambda: REPORT)
    night.run_once("evaluate", lambda: {"champion": REPORT | {"failures": {}}, "control": {"episodes": 1}})
    episodes = home_samples()["episodes"]
    assert episodes["attempts", "success"] == 6 and episodes["attempts", "tests_failed"] == 3
    assert episodes["attempts", "infrastructure: SandboxUnavailable"] == 1 and episodes["champion", "success"] == 6
    assert value("episodes_lost", "attempts") == 1 and value("steps") == 2
    assert value("night_info", "monday", "smoke", "default") == 1 and value("night_unfinished") is True


def test_the_latest_night_is_the_last_that_began_also_where_the_clock_was_set_back(monkeypatch):
    begin_night("smoke", 0, "monday").finish()
    monkeypatch.setattr("ratchet.components.nights.night_state._now", lambda: "2020-01-01T00:00:00+00:00")
    begin_night("smoke", 1, "tuesday")
    assert value("night_info", "tuesday", "smoke", "default") == 1


def test_a_running_collection_is_told_live_and_one_that_a_killed_night_left_is_not():
    night = begin_night("smoke", 0, "monday")
    for name, owner in (("1", night.id), ("2", "an-older-night")):
        folder = home_folder("run", f"player-{name}")
        write_json(folder / JOB_FILE, CollectJob({}, f"spool/{owner}", str(folder), "attempts"))
        progress = CollectionProgress(
            40, done=10, successes=7, failures={"tests_failed": 3}, rate=2.5, waiting_for="the model server"
        )
        write_json(folder / PROGRESS_FILE, progress)
    assert home_samples()["episodes_waiting"] == {}
    with hold_night_lock() as claim:
        claim(night.id)
        samples = home_samples()
    assert samples["night_running"][()] and samples["episodes_waiting"] == {("attempts",): 30}
    assert samples["episodes_per_second"] == {("attempts",): 2.5} and samples["episodes"]["attempts", "success"] == 7
    assert samples["outage"] == {("attempts", "the model server"): 1}


def test_judging_and_the_data_build_are_those_of_the_latest_night():
    night = begin_night("smoke", 0, "monday")
    night.run_once("judge", lambda: {"calls": 20, "failed": 2, "tokens": 900, "money": 1.5})
    night.run_once("build", lambda: {"metrics": {"episodes": 50.0, "quarantined": 4.0, "failed_warning": 2.0}})
    assert (value("judge_requests"), value("judge_failed"), value("judge_money")) == (20, 2, 1.5)
    assert (value("build_episodes"), value("build_quarantined")) == (50, 4)
    assert value("build_failed_checks", "warning") == 2
    begin_night("smoke", 1, "tuesday")
    assert value("judge_money") is None and value("build_episodes") is None


def test_nights_are_counted_by_verdict_since_the_last_promotion():
    for number, verdict in enumerate(["promote", "keep", "promote", "undecided", "keep", None]):
        night = begin_night("smoke", number, f"night-{number}")
        if verdict is not None:
            night.run_once("decision", lambda verdict=verdict: {"verdict": verdict})
            night.finish()
    counts = home_samples()["nights"]
    assert counts == {("promote",): 2, ("keep",): 2, ("undecided",): 1, ("none",): 1}
    assert value("nights_since_promotion") == 2
    assert value("night_finished_timestamp_seconds") > 1_700_000_000


def test_a_damaged_night_is_counted_and_hides_no_other(tmp_path):
    begin_night("smoke", 0, "monday")
    for name, content in (("torn", b'{"night": "torn", '), ("empty", b""), ("binary", b"\xff\xfe\x00")):
        folder = home_folder("nights", name)
        (folder / "state.json").write_bytes(content)
    assert home_samples()["nights"] == {("unreadable",): 3, ("none",): 1}
    assert value("night_info", "monday", "smoke", "default") == 1


def test_a_night_that_failed_is_told_until_it_is_started_again():
    night = begin_night("smoke", 0, "monday")
    (night.folder / FAILURE_FILE).write_bytes(msgspec.json.encode({"at": "", "line": ""}))
    assert value("night_failed") is True
    with hold_night_lock() as claim:
        claim(night.id)
        assert value("night_failed") is False


def test_records_that_wait_for_mlflow_are_counted():
    spool_folder().mkdir(parents=True)
    (spool_folder() / "1.jsonl").write_text("")
    assert value("mlflow_spool_files") == 1


def test_a_change_of_a_night_is_seen_by_the_next_scrape():
    night = begin_night("smoke", 0, "monday")
    before = value("steps")
    night.run_once("collect attempts", lambda: REPORT)
    assert (before, value("steps")) == (0, 1)


def test_prometheus_reads_every_metric_with_its_help_and_labels_that_need_escapes():
    night = begin_night("smoke", 0, "monday")
    night.run_once("collect attempts", lambda: REPORT | {"failures": {'a "quoted"\nline\\': 4}})
    with metrics_server() as url:
        assert url.startswith("http://localhost:")
        text = urllib.request.urlopen(url, timeout=20).read().decode()
    assert all(f"# HELP ratchet_{name} {METRICS[name][0]}" in text for name in METRICS)
    assert 'ratchet_episodes{collection="attempts",outcome="a \\"quoted\\"\\nline\\\\"} 4.0' in text


@pytest.mark.parametrize("port", ["none", "0", "70000", "-1"])
def test_an_invalid_port_is_one_line_that_names_the_variable(monkeypatch, port):
    monkeypatch.setenv("OTEL_EXPORTER_PROMETHEUS_PORT", port)
    with pytest.raises(ConfigurationError, match="OTEL_EXPORTER_PROMETHEUS_PORT"), metrics_server():
        pass


def test_a_taken_port_and_an_address_of_another_machine_are_refused(monkeypatch):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        monkeypatch.setenv("OTEL_EXPORTER_PROMETHEUS_PORT", str(taken.getsockname()[1]))
        with pytest.raises(ConfigurationError, match="is taken"), metrics_server():
            pass
    monkeypatch.setenv("OTEL_EXPORTER_PROMETHEUS_PORT", str(free_port()))
    monkeypatch.setenv("OTEL_EXPORTER_PROMETHEUS_HOST", "192.0.2.1")
    with pytest.raises(ConfigurationError, match=r"192\.0\.2\.1"), metrics_server():
        pass
