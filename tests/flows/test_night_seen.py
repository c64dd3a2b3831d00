"""A night as others see it: Prometheus, a collector of traces, and a reader of logs."""

import json
import os
import shutil
import subprocess
import sys
import urllib.parse
import urllib.request
from pathlib import Path

import pytest
import yaml
from night_world import Killed, run
from otlp_receiver import attributes, collecting
from patience import until
from small_project import make_night_small

from ratchet.components.core.home import home_folder
from ratchet.components.core.otlp_export import night_ids, step_ids
from ratchet.components.core.processes import BackgroundProcess, free_port
from ratchet.components.nights import night_state
from ratchet.components.nights.night_spans import send_night, trace_steps
from ratchet.components.nights.night_state import begin_night, hold_night_lock
from ratchet.components.rollouts.collection_plan import CollectPlan
from ratchet.tasks.collect import play

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parents[2]


@pytest.fixture
def collector(monkeypatch):
    with collecting(monkeypatch) as collector:
        yield collector


def sent(collector, name):
    """Spans of that name, once the thread has sent what it was given."""
    from ratchet.components.core.otlp_export import _exporter

    for future in _exporter()._waiting:
        future.result(timeout=20)
    return collector.named(name)


def number(span_id):
    return int.from_bytes(span_id)


def trace_new_nights(monkeypatch):
    """Let every night that begins be traced, as the flow lets them."""
    begin = night_state.begin_night

    def traced(*args):
        night = begin(*args)
        trace_steps(night)
        return night

    monkeypatch.setattr("night_world.begin_night", traced)


def test_a_resumed_night_is_one_trace_with_each_step_once(world, collector, monkeypatch):
    trace_new_nights(monkeypatch)
    world.die_at = 9
    with pytest.raises(Killed):
        run()
    before = [span.name for span in sent(collector, "")]
    night, decision = run()
    send_night(night, decision["verdict"])
    (root,), spans = sent(collector, "invoke_workflow"), sent(collector, "")
    assert 0 < len(before) < len(spans)
    names = [span.name for span in spans if span is not root]
    assert sorted(names) == sorted(night.seconds) and len(set(names)) == len(names)
    assert {number(span.trace_id) for span in spans} == {night_ids(night.id)[0]}
    assert {span.parent_span_id for span in spans if span is not root} == {root.span_id}
    assert attributes(root).items() >= {"ratchet.night": night.id, "ratchet.verdict": "promote"}.items()
    assert root.start_time_unix_nano <= min(span.start_time_unix_nano for span in spans)


def test_a_failed_step_is_a_span_of_its_own_with_its_error_and_without_secrets(collector, tmp_path, monkeypatch):
    monkeypatch.setenv("RATCHET_HOME", str(tmp_path / "home"))
    night = begin_night("smoke", 0, "monday")
    trace_steps(night)

    def refuse():
        raise OSError("https://me:hunter2secret@host refuses")

    for work in (refuse, refuse, lambda: 1):
        try:
            night.run_once("build", work)
        except OSError:
            continue
    *failed, done = sent(collector, "build")
    assert [span.status.code for span in (*failed, done)] == [2, 2, 0]
    assert (
        number(done.span_id) == step_ids("monday", "build")[1] and len({span.span_id for span in (*failed, done)}) == 3
    )
    assert attributes(failed[0])["error.type"] == "OSError" and "refuses" in failed[0].status.message
    assert "hunter2secret" not in str(failed)


needs_prometheus = pytest.mark.skipif(
    shutil.which("prometheus") is None, reason="prometheus is not installed; apt-get install prometheus"
)


@needs_prometheus
def test_a_night_that_collects_is_seen_by_prometheus_by_a_collector_and_in_its_log(collector, tmp_path, monkeypatch):
    """Real processes: `ratchet metrics`, Prometheus with the rules, and the collection with its sandboxes."""
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("RATCHET_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("RATCHET_LOG_FORMAT", "json")
    monkeypatch.setenv("OTEL_EXPORTER_PROMETHEUS_PORT", str(port := free_port()))
    night = begin_night("smoke", 0, "monday")
    plan = CollectPlan(taskset="repair", policy="clumsy", limit=10, attempts=2, workers=1, concurrency=2, cohort_size=8)
    command = [sys.executable, "-c", "import sys; from ratchet.cli import main; sys.exit(main())", "metrics"]
    exporter = BackgroundProcess(command, log=tmp_path / "metrics.log").start()
    server, ask = _prometheus(tmp_path, port)
    try:
        until(lambda: ask('up{job="ratchet"} == 1'), 240)
        with hold_night_lock() as claim:
            claim(night.id)
            night.run_once(
                "collect attempts", lambda: play.fn("collect attempts", plan, home_folder("spool", "monday"))
            )
            until(lambda: ask("max_over_time(ratchet_night_running[1h]) == 1"), 120)
        until(lambda: ask('sum(ratchet_episodes{collection="attempts"}) == 20'), 120)
        until(lambda: ask('ALERTS{alertname="RatchetNightInterrupted"}'), 120)
        assert ask("max_over_time(ratchet_episodes_waiting[1h]) > 0"), "no scrape fell into the collection"
    finally:
        server.stop()
        exporter.stop()
    episodes = sent(collector, "invoke_agent")
    assert len({attributes(span)["ratchet.episode"] for span in episodes}) == len(episodes) == 20
    assert {number(link.span_id) for span in episodes for link in span.links} == {
        step_ids("monday", "collect attempts")[1]
    }
    (log,) = (tmp_path / "home" / "logs").glob("collect-*.log")
    lines = [json.loads(line) for line in log.read_text().splitlines() if line.startswith("{")]
    ended = [line for line in lines if line["message"].startswith("episode ended: ")]
    assert {line["night"] for line in ended} == {"monday"} and {line["step"] for line in ended} == {"collect attempts"}
    assert {line["episode"] for line in ended} == {attributes(span)["ratchet.episode"] for span in episodes}
    assert {line["task"] for line in ended} == {attributes(span)["ratchet.task"] for span in episodes}


@pytest.mark.long
@needs_prometheus
def test_prometheus_holds_the_whole_of_a_real_night_and_evaluates_every_rule_on_it(tmp_path):
    """`ratchet metrics`, Prometheus with the rules, and `ratchet night` in a project of its own."""
    project = tmp_path / "project"
    outside = {name: value for name, value in os.environ.items() if not name.startswith(("PREFECT_", "MLFLOW_"))}
    env = outside | {
        "RATCHET_HOME": str(project / ".ratchet"),
        "OTEL_EXPORTER_PROMETHEUS_PORT": str(port := free_port()),
    }
    ratchet = [sys.executable, "-m", "ratchet.cli"]
    subprocess.run([*ratchet, "init", str(project)], env=env, check=True, capture_output=True)
    make_night_small(project)
    exporter = subprocess.Popen([*ratchet, "metrics"], cwd=project, env=env, stdout=subprocess.DEVNULL)
    server, ask = _prometheus(tmp_path, port)
    try:
        until(lambda: ask('up{job="ratchet"} == 1'), 240)
        played = subprocess.run([*ratchet, "night"], cwd=project, env=env, capture_output=True, text=True, check=False)
        assert played.returncode == 0, played.stdout[-3000:] + played.stderr[-3000:]
        (folder,) = (project / ".ratchet/nights").iterdir()
        night = json.loads((folder / "state.json").read_text())
        decision = night["results"]["decision"]
        until(lambda: ask("ratchet_night_unfinished == 0"), 120)

        def values(query, label):
            return {point["metric"][label]: float(point["value"][1]) for point in ask(query)}

        def value(query):
            return float(ask(query)[0]["value"][1])

        assert values("ratchet_night_info", "night") == {folder.name: 1}
        assert ask("max_over_time(ratchet_night_running[1h]) == 1") and value("ratchet_night_running") == 0
        assert values("ratchet_step_seconds", "step").keys() == {
            step.replace(folder.name, "NIGHT") for step, _ in night["seconds"]
        }
        assert value("ratchet_steps") == len(night["results"]) and ask("ratchet_night_finished_timestamp_seconds")
        assert values("ratchet_nights > 0", "verdict") == {decision["verdict"]: 1}
        report = night["results"]["collect attempts"]
        outcomes = values('ratchet_episodes{collection="attempts"}', "outcome")
        assert outcomes == {"success": report["successes"], **report["failures"]} and sum(outcomes.values()) == 20
        assert ask('max_over_time(ratchet_episodes_per_second{collection="attempts"}[1h]) > 0')
        assert values('ratchet_success_ratio{tasks="promote"}', "agent") == {
            agent: decision[agent]["success"]["value"]
            for agent in ("champion", "challenger", "control")
            if decision[agent]
        }
        assert ask("max_over_time(ratchet_training_step[1h]) > 0") and value("ratchet_build_episodes") >= 20
        rules = [rule for group in ask(None, "rules")["groups"] for rule in group["rules"]]
        assert len(rules) == 18 and {rule["health"] for rule in rules} == {"ok"}, rules
        firing = {rule["name"] for rule in rules if rule["state"] == "firing"}
        assert firing <= {"RatchetDiskLow"}, "that disk is the machine's; no other alert may fire in a good night"
    finally:
        server.stop()
        exporter.terminate()
        exporter.wait(60)


def _prometheus(folder, port):
    """Start Prometheus on the home's exporter; return its process and a function that asks it a query, or for rules."""
    config = yaml.safe_load((ROOT / "infra/prometheus/prometheus.yml").read_text())
    config["global"] = {"scrape_interval": "250ms", "evaluation_interval": "1s"}
    config["rule_files"] = [str(ROOT / "infra/prometheus/alerts.yml")]
    config["scrape_configs"][0]["static_configs"][0]["targets"] = [f"localhost:{port}"]
    (folder / "prometheus.yml").write_text(yaml.safe_dump(config))
    own = free_port()
    options = ["--web.listen-address", f"127.0.0.1:{own}", "--storage.tsdb.path", str(folder / "tsdb")]
    command = ["prometheus", "--config.file", str(folder / "prometheus.yml"), *options]
    process = BackgroundProcess(command, log=folder / "prometheus.log").start()

    def ask(query, what="query"):
        url = f"http://127.0.0.1:{own}/api/v1/{what}" + (
            f"?{urllib.parse.urlencode({'query': query})}" if query else ""
        )
        try:
            with urllib.request.urlopen(url, timeout=10) as answer:
                data = json.load(answer)["data"]
                return data["result"] if what == "query" else data
        except OSError:  # it starts
            return []

    return process, ask
