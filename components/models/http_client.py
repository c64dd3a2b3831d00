"""Thread-safe HTTP client of one model server (`ModelClient`): JSON requests with timeouts and retries.

The number of parallel requests is limited, and the limit is lowered while the server is overloaded (`Limiter`). All
requests run on one event loop in a background thread, so that timeouts are exact and `close` can cancel running
requests. `response_error` turns a response other than HTTP 200 into an exception, whose type tells the caller to retry,
to shorten the prompt, or to report a wrong configuration.
"""

import asyncio
import concurrent.futures
import json
import random
import re
import threading
import time
from abc import ABC, abstractmethod
from collections import Counter, deque
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlsplit

import msgspec

from ratchet.components.core import ConfigurationError
from ratchet.components.core.home import bearer_auth_header

from .endpoint import ContextExceeded, Endpoint, MalformedAnswer, ModelUnavailable, RequestRefused, RetryableError

if TYPE_CHECKING:
    import httpx


class Aimd:
    """Additive increase, multiplicative decrease (Chiu and Jain 1989), without I/O.

    Each success adds 1/limit, so a full window of successes adds one. An overload halves the limit, once for all
    requests in flight at that time. The limit stays between 1 and `highest`, where it starts.
    """

    def __init__(self, highest: int) -> None:
        self.highest = highest
        self.limit = float(highest)
        self.decreases = 0

    def success(self) -> None:
        """Record a successful request."""
        self.limit = min(float(self.highest), self.limit + 1 / self.limit)

    def overload(self, begun_at: int) -> None:
        """Record an overload met by a request that started when `decreases` was `begun_at`."""
        if begun_at == self.decreases:
            self.limit = max(1.0, self.limit / 2)
            self.decreases += 1


class Limiter:
    """Semaphore for the coroutines of one event loop, first in, first out, whose limit `aimd` varies up to `highest`."""

    def __init__(self, highest: int) -> None:
        self.aimd = Aimd(highest)
        self.running = 0
        self._waiting: deque[asyncio.Future[None]] = deque()

    @asynccontextmanager
    async def slot(self) -> AsyncIterator[int]:
        """Hold a slot. Yields the number of decreases so far, which the caller passes to `Aimd.overload` if its request
        meets an overload.
        """
        if self._waiting or not self._has_room():
            ticket: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.append(ticket)
            try:
                await ticket
            except asyncio.CancelledError:
                # A slot may have been handed over just before the cancellation: it must be given on.
                if ticket.done() and not ticket.cancelled():
                    self._leave()
                else:
                    self._waiting.remove(ticket)
                raise
        else:
            self.running += 1
        try:
            yield self.aimd.decreases
        finally:
            self._leave()

    def _leave(self) -> None:
        self.running -= 1
        while self._waiting and self._has_room():
            ticket = self._waiting.popleft()
            if not ticket.done():
                self.running += 1
                ticket.set_result(None)

    def _has_room(self) -> bool:
        return self.running < int(self.aimd.limit)


RETRIED = {408, 409, 425, 429, 500, 502, 503, 504, 520, 522, 524, 529}
OVERLOAD = {429, 503, 529}
_CONTEXT = re.compile(
    r"context[_ ](?:length|window)|maximum (?:model|context|prompt) length|longer than the max|prompt is too long"
    r"|input is too long|too many tokens|exceeds? the (?:model'?s )?(?:maximum|context)",
    re.IGNORECASE,
)
_LIMIT = re.compile(r"(?:maximum (?:context|model) length (?:is|of)|context window of)\D{0,5}(\d+)", re.IGNORECASE)
_ASKED = re.compile(r"\((\d+) in the messages|(?:contains |resulted in |\(length )(\d+)", re.IGNORECASE)


NO_KEY = (
    "no key was sent: name its environment variable as api_key_env beside base_url and model in a YAML file, and give "
    "that as openai:FILE.yaml in place of openai:MODEL@URL (docs/servers.md)"
)


def response_error(
    where: str, status: int, body: bytes, headers: Mapping[str, str], clean: Callable[[str], str], has_key: bool = True
) -> RetryableError | ContextExceeded | ModelUnavailable | RequestRefused | ConfigurationError:
    """Return the exception for a response other than HTTP 200; it is not raised here.

    `where` describes the server in the error's message; `clean` removes secrets from the server's message; `has_key`:
    a key was sent.
    """
    message, code = parse_server_error(body)
    message = clean(message)
    if status in RETRIED and code != "insufficient_quota":
        wait = retry_after(headers.get("retry-after"))
        return RetryableError(f"HTTP {status} {message}", overload=status in OVERLOAD, wait=wait, free=True)
    if status in (400, 413, 422) and (code == "context_length_exceeded" or _CONTEXT.search(message)):
        return ContextExceeded(_number(_LIMIT, message), _number(_ASKED, message))
    summary = f"{where} refused the request (HTTP {status}): {message}"
    if code == "insufficient_quota":
        return ModelUnavailable(f"{summary}; see to the account")
    if status in (401, 403):
        remedy = "check the key in the variable that api_key_env names" if has_key else NO_KEY
        return ConfigurationError(f"{summary}; {remedy}")
    if status == 404:
        return ConfigurationError(f"{summary}; check base_url and model")
    if 300 <= status < 400:
        return ConfigurationError(f"{summary}; it points to {headers.get('location')}: use that as base_url")
    return RequestRefused(
        f"{summary}; check what is sent: extra_body, a policy's format and server, a judge's structured"
    )


def retry_after(value: str | None, now: float | None = None) -> float:
    """Return the seconds to wait by a Retry-After header (a number or a date); 0 if it is None or invalid.

    `now`: Unix time in seconds, by default the current one.
    """
    if not value:
        return 0.0
    try:
        return max(0.0, float(value)) if value.strip().lower() not in ("nan", "inf", "infinity") else 0.0
    except ValueError:
        pass
    try:
        return max(0.0, parsedate_to_datetime(value).timestamp() - (time.time() if now is None else now))
    except (ValueError, TypeError, OverflowError):
        return 0.0


def parse_server_error(body: bytes) -> tuple[str, str | None]:
    """Return the server's error message (at most 300 characters) and error code, in any of the common formats."""
    text = body.decode("utf-8", "replace")
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return text[:300], None
    error = value.get("error", value.get("detail", value.get("message", text))) if isinstance(value, dict) else text
    if isinstance(error, dict):
        code = error.get("code") or error.get("type")
        return str(error.get("message", error))[:300], str(code) if code else None
    return str(error)[:300], None


def _number(pattern: re.Pattern[str], text: str) -> int | None:
    match = pattern.search(text)
    return int(next(group for group in match.groups() if group)) if match else None


T = TypeVar("T")
LONGEST_WAIT = 60.0
"""Longest pause before a retry, in seconds. A server that asks for more counts as unavailable."""
LARGEST_BODY = 64 * 1024 * 1024


def encode_json(body: dict[str, Any]) -> bytes:
    """Return `body` as JSON. A lone surrogate, which output of a tool may hold and which has no UTF-8 form, becomes `?`."""
    try:
        return msgspec.json.encode(body)
    except UnicodeEncodeError:
        return json.dumps(body, ensure_ascii=False).encode("utf-8", "replace")


class RequestMeter:
    """Callbacks around every attempt to send a request, retries included. Subclasses enforce a budget; this base class
    allows everything.
    """

    def before(self) -> None:
        """Called before an attempt is sent. An exception cancels the request, without further retries."""

    def refused(self) -> None:
        """Called after an attempt that the server refused or never received, so that nothing was generated or billed."""


class RetryingClient(ABC):
    """Sends the requests to one server from one event loop, with a limit on how many run at once and with retries. Raises
    ConfigurationError for a missing API key.

    `headers`: function that returns the HTTP headers for an API key (None without one). `counts`: numbers of requests,
    retries and overloads; callers may add counters.
    """

    def __init__(self, config: Endpoint, headers: Callable[[str | None], dict[str, str]] = bearer_auth_header) -> None:
        self.config = config
        self.counts: Counter[str] = Counter()
        self.limiter = Limiter(config.concurrency)
        self._key = config.key()
        self._headers = {"Content-Type": "application/json", "Accept": "application/json", **headers(self._key)}

    @abstractmethod
    async def _try(self, method: str, url: str, content: bytes | None) -> bytes:
        """Send one request and return the body of a 200. Raises RetryableError or what `response_error` returns."""

    async def _ask(
        self, method: str, url: str, content: bytes | None, read: Callable[[bytes], T], meter: RequestMeter
    ) -> T:
        failure: RetryableError | None = None
        for attempt in range(self.config.retries + 1):
            if failure is not None:
                self.counts["retries"] += 1
                await asyncio.sleep(self._pause(attempt, failure))
            async with self.limiter.slot() as overloads:
                try:
                    meter.before()
                except Exception as error:
                    raise error from failure  # an exhausted budget shows what its requests were spent on
                self.counts["requests"] += 1
                try:
                    answer = read(await self._metered(method, url, content, meter))
                except MalformedAnswer as error:
                    failure = RetryableError(str(error))
                except RetryableError as error:
                    failure = error
                    if error.overload:
                        self.counts["overloads"] += 1
                        self.limiter.aimd.overload(overloads)
                else:
                    self.limiter.aimd.success()
                    return answer
            if failure.wait > LONGEST_WAIT:
                raise self._unavailable(f"it asks to wait {failure.wait:.0f} s", attempt + 1)
        raise self._unavailable(str(failure), self.config.retries + 1)

    async def _metered(self, method: str, url: str, content: bytes | None, meter: RequestMeter) -> bytes:
        try:
            return await self._try(method, url, content)
        except Exception as error:
            if not isinstance(error, RetryableError) or error.free:
                meter.refused()
            raise

    def _pause(self, attempt: int, failure: RetryableError) -> float:
        """Exponential back-off with jitter, at least as long as the server requested."""
        back_off = min(LONGEST_WAIT, self.config.back_off * 2 ** (attempt - 1))
        return float(failure.wait + back_off * random.uniform(0.5, 1.0))

    def _unavailable(self, why: str, tries: int) -> ModelUnavailable:
        times = "once" if tries == 1 else f"{tries} times"
        return ModelUnavailable(
            self._clean(f"{self._where()} failed {times}: {why}; see whether it runs, then try again")
        )

    def _where(self) -> str:
        return f"model server {self.config.base_url} (model '{self.config.model}')"

    def _clean(self, text: str) -> str:
        """Return the text in one line with the API key removed: servers may echo the header in an error."""
        text = " ".join(text.split())
        return text.replace(self._key, "***") if self._key else text


class ModelClient(RetryingClient):
    """Client of one server for threads; its requests run on an event loop in a thread."""

    def __init__(self, config: Endpoint, headers: Callable[[str | None], dict[str, str]] = bearer_auth_header) -> None:
        super().__init__(config, headers)
        self._loop = asyncio.new_event_loop()
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()
        self._closed = False
        self._http: httpx.AsyncClient | None = None

    def post(self, url: str, body: dict[str, Any], read: Callable[[bytes], T], meter: RequestMeter | None = None) -> T:
        """POST `body` as JSON to `url` and return `read(answer)`, where `answer` is the response body. `url` is
        complete.

        Retries after timeouts, broken connections, overload, server errors and answers that `read` rejects with
        MalformedAnswer. Raises ModelUnavailable, RequestRefused, ConfigurationError, ContextExceeded, and whatever
        `meter` raises.
        """
        return self._run(self._ask("POST", url, encode_json(body), read, meter or RequestMeter()))

    def get(self, url: str, read: Callable[[bytes], T]) -> T:
        """GET `url` and return `read(answer)`; retries and exceptions as in `post`."""
        return self._run(self._ask("GET", url, None, read, RequestMeter()))

    def close(self) -> None:
        """Cancel requests in flight; their callers get ModelUnavailable. Idempotent."""
        with self._lock:
            self._closed = True
            thread, self._thread = self._thread, None
            if thread is None:
                if not self._loop.is_running():
                    self._loop.close()  # of a client that never sent a request, or is closed already
                return
        asyncio.run_coroutine_threadsafe(self._end(), self._loop).result(10)
        self._loop.call_soon_threadsafe(self._loop.stop)
        thread.join(10)
        self._loop.close()

    def _run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        with self._lock:
            if self._closed:
                coroutine.close()
                raise ModelUnavailable("the model's client is closed; make another")
            if self._thread is None:
                self._thread = threading.Thread(target=self._loop.run_forever, name="model-client", daemon=True)
                self._thread.start()
            future = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        try:
            return future.result()
        except concurrent.futures.CancelledError as error:
            raise ModelUnavailable("the model's client was closed while it asked; make another") from error
        except BaseException:
            future.cancel()
            raise

    async def _end(self) -> None:
        tasks = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._http is not None:
            await self._http.aclose()

    async def _try(self, method: str, url: str, content: bytes | None) -> bytes:
        import httpx

        try:
            async with asyncio.timeout(self.config.timeouts.total):
                request = self._client().build_request(method, url, content=content)
                response = await self._client().send(request, stream=True)
                try:
                    body = await _whole(response)
                finally:
                    await response.aclose()
        except TimeoutError as error:
            raise RetryableError(f"no answer within {self.config.timeouts.total:g} s", overload=True) from error
        except httpx.ConnectTimeout as error:
            raise RetryableError(
                f"no connection within {self.config.timeouts.connect:g} s", overload=True, free=True
            ) from error
        except httpx.TimeoutException as error:
            raise RetryableError(f"it fell silent for {self.config.timeouts.read:g} s", overload=True) from error
        except httpx.InvalidURL as error:
            raise ConfigurationError(self._clean(f"{self._where()}: {error}; check base_url")) from error
        except (httpx.TransportError, httpx.DecodingError, OSError) as error:
            unreached = isinstance(error, httpx.ConnectError)
            raise RetryableError(
                f"{type(error).__name__}: {error or 'the connection broke'}", free=unreached
            ) from error
        if response.status_code != httpx.codes.OK:
            has_key = self._key is not None
            raise response_error(self._where(), response.status_code, body, response.headers, self._clean, has_key)
        return body

    def _client(self) -> "httpx.AsyncClient":
        if self._http is None:
            import httpx

            seconds, address = self.config.timeouts, urlsplit(self.config.base_url)
            local = address.hostname in ("127.0.0.1", "localhost", "::1")
            self._http = httpx.AsyncClient(
                headers=self._headers,
                timeout=httpx.Timeout(seconds.read, connect=seconds.connect, pool=None),
                limits=httpx.Limits(max_connections=None, max_keepalive_connections=self.config.concurrency),
                trust_env=not local,  # a proxy named in the environment does not reach this machine's loopback
                verify=not (local and address.scheme == "http"),  # loading the certificates takes 20 ms
            )
        return self._http


async def _whole(response: "httpx.Response") -> bytes:
    parts = bytearray()
    async for part in response.aiter_bytes():
        parts += part
        if len(parts) > LARGEST_BODY:
            raise RetryableError(f"its answer is longer than {LARGEST_BODY} bytes")
    return bytes(parts)
