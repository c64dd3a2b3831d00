"""Which services a home has, how they are shown, and when the watch ends one."""

import os
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from patience import until

from ratchet.components.core import ConfigurationError
from ratchet.components.core.home import home, record_server, recorded_process
from ratchet.components.core.processes import free_port
from ratchet.flows import service_watch
from ratchet.flows.services import Service, planned_services, run_service, service_state

pytestmark = pytest.mark.slow
API = "http://127.0.0.1:4200/api"


@pytest.fixture(autouse=True)
def own_home(tmp_path, monkeypatch):
    monkeypatch.setenv("RATCHET_HOME", str(tmp_path / "home"))
    for name in ("PREFECT_API_URL", "MLFLOW_TRACKING_URI"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def own_umask():
    before = os.umask(0o022)
    yield
    os.umask(before)


def test_a_home_has_both_servers_a_worker_and_a_watch_and_a_model_server_metrics_or_a_receiver_where_they_are_wanted():
    plain = [
        Service("prefect", ("4200",)),
        Service("mlflow", ("5000",)),
        Service("worker", (API,)),
        Service("watch", (API,)),
    ]
    assert planned_services(4200, 5000, []) == plain
    model = Service("model", ("m", "--port", "8000"))
    assert planned_services(4200, 5000, ["m", "--port", "8000"]) == [*plain, model]
    assert planned_services(4200, 5000, ["m", "--port", "8000"], metrics=True) == [*plain, model, Service("metrics")]
    assert planned_services(4200, 5000, receive=True) == [*plain, Service("receive")]


def test_servers_that_the_environment_names_are_used_and_not_started(monkeypatch):
    monkeypatch.setenv("PREFECT_API_URL", "https://prefect.example.com/api")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "https://mlflow.example.com")
    url = ("https://prefect.example.com/api",)
    assert planned_services(4200, 5000, []) == [Service("worker", url), Service("watch", url)]


def test_a_service_is_shown_as_not_running_as_running_or_as_one_that_does_not_answer():
    assert service_state("mlflow").address is None
    record_server("mlflow", "http://127.0.0.1:9", os.getpid())
    state = service_state("mlflow")
    assert (state.address, state.state, state.is_healthy) == ("http://127.0.0.1:9", "does not answer", False)
    record_server("worker", "work pool nights", os.getpid())
    assert not service_state("worker").is_healthy
    record_server("watch", "", os.getpid(), owner=os.getpid())
    assert service_state("watch").is_healthy and recorded_process("watch") == os.getpid()


def test_metrics_are_shown_as_running_while_they_are_served(monkeypatch):
    monkeypatch.chdir(Path(__file__).parents[2])
    monkeypatch.setenv("OTEL_EXPORTER_PROMETHEUS_PORT", str(port := free_port()))
    with subprocess.Popen([sys.executable, "-m", "ratchet.cli", "metrics"], stdout=subprocess.DEVNULL) as process:
        until(lambda: service_state("metrics").is_healthy)
        assert service_state("metrics").address == f"http://localhost:{port}/metrics"
        process.terminate()
    assert not service_state("metrics").is_healthy


def test_a_worker_without_deployments_is_refused(tmp_path, monkeypatch, own_umask):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigurationError, match=r"no prefect\.yaml"):
        run_service("worker", [API])
    assert home().is_dir() and service_state("worker").address is None


@pytest.mark.parametrize(("health", "ended"), [([False] * 4, 1), ([False, False, True] * 3, 0), ([None] * 9, 0)])
def test_a_server_that_does_not_answer_again_and_again_is_ended_and_one_that_refuses_is_not(monkeypatch, health, ended):
    answers, killed = iter(health), []

    def is_healthy(name, url, timeout):
        if (answer := next(answers)) is None:
            raise ConfigurationError("wrong credentials")
        return answer

    monkeypatch.setattr(service_watch, "is_healthy", is_healthy)
    monkeypatch.setattr(os, "kill", lambda *arguments: killed.append(arguments))
    record_server("prefect", API, os.getpid())
    failed: Counter[str] = Counter()
    assert sum(service_watch.end_if_hung("prefect", failed) for _ in health) == ended
    assert killed == [(os.getpid(), signal.SIGTERM)] * ended


def test_a_server_that_does_not_run_is_left_to_its_supervisor():
    assert not any(service_watch.end_if_hung("mlflow", Counter()) for _ in range(9))
