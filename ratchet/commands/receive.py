"""`ratchet receive`: take the spans of a running service, for a night to learn from."""

import os
from contextlib import suppress
from typing import Annotated

from typer import Option

from ratchet.render.terminal import print_note, print_text


def receive(
    port: Annotated[int, Option(min=1, max=65535, help="Port on 127.0.0.1; 4318 is OTLP's own.")] = 4318,
    max_gb: Annotated[float, Option("--max-gb", min=0.01, help="Disk for what no night has taken; then 503.")] = 8.0,
) -> None:
    """Receive spans over OTLP/HTTP until Ctrl-C: sanitised, stored once, and joined to feedback. A scale with a section
    `traffic` learns from them.

    Clients send the key of .ratchet/credentials/receive. Needs the extra `telemetry`. Examples: `ratchet receive`,
    and for a client: `OTEL_EXPORTER_OTLP_ENDPOINT=http://127.0.0.1:4318
    OTEL_EXPORTER_OTLP_HEADERS="Authorization=Bearer%20$(cat .ratchet/credentials/receive)"`
    """
    from ratchet.components.core import ConfigurationError
    from ratchet.components.core.errors import install_command
    from ratchet.components.core.files import LockHeld, OwnedLock
    from ratchet.components.core.home import credential, credential_path, forget_server, home_folder, record_server
    from ratchet.components.core.http_requests import bounded_protocol
    from ratchet.components.core.processes import require_free_port
    from ratchet.components.core.request_guard import CREDENTIAL_VARIABLE, RequestGuard
    from ratchet.components.traffic.span_receiver import MAX_CONNECTIONS, SpanReceiver
    from ratchet.components.traffic.traffic_store import traffic_file

    try:
        import uvicorn
    except ImportError as error:
        raise ConfigurationError(
            f"ratchet receive needs a web server; install it: {install_command('telemetry')}"
        ) from error

    require_free_port(port, "ratchet receive", "--port")
    url = f"http://127.0.0.1:{port}"
    with OwnedLock(home_folder("traffic") / "receive.lock") as lock:
        try:
            lock.acquire(f"{url}, process {os.getpid()}")
        except LockHeld as error:
            raise ConfigurationError(f"this home receives already at {error.owner}; end that process first") from error
        key = os.environ[CREDENTIAL_VARIABLE] = credential("receive")
        receiver = SpanReceiver(traffic_file(), key, max_bytes=int(max_gb * 1e9))
        server = uvicorn.Server(
            uvicorn.Config(
                RequestGuard(receiver),
                http=bounded_protocol(),
                host="127.0.0.1",
                port=port,
                log_level="error",
                lifespan="off",
                server_header=False,
                limit_concurrency=MAX_CONNECTIONS,
                timeout_graceful_shutdown=10,
            )
        )
        record_server("receive", url, os.getpid())
        print_text(f"{url}/v1/traces")
        print_note(f"key: {credential_path('receive')}; Ctrl-C ends")
        try:
            with suppress(KeyboardInterrupt):  # uvicorn raises it again after the last answer
                server.run()
        finally:
            receiver.close()
            forget_server("receive")
    print_note(", ".join(f"{count} {name}" for name, count in receiver.counts.items()) or "nothing was received")
