"""`make pin-images` writes the digests that a registry gives, and changes nothing where one gives none."""

import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "infra/pin_images.py"
DIGESTS = {"a/server": f"sha256:{'1' * 64}", "base": f"sha256:{'2' * 64}"}


class Registry(BaseHTTPRequestHandler):
    """Gives digests of DIGESTS to those who bring the token; of others it knows nothing."""

    def do_GET(self) -> None:
        body = json.dumps({"token": "t"}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_HEAD(self) -> None:
        name = self.path.removeprefix("/v2/").partition("/manifests/")[0]
        if self.headers.get("Authorization") != "Bearer t":
            self.send_response(401)
            realm = f"http://127.0.0.1:{self.server.server_port}/token"  # type: ignore[attr-defined]
            self.send_header("WWW-Authenticate", f'Bearer realm="{realm}",service="registry"')
        elif name in DIGESTS:
            self.send_response(200)
            self.send_header("Docker-Content-Digest", DIGESTS[name])
        else:
            self.send_response(404)
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture(scope="module")
def registry() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Registry)
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    yield f"127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def pin(*files: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, str(SCRIPT), *map(str, files)], capture_output=True, text=True, check=False)


def test_images_get_the_digests_of_their_registry_and_a_second_time_the_same(registry: str, tmp_path: Path) -> None:
    compose, dockerfile = tmp_path / "compose.yaml", tmp_path / "Dockerfile"
    compose.write_text(f"    image: {registry}/a/server:1.2-slim\n    image: ratchet-worker:0.2.0\n")
    dockerfile.write_text(
        f"ARG PYTHON_IMAGE={registry}/base:3.11\nFROM ${{PYTHON_IMAGE}} AS build\nFROM {registry}/base:3.11\n"
    )
    done = pin(compose, dockerfile)
    assert done.returncode == 0, done.stderr
    server, base = f"{registry}/a/server:1.2-slim@{DIGESTS['a/server']}", f"{registry}/base:3.11@{DIGESTS['base']}"
    assert compose.read_text() == f"    image: {server}\n    image: ratchet-worker:0.2.0\n"
    assert dockerfile.read_text() == f"ARG PYTHON_IMAGE={base}\nFROM ${{PYTHON_IMAGE}} AS build\nFROM {base}\n"
    assert done.stdout.splitlines() == [server, base]
    compose.write_text(compose.read_text().replace("1" * 64, "0" * 64))
    assert pin(compose).returncode == 0 and server in compose.read_text()


@pytest.mark.parametrize("image", ["{registry}/unknown:1.0", "127.0.0.1:9/a/server:1.0"])
def test_without_an_answer_nothing_is_changed_and_one_line_says_so(registry: str, tmp_path: Path, image: str) -> None:
    compose = tmp_path / "compose.yaml"
    text = f"image: {registry}/a/server:1.2\nimage: {image.format(registry=registry)}\n"
    compose.write_text(text)
    done = pin(compose)
    assert (done.returncode, done.stdout, compose.read_text()) == (4, "", text)
    assert len(done.stderr.splitlines()) == 1 and "nothing was changed" in done.stderr


def test_every_image_of_the_files_is_found() -> None:
    program = f"""
import importlib.util, json
spec = importlib.util.spec_from_file_location("pin_images", {str(SCRIPT)!r})
module = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
files = module.FILES + sorted(module.FOLDER.glob("kubernetes/**/*.yaml"))
found = [match["name"] for file in files for match in module.IMAGE.finditer(file.read_text())]
print(json.dumps([found, [module.registry_url(name) for name in ("caddy", "a/b", "ghcr.io/a/b", "localhost:5000/a")]]))
"""
    found, addresses = json.loads(
        subprocess.run([sys.executable, "-c", program], capture_output=True, check=True).stdout
    )
    expected = {
        "caddy",
        "postgres",
        "docker",
        "python",
        "prefecthq/prefect",
        "versity/versitygw",
        "wollomatic/socket-proxy",
    }
    assert expected | {"ghcr.io/mlflow/mlflow", "ghcr.io/astral-sh/uv", "ratchet-worker", "ratchet-trainer"} == set(
        found
    )
    assert addresses == [
        ["https://registry-1.docker.io", "library/caddy"],
        ["https://registry-1.docker.io", "a/b"],
        ["https://ghcr.io", "a/b"],
        ["http://localhost:5000", "a"],
    ]
