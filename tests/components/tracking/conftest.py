"""An MLflow server that the tests of one group share: its start takes longer than what most of them ask of it."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from mlflow_server import mlflow_server


class Served(NamedTuple):
    """The server's address, and the folder in which it keeps artifacts (`mlflow-artifacts:`)."""

    url: str
    artifacts: Path


@pytest.fixture(scope="session")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A server that takes artifacts itself. To be marked xdist_group("mlflow")."""
    home = tmp_path_factory.mktemp("mlflow")

    def command(port: int) -> list[str]:
        return [
            *(sys.executable, "-m", "mlflow", "server", "--backend-store-uri", f"sqlite:///{home}/mlflow.db"),
            *("--serve-artifacts", "--artifacts-destination", str(home / "artifacts")),
            *("--host", "127.0.0.1", "--port", str(port), "--workers", "1"),
        ]

    with mlflow_server(command, home / "server.log") as url:
        yield Served(url, home / "artifacts")
