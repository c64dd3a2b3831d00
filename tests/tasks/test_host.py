"""What `ratchet doctor` says of the Docker engine."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from tasks.host import State, examine


@contextmanager
def engine(has_image: bool) -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            found = self.path == "/version" or has_image
            self.send_response(200 if found else 404)
            self.end_headers()
            self.wfile.write(json.dumps({"Version": "20.10"} if found else {}).encode())

        def log_message(self, *_):
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    try:
        yield f"tcp://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


def docker_check():
    return next(check for check in examine() if check.name == "Docker engine")


@pytest.mark.parametrize(
    ("has_image", "state", "advice"), [(True, State.OK, ""), (False, State.ABSENT, "docker build")]
)
def test_an_engine_is_of_use_only_with_the_sandbox_image(monkeypatch, has_image, state, advice):
    with engine(has_image) as address:
        monkeypatch.setenv("DOCKER_HOST", address)
        check = docker_check()
    assert check.state is state
    assert "20.10" in check.found
    assert check.advice.startswith(advice) or f": {advice}" in check.advice


def test_without_an_engine_the_local_sandbox_is_named(monkeypatch, tmp_path):
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/nothing.sock")
    check = docker_check()
    assert check.state is State.ABSENT
    assert "local sandbox" in check.advice
