"""Decode one line of a file of trajectories: a record of the present schema or an older one, or the reason
why the line is no record.

Older records are migrated while they are read, one step per version:

| version | record |
|---|---|
| 0 | knowlyr-recorder, the predecessor of Ratchet: `task`, `agent`, `model`, `steps`, `outcome`, no `schema_version`; and
|   | knowlyr-hub's flat form of the same: `task_id`, `agent_framework`, `agent_model`, `steps`, `success`, `metadata` |
| 1 | the present one |

A new version adds one function to MIGRATIONS and changes none of the others: a step converts plain JSON between two
versions and does not use the present classes. A record of a newer version is an error, and is never guessed at.
"""

import json
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

import msgspec

from .record_rules import RuleSeverity, RuleViolation
from .trajectory import SCHEMA_VERSION, Trajectory, Turn, digest, with_content_hash

Record = dict[str, Any]


def version_of(record: object) -> int | None:
    """Return the schema version of a decoded line, known to this release or not; None where it is no record."""
    if not isinstance(record, dict):
        return None
    version = record.get("schema_version")
    if isinstance(version, int) and not isinstance(version, bool):  # True is an int
        return version
    if "schema_version" in record:
        return None
    if {"task", "steps", "outcome"} <= record.keys() or record.keys() >= _HUB_FIELDS:
        return 0
    return SCHEMA_VERSION if {"episode_id", "turns"} <= record.keys() else None


def migrate_record(record: Record) -> Trajectory:
    """Convert a record of an older schema, with its content hash. Raises msgspec.ValidationError that names the field."""
    for version in range(version_of(record) or 0, SCHEMA_VERSION):
        record = MIGRATIONS[version](record)
    return with_content_hash(msgspec.convert(record, Trajectory))


def migrate_line(line: bytes) -> Trajectory | None:
    """Convert a line that holds a record of an older schema; None for any other line. Raises
    msgspec.ValidationError.
    """
    try:
        record = msgspec.json.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    return migrate_record(record) if version_of(record) in MIGRATIONS else None


RECORDER = "knowlyr-recorder"
_HUB_FIELDS = {"task_id", "agent_framework", "steps"}


class _RecorderCall(msgspec.Struct):
    name: str = ""
    parameters: dict[str, Any] = {}


class _RecorderResult(msgspec.Struct):
    output: str = ""
    exit_code: int | None = None
    error: str | None = None


class _RecorderStep(msgspec.Struct):
    thought: str | None = None
    tool_call: _RecorderCall | None = None
    tool_result: _RecorderResult | None = None
    timestamp: str | None = None


class _RecorderTask(msgspec.Struct):
    task_id: str = ""
    description: str = ""
    type: str = ""
    domain: str = ""


class _RecorderOutcome(msgspec.Struct):
    success: bool | None = None
    score: float | None = None
    tests_passed: int | None = None
    tests_failed: int | None = None


class _RecorderRecord(msgspec.Struct):
    task: _RecorderTask
    steps: list[_RecorderStep]
    outcome: _RecorderOutcome
    agent: str = ""
    model: str = ""


def _from_recorder(record: Record) -> Record:
    """Convert version 0 to 1. One step becomes one turn with one call.

    The old `success` is a heuristic (a submission, the word "passed"), so that only test counts prove an outcome here;
    the old score is 0 where nothing was scored. The original claims, and all fields without a counterpart, are kept in
    `source_extra`.
    """
    if "task" not in record:
        record = _nest_hub_record(record)
    if isinstance(record["steps"], list):
        record = {**record, "steps": [_nest_flat_step(step) for step in record["steps"]]}
    old = msgspec.convert(record, _RecorderRecord)
    task_hash = digest(old.task.description)
    task_id = old.task.task_id or f"{RECORDER}/{task_hash[:12]}"
    identity = digest(RECORDER, digest(record), task_id, old.model, 0)
    extra: dict[str, Any] = {
        **_remainder(record, ("task", "steps", "outcome", "agent", "model")),
        "outcome": record["outcome"],
        "task": _remainder(record["task"], _RecorderTask.__struct_fields__),
        "turns": {
            str(index): unmapped for index, step in enumerate(record["steps"]) if (unmapped := _step_remainder(step))
        },
    }
    return {
        "episode_id": f"ep-{identity}",
        "group_id": f"gr-{digest(task_id, task_hash, old.model)}",
        "attempt": 0,
        "seed": 0,
        "task": {
            "task_id": task_id,
            "task_hash": task_hash,
            "taskset": RECORDER,
            "family": task_id,
            "kind": old.task.type,
            "role": "train",
            "domain": old.task.domain or "coding",
            "description": old.task.description,
        },
        "agent": {"name": old.agent, "policy": old.model, "policy_version": old.model, "scaffold": old.agent},
        "messages": [{"role": "user", "content": old.task.description}] if old.task.description else [],
        "turns": [_turn(index, step) for index, step in enumerate(old.steps)],
        "outcome": _outcome(old.outcome),
        "provenance": {"source": RECORDER, "collected_at": _first_timestamp(step.timestamp for step in old.steps)},
        "source_extra": {name: value for name, value in extra.items() if value},
        "schema_version": 1,
    }


MIGRATIONS: dict[int, Callable[[Record], Record]] = {0: _from_recorder}
"""Conversion from each version to the next."""


def _nest_hub_record(record: Record) -> Record:
    """Convert a flat record of knowlyr-hub's pipeline to the recorder's form; its rewards stay as fields without a place."""
    metadata = record.get("metadata")
    metadata = metadata if isinstance(metadata, dict) else {}
    return {
        **_remainder(record, ("task_id", "agent_framework", "agent_model", "success", "total_steps", "metadata")),
        "steps": record["steps"],
        "task": {"task_id": record["task_id"], "description": metadata.get("task_description", "")},
        "agent": record["agent_framework"],
        "model": record.get("agent_model", ""),
        "outcome": {
            "success": record.get("success"),
            "tests_passed": metadata.get("outcome_tests_passed"),
            "tests_failed": metadata.get("outcome_tests_failed"),
        },
        "metadata": _remainder(metadata, ("task_description", "outcome_tests_passed", "outcome_tests_failed")),
    }


def _turn(index: int, step: _RecorderStep) -> Record:
    call_id = f"{index}-0"
    tool_call = step.tool_call if step.tool_call is not None and step.tool_call.name else None
    result = step.tool_result
    return {
        "index": index,
        "agent_id": "agent",
        "text": "",
        "thought": step.thought or None,
        "calls": [{"call_id": call_id, "tool": tool_call.name, "arguments": tool_call.parameters}] if tool_call else [],
        "results": []
        if result is None
        else [
            {
                "call_id": call_id if tool_call else "",
                "content": result.output,
                "exit_code": result.exit_code,
                "error": result.error,
            }
        ],
    }


def _nest_flat_step(step: Any) -> Any:
    """Convert a flat step (tool, parameters and output in the step itself) to the nested form."""
    name = (step.get("tool_name") or step.get("tool")) if isinstance(step, dict) and "tool_call" not in step else None
    if not isinstance(name, str):
        return step
    parameters: Record = next((step[key] for key in ("tool_params", "params") if isinstance(step.get(key), dict)), {})
    output = next((step[key] for key in ("tool_output", "output") if isinstance(step.get(key), str)), None)
    result = {
        "output": output,
        "exit_code": step.get("tool_exit_code", step.get("exit_code")),
        "error": step.get("error"),
    }
    unmapped = _remainder(
        step,
        ("tool_name", "tool", "tool_params", "params", "tool_output", "output", "tool_exit_code", "exit_code", "error"),
    )
    return {
        **unmapped,
        "tool_call": {"name": name, "parameters": parameters},
        "tool_result": None if output is None else result,
    }


def _outcome(old: _RecorderOutcome) -> Record:
    passed, failed = old.tests_passed or 0, old.tests_failed or 0
    # Without a passed test the old flag proves nothing: the predecessor also set it for a mere submission.
    success = False if failed > 0 else True if old.success and passed > 0 else None
    is_known = passed >= 0 and failed >= 0 and passed + failed > 0
    return {
        "success": success if is_known else None,
        "score": old.score or None,
        "tests_passed": passed if is_known else None,
        "tests_total": passed + failed if is_known else None,
    }


def _step_remainder(step: Record) -> Record:
    """Fields of a step without a counterpart in a turn."""
    call, result = step.get("tool_call") or {}, step.get("tool_result") or {}
    unmapped = _remainder(step, ("thought", "tool_call", "tool_result"))
    parts = {
        "tool_call": _remainder(call, _RecorderCall.__struct_fields__),
        "tool_result": _remainder(result, _RecorderResult.__struct_fields__),
    }
    return {**unmapped, **{name: value for name, value in parts.items() if value}}


def _remainder(record: Mapping[str, Any], mapped: Iterable[str]) -> Record:
    mapped_names = set(mapped)
    return {
        name: value for name, value in record.items() if name not in mapped_names and value not in (None, "", {}, [])
    }


def _first_timestamp(timestamps: Iterable[str | None]) -> str | None:
    """Return the first valid ISO 8601 timestamp, in UTC."""
    for text in timestamps:
        try:
            moment = datetime.fromisoformat((text or "").replace("Z", "+00:00"))
            zoned = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
            return zoned.astimezone(UTC).isoformat().replace("+00:00", "Z")
        except (ValueError, OverflowError):
            continue
    return None


CONVERT_ADVICE = "rewrite it: `ratchet trajectories convert FILE -o OUT.jsonl`"
SCHEMA_ADVICE = "see `ratchet trajectories schema`"
_decoder = msgspec.json.Decoder(Trajectory)


def read_line(line: bytes) -> tuple[Trajectory | None, list[RuleViolation]]:
    """Decode a line (older schemas are migrated). Return the record, or None if it cannot be decoded, and the
    violations found while decoding: the errors, or a warning that it was migrated. `rule_violations` checks the
    content.
    """
    try:
        trajectory = _decoder.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return _read_invalid(line)
    if trajectory.schema_version == SCHEMA_VERSION:
        return trajectory, []
    return None, [_other_version(trajectory.schema_version)]


def _read_invalid(line: bytes) -> tuple[Trajectory | None, list[RuleViolation]]:
    """Return the migrated record of a line with an older schema, or why the line is no record."""
    if not line.strip(b"\0\r\n\t "):
        return None, [RuleViolation("", "holds only zeros", "restore the file: its content was lost")]
    try:
        # Decoded as text first: msgspec reports invalid UTF-8 without saying where.
        record = msgspec.json.decode(line.decode())
    except UnicodeDecodeError as error:
        advice = "save it as UTF-8, or restore the file"
        return None, [RuleViolation("", f"is not UTF-8 at byte {error.start + 1}", advice)]
    except RecursionError:
        return None, [RuleViolation("", "is nested too deeply", "look what wrote it")]
    except msgspec.DecodeError as error:
        return None, list(_json_violations(line, str(error)))
    version = version_of(record)
    if version is None:
        return None, [RuleViolation("", "is JSON, and no trajectory", CONVERT_ADVICE)]
    if version in MIGRATIONS:
        return _read_older(record, version)
    if version != SCHEMA_VERSION:
        return None, [_other_version(version)]
    return None, list(_type_violations(record)) or [RuleViolation("", "is no trajectory", SCHEMA_ADVICE)]


def _read_older(record: dict[str, Any], version: int) -> tuple[Trajectory | None, list[RuleViolation]]:
    message = f"is a record of schema {version}"
    try:
        trajectory = migrate_record(record)
    except msgspec.DecodeError as error:
        return None, [RuleViolation("", f"{message} that cannot be migrated: {error}", "restore the record")]
    message += ", which is migrated while it is read"
    return trajectory, [RuleViolation("schema_version", message, CONVERT_ADVICE, RuleSeverity.WARNING)]


def _other_version(version: int) -> RuleViolation:
    if version > SCHEMA_VERSION:
        return RuleViolation("schema_version", f"{version} is newer than {SCHEMA_VERSION}", "upgrade Ratchet")
    return RuleViolation("schema_version", f"{version} in a record of {SCHEMA_VERSION}", f"write {SCHEMA_VERSION}")


def _json_violations(line: bytes, reason: str) -> Iterator[RuleViolation]:
    if not line.endswith(b"\n"):
        yield RuleViolation("", "the last line is cut short", f"remove it or restore the file ({reason})")
        return
    try:
        # The standard library accepts NaN and Infinity, which msgspec refuses without naming the field.
        fields = list(_infinite_fields(json.loads(line), ""))
    except (ValueError, RecursionError):
        fields = []
    for field in fields:
        yield RuleViolation(field, "is no finite number", "write null where a number is unknown")
    if not fields:
        yield RuleViolation("", f"is no JSON: {reason}", "restore the record, or remove the line")


def _infinite_fields(value: Any, path: str) -> Iterator[str]:
    """Yield the paths of non-finite numbers."""
    if isinstance(value, float) and not math.isfinite(value):
        yield path
    elif isinstance(value, dict):
        for name, item in value.items():
            yield from _infinite_fields(item, f"{path}.{name}" if path else name)
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _infinite_fields(item, f"{path}[{index}]")


def _type_violations(record: Mapping[str, Any]) -> Iterator[RuleViolation]:
    """Yield missing, unknown and wrongly typed fields of a decoded line, turn by turn."""
    fields = {field.name: field for field in msgspec.structs.fields(Trajectory)}
    for name in sorted(record.keys() - fields.keys()):
        yield RuleViolation(name, "is no field of a trajectory", "move it into source_extra")
    for name, field in fields.items():
        if name not in record:
            if field.required:
                yield RuleViolation(name, "is missing", "convert the log again, or restore the record")
        elif name == "turns" and isinstance(record[name], list):
            for index, turn in enumerate(record[name]):
                yield from _type_violation(f"turns[{index}]", turn, Turn)
        else:
            yield from _type_violation(name, record[name], field.type)


_MSGSPEC_PATH = re.compile(r" - at `\$(.*)`$")


def _type_violation(field: str, value: Any, kind: Any) -> Iterator[RuleViolation]:
    try:
        msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        path = _MSGSPEC_PATH.search(str(error))
        within = path[1] if path else ""
        message = _MSGSPEC_PATH.sub("", str(error))
        yield RuleViolation(field + within, message[:1].lower() + message[1:], SCHEMA_ADVICE)
