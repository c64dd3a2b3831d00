"""`ModelServer` runs vLLM's or transformers' OpenAI-compatible server for one model as a child process on the loopback
interface.

The server requires a generated key on every path and rejects foreign Host and Origin headers (`RequestGuard`). Clients
of the same installation find the key by the server's address (`model_server_key`); it never appears on a command line.

The server runs in its own environment, because vLLM cannot share one with Prefect. Other full weights need another
server: reloading in place needs vLLM's development endpoints, a GPU and an equal architecture, and a failure leaves the
server in an unknown state. Adapters of the served base are loaded while it runs (`adapter_loading`).
"""

import os
import re
import secrets
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Literal, Self

import msgspec

from ratchet.components.core import ConfigurationError, request_guard
from ratchet.components.core.files import temporary_folder
from ratchet.components.core.home import bearer_auth_header, model_server_name, remove_credential, write_credential
from ratchet.components.core.processes import BackgroundProcess, free_port, require_free_port

from . import adapter_loading, checkpoint_folders, vllm_cpu_plugin
from .checkpoint_folders import is_adapter, read_adapter
from .endpoint import Endpoint, ModelUnavailable
from .http_client import ModelClient
from .policy_config import OpenAIConfig
from .server_probe import engine_python, has_gpu, package_version
from .tool_call_formats import ToolCallFormatName

Engine = Literal["vllm", "transformers"]


class ServedModel(msgspec.Struct, frozen=True):
    """A model to serve: `name` for clients, `source` that the engine loads (a path or a hub name), and the folder if it
    is a checkpoint.

    For an adapter, `source` is its base model's path, `base` the name under which that model is served, and `rank` the
    adapter's rank; `base` and `rank` are None for a full model.
    """

    name: str
    source: str
    checkpoint: Path | None
    base: str | None = None
    rank: int | None = None

    @property
    def started_as(self) -> str:
        """Return the model name that the engine is started with."""
        return self.base or self.name


def resolve_served_model(model: str | Path, engine: Engine) -> ServedModel:
    """Resolve what to serve. A `Path` or an existing folder is treated as a checkpoint and checked, any other text as a
    name that the engine can load. vLLM serves a checkpoint under its version, transformers' server under its path.

    Raises DataError, and ConfigurationError for an adapter with the transformers engine.
    """
    path = Path(model)
    if not isinstance(model, Path) and not path.is_dir():
        return ServedModel(model, model, None)
    version = checkpoint_folders.checkpoint_version(path)
    if is_adapter(path):
        if engine != "vllm":
            raise ConfigurationError(
                f"{path} is an adapter, which {engine} does not serve; serve its merged checkpoint"
            )
        adapter = read_adapter(path)
        base = str(adapter.base.resolve())
        return ServedModel(
            version, base, path.resolve(), checkpoint_folders.checkpoint_version(adapter.base), adapter.rank
        )
    source = str(path.resolve())
    return ServedModel(version if engine == "vllm" else source, source, path.resolve())


_ERROR = re.compile(r"(?:^|[\s\]])((?:\w+\.)*\w*(?:Error|Exception|Interrupt|Exit))(?:: (.+))?$")
_ECHOES = (
    "Engine core initialization failed",
    "See root cause above",
    "EngineDeadError",
    "WorkerProc initialization failed",
)
_PREFIX = re.compile(
    r"^\((?:\w+ )?pid=\d+\)\s*|\x1b\[[0-9;]*m|^(?:INFO|WARNING|ERROR|DEBUG) [\d-]+ [\d:]+ \[[^\]]*\]\s*"
)
_USAGE = re.compile(r"^\S+: error: (.+)$")
TAIL = 1 << 16

_ADVICE = (
    (re.compile(r"out of memory|free memory|no available memory|kv cache.*memory|memory.*kv cache", re.IGNORECASE),
     "free memory or ask for less: -- --gpu-memory-utilization 0.6 --max-model-len 4096"),
    (re.compile(r"address already in use", re.IGNORECASE), "choose another port with --port"),
    (re.compile(r"unrecognized arguments|invalid choice|expected one argument"), "see what the engine's own --help allows"),
    (re.compile(r"not a valid model identifier|Repository Not Found|can't load|LocalEntryNotFound|offline"),
     "give a checkpoint folder or a model that can be downloaded here"),
)  # fmt: skip


def failure_cause(log: Path) -> tuple[str, str]:
    """Return the root cause found in a server's log, in one line, and what to do about it."""
    lines = _lines(log)
    errors = [
        line for line in lines if (_ERROR.search(line) or _USAGE.match(line)) and not any(e in line for e in _ECHOES)
    ]
    cause = (errors or lines or ["it printed nothing"])[-1]
    match = _USAGE.match(cause)
    cause = (match[1] if match else cause)[:300]
    advice = next((advice for pattern, advice in _ADVICE if pattern.search(cause)), "look at the log")
    return cause, advice


def last_line(log: Path) -> str:
    """Return the last non-empty line of the log, without its prefix, cut to 160 characters; a placeholder if there is
    none.
    """
    lines = _lines(log)
    return lines[-1][:160] if lines else "nothing printed yet"


def _lines(log: Path) -> list[str]:
    try:
        text = log.read_bytes()[-TAIL:].decode("utf-8", "replace")
    except OSError:
        return []
    stripped = (_strip(line) for line in text.splitlines())
    return [line for line in stripped if line]


def _strip(line: str) -> str:
    while (shorter := _PREFIX.sub("", line)) != line:
        line = shorter
    return line.strip()


START_SECONDS = 900.0
"""Start-up limit. A large model needs minutes to load and compile on a GPU."""
TRANSFORMERS = """
import uvicorn
from request_guard import RequestGuard
load = uvicorn.Config.load
def load_guarded(config):
    load(config)
    config.loaded_app = RequestGuard(config.loaded_app)
uvicorn.Config.load = load_guarded
from transformers.cli.transformers import main
main()
"""
"""Start script for `transformers serve`, which accepts no middleware: its application is wrapped when uvicorn loads it.
"""
CPU_ARGUMENTS = ("--enforce-eager", "--dtype", "float32", "--no-enable-chunked-prefill")
"""Disable chunked prefill on CPUs: with a seeded request it crashes vLLM 0.32's engine, which rewinds the random stream
by an offset that only GPU generators have (`_bookkeeping_sync`).
"""
LOOK = 0.5
PROGRESS_SECONDS = 5.0
"""Seconds between progress reports."""
SILENT_PROGRESS_SECONDS = 30.0
"""Seconds between progress reports while the server prints nothing."""


class ModelServer:
    """Context manager. `start` returns after the server has answered a request; `stop` ends it with all its processes.

    - `model`: a checkpoint folder (served under its version, so that no two checkpoints share a name), an adapter
      folder (served on its base, vLLM only), or a name that the engine can load.
    - `adapters`: largest adapter rank to reserve room for (vLLM only); at least the rank of `model` if that is an
      adapter.
    - `python`: interpreter of the server's environment; default RATCHET_VLLM_PYTHON, or for `transformers` the current
      one.
    - `port`: on 127.0.0.1; a free one if None. `arguments` are passed to the engine.
    - `log`: file for the server's output (mode 0600, replaced at the start); default: a file in the temporary folder.
    - `on_progress`: called with one-line messages during the start.

    If this process is killed, the server ends within a second.

    Raises ConfigurationError (no such environment, port in use), DataError (a broken checkpoint), ModelUnavailable (the
    server exited or was not ready within `start_seconds`).
    """

    def __init__(
        self,
        model: str | Path,
        *,
        engine: Engine = "vllm",
        python: Path | None = None,
        port: int | None = None,
        log: Path | None = None,
        adapters: int | None = None,
        arguments: Sequence[str] = (),
        start_seconds: float = START_SECONDS,
        on_progress: Callable[[str], None] = lambda line: None,
    ) -> None:
        self.engine: Engine = engine
        self.python = python or engine_python(engine)
        self.arguments = tuple(arguments)
        self.start_seconds = start_seconds
        self.port = port or free_port()
        self.log = log or Path(tempfile.gettempdir()) / f"ratchet-model-server-{self.port}.log"
        self._on_progress = on_progress
        self._process: BackgroundProcess | None = None
        self._adapter_rank: int | None = None
        self._plugin = Path()
        self._private_folder: tempfile.TemporaryDirectory[str] | None = None
        self._key = secrets.token_urlsafe(32)
        self.served = resolve_served_model(model, engine)
        self.adapters = adapters
        if adapters is not None and engine != "vllm":
            raise ConfigurationError(
                f"{engine} takes no adapters while it runs; use vllm, or serve the merged checkpoint"
            )

    @property
    def base_url(self) -> str:
        """Return the base URL for clients."""
        return f"http://127.0.0.1:{self.port}/v1"

    @property
    def pid(self) -> int | None:
        """Return the process id of the running server, None if it is not running."""
        return self._process.pid if self._process else None

    def config(
        self, format: ToolCallFormatName = ToolCallFormatName.TOOL_CALL, *, logprobs: bool = False
    ) -> OpenAIConfig:
        """Return the policy configuration for this server. `logprobs` has no effect with the transformers engine."""
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
        require_free_port(self.port, f"the model server ({self.engine})", "--port")
        self._on_progress(
            f"starting {self.engine} {version} with {self.served.name} at {self.base_url}; log: {self.log}"
        )
        self.log.unlink(missing_ok=True)
        self._private_folder = temporary_folder("model-server")
        self._plugin = Path(self._private_folder.name) / "plugin"
        self._plugin.mkdir()
        (self._plugin / "request_guard.py").write_bytes(Path(request_guard.__file__).read_bytes())
        self._adapter_rank = max(filter(None, (self.adapters, self.served.rank)), default=None)
        if self.engine == "vllm" and not has_gpu():
            vllm_cpu_plugin.write_plugin(self._plugin)
        write_credential(model_server_name(self.port), self._key)
        self._process = BackgroundProcess(self._command(), log=self.log, env=self._environment(), umask=0o077).start()
        try:
            self._wait(self._healthy)
            if self.served.rank is not None:
                self._load_adapter()
            self._wait(self._answers_chat)
        except BaseException:
            self.stop()
            raise
        return self

    def _load_adapter(self) -> None:
        folder = self.served.checkpoint
        assert folder is not None
        with closing(ModelClient(Endpoint(base_url=self.base_url, model=self.served.started_as, retries=1))) as client:
            adapter_loading.load_adapter(client, self.served.name, folder)

    def check(self) -> None:
        """Raise ModelUnavailable if the server has exited."""
        if self._process is not None and self._process.poll() is not None:
            raise self._failed("died")

    def wait(self) -> None:
        """Block until the server exits; then raise ModelUnavailable."""
        while True:
            self.check()
            time.sleep(LOOK)

    def stop(self) -> None:
        """Stop the server and all processes it started. Idempotent."""
        if self._process is not None:
            self._process.stop()
            self._process = None
            remove_credential(model_server_name(self.port))
        if self._private_folder is not None:
            self._private_folder.cleanup()
            self._private_folder = None

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _command(self) -> list[str]:
        address = ["--host", "127.0.0.1", "--port", str(self.port)]
        if self.engine == "transformers":
            return [str(self.python), "-c", TRANSFORMERS, "serve", self.served.source, *address, *self.arguments]
        return [
            *(str(self.python), "-m", "vllm.entrypoints.openai.api_server", "--model", self.served.source, *address),
            *("--served-model-name", self.served.started_as),
            *("--middleware", "request_guard.RequestGuard"),
            *adapter_loading.adapter_arguments(self._adapter_rank),
            *("--logprobs-mode", "processed_logprobs"),  # of the distribution that is sampled from
            *(() if has_gpu() else CPU_ARGUMENTS),
            *self.arguments,
        ]

    def _environment(self) -> Mapping[str, str]:
        telemetry = {"VLLM_NO_USAGE_STATS": "1", "DO_NOT_TRACK": "1", "HF_HUB_DISABLE_TELEMETRY": "1"}
        offline = {"HF_HUB_OFFLINE": "1"} if self.served.checkpoint else {}
        memory = {} if has_gpu() else {"VLLM_CPU_KVCACHE_SPACE": os.environ.get("VLLM_CPU_KVCACHE_SPACE", "1")}
        # vLLM leaves its sockets behind; in the private folder they are removed with it.
        sockets = {"VLLM_RPC_BASE_PATH": self._private_folder.name} if self._private_folder else {}
        # Python would otherwise import a folder named vllm from the working directory, or this environment's packages.
        path = [str(self._plugin)]
        if self.engine == "transformers" and os.environ.get("PYTHONPATH"):
            path.append(os.environ["PYTHONPATH"])
        isolation = {"PYTHONPATH": os.pathsep.join(path), **({"PYTHONSAFEPATH": "1"} if self.engine == "vllm" else {})}
        # vLLM's own check covers /v1 alone. Both get the same key, even if the user's environment sets VLLM_API_KEY.
        keys = {request_guard.CREDENTIAL_VARIABLE: self._key, "VLLM_API_KEY": self._key}
        updating = {adapter_loading.RUNTIME_UPDATING_VARIABLE: "true" if self._adapter_rank is not None else "false"}
        return {**telemetry, **offline, **memory, **sockets, **updating, **isolation, **keys}

    def _wait(self, ready: Callable[[], bool]) -> None:
        begin = reported_at = time.monotonic()
        last_reported = ""
        while not ready():
            self.check()
            now = time.monotonic()
            if now - begin > self.start_seconds:
                raise self._failed(f"was not ready within {self.start_seconds:.0f} s")
            line = last_line(self.log)
            if now - reported_at >= (PROGRESS_SECONDS if line != last_reported else SILENT_PROGRESS_SECONDS):
                reported_at, last_reported = now, line
                self._on_progress(f"{now - begin:.0f} s: {line}")
            time.sleep(LOOK)

    def _healthy(self) -> bool:
        import httpx

        try:
            url = f"{self.base_url.removesuffix('/v1')}/health"
            answer = httpx.get(url, headers=bearer_auth_header(self._key), timeout=5, trust_env=False)
            return answer.status_code == httpx.codes.OK
        except httpx.HTTPError:
            return False

    def _answers_chat(self) -> bool:
        """Request one token: triggers lazy compilation, and detects a model without a chat template."""
        import httpx

        messages = [{"role": "user", "content": "hello"}]
        body = {"model": self.served.name, "messages": messages, "max_completion_tokens": 1}
        try:
            answer = httpx.post(
                f"{self.base_url}/chat/completions",
                json=body,
                headers=bearer_auth_header(self._key),
                timeout=self.start_seconds,
                trust_env=False,
            )
        except httpx.HTTPError:
            return False
        if answer.status_code != httpx.codes.OK:
            refusal = " ".join(answer.text.split())[:300]
            raise ModelUnavailable(
                f"{self.engine} serves {self.served.source} but refuses to chat: {refusal}; see {self.log}"
            )
        return True

    def _failed(self, event: str) -> ModelUnavailable:
        cause, advice = failure_cause(self.log)
        return ModelUnavailable(f"{self.engine} with {self.served.source} {event}: {cause}; {advice} (log: {self.log})")
