import contextlib
import errno
import http.server
import itertools
import socket
import threading
import time
import urllib.error
import urllib.request

import pytest
from patience import LIMIT, until

from ratchet.components.core import ConfigurationError
from ratchet.components.sandboxes import SandboxConfig, egress_proxy, make_sandbox
from ratchet.components.sandboxes.egress_proxy import EgressAllowlist, EgressProxy, EgressRefused
from ratchet.components.sandboxes.in_container.egress_forwarder import EgressForwarder


class Echo(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        text = f"{self.server.server_port} {self.headers['Host']} {self.path}".encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *_):
        return


@pytest.fixture
def servers():
    """Two servers of this machine: one that is allowed, one that is not."""
    with contextlib.ExitStack() as stack:
        both = [stack.enter_context(http.server.ThreadingHTTPServer(("127.0.0.1", 0), Echo)) for _ in range(2)]
        for each in both:
            threading.Thread(target=each.serve_forever, args=(0.02,), daemon=True).start()
            stack.callback(each.shutdown)
        yield [each.server_port for each in both]


@pytest.fixture
def way_out(servers, tmp_path):
    """The port of a forwarder to a proxy that allows the first server."""
    proxy = EgressProxy(EgressAllowlist([f"127.0.0.1:{servers[0]}"]), tmp_path)
    forward = EgressForwarder(str(proxy.folder / "proxy"), port=0)
    forward.start()
    return forward.port


def _get(way_out, url):
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({"http": f"http://127.0.0.1:{way_out}"}))
    return opener.open(url, timeout=LIMIT).read().decode()


def _say(way_out, text):
    with socket.create_connection(("127.0.0.1", way_out), timeout=LIMIT) as channel:
        channel.sendall(text.encode("latin-1"))
        answer = b""
        while data := channel.recv(4096):
            answer += data
    return answer.decode()


def test_an_allowed_host_is_reached_and_another_is_not(way_out, servers):
    allowed, denied = servers
    assert _get(way_out, f"http://127.0.0.1:{allowed}/a?b=c") == f"{allowed} 127.0.0.1:{allowed} /a?b=c"
    for url in (f"http://127.0.0.1:{denied}/", f"http://localhost:{allowed}/", "http://192.0.2.1/"):
        with pytest.raises(urllib.error.HTTPError) as caught:
            _get(way_out, url)
        assert caught.value.code == 403
        assert "egress list" in caught.value.read().decode()


def test_a_tunnel_leads_to_an_allowed_host_alone(way_out, servers):
    allowed, denied = servers
    asked = f"CONNECT 127.0.0.1:{allowed} HTTP/1.1\r\n\r\nGET /in HTTP/1.0\r\nHost: x\r\n\r\n"
    assert _say(way_out, asked).endswith(f"{allowed} x /in")
    assert _say(way_out, f"CONNECT 127.0.0.1:{denied} HTTP/1.1\r\n\r\n").startswith("HTTP/1.1 403")


def _requests(allowed, denied):
    """Requests that two readers may understand differently, by what is wrong with them."""
    host, other = f"127.0.0.1:{allowed}", f"127.0.0.1:{denied}"
    start = f"GET http://{host}/ HTTP/1.1\r\nHost: {host}\r\n"
    return {
        "no absolute target": f"GET / HTTP/1.1\r\nHost: {host}\r\n\r\n",
        "nonsense": "nonsense\r\n\r\n",
        "another scheme": "GET ftp://x/ HTTP/1.1\r\nHost: x\r\n\r\n",
        "no port": "CONNECT x:y HTTP/1.1\r\n\r\n",
        "port out of range": "CONNECT x:99999 HTTP/1.1\r\n\r\n",
        "not ASCII": "\xff\r\n\r\n",
        "another Host": f"GET http://{host}/ HTTP/1.1\r\nHost: {other}\r\n\r\n",
        "no Host": f"GET http://{host}/ HTTP/1.1\r\n\r\n",
        "a second Host": f"{start}Host: {host}\r\n\r\n",
        "another second Host": f"{start}Host: {other}\r\n\r\n",
        "a second Host behind a bare line feed": f"{start}X: y\nHost: {other}\r\n\r\n",
        "a second Host behind a bare carriage return": f"{start}X: y\rHost: {other}\r\n\r\n",
        "a head of bare line feeds": start.replace("\r", "") + "\n",
        "a folded line": f"{start}X: y\r\n Host: {other}\r\n\r\n",
        "a space before the colon": f"{start}Host : {other}\r\n\r\n",
        "a line without a colon": f"{start}Host\r\n\r\n",
        "a name with a tab": f"{start}X\tY: z\r\n\r\n",
        "a null": f"{start}X: \0\r\n\r\n",
        "a user name": f"GET http://{other}@{host}/ HTTP/1.1\r\nHost: {host}\r\n\r\n",
        "a user name in Host, too": f"GET http://{other}@{host}/ HTTP/1.1\r\nHost: {other}@{host}\r\n\r\n",
        "a user name in a tunnel": f"CONNECT {other}@{host} HTTP/1.1\r\n\r\n",
        "a backslash": f"GET http://{host}\\@{other}/ HTTP/1.1\r\nHost: {host}\r\n\r\n",
        "a fragment": f"GET http://{host}/#@{other} HTTP/1.1\r\nHost: {host}\r\n\r\n",
        "a tab in the request line": f"GET\thttp://{host}/ HTTP/1.1\r\nHost: {host}\r\n\r\n",
        "two spaces": f"GET  http://{host}/ HTTP/1.1\r\nHost: {host}\r\n\r\n",
        "an unknown version": f"GET http://{host}/ HTTP/2.0\r\nHost: {host}\r\n\r\n",
        "a tunnel with another Host": f"CONNECT {host} HTTP/1.1\r\nHost: {other}\r\n\r\n",
        "two sizes": f"{start}Content-Length: 0\r\nContent-Length: 30\r\n\r\n",
        "one size twice": f"{start}Content-Length: 0\r\nContent-Length: 0\r\n\r\n",
        "sizes in a list": f"{start}Content-Length: 0, 0\r\n\r\n",
        "a size with a sign": f"{start}Content-Length: +1\r\n\r\nx",
        "a transfer encoding": f"{start}Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "both": f"{start}Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "a second request": f"{start}\r\nGET http://{host}/ HTTP/1.1\r\nHost: {other}\r\n\r\n",
        "too many fields": start + "X: y\r\n" * 200 + "\r\n",
    }


@pytest.mark.parametrize("wrong", list(_requests(1, 2)))
def test_a_request_that_can_be_read_in_two_ways_is_refused_and_reaches_nobody(way_out, servers, wrong, monkeypatch):
    reached = []
    monkeypatch.setattr(Echo, "handle", lambda self: reached.append(1))
    assert _say(way_out, _requests(*servers)[wrong]).startswith("HTTP/1.1 400")
    assert reached == []


def test_the_server_is_sent_one_host_and_no_field_that_belongs_to_the_proxy(way_out, servers, monkeypatch):
    seen = []
    monkeypatch.setattr(Echo, "do_POST", lambda self: (seen.append(self), self.do_GET()), raising=False)
    host = f"127.0.0.1:{servers[0]}"
    own = "Proxy-Authorization: x\r\nConnection: keep-alive, X-Hop\r\nX-Hop: 1\r\nUpgrade: h2c\r\n"
    asked = f"POST http://{host}?a HTTP/1.1\r\nhOST: {host}\r\n{own}X-Kept: 2 3\r\nContent-Length: 3\r\n\r\nabc"
    assert _say(way_out, asked).endswith(f"{host.rpartition(':')[2]} {host} /?a")
    assert sorted((name.lower(), value) for name, value in seen[0].headers.items()) == [
        ("connection", "close"), ("content-length", "3"), ("host", host), ("x-kept", "2 3"),
    ]  # fmt: skip


def test_bytes_after_the_body_are_not_passed_on(way_out, servers, monkeypatch):
    rest = []

    def answer(self):
        body = self.rfile.read(3)
        self.connection.settimeout(0.3)
        with contextlib.suppress(TimeoutError):
            rest.append(self.rfile.read(1))
        self.wfile.write(b"HTTP/1.1 200 OK\r\n\r\n" + body)

    monkeypatch.setattr(Echo, "do_POST", answer, raising=False)
    host = f"127.0.0.1:{servers[0]}"
    with socket.create_connection(("127.0.0.1", way_out), timeout=LIMIT) as channel:
        channel.sendall(f"POST http://{host}/ HTTP/1.1\r\nHost: {host}\r\nContent-Length: 3\r\n\r\n".encode())
        time.sleep(0.1)
        channel.sendall(b"abcGET / HTTP/1.1\r\nHost: another\r\n\r\n")
        assert channel.makefile("rb").read().endswith(b"abc")
    assert rest in ([], [b""])


def test_a_head_that_is_too_large_or_too_slow_is_refused(way_out, monkeypatch):
    assert _say(way_out, "GET http://x/ HTTP/1.1\r\nX: " + "y" * (1 << 17)).startswith("HTTP/1.1 431")
    monkeypatch.setattr(egress_proxy, "HEAD_SECONDS", 0.2)
    assert _say(way_out, "GET http://x/ HTTP/1.1\r\n").startswith("HTTP/1.1 408")


def test_a_refusal_reaches_a_client_that_is_still_sending(way_out, servers):
    host = f"127.0.0.1:{servers[1]}"
    for _ in range(5):
        with socket.create_connection(("127.0.0.1", way_out), timeout=LIMIT) as channel:
            channel.sendall(f"POST http://{host}/ HTTP/1.1\r\nHost: {host}\r\nContent-Length: 5000000\r\n\r\n".encode())
            for _ in range(50):
                channel.sendall(b"x" * 100_000)
            assert channel.makefile("rb").read().startswith(b"HTTP/1.1 403")


@pytest.fixture
def proxy(servers, tmp_path):
    return EgressProxy(EgressAllowlist([f"127.0.0.1:{servers[0]}"]), tmp_path)


def _connect(proxy):
    channel = socket.socket(socket.AF_UNIX)
    channel.connect(str(proxy.folder / "proxy"))
    channel.settimeout(LIMIT)
    return channel


def _asks(proxy, port):
    with _connect(proxy) as channel, contextlib.suppress(BrokenPipeError, ConnectionResetError):
        channel.sendall(f"GET http://127.0.0.1:{port}/ HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n\r\n".encode())
        return channel.makefile("rb").read()
    return b""


def proxy_threads():
    return [thread.name for thread in threading.enumerate()].count("egress")


def test_a_flood_of_one_sandbox_is_bounded_and_leaves_the_others_their_way_out(proxy, servers, monkeypatch):
    monkeypatch.setattr(egress_proxy, "_client_cgroup", lambda client: "flooding")
    with contextlib.ExitStack() as stack:
        before = proxy_threads()
        flood = [stack.enter_context(_connect(proxy)) for _ in range(300)]
        refused = [each.recv(100) for each in flood[egress_proxy.MAX_SANDBOX_CONNECTIONS :]]
        assert all(each.startswith(b"HTTP/1.1 503") for each in refused)
        assert proxy_threads() - before <= egress_proxy.MAX_SANDBOX_CONNECTIONS
        monkeypatch.setattr(egress_proxy, "_client_cgroup", lambda client: "another")
        assert b"200 OK" in _asks(proxy, servers[0])
    monkeypatch.setattr(egress_proxy, "_client_cgroup", lambda client: "flooding")
    until(lambda: b"200 OK" in _asks(proxy, servers[0]))


def test_all_sandboxes_together_have_a_bound(proxy, monkeypatch):
    numbers = itertools.count()
    monkeypatch.setattr(egress_proxy, "_client_cgroup", lambda client: str(next(numbers)))
    monkeypatch.setattr(egress_proxy, "MAX_CONNECTIONS", 20)
    with contextlib.ExitStack() as stack:
        flood = [stack.enter_context(_connect(proxy)) for _ in range(30)]
        assert [each.recv(100)[:12] for each in flood[20:]] == [b"HTTP/1.1 503"] * 10


@pytest.mark.parametrize("error", [errno.EMFILE, errno.ENFILE, errno.ECONNABORTED, errno.ENOMEM])
def test_a_want_of_descriptors_does_not_end_the_way_out(proxy, servers, error):
    class Exhausted:
        def __init__(self, listener):
            self.listener, self.failures = listener, 3

        def accept(self):
            if self.failures:
                self.failures -= 1
                raise OSError(error, "exhausted")
            return self.listener.accept()

    assert b"200 OK" in _asks(proxy, servers[0])
    proxy._listener = Exhausted(proxy._listener)
    assert b"200 OK" in _asks(proxy, servers[0])  # the accept that was under way
    assert b"200 OK" in _asks(proxy, servers[0])
    assert proxy._listener.failures == 0


def test_a_want_of_threads_does_not_end_the_way_out(proxy, servers, monkeypatch):
    start = threading.Thread.start

    def fail(self):
        if self.name == "egress":
            raise RuntimeError("can't start new thread")
        start(self)

    monkeypatch.setattr(threading.Thread, "start", fail)
    assert _asks(proxy, servers[0]) == b""
    monkeypatch.undo()
    assert b"200 OK" in _asks(proxy, servers[0])
    until(lambda: not proxy._connection_counts)


@pytest.mark.slow
def test_many_connections_are_carried_and_large_answers_too(way_out, servers):
    got = []
    url = f"http://127.0.0.1:{servers[0]}/" + "x" * 50_000
    threads = [threading.Thread(target=lambda: got.append(len(_get(way_out, url)))) for _ in range(40)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(LIMIT)
    assert len(got) == 40
    assert min(got) > 50_000


def test_a_host_means_its_two_usual_ports_and_host_and_port_means_that_one():
    allowed = EgressAllowlist(["example.org", "example.com:8080", "[::1]:80"])
    for host, port in (("example.org", 80), ("Example.org", 443), ("example.com", 8080), ("::1", 80)):
        allowed.check(host, port)
    for host, port in (
        ("example.org", 22),
        ("example.com", 443),
        ("evil-example.org", 443),
        ("sub.example.org", 443),
        ("", 80),
    ):
        with pytest.raises(EgressRefused):
            allowed.check(host, port)


@pytest.mark.parametrize(
    "entry", ["", "*.example.org", "https://example.org", "a/b", "user@host", "host:port", "host:99999"]
)
def test_an_entry_that_is_no_host_is_refused(entry):
    with pytest.raises(ConfigurationError, match="neither a host nor"):
        EgressAllowlist([entry])


@pytest.mark.parametrize("asked", [{"egress": ["example.org"]}, {"runtime": "runsc"}])
def test_what_only_docker_can_give_is_refused_by_local(asked):
    with pytest.raises(ConfigurationError, match="take docker"):
        make_sandbox(SandboxConfig.load({"backend": "local", **asked}))
