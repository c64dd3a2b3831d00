"""Reader and writer of ATIF, the Agent Trajectory Interchange Format of Harbor (versions 1.0 to 1.8).

An `agent` step is a turn with its observation; `system` and `user` steps are messages. Steps that were copied from an earlier
trajectory before the first turn are messages too, so that they are not trained twice. An embedded subagent is a trajectory
with a parent. The format states no outcome: Harbor keeps the verifier's reward elsewhere.

Nothing is lost in either direction. What a record has no field for is kept as the difference from the step that the writer
would make of the record (`source_extra`, `atif`); what the format has no field for is written to `extra` of a call, result, step
or of the document (`extra.ratchet`). Token ids of a turn are kept as in the token sidecar, prompts without the part that they
share with the turn before.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import msgspec

from ratchet.components.core import TokenTrace
from ratchet.components.trajectories.token_sidecar import TurnTokens
from ratchet.components.trajectories.trajectory import Parent, Trajectory, Turn, digest, with_content_hash

from .chat_import import parse_usage, root_records
from .log_source import LogSource
from .log_values import as_mapping, as_mappings, drop_empty, first_text, to_int, to_iso, to_number, to_text
from .message_content import parse_content
from .trajectory_draft import TrajectoryDraft, TurnDraft
from .trajectory_writers import note_roles, recorded_tools

SCHEMA_VERSION = "ATIF-v1.7"
"""The lowest version that has the fields which are written."""
_SOURCES = {"system": "system", "developer": "system", "assistant": "agent"}
_ENVELOPE = [field for field in Trajectory.__struct_fields__ if field not in ("messages", "turns")]


class AtifReader:
    """Reader of ATIF documents, one per file, line or element of an array."""

    def detects(self, source: LogSource) -> bool:
        """Return whether the first value is an ATIF document, or an array of them."""
        return any(
            _is_document(value[0] if isinstance(value, list) and value else value) for value in source.sample[:1]
        )

    def read(self, source: LogSource) -> Iterator[Trajectory]:
        """Yield every trajectory, a parent before its subagents."""
        for where, value in root_records(source):
            if _is_document(value):
                yield from _read_document(source, where, value, None)
            else:
                source.bad_value(where, "no ATIF document: an object with `schema_version` and `steps`", value)


def _is_document(value: Any) -> bool:
    value = as_mapping(value)
    return to_text(value.get("schema_version")).startswith("ATIF-v") and isinstance(value.get("steps"), list)


def _read_document(
    source: LogSource, where: str, document: dict[str, Any], parent: Parent | None
) -> Iterator[Trajectory]:
    own = as_mapping(as_mapping(document.get("extra")).get("ratchet"))
    draft = TrajectoryDraft("atif")
    tokens = _TokenHistory()
    models = [as_mapping(document.get("agent")).get("model_name")]
    for index, step in enumerate(document["steps"]):
        if not isinstance(step, dict):
            source.bad_value(f"{where}, step {index + 1}", "a step is no object", step)
        elif as_mapping(step.get("extra")).get("ratchet_placeholder") is not True:
            models.append(step.get("model_name"))
            _add_step(draft, source, step, tokens, is_own=bool(own))
    record = _finish(draft, document, models, parent)
    # A record of ours that was edited since, or is of a newer schema, is read as anybody's.
    if own:
        try:
            fields = {**own, "messages": record.messages, "turns": _restored_turns(record.turns, document)}
            record = with_content_hash(msgspec.convert(fields, Trajectory))
        except ValueError:  # also of msgspec
            pass
    yield record
    calls = {call.call_id: turn.index for turn in record.turns for call in turn.calls}
    for number, inner in enumerate(as_mappings(document.get("subagent_trajectories"))):
        if _is_document(inner):
            at = _referring_turn(document, inner.get("trajectory_id"), calls)
            yield from _read_document(source, f"{where}, subagent {number}", inner, Parent(record.episode_id, at))


def _finish(draft: TrajectoryDraft, document: dict[str, Any], models: list[Any], parent: Parent | None) -> Trajectory:
    agent = as_mapping(document.get("agent"))
    draft.parent = parent
    draft.collected_at = next(
        (time for step in as_mappings(document["steps"]) if (time := to_iso(step.get("timestamp")))), None
    )
    draft.extra["atif"] = {name: value for name, value in document.items() if name != "steps"}
    draft.extra.update(drop_empty(tools=as_mappings(agent.get("tool_definitions"))))
    session, turns = first_text(document.get("session_id")), [turn.to_turn(0) for turn in draft.turns]
    return draft.finish(
        # A session is a run, whose parts share it; and agents that know none write a constant.
        native_id=first_text(document.get("trajectory_id"), session and f"{session} {digest(draft.messages, turns)}"),
        agent=to_text(agent.get("name")),
        model=first_text(*models),
    )


def _referring_turn(document: dict[str, Any], identity: Any, calls: Mapping[str, int]) -> int:
    """Return the index of the turn whose result refers to the subagent `identity`; 0 without one."""
    for step in as_mappings(document["steps"]):
        for result in as_mappings(as_mapping(step.get("observation")).get("results")):
            for reference in as_mappings(result.get("subagent_trajectory_ref")):
                if reference.get("trajectory_id") == identity:
                    return calls.get(to_text(result.get("source_call_id")), 0)
    return 0


def _add_step(
    draft: TrajectoryDraft, source: LogSource, step: dict[str, Any], tokens: "_TokenHistory", is_own: bool
) -> None:
    """Add a step, and what the writer would not make of it again."""
    extra = as_mapping(step.get("extra"))
    content = parse_content(step.get("message"), source.blobs)
    kind = step.get("source")
    if kind == "agent" and not (step.get("is_copied_context") is True and not draft.turns):
        turn = draft.turn(content.text, first_text(step.get("reasoning_content")), first_text(extra.get("agent_id")))
        _add_agent_step(draft, source, turn, step, tokens)
        difference = (
            {} if is_own else _difference(step, _turn_step(turn.to_turn(0), {}, turn.extra.get("tokens"), tokens))
        )
        turn.extra |= drop_empty(atif=difference)
        tokens.add(turn.extra.get("tokens"))
        return
    role = first_text(extra.get("role")) or {"agent": "assistant"}.get(to_text(kind), to_text(kind)) or "user"
    difference = drop_empty(atif={} if is_own else _difference(step, _message_step(role, content.text)))
    if draft.turns:
        draft.note(role, content.text, **difference)
    else:
        blobs = [name for name in extra.get("blobs") or () if isinstance(name, str)] if is_own else content.blobs
        draft.message(role, content.text, blobs, difference)


def _add_agent_step(
    draft: TrajectoryDraft, source: LogSource, turn: TurnDraft, step: dict[str, Any], tokens: "_TokenHistory"
) -> None:
    for call in as_mappings(step.get("tool_calls")):
        more = as_mapping(call.get("extra"))
        draft.call(
            to_text(call.get("function_name")),
            call.get("arguments"),
            call_id=first_text(call.get("tool_call_id")),
            raw=to_text(more.get("raw")),
            parse_error=first_text(more.get("parse_error")),
        )
    for result in as_mappings(as_mapping(step.get("observation")).get("results")):
        more = as_mapping(result.get("extra"))
        content = parse_content(result.get("content"), source.blobs)
        draft.result(
            content.text,
            call_id=first_text(result.get("source_call_id"), more.get("call_id")) or "",
            exit_code=to_int(more.get("exit_code")),
            error=first_text(more.get("error")),
            truncated=more.get("truncated") is True,
            blob=first_text(more.get("blob")) or content.blob,
        )
    metrics, extra = as_mapping(step.get("metrics")), as_mapping(step.get("extra"))
    turn.usage = parse_usage(metrics, metrics.get("cost_usd"))
    turn.env_reward, turn.seconds = to_number(extra.get("env_reward")), to_number(extra.get("seconds"))
    turn.stop_reason = first_text(extra.get("stop_reason"))
    turn.extra |= drop_empty(tokens=tokens.shorten(metrics))


class _TokenHistory:
    """The token ids of the turns so far. `whole`: prompt and completion of the last turn that has both."""

    def __init__(self) -> None:
        self.whole: list[int] = []

    def shorten(self, metrics: Mapping[str, Any]) -> dict[str, Any]:
        """Return the token ids of a step in the form of TokenTrace; fields that the step lacks are left out."""
        fields = {"completion_ids": metrics.get("completion_token_ids"), "logprobs": metrics.get("logprobs")}
        if isinstance(prompt := metrics.get("prompt_token_ids"), list):
            pairs = zip(self.whole, prompt, strict=False)
            kept = next(
                (index for index, (before, now) in enumerate(pairs) if before != now), min(len(self.whole), len(prompt))
            )
            fields |= {"prompt_ids": prompt[kept:], "kept": kept}
        return {name: value for name, value in fields.items() if isinstance(value, list | int)}

    def lengthen(self, tokens: Mapping[str, Any] | None) -> dict[str, Any]:
        """Return the fields of `metrics` that `shorten` was given."""
        tokens = tokens or {}
        names = {"completion_ids": "completion_token_ids", "logprobs": "logprobs"}
        fields = {name: tokens[key] for key, name in names.items() if key in tokens}
        if "prompt_ids" in tokens:
            fields["prompt_token_ids"] = [*self.whole[: tokens.get("kept", 0)], *tokens["prompt_ids"]]
        return fields

    def add(self, tokens: Mapping[str, Any] | None) -> None:
        """Make a turn's tokens the history of the next one."""
        if tokens and "prompt_ids" in tokens:
            self.whole = [*self.lengthen(tokens)["prompt_token_ids"], *tokens.get("completion_ids", ())]


def recorded_tokens(trajectory: Trajectory) -> Iterator[TurnTokens]:
    """Yield the token ids that a document had, for a token sidecar: turns with prompt, completion and log-probabilities."""
    for index, extra in as_mapping(trajectory.source_extra.get("turns")).items():
        tokens = as_mapping(as_mapping(extra).get("tokens"))
        if {"prompt_ids", "completion_ids", "logprobs"} <= tokens.keys():
            try:
                trace = msgspec.convert({"kept": 0, **tokens}, TokenTrace)
            except msgspec.ValidationError:
                continue
            if len(trace.completion_ids) == len(trace.logprobs):
                yield TurnTokens(trajectory.episode_id, int(index), trace)


def _difference(native: Mapping[str, Any], made: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields to set on `made` to get `native`; None removes a field. Metrics are compared field by field: token ids
    are long.
    """
    names = [name for name in {**made, **native} if name != "step_id" and native.get(name) != made.get(name)]
    return {
        name: _difference(native[name], made[name])
        if name == "metrics" and isinstance(native.get(name), dict) and isinstance(made.get(name), dict)
        else native.get(name)
        for name in names
    }


def _changed(made: dict[str, Any], difference: Mapping[str, Any]) -> dict[str, Any]:
    """Return `made` with a difference of `_difference` applied."""
    step = made | dict(difference)
    if isinstance(metrics := difference.get("metrics"), dict):
        step["metrics"] = _set(**(as_mapping(made.get("metrics")) | metrics))
    return _set(**step)


def _restored_turns(turns: Iterable[Turn], document: dict[str, Any]) -> list[Turn]:
    """Return the turns with the fields that a draft has no place for."""
    steps = (step for step in as_mappings(document["steps"]) if step.get("source") == "agent")
    steps = (step for step in steps if step.get("is_copied_context") is not True)
    seconds = [as_mapping(step.get("extra")).get("call_seconds") for step in steps]
    return [
        turn if not isinstance(each, list) else msgspec.structs.replace(turn, call_seconds=tuple(each))
        for turn, each in zip(turns, seconds, strict=True)
    ]


class AtifWriter:
    """Writer of ATIF documents, one per line."""

    loses = "nothing of the record; images are named, not embedded; `ratchet store export` writes the token ids of a sidecar too"

    def row(self, trajectory: Trajectory) -> dict[str, Any]:
        """Return the document, with the token ids that the record has."""
        return to_atif(trajectory)


def to_atif(trajectory: Trajectory, tokens: Iterable[TurnTokens] = ()) -> dict[str, Any]:
    """Return a trajectory as an ATIF document. `tokens`: the rows of its token sidecar, if it has one."""
    of_turn: dict[int, Mapping[str, Any]] = {row.turn: msgspec.to_builtins(row.trace) for row in tokens}
    extra = trajectory.source_extra
    is_foreign = trajectory.provenance.source == "atif"
    messages = as_mapping(extra.get("messages"))
    steps = []
    for number, message in enumerate(trajectory.messages):
        step = _message_step(message.role, message.content, message.blobs if not is_foreign else ())
        steps.append(_changed(step, as_mapping(as_mapping(messages.get(str(number))).get("atif"))))
    history = _TokenHistory()
    for turn in trajectory.turns:
        more = as_mapping(as_mapping(extra.get("turns")).get(str(turn.index)))
        ids = of_turn.get(turn.index) or as_mapping(more.get("tokens"))
        roles = note_roles(trajectory, turn)
        steps.append(_changed(_turn_step(turn, roles, ids, history), as_mapping(more.get("atif"))))
        history.add(ids)
        notes = {note.get("result"): as_mapping(note.get("atif")) for note in as_mappings(more.get("notes"))}
        steps += [
            _changed(_message_step(role, turn.results[index].content), notes[index])
            for index, role in roles.items()
            if index < len(turn.results)
        ]
    if not steps:
        placeholder = {"ratchet_placeholder": True}
        steps = [{"source": "user", "message": trajectory.task.description, "extra": placeholder}]
    numbered = [{"step_id": number} | step for number, step in enumerate(steps, 1)]
    root = as_mapping(extra.get("atif")) if is_foreign else _root(trajectory)
    return root | {"steps": numbered}


def _root(trajectory: Trajectory) -> dict[str, Any]:
    agent = trajectory.agent
    usages = [turn.usage for turn in trajectory.turns if turn.usage is not None]
    totals = {
        "total_prompt_tokens": sum(usage.prompt_tokens or 0 for usage in usages),
        "total_completion_tokens": sum(usage.completion_tokens or 0 for usage in usages),
    }
    described = {"name": agent.name, "version": agent.policy_version, "model_name": agent.policy_version}
    envelope = msgspec.to_builtins(trajectory)
    return {
        "schema_version": SCHEMA_VERSION,
        "session_id": trajectory.episode_id,
        "trajectory_id": trajectory.episode_id,
        "agent": described | drop_empty(tool_definitions=as_mappings(recorded_tools(trajectory))),
        **drop_empty(final_metrics=totals if usages else None),
        "extra": {"ratchet": {name: envelope[name] for name in _ENVELOPE if name in envelope}},
    }


def _message_step(role: str, text: str, blobs: Iterable[str] = ()) -> dict[str, Any]:
    source = _SOURCES.get(role, "user")
    more = drop_empty(role=role if role not in ("system", "user", "assistant") else None, blobs=list(blobs))
    copied = {"is_copied_context": True} if source == "agent" else {}
    return {"source": source, "message": text, **copied, **drop_empty(extra=more)}


def _turn_step(
    turn: Turn, roles: Mapping[int, str], tokens: Mapping[str, Any] | None, history: _TokenHistory
) -> dict[str, Any]:
    """Return the step of a turn without its notes, whose indices are the keys of `roles`."""
    ids = {call.call_id for call in turn.calls}
    calls = [
        {
            "tool_call_id": call.call_id,
            "function_name": call.tool,
            "arguments": call.arguments,
            **drop_empty(extra=_set(raw=call.raw or None, parse_error=call.parse_error)),
        }
        for call in turn.calls
    ]
    results = []
    for result in (result for index, result in enumerate(turn.results) if index not in roles):
        answers = result.call_id in ids
        more = _set(
            call_id=result.call_id if result.call_id and not answers else None,
            exit_code=result.exit_code,
            error=result.error,
            truncated=result.truncated or None,
            blob=result.blob,
        )
        known = {"source_call_id": result.call_id} if answers else {}
        results.append({**known, "content": result.content, **drop_empty(extra=more)})
    usage = turn.usage
    spent = (
        _set(prompt_tokens=usage.prompt_tokens, completion_tokens=usage.completion_tokens, cost_usd=usage.cost)
        if usage
        else {}
    )
    more = _set(
        agent_id=turn.agent_id if turn.agent_id != "agent" else None,
        env_reward=turn.env_reward,
        stop_reason=turn.stop_reason,
        seconds=turn.seconds,
        call_seconds=None if turn.call_seconds is msgspec.UNSET else list(turn.call_seconds),
    )
    optional = drop_empty(
        tool_calls=calls,
        observation={"results": results} if results else None,
        metrics=spent | history.lengthen(tokens),
        extra=more,
    )
    return {"source": "agent", "message": turn.text, **_set(reasoning_content=turn.thought), **optional}


def _set(**fields: Any) -> dict[str, Any]:
    """Return the keyword arguments that are not None."""
    return {name: value for name, value in fields.items() if value is not None}


READER = AtifReader()
WRITER = AtifWriter()
