"""Sockets of the servers on the loopback interface."""

import asyncio
import socket
from types import SimpleNamespace

import pytest

from ratchet.components.core import http_requests
from ratchet.components.core.http_requests import listen_on_loopback


def test_accepted_connections_send_small_packets_at_once():
    with listen_on_loopback(0, backlog=1) as listening, socket.create_connection(listening.getsockname()):
        accepted, _ = listening.accept()
        with accepted:
            assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


def test_writes_are_joined_in_their_order_and_large_ones_are_not_held_back():
    written = []
    transport = SimpleNamespace(
        write=written.append, close=lambda: written.append("closed"), get_write_buffer_size=lambda: 0
    )

    async def play():
        joined = http_requests._JoinedWrites(transport, asyncio.get_running_loop())
        joined.write(b"head ")
        joined.write(b"body")
        assert written == []
        await asyncio.sleep(0)
        assert written == [b"head body"]
        for _ in range(100):  # without a pause in between: the transport must see them, or nothing stops the writer
            joined.write(b"x" * 10_000)
        assert sum(map(len, written)) > 900_000
        joined.write(b"end")
        joined.close()
        assert b"".join(written[1:-1]) == b"x" * 1_000_000 + b"end" and written[-1] == "closed"

    asyncio.run(play())


@pytest.mark.parametrize("unsent", [0, 1])
def test_a_timer_ends_a_closed_connection_only_where_something_is_unsent(unsent):
    timers = []
    loop = SimpleNamespace(call_later=lambda *timer: timers.append(timer))
    transport = SimpleNamespace(close=lambda: None, abort=object(), get_write_buffer_size=lambda: unsent)
    http_requests._JoinedWrites(transport, loop).close()
    assert timers == [(http_requests.BODY_SECONDS, transport.abort)] * unsent


@pytest.mark.slow
def test_a_writer_waits_for_a_client_that_does_not_read_and_ends_without_it(monkeypatch):
    import uvicorn

    monkeypatch.setattr(http_requests, "BODY_SECONDS", 0.3)
    sent = []

    async def app(scope, receive, send):
        await send({"type": "http.response.start", "status": 200, "headers": []})
        for _ in range(1000):
            await send({"type": "http.response.body", "body": b"x" * 100_000, "more_body": True})
            sent.append(100_000)

    async def play():
        config = uvicorn.Config(app, http=http_requests.bounded_protocol(), lifespan="off", log_config=None)
        server = uvicorn.Server(config)
        with listen_on_loopback(0, backlog=1) as listening:
            serving = asyncio.create_task(server.serve([listening]))
            with socket.create_connection(listening.getsockname()) as client:
                client.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
                while not sent:
                    await asyncio.sleep(0.01)
                await asyncio.sleep(0.2)
                assert sum(sent) < 30_000_000  # what the sockets hold
                while server.server_state.connections:
                    await asyncio.sleep(0.01)
            server.should_exit = True
            await serving

    asyncio.run(asyncio.wait_for(play(), 30))
