"""SandboxConfig: the back end and the limits of a sandbox, as in a configuration file.

A package adds back ends through the entry-point group `ratchet.sandboxes`. Each entry has the name of a back end, and is
a function from a SandboxConfig to a Sandbox that is not started.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Literal

from pydantic import Field, field_validator

from ratchet.components.core import ConfigurationError, Sandbox
from ratchet.components.core.configuration import Configuration
from ratchet.components.core.environment_registry import load_plugins

SANDBOX_GROUP = "ratchet.sandboxes"
BUNDLED = ("auto", "docker", "local")
plugin_backends: dict[str, "Callable[[SandboxConfig], Sandbox]"] = {}


def list_backends() -> list[str]:
    """Return the names of all back ends, `auto` first."""
    load_plugins(SANDBOX_GROUP, _register_backend)
    return [*BUNDLED, *plugin_backends]


def _register_backend(name: str, factory: "Callable[[SandboxConfig], Sandbox]") -> None:
    if name in BUNDLED or not callable(factory):
        raise ConfigurationError(f"a back end '{name}' exists already, or its entry is no function")
    plugin_backends[name] = factory


DEFAULT_IMAGE = "ratchet-sandbox:latest"


class SandboxConfig(Configuration):
    """Back end and limits of one sandbox.

    - `backend`: `auto` is docker if an engine with the image answers, else local; docker, local, or the name of an
      installed back end. `require: docker` refuses any other.
    - `cpus`: processors (docker). `pids`: maximum processes. `open_files`: maximum open files of a process.
    - `memory_mb` (megabytes) applies to the container (docker) or to each process (local).
    - `workspace_mb` (megabytes) is the size of the workspace (docker) or of any single file (local).
    - `programs`: folders of this machine that commands may read too, at the same paths, such as a virtual environment; users
      other than the owner must be able to reach them. With docker, none in /tmp or another folder of the container's own.

    Docker only: `image` is a name, name@digest or id (None: `ratchet-sandbox:latest`, built by infra/sandbox);
    `runtime` is one of the engine's, for example runsc; `egress` lists hosts (or host:port) reachable over HTTP and
    HTTPS, none by default; `max_containers` limits the containers of this process (None: half of the engine's memory,
    at most 4 per processor and 64 in total), and further sandboxes take turns; `start_timeout` bounds each call to the
    engine, in seconds.
    """

    backend: str = "auto"
    require: Literal["docker"] | None = None
    image: str | None = None
    cpus: float = Field(default=1.0, gt=0)
    memory_mb: int = Field(default=512, ge=64)
    pids: int = Field(default=64, ge=4)
    workspace_mb: int = Field(default=64, ge=1)
    open_files: int = Field(default=256, ge=16)
    programs: tuple[Path, ...] = ()
    runtime: str | None = None
    egress: tuple[str, ...] = ()
    max_containers: int | None = Field(default=None, ge=1)
    start_timeout: float = Field(default=30.0, gt=0)

    @field_validator("backend")
    @classmethod
    def _check_backend(cls, name: str) -> str:
        if name not in BUNDLED and name not in list_backends():
            raise ValueError(f"unknown sandbox back end '{name}'; choose {', '.join(list_backends())}")
        return name
