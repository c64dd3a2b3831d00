"""One command inside a container: the engine's stream, read up to a cap and a deadline."""

import socket
import struct
import time
from collections.abc import Iterator
from typing import Any

import msgspec

CHUNK = 1 << 16
_HEADER = struct.Struct(">BxxxL")


class Printed(msgspec.Struct):
    """What came. `complete`: the stream came to its end; otherwise `over` the cap, or late."""

    stdout: bytearray
    stderr: bytearray
    complete: bool = False
    over: bool = False


def converse(stream: Any, stdin: bytes | None, seconds: float, limit: int) -> Printed:
    """Send `stdin`, then read both outputs until they end, `seconds` have passed, or more than `limit` bytes came."""
    channel: socket.socket = getattr(stream, "_sock", stream)
    printed = Printed(bytearray(), bytearray())
    deadline = time.monotonic() + seconds
    try:
        if stdin is not None:
            channel.settimeout(seconds)
            channel.sendall(stdin)
            channel.shutdown(socket.SHUT_WR)
        for kind, data in _frames(stream, channel, deadline):
            room = limit - len(printed.stdout) - len(printed.stderr)
            (printed.stderr if kind == 2 else printed.stdout).extend(data[:room])
            if len(data) > room:
                printed.over = True
                return printed
        printed.complete = True
    except TimeoutError:
        return printed
    except BrokenPipeError:
        printed.complete = True  # the command ended without reading its input
    finally:
        stream.close()
    return printed


def _frames(stream: Any, channel: socket.socket, deadline: float) -> Iterator[tuple[int, bytes]]:
    """The engine's frames (1 is standard output, 2 standard error), each in pieces."""
    while header := _exactly(stream, channel, _HEADER.size, deadline):
        kind, left = _HEADER.unpack(header)
        while left:
            data = _some(stream, channel, min(left, CHUNK), deadline)
            if not data:
                return
            left -= len(data)
            yield kind, data


def _exactly(stream: Any, channel: socket.socket, size: int, deadline: float) -> bytes:
    data = b""
    while len(data) < size:
        more = _some(stream, channel, size - len(data), deadline)
        if not more:
            return b""
        data += more
    return data


def _some(stream: Any, channel: socket.socket, size: int, deadline: float) -> bytes:
    left = deadline - time.monotonic()
    if left <= 0:
        raise TimeoutError
    channel.settimeout(left)
    data: bytes = stream.read(size) or b""
    return data
