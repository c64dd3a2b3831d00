"""The folder of local state (`RATCHET_HOME`, default `.ratchet`), and the servers that run from it with their credentials.

A credential is a random string in a file of mode 0600 under `credentials`. It is never logged, never part of a command
line, and never passed to a sandbox. A server that the environment names (`PREFECT_API_URL`, `MLFLOW_TRACKING_URI`) gets
the credentials of the environment, as its own client reads them; a server of this home gets those of the home.
"""

import base64
import contextlib
import hashlib
import json
import os
import secrets
import stat
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote, urlsplit, urlunsplit

from .errors import ConfigurationError
from .files import temporary_path, write_atomically
from .processes import owner_is_alive, owner_label, owner_pid


def home() -> Path:
    """Absolute path of the folder of local state, which may not exist yet."""
    return Path(os.environ.get("RATCHET_HOME") or ".ratchet").absolute()


def private_home() -> Path:
    """Create `home()` with mode 0700 where it is missing, and return it: it holds databases, logs and credentials.

    The mode of an existing home is restricted to its owner, except for a folder of another user or a shared one (sticky
    bit, as /tmp).
    """
    path = home()
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    status = path.stat()
    if status.st_mode & 0o077 and status.st_uid == os.geteuid() and not status.st_mode & stat.S_ISVTX:
        path.chmod(0o700)
    return path


def restrict_file_modes() -> None:
    """Set the mode of the databases and logs of an existing home to 0600."""
    for path in chain.from_iterable(home().glob(pattern) for pattern in ("*.db*", "prefect/*.db*", "logs/*")):
        try:
            # A link is left alone: it may point to a file that is not ours to change.
            status = path.stat(follow_symlinks=False)
            if stat.S_ISREG(status.st_mode) and status.st_mode & 0o077:
                path.chmod(0o600)
        except (FileNotFoundError, PermissionError):
            continue


BASIC_AUTH_USER = "ratchet"
"""User name for basic authentication; only the password is checked."""
LOOPBACK = ("127.0.0.1", "localhost", "::1")


def credential_path(name: str) -> Path:
    """Path of the file that holds the credential `name`, which may not exist."""
    return home() / "credentials" / name


def credential(name: str) -> str:
    """Return a credential of this home, created on first use. Safe to call from several processes at once."""
    path = credential_path(name)
    if not path.exists():
        write_credential(name, secrets.token_urlsafe(32), replace=False)
    if not _read_credential(path):  # an emptied file would let everybody in
        write_credential(name, secrets.token_urlsafe(32))
    return _read_credential(path)


def existing_credential(name: str) -> str | None:
    """Return the content of a credential's file; None where it is missing or empty."""
    return _read_credential(credential_path(name)) or None


def write_credential(name: str, value: str, *, replace: bool = True) -> None:
    """Write a credential atomically; `replace=False` keeps an existing one."""
    path = credential_path(name)
    private_home()
    path.parent.mkdir(mode=0o700, exist_ok=True)
    temporary = temporary_path(path.with_name(f"{path.name}.{secrets.token_hex(4)}"))
    # The mode is given at creation: after a later chmod another user may have it open already.
    with os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(value)
    try:
        if replace:
            temporary.replace(path)
        else:
            with contextlib.suppress(FileExistsError):
                os.link(temporary, path)  # unlike rename, it fails where another process was first
    finally:
        temporary.unlink(missing_ok=True)


def remove_credential(name: str) -> None:
    """Remove a credential; no error where there is none."""
    credential_path(name).unlink(missing_ok=True)


def basic_auth_header(user_and_password: str) -> dict[str, str]:
    """Return the HTTP header of basic authentication for `user:password`."""
    return {"Authorization": f"Basic {base64.b64encode(user_and_password.encode()).decode()}"}


def bearer_auth_header(key: str | None) -> dict[str, str]:
    """Return the HTTP header of a bearer token; empty where `key` is None."""
    return {} if key is None else {"Authorization": f"Bearer {key}"}


INSPECTOR_PORT = 8780
"""Port of `ratchet inspect`, unless it is given another."""


def inspector_link(episode_id: str) -> str:
    """Return the address of an episode's page in the inspector, which answers while `ratchet inspect` runs."""
    return f"http://127.0.0.1:{INSPECTOR_PORT}/#/episode/{quote(episode_id, safe='')}"


def model_server_name(port: int) -> str:
    """Name of the credential of the model server at a port."""
    return f"model-{port}"


def model_server_key(base_url: str) -> str | None:
    """Return the key of this home's model server at `base_url`; None where the URL is not on the loopback interface, or
    this home has no key for its port.
    """
    address = urlsplit(base_url)
    if address.hostname not in LOOPBACK or address.port is None:
        return None
    return existing_credential(model_server_name(address.port))


def _read_credential(path: Path) -> str:
    """Return the content of a credential file, after restricting its mode; empty where it is missing."""
    try:
        if path.stat().st_mode & 0o077:
            path.chmod(0o600)
        return path.read_text().strip()
    except FileNotFoundError:
        return ""


PARAMS_FILE = Path("params.yaml")


def home_folder(*parts: str) -> Path:
    """Return the folder `home()/parts[0]/parts[1]/…`, created if missing."""
    path = private_home().joinpath(*parts)
    path.mkdir(parents=True, exist_ok=True)
    return path


def home_tag() -> str:
    """Return the tag of this home's runs on a Prefect server that several homes may share.

    It is derived from a random string in the home and from the home's path, so that a copied home has another tag.
    """
    return "home:" + hashlib.sha256(f"{credential('home')} {home()}".encode()).hexdigest()[:16]


def params_file() -> Path | None:
    """Return the path of `params.yaml` in the working directory; None without one. Commands run by hand take their
    defaults from it, as the pipeline does.
    """
    return PARAMS_FILE if PARAMS_FILE.is_file() else None


def require_clone() -> None:
    """Raise ConfigurationError unless the working directory is the root of a clone or of a project (`dvc.yaml`)."""
    working_folder = Path.cwd()
    if (working_folder / "dvc.yaml").is_file():
        return
    clone_above = next((parent for parent in working_folder.parents if (parent / "dvc.yaml").is_file()), None)
    advice = f"run this command in {clone_above}" if clone_above else "make a project with `ratchet init FOLDER`"
    raise ConfigurationError(f"{working_folder} is not the root of a clone or a project; {advice}")


class _Kind(NamedTuple):
    """Environment variables of a kind of server, and a request that it answers only to valid credentials."""

    title: str
    address: str
    credentials: str
    method: str
    path: str
    body: Any


_KINDS = {
    "prefect": _Kind(
        "Prefect",
        "PREFECT_API_URL",
        "PREFECT_API_AUTH_STRING or PREFECT_API_KEY",
        *("POST", "/flows/filter", {"limit": 1}),
    ),
    "mlflow": _Kind(
        "MLflow",
        "MLFLOW_TRACKING_URI",
        "MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD, or MLFLOW_TRACKING_TOKEN",
        *("GET", "/api/2.0/mlflow/experiments/search?max_results=1", None),
    ),
}


def server_title(name: str) -> str:
    """Return the display name of a server; `name` is `prefect` or `mlflow`, here and below."""
    return _KINDS[name].title


def configured_address(name: str) -> str | None:
    """Return the URL in the server's environment variable (see the module); None where it is unset or not HTTP."""
    address = os.environ.get(_KINDS[name].address, "")
    return address.rstrip("/") if address.startswith(("http://", "https://")) else None


def user_and_password(name: str) -> str:
    """Return the credential of this home's server as `user:password`, created on first use."""
    return f"{BASIC_AUTH_USER}:{credential(name)}"


def authorization_header(name: str) -> dict[str, str]:
    """Return the HTTP header with the credentials for the server `name`; empty where the environment variables give an
    address without credentials.
    """
    environment, address = os.environ.get, configured_address(name)
    if name == "prefect":
        login, token = environment("PREFECT_API_AUTH_STRING"), environment("PREFECT_API_KEY")
    else:
        user, password = environment("MLFLOW_TRACKING_USERNAME"), environment("MLFLOW_TRACKING_PASSWORD")
        login, token = f"{user}:{password}" if user and password else None, environment("MLFLOW_TRACKING_TOKEN")
    # PREFECT_API_URL may name this home's own server, which its flows are given.
    if address is None or (name == "prefect" and not login and address == recorded_address(name)):
        login = user_and_password(name)
    return basic_auth_header(login) if login else bearer_auth_header(token or None)


def record_server(name: str, url: str, pid: int, owner: int | None = None) -> None:
    """Record in a file of the home that the process `pid`, started by `owner` (None: this process), serves `name` at `url`."""
    processes = [owner_label(pid), owner_label(owner)]
    write_atomically(_record_path(name), json.dumps({"url": url, "processes": processes}).encode())


def forget_server(name: str) -> None:
    """Remove the record of `record_server`; no error where there is none."""
    _record_path(name).unlink(missing_ok=True)


def recorded_address(name: str) -> str | None:
    """Return the URL of a recorded server; None without a record, or if the server or its starter has ended."""
    record = _live_record(name)
    return None if record is None else str(record["url"])


def recorded_process(name: str) -> int | None:
    """Return the process id of a recorded server; None as in `recorded_address`."""
    record = _live_record(name)
    return None if record is None else owner_pid(record["processes"][0])


def _live_record(name: str) -> dict[str, Any] | None:
    try:
        record: dict[str, Any] = json.loads(_record_path(name).read_bytes())
        # A record of another boot or pid namespace is of a server that this process cannot reach.
        processes_live = all(owner_is_alive(label) for label in record["processes"])
        return record if processes_live and "url" in record else None
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def is_healthy(name: str, url: str, timeout: float = 2.0) -> bool:
    """Return whether the server `name` answers at `url` (Prefect's ends in /api) within `timeout` seconds per request.

    Raises ConfigurationError where it refuses the credentials.
    """
    import httpx

    kind = _KINDS[name]
    # Without the environment: a proxy of the user must not see the request to the loopback, nor the credential.
    options: dict[str, Any] = {"timeout": timeout, "trust_env": False}
    if headers := authorization_header(name):  # without one, httpx takes a user from the address
        options["headers"] = headers
    try:
        response = httpx.get(f"{url}/health", **options)
        if response.status_code == httpx.codes.OK:  # which Prefect and MLflow answer to everybody
            response = httpx.request(kind.method, url + kind.path, json=kind.body, **options)
    except httpx.HTTPError:
        return False
    if response.status_code in (httpx.codes.UNAUTHORIZED, httpx.codes.FORBIDDEN):
        advice = f"check {kind.credentials}" if configured_address(name) else "end it and start it again"
        raise ConfigurationError(
            f"the {kind.title} server at {without_password(url)} refuses the credentials (HTTP {response.status_code}); {advice}"
        )
    return bool(response.status_code == httpx.codes.OK)


def without_password(url: str) -> str:
    """Return an address without user and password, for display."""
    parts = urlsplit(url)
    return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))


def _record_path(name: str) -> Path:
    return home_folder("run") / f"{name}.json"
