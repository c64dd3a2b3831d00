"""ASGI middleware that protects the servers on the loopback interface.

Any web page can send requests to 127.0.0.1 and, by DNS rebinding, read the answers; so can processes of other local
users. RequestGuard refuses a foreign `Host`, a foreign `Origin`, a request sent by another site's page, and, where
RATCHET_SERVER_CREDENTIAL is set, a request without that credential (basic authentication with any user name, or a
bearer token).

Not covered: processes of the same user can read the credential, and traffic is not encrypted. A standalone file without
imports from this repository: vLLM loads it in its own environment.
"""

import base64
import hmac
import os
import re
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

CREDENTIAL_VARIABLE = "RATCHET_SERVER_CREDENTIAL"
"""Environment variable with the credential; without it only `Host` and `Origin` are checked."""
_LOOPBACK = r"(?:127\.0\.0\.1|localhost|\[::1\])"
_HOST = re.compile(rf"{_LOOPBACK}(?::(\d{{1,5}}))?", re.IGNORECASE)
_ORIGIN = re.compile(rf"https?://{_LOOPBACK}(?::(\d{{1,5}}))?", re.IGNORECASE)

Message = MutableMapping[str, Any]
Application = Callable[[Any, Callable[[], Awaitable[Message]], Callable[[Message], Awaitable[None]]], Awaitable[None]]


class RequestGuard:
    """Forward requests to `app`; answer 403 to a foreign Host or Origin, and 401 to a missing or wrong credential.

    `credential`: None for that of the environment, as where vLLM makes the guard.
    """

    def __init__(self, app: Application, credential: str | None = None) -> None:
        self.app = app
        self._credential = os.environ.get(CREDENTIAL_VARIABLE, "") if credential is None else credential

    async def __call__(
        self, scope: Message, receive: Callable[[], Awaitable[Message]], send: Callable[[Message], Awaitable[None]]
    ) -> None:
        """Handle one ASGI connection."""
        refusal = self.refusal(scope) if scope["type"] in ("http", "websocket") else None
        if refusal is None:
            await self.app(scope, receive, send)
        elif scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008})
        else:
            status, reason = refusal
            headers = [(b"content-type", b"text/plain; charset=utf-8"), (b"cache-control", b"no-store")]
            if status == 401:
                headers.append((b"www-authenticate", b'Basic realm="Ratchet", charset="UTF-8"'))
            await send({"type": "http.response.start", "status": status, "headers": headers})
            await send({"type": "http.response.body", "body": reason.encode()})

    def refusal(self, scope: Message) -> tuple[int, str] | None:
        """Return the HTTP status and the text with which a request is refused; None where it may pass."""
        values: dict[str, list[str]] = {}
        for name, value in scope["headers"]:
            values.setdefault(name.decode("latin-1").lower(), []).append(value.decode("latin-1"))
        hosts = [_HOST.fullmatch(value) for value in values.get("host", [])]
        # Two Host headers: the server behind might believe the other one.
        if len(hosts) != 1 or hosts[0] is None:
            return 403, "this server answers on the loopback interface alone: foreign Host"
        for value in values.get("origin", []):
            origin = _ORIGIN.fullmatch(value)
            if origin is None or origin[1] != hosts[0][1]:
                return 403, "foreign Origin"
        if "origin" not in values and _from_another_site(scope, values):
            return 403, "a page of another site sent this request"
        if self._credential and not self._presents_credential(values.get("authorization", [])):
            return (
                401,
                "this server asks for a password or a key: see the folder credentials in the home of Ratchet",
            )
        return None

    def _presents_credential(self, authorizations: list[str]) -> bool:
        if len(authorizations) != 1:
            return False
        scheme, _, value = authorizations[0].partition(" ")
        if scheme.lower() == "basic":
            try:
                value = base64.b64decode(value, validate=True).decode().partition(":")[2]
            except ValueError:
                return False
        elif scheme.lower() != "bearer":
            return False
        # A plain comparison would tell by its duration how many characters are right.
        return hmac.compare_digest(value.encode(), self._credential.encode())


def _from_another_site(scope: Message, values: dict[str, list[str]]) -> bool:
    """Whether the browser reports a page of another site as sender; navigation to a whole document is allowed.

    Applies only to requests without `Origin`, which is more exact: to a browser, `localhost` and `127.0.0.1` are
    different sites.
    """
    sites = set(values.get("sec-fetch-site", []))
    if sites <= {"same-origin", "none"}:
        return False
    opened = values.get("sec-fetch-mode") == ["navigate"] and values.get("sec-fetch-dest") == ["document"]
    return not (opened and scope.get("method") == "GET")
