"""A hub of models on this machine: the few answers that huggingface_hub asks for, over real HTTP."""

import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path


@contextmanager
def hub(
    repositories: dict[str, dict[str, Path]],
    *,
    licence: str = "apache-2.0",
    refused: dict[str, tuple[int, str]] | None = None,
) -> Iterator[tuple[str, list[str]]]:
    """Serves `{name: {revision: folder}}`; its address, and the paths that were asked for. `refused`: status and error code
    by the name of a repository.
    """
    asked: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_HEAD(self):
            self._answer(body=False)

        def do_GET(self):
            self._answer(body=True)

        def _answer(self, *, body):
            asked.append(self.path)
            name, revision, file = _parts(self.path)
            if name in (refused or {}):
                return self._error(*refused[name])
            if name not in repositories:
                return self._error(401, "RepoNotFound")
            if (found := _folder(repositories[name], revision)) is None:
                return self._error(404, "RevisionNotFound")
            if "/tree/" in self.path:
                return self._send(json.dumps(_tree(found)).encode(), "application/json", body)
            if file is None:
                return self._send(json.dumps(_info(name, found, licence)).encode(), "application/json", body)
            if not (found / file).is_file():
                return self._error(404, "EntryNotFound")
            return self._send((found / file).read_bytes(), "application/octet-stream", body, commit_of(found))

        def _send(self, content, kind, body, commit=None):
            self.send_response(200)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(content)))
            if commit:
                self.send_header("X-Repo-Commit", commit)
                self.send_header("ETag", f'"{hashlib.sha256(content).hexdigest()}"')
            self.end_headers()
            if body:
                self.wfile.write(content)

        def _error(self, code, kind):
            self.send_response(code)
            self.send_header("X-Error-Code", kind)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *given):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", asked
    finally:
        server.shutdown()
        server.server_close()


def commit_of(folder: Path) -> str:
    """The commit that a folder is served as: 40 hex digits."""
    return hashlib.sha1(str(folder).encode()).hexdigest()


def _parts(path):
    """Repository, revision and file (None: the repository itself) that a path asks for."""
    path = path.partition("?")[0]
    if path.startswith("/api/models/"):
        name, _, rest = path.removeprefix("/api/models/").partition("/revision/")
        return name.partition("/tree/")[0], rest or path.partition("/tree/")[2].split("/")[0] or "main", None
    name, _, rest = path.removeprefix("/").partition("/resolve/")
    revision, _, file = rest.partition("/")
    return name, revision, file


def _folder(revisions, revision):
    return revisions.get(revision) or next(
        (folder for folder in revisions.values() if commit_of(folder) == revision), None
    )


def _tree(folder):
    files = [path for path in sorted(folder.iterdir()) if path.is_file()]
    return [{"type": "file", "path": path.name, "size": path.stat().st_size, "oid": "0" * 40} for path in files]


def _info(name, folder, licence):
    files = [path for path in sorted(folder.iterdir()) if path.is_file()]
    return {
        "id": name,
        "modelId": name,
        "sha": commit_of(folder),
        "private": False,
        "tags": [f"license:{licence}"],
        "siblings": [{"rfilename": path.name, "size": path.stat().st_size} for path in files],
        "cardData": {"license": licence},
    }
