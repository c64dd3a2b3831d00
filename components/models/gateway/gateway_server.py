"""HTTP server of a gateway: OpenAI Chat Completions, OpenAI Responses and Anthropic Messages for each of its sessions.

    POST /v1/chat/completions, /v1/responses, /v1/messages, /v1/messages/count_tokens; GET /v1/models, /v1/models/MODEL
    POST /sessions                 begin a session (with the gateway's key): its key and addresses
    POST /s/NAME/finish            end one, with its outcome
    GET  /health

A session is named by its own key, or with the gateway's key by `/s/NAME/v1/…` or the header X-Ratchet-Session. The server
listens on the loopback interface. It is plain ASGI without a framework: bodies are bounded while they arrive, and each error
has the form of its protocol.
"""

import asyncio
import contextlib
import logging
import re
import socket
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import msgspec

from ratchet.components.core import ConfigurationError, InfrastructureError, RatchetError
from ratchet.components.core.errors import install_command
from ratchet.components.core.http_requests import (
    Message,
    Receive,
    RequestFault,
    Send,
    bounded_protocol,
    header_values,
    listen_on_loopback,
    read_body,
)
from ratchet.components.core.request_guard import RequestGuard
from ratchet.components.trajectories.trajectory import Outcome

from .chat_answer import WRITERS, ChatAnswer, encode_event, error_body, models, stream_error
from .chat_request import READERS, ChatRequest, decode_body
from .gateway_sessions import Gateway, Session, SessionTask

_log = logging.getLogger(__name__)
MAX_BODY = 16 << 20
"""Maximum size of a request's body in bytes. A million tokens of text are 4 to 9 MB; the parser, which lets no other thread
run, takes 30 ms for 16 MiB of text, and seconds for as many bytes of small values.
"""
LARGE_BODY = 256 << 10
"""Size from which a body is read in a thread, so that other sessions go on."""
PING_SECONDS = 10.0
"""Seconds between signs of life in a stream whose reply is not there yet."""
BACKLOG = 1024
"""Connections that wait to be accepted."""
ACCEPTED_AT_ONCE = 32
"""Connections accepted in one step of the event loop, before any of them is counted: a burst takes no more descriptors."""
SWEEP_SECONDS = 5.0
SESSION_HEADER = b"x-ratchet-session"
_PATH = re.compile(r"(?:/s/(?P<session>[^/]+))?(?P<rest>/.*)")
_VERSIONS = re.compile(r"(?:/v1)*/(?=.)")


class GatewayApp:
    """The ASGI application of one gateway."""

    def __init__(self, gateway: Gateway) -> None:
        self.gateway = gateway
        self._guard = RequestGuard(self.respond)

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Handle one connection."""
        if scope["type"] == "http":
            await self._guard(scope, receive, send)

    async def respond(self, scope: Message, receive: Receive, send: Send) -> None:
        """Answer one request; every failure is an answer too."""
        path = _PATH.fullmatch(scope["path"])
        rest = path["rest"] if path else scope["path"]
        protocol = _VERSIONS.sub("", rest, count=1).rstrip("/")
        try:
            name = _session_name(scope, path["session"] if path else None)
            await self._route(scope["method"], protocol, name, scope, receive, send)
        except Exception as error:
            fault = _as_fault(protocol, error)
            await _send_json(send, fault.status, error_body(protocol, fault), fault.wait)

    async def _route(
        self, method: str, protocol: str, name: str | None, scope: Message, receive: Receive, send: Send
    ) -> None:
        if (method, protocol) == ("GET", "health"):
            await _send_json(send, 200, self.gateway.state())
            return
        keys = _keys(scope)
        if method == "GET" and (protocol == "models" or protocol.startswith("models/")):
            self.gateway.find(keys, name)
            await _send_json(send, 200, models(self.gateway.model, protocol.partition("/")[2]))
            return
        if protocol not in (*READERS, "messages/count_tokens", "sessions", "finish"):
            paths = ", ".join(f"/v1/{each}" for each in READERS)
            raise RequestFault(f"no path {scope['path'][:80]!r} here; use {paths}", 404, "not_found")
        if method != "POST":
            # Codex tries a WebSocket six times after another status.
            socketed = "websocket" in header_values(scope, b"upgrade")
            raise RequestFault("no WebSocket here; use POST", 426) if socketed else RequestFault("use POST", 405)
        if protocol == "sessions":
            await self._open(keys, receive, send, scope)
            return
        session = self.gateway.find(keys, name)
        if protocol == "finish":
            ended = _convert(await read_body(scope, receive, MAX_BODY), _SessionEnd)
            outcome = Outcome(
                ended.success, ended.score, None, None, not ended.truncated, ended.truncated, ended.reason
            )
            branches = await self.gateway.finish(session, outcome)
            await _send_json(send, 200, {"episodes": [trajectory.episode_id for trajectory, _ in branches]})
            return
        with session.work():
            body = await read_body(scope, receive, MAX_BODY)
            if len(body) > LARGE_BODY:
                request = await asyncio.to_thread(_read, protocol, session, body)
            else:
                request = _read(protocol, session, body)
            if protocol == "messages/count_tokens":
                await _send_json(send, 200, {"input_tokens": await self.gateway.count_tokens(session, request)})
                return
            await self._answer(protocol, session, request, receive, send)

    async def _open(self, keys: set[str], receive: Receive, send: Send, scope: Message) -> None:
        if len(keys) != 1 or not self.gateway.is_own_key(next(iter(keys))):
            raise RequestFault("only the gateway's key begins sessions", 401, "invalid_api_key")
        wanted = _convert(await read_body(scope, receive, MAX_BODY), _NewSession)
        session = self.gateway.open(wanted.name, wanted)
        await _send_json(send, 200, {"name": session.name, "key": session.key, "path": f"/s/{session.name}/v1"})

    async def _answer(
        self, protocol: str, session: Session, request: ChatRequest, receive: Receive, send: Send
    ) -> None:
        """Answer a request for a reply, as a whole or as a stream; a client that goes away cancels its request."""
        whole, events = WRITERS[protocol]
        answering = asyncio.ensure_future(self.gateway.answer(session, request))
        leaving = asyncio.ensure_future(_disconnected(receive))
        try:
            if not request.stream:
                await asyncio.wait((answering, leaving), return_when=asyncio.FIRST_COMPLETED)
                if answering.done():
                    await _send_json(send, 200, whole(answering.result()))
                return
            # A refusal before the stream begins is an HTTP status; a later one is an event of the stream.
            await asyncio.wait((answering, leaving), timeout=PING_SECONDS, return_when=asyncio.FIRST_COMPLETED)
            if answering.done() and answering.exception() is not None:
                await answering
            await send(_start(200, b"text/event-stream", [(b"x-accel-buffering", b"no")]))
            async for part in _stream(protocol, answering, leaving, events):
                await send({"type": "http.response.body", "body": part, "more_body": True})
            await send({"type": "http.response.body", "body": b""})
        finally:
            answering.cancel()
            leaving.cancel()


def _as_fault(protocol: str, error: Exception) -> RequestFault:
    if isinstance(error, RequestFault):
        return error
    if isinstance(error, RatchetError):
        return RequestFault(str(error), 500, "server_error")
    _log.error("a request to %s failed", protocol, exc_info=error)
    return RequestFault("the gateway failed; its log has the reason", 500, "server_error")


def _read(protocol: str, session: Session, body: bytes) -> ChatRequest:
    value = decode_body(body)
    if protocol == "responses":
        value = session.insert_items(value)
    request = READERS["messages" if protocol == "messages/count_tokens" else protocol](value)
    if protocol == "messages" and request.messages[-1]["role"] == "assistant":
        raise RequestFault("a reply that is begun cannot be continued; end the messages with one of the user")
    return request


async def _stream(
    protocol: str, answering: "asyncio.Future[ChatAnswer]", leaving: "asyncio.Future[None]", events: Any
) -> AsyncIterator[bytes]:
    ping = b'event: ping\ndata: {"type": "ping"}\n\n' if protocol == "messages" else b": ping\n\n"
    while not answering.done() and not leaving.done():
        yield ping
        await asyncio.wait((answering, leaving), timeout=PING_SECONDS, return_when=asyncio.FIRST_COMPLETED)
    if not answering.done():
        return
    try:
        answer = answering.result()
    except Exception as error:
        yield encode_event(stream_error(protocol, _as_fault(protocol, error)))
        return
    yield b"".join(map(encode_event, events(answer)))


class _NewSession(SessionTask, frozen=True, forbid_unknown_fields=True):
    name: str | None = None


class _SessionEnd(msgspec.Struct, forbid_unknown_fields=True):
    success: bool | None = None
    score: float | None = None
    reason: str = ""
    truncated: bool = False


def _convert(body: bytes, kind: Any) -> Any:
    try:
        return msgspec.json.decode(body or b"{}", type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise RequestFault(f"the body cannot be read: {error}") from error


def _session_name(scope: Message, in_path: str | None) -> str | None:
    names = {*header_values(scope, SESSION_HEADER), *([in_path] if in_path else [])}
    if len(names) > 1:
        raise RequestFault("the request names two different sessions")
    return names.pop() if names else None


def _keys(scope: Message) -> set[str]:
    """Return the keys that a request presents, as OpenAI's clients and as Anthropic's send them."""
    bearers = [value.partition(" ") for value in header_values(scope, b"authorization")]
    return {
        *(key.strip() for scheme, _, key in bearers if scheme.lower() == "bearer"),
        *header_values(scope, b"x-api-key"),
    }


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def _start(status: int, kind: bytes, headers: list[tuple[bytes, bytes]]) -> Message:
    shared = [(b"content-type", kind), (b"cache-control", b"no-store")]
    return {"type": "http.response.start", "status": status, "headers": [*shared, *headers]}


async def _send_json(send: Send, status: int, value: Any, wait: int = 0) -> None:
    body = msgspec.json.encode(value)
    headers = [(b"content-length", str(len(body)).encode())]
    if wait:
        headers.append((b"retry-after", str(wait).encode()))
    await send(_start(status, b"application/json", headers))
    await send({"type": "http.response.body", "body": body})


class GatewayServer:
    """A gateway that serves in a thread with its own event loop, from `start` to `stop`.

    `port`: on 127.0.0.1, 0 for a free one. `path`: of a Unix socket to listen on as well, for sandboxes without a network.
    `make_gateway` is called in the event loop. Raises ConfigurationError where uvicorn is not installed or the port is taken,
    and at the end InfrastructureError where sessions could not be kept.
    """

    def __init__(self, make_gateway: Callable[[], Gateway], *, port: int = 0, path: Path | None = None) -> None:
        self._make = make_gateway
        self._wanted_port = port
        self._path = path
        self._ready = threading.Event()
        self._ended = threading.Event()
        self._error: BaseException | None = None
        self._server: Any
        self.loop: asyncio.AbstractEventLoop
        self.gateway: Gateway
        self.port = 0

    @property
    def root(self) -> str:
        """Address of the server, without a path."""
        return f"http://127.0.0.1:{self.port}"

    def __enter__(self) -> "GatewayServer":
        threading.Thread(target=self._run, name="gateway", daemon=True).start()
        self._ready.wait()
        if self._error is not None:
            raise self._error
        return self

    def __exit__(self, *_: object) -> None:
        self._server.should_exit = True
        self.wait()
        if self._error is not None:
            raise self._error

    def wait(self) -> None:
        """Return when the server has ended."""
        self._ended.wait()  # after an interrupted `join`, Python 3.11 takes a running thread for an ended one

    def call(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        """Run a coroutine of the gateway in its event loop, from another thread, and return its result."""
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop).result()

    def _run(self) -> None:
        try:
            asyncio.run(self._serve())
        except BaseException as error:
            self._error = error
        finally:
            self._ready.set()
            self._ended.set()

    async def _serve(self) -> None:
        self.loop = asyncio.get_running_loop()
        try:
            import aiohttp  # noqa: F401 - of the client of a model server
            import uvicorn
        except ImportError as error:
            raise ConfigurationError(
                f"the gateway needs uvicorn and aiohttp; install them: {install_command('gateway')}"
            ) from error
        self.gateway = self._make()
        config = uvicorn.Config(
            GatewayApp(self.gateway), http=bounded_protocol(), ws="none", lifespan="off", access_log=False, log_config=None,
            log_level="critical", server_header=False, proxy_headers=False, h11_max_incomplete_event_size=64 << 10,
            timeout_keep_alive=75, timeout_graceful_shutdown=0, backlog=ACCEPTED_AT_ONCE,
        )  # fmt: skip
        self._server = uvicorn.Server(config)
        try:
            with contextlib.ExitStack() as sockets:
                listening = [sockets.enter_context(each) for each in self._sockets()]
                serving = self.loop.create_task(self._server.serve(listening))
                while not self._server.started and not serving.done():
                    await asyncio.sleep(0.005)
                for each in listening:
                    each.listen(BACKLOG)  # asyncio has taken `backlog` for the length of the queue too
                self._ready.set()
                while not self._server.should_exit and not serving.done():
                    with contextlib.suppress(InfrastructureError):  # its reasons are logged; the next round tries again
                        await self.gateway.end_idle()
                    await asyncio.wait((serving,), timeout=SWEEP_SECONDS)
                await serving
                await asyncio.gather(*self._server.server_state.tasks, return_exceptions=True)
        finally:
            try:
                await self.gateway.close()
            finally:
                await self.gateway.queue.close()
                if self._path is not None:
                    self._path.unlink(missing_ok=True)

    def _sockets(self) -> Iterator[socket.socket]:
        """Yield the bound sockets. Raises ConfigurationError for a port that is taken."""
        try:
            port = listen_on_loopback(self._wanted_port, backlog=BACKLOG)
        except OSError as error:
            raise ConfigurationError(
                f"port {self._wanted_port} cannot be used: {error.strerror}; choose another"
            ) from error
        self.port = port.getsockname()[1]
        yield port
        if self._path is not None:
            yield (unix := socket.socket(socket.AF_UNIX))
            unix.bind(str(self._path))
            self._path.chmod(0o666)  # each request needs a key; the folder decides who reaches the socket
