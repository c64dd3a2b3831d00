"""Conversion of arbitrary JSON values of logs to the types of a record. A value of the wrong type becomes None.

`reported_outcome` reads the evaluation report in a log. That an agent submitted, ended or wrote a patch is no proof of success.
"""

import json
import math
import re
import sys
from collections.abc import Collection, Mapping
from datetime import UTC, datetime
from typing import Any

import msgspec

from ratchet.components.trajectories.record_rules import MAX_INTEGER
from ratchet.components.trajectories.trajectory import Outcome


def words(text: str) -> tuple[str, ...]:
    """Return the space-separated words of a text, such as field names."""
    return tuple(text.split())


def drop_empty(**fields: Any) -> dict[str, Any]:
    """Return the keyword arguments whose value is truthy, as a dictionary."""
    return {name: value for name, value in fields.items() if value}


BOM = b"\xef\xbb\xbf"
UTF_16 = (b"\xff\xfe", b"\xfe\xff")
"""Byte order marks of UTF-16."""
MAX_DEPTH = 60
"""Levels of nesting to which `to_plain_json` cuts values that are nested more deeply than a record may be."""

_SURROGATE = re.compile("[\ud800-\udfff]")
# Numbers as Python's JSON writer spells them, kept as text because JSON has no such numbers.
_NON_FINITE_NAMES = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}
_LENIENT_MARKS = (b"NaN", b"Infinity", b"\\ud", b"\\uD")


def decode_json(raw: bytes) -> Any:
    """Return the JSON value in `raw`. Raises ValueError with a message of one line.

    Extensions of Python's writer are accepted: NaN and infinities become text ("NaN"), unpaired surrogates U+FFFD.
    """
    raw = raw.removeprefix(BOM)
    try:
        # msgspec first: it is several times faster than json, and rejects exactly the extensions that json accepts below.
        return msgspec.json.decode(raw)
    except UnicodeDecodeError as error:
        raise ValueError(_describe_invalid_utf8(raw)) from error
    except RecursionError as error:
        raise ValueError("nested too deeply") from error
    except msgspec.DecodeError as error:
        if "out of range" not in str(error) and not any(sign in raw for sign in _LENIENT_MARKS):
            raise ValueError(f"not JSON: {error}") from error
    try:
        return to_plain_json(json.loads(raw, parse_constant=lambda name: name), depth=-1)
    except UnicodeDecodeError as error:
        raise ValueError(_describe_invalid_utf8(raw)) from error
    except json.JSONDecodeError as error:
        raise ValueError(f"not JSON: {error}") from error
    except ValueError as error:
        raise ValueError(f"a number of more than {sys.get_int_max_str_digits()} digits") from error
    except RecursionError as error:
        raise ValueError("nested too deeply") from error


def _describe_invalid_utf8(raw: bytes) -> str:
    try:
        raw.decode()
    except UnicodeDecodeError as error:
        return f"not UTF-8 at byte {error.start} (if it is Latin-1: iconv -f LATIN1 -t UTF-8)"
    return "not UTF-8"


def to_plain_json(value: Any, depth: int = MAX_DEPTH) -> Any:
    """Return a copy of `value` with valid UTF-8 text, finite 64-bit numbers and at most `depth` levels (-1: no limit)."""
    if isinstance(value, str):
        return to_text(value)
    if isinstance(value, bool) or value is None:
        return value
    if isinstance(value, int):
        return value if abs(value) <= MAX_INTEGER else _spell_integer(value)
    if isinstance(value, float):
        return value if math.isfinite(value) else _NON_FINITE_NAMES[repr(value)]
    if depth == 0:  # never reached from -1
        return "(nested too deeply: left out)"
    if isinstance(value, Mapping):
        return {to_text(key): to_plain_json(item, depth - 1) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [to_plain_json(item, depth - 1) for item in value]
    return to_text(value)


def _spell_integer(value: int) -> str:
    try:
        return str(value)
    except ValueError:  # Python refuses to spell integers of more than 4,300 digits
        return hex(value)


def to_text(text: object) -> str:
    """Return a text with unpaired surrogates replaced by U+FFFD; None as ""; any other value as JSON."""
    if isinstance(text, str):
        return text if text.isascii() else _replace_surrogates(text)
    if text is None:
        return ""
    try:
        return msgspec.json.encode(text).decode()
    except (TypeError, ValueError, OverflowError, RecursionError, msgspec.MsgspecError):
        return (
            msgspec.json.encode(to_plain_json(text)).decode()
            if isinstance(text, Mapping | list | int)
            else repr(type(text))
        )


def _replace_surrogates(text: str) -> str:
    # The substitution copies the text, which may have megabytes; encoding only tests it.
    try:
        text.encode()
    except UnicodeEncodeError:
        return _SURROGATE.sub("\ufffd", text)
    return text


def to_number(value: object) -> float | None:
    """Return a finite number as float, or None. Booleans are not numbers."""
    if isinstance(value, bool) or not isinstance(value, int | float):  # bool is a subclass of int
        return None
    try:
        return float(value) if math.isfinite(value) else None
    except OverflowError:  # an integer beyond the range of a float
        return None


def to_cost(value: object) -> float | None:
    """Return a finite number of at least 0, or None: some logs write -1 for an unknown cost."""
    number = to_number(value)
    return number if number is not None and number >= 0 else None


def to_count(value: object) -> int | None:
    """Return an integer from 0 to 2**63 - 1, or None."""
    number = to_number(value)
    if number is None or number != math.floor(number) or not 0 <= number < 2**63:
        return None
    return value if isinstance(value, int) else int(number)  # an int as it is: float loses digits above 2**53


def to_int(value: object) -> int | None:
    """Return a 32-bit integer such as an exit code, or None."""
    number = to_number(value)
    return int(number) if number is not None and number == math.floor(number) and abs(number) < 2**31 else None


def parse_time(value: object) -> datetime | None:
    """Return a UTC time from ISO 8601 text, or from Unix seconds, milliseconds, micro- or nanoseconds; else None.

    Text without a zone is taken as UTC.
    """
    try:
        if isinstance(value, str):
            time = datetime.fromisoformat(value)
            return time.astimezone(UTC) if time.tzinfo else time.replace(tzinfo=UTC)
        seconds = to_number(value)
        if seconds is None:
            return None
        # Logs do not state the unit: 1e8 seconds are the year 1973, before any log of an agent.
        for unit in (1e9, 1e6, 1e3):
            if seconds > 1e8 * unit:
                return datetime.fromtimestamp(seconds / unit, UTC)
        return datetime.fromtimestamp(seconds, UTC)
    except (ValueError, OverflowError, OSError):
        return None


def to_iso(value: object) -> str | None:
    """Return a time in any form that `parse_time` accepts as ISO 8601 text in UTC, else None."""
    time = parse_time(value)
    return None if time is None else time.isoformat().replace("+00:00", "Z")


def as_mapping(value: object) -> dict[str, Any]:
    """Return `value` if it is a dictionary, else an empty one."""
    return value if isinstance(value, dict) else {}


def as_mappings(value: object) -> list[dict[str, Any]]:
    """Return the dictionaries of a list; empty where `value` is no list."""
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def without_keys(value: Mapping[str, Any], *keys: str) -> dict[str, Any]:
    """Return the fields of `value` except `keys` and those that are null, "", [] or {}."""
    return {key: field for key, field in value.items() if key not in keys and field not in _EMPTY}


_EMPTY: tuple[Any, ...] = (None, "", [], {})


def unread_fields(value: Mapping[str, Any], read: Collection[str], empty: Collection[Any] = (None,)) -> dict[str, Any]:
    """Return the fields of a log's object that a reader did not use, for the extra fields of a record.

    `read`: names of the fields that it used; `empty`: values that are left out.
    """
    return {str(key): field for key, field in value.items() if key not in read and field not in empty}


def as_str(value: object) -> str | None:
    """Return `value` if it is a text (also an empty one), else None."""
    return value if isinstance(value, str) else None


def first_text(*values: object) -> str | None:
    """Return the first non-empty text, else None."""
    return next((value for value in values if isinstance(value, str) and value), None)


def text_between(text: str, *marks: tuple[str, str]) -> str | None:
    """Return the stripped text between an opening and a closing mark, else None.

    `marks`: (opening, closing) pairs, tried in order until one encloses a text that is not blank.
    """
    for opening, closing in marks:
        _, is_open, after = text.partition(opening)
        inside, is_closed, _ = after.partition(closing)
        if is_open and is_closed and inside.strip():
            return inside.strip()
    return None


_DECIDING_GROUPS = ("FAIL_TO_PASS", "PASS_TO_PASS")


def reported_outcome(*reports: object) -> Outcome:
    """Return the outcome in reports with the fields of SWE-bench's harness; the first one that states a field counts.

    Success is `resolved`, unless the evaluation itself failed (`error_eval`). Tests are counted from the groups
    FAIL_TO_PASS and PASS_TO_PASS of `tests_status`. Fields that no report states are None.
    """
    success: bool | None = None
    counted: tuple[int, int] | None = None
    for report in map(as_mapping, reports):
        verdict = report.get("resolved")
        if success is None and isinstance(verdict, bool) and report.get("error_eval") is not True:
            success = verdict
        counted = counted or _count_tests(report.get("tests_status"))
    passed, total = counted or (None, None)
    return Outcome(success=success, tests_passed=passed, tests_total=total)


def _count_tests(status: Any) -> tuple[int, int] | None:
    groups = [as_mapping(as_mapping(status).get(group)) for group in _DECIDING_GROUPS]
    passed, failed = (
        sum(len(group[name]) for group in groups if isinstance(group.get(name), list))
        for name in ("success", "failure")
    )
    return (passed, passed + failed) if passed + failed else None
