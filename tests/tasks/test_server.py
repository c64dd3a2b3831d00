import os
import signal
import socket
import subprocess
import sys

import httpx
import psutil
import pytest
from patience import LIMIT, gone, until

from components.protocol import ConfigurationError, InfrastructureError
from tasks.server import PrefectServer
from tasks.servers import forget, healthy, recorded, remember, require_free


@pytest.fixture(autouse=True)
def own_home(tmp_path, monkeypatch):
    monkeypatch.setenv("RATCHET_HOME", str(tmp_path / "home"))
    for name in [name for name in os.environ if name.startswith("PREFECT_")]:
        monkeypatch.delenv(name)
    before = dict(os.environ)
    yield
    for name in set(os.environ) - set(before):
        del os.environ[name]


def test_a_record_is_believed_only_while_its_processes_live():
    sleeper = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    remember("prefect", "http://127.0.0.1:1/api", sleeper.pid)
    assert recorded("prefect") == "http://127.0.0.1:1/api"
    sleeper.kill()
    sleeper.wait()
    assert recorded("prefect") is None
    forget("prefect")
    forget("prefect")
    assert recorded("prefect") is None


def test_a_port_that_is_taken_is_said_with_the_option_that_chooses_another():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(ConfigurationError, match=f"port {port} for Prefect is taken.*--prefect-port"):
            require_free(port, "Prefect", "--prefect-port")
        with pytest.raises(ConfigurationError, match="is taken"):
            PrefectServer(port).start()


def test_a_server_that_the_environment_names_is_used_and_its_silence_is_said(monkeypatch):
    monkeypatch.setenv("PREFECT_API_URL", "http://127.0.0.1:9/api")
    monkeypatch.setattr("tasks.server.PATIENCE", 0.2)
    server = PrefectServer().start()
    assert server.given and not server.ours
    with pytest.raises(InfrastructureError, match="does not answer; start it, or unset PREFECT_API_URL"):
        server.ready()
    server.stop()


@pytest.mark.slow
def test_a_server_that_cannot_start_is_an_error_with_its_last_words(tmp_path, monkeypatch):
    (tmp_path / "home" / "prefect").mkdir(parents=True)
    (tmp_path / "home" / "prefect" / "prefect.db").write_bytes(b"this is no database " * 100)
    server = PrefectServer().start()
    with pytest.raises(InfrastructureError, match=r"ended at its start.*see .*prefect-server\.log"):
        server.ready()
    server.stop()


@pytest.mark.slow
def test_a_cold_server_becomes_ready_is_shared_and_leaves_nothing_behind():
    said = []
    server = PrefectServer().start()
    try:
        url = server.ready(on_wait=said.append)
        assert said == ["Prefect prepares its database (once)"]
        assert httpx.get(f"{url}/flows/count", timeout=LIMIT).status_code in (200, 405)
        assert "<html" in httpx.get(url.removesuffix("/api"), follow_redirects=True, timeout=LIMIT).text.lower()
        del os.environ["PREFECT_API_URL"]
        second = PrefectServer().start()
        assert second.url == url and not second.ours
        second.stop()
        assert healthy(f"{url}/health")
        guard = psutil.Process(server._process.pid)
        tree = [guard.pid, *(process.pid for process in guard.children(recursive=True))]
        assert len(tree) >= 2, "the guard and the server"
    finally:
        server.stop()
    assert not healthy(f"{url}/health")
    until(lambda: all(map(gone, tree)))
    assert recorded("prefect") is None


@pytest.mark.slow
def test_killing_the_process_group_of_its_owner_ends_the_server(tmp_path):
    script = """
import time
from tasks.server import PrefectServer
server = PrefectServer().start()
print(server.url, server._process.pid, flush=True)
time.sleep(99)
"""
    owner = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True, start_new_session=True)
    url, guard = owner.stdout.readline().split()
    assert recorded("prefect") == url
    os.killpg(owner.pid, signal.SIGKILL)
    owner.communicate()
    assert recorded("prefect") is None
    until(lambda: gone(int(guard)))
