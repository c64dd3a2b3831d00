import contextlib
import http.server
import socket
import threading
import urllib.error
import urllib.request

import pytest

from components.protocol import ConfigurationError
from components.sandboxes import SandboxConfig, make_sandbox
from components.sandboxes.egress import Allowed, Proxy, Refused
from components.sandboxes.inside.forward import Forward


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
    proxy = Proxy(Allowed([f"127.0.0.1:{servers[0]}"]), tmp_path)
    forward = Forward(str(proxy.folder / "proxy"), port=0)
    forward.start()
    return forward.port


def _get(way_out, url):
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({"http": f"http://127.0.0.1:{way_out}"}))
    return opener.open(url, timeout=10).read().decode()


def _say(way_out, text):
    with socket.create_connection(("127.0.0.1", way_out), timeout=10) as channel:
        channel.sendall(text.encode())
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


def test_the_host_that_is_named_is_the_host_that_is_asked(way_out, servers):
    allowed, denied = servers
    asked = f"GET http://127.0.0.1:{allowed}/ HTTP/1.1\r\nHost: 127.0.0.1:{denied}\r\nConnection: keep-alive\r\n\r\n"
    assert _say(way_out, asked).endswith(f"{allowed} 127.0.0.1:{allowed} /")


@pytest.mark.parametrize(
    "asked",
    [
        "GET / HTTP/1.1\r\n\r\n",
        "nonsense\r\n\r\n",
        "GET ftp://x/ HTTP/1.1\r\n\r\n",
        "CONNECT x:y HTTP/1.1\r\n\r\n",
        "\xff\r\n\r\n",
    ],
)
def test_what_is_no_request_to_a_proxy_is_refused(way_out, asked):
    assert _say(way_out, asked).startswith("HTTP/1.1 40")


@pytest.mark.slow
def test_many_connections_are_carried_and_large_answers_too(way_out, servers):
    got = []
    url = f"http://127.0.0.1:{servers[0]}/" + "x" * 50_000
    threads = [threading.Thread(target=lambda: got.append(len(_get(way_out, url)))) for _ in range(40)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert len(got) == 40
    assert min(got) > 50_000


def test_a_host_means_its_two_usual_ports_and_host_and_port_means_that_one():
    allowed = Allowed(["example.org", "example.com:8080", "[::1]:80"])
    for host, port in (("example.org", 80), ("Example.org", 443), ("example.com", 8080), ("::1", 80)):
        allowed.check(host, port)
    for host, port in (
        ("example.org", 22),
        ("example.com", 443),
        ("evil-example.org", 443),
        ("sub.example.org", 443),
        ("", 80),
    ):
        with pytest.raises(Refused):
            allowed.check(host, port)


@pytest.mark.parametrize(
    "entry", ["", "*.example.org", "https://example.org", "a/b", "user@host", "host:port", "host:99999"]
)
def test_an_entry_that_is_no_host_is_refused(entry):
    with pytest.raises(ConfigurationError, match="neither a host nor"):
        Allowed([entry])


@pytest.mark.parametrize("asked", [{"egress": ["example.org"]}, {"runtime": "runsc"}])
def test_what_only_docker_can_give_is_refused_by_local(asked):
    with pytest.raises(ConfigurationError, match="take docker"):
        make_sandbox(SandboxConfig.load({"backend": "local", **asked}))
