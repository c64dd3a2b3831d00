r"""Blocks: private keys in PEM, OpenSSH, PGP and PuTTY form, with real line ends or the `\n` of JSON, whole or cut short."""

import base64
import binascii
import re
from collections.abc import Iterator

from . import kinds
from .patterns import Span, compile_pattern, union

_PEM = rb"-{4,5} ?BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY"
_ENCODED = rb"LS0tLS1CRUdJTi[A-Za-z0-9+/]{20}"
_OPENSSH = rb"b3BlbnNzaC1rZXktdjE[A-Za-z0-9+/]{40}"
_PUTTY = rb"Private-Lines: [0-9]"
_JWK = rb"\\{0,7}\"(?:d|k|p|q|dp|dq|qi)\\{0,7}\"[ \t]{0,2}:[ \t]{0,2}\\{0,7}\"[A-Za-z0-9_\-]{40}"
_TAIL = rb"-{4,5} ?END [A-Z0-9 ]{0,40}PRIVATE KEY"
HINT = rb"PRIVATE KEY|LS0tLS1CRUdJTi|b3BlbnNzaC1rZXktdjE|Private-Lines: |\"(?:d|k|p|q|dp|dq|qi)\\*\"[ \t]*:"

_pem = compile_pattern(_PEM)
_tail = compile_pattern(_TAIL)
_body = compile_pattern(union((_ENCODED, _OPENSSH)))
_putty = compile_pattern(_PUTTY)
_jwk = compile_pattern(_JWK)
_BEGIN = re.compile(rb"-{4,5} ?BEGIN [A-Z0-9 ]*PRIVATE KEY(?: BLOCK)? ?-{4,5}")
_END = re.compile(rb"-{4,5} ?END [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)? ?-{4,5}")
_BREAK = rb"(?:[ \t]*(?:\r?\n|\\{1,7}r?\\{0,7}n|\\{1,7}r|,)[ \t>+|#\"']*|[ \t]+)"
_LINES = re.compile(
    rb"(?:"
    + _BREAK
    + rb"{0,3}(?:(?:Proc-Type|DEK-Info|Version|Comment|Charset|Hash): ?[^\n\\\x00]{1,120}|[A-Za-z0-9+/=]{16,}"
    rb"|=[A-Za-z0-9+/]{4}))*"
    rb"(?:" + _BREAK + rb"[A-Za-z0-9+/]{1,75}={1,2})?"
)
_LAST_RUN = re.compile(rb"(?<![A-Za-z0-9+/=])[A-Za-z0-9+/]{4,76}={0,2}$")
_RUN = re.compile(rb"[A-Za-z0-9+/=]{16}")
_BASE64 = re.compile(rb"(?:[A-Za-z0-9+/]|\r?\n[ \t]{0,8}(?=[A-Za-z0-9+/]{8})|\\{1,7}n(?=[A-Za-z0-9+/]{8}))+={0,2}")
_PUTTY_LINES = re.compile(rb"Private-Lines: \d{1,4}(?:\r?\n|\\{1,7}n)((?:[A-Za-z0-9+/=]{4,80}(?:\r?\n|\\{1,7}n|$))+)")
_JWK_VALUE = re.compile(rb"\\*\"[dkpqi]{1,2}\\*\"[ \t]*:[ \t]*\\*\"([A-Za-z0-9_\-]+)")
LONGEST = 64 * 1024
"""Bytes that one block may have."""


def find(data: bytes) -> Iterator[Span]:
    """Every private key. A header without a body (code that looks for one), certificates and public keys are none."""
    done = 0
    for match in _pem.finditer(data):
        if match.start() >= done and (span := _block(data, match.start())):
            done = span.end
            yield span
    for match in _tail.finditer(data):
        if match.start() >= done and (start := _tail_start(data, match.start(), done)) is not None:
            end = _END.match(data, match.start())
            done = end.end() if end else match.end()
            yield Span(start, done, kinds.PRIVATE_KEY)
    for match in _body.finditer(data):
        if match.start() >= done and (whole := _BASE64.match(data, match.start(), match.start() + LONGEST)):
            done = whole.end()
            if whole.group().startswith(b"b3Blbn") or _holds_key(whole.group()):
                yield Span(whole.start(), whole.end(), kinds.PRIVATE_KEY)
    for match in _putty.finditer(data):
        if lines := _PUTTY_LINES.match(data, match.start(), match.start() + LONGEST):
            yield Span(lines.start(1), lines.end(1), kinds.PRIVATE_KEY)
    for match in _jwk.finditer(data):
        value = _JWK_VALUE.match(data, match.start())
        if value and b"kty" in data[max(0, match.start() - 2000) : match.end() + 2000]:
            yield Span(value.start(1), value.end(1), kinds.PRIVATE_KEY)


def _block(data: bytes, start: int) -> Span | None:
    begin = _BEGIN.match(data, start)
    if begin is None:
        return None
    limit = min(len(data), begin.end() + LONGEST)
    for stop in (b"\x00", b"BEGIN "):
        cut = data.find(stop, begin.end(), limit)
        limit = cut if cut >= 0 else limit
    end = _END.search(data, begin.end(), limit)
    if end is not None:
        has_body = _RUN.search(data, begin.end(), end.start())
        return Span(start, end.end(), kinds.PRIVATE_KEY) if has_body else None
    lines = _LINES.match(data, begin.end(), limit)
    if lines is None or _RUN.search(lines.group()) is None:
        return None
    return Span(start, lines.end(), kinds.PRIVATE_KEY)


def _tail_start(data: bytes, end: int, low: int) -> int | None:
    """Where the lines of base64 begin that lead to the end of a key whose beginning was cut off; None without any."""
    low = max(low, end - LONGEST)
    start = None
    at = end
    while at > low:
        stop = data.rfind(b"\n", low, at)
        escaped = data.rfind(b"\\n", max(low, stop), at)
        begin = max(stop + 1 if stop >= 0 else low, escaped + 2 if escaped >= 0 else low)
        line = data[begin:at].rstrip(b" \t\r\\+\"'")
        if at < end:
            body = _LAST_RUN.search(line)
            if body is None or (begin > low and b" " in line[body.start() :]):
                return start
            start = begin + body.start()
        at = begin - 1 if stop >= escaped else begin - 2
        if stop < 0 and escaped < 0:
            return start
    return start


def _holds_key(encoded: bytes) -> bool:
    """Whether the base64 of a PEM block is one of a private key: certificates are written the same way."""
    plain = encoded.replace(b"\\n", b"").replace(b"\n", b"")[:80]
    try:
        return b"PRIVATE KEY" in base64.b64decode(plain[: len(plain) // 4 * 4])
    except (binascii.Error, ValueError):
        return False
