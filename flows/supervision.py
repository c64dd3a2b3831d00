"""Run the services of a home in the background: under supervisord, or by units of systemd.

supervisord (https://supervisord.org) starts what has ended again and rotates the logs. It listens nowhere: `ratchet down`
ends it by its process, and it ends the services. All its files lie in the home.
"""

import contextlib
import os
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path

from ratchet.components.core import ConfigurationError, InfrastructureError
from ratchet.components.core.errors import install_command
from ratchet.components.core.files import LockHeld, OwnedLock, write_atomically
from ratchet.components.core.home import (
    credential_path,
    forget_server,
    home,
    home_folder,
    record_server,
    recorded_address,
    recorded_process,
    server_title,
)
from ratchet.components.core.processes import last_lines
from ratchet.components.nights.night_state import running_night
from ratchet.flows.home_servers import START_SECONDS
from ratchet.flows.services import SERVERS, SERVICES, Service, service_state

SUPERVISOR = "supervisor"
"""Name of supervisord's record and log."""
LONG_START_SECONDS = 900.0
"""Seconds that a worker may take to deploy prefect.yaml on a busy machine, and a model server to load its model."""
POLL_SECONDS = 1.0
"""Seconds between two looks at the services that start."""
STOP_SECONDS = 60
"""Seconds that a service may take to end before it is killed."""
LOG_BYTES, LOG_BACKUPS = 20_000_000, 3
ENVIRONMENT_FILE = "environment"
"""Credential file with variables for the units of systemd, one NAME=value a line."""


def start_services(services: Sequence[Service], say: Callable[[str], None]) -> bool:
    """Start supervisord with `services`, and return when all are healthy; False if it runs already with the same ones.

    Raises ConfigurationError where it runs with other ones, where servers of this home run already, or where the package
    is missing; InfrastructureError where a service does not become healthy. Nothing is left running then.
    """
    if find_spec("supervisor") is None:
        raise ConfigurationError(f"use `ratchet up --systemd`, or install supervisor: {install_command('operate')}")
    path, text = home_folder("run") / "supervisord.conf", supervisor_configuration(services)
    with _lock():
        if is_up():
            if path.read_text(encoding="utf-8") == text:
                return False
            raise ConfigurationError("services run already with other options; `ratchet down` ends them")
        for name in SERVERS:
            if address := recorded_address(name):
                owner = "by systemd, `ratchet ui`, `ratchet schedule` or a night"
                raise ConfigurationError(f"{server_title(name)} runs already at {address}, {owner}; end that first")
        write_atomically(path, text.encode())
        log = home_folder("logs") / f"{SUPERVISOR}.log"
        log.unlink(missing_ok=True)
        log.touch(mode=0o600)
        command = [sys.executable, "-m", "supervisor.supervisord", "--configuration", str(path)]
        with log.open("ab") as output:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env=os.environ | {"RATCHET_HOME": str(home())},
                start_new_session=True,
                umask=0o077,
            )
        record_server(SUPERVISOR, "", process.pid, owner=process.pid)
        try:
            _wait_until_healthy(services, process, say)
        except BaseException:
            _end_supervisor()
            raise
    return True


def stop_services(say: Callable[[str], None]) -> bool:
    """End supervisord and all its services; return whether it was running. An unfinished night can be resumed."""
    with _lock():
        if not is_up():
            return False
        night = running_night()
        _end_supervisor()
        if night and running_night() is None:
            say(f"night {night} was ended; it is resumed when nights are served again, or by `ratchet night`")
    return True


def is_up() -> bool:
    """Return whether supervisord runs for this home."""
    return recorded_process(SUPERVISOR) is not None


def supervised_names() -> list[str]:
    """Return the names of the services that supervisord runs for this home, in order; none where it does not run."""
    configuration = home() / "run/supervisord.conf"
    return (
        re.findall(r"^\[program:(\w+)\]$", configuration.read_text(encoding="utf-8"), re.MULTILINE) if is_up() else []
    )


def _lock() -> OwnedLock:
    lock = OwnedLock(home_folder("run") / "services.lock")
    try:
        return lock.acquire()
    except LockHeld as held:
        raise ConfigurationError("another `ratchet up` or `down` of this home is at work; wait for it") from held


def _end_supervisor() -> None:
    import psutil

    with contextlib.suppress(psutil.NoSuchProcess):  # it has ended meanwhile
        if (pid := recorded_process(SUPERVISOR)) is not None:
            process = psutil.Process(pid)
            process.terminate()
            try:
                process.wait(STOP_SECONDS + 10)
            except psutil.TimeoutExpired:
                process.kill()  # the guards of the services end them
    for name in (SUPERVISOR, *SERVICES):
        forget_server(name)


def _wait_until_healthy(
    services: Sequence[Service], process: "subprocess.Popen[bytes]", say: Callable[[str], None]
) -> None:
    for service in services:
        begin = time.monotonic()
        limit = LONG_START_SECONDS if service.name in ("worker", "model") else START_SECONDS
        while not (state := service_state(service.name)).is_healthy:
            if process.poll() is not None:
                log = home() / "logs" / f"{SUPERVISOR}.log"
                raise InfrastructureError(f"supervisord has ended: {last_line(log)}; see {log}")
            if _refused(service):
                raise ConfigurationError(f"{service.name}: {last_line(service.log)}; see {service.log}")
            if time.monotonic() - begin > limit:
                problem = f"{service.name} is not healthy after {limit:.0f} s: {state.state}: {last_line(service.log)}"
                raise InfrastructureError(f"{problem}; see {service.log}")
            time.sleep(POLL_SECONDS)
        say(f"{state.title} is {state.state}")


def _refused(service: Service) -> bool:
    """Return whether a service has ended with the exit code of a wrong configuration, as supervisord's log says."""
    log = home() / "logs" / f"{SUPERVISOR}.log"
    pattern = rf"exited: {service.name} \(exit status {ConfigurationError.exit_code};"
    return log.is_file() and re.search(pattern, log.read_text(errors="replace")) is not None


def last_line(log: Path) -> str:
    """Return the last line of a log that is not empty; `it printed nothing` where there is none."""
    return last_lines(log) or "it printed nothing"


def supervisor_configuration(services: Sequence[Service]) -> str:
    """Return supervisord's configuration, for the folder `run` of the home. Raises ConfigurationError for an argument that
    it cannot hold.
    """
    # `here` is the folder of the configuration. Folder and environment of the services are those of supervisord.
    rotation = f"logfile_maxbytes = {LOG_BYTES}\n{{0}}logfile_backups = {LOG_BACKUPS}\n"
    text = f"""[supervisord]
nodaemon = true
silent = true
umask = 077
pidfile = %(here)s/supervisord.pid
logfile = %(here)s/../logs/{SUPERVISOR}.log
{rotation.format("")}"""
    for service in services:
        command = shlex.join(service.command)
        # supervisord expands '%', some values twice, and takes what follows ' ;' or ' #' for a comment.
        if found := re.search(r"%|\s[;#]|\n", f"{home()} {command}"):
            problem = f"{service.name}: {found[0]!r} cannot stand in a path or an argument of supervisord"
            raise ConfigurationError(f"{problem}; rename it, or use `ratchet up --systemd`: {home()} {command}")
        text += f"""
[program:{service.name}]
command = {command}
startsecs = 5
startretries = 1000000
autorestart = true
stopasgroup = true
killasgroup = true
stopwaitsecs = {STOP_SECONDS}
redirect_stderr = true
stdout_logfile = %(here)s/../logs/{service.log.name}
stdout_{rotation.format("stdout_")}"""
    return text


def _percent(value: object) -> str:
    """Escape a value for a unit of systemd, which expands `%`."""
    return str(value).replace("%", "%%")


def _quoted(value: object) -> str:
    escaped = _percent(value).replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def default_unit_folder() -> Path:
    """Return systemd's folder for units of this user, or of the system for root."""
    if os.geteuid() == 0:
        return Path("/etc/systemd/system")
    return Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config") / "systemd/user"


def write_units(services: Sequence[Service], folder: Path) -> list[Path]:
    """Write a unit for each service, and `ratchet.target`, which starts them all; return their paths, the target first.

    Raises ConfigurationError where the folder holds units of another home.
    """
    mark = f"# Written by `ratchet up --systemd` for {home()}"
    names = [f"ratchet-{service.name}.service" for service in services]
    units = {"ratchet.target": _target_unit(names)} | dict(zip(names, map(_service_unit, services), strict=True))
    for name in units:
        path = folder / name
        if path.exists() and path.read_text(encoding="utf-8").partition("\n")[0] != mark:
            raise ConfigurationError(f"{path} is not of this home; choose another folder with --units")
    folder.mkdir(parents=True, exist_ok=True)
    home_folder("logs")
    for name, text in units.items():
        write_atomically(folder / name, f"{mark}\n{text}".encode())
    return [folder / name for name in units]


def _target_unit(names: Sequence[str]) -> str:
    return f"""[Unit]
Description=Ratchet in {_percent(Path.cwd())}
Wants={" ".join(names)}

[Install]
WantedBy={"multi-user" if os.geteuid() == 0 else "default"}.target
"""


def _service_unit(service: Service) -> str:
    command = " ".join(_quoted(part).replace("$", "$$") for part in service.command)
    return f"""[Unit]
Description=Ratchet: {service.name} in {_percent(Path.cwd())}
PartOf=ratchet.target
StartLimitIntervalSec=0

[Service]
ExecStart={command}
WorkingDirectory={_percent(Path.cwd())}
Environment={_quoted(f"RATCHET_HOME={home()}")} {_quoted(f"PATH={os.environ.get('PATH', os.defpath)}")}
EnvironmentFile=-{_percent(credential_path(ENVIRONMENT_FILE))}
UMask=0077
Restart=always
RestartSec=5
TimeoutStopSec={STOP_SECONDS}
StandardOutput=append:{_percent(service.log)}
StandardError=append:{_percent(service.log)}
"""
