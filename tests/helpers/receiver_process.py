"""`ratchet receive` in a process of its own, over a home that a test gives."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from ratchet.components.core.processes import free_port


class ReceiverProcess(NamedTuple):
    url: str
    key: str
    process: subprocess.Popen[bytes]

    @property
    def headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.key}"}


def start(home: Path, *options: str, port: int = 0, before: Sequence[str] = ()) -> ReceiverProcess:
    port = port or free_port()
    command = [*before, sys.executable, "-m", "ratchet.cli", "receive", "--port", str(port), *options]
    log = (home.parent / f"{home.name}.log").open("ab")
    process = subprocess.Popen(command, env={**os.environ, "RATCHET_HOME": str(home)}, stdout=log, stderr=log)
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and process.poll() is None:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                break
        time.sleep(0.02)
    key = home / "credentials" / "receive"
    return ReceiverProcess(f"http://127.0.0.1:{port}", key.read_text() if key.exists() else "", process)


@contextmanager
def receiving(home: Path, *options: str) -> Iterator[ReceiverProcess]:
    """Receive during the block; the process ends as by Ctrl-C."""
    receiver = start(home, *options)
    try:
        yield receiver
    finally:
        receiver.process.send_signal(signal.SIGINT)
        receiver.process.wait(30)
