"""Configuration of a model server's HTTP endpoint, and the errors that a request can end with."""

import os
import re
from urllib.parse import urlsplit

from pydantic import Field, field_validator

from ratchet.components.core import ConfigurationError, InfrastructureError
from ratchet.components.core.configuration import Configuration
from ratchet.components.core.home import model_server_key


class ModelUnavailable(InfrastructureError):
    """The server does not answer, or returns invalid answers, after all retries."""


class RequestRefused(InfrastructureError):
    """The server rejects this request permanently; retrying is useless."""


class ContextExceeded(Exception):
    """The prompt exceeds the model's context. Handled by the caller, never shown to users.

    `limit` and `prompt_tokens` are taken from the server's message, None if absent.
    """

    def __init__(self, limit: int | None, prompt_tokens: int | None) -> None:
        super().__init__("the prompt is longer than the model's context")
        self.limit = limit
        self.prompt_tokens = prompt_tokens


class MalformedAnswer(Exception):
    """The server returned an invalid answer; `ModelClient` retries it."""


class RetryableError(Exception):
    """A failed attempt that may be retried after at least `wait` seconds. Handled by `ModelClient`.

    `overload`: the server is overloaded, so fewer requests should run in parallel. `free`: the server refused the
    request or was never reached, so nothing was generated or billed.
    """

    def __init__(self, why: str, *, overload: bool = False, wait: float = 0.0, free: bool = False) -> None:
        super().__init__(why)
        self.overload = overload
        self.wait = wait
        self.free = free


class Timeouts(Configuration):
    """Timeouts in seconds: `connect` to the server, `read` the next byte, and in `total` the whole request."""

    connect: float = Field(10.0, gt=0)
    read: float = Field(300.0, gt=0)
    total: float = Field(600.0, gt=0)


class Price(Configuration):
    """Price per million tokens of the `prompt` and of the `completion`, in one currency."""

    prompt: float = Field(ge=0)
    completion: float = Field(ge=0)

    def of(self, prompt_tokens: int, completion_tokens: int) -> float:
        """Return the cost of the given token counts."""
        return (prompt_tokens * self.prompt + completion_tokens * self.completion) / 1e6


class Endpoint(Configuration):
    """A model behind an HTTP server.

    - `base_url`: the server's address, such as http://127.0.0.1:8000/v1. `model`: the server's name for it.
    - `api_key_env`: environment variable that holds the API key; the key itself is never stored. Servers started by
      this installation (`ratchet serve`) need none: their key is looked up by address.
    - `retries`: further attempts of a request that failed. `back_off`: seconds before the first one, doubled each time.
    - `concurrency`: parallel requests, reduced while the server is overloaded.
    - `price`: price per million tokens; without it the cost of an episode is unknown.
    """

    base_url: str
    model: str = Field(min_length=1)
    api_key_env: str | None = None
    timeouts: Timeouts = Timeouts()
    retries: int = Field(5, ge=0)
    back_off: float = Field(0.5, ge=0)
    concurrency: int = Field(32, gt=0)
    price: Price | None = None

    @field_validator("base_url")
    @classmethod
    def _check_base_url(cls, value: str) -> str:
        """Raise ConfigurationError rather than ValueError: pydantic would repeat the value, and with it a password, in
        its message.
        """
        try:
            parts = urlsplit(value)
            readable = value.isprintable() and (parts.port or 0) >= 0
        except ValueError:
            readable = False
        if not readable:
            raise ConfigurationError("base_url is no address; write one such as http://127.0.0.1:8000/v1") from None
        if parts.username or parts.password or parts.query or parts.fragment:
            raise ConfigurationError(
                "base_url must be an address without user, password, query or fragment; name the key's variable in api_key_env"
            )
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ConfigurationError(f"base_url '{value}' is not an http(s) address such as http://127.0.0.1:8000/v1")
        return value.rstrip("/")

    @field_validator("api_key_env")
    @classmethod
    def _check_api_key_env(cls, value: str | None) -> str | None:
        if value is not None and not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]{0,80}", value):
            raise ConfigurationError(
                "api_key_env is the name of an environment variable, not the key; export the key in one"
            )
        return value

    @property
    def root(self) -> str:
        """Return the server's base address, without `/v1`."""
        return self.base_url.removesuffix("/v1")

    def key(self) -> str | None:
        """Return the API key: from the variable `api_key_env`, or else of a server started by this installation; None
        if there is none. Raises ConfigurationError if the variable is unset, empty or not printable ASCII.
        """
        if self.api_key_env is None:
            return model_server_key(self.base_url)
        key = os.environ.get(self.api_key_env, "").strip()
        if not key:
            raise ConfigurationError(
                f"the environment variable {self.api_key_env} (api_key_env) is not set; export the key"
            )
        if not (key.isascii() and key.isprintable()):  # no header holds it, and an error would show it
            raise ConfigurationError(
                f"the environment variable {self.api_key_env} (api_key_env) holds characters that no key has; export it anew"
            )
        return key
