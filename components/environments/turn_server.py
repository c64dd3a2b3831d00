"""TurnServer: an endpoint of OpenAI's chat completions whose replies an environment's steps decide.

It turns a framework that calls a model into an environment that waits for actions: a request blocks until `reply`.
"""

import asyncio
import json
import queue
import secrets
from contextlib import ExitStack
from typing import Any, Self

from aiohttp import web
from anyio.from_thread import start_blocking_portal

from ratchet.components.core import InfrastructureError

MAX_REQUEST_BYTES = 64 << 20


class TurnServer:
    """A context manager. `base_url`, to which clients append `/chat/completions`, is on loopback and holds a key. One thread
    uses it, for one conversation at a time. Replies are streamed, since the programs of verifiers ask for a stream.
    """

    base_url: str

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._requests: queue.Queue[dict[str, Any] | None] = queue.Queue()
        self._replies: asyncio.Queue[dict[str, Any] | None] = asyncio.Queue()
        self._resources = ExitStack()

    def __enter__(self) -> Self:
        self._portal = portal = self._resources.enter_context(start_blocking_portal())
        key = secrets.token_urlsafe(16)
        app = web.Application(client_max_size=MAX_REQUEST_BYTES)
        app.router.add_post(f"/{key}/v1/chat/completions", self._answer)
        runner = web.AppRunner(app, shutdown_timeout=0.1)  # 0 would wait for a request that nobody answers
        portal.call(runner.setup)
        self._resources.callback(portal.call, runner.cleanup)
        portal.call(web.TCPSite(runner, "127.0.0.1", 0).start)
        self.base_url = f"http://127.0.0.1:{runner.addresses[0][1]}/{key}/v1"
        return self

    def __exit__(self, *_: object) -> None:
        self._portal.call(self._replies.put_nowait, None)
        self._resources.close()

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
        self._portal.call(self._replies.put_nowait, message)

    def end(self) -> None:
        """Say that no further request comes."""
        self._requests.put(None)

    async def _answer(self, request: web.Request) -> web.Response:
        body = await request.json()
        self._requests.put(body)
        message = await self._replies.get()
        if message is None:
            return web.Response(status=503, text="the episode has ended")
        reason = "tool_calls" if "tool_calls" in message else "stop"
        chunk = {
            "id": f"chatcmpl-{secrets.token_hex(8)}", "created": 0, "model": body["model"], "object": "chat.completion.chunk",
            "choices": [{"index": 0, "delta": message, "finish_reason": reason}],
            "usage": {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0},
        }  # fmt: skip
        return web.Response(text=f"data: {json.dumps(chunk)}\n\ndata: [DONE]\n\n", content_type="text/event-stream")
