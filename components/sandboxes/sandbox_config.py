"""SandboxConfig: the back end and the limits of a sandbox, as in a configuration file."""

from typing import Literal

from pydantic import Field

from ratchet.components.core.configuration import Configuration

DEFAULT_IMAGE = "ratchet-sandbox:latest"


class SandboxConfig(Configuration):
    """Back end and limits of one sandbox.

    - `backend`: `auto` is docker if an engine with the image answers, else local. `require: docker` refuses any other
      back end.
    - `cpus`: processors (docker). `pids`: maximum processes. `open_files`: maximum open files of a process.
    - `memory_mb` (megabytes) applies to the container (docker) or to each process (local).
    - `workspace_mb` (megabytes) is the size of the workspace (docker) or of any single file (local).

    Docker only: `image` is a name, name@digest or id (None: `ratchet-sandbox:latest`, built by infra/sandbox);
    `runtime` is one of the engine's, for example runsc; `egress` lists hosts (or host:port) reachable over HTTP and
    HTTPS, none by default; `max_containers` limits the containers of this process (None: half of the engine's memory,
    at most 4 per processor and 64 in total), and further sandboxes take turns; `start_timeout` bounds each call to the
    engine, in seconds.
    """

    backend: Literal["auto", "docker", "local"] = "auto"
    require: Literal["docker"] | None = None
    image: str | None = None
    cpus: float = Field(default=1.0, gt=0)
    memory_mb: int = Field(default=512, ge=64)
    pids: int = Field(default=64, ge=4)
    workspace_mb: int = Field(default=64, ge=1)
    open_files: int = Field(default=256, ge=16)
    runtime: str | None = None
    egress: tuple[str, ...] = ()
    max_containers: int | None = Field(default=None, ge=1)
    start_timeout: float = Field(default=30.0, gt=0)
