"""HTTP client of one model server within the caller's event loop: what a server in front of the model needs.

`ModelClient` serves threads. A server that handles each request in its event loop would pay two changes of thread a request
for it; aiohttp, whose parser is compiled, also takes half of the processor time that httpx does.
"""

import asyncio
import io
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlsplit

from ratchet.components.core import ConfigurationError

from .endpoint import RetryableError
from .http_client import LARGEST_BODY, RequestMeter, RetryingClient, encode_json, response_error

if TYPE_CHECKING:
    import aiohttp

IDLE_SECONDS = 4.0
"""Seconds after which an idle connection is closed: earlier than servers do, which is after 5 s in uvicorn and vLLM."""
T = TypeVar("T")


class LoopModelClient(RetryingClient):
    """Client of one server within one event loop. Timeouts, retries and errors are those of `ModelClient`."""

    _http: "aiohttp.ClientSession | None" = None

    async def post(self, url: str, body: dict[str, Any], read: Callable[[bytes], T]) -> T:
        """POST `body` as JSON to `url` and return `read(answer)`; see `ModelClient.post`."""
        return await self._ask("POST", url, encode_json(body), read, RequestMeter())

    async def close(self) -> None:
        """Close the connections. Idempotent."""
        http, self._http = self._http, None
        if http is not None:
            await http.close()

    async def _try(self, method: str, url: str, content: bytes | None) -> bytes:
        import aiohttp

        seconds, body = self.config.timeouts, bytearray()
        try:
            async with (
                asyncio.timeout(seconds.total),
                self._session().request(
                    method, url, data=io.BytesIO(content or b""), allow_redirects=False
                ) as response,
            ):
                async for part in response.content.iter_any():
                    body += part
                    if len(body) > LARGEST_BODY:
                        raise RetryableError(f"its answer is longer than {LARGEST_BODY} bytes")
        except aiohttp.ConnectionTimeoutError as error:
            raise RetryableError(f"no connection within {seconds.connect:g} s", overload=True, free=True) from error
        except aiohttp.SocketTimeoutError as error:
            raise RetryableError(f"it fell silent for {seconds.read:g} s", overload=True) from error
        except TimeoutError as error:
            raise RetryableError(f"no answer within {seconds.total:g} s", overload=True) from error
        except aiohttp.InvalidURL as error:
            raise ConfigurationError(self._clean(f"{self._where()}: {error}; check base_url")) from error
        except (aiohttp.ClientError, OSError) as error:
            unreached = isinstance(error, aiohttp.ClientConnectorError)
            raise RetryableError(f"{type(error).__name__}: {error or 'it broke'}", free=unreached) from error
        if response.status != 200:
            answer, has_key = bytes(body), self._key is not None
            raise response_error(self._where(), response.status, answer, response.headers, self._clean, has_key)
        return bytes(body)

    def _session(self) -> "aiohttp.ClientSession":
        if self._http is None:
            import aiohttp
            import httpx

            seconds, address = self.config.timeouts, urlsplit(self.config.base_url)
            certificates = httpx.create_ssl_context() if address.scheme == "https" else True  # as ModelClient's
            self._http = aiohttp.ClientSession(
                headers=self._headers,
                timeout=aiohttp.ClientTimeout(sock_connect=seconds.connect, sock_read=seconds.read),
                connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=IDLE_SECONDS, ssl=certificates),
                cookie_jar=aiohttp.DummyCookieJar(),
                trust_env=address.hostname not in ("127.0.0.1", "localhost", "::1"),
            )
        return self._http
