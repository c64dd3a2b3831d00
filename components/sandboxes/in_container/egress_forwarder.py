"""Forward a loopback port of a container without network to the egress proxy, through a Unix socket.

Runs as a thread of the session, out of reach of commands. It inspects nothing: the proxy decides (egress_proxy.py).
"""

import contextlib
import select
import socket
import threading

EGRESS_PORT = 3128
CHUNK = 1 << 16
MAX_FORWARDED = 16


class EgressForwarder:
    """Connects each client of the loopback `port` to the socket at `path`.

    At most MAX_FORWARDED connections at once; others wait in the listener's queue.
    """

    def __init__(self, path: str, port: int = EGRESS_PORT) -> None:
        self._path = path
        self._listener = socket.create_server(("127.0.0.1", port), backlog=64)
        self.port = self._listener.getsockname()[1]
        self._peers: dict[socket.socket, socket.socket] = {}
        self._unsent: dict[socket.socket, bytes] = {}
        self._half_closed: set[socket.socket] = set()  # proxy connections that only read any more

    def start(self) -> None:
        """Serve in a daemon thread."""
        threading.Thread(target=self._serve, name="forward", daemon=True).start()

    def _serve(self) -> None:
        while True:
            poll = select.poll()
            if len(self._peers) < 2 * MAX_FORWARDED:
                poll.register(self._listener, select.POLLIN)
            numbers = {endpoint.fileno(): endpoint for endpoint in self._peers}
            for endpoint, peer in self._peers.items():
                reading = select.POLLIN if not self._unsent[peer] and endpoint not in self._half_closed else 0
                poll.register(endpoint, reading | (select.POLLOUT if self._unsent[endpoint] else 0))
            for number, events in poll.poll():
                if number == self._listener.fileno():
                    self._accept()
                elif numbers[number] in self._peers:
                    self._transfer(numbers[number], events)

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            inner, _ = self._listener.accept()
            inner.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # else small packets wait 40 ms
            outer = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            try:
                outer.connect(self._path)
            except OSError:
                inner.close()
                outer.close()
                return
            for endpoint, peer in ((inner, outer), (outer, inner)):
                endpoint.setblocking(False)
                self._peers[endpoint] = peer
                self._unsent[endpoint] = b""

    def _transfer(self, endpoint: socket.socket, events: int) -> None:
        """Write unsent bytes to `endpoint` and read from it; close both connections at the end of either."""
        peer = self._peers[endpoint]
        try:
            if events & select.POLLOUT:
                self._unsent[endpoint] = self._unsent[endpoint][endpoint.send(self._unsent[endpoint]) :]
            if events & ~select.POLLOUT:
                data = endpoint.recv(CHUNK)
                if data:
                    self._unsent[peer] = data
                elif endpoint.family == socket.AF_UNIX and not events & select.POLLHUP:
                    # The proxy has answered but still reads. Closing now would reset the client's connection, and a client
                    # that is still sending would lose the answer.
                    self._half_closed.add(endpoint)
                    peer.shutdown(socket.SHUT_WR)
                else:
                    self._close_pair(endpoint, peer)
        except BlockingIOError:
            return
        except OSError:
            self._close_pair(endpoint, peer)

    def _close_pair(self, endpoint: socket.socket, peer: socket.socket) -> None:
        with contextlib.suppress(OSError):
            peer.setblocking(True)
            peer.settimeout(1.0)
            peer.sendall(self._unsent[peer])
        for closed in (endpoint, peer):
            del self._peers[closed], self._unsent[closed]
            self._half_closed.discard(closed)
            closed.close()
