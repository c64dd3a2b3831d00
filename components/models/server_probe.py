"""Inspect a model server's address and the environments that could run one. Starts nothing."""

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Literal

import msgspec

from ratchet.components.core import ConfigurationError, InfrastructureError
from ratchet.components.core.home import bearer_auth_header, model_server_key

PYTHON_VARIABLE = "RATCHET_VLLM_PYTHON"
"""Environment variable with the Python interpreter of the environment that vLLM is installed in."""
INSPECT_SECONDS = 20.0
"""Timeout in seconds for asking an environment which packages it has."""


class ModelServerState(msgspec.Struct, frozen=True):
    """A running server: its engine ("vLLM" or "OpenAI-compatible"), its version ("" if not reported), and the names of
    its models (empty if not listed).
    """

    engine: str
    version: str
    models: tuple[str, ...]


class ListedModel(msgspec.Struct, frozen=True):
    """One entry of a server's model list."""

    id: str
    owned_by: str = ""
    max_model_len: int | None = None


class ModelList(msgspec.Struct, frozen=True):
    """Response of `/models`."""

    data: list[ListedModel]


def inspect_server(base_url: str, *, timeout: float = 3.0) -> ModelServerState:
    """Return the state of the server at `base_url` (ending in /v1). Raises InfrastructureError if none answers."""
    import httpx

    base_url = base_url.rstrip("/")
    try:
        # After an error the server may reset the connection, and the next request over it would fail.
        alone = httpx.Limits(max_keepalive_connections=0)
        key = bearer_auth_header(model_server_key(base_url))
        with httpx.Client(headers=key, timeout=timeout, trust_env=False, limits=alone) as client:
            models = client.get(f"{base_url}/models")
            listed: list[ListedModel] = []
            if models.status_code == httpx.codes.OK:
                listed = msgspec.json.decode(models.content, type=ModelList).data
            else:  # transformers' server cannot list a model that is not in the hub's cache
                client.get(f"{base_url.removesuffix('/v1')}/health").raise_for_status()
            version_response = client.get(f"{base_url.removesuffix('/v1')}/version")
        version = (
            str(version_response.json().get("version", "")) if version_response.status_code == httpx.codes.OK else ""
        )
    except (httpx.HTTPError, OSError, ValueError, AttributeError) as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        raise InfrastructureError(
            f"no model server answers at {base_url}: {reason}; start one with `ratchet serve`"
        ) from error
    engine = "vLLM" if any(model.owned_by == "vllm" for model in listed) else "OpenAI-compatible"
    return ModelServerState(engine, version, tuple(model.id for model in listed))


def package_version(python: Path, packages: tuple[str, ...]) -> str:
    """Return the version of the first of `packages` that is installed in the environment of the interpreter `python`.

    Raises ConfigurationError if none is, or if the interpreter cannot be run.
    """
    script = (
        "import importlib.metadata as m, sys\n"
        "found = [d.version for n in sys.argv[1:] for d in m.distributions(name=n)]\n"
        "print(found[0] if found else '')"
    )
    advice = f"make an environment with Ratchet's infra/vllm/make_env.sh and name its python with --python or {PYTHON_VARIABLE}"
    try:
        result = subprocess.run(
            [str(python), "-c", script, *packages], capture_output=True, text=True, timeout=INSPECT_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ConfigurationError(f"{python} cannot be run: {error}; {advice}") from error
    if result.returncode != 0 or not result.stdout.strip():
        raise ConfigurationError(f"{python} has no package {' or '.join(packages)}; {advice}")
    return result.stdout.strip()


def engine_python(engine: Literal["vllm", "transformers"]) -> Path:
    """Return the interpreter for an engine: RATCHET_VLLM_PYTHON where set, else for transformers the current one.

    Raises ConfigurationError for vLLM if the variable is not set.
    """
    named = os.environ.get(PYTHON_VARIABLE)
    if named:
        return Path(named)
    if engine == "transformers":
        return Path(sys.executable)
    raise ConfigurationError(
        "no environment for vLLM: make one with Ratchet's infra/vllm/make_env.sh and name its python with --python or "
        f"{PYTHON_VARIABLE}"
    )


def has_gpu() -> bool:
    """Return whether an NVIDIA GPU responds on this machine."""
    if shutil.which("nvidia-smi") is None:
        return False
    try:
        return subprocess.run(["nvidia-smi", "-L"], capture_output=True, timeout=10, check=False).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return False
