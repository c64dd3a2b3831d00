"""The MLflow client: where MLflow keeps its records, and the server of its UI.

The tracking URI is always set: MLFLOW_TRACKING_URI where given, else SQLite in the local state folder (RATCHET_HOME,
`.ratchet` by default). MLflow's own default would create a database in the current folder.
"""

import contextlib
import logging
import os
import re
import sqlite3
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import unquote, urlparse

from ratchet.components.core import ConfigurationError, InfrastructureError, request_guard
from ratchet.components.core.home import home, private_home

if TYPE_CHECKING:
    from mlflow import MlflowClient

ARTIFACTS = "mlartifacts"
"""Folder below `home()` for artifacts and checkpoints, unless RATCHET_ARTIFACTS or a server says otherwise."""
_environment_lock = threading.RLock()
_QUIET = ("mlflow", "alembic")
_NAMED = "MLFLOW_TRACKING_URI"
_BOUNDS = {
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "20",
    "MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR": "false",
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
}


def tracking_uri() -> str:
    """Return MLFLOW_TRACKING_URI, or SQLite under `home()`."""
    return os.environ.get("MLFLOW_TRACKING_URI") or f"sqlite:///{home() / 'mlflow.db'}"


def artifact_root() -> str | None:
    """Return the URI below which artifacts and checkpoints lie; None where a server decides.

    RATCHET_ARTIFACTS (a folder, or `s3://bucket/prefix`) where set, else beside the database.
    """
    if configured := os.environ.get("RATCHET_ARTIFACTS"):
        return configured.rstrip("/") if "://" in configured else Path(configured).expanduser().absolute().as_uri()
    return None if tracking_uri().startswith(("http://", "https://")) else (home() / ARTIFACTS).as_uri()


def client() -> "MlflowClient":
    """Return the client of `tracking_uri()`; the first call imports mlflow and creates an empty database, which takes
    seconds.

    A server is not contacted yet. MLflow's client retries a failed request once; write what must not be lost with
    `record_upload.RecordWriter`.
    """
    return _client(tracking_uri())


def preload_mlflow() -> threading.Thread:
    """Import mlflow and create the database in a background thread, which is returned started, so that a night does not
    wait for them. Never raises.
    """

    def load() -> None:
        try:
            client().search_experiments(max_results=1)
        except Exception:  # the first real call says what is wrong
            logging.getLogger(__name__).debug("MLflow is not ready", exc_info=True)

    thread = threading.Thread(target=load, name="mlflow-warm", daemon=True)
    thread.start()
    return thread


def server_command(port: int) -> list[str]:
    """Return the command that serves MLflow's UI of the local records on 127.0.0.1; see `server_environment`.

    Raises ConfigurationError where MLFLOW_TRACKING_URI names a server already.
    """
    if artifact_root() is None or tracking_uri().startswith("http"):
        raise ConfigurationError("MLFLOW_TRACKING_URI names a server already; open that one instead")
    return [
        *(sys.executable, "-m", "uvicorn", "--factory", f"{__name__}:server_app"),
        *("--host", "127.0.0.1", "--port", str(port), "--log-level", "warning"),
    ]


def server_environment(password: str) -> dict[str, str]:
    """Return the variables to add to the environment of the server's process; `password` is the credential that it asks
    for.
    """
    return {"MLFLOW_DISABLE_TELEMETRY": "true", request_guard.CREDENTIAL_VARIABLE: password}


def server_app() -> Any:
    """Return MLflow's web application over the local database, wrapped in RequestGuard; called by uvicorn in the
    server's process. Sets environment variables and creates the database.

    `mlflow server` sets the same variables and starts uvicorn on the same application, but wraps it in nothing.
    """
    root = artifact_root()
    assert root is not None
    if root.startswith("file:"):
        Path(unquote(urlparse(root).path)).mkdir(parents=True, exist_ok=True)
    _make_database(tracking_uri())
    from mlflow.server import constants
    from mlflow.server.handlers import initialize_backend_stores

    os.environ[constants.BACKEND_STORE_URI_ENV_VAR] = tracking_uri()
    os.environ[constants.ARTIFACT_ROOT_ENV_VAR] = root
    initialize_backend_stores(tracking_uri(), None, root)
    from mlflow.server.fastapi_app import app

    return request_guard.RequestGuard(app)


def _make_database(uri: str) -> None:
    """Make the file of an SQLite database, readable by its owner alone; SQLite gives its journals the same mode."""
    if uri.startswith("sqlite:///"):
        private_home()
        path = Path(uri.removeprefix("sqlite:///").partition("?")[0])
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch(mode=0o600)
        _follow_move(path)


@cache
def _follow_move(database: Path) -> None:
    """Let the records of a home that was moved or copied name its own artifacts, not those of the first home."""
    if database != home() / "mlflow.db":
        return
    artifacts_folder = home() / ARTIFACTS
    own = artifacts_folder.as_uri()
    roots = set[str]()
    with contextlib.closing(sqlite3.connect(database, timeout=60)) as connection:
        if not connection.execute("select 1 from sqlite_master where name = 'experiments'").fetchone():
            return
        for (location,) in connection.execute("select artifact_location from experiments"):
            other_home, found, name = str(location).rpartition(f"/{ARTIFACTS}/")
            root, folder = f"{other_home}/{ARTIFACTS}", Path(unquote(urlparse(other_home).path))
            if (
                not found
                or root == own
                or not root.startswith("file:")
                or not (artifacts_folder / unquote(name)).is_dir()
            ):
                continue
            if (folder / database.name).exists() or not folder.exists():  # else RATCHET_ARTIFACTS named it
                roots.add(root)
    if roots:
        pattern = re.compile("|".join(re.escape(f"{root}/") for root in sorted(roots)))
        replace_in_database(database, lambda text: pattern.sub(lambda _: f"{own}/", text))


def replace_in_database(path: Path, replace: Callable[[str], str]) -> None:
    """Apply `replace` to every text of an SQLite database: artifact locations, sources of versions, parameters, tags."""
    with contextlib.closing(sqlite3.connect(path, timeout=60)) as database, database:
        database.create_function("moved", 1, lambda value: replace(value) if isinstance(value, str) else value)
        tables = [name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        for table in tables:
            for column in [row[1] for row in database.execute(f'PRAGMA table_info("{table}")')]:
                database.execute(
                    f'UPDATE "{table}" SET "{column}" = moved("{column}") '
                    f'WHERE typeof("{column}") = \'text\' AND "{column}" != moved("{column}")'
                )


@contextmanager
def default_tracking_uri() -> Iterator[None]:
    """Make `tracking_uri()` MLflow's default within the block, because MLflow's SQL registry resolves `models:/<id>`
    only against the default.

    Afterwards the previous default, also one set by `mlflow.set_tracking_uri`, and the environment are restored. Other
    threads that enter the block wait.
    """
    import mlflow

    with _environment_lock:
        previous_uri, previous_variable = mlflow.get_tracking_uri(), os.environ.get(_NAMED)
        try:
            mlflow.set_tracking_uri(tracking_uri())
            yield
        finally:
            _choose(None, previous_variable)
            if mlflow.get_tracking_uri() != previous_uri:
                _choose(previous_uri, previous_variable)


def _choose(uri: str | None, named: str | None) -> None:
    """Set MLflow's default, and restore the environment variable that MLflow overwrites with it."""
    import mlflow

    mlflow.set_tracking_uri(uri)
    if named is None:
        os.environ.pop(_NAMED, None)
    else:
        os.environ[_NAMED] = named


@cache
def _client(uri: str) -> "MlflowClient":
    for name, value in _BOUNDS.items():
        os.environ.setdefault(name, value)
    for name in _QUIET:
        logging.getLogger(name).setLevel(logging.WARNING)
    _make_database(uri)
    from mlflow import MlflowClient

    # mlflow configures its own loggers when it is imported: the levels above do not survive it, but silence the import
    for name in _QUIET:
        logging.getLogger(name).setLevel(logging.WARNING)
    return MlflowClient(tracking_uri=uri, registry_uri=uri)


T = TypeVar("T")
RETRY_WAITS = (0.2, 1.0)
"""Seconds before the second and the third try; after that MLflow counts as down."""
_REFUSALS = {
    *("INVALID_PARAMETER_VALUE", "BAD_REQUEST", "RESOURCE_DOES_NOT_EXIST", "RESOURCE_ALREADY_EXISTS"),
    *("INVALID_STATE", "NOT_FOUND", "ENDPOINT_NOT_FOUND"),
}


class MlflowRefusal(Exception):
    """MLflow answered and refuses this request, however often it is sent."""


def call_mlflow(call: Callable[[], T]) -> T:
    """Return `call()`, a call of MLflow, which is repeated after failures at most twice and so must be idempotent.

    Raises MlflowRefusal for an error that repeating cannot change, InfrastructureError if MLflow does not answer.
    """
    problem: Exception | None = None
    for wait in (0.0, *RETRY_WAITS):
        time.sleep(wait)
        try:
            return call()
        except _mlflow_errors() as error:
            if getattr(error, "error_code", None) in _REFUSALS:
                raise MlflowRefusal(_first_line(error)) from error
            problem = error
    assert problem is not None
    raise InfrastructureError(
        f"MLflow at {tracking_uri()} does not answer ({_first_line(problem)}); start it or free its database"
    ) from problem


def _mlflow_errors() -> tuple[type[Exception], ...]:
    """Return the exceptions of MLflow, its database and its HTTP client; any other is a defect of ours."""
    from mlflow.exceptions import MlflowException
    from sqlalchemy.exc import SQLAlchemyError

    return MlflowException, SQLAlchemyError, OSError


def _first_line(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return (lines[0] if lines else type(error).__name__)[:200]


def database_rows(query: str, *values: object) -> list[tuple[Any, ...]] | None:
    """Query MLflow's SQLite file read-only, without importing mlflow, which costs five seconds of CPU.

    No rows if the file does not exist yet. None if MLflow does not use SQLite, the tables do not exist, or the database
    is locked: then use MLflow's client.
    """
    kind, _, path = tracking_uri().partition(":///")
    file = Path(path.partition("?")[0]).absolute()
    if kind != "sqlite":
        return None
    if not file.is_file():
        return []
    try:
        # A writer that died may have left a journal, which a read-only connection cannot roll back: that is an
        # OperationalError too, and MLflow's client then does it.
        _follow_move(file)
        with contextlib.closing(sqlite3.connect(f"{file.as_uri()}?mode=ro", uri=True)) as database:
            return database.execute(query, values).fetchall()
    except sqlite3.OperationalError:
        return None
