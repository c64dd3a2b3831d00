"""Features: one flat row per episode, which the suites check and the rank reads. Messages are not included.

This module computes the columns that depend on the record alone; `episode_table` adds those that depend on its scores
and on other episodes.
"""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from datetime import date, datetime
from typing import Any, NamedTuple

import msgspec
import pyarrow as pa

from ratchet.components.core import Message
from ratchet.components.interop.trajectory_writers import RATCHET_FORMAT
from ratchet.components.trajectories.chat_messages import chat_messages
from ratchet.components.trajectories.parallel_shards import ShardSource
from ratchet.components.trajectories.record_rules import RuleSeverity, rule_violations
from ratchet.components.trajectories.trajectory import Trajectory

from .conversation_checks import ChatRenderer, chat_fault, dominant_script, roles_alternate, tools_fault

RECORD_COLUMNS = {
    "episode_id": "string", "group_id": "string", "night": "string", "schema_version": "int32", "task_id": "string",
    "task_hash": "string", "taskset": "string", "family": "string", "kind": "string", "role": "string",
    "domain": "string", "policy": "string", "policy_version": "string", "source": "string", "attempt": "int32",
    "content_hash": "string", "messages_hash": "string", "hash_matches": "bool", "identity_fault": "string",
    "fault": "string", "collected_on": "string", "days_ahead": "int32", "turns": "int32", "steps": "int32",
    "parse_errors": "int32", "calls_answered": "bool", "longest_observation": "int64", "bytes": "int64",
    "tokens": "int64", "trainable": "int64", "trains": "bool", "numbers_sane": "bool", "prompted": "bool",
    "chat_fault": "string", "alternates": "bool", "script": "string", "script_share": "float64", "scripts": "string",
    "secrets_remaining": "int32", "success": "bool", "outcome_known": "bool", "outcome_consistent": "bool",
    "truncated": "bool", "infrastructure_failure": "bool", "played": "bool",
}  # fmt: skip
"""Columns that depend on the record alone, and their Arrow types."""
EPISODE_COLUMNS = RECORD_COLUMNS | {
    "total": "float64", "outcome": "float64", "process": "float64", "efficiency": "float64", "judge": "float64",
    "learned": "float64", "scorer": "string", "scored": "bool",
    "failure_unscored": "bool", "caught": "bool", "group_size": "int32", "repeated": "bool", "script_usual": "bool",
}  # fmt: skip
"""Columns of the table of episodes and their Arrow types."""
BYTES_PER_TOKEN = 4
"""Bytes of a conversation that count as one token if no tokenizer is configured."""
MAX_ABS_REWARD = 1e6
"""Maximum plausible absolute value of a reward or score of an environment."""
MAX_FAULT_LENGTH = 200
"""Maximum length of a fault's description, in characters."""

FindSecrets = Callable[[Trajectory], Sequence[object]]
"""Function that returns the secrets in a record."""


class FeatureSettings(NamedTuple):
    """Inputs of the features besides the record. `demonstrators` are names of policies whose episodes are
    demonstrations, and `as_of` is the day of the build. Secrets are not searched in records of more than `max_bytes`,
    which the suite refuses anyway.
    """

    find_secrets: FindSecrets
    demonstrators: frozenset[str] = frozenset()
    as_of: date | None = None
    renderer: ChatRenderer = ChatRenderer()
    max_bytes: int = 4_000_000


def feature_schema(fields: Mapping[str, str] = EPISODE_COLUMNS) -> pa.Schema:
    """Return the Arrow schema of the features."""
    return pa.schema([(name, pa.type_for_alias(alias)) for name, alias in fields.items()])


def shard_features(trajectories: Sequence[Trajectory], source: ShardSource, settings: FeatureSettings) -> pa.Table:
    """Return one row per record of a shard, in their order."""
    rows = [episode_features(trajectory, source.night, settings) for trajectory in trajectories]
    return pa.table(
        {name: [row[name] for row in rows] for name in RECORD_COLUMNS}, schema=feature_schema(RECORD_COLUMNS)
    )


def episode_features(trajectory: Trajectory, night: str, settings: FeatureSettings) -> dict[str, Any]:
    """Return the row of one record. An unknown value is None, never 0 or False.

    Checks of completeness are waived for an infrastructure failure. If a record cannot be encoded as JSON, `fault`
    holds the error, and the remaining features are None.
    """
    row: dict[str, Any] = dict.fromkeys(RECORD_COLUMNS)
    row |= _identity_columns(trajectory, night, settings)
    # Foreign logs may hold what JSON cannot: such a record becomes a quarantined row, and does not stop the build.
    try:
        row |= _rule_columns(trajectory) | _turn_columns(trajectory) | _outcome_columns(trajectory)
        row |= _conversation_columns(trajectory, settings) | _size_columns(trajectory, settings)
    except (RecursionError, OverflowError, UnicodeError, TypeError, msgspec.MsgspecError) as error:
        row["fault"] = _shorten(f"cannot be encoded: {error}")
    return row


def _identity_columns(trajectory: Trajectory, night: str, settings: FeatureSettings) -> dict[str, Any]:
    task, agent = trajectory.task, trajectory.agent
    day = _day(trajectory.provenance.collected_at)
    return {
        "episode_id": trajectory.episode_id,
        "group_id": _none_if_blank(trajectory.group_id),
        "night": night,
        "schema_version": trajectory.schema_version,
        "task_id": _none_if_blank(task.task_id),
        "task_hash": task.task_hash,
        "taskset": task.taskset,
        "family": _none_if_blank(task.family),
        "kind": task.kind,
        "role": task.role,
        "domain": task.domain,
        "policy": agent.policy,
        "policy_version": _none_if_blank(agent.policy_version),
        "source": episode_source(trajectory, settings.demonstrators),
        # The column is int32, and an imported log may hold any integer.
        "attempt": trajectory.attempt if abs(trajectory.attempt) < 1 << 31 else None,
        "content_hash": trajectory.content_hash,
        "collected_on": day.isoformat() if day else None,
        "days_ahead": (day - settings.as_of).days if day and settings.as_of else None,
        "infrastructure_failure": trajectory.has_infrastructure_failure,
    }


def episode_source(trajectory: Trajectory, demonstrators: frozenset[str]) -> str:
    """Return the source of an episode: a demonstrator, the policy trained here, or (`imported`) the converted log of
    another system.
    """
    if trajectory.agent.policy in demonstrators:
        return "demonstration"
    return "on_policy" if trajectory.provenance.source == RATCHET_FORMAT else "imported"


def _rule_columns(trajectory: Trajectory) -> dict[str, Any]:
    """Return the columns of the record's rules: whether the hash matches, the first fault of the identity, and the first
    other fault.
    """
    row: dict[str, Any] = {"hash_matches": True, "identity_fault": None, "fault": None}
    for fault in rule_violations(trajectory):
        if fault.severity is not RuleSeverity.ERROR:
            continue
        if fault.field == "content_hash":
            row["hash_matches"] = False
        else:
            name = "identity_fault" if fault.field in ("group_id", "episode_id") else "fault"
            row[name] = row[name] or _shorten(f"{fault.field} {fault.message}")
    return row


def _turn_columns(trajectory: Trajectory) -> dict[str, Any]:
    turns, broken = trajectory.turns, trajectory.has_infrastructure_failure
    opening = max((len(message.content) for message in trajectory.messages), default=0)
    rewards = [trajectory.outcome.score, *(turn.env_reward for turn in turns)]
    return {
        "turns": len(turns),
        "steps": sum(len(turn.calls) for turn in turns),
        "parse_errors": sum(call.parse_error is not None for turn in turns for call in turn.calls),
        "calls_answered": broken or all(_answered(trajectory, index) for index in range(len(turns))),
        "longest_observation": max((len(result.content) for turn in turns for result in turn.results), default=opening),
        "numbers_sane": all(reward is None or abs(reward) <= MAX_ABS_REWARD for reward in rewards),
        "truncated": trajectory.outcome.truncated,
        "played": broken or bool(turns),
    }


def _answered(trajectory: Trajectory, index: int) -> bool:
    """Return whether each call of the turn has one result, in order; the last turn may leave calls unanswered.

    A result without a call's id is a message between turns and answers no call.
    """
    turn = trajectory.turns[index]
    calls = [call.call_id for call in turn.calls]
    answered = [result.call_id for result in turn.results if result.call_id]
    return answered == calls or (index == len(trajectory.turns) - 1 and answered == calls[: len(answered)])


def _outcome_columns(trajectory: Trajectory) -> dict[str, Any]:
    """Return the columns of the outcome. It is consistent if the passed tests do not exceed the total, and success
    implies that there are tests and all of them pass.
    """
    outcome = trajectory.outcome
    passed, total = outcome.tests_passed, outcome.tests_total
    consistent = True
    if passed is not None and total is not None:
        consistent = 0 <= passed <= total and (not outcome.success or 0 < total == passed)
    return {
        "success": outcome.success,
        "outcome_known": trajectory.has_infrastructure_failure or outcome.success is not None,
        "outcome_consistent": consistent,
    }


def _conversation_columns(trajectory: Trajectory, settings: FeatureSettings) -> dict[str, Any]:
    """Return the columns of the conversation in its exported form. `messages_hash` is coarser than `content_hash`:
    equal for runs whose messages read the same.
    """
    broken, messages = trajectory.has_infrastructure_failure, chat_messages(trajectory)
    size = len(msgspec.json.encode(messages))
    fault = None if broken else chat_fault(messages)
    tokens = -(-size // BYTES_PER_TOKEN)
    fault = fault or tools_fault(trajectory.source_extra.get("tools"))
    if fault is None and not broken:
        fault, tokens = _rendered_tokens(trajectory, messages, settings.renderer, tokens)
    generated = sum(len(turn.text.strip()) + sum(map(_call_length, turn.calls)) for turn in trajectory.turns)
    texts = [text for turn in trajectory.turns for text in (turn.thought, turn.text) if text]
    script = dominant_script([*(message.content for message in trajectory.messages), *texts])
    return {
        "messages_hash": _messages_hash(messages),
        "tokens": tokens,
        "trainable": generated,
        "trains": broken or generated > 0,
        "prompted": broken or any(message.content.strip() for message in trajectory.messages),
        "chat_fault": _shorten(fault) if fault else None,
        "alternates": roles_alternate(messages),
        "script": script.name,
        "script_share": script.share,
        "scripts": script.summary or None,
    }


def _messages_hash(messages: Sequence[Message]) -> str:
    """Return the hash of the messages as a model reads them. Ids of calls are replaced by positions, since they are
    arbitrary names that differ between runs of a server.
    """
    parts = []
    positions: dict[str, int] = {}
    for message in messages:
        calls = message.get("tool_calls", ())
        if message["role"] == "assistant":
            positions = {call["id"]: position for position, call in enumerate(calls)}
        answered = positions.get(message.get("tool_call_id", ""))
        parts.append((message["role"], message["content"], [call["function"] for call in calls], answered))
    return hashlib.sha256(msgspec.json.encode(parts, order="sorted")).hexdigest()[:16]


def _call_length(call: Any) -> int:
    return len(call.raw) or len(call.tool) + len(msgspec.json.encode(call.arguments))


def _rendered_tokens(
    trajectory: Trajectory, messages: Sequence[Message], renderer: ChatRenderer, estimate: int
) -> tuple[str | None, int]:
    """Return the fault that the chat template reports, or None, and the number of tokens of the rendered conversation
    (`estimate` without a tokenizer, or on a fault).
    """
    if renderer.template is None and renderer.tokenizer is None:
        return None, estimate
    tools = trajectory.source_extra.get("tools")
    try:
        text = renderer.text(messages, tools if isinstance(tools, list) else [])
    except ValueError as error:
        return f"the chat template raised an error: {error}", estimate
    tokens = renderer.tokens(text)
    return None, estimate if tokens is None else tokens


def _size_columns(trajectory: Trajectory, settings: FeatureSettings) -> dict[str, Any]:
    size = len(msgspec.json.encode(trajectory))
    small = size <= settings.max_bytes
    return {"bytes": size, "secrets_remaining": len(settings.find_secrets(trajectory)) if small else None}


def _none_if_blank(text: str) -> str | None:
    return text if text.strip() else None


def _day(moment: str | None) -> date | None:
    try:
        return datetime.fromisoformat(moment.replace("Z", "+00:00")).date() if moment else None
    except ValueError:
        return None


def _shorten(text: str) -> str:
    return text if len(text) <= MAX_FAULT_LENGTH else text[:MAX_FAULT_LENGTH] + "…"
