"""Configuration of served policies: `OpenAIConfig` for any OpenAI-compatible server, `VllmConfig` for token-exact vLLM."""

import hashlib
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, Self

import msgspec
from pydantic import Field, model_validator

from ratchet.components.core import ConfigurationError
from ratchet.components.core.configuration import Configuration

from . import checkpoint_folders
from .endpoint import Endpoint, Timeouts
from .tool_call_formats import ToolCallFormatName


class OpenAIConfig(Endpoint):
    """A model behind an OpenAI-compatible server, read from one YAML file; the policy name is `openai:<path>`.

    - `revision`, or `checkpoint` (the served folder, whose content hash is the revision), distinguishes weights served
      under one name. Without either the policy version depends on the name alone.
    - `server`: `openai` receives standard parameters only, `vllm` also returns token ids, counts tokens and keeps
      special tokens, and `transformers` is `transformers serve`, which samples only if the checkpoint given here or its
      own configuration says so, and honours a seed only for one request at a time.
    - `format`: notation of tool calls, `native` for the API's own and the others for calls that are written as text.
    - `temperature`, `top_p`: null for those of the collection.
    - `max_new_tokens`: tokens at which a reply is cut; null for that of the collection.
    - `extra_body`: merged into each request; null removes a parameter (`seed: null` for a server that rejects seeds).
    - `context_window`: tokens of prompt and reply together; queried from vLLM, learnt from a rejection elsewhere.
    - `logprobs`: request log-probabilities (and token ids from vLLM).
    """

    revision: str | None = None
    checkpoint: Path | None = None
    server: Literal["openai", "vllm", "transformers"] = "openai"
    format: ToolCallFormatName = ToolCallFormatName.NATIVE
    temperature: float | None = Field(None, ge=0)
    top_p: float | None = Field(None, gt=0, le=1)
    max_new_tokens: int | None = Field(None, gt=0)
    extra_body: dict[str, Any] = Field(default_factory=dict)
    context_window: int | None = Field(None, gt=0)
    logprobs: bool = False

    @model_validator(mode="after")
    def _check_revision(self) -> Self:
        if self.revision and self.checkpoint:
            raise ValueError("give revision or checkpoint, not both")
        return self

    @classmethod
    def named(cls, name: str) -> Self:
        """Parse the part of a policy name after `openai:`, a YAML file or `<model>@<base_url>`. Raises
        ConfigurationError.
        """
        model, _, address = name.rpartition("@")
        if model and address.startswith(("http://", "https://")):
            return cls.load({"model": model, "base_url": address})
        if Path(name).suffix not in (".yaml", ".yml", ".json") and not Path(name).exists():
            raise ConfigurationError(
                f"openai:{name} is neither openai:FILE.yaml nor openai:MODEL@URL with a URL such as "
                "http://127.0.0.1:8000/v1; correct it, or see docs/servers.md"
            )
        return cls.load(Path(name))

    @cached_property
    def weights(self) -> str | None:
        """Identifier of the weights: the revision, or the checkpoint's content hash; None without either.

        Raises DataError for a broken checkpoint.
        """
        return checkpoint_folders.checkpoint_version(self.checkpoint) if self.checkpoint else self.revision

    @cached_property
    def version(self) -> str:
        """Policy version: `openai-` and 16 hex digits of SHA-256 over all settings that affect a reply.

        The server's address is not part of it.
        """
        settings = self.model_dump(
            mode="json",
            exclude={
                *("base_url", "api_key_env", "server", "timeouts", "retries", "back_off", "concurrency", "price"),
                *("logprobs", "checkpoint", "revision"),
            },
        )
        if self.checkpoint:
            settings["model"] = None
        encoded = msgspec.json.encode([settings, self.weights], order="sorted")
        return f"openai-{hashlib.sha256(encoded).hexdigest()[:16]}"

    def as_yaml(self) -> str:
        """Return the YAML that `openai:<path>` reads."""
        import yaml

        return str(yaml.safe_dump(self.model_dump(mode="json", exclude_defaults=True), sort_keys=False))


class VllmConfig(Configuration):
    """A checkpoint sampled by vLLM: `vllm:<folder>`, `vllm:<folder>@<base_url>`, `vllm:<YAML file>`, or `vllm:{...}`
    inline.

    - `checkpoint`: the folder. Prompts are rendered with its tokenizer and template; the server receives token ids.
    - `base_url`: a server of that checkpoint (`ratchet serve`) or of its base with room for adapters. Without it a
      server is started while the policy is in use, in the environment named by RATCHET_VLLM_PYTHON.
    - `options`: engine arguments of a server to start, by vLLM's own names; `vllm_options.DECIDED` are Ratchet's.
    - `python`: interpreter of a server to start; default RATCHET_VLLM_PYTHON. `log`: file for its output; by default a
      temporary one that is removed if there was no error.
    - `concurrency`: parallel requests.
    """

    checkpoint: Path
    base_url: str | None = None
    options: dict[str, Any] = Field(default_factory=dict)
    python: Path | None = None
    log: Path | None = None
    api_key_env: str | None = None
    timeouts: Timeouts = Timeouts()
    retries: int = Field(5, ge=0)
    concurrency: int = Field(256, gt=0)

    @classmethod
    def named(cls, name: str) -> Self:
        """Parse the part of a policy name after `vllm:`, in one of the class's four forms. Raises ConfigurationError."""
        if name.startswith("{"):
            return cls.load(_values(name))
        folder, _, address = name.rpartition("@")
        if folder and address.startswith(("http://", "https://")):
            return cls.load({"checkpoint": folder, "base_url": address})
        if Path(name).suffix in (".yaml", ".yml"):
            return cls.load(Path(name))
        return cls.load({"checkpoint": name})

    def endpoint(self, base_url: str, model: str) -> Endpoint:
        """Return the HTTP endpoint of the model named `model` on the server at `base_url`, with this configuration's
        limits.
        """
        shared = {name: getattr(self, name) for name in ("api_key_env", "timeouts", "retries", "concurrency")}
        return Endpoint(base_url=base_url, model=model, **shared)


def _values(text: str) -> dict[str, Any]:
    try:
        return msgspec.json.decode(text.encode(), type=dict[str, Any])
    except msgspec.DecodeError as error:
        raise ConfigurationError(f"policy vllm:{text} cannot be read: {error}; give a folder or a YAML file") from error
