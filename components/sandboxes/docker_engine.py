"""Access to the Docker engine: one client per process, errors as SandboxUnavailable, removal of orphaned containers."""

import io
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from http import HTTPStatus
from typing import Any

from ratchet.components.core import SandboxUnavailable
from ratchet.components.core.processes import owner_is_dead

# The SDK's default is 10: with more threads, connections would be closed and opened again for each call.
MAX_CONNECTIONS = 256
LABEL = "ratchet"
OWNER_LABEL = "ratchet.owner"
LATE_EVENT_SECONDS = 2.0
REMOVAL_TRIES, REMOVAL_SECONDS = 50, 0.05

_orphan_lock = threading.Lock()
_checked_processes: set[int] = set()


@cache
def _client(owner: int, engine: str, timeout: float) -> Any:
    """Keyed by `owner`, the process id, so that a fork does not share its parent's connections."""
    import docker

    return docker.from_env(timeout=timeout, max_pool_size=MAX_CONNECTIONS)


def engine_address() -> str:
    """Return DOCKER_HOST, or an empty string for the default socket."""
    return os.environ.get("DOCKER_HOST", "")


def docker_client(timeout: float) -> Any:
    """Return this process's client; each call takes at most `timeout` seconds. Raises SandboxUnavailable."""
    with translate_errors("connect"):
        return _client(os.getpid(), engine_address(), timeout)


@contextmanager
def translate_errors(action: str) -> Iterator[None]:
    """Raise SandboxUnavailable with a one-line message for every error of the SDK and the libraries below it.

    `action` (an infinitive) is part of the message.
    """
    import docker.errors
    import requests.exceptions
    import urllib3.exceptions

    try:
        yield
    except docker.errors.ImageNotFound as error:
        raise SandboxUnavailable(
            "the Docker engine has not the sandbox's image; make it in a clone of Ratchet: infra/sandbox/build_base.sh "
            "(or docker build infra/sandbox)"
        ) from error
    except docker.errors.APIError as error:
        raise SandboxUnavailable(f"the Docker engine refused to {action}: {error.explanation or error}") from error
    except (
        # A time-out is an error of requests or of urllib3, depending on when it occurs; the SDK translates neither.
        docker.errors.DockerException,
        requests.exceptions.RequestException,
        urllib3.exceptions.HTTPError,
        OSError,
    ) as error:
        text = " ".join(str(error).split())[:200]
        raise SandboxUnavailable(
            f"the Docker engine does not answer (to {action}): {text}; is dockerd running? Or use the local sandbox"
        ) from error


@cache
def _image_id(engine: str, image: str, timeout: float) -> str:
    with translate_errors("inspect the image"):
        identifier: str = docker_client(timeout).api.inspect_image(image)["Id"]
    return identifier


def image_id(image: str, timeout: float) -> str:
    """Return the id of the image with this name, cached per process so that the image does not change during a run.

    Raises SandboxUnavailable.
    """
    return _image_id(engine_address(), image, timeout)


def build_image(tag: str, context: bytes, timeout: float, build_seconds: float) -> None:
    """Build an image from a tar archive with a Dockerfile, unless the engine has one of the name. Raises SandboxUnavailable."""
    import docker.errors

    with translate_errors("build an image"):
        api = docker_client(timeout).api
        with suppress(docker.errors.ImageNotFound):
            api.inspect_image(tag)
            return
        options = {"custom_context": True, "tag": tag, "forcerm": True, "timeout": build_seconds, "decode": True}
        output, deadline = "", time.monotonic() + build_seconds  # the SDK's limit is that of a silence
        for line in api.build(fileobj=io.BytesIO(context), **options):
            if time.monotonic() > deadline:
                raise SandboxUnavailable(
                    f"the image {tag} is not built within {build_seconds:g} s; its last output: {' '.join(output[-200:].split())}"
                )
            if "error" in line:
                error, last = (" ".join(text.split()) for text in (line["error"], output[-200:]))
                raise SandboxUnavailable(f"the image {tag} cannot be built: {error[:200]}; its last output: {last}")
            output = output[-200:] + line.get("stream", "")


def clear_image_cache() -> None:
    """Clear the cache of `image_id`, for example because an image may have been removed or rebuilt."""
    _image_id.cache_clear()


@cache
def _engine_info(engine: str, timeout: float) -> dict[str, Any]:
    with translate_errors("describe itself"):
        info: dict[str, Any] = docker_client(timeout).api.info()
    return info


def runtimes(timeout: float) -> frozenset[str]:
    """Return the names of the engine's runtimes, such as runc and runsc. Raises SandboxUnavailable."""
    return frozenset(_engine_info(engine_address(), timeout).get("Runtimes") or {})


def engine_memory(timeout: float) -> int:
    """Return the memory of the engine's machine, in bytes. Raises SandboxUnavailable."""
    return int(_engine_info(engine_address(), timeout).get("MemTotal") or 0)


def engine_cpus(timeout: float) -> int:
    """Return the number of processors of the engine's machine. Raises SandboxUnavailable."""
    return int(_engine_info(engine_address(), timeout).get("NCPU") or 1)


def ran_out_of_memory(container: str, since: float, timeout: float) -> bool:
    """Return whether the OOM killer ran in the container since the Unix time `since`. Raises SandboxUnavailable.

    Waits LATE_EVENT_SECONDS for events that arrive late. The engine remembers its last 256 events only.
    """
    filters = {"container": container, "event": "oom"}
    # Not the exit code: 137 has other causes, and `auto_remove` may have removed the container by now.
    time_range = {"since": f"{since:.3f}", "until": f"{time.time() + LATE_EVENT_SECONDS:.3f}"}
    with translate_errors("list its events"):
        return any(True for _ in docker_client(timeout).api.events(filters=filters, decode=True, **time_range))


def image_problem(image: str, timeout: float) -> str:
    """Return the reason why an image cannot be used, or an empty string if it can. Never raises.

    Reasons: no engine answers within `timeout` seconds, or it does not have the image.
    """
    import docker
    import docker.errors

    no_answer = f"no Docker engine answers at {engine_address() or 'its usual socket'} within {timeout:g} s"
    try:
        # With a fixed version the constructor does not connect; otherwise a silent engine would cost the time-out twice.
        client = docker.from_env(timeout=timeout, version="1.41")
    except Exception:  # of the SDK, requests, urllib3 or the operating system
        return no_answer
    try:
        client.api.inspect_image(image)
        return ""
    except docker.errors.ImageNotFound:
        return f"the Docker engine has no image {image}"
    except Exception:
        return no_answer
    finally:
        with suppress(Exception):
            client.close()


def remove_orphans(timeout: float) -> int:
    """Remove the containers whose owners have died and return their number. Raises SandboxUnavailable."""
    removed = 0
    with translate_errors("list containers"):
        api = docker_client(timeout).api
        containers = api.containers(all=True, filters={"label": f"{LABEL}=1"})
    for container in containers:
        if owner_is_dead(container["Labels"].get(OWNER_LABEL, "")) and remove_container(container["Id"], timeout):
            removed += 1
    return removed


def remove_orphans_once(timeout: float) -> None:
    """Run `remove_orphans` on the first call in a process."""
    with _orphan_lock:
        if os.getpid() not in _checked_processes:
            remove_orphans(timeout)
            _checked_processes.add(os.getpid())


def remove_container(container: str, timeout: float) -> bool:
    """Remove a container and its volumes; return False if this call did not remove it. Raises SandboxUnavailable.

    If the engine is already removing it, wait (at most REMOVAL_TRIES times REMOVAL_SECONDS) until it is gone.
    """
    import docker.errors

    api = docker_client(timeout).api
    with translate_errors("remove a container"):
        for _ in range(REMOVAL_TRIES):
            try:
                api.remove_container(container, force=True, v=True)
                return True
            except docker.errors.NotFound:
                return False
            except docker.errors.APIError as error:
                # 409: the engine is removing it already, because its session ended (`auto_remove`); 404 follows.
                if error.status_code != HTTPStatus.CONFLICT:
                    raise
            time.sleep(REMOVAL_SECONDS)
    return False
