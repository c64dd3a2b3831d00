"""One command inside a container: the engine's stream, written and read at once up to a cap and a deadline."""

import contextlib
import select
import socket
import struct
import time
from collections.abc import Iterator
from typing import Any

import msgspec

CHUNK = 1 << 16
STANDARD_ERROR = 2
_HEADER = struct.Struct(">BxxxL")


class Printed(msgspec.Struct):
    """What came. `complete`: the stream came to its end; otherwise it was `over` the cap, or late."""

    stdout: bytearray
    stderr: bytearray
    complete: bool = False
    over: bool = False


class Frames:
    """Takes the engine's stream apart: a frame is 8 bytes of header (output and size), then so many bytes."""

    def __init__(self) -> None:
        self._header = bytearray()
        self._kind = 0
        self._left = 0

    def feed(self, data: bytes) -> Iterator[tuple[int, bytes]]:
        """The pieces (1 is standard output, 2 standard error) that stand in `data`; it may begin and end anywhere."""
        while data:
            if self._left == 0:
                missing = _HEADER.size - len(self._header)
                self._header += data[:missing]
                data = data[missing:]
                if len(self._header) < _HEADER.size:
                    return
                self._kind, self._left = _HEADER.unpack(self._header)
                self._header.clear()
            piece, data = data[: self._left], data[self._left :]
            self._left -= len(piece)
            if piece:
                yield self._kind, piece


def converse(stream: Any, stdin: bytes | None, seconds: float, limit: int) -> Printed:
    """Send `stdin` and read both outputs until they end, `seconds` have passed, or more than `limit` bytes came."""
    channel: socket.socket = getattr(stream, "_sock", stream)
    printed = Printed(bytearray(), bytearray())
    frames = Frames()
    try:
        for data in _exchange(stream, channel, stdin, time.monotonic() + seconds):
            for kind, piece in frames.feed(data):
                room = limit - len(printed.stdout) - len(printed.stderr)
                (printed.stderr if kind == STANDARD_ERROR else printed.stdout).extend(piece[:room])
                if len(piece) > room:
                    printed.over = True
                    return printed
        printed.complete = True
    except TimeoutError:
        return printed
    finally:
        _hang_up(stream, channel)
    return printed


def _exchange(stream: Any, channel: socket.socket, stdin: bytes | None, deadline: float) -> Iterator[bytes]:
    """What comes, while `stdin` goes: a command that prints before it has read everything would block otherwise."""
    channel.setblocking(False)
    yield _early(stream)
    unsent = memoryview(stdin or b"")
    if not unsent:
        _end_input(channel)
    poll = select.poll()
    poll.register(channel, select.POLLIN | (select.POLLOUT if unsent else 0))
    while True:
        left = deadline - time.monotonic()
        events = poll.poll(left * 1000) if left > 0 else []
        if not events:
            raise TimeoutError
        if events[0][1] & ~select.POLLOUT:
            data = _receive(channel)
            if not data:
                return
            yield data
        elif unsent:
            unsent = _send(channel, unsent)
            if not unsent:
                _end_input(channel)
                poll.modify(channel, select.POLLIN)


def _early(stream: Any) -> bytes:
    """What the SDK's HTTP client read beyond the headers; it would be lost with its buffer."""
    reader: Any = stream
    for name in ("_response", "raw", "_fp", "fp"):
        reader = getattr(reader, name, None)
    data: bytes = b"" if reader is None else reader.peek()
    return data


def _receive(channel: socket.socket) -> bytes:
    try:
        return channel.recv(CHUNK)
    except ConnectionResetError:
        return b""


def _send(channel: socket.socket, unsent: memoryview) -> memoryview:
    try:
        return unsent[channel.send(unsent[:CHUNK]) :]
    except BlockingIOError:
        return unsent
    except (BrokenPipeError, ConnectionResetError):  # the command ended without reading its input
        return memoryview(b"")


def _end_input(channel: socket.socket) -> None:
    with contextlib.suppress(OSError):
        channel.shutdown(socket.SHUT_WR)


def _hang_up(stream: Any, channel: socket.socket) -> None:
    """Really end the connection (the SDK's response keeps it open): an engine that cannot write waits, and all with it."""
    with contextlib.suppress(OSError):
        channel.shutdown(socket.SHUT_RDWR)
    stream.close()
