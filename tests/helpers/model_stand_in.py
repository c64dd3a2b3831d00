"""A model server of the standard library for tests: it answers as it is told, faults included, and remembers what it was asked."""

import json
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from patience import until

Answer = Callable[["Handler"], None]


class Server(ThreadingHTTPServer):
    """`script` is used up answer by answer, then `otherwise` goes on. `asked` holds the bodies, `headers` the headers.

    `closing` is set at the end: what is answered late, or for ever, is answered until then.
    """

    daemon_threads = True
    request_queue_size = 256

    def __init__(self, script: list[Answer], otherwise: Answer) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.script = script
        self.otherwise = otherwise
        self.asked: list[dict[str, Any]] = []
        self.paths: list[str] = []
        self.headers: list[dict[str, str]] = []
        self.at: list[float] = []
        self.running = 0
        self.most = 0
        self.lock = threading.Lock()
        self.closing = threading.Event()

    @property
    def base_url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/v1"

    def handle_error(self, request: Any, client_address: Any) -> None:
        pass


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Server

    def _serve(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.asked = json.loads(body) if body else {}
        with self.server.lock:
            self.server.running += 1
            self.server.most = max(self.server.most, self.server.running)
            self.server.asked.append(self.asked)
            self.server.paths.append(self.path)
            self.server.headers.append(dict(self.headers))
            self.server.at.append(time.monotonic())
            answer = self.server.script.pop(0) if self.server.script else self.server.otherwise
        try:
            answer(self)
        finally:
            with self.server.lock:
                self.server.running -= 1

    do_POST = do_GET = _serve

    def log_message(self, *arguments: Any) -> None:
        pass

    def reply(self, status: int, body: bytes, **headers: str) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        for name, value in {"Content-Type": "application/json", **headers}.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(body)


def completion(message: dict[str, Any] | str = "ok", finish: str | None = "stop", **more: Any) -> dict[str, Any]:
    """A chat completion as a server writes it."""
    message = {"role": "assistant", "content": message} if isinstance(message, str) else message
    choice = {"index": 0, "message": message, "finish_reason": finish, **more.pop("choice", {})}
    usage = {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10}
    return {"id": "x", "object": "chat.completion", "choices": [choice], "usage": usage, **more}


def says(message: dict[str, Any] | str = "ok", finish: str | None = "stop", **more: Any) -> Answer:
    return gives(200, completion(message, finish, **more))


def gives(status: int, body: Any, **headers: str) -> Answer:
    """Any answer; `body` is bytes or becomes JSON."""
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    return lambda handler: handler.reply(status, raw, **headers)


def never(handler: Handler) -> None:
    """No answer at all, for as long as the server stands."""
    handler.server.closing.wait()
    handler.close_connection = True


def together(count: int, answer: Answer) -> Answer:
    """Answers once so many have been asked at the same time, however long that takes them."""

    def respond(handler: Handler) -> None:
        until(lambda: handler.server.most >= count or handler.server.closing.is_set())
        answer(handler)

    return respond


def cut(handler: Handler) -> None:
    """Half of the body that was announced, then the end of the connection."""
    handler.send_response(200)
    handler.send_header("Content-Type", "application/json")
    handler.send_header("Content-Length", "5000")
    handler.end_headers()
    handler.wfile.write(b'{"choices": [{"message"')
    handler.close_connection = True


def cut_chunks(handler: Handler) -> None:
    """A chunked body without its end."""
    handler.send_response(200)
    handler.send_header("Content-Type", "application/json")
    handler.send_header("Transfer-Encoding", "chunked")
    handler.end_headers()
    handler.wfile.write(b'5\r\n{"cho\r\n')
    handler.close_connection = True


def reset(handler: Handler) -> None:
    """The connection reset without a word."""
    handler.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    handler.connection.shutdown(socket.SHUT_RD)
    handler.connection.close()
    handler.close_connection = True


def drip(handler: Handler) -> None:
    """A byte now and then, as long as the server stands: no pause is long enough for a read time-out."""
    handler.send_response(200)
    handler.send_header("Content-Type", "application/json")
    handler.send_header("Content-Length", "100000")
    handler.end_headers()
    while not handler.server.closing.wait(0.02):
        handler.wfile.write(b" ")
        handler.wfile.flush()


@contextmanager
def stand_in(*script: Answer, otherwise: Answer | None = None) -> Iterator[Server]:
    """A running server on a loopback port."""
    server = Server(list(script), otherwise or says())
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.closing.set()
        server.shutdown()
        server.server_close()
        thread.join()
