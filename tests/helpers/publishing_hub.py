"""A hub that takes uploads: the answers that huggingface_hub asks for to create a repository and commit to it, over real HTTP."""

import base64
import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

WEIGHTS = ".safetensors"
"""Suffix of files that are uploaded as objects and not within the commit."""


class Repositories:
    """What was published: `files` by repository, and for each its `private`; `paths` that were asked for."""

    def __init__(self, token: str) -> None:
        self.token = token
        self.files: dict[str, dict[str, bytes]] = {}
        self.private: dict[str, bool] = {}
        self.objects: dict[str, bytes] = {}
        self.paths: list[str] = []
        self.failures: list[int] = []
        """Statuses to answer with, before anything is taken."""


@contextmanager
def publishing_hub(token: str) -> Iterator[tuple[str, Repositories]]:
    """Serve an empty hub; its address, and what it holds."""
    hub = Repositories(token)

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            content = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            hub.paths.append(self.path)
            if hub.failures:
                return self._answer(hub.failures.pop(0), {"error": "not now"})
            if self.headers.get("Authorization") != f"Bearer {hub.token}":
                return self._answer(401, {"error": "Invalid credentials"})
            if self.path == "/api/repos/create":
                return self._create(json.loads(content))
            if self.path == "/api/validate-yaml":
                return self._answer(200, {"errors": [], "warnings": []})
            repository = self.path.removeprefix("/api/").split("/", 1)[-1].rpartition("/")[0].rpartition("/")[0]
            if "/preupload/" in self.path:
                return self._answer(200, {"files": [_mode(file) for file in json.loads(content)["files"]]})
            if self.path.endswith("/objects/batch"):
                return self._answer(
                    200,
                    {"transfer": "basic", "objects": [self._upload(item) for item in json.loads(content)["objects"]]},
                )
            return self._commit(repository, content)

        def do_PUT(self):
            content = self.rfile.read(int(self.headers["Content-Length"]))
            hub.objects[hashlib.sha256(content).hexdigest()] = content
            self._answer(200, {})

        def do_GET(self):
            hub.paths.append(self.path)
            if self.headers.get("Authorization") != f"Bearer {hub.token}":
                return self._answer(401, {"error": "Invalid credentials"})
            self._answer(200, {"id": "x", "sha": "0" * 40, "siblings": []})

        def _create(self, request):
            name = f"{request['organization']}/{request['name']}"
            if name in hub.files:
                return self._answer(409, {"error": "exists", "url": f"{address}/{name}"})
            hub.files[name], hub.private[name] = (
                {},
                request.get("visibility") == "private" or bool(request.get("private")),
            )
            prefix = {"dataset": "datasets/"}.get(request.get("type"), "")
            return self._answer(200, {"url": f"{address}/{prefix}{name}"})

        def _upload(self, item):
            return {**item, "actions": {"upload": {"href": f"{address}/objects/{item['oid']}"}}}

        def _commit(self, repository, content):
            for line in map(json.loads, content.splitlines()):
                value = line["value"]
                if line["key"] == "file":
                    hub.files[repository][value["path"]] = base64.b64decode(value["content"])
                elif line["key"] == "lfsFile":
                    hub.files[repository][value["path"]] = hub.objects[value["oid"]]
            oid = hashlib.sha1(content).hexdigest()
            self._answer(200, {"commitUrl": f"{address}/{repository}/commit/{oid}", "commitOid": oid})

        def _answer(self, code, values):
            content = json.dumps(values).encode()
            self.send_response(code)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *given):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    address = f"http://127.0.0.1:{server.server_port}"
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    try:
        yield address, hub
    finally:
        server.shutdown()
        server.server_close()


def _mode(file):
    mode = "lfs" if file["path"].endswith(WEIGHTS) else "regular"
    return {"path": file["path"], "uploadMode": mode, "shouldIgnore": False}
