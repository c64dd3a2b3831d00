"""Limits on the head, the body and the time of requests, and the error of a refused one, for all ASGI servers of Ratchet."""

import asyncio
import resource
import socket
import zlib
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

HEAD_SECONDS = 15.0
"""Seconds in which a request's first line and headers must arrive."""
BODY_SECONDS = 30.0
"""Seconds in which a request's body must arrive, and in which a client must read on."""
MAX_JOINED = 1 << 16


class RequestFault(Exception):
    """A request is refused: HTTP `status`, a `kind` in the words of OpenAI's API, and one sentence. `wait`: seconds after which
    the client should send it again; 0 for never.
    """

    def __init__(self, message: str, status: int = 400, kind: str = "invalid_request_error", wait: int = 0) -> None:
        super().__init__(message)
        self.status = status
        self.kind = kind
        self.wait = wait


def header_values(scope: Message, name: bytes) -> list[str]:
    """Return the values of a header, `name` in small letters."""
    return [value.decode("latin-1").strip() for key, value in scope["headers"] if key.lower() == name]


async def read_body(scope: Message, receive: Receive, limit: int) -> bytes:
    """Return a request's body, decompressed (gzip, deflate), of at most `limit` bytes, as sent and after decompression.

    Raises RequestFault for a body that is too large, too slow, cut short or not readable.
    """
    encoding = next(iter(header_values(scope, b"content-encoding")), "identity").lower()
    if encoding not in ("identity", "gzip", "deflate"):
        raise RequestFault(f"content encoding '{encoding[:100]}' is not read; send gzip, deflate or none", 415)
    unzip = None if encoding == "identity" else zlib.decompressobj(zlib.MAX_WBITS | 32)
    too_large = RequestFault(f"the body is larger than {limit >> 20} MiB; send less at once", 413)
    declared = next(iter(header_values(scope, b"content-length")), "")
    if declared.isdigit() and int(declared) > limit:
        raise too_large
    body, received, more = bytearray(), 0, True
    try:
        async with asyncio.timeout(BODY_SECONDS):
            while more:
                message = await receive()
                if message["type"] == "http.disconnect":
                    raise RequestFault("the connection ended before the body")
                chunk, more = message.get("body", b""), message.get("more_body", False)
                received += len(chunk)
                body += chunk if unzip is None else unzip.decompress(chunk, limit + 1 - len(body))
                if max(received, len(body)) > limit:
                    raise too_large
    except TimeoutError as error:
        raise RequestFault(f"the body did not arrive within {BODY_SECONDS:g} s", 408, "timeout") from error
    except zlib.error as error:
        raise RequestFault(f"the body is no valid {encoding}") from error
    if unzip is not None and (not unzip.eof or unzip.unused_data):
        raise RequestFault(f"the body's {encoding} is cut short, or is followed by something else")
    return bytes(body)


def listen_on_loopback(port: int, backlog: int) -> socket.socket:
    """Return a socket that listens on 127.0.0.1 at `port` (0: a free one), for uvicorn. Raises OSError for a port that is taken."""
    listening = socket.create_server(("127.0.0.1", port), backlog=backlog)
    # asyncio sets this only on sockets that were made with a protocol number. Without it, the body of an answer waits 40 ms for
    # the acknowledgement of its head.
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listening


class _JoinedWrites:
    """A transport that sends what is written within one step of the event loop at once. uvicorn writes the head of an answer
    and its body apart: the first packet wakes the client, which on a busy machine takes the processor before the second.
    """

    def __init__(self, transport: Any, loop: asyncio.AbstractEventLoop) -> None:
        self._transport, self._loop = transport, loop
        self._parts: list[bytes] = []
        self._size = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def write(self, data: bytes) -> None:
        if not self._parts:
            self._loop.call_soon(self._send)
        self._parts.append(data)
        self._size += len(data)
        if self._size > MAX_JOINED:  # the transport pauses a writer whose client does not read
            self._send()

    def close(self) -> None:
        self._send()
        self._transport.close()
        if self._transport.get_write_buffer_size():
            # `close` waits until what is written is sent: for ever, if the client does not read it.
            self._loop.call_later(BODY_SECONDS, self._transport.abort)

    def _send(self) -> None:
        parts, self._parts, self._size = self._parts, [], 0
        if parts:
            self._transport.write(b"".join(parts))


def bounded_protocol() -> type[asyncio.Protocol]:
    """Return uvicorn's HTTP protocol with HEAD_SECONDS, BODY_SECONDS and a limit on connections, for `uvicorn.Config(http=…)`.
    Raises ImportError without uvicorn.
    """
    import h11
    from uvicorn.protocols.http.h11_impl import H11Protocol

    class BoundedH11Protocol(H11Protocol):
        """uvicorn's own protocol has no limit on the time of a request's head, nor on that of a client that does not read."""

        _head: asyncio.TimerHandle | None = None
        _reader: asyncio.TimerHandle | None = None
        active = 0.0
        """Time of the loop when the client last sent something."""

        def connection_made(self, transport: Any) -> None:
            super().connection_made(_JoinedWrites(transport, self.loop))  # type: ignore[arg-type]
            self.active = self.loop.time()
            self._head = self.loop.call_later(HEAD_SECONDS, self.transport.close)
            # The files and pipes of the rest of this process need descriptors too.
            if len(self.connections) > resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 2:
                others = (
                    each for each in self.connections if isinstance(each, BoundedH11Protocol) and each is not self
                )
                idle = (each for each in others if not each.busy and not each.transport.is_closing())
                # The longest idle one: a request may be on its way in the newest.
                min(idle, key=lambda each: each.active, default=self).transport.abort()

        @property
        def busy(self) -> bool:
            """Whether a request is in work."""
            return self.cycle is not None and not self.cycle.response_complete

        def data_received(self, data: bytes) -> None:
            self.active = self.loop.time()
            super().data_received(data)
            if self.conn.their_state is not h11.IDLE:
                if self._head is not None:
                    self._head.cancel()
                self._head = None
            elif self._head is None:  # a further request has begun
                self._head = self.loop.call_later(HEAD_SECONDS, self.transport.close)

        def pause_writing(self) -> None:
            super().pause_writing()
            self._reader = self.loop.call_later(BODY_SECONDS, self.transport.abort)

        def resume_writing(self) -> None:
            super().resume_writing()
            if self._reader is not None:
                self._reader.cancel()

    return BoundedH11Protocol
