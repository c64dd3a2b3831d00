"""TurnServer: an endpoint of OpenAI's chat completions whose replies an environment's steps decide.

It turns a framework that calls a model into an environment that waits for actions: a request blocks until `reply`.
"""

import json
import queue
import secrets
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

from ratchet.components.core import InfrastructureError

MAX_REQUEST_BYTES = 64 << 20


class TurnServer:
    """A context manager. `base_url` holds a key, on loopback. One thread uses it, for one conversation at a time."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._requests: queue.Queue[dict[str, Any] | None] = queue.Queue()
        self._replies: queue.Queue[dict[str, Any] | None] = queue.Queue()
        self._key = secrets.token_urlsafe(16)
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True

    @property
    def base_url(self) -> str:
        """URL of the API, to which clients append `/chat/completions`."""
        return f"http://127.0.0.1:{self._server.server_address[1]}/{self._key}/v1"

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._replies.put(None)
        self._server.shutdown()
        self._server.server_close()

    def next_request(self) -> dict[str, Any] | None:
        """Return the body of the next request; None after `end`. Raises InfrastructureError after the time limit."""
        try:
            return self._requests.get(timeout=self._seconds)
        except queue.Empty:
            raise InfrastructureError(
                f"the framework asked for no turn in {self._seconds:g} s; is its task hung?"
            ) from None

    def reply(self, text: str, call: tuple[str, str, dict[str, Any]] | None = None) -> None:
        """Answer the pending request by an assistant message; `call`: id, tool and arguments of a tool call."""
        message: dict[str, Any] = {"role": "assistant", "content": text}
        if call is not None:
            function = {"name": call[1], "arguments": json.dumps(call[2])}
            message["tool_calls"] = [{"index": 0, "id": call[0], "type": "function", "function": function}]
        self._replies.put(message)

    def end(self) -> None:
        """Say that no further request comes."""
        self._requests.put(None)

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True  # else a body waits 40 ms for the acknowledgement of its head

            def do_POST(self) -> None:
                length = int(self.headers.get("Content-Length") or 0)
                if self.path != f"/{outer._key}/v1/chat/completions" or not 0 < length <= MAX_REQUEST_BYTES:
                    self.send_error(404)
                    return
                body = json.loads(self.rfile.read(length))
                outer._requests.put(body)
                message = outer._replies.get()
                if message is None:
                    self.send_error(503, "the episode has ended")
                    return
                self._send(body, message)

            def _send(self, body: dict[str, Any], message: dict[str, Any]) -> None:
                stream = bool(body.get("stream"))
                reason = "tool_calls" if "tool_calls" in message else "stop"
                completion = {
                    "id": f"chatcmpl-{secrets.token_hex(8)}", "created": 0, "model": body.get("model", ""),
                    "object": "chat.completion.chunk" if stream else "chat.completion",
                    "choices": [{"index": 0, "delta" if stream else "message": message, "finish_reason": reason}],
                    "usage": {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0},
                }  # fmt: skip
                text = json.dumps(completion)
                data = (f"data: {text}\n\ndata: [DONE]\n\n" if stream else text).encode()
                self.send_response(200)
                self.send_header("Content-Type", "text/event-stream" if stream else "application/json")
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, format: str, *args: Any) -> None:
                return

        return Handler
