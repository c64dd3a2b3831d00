"""`TrajectoryDraft` builds a trajectory from the content of a log. It accepts malformed content and adds nothing to it."""

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from ratchet.components.core import ToolCall, ToolResult, Usage
from ratchet.components.trajectories.record_rules import check_json_limits
from ratchet.components.trajectories.trajectory import (
    Agent,
    Failure,
    FailureKind,
    Message,
    Outcome,
    Parent,
    Provenance,
    TaskRef,
    Trajectory,
    Turn,
    digest,
    with_content_hash,
)

from .log_values import decode_json, to_plain_json, to_text


class TurnDraft:
    """A turn under construction: a reply with its calls and their results.

    `extra`: fields of the log that a record has no field for. `notes`: for each entry of `results` that is a message
    and answers no call, its index (`result`), role and further fields.
    """

    def __init__(self, agent_id: str, text: str, thought: str | None) -> None:
        self.agent_id = agent_id
        self.text = text
        self.thought = thought
        self.calls: list[ToolCall] = []
        self.results: list[ToolResult] = []
        self.env_reward: float | None = None
        self.stop_reason: str | None = None
        self.usage: Usage | None = None
        self.seconds: float | None = None
        self.extra: dict[str, Any] = {}
        self.notes: list[dict[str, Any]] = []

    @property
    def unanswered_calls(self) -> list[ToolCall]:
        """The calls without a result."""
        answered = {result.call_id for result in self.results}
        return [call for call in self.calls if call.call_id not in answered]

    def add_text(self, text: str, thought: str | None) -> None:
        """Append a text and a thought, each on a new line: a log may spread a reply over several messages."""
        self.text = "\n".join(filter(None, (self.text, text)))
        self.thought = "\n".join(filter(None, (self.thought, thought))) or None

    def amend_result(self, call_id: str, **fields: Any) -> bool:
        """Replace fields of the result of the call with the log's id `call_id`; return whether it has a result."""
        found = [index for index, result in enumerate(self.results) if _is_native(result.call_id, call_id)]
        if not found or any(_is_native(call.call_id, call_id) for call in self.unanswered_calls):
            return False
        self.results[found[0]] = msgspec.structs.replace(self.results[found[0]], **fields)
        return True

    def note_result(self, **fields: Any) -> None:
        """Store fields of a result that a record has no field for, in the extra fields of the turn."""
        self.extra.setdefault("results", []).append(fields)

    def to_turn(self, index: int) -> Turn:
        """Return the turn of the record, as its turn number `index`. A negative duration becomes None."""
        seconds = self.seconds
        return Turn(
            index,
            self.agent_id,
            self.text,
            self.thought,
            tuple(self.calls),
            tuple(self.results),
            self.env_reward,
            self.stop_reason,
            self.usage,
            None if seconds is None or seconds < 0 else seconds,
        )


SPARE_FRAMES = 200
"""Stack frames that must be left when a record is encoded: the JSON encoder uses one for each level of nesting."""


class TrajectoryDraft:
    """Builder of a Trajectory: call `message`, `turn`, `call`, `result` and `note` in the order of the log, then `finish`.

    `source`: id of the log's format; `agent_id`: agent of turns that name none. `extra`: fields of the log that a
    record has no field for; they become `source_extra`, and those of a turn `source_extra["turns"][index]`.
    """

    def __init__(self, source: str, *, agent_id: str = "agent") -> None:
        self.source = source
        self.agent_id = agent_id
        self.messages: list[Message] = []
        self.turns: list[TurnDraft] = []
        self.extra: dict[str, Any] = {}
        self.outcome = Outcome()
        self.failure: Failure | None = None
        self.parent: Parent | None = None
        self.collected_at: str | None = None
        self.commit: str | None = None
        # A log may interleave the results of several turns: the id of a call leads to the turn that made it.
        self._turn_by_call_id: dict[str, TurnDraft] = {}

    @property
    def last(self) -> TurnDraft | None:
        """The last turn; None before the first."""
        return self.turns[-1] if self.turns else None

    def message(
        self, role: str, content: str, blobs: Iterable[str] = (), extra: Mapping[str, Any] | None = None
    ) -> None:
        """Add a message before the first turn; for later messages use `note`.

        `blobs`: hashes of its images. `extra`: fields of the message that a record has no field for.
        """
        self.messages.append(Message(role, to_text(content), tuple(blobs)))
        if extra:
            self.extra.setdefault("messages", {})[str(len(self.messages) - 1)] = dict(extra)

    def turn(self, text: str = "", thought: str | None = None, agent_id: str | None = None) -> TurnDraft:
        """Add and return a new turn."""
        turn = TurnDraft(
            to_text(agent_id) or self.agent_id, to_text(text), None if thought is None else to_text(thought)
        )
        self.turns.append(turn)
        return turn

    def note(self, role: str, content: str, **extra: Any) -> None:
        """Add a message that answers no call, such as a user's next request.

        Before the first turn it is added as by `message`, without `extra`. Later it becomes a result with the call id
        "" in the last turn, and its role and `extra` are stored in the turn's extra fields, under `notes`.
        """
        if not self.turns:
            self.message(role, content)
            return
        last = self.turns[-1]
        last.results.append(ToolResult("", to_text(content)))
        last.notes.append({"result": len(last.results) - 1, "role": role, **extra})

    def call(
        self, tool: str, arguments: Any, *, call_id: str | None = None, raw: str = "", parse_error: str | None = None
    ) -> ToolCall:
        """Add a call to the last turn (or to a new first turn) and return it. `arguments`: a mapping or its JSON text.

        Other arguments, an empty tool name or a `parse_error` make an unreadable call, which keeps its `raw` text. A
        call id that is repeated in a turn gets a suffix (`#2`); `result` accepts the id of the log for both calls.
        """
        last = self.last or self.turn()
        call_id = to_text(call_id) or f"{len(self.turns) - 1}-{len(last.calls)}"
        self._turn_by_call_id[call_id] = last
        # Ids may be repeated from reply to reply (`call_0`); within a turn they are made unique.
        if last.calls and (repetitions := sum(_is_native(earlier.call_id, call_id) for earlier in last.calls)):
            call_id = f"{call_id}#{repetitions + 1}"
            self._turn_by_call_id[call_id] = last
        if isinstance(arguments, str):
            raw = raw or arguments
            arguments = _decode_arguments(arguments)
        tool = to_text(tool)
        if not tool:
            parse_error = parse_error or "no tool is named"
        if parse_error is None and isinstance(arguments, Mapping):
            call = ToolCall(call_id, tool, {to_text(key): value for key, value in arguments.items()}, to_text(raw))
        else:
            why = to_text(parse_error or "the arguments are no object")
            call = ToolCall(call_id, tool, {}, to_text(raw or arguments), why)
        last.calls.append(call)
        return call

    def result(
        self,
        content: str,
        *,
        call_id: str | None = None,
        exit_code: int | None = None,
        error: str | None = None,
        truncated: bool = False,
        blob: str | None = None,
    ) -> TurnDraft:
        """Add the result of the call `call_id`, or of the last turn's first call without a result; return the turn.

        A result with an unknown call id is added to the last turn. `exit_code`: of a command; `error`: why the call
        failed; `truncated`: the log has only a part of `content`; `blob`: hash of an image.
        """
        turn = self._turn_by_call_id.get(call_id) if call_id is not None else None
        turn = turn or self.last or self.turn()
        waiting = (call.call_id for call in turn.unanswered_calls)
        if call_id is None:
            call_id = next(waiting, "")
        elif any(result.call_id == call_id for result in turn.results):
            call_id = next((waiting_id for waiting_id in waiting if _is_native(waiting_id, call_id)), call_id)
        error = None if error is None else to_text(error)
        turn.results.append(ToolResult(to_text(call_id), to_text(content), exit_code, error, truncated, blob))
        return turn

    def finish(
        self,
        *,
        native_id: str | None,
        task_id: str | None = None,
        description: str | None = None,
        taskset: str | None = None,
        family: str | None = None,
        kind: str = "",
        domain: str = "coding",
        agent: str = "",
        model: str | None = None,
        sampling: Mapping[str, Any] | None = None,
        attempt: int = 0,
        seed: int = 0,
    ) -> Trajectory:
        """Return the record; fields that are None or "" get defaults. Reading a log again gives the same record.

        The `episode_id` is derived from source, `native_id` (the log's own id of the episode), task, model and attempt;
        without a `native_id`, from the content instead. `family` defaults to `task_id`, `taskset` to the format id.
        Without a `model`, policy and version are the agent's name, since a data build requires a version.
        """
        requests = (message.content for message in self.messages if message.role == "user")
        description = to_text(description or next(requests, ""))
        task_hash = digest(description)
        task_id = to_text(task_id) or f"{self.source}/{task_hash[:12]}"
        taskset, family = to_text(taskset) or self.source, to_text(family) or task_id
        task = TaskRef(task_id, task_hash, taskset, family, to_text(kind), "train", to_text(domain), description)
        model_name, agent_name = to_text(model), to_text(agent) or self.source
        version = model_name or agent_name
        agent_record = Agent(agent_name, version, version, self.source, dict(sampling or {}))
        self._withdraw_success()
        try:
            record = self._record(task, agent_record, native_id, model_name, attempt, seed)
            # A record that can be encoded only at the present depth of the stack would fail in a deeper caller.
            _encode_at_depth(SPARE_FRAMES, record)
            fits = _is_plain(record)
        except (RecursionError, OverflowError, TypeError, ValueError, msgspec.MsgspecError):
            fits = False
        if not fits:  # rare, and slow: all values are copied
            self._make_plain()
            agent_record = msgspec.structs.replace(agent_record, sampling=to_plain_json(agent_record.sampling))
            record = self._record(task, agent_record, native_id, model_name, attempt, seed)
        return record

    def _withdraw_success(self) -> None:
        """Move a success beside an infrastructure failure to the extra fields: it is no evidence."""
        if self.outcome.success and self.failure is not None and self.failure.kind is FailureKind.INFRASTRUCTURE:
            self.outcome = msgspec.structs.replace(self.outcome, success=None)
            self.extra = _with_field(self.extra, "success", True)

    def _record(
        self, task: TaskRef, agent: Agent, native_id: str | None, model: str, attempt: int, seed: int
    ) -> Trajectory:
        turns = tuple(turn.to_turn(index) for index, turn in enumerate(self.turns))
        identity = to_text(native_id) or digest(self.messages, turns, self.outcome)
        return with_content_hash(
            Trajectory(
                episode_id=f"ep-{digest(self.source, identity, task.task_id, model, attempt)}",
                group_id=f"gr-{digest(task.task_id, task.task_hash, agent.policy_version)}",
                attempt=attempt,
                seed=seed,
                task=task,
                agent=agent,
                messages=tuple(self.messages),
                turns=turns,
                outcome=self.outcome,
                failure=self.failure,
                parent=self.parent,
                provenance=Provenance(self.source, self.commit, None, self.collected_at),
                source_extra=self._extras(),
            )
        )

    def _extras(self) -> dict[str, Any]:
        of_turns = {}
        for index, turn in enumerate(self.turns):
            if turn.notes:
                of_turns[str(index)] = _with_field(turn.extra, "notes", turn.notes)
            elif turn.extra:
                of_turns[str(index)] = turn.extra
        return _with_field(self.extra, "turns", of_turns) if of_turns else dict(self.extra)

    def _make_plain(self) -> None:
        """Replace values that a JSON encoder rejects, in arguments and extra fields."""
        self.extra = to_plain_json(self.extra)
        for turn in self.turns:
            turn.extra, turn.notes = to_plain_json(turn.extra), to_plain_json(turn.notes)
            turn.calls = [msgspec.structs.replace(call, arguments=to_plain_json(call.arguments)) for call in turn.calls]


def _is_native(call_id: str, native: str) -> bool:
    """Return whether `call_id` is the log's id `native`, or that with a suffix."""
    return call_id == native or call_id.startswith(f"{native}#")


def _decode_arguments(text: str) -> Any:
    """Return the JSON value of a text, {} for a blank one, and the text itself where it is no JSON."""
    try:
        return decode_json(text.encode("utf-8", "surrogatepass")) if text.strip() else {}
    except ValueError:
        return text


def _with_field(extra: dict[str, Any], name: str, value: Any) -> dict[str, Any]:
    """Return `extra` with one more field; the log's own field of that name is kept as `<name>_of_log`."""
    native_field = {f"{name}_of_log": extra[name]} if name in extra else {}
    return {**extra, **native_field, name: value}


def _encode_at_depth(frames: int, record: Trajectory) -> None:
    if frames:
        _encode_at_depth(frames - 1, record)
    else:
        msgspec.json.encode(record)


def _is_plain(record: Trajectory) -> bool:
    """Return whether all JSON values from the log are within the limits that readers of records check."""
    arguments = (call.arguments for turn in record.turns for call in turn.calls)
    values = [record.source_extra, record.agent.sampling, *arguments]
    return not any(True for value in values for _ in check_json_limits("", value))
