"""The choice of a back end (docker or local), and `make_sandbox`."""

import os
from functools import cache
from pathlib import Path

from ratchet.components.core import ConfigurationError, Sandbox, SandboxUnavailable

from .local_sandbox import LocalSandbox, strongest_isolation
from .sandbox_config import BUNDLED, DEFAULT_IMAGE, SandboxConfig, list_backends, plugin_backends

PROBE_SECONDS = 1.0


def make_sandbox(config: SandboxConfig | None = None) -> Sandbox:
    """Return a sandbox of the configured back end, not started; None is the default configuration.

    Raises ConfigurationError for options that the back end does not support, and SandboxUnavailable if a required back
    end is not available.

    >>> with ratchet.make_sandbox(ratchet.SandboxConfig(memory_mb=256)) as sandbox:
    ...     sandbox.run("echo hello").stdout
    b'hello\\n'
    """
    config = config or SandboxConfig()
    backend = resolve_backend(config.backend, config.image)
    if config.require not in (None, backend):
        raise _requirement_error(config)
    if config.programs and backend not in BUNDLED:
        raise ConfigurationError(f"`programs` are folders for docker and local sandboxes; {backend} does not have them")
    if backend == "docker":
        from .docker_sandbox import DockerSandbox

        return DockerSandbox(config)
    if backend in plugin_backends:
        return plugin_backends[backend](config)
    if config.runtime or config.egress:
        raise ConfigurationError("the local sandbox has neither `runtime` nor `egress`; take docker, or leave them out")
    return LocalSandbox(config)


def resolve_backend(backend: str = "auto", image: str | None = None) -> str:
    """Return the back end for a name. `auto` is docker if an engine that has the image answers within a second.

    Other names are not checked; `image` None is the default image. The choice for `auto` is cached per
    process. Raises ConfigurationError for an unknown name.
    """
    if backend == "auto":
        return "local" if _docker_problem(image or DEFAULT_IMAGE) else "docker"
    if backend not in list_backends():
        raise ConfigurationError(f"unknown sandbox back end '{backend}'; choose {', '.join(list_backends())}")
    return backend


@cache
def _docker_problem(image: str) -> str:
    """Return the reason why docker cannot be used, or an empty string if it can."""
    host = os.environ.get("DOCKER_HOST", "unix:///var/run/docker.sock")
    # Checking the socket first saves the import of the engine's SDK where there is no engine.
    if host.startswith("unix://") and not Path(host.removeprefix("unix://")).is_socket():
        return f"no Docker engine listens at {host}"
    from .docker_engine import image_problem

    return image_problem(image, PROBE_SECONDS)


def describe_backend(config: SandboxConfig) -> str:
    """Return one line with the back end that `config` selects here, and the reason.

    Raises SandboxUnavailable if it requires another back end.
    """
    backend = resolve_backend(config.backend, config.image)
    if config.require not in (None, backend):
        raise _requirement_error(config)
    reason = "as configured"
    if config.backend == "auto":
        image = config.image or DEFAULT_IMAGE
        reason = (
            f"an engine that has {image} answers"
            if backend == "docker"
            else f"{_docker_problem(image)}; see `ratchet doctor`"
        )
    if backend in plugin_backends:
        return f"sandbox: {backend} (an installed back end)"
    if backend == "docker":
        return f"sandbox: docker, {config.runtime or 'container'} ({reason})"
    return f"sandbox: local, {strongest_isolation()} ({reason})"


def _requirement_error(config: SandboxConfig) -> SandboxUnavailable:
    reason = "`backend` is local" if config.backend == "local" else _docker_problem(config.image or DEFAULT_IMAGE)
    return SandboxUnavailable(
        f"`sandbox.require` is {config.require}, but {reason}; make it available, or leave `require` out"
    )
