"""What `ratchet doctor` says of the sandboxes, of vLLM, and of a model server."""

import json
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from components.protocol import SandboxUnavailable
from components.sandboxes import isolation
from components.sandboxes.isolation import Isolation
from tasks import servers
from tasks.host import State, examine


@contextmanager
def engine(has_image: bool) -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            found = self.path == "/version" or has_image
            self.send_response(200 if found else 404)
            self.end_headers()
            said = {"Version": "20.10", "version": "20.10", "data": [{"id": "small", "owned_by": "vllm"}]}
            self.wfile.write(json.dumps(said if found else {}).encode())

        def log_message(self, *_):
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    try:
        yield f"tcp://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


def found(name: str):
    return next(check for check in examine() if check.name == name)


@pytest.mark.parametrize(
    ("has_image", "state", "advice"), [(True, State.OK, ""), (False, State.ABSENT, "docker build")]
)
def test_an_engine_is_of_use_only_with_the_sandbox_image(monkeypatch, has_image, state, advice):
    with engine(has_image) as address:
        monkeypatch.setenv("DOCKER_HOST", address)
        check = found("Docker engine")
    assert check.state is state
    assert "20.10" in check.found
    assert check.advice.startswith(advice) or f": {advice}" in check.advice


def test_without_an_engine_the_local_sandbox_is_named(monkeypatch, tmp_path):
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/nothing.sock")
    check = found("Docker engine")
    assert check.state is State.ABSENT
    assert "local sandbox" in check.advice


@pytest.mark.parametrize(
    ("level", "state", "said"),
    [
        (Isolation.JAIL, State.OK, "root file system"),
        (Isolation.PRIVILEGED_JAIL, State.OK, "root file system"),
        (Isolation.NAMESPACES, State.ABSENT, "the host's files"),
        (Isolation.LIMITS, State.ABSENT, "the network and the host's files"),
    ],
)
def test_how_far_the_local_sandbox_shuts_commands_in_is_said_as_it_was_tried(monkeypatch, level, state, said):
    monkeypatch.setattr(isolation, "isolation", lambda: level)
    check = found("local sandbox")
    assert check.state is state
    assert said in check.found + check.advice


def test_a_local_sandbox_that_runs_nothing_is_said_and_no_traceback(monkeypatch):
    def broken():
        raise SandboxUnavailable("the local sandbox cannot run /bin/sh; see `ratchet doctor`")

    monkeypatch.setattr(isolation, "isolation", broken)
    check = found("local sandbox")
    assert (check.found, check.advice) == ("the local sandbox cannot run /bin/sh", "use Docker")


def test_the_environment_of_vllm_is_looked_for_where_it_is_named_and_nowhere_else(monkeypatch):
    monkeypatch.delenv("RATCHET_VLLM_PYTHON", raising=False)
    assert found("vLLM").state is State.ABSENT
    monkeypatch.setenv("RATCHET_VLLM_PYTHON", "/nowhere/python")
    check = found("vLLM")
    assert check.state is State.MISSING
    assert "/nowhere/python cannot be run" in check.found
    assert "make_env.sh" in check.advice


def test_a_model_server_of_ours_is_asked_what_it_serves(monkeypatch, tmp_path):
    monkeypatch.setenv("RATCHET_HOME", str(tmp_path))
    assert "ratchet serve" in found("model server").advice
    with engine(has_image=True) as address:
        url = f"{address.replace('tcp', 'http')}/v1"
        servers.remember("model", url, os.getpid())
        check = found("model server")
    assert (check.state, check.found) == (State.OK, f"vLLM 20.10 at {url} with small")
    check = found("model server")
    assert check.state is State.ABSENT
    assert check.found.startswith(f"no model server answers at {url}")
    assert check.advice == "start one with `ratchet serve`"
