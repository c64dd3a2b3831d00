"""A started container, and the connection to its session: the container's first process, which runs the commands.

The messages are defined in in_container/session_protocol.py.
"""

import contextlib
import itertools
import json
import os
import select
import socket
import struct
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from importlib import resources
from typing import Any

from ratchet.components.core import SandboxUnavailable
from ratchet.components.core.processes import owner_label

from . import docker_engine
from .container_spec import AGENT_USER, ContainerSpec
from .in_container.session_protocol import CHUNK, DATA, PIECE_HEADER, RESULT, SIZE_FIELD

STANDARD_ERROR = 2
MAX_PIECE_BYTES = 1 << 24
STDERR_TAIL_BYTES = 2000
_FRAME_HEADER = struct.Struct(">BxxxL")


class SessionLost(Exception):
    """The session ended, or did not answer in time (`timed_out`). Its container cannot be used any more."""

    def __init__(self, reason: str, *, timed_out: bool = False) -> None:
        super().__init__(reason)
        self.timed_out = timed_out


class AttachStreamDecoder:
    """Splits the engine's attach stream into standard output and standard error.

    A frame is an 8-byte header (stream number, size) and `size` bytes.
    """

    def __init__(self) -> None:
        self._header = bytearray()
        self._stream_number = 0
        self._remaining = 0

    def feed(self, data: bytes) -> Iterator[tuple[int, bytes]]:
        """Yield (stream number, bytes) for `data`, which may begin and end anywhere in a frame.

        Stream 1 is standard output, 2 standard error.
        """
        while data:
            if self._remaining == 0:
                missing = _FRAME_HEADER.size - len(self._header)
                self._header += data[:missing]
                data = data[missing:]
                if len(self._header) < _FRAME_HEADER.size:
                    return
                self._stream_number, self._remaining = _FRAME_HEADER.unpack(self._header)
                self._header.clear()
            piece, data = data[: self._remaining], data[self._remaining :]
            self._remaining -= len(piece)
            if piece:
                yield self._stream_number, piece


class SessionChannel:
    """A connection to a session. One request at a time; `close` may be called from any thread and ends a waiting call.

    `stream`: a socket, or the object that the SDK's `attach_socket` returns.
    """

    def __init__(self, stream: Any) -> None:
        self._stream = stream
        # The SDK's object buffers and blocks; its socket is used directly, in non-blocking mode.
        self._socket: socket.socket = getattr(stream, "_sock", stream)
        self._socket.setblocking(False)
        self._frames = AttachStreamDecoder()
        self._pieces = bytearray()
        self._stderr_tail = bytearray()
        self._decode(_prefetched_bytes(stream))

    @property
    def stderr_tail(self) -> str:
        """The end of the session's standard error, which usually says why it ended."""
        return self._stderr_tail.decode("utf-8", "replace").strip()

    def send(self, data: bytes, seconds: float) -> None:
        """Send raw bytes, such as the session's source, within `seconds`. Raises SessionLost."""
        for _ in self._exchange(iter([data]), time.monotonic() + seconds):
            pass

    def ask(
        self, request: dict[str, Any], body: Iterable[bytes], seconds: float, on_piece: Callable[[bytes, bytes], None]
    ) -> dict[str, Any]:
        """Send a request with its `body` and return its result, within `seconds`. Raises SessionLost.

        Pieces of output that precede the result are passed to `on_piece` (kind, bytes).
        """
        text = json.dumps(request).encode()
        return self.receive_result(seconds, on_piece, _chunks(SIZE_FIELD.pack(len(text)) + text, body))

    def receive_result(
        self, seconds: float, on_piece: Callable[[bytes, bytes], None], unsent: Iterable[bytes] = ()
    ) -> dict[str, Any]:
        """Return the next result, within `seconds`, sending the chunks of `unsent` meanwhile. Raises SessionLost.

        `on_piece`: see `ask`.
        """
        results: list[dict[str, Any]] = []
        for data in self._exchange(iter(unsent), time.monotonic() + seconds, until=lambda: bool(results)):
            self._decode(data)
            for kind, piece in self._complete_pieces():
                if kind == RESULT:
                    results.append(json.loads(piece))
                else:
                    on_piece(kind, piece)
        return results[0]

    def _decode(self, data: bytes) -> None:
        for output, piece in self._frames.feed(data):
            if output == STANDARD_ERROR:
                self._stderr_tail = (self._stderr_tail + piece)[-STDERR_TAIL_BYTES:]
            else:
                self._pieces += piece

    def _complete_pieces(self) -> Iterator[tuple[bytes, bytes]]:
        position = 0
        while len(self._pieces) - position >= PIECE_HEADER.size:
            kind, size = PIECE_HEADER.unpack_from(self._pieces, position)
            if size > MAX_PIECE_BYTES:
                raise SessionLost("the session does not keep to its protocol")
            end = position + PIECE_HEADER.size + size
            if len(self._pieces) < end:
                break
            yield kind, bytes(self._pieces[position + PIECE_HEADER.size : end])
            position = end
        del self._pieces[:position]

    def _exchange(
        self, unsent: Iterator[bytes], deadline: float, until: Callable[[], bool] = lambda: True
    ) -> Iterator[bytes]:
        """Yield received bytes while `unsent` is sent, until everything is sent and `until` returns True."""
        sending = memoryview(next(unsent, b""))
        poll = select.poll()
        poll.register(self._socket, select.POLLIN)
        while True:
            # Send and receive in one loop: with both sides' buffers full, a side that only sends waits for ever.
            while sending and (rest := self._send(sending)) is not None:
                sending = rest or memoryview(next(unsent, b""))
            if not sending and until():
                return
            poll.modify(self._socket, select.POLLIN | (select.POLLOUT if sending else 0))
            seconds = deadline - time.monotonic()
            events = poll.poll(seconds * 1000) if seconds > 0 else []
            if not events:
                raise SessionLost("the session does not answer", timed_out=True)
            if events[0][1] & ~select.POLLOUT:
                data = self._receive()
                if not data:
                    raise SessionLost("the session ended")
                yield data

    def _send(self, data: memoryview) -> memoryview | None:
        """Send some bytes and return the unsent rest; None if the socket's buffer is full."""
        try:
            return data[self._socket.send(data[:CHUNK]) :]
        except BlockingIOError:
            return None
        except OSError as error:
            raise SessionLost(f"the session cannot be reached: {error}") from error

    def _receive(self) -> bytes:
        try:
            return self._socket.recv(CHUNK)
        except BlockingIOError as error:
            raise SessionLost("the session cannot be read") from error
        except OSError:
            return b""

    def is_connected(self) -> bool:
        """Return True if the session is connected. Sends nothing; call it only between two requests."""
        try:
            # An idle session sends nothing, so a readable socket means the end of the connection.
            poll = select.poll()
            poll.register(self._socket, select.POLLIN)
            return not poll.poll(0)
        except (OSError, ValueError):
            return False

    def close(self) -> None:
        """Shut the connection down, which ends the session."""
        # close() would not do: the SDK's response object holds the socket too and keeps it open.
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    def detach(self) -> None:
        """Close this process's file descriptor; call once, also after `close`. A parent's connection stays open."""
        # shutdown() in a forked child would end the connection for the parent as well.
        # The SDK's stream and its response refer to each other: a descriptor would stay open until both are collected.
        for opened in (getattr(self._stream, "_response", self._stream), self._stream):
            with contextlib.suppress(OSError):
                opened.close()


def _chunks(head: bytes, body: Iterable[bytes]) -> Iterator[bytes]:
    """Yield `head` and `body`, small pieces joined. No chunk is empty: `_exchange` takes an empty one for the end."""
    for piece in body:
        if len(head) + len(piece) > CHUNK and head:
            yield head
            head = piece
        else:
            head += piece
    if head:
        yield head


def _prefetched_bytes(stream: Any) -> bytes:
    """Return the bytes that the SDK's HTTP client has read beyond the response's headers into its own buffer."""
    reader: Any = stream
    for name in ("_response", "raw", "_fp", "fp"):
        reader = getattr(reader, name, None)
    data: bytes = b"" if reader is None else reader.peek()
    return data


LIFETIME_SECONDS = 24 * 3600
RESET_SECONDS = 30.0
FILE_SECONDS = 60.0
MAX_ANSWER_BYTES = 1 << 30
SESSION_MODULES = (
    "session_protocol",
    "workspace_files",
    "seccomp_filter",
    "egress_forwarder",
    "command_runner",
    "session",
)
# Executes the first Python that can run the session. `exec`: the session must be the container's first process.
FIND_PYTHON = """
for python in python3 /opt/conda/bin/python3 /opt/miniconda3/bin/python3 /usr/libexec/platform-python; do
  "$python" -I -S -c 'import ctypes, sys; sys.exit(sys.version_info < (3, 9))' 2>/dev/null &&
  exec "$python" -I -S -X utf8 -c "$0" "$@"
done
exit 97
"""
# Reads the session's modules from standard input and runs them as a package. Compiled with postponed annotations: Python
# 3.9 of an image would evaluate `int | None` in a signature and fail.
BOOT_SESSION = """
import __future__, json, os, sys, types
size, lifetime = map(int, sys.argv[1:])
source = b""
while len(source) < size:
    source += os.read(0, size - len(source)) or sys.exit()
package = sys.modules["in_container"] = types.ModuleType("in_container")
package.__path__ = []
for name, text in json.loads(source):
    module = sys.modules["in_container." + name] = types.ModuleType("in_container." + name)
    module.__package__ = "in_container"
    setattr(package, name, module)
    exec(compile(text, "in_container/" + name + ".py", "exec", __future__.annotations.compiler_flag), module.__dict__)
del source, text
package.session.run_session(lifetime)
"""

_container_numbers = itertools.count(1)


@cache
def session_source() -> bytes:
    """Return the source code of the session's modules as JSON, in the form that BOOT_SESSION reads."""
    folder = resources.files(f"{__package__}.in_container")
    return json.dumps(
        [(name, (folder / f"{name}.py").read_text(encoding="utf-8")) for name in SESSION_MODULES]
    ).encode()


class SessionContainer:
    """One container. When this process disconnects, the session and the container end, and the engine removes it.

    `reusable` is False if the image has writable mounts that the session cannot empty, or if the container was not
    clean when it started.
    """

    def __init__(self, spec: ContainerSpec, timeout: float) -> None:
        """Create and start the container and wait for its session; `timeout` bounds each of these steps, in seconds.

        If one fails, the container is removed again. Raises SandboxUnavailable.
        """
        self.spec, self._timeout = spec, timeout
        name = f"ratchet-{os.getpid()}-{next(_container_numbers)}-{uuid.uuid4().hex[:6]}"
        self.id = name
        self._channel: SessionChannel | None = None
        try:
            with docker_engine.translate_errors("start a container"):
                self._start(docker_engine.docker_client(timeout).api, name)
            greeting = self._receive_greeting()
        except BaseException:
            self.remove()  # by name: a create that timed out may have succeeded
            raise
        self.reusable = not greeting["unmanaged_mounts"] and not greeting["residue"]

    def _start(self, api: Any, name: str) -> None:
        settings = {
            "name": name,
            "entrypoint": ["/bin/sh", "-c", FIND_PYTHON, BOOT_SESSION],
            "command": [str(len(session_source())), str(LIFETIME_SECONDS)],
            "user": AGENT_USER,
            "working_dir": "/workspace",
            "environment": self.spec.environment(),
            "hostname": "sandbox",
            "labels": {docker_engine.LABEL: "1", docker_engine.OWNER_LABEL: owner_label()},
            "host_config": self.spec.host_config(api),
            "stdin_open": True,
            "healthcheck": {"test": ["NONE"]},  # that of an image would run while commands run
        }
        self.id = api.create_container(self.spec.image, **settings)["Id"]
        streams = {"stdin": 1, "stdout": 1, "stderr": 1, "stream": 1}
        # Attach before start: the session's first output would be lost otherwise.
        self._channel = SessionChannel(api.attach_socket(self.id, params=streams))
        api.start(self.id)

    def _receive_greeting(self) -> dict[str, Any]:
        try:
            self.channel.send(session_source(), self._timeout)
            return self.channel.receive_result(self._timeout, lambda kind, data: None)
        except SessionLost as error:
            raise SandboxUnavailable(
                f"no session started in the sandbox's container: {self.channel.stderr_tail or error}; its image needs /bin/sh and "
                f"a python3 (3.9 or newer, with ctypes) on its PATH, and the user {AGENT_USER} must be able to run both"
            ) from error

    @property
    def channel(self) -> SessionChannel:
        """The connection to the session. Raises SandboxUnavailable."""
        if self._channel is None:
            raise SandboxUnavailable("the container has no session")
        return self._channel

    def ask(
        self,
        request: Mapping[str, Any],
        body: Iterable[bytes] = (),
        seconds: float = FILE_SECONDS,
        on_piece: Callable[[bytes, bytes], None] = lambda kind, data: None,
    ) -> dict[str, Any]:
        """Send a request and return its result; see SessionChannel.ask. Raises SessionLost."""
        return self.channel.ask(dict(request), body, seconds, on_piece)

    def fetch(self, request: Mapping[str, Any], on_data: Callable[[bytes], object]) -> dict[str, Any]:
        """Send a request, pass the data of its answer to `on_data`, and return its result.

        Raises SessionLost, also if the data exceed MAX_ANSWER_BYTES.
        """
        allowance = MAX_ANSWER_BYTES

        def on_piece(kind: bytes, data: bytes) -> None:
            nonlocal allowance
            allowance -= len(data)
            if kind != DATA or allowance < 0:
                raise SessionLost("the session sends more than it may")
            on_data(data)

        return self.ask(request, on_piece=on_piece)

    def reset(self) -> list[str]:
        """Restore the initial state; return what could not be restored, or why the container was lost. Never raises."""
        if not self.reusable:
            return ["it has writable mounts that cannot be emptied"]
        try:
            return list(self.ask({"do": "reset"}, seconds=RESET_SECONDS)["residue"])
        except (SessionLost, KeyError) as error:
            return [str(error)]

    def is_connected(self) -> bool:
        """Whether the session is still connected."""
        return self.channel.is_connected()

    def ran_out_of_memory(self, since: float) -> bool:
        """See docker_engine.ran_out_of_memory."""
        return docker_engine.ran_out_of_memory(self.id, since, self._timeout)

    def close(self) -> None:
        """Disconnect without waiting. The session then kills every process and ends, and the engine removes the container."""
        if self._channel is not None:
            self._channel.close()

    def remove(self) -> None:
        """Disconnect and wait until the container is gone. Never raises."""
        self.close()
        try:
            docker_engine.remove_container(self.id, self._timeout)
        except SandboxUnavailable:
            return  # the engine does not answer; the container ends all the same, because it is disconnected
        finally:
            self.detach()

    def detach(self) -> None:
        """Close the inherited connection in a fork; it remains the parent's."""
        if self._channel is not None:
            self._channel.detach()
