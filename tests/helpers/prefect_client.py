"""A Prefect server that tests share, the process that runs it, and requests by HTTP."""

import base64
import json
import os
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx
from patience import LIMIT

SERVER = """
import json, os, sys, traceback
answers = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)  # what Prefect prints is no answer
from ratchet.flows.home_servers import PrefectServer
server = PrefectServer().start()
server.ready(limit=960)  # where many tests run at once, to prepare the database takes minutes
from prefect.client.orchestration import get_client  # after the server has set the environment
answer = {name: os.environ[name] for name in ("PREFECT_API_URL", "PREFECT_API_AUTH_STRING")}
print(json.dumps(answer), file=answers, flush=True)
for line in sys.stdin:
    try:
        with get_client(sync_client=True) as client:
            names = {"__name__": "__main__", "client": client}
            exec(json.loads(line), names)
        answer = {"answer": names["answer"]}
    except Exception:
        answer = {"error": traceback.format_exc()}
    print(json.dumps(answer), file=answers, flush=True)
server.stop()
"""


class SharedPrefect:
    """A home whose Prefect server runs until `stop`. Prefect is imported once, in the process that runs the server."""

    def __init__(self, home: Path) -> None:
        outside = {name: value for name, value in os.environ.items() if not name.startswith(("PREFECT_", "MLFLOW_"))}
        self.environment = outside | {"RATCHET_HOME": str(home)}
        """Environment of a process of this home: it uses the server."""
        self.home = home
        with (home / "shared-server.log").open("wb") as log:
            pipes: Any = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": log, "text": True}
            self._process = subprocess.Popen([sys.executable, "-c", SERVER], env=self.environment, **pipes)
        self.address: dict[str, str] = self._read()
        """Variables that name the server and its credential to a process of another home."""

    def run(self, script: str) -> Any:
        """Return what a script assigns to `answer`, as JSON holds it. `client` is Prefect's synchronous client."""
        assert self._process.stdin is not None
        print(json.dumps(script), file=self._process.stdin, flush=True)
        found = self._read()
        assert "error" not in found, found["error"]
        return found["answer"]

    def other_home(self, home: Path) -> dict[str, str]:
        """Environment of another home that uses the server."""
        return self.environment | self.address | {"RATCHET_HOME": str(home)}

    def copy_database(self, home: Path) -> dict[str, str]:
        """Environment of a new home whose own server finds its database prepared, which takes longer than to start."""
        (home / "prefect").mkdir(parents=True)
        source = sqlite3.connect(self.home / "prefect" / "prefect.db")
        target = sqlite3.connect(home / "prefect" / "prefect.db")
        source.backup(target)  # a copied file would lack what its log still holds
        source.close()
        target.close()
        return self.environment | {"RATCHET_HOME": str(home)}

    def stop(self) -> None:
        """End the server."""
        self._process.communicate(timeout=5 * LIMIT)

    def _read(self) -> Any:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, (self.home / "shared-server.log").read_text()[-2000:]
        return json.loads(line)


def ask(address: dict[str, str], path: str, body: dict[str, Any]) -> Any:
    """The answer of the server that PREFECT_API_URL and PREFECT_API_AUTH_STRING of a mapping name."""
    login = base64.b64encode(address["PREFECT_API_AUTH_STRING"].encode()).decode()
    headers = {"Authorization": f"Basic {login}"}
    url = address["PREFECT_API_URL"] + path
    return httpx.post(url, json=body, headers=headers, timeout=LIMIT, trust_env=False).raise_for_status().json()
