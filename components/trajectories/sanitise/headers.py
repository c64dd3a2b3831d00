"""Headers: what stands in Authorization and Cookie, and Bearer and Basic credentials wherever they are quoted."""

import re
from collections.abc import Iterator

from . import kinds
from .keys import Meaning, Rule
from .literals import read_value
from .patterns import Span, begins, compile_pattern
from .placeholders import is_placeholder
from .values import is_code, is_login, is_random, is_secret

_CLOSE = rb"[\"'`\\\]]{0,5}[ \t]{0,4}"
_AUTHORIZATION = rb"(?i:authorization)" + _CLOSE + rb"(?:[:=,]|=>|%3[aA])"
_SCHEME = rb"(?i:bearer|basic)(?:[ \t+]{1,4}|%20)[\"'`\\]{0,3}[A-Za-z0-9_\-]"
_COOKIE = rb"(?i:cookies?)" + _CLOSE + rb"(?:[:=]|=>)|(?:-b|--cookie)[ =][\"']?[\w.\-]{1,60}="
HINT = rb"(?i:authorization)|(?i:bearer|basic)[ \t+%]|(?i:cookies?)[\"'`\\\] \t]*[:=]|-b[ =]|--cookie[ =]"

_authorization = compile_pattern(_AUTHORIZATION)
_scheme = compile_pattern(_SCHEME)
_cookie = compile_pattern(_COOKIE)
_SCHEMES = re.compile(
    rb"(?i)(?:bearer|basic|token|api-?key|digest|negotiate|ntlm|oauth2?|splunk|geniekey|key|ssws|mac|hawk|jwt|dpop"
    rb"|aws4-hmac-sha256|aws|"
    rb"sharedkey|sharedaccesssignature|client-id|privatetoken|pveapitoken|sso-key|session|secret|apitoken|kakaoak|discogs"
    rb"|bot|user)"
    rb"(?:[ \t+]{1,4}|%20)(?:token=)?[\"']?"
)
_CREDENTIAL = re.compile(rb"[A-Za-z0-9_\-.~+/=:%!@#$^&*]{6,8192}")
_ANSWER = re.compile(rb"response=\\*\"?([0-9a-fA-F]{16,128})")
_QUOTED_PARTS = re.compile(rb"(?:=|,)[ \t]*\\*\"")
_PAIR = re.compile(rb"([\w.\-\[\]]{1,80})=([^;\s\"'\\\x00,]{4,4096})")
_COOKIE_OPTION = re.compile(rb"(?:-b|--cookie)[ =][\"']?")
_COOKIE_VALUE = re.compile(rb"[ \t]*[bf]?\\{0,7}[\"'`]?([^\r\n\"'\\\x00`]{4,4096})")
_SESSION = re.compile(
    rb"(?i)sess|sid$|^s$|auth|token|jwt|csrf|xsrf|remember|login|identity|passport|secret|connect\.sid|ticket|\.aspnet"
    rb"|credential|access|^id$"
)
_ATTRIBUTE = re.compile(
    rb"(?i)(?:path|domain|expires|max-age|samesite|secure|httponly|priority|version|theme|lang|language|locale|tz|timezone"
    rb"|consent|"
    rb"cookie_?consent|_ga\w*|_gid|_gat\w*|_fbp|currency|country|region|ab_?test|variant|viewport|width|height|color|mode)"
)
_TOKEN = Meaning(kinds.AUTHORIZATION, Rule.TOKEN)
_MIXED = re.compile(rb"(?=[^0-9]*[0-9])(?=.*[A-Za-z])", re.S)


def find(data: bytes) -> Iterator[Span]:
    """Credentials of headers. `Bearer <token>`, `Bearer $TOKEN` and the English "bearer of" hold none."""
    for match in _authorization.finditer(data):
        yield from _in_authorization(data, match.end())
    for match in _scheme.finditer(data):
        if begins(data, match.start()):
            yield from _after_scheme(data, match.start(), match.end() - 1)
    done = 0
    for match in _cookie.finditer(data):
        if match.start() < done:
            continue
        option = _COOKIE_OPTION.match(data, match.start())
        line = _COOKIE_VALUE.match(data, option.end() if option else match.end())
        if line:
            done = line.end()
            yield from _in_cookies(data, line.start(1), line.end(1))


def _in_authorization(data: bytes, at: int) -> Iterator[Span]:
    value = read_value(data, at, literal=True)
    if value is None:
        return
    scheme = _SCHEMES.match(data, value.start)
    start = scheme.end() if scheme else value.start
    found = _CREDENTIAL.match(data, start, max(start, min(len(data), start + 8192)))
    if found is None:
        return
    said = found.group().rstrip(b".,:&" if not value.quoted else b"")
    if _QUOTED_PARTS.search(data, start, start + 60) and scheme:  # parameters, as of Digest: each is judged by its name
        if answer := _ANSWER.search(data, start, start + 600):
            yield Span(answer.start(1), answer.end(1), kinds.AUTHORIZATION)
        return
    if not value.quoted and is_code(data[value.start : value.end]):
        return
    if not is_placeholder(said) and (_MIXED.match(said) or (len(said) >= 20 and (scheme or value.quoted))):
        yield Span(start, start + len(said), kinds.AUTHORIZATION)


def _after_scheme(data: bytes, scheme: int, start: int) -> Iterator[Span]:
    found = _CREDENTIAL.match(data, start)
    if found is None:
        return
    said = found.group().rstrip(b".,:&")
    if data[scheme : scheme + 2].lower() == b"ba":
        if is_login(said):
            yield Span(start, start + len(said), kinds.AUTHORIZATION)
    elif is_secret(said, _TOKEN, quoted=True) and _MIXED.match(said):
        yield Span(start, start + len(said), kinds.AUTHORIZATION)


def _in_cookies(data: bytes, start: int, end: int) -> Iterator[Span]:
    for pair in _PAIR.finditer(data, start, end):
        name, value = pair.groups()
        if is_session_cookie(name, value):
            yield Span(pair.start(2), pair.end(2), kinds.COOKIE)


def is_session_cookie(name: bytes, value: bytes) -> bool:
    """Whether a cookie's value lets somebody in: its name says so, or it looks drawn by chance."""
    if _ATTRIBUTE.fullmatch(name) or is_placeholder(value) or _MIXED.match(value) is None:
        return False
    telling = _SESSION.search(name) is not None and len(value) >= 6
    return telling or (len(value) >= 16 and (is_random(value) or is_hex(value)))


def is_hex(value: bytes) -> bool:
    """A cookie that is all hexadecimal is a session."""
    return len(value) >= 24 and re.fullmatch(rb"[0-9a-fA-F]+", value) is not None
