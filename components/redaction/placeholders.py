"""Placeholders: recognise those in a text (`<your-key>`, `${TOKEN}`, `****`), and put ours (`[PASSWORD_1]`) in place of secrets.

Equal secrets get equal placeholders within one text or trajectory, and equal salted digests within a run. Replacement keeps JSON
valid, and includes the other occurrences of each secret.
"""

import hashlib
import hmac
import json
import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Sequence
from urllib.parse import quote_from_bytes

import re2

from .byte_patterns import SecretSpan, compile_pattern, is_word
from .redaction_policy import ADDRESS, BIRTH_DATE, CARD, CARD_CODE, EMAIL, HOST, IBAN, NATIONAL_ID, PHONE, SecretKind
from .secret_keys import byte_words

_PLACEHOLDER_WORDS = byte_words("placeholders")
_PLACEHOLDER_SHAPES = re.compile(
    rb"""(?xs)
      <[^<>]*>? | \{\{.* | \$\{.* | \$\(.* | \#\{.* | %\([^)]*\)[sd]? | %[a-zA-Z_]\w*% | %[sdrvqx] | @@.*@@ | __[A-Za-z_]+__
    | (?:\$[A-Z_][A-Z0-9_]*[/:]?)+ | \$[A-Za-z_]+ | \.[*+].* | \$env:.* | \$\{?\{?\s?secrets\..* | \$[0-9@*#?]
    | \[[^\[\]]*\]? | \{[^{}]*\}? | \\?(?:[*.\-_=x#X?]|\xe2\x80[\xa2\xa6])+ | [*]{3,}.* | .*[*]{3,} | .*(?:\.{3}|\xe2\x80\xa6)
    | !(?:Ref|Sub|GetAtt|vault|secret|reference|env|ENV|Import|Join|include).* | (?:arn|ref\+|vault|kms|ssm|sm|env|file|op|keyring|
      secretref|secretsmanager|gcp-secretmanager|awskms|doppler|infisical|bws|pass):/?/?[A-Za-z_/].* | ENC\[.* | <<.*
    | (?:process\.env|os\.environ|import\.meta\.env|System\.getenv|std::env|env|ENV|secrets|vars|var|local|module|data)[.\[(:].*
    """
)
# Parts that make any value a placeholder: `your-api-key`, `example`, `changeme`, `xxxxx`.
_PLACEHOLDER_PARTS = re.compile(
    rb"(?i)your[-_ .]?|(?:^|[-_ .<(])(?:example|placeholder|redacted|dummy|sample|changeme|todo|fixme|fake|insert"
    rb"|replace)(?:$|[-_ .>)])|(?:change|replace|insert|enter|fill|paste|put|add|set)[-_ ]?(?:me|this|it|your|here"
    rb"|in)(?:$|[-_ .])|[-_ ](?:here|goes)$|x{5}|\*{3}|\[[A-Z][A-Z_]*_[0-9]+\]|deadbeef"
)
OUR_PLACEHOLDER = re.compile(rb"\[[A-Z][A-Z0-9_]*_[0-9]+\]")
"""Pattern of the placeholders that Ratchet writes: `[PASSWORD_1]`."""


def is_placeholder(value: bytes) -> bool:
    """Return whether a value is a placeholder or a well-known default such as `changeme` or `postgres`."""
    # At most two distinct bytes (`xxxx`, `-----`), or nothing but ASCII signs.
    if (len(set(value)) <= 2 and len(value) > 2) or not any(byte > 47 for byte in value):
        return True
    lowered = value.lower().rstrip(b".,;:!?")
    if lowered in _PLACEHOLDER_WORDS or not lowered:
        return True
    return _PLACEHOLDER_SHAPES.fullmatch(value) is not None or _PLACEHOLDER_PARTS.search(value) is not None


_ESCAPE = re.compile(rb"\\+([\"'/\\])")
_SEPARATORS = re.compile(rb"[^A-Za-z0-9]")
_NUMERIC_KINDS = {CARD.name, IBAN.name, PHONE.name, NATIONAL_ID.name}
# Values of these kinds are short or common: other occurrences in the text may be something else.
_COMMON_KINDS = {ADDRESS.name, HOST.name, CARD_CODE.name, BIRTH_DATE.name}


class Pseudonyms:
    """Assigns the placeholders of one trajectory or text. Call `reserve` first: the text may contain some already.

    `stable`: the number of a placeholder is derived from the salted digest of its value, so that parts of one conversation
    that are redacted apart agree. Two values share a number with a probability of about one in a million.
    """

    def __init__(self, salt: bytes, *, stable: bool = False) -> None:
        self._salt = salt
        self._stable = stable
        self._placeholders: dict[bytes, bytes] = {}
        self._numbers: Counter[bytes] = Counter()
        self._known: dict[bytes, SecretKind] = {}

    def reserve(self, data: bytes) -> None:
        """Continue the numbering after the placeholders that `data` contains, so that no number is used twice."""
        for match in OUR_PLACEHOLDER.finditer(data):
            label, _, number = match.group()[1:-1].rpartition(b"_")
            if len(number) < 7:
                self._numbers[label] = max(self._numbers[label], int(number))

    def placeholder(self, kind: SecretKind, value: bytes) -> bytes:
        """Return the placeholder of `value`, a new one where an equal value has none yet."""
        same = canonical_value(kind, value)
        placeholder = self._placeholders.get(same)
        if placeholder is None:
            label = kind.label.encode()
            self._numbers[label] = (
                int(self.digest(kind, value), 16) % 1_000_000 if self._stable else self._numbers[label] + 1
            )
            placeholder = self._placeholders[same] = b"[%s_%d]" % (label, self._numbers[label])
            if is_distinctive(kind, value):
                self._known.update(dict.fromkeys(spellings(value), kind))
        return placeholder

    def digest(self, kind: SecretKind, value: bytes) -> str:
        """Return the first 16 hex digits of the HMAC-SHA-256 of `value` under the run's salt."""
        return hmac.new(self._salt, canonical_value(kind, value), hashlib.sha256).hexdigest()[:16]

    @property
    def kind_by_spelling(self) -> dict[bytes, SecretKind]:
        """Kinds of the values so far that are distinctive (see `is_distinctive`), by each spelling of the value."""
        return self._known


def canonical_value(kind: SecretKind, value: bytes) -> bytes:
    """Return a normalised value, by which secrets are compared.

    It has no escapes; numbers have no separators, and e-mail addresses are in lower case.
    """
    plain = _ESCAPE.sub(rb"\1", value)
    if kind.name in _NUMERIC_KINDS:
        return _SEPARATORS.sub(b"", plain).upper()
    return plain.lower() if kind.name == EMAIL.name else plain


def is_distinctive(kind: SecretKind, value: bytes) -> bool:
    """Return whether a value that occurs again in a text is surely the same secret: it is neither short nor common."""
    if kind.name in _COMMON_KINDS or len(value) < 6 or OUR_PLACEHOLDER.fullmatch(b"[%s]" % value):
        return False
    return (
        len(value) >= 10
        if value.isalpha()
        else len(value) >= 8 or not value.isalnum() or any(48 <= byte <= 57 for byte in value)
    )


def spellings(value: bytes) -> set[bytes]:
    """Return the value unchanged, unescaped, JSON-escaped once and twice, and URL-encoded."""
    plain = _ESCAPE.sub(rb"\1", value)
    forms = {value, plain}
    if len(value) <= 512:
        forms.add(quote_from_bytes(plain, safe="").encode())
    once = json.dumps(plain.decode("utf-8", "surrogateescape"), ensure_ascii=False)[1:-1]
    forms.add(once.encode("utf-8", "surrogateescape"))
    forms.add(json.dumps(once, ensure_ascii=False)[1:-1].encode("utf-8", "surrogateescape"))
    return forms


# Up to this number, values are searched one by one; more are searched with compiled patterns.
_FEW_VALUES = 16
_VALUES_PER_PATTERN = 256
_AS_VALUE = re.compile(rb"(\\*)\"[ \t\r\n]*:[ \t\r\n]*$")
_IN_ARRAY = re.compile(rb"[\[,][ \t\r\n]*$")
_AFTER = re.compile(rb"[ \t\r\n]*[,\]}]")
_QUOTE = re.compile(rb"(\\*)\"")


def find_occurrences(
    data: bytes, excluded: Sequence[SecretSpan], kind_by_value: dict[bytes, SecretKind]
) -> list[SecretSpan]:
    """Return the occurrences of values of `kind_by_value` that are whole words and overlap no span of `excluded`."""
    spans = []
    for start, end, kind in _occurrences(data, kind_by_value):
        inside = (is_word(data, start) and is_word(data, start - 1)) or (is_word(data, end - 1) and is_word(data, end))
        if not inside:
            spans.append(SecretSpan(start, end, kind))
    if not excluded:
        return spans
    ordered = sorted(excluded)
    return [span for span in spans if not _overlaps(span, ordered)]


def _occurrences(data: bytes, kind_by_value: dict[bytes, SecretKind]) -> Iterable[tuple[int, int, SecretKind]]:
    if len(kind_by_value) <= _FEW_VALUES:
        for value, kind in kind_by_value.items():
            at = data.find(value)
            while at >= 0:
                yield at, at + len(value), kind
                at = data.find(value, at + len(value))
        return
    # The longest first: an alternation takes the first that matches, and a secret may be a prefix of another.
    values = sorted(kind_by_value, key=len, reverse=True)
    for first in range(0, len(values), _VALUES_PER_PATTERN):
        some = values[first : first + _VALUES_PER_PATTERN]
        for match in compile_pattern(b"|".join(re2.escape(value_bytes) for value_bytes in some)).finditer(data):
            yield match.start(), match.end(), kind_by_value[data[match.start() : match.end()]]


def _overlaps(span: SecretSpan, ordered: Sequence[SecretSpan]) -> bool:
    at = bisect_right(ordered, span.start, key=lambda other: other.start)
    before = at > 0 and ordered[at - 1].end > span.start
    return before or (at < len(ordered) and ordered[at].start < span.end)


def replace_spans(data: bytes, spans: Iterable[SecretSpan], pseudonyms: Pseudonyms) -> bytes:
    """Return `data` with placeholders for the spans, which must be ordered and disjoint.

    A bare number in JSON becomes a string, with quotes that are escaped as those of the text around it.
    """
    pieces = []
    at = 0
    for span in spans:
        mark = pseudonyms.placeholder(span.kind, span.value(data))
        quote = _json_quote(data, span)
        pieces += [data[at : span.start], quote, mark, quote]
        at = span.end
    return b"".join([*pieces, data[at:]])


def _json_quote(data: bytes, span: SecretSpan) -> bytes:
    value = data[span.start : span.end]
    if not value.lstrip(b"-").replace(b".", b"").isdigit() or _AFTER.match(data, span.end) is None:
        return b""
    before = data[max(0, span.start - 64) : span.start]
    if key := _AS_VALUE.search(before):
        return key.group(1) + b'"'
    if _IN_ARRAY.search(before) is None or data.lstrip()[:1] not in (b"{", b"["):
        return b""
    near = _QUOTE.search(data, max(0, span.start - 2000), span.start + 2000)
    return near.group() if near else b'"'
