"""A collector of OTLP traces on the loopback interface: it keeps what it is sent, as JSON values."""

import gzip
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from receivers import serving


class Collector(HTTPServer):
    """`answer`: HTTP status of every answer; `spans`: all received spans."""

    answer = 200

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Export)
        self.spans: list[Any] = []
        self.resources: list[dict[str, Any]] = []
        self.requests = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def named(self, prefix: str) -> list[Any]:
        """Return the spans whose name begins so, in the order of their start."""
        return sorted(
            (one for one in self.spans if one.name.startswith(prefix)), key=lambda one: one.start_time_unix_nano
        )


class _Export(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        server = self.server
        assert isinstance(server, Collector)
        server.requests += 1
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if self.headers.get("Content-Encoding") == "gzip":
            body = gzip.decompress(body)
        if server.answer == 200:
            assert self.path == "/v1/traces"
            request = ExportTraceServiceRequest.FromString(body)
            for resource in request.resource_spans:
                server.resources.append(attributes(resource.resource))
                for scope in resource.scope_spans:
                    server.spans.extend(scope.spans)
        self.send_response(server.answer)
        self.send_header("Content-Type", "application/x-protobuf")
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *args: Any) -> None:
        pass


def attributes(span: Any) -> dict[str, Any]:
    """Return the attributes of a span or a resource."""
    return {item.key: _value(item.value) for item in span.attributes}


def _value(value: Any) -> Any:
    kind = value.WhichOneof("value")
    return [_value(item) for item in value.array_value.values] if kind == "array_value" else getattr(value, kind)


@contextmanager
def collecting(monkeypatch: Any) -> Iterator[Collector]:
    """Receive traces during the block; the endpoint is set for this process and its children."""
    from ratchet.components.core import otlp_export

    otlp_export._exporter.cache_clear()
    with serving(Collector()) as collector:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url)
        yield collector
    otlp_export._exporter.cache_clear()
