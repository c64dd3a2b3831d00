"""Reader of logs of CrewAI and of knowlyr-crew.

| log | one trajectory is |
|---|---|
| CrewAI's `output_log_file`, `.json` or `.txt`: tasks that start and end | a kickoff; a turn is an agent's output for a task |
| CrewAI's events (`to_json`, or `event_data` of its tracing), one per line | a kickoff; a turn is an agent's reply |
| CrewAI's `CrewOutput`, and rows of step callbacks | a run; a turn is a task's output, or a step |
| knowlyr-crew's sessions (`event`: start, message, end), one event per line | a session; a turn is an assistant's message |
| knowlyr-crew's `trajectories.jsonl` (`employee`, `steps`) | a line |

The `agent_id` of a turn names the agent of the crew that took the turn. Success is always None: every run without an
exception says "completed" and "success", so these are only stored in the extra fields.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import chain, islice
from typing import Any

from ratchet.components.core import DataError
from ratchet.components.trajectories.trajectory import Failure, FailureKind, Outcome, Trajectory

from . import crewai_events, crewai_tasks
from .chat_import import parse_usage
from .log_source import LocatedValue, LogSource
from .log_values import as_mapping, as_mappings, drop_empty, first_text, to_count, to_int, to_iso, to_text, without_keys
from .message_content import load_json
from .trajectory_draft import TrajectoryDraft

# A session is held in memory until its end.
EVENTS_LIMIT = 100_000
FAILED_STATUSES = {"failed", "error", "errored", "crashed"}


def is_session_event(value: Any) -> bool:
    """Return whether a value is an event of a knowlyr-crew session."""
    if not isinstance(value, Mapping) or not isinstance(value.get("event"), str):
        return False
    return "session_type" in value or (value["event"] in ("message", "end", "project_info") and "timestamp" in value)


def is_crew_trajectory(value: Any) -> bool:
    """Return whether a value is a trajectory of knowlyr-crew."""
    return isinstance(value, Mapping) and isinstance(value.get("steps"), list) and "employee" in value


def read_sessions(source: LogSource, values: Iterable[LocatedValue]) -> Iterator[Trajectory]:
    """Yield each session, from one `start` event to the next."""
    events: list[Mapping[str, Any]] = []
    for where, value in values:
        if not isinstance(value, Mapping) or not isinstance(value.get("event"), str):
            source.bad_value(where, "no event of a session", value)
            continue
        if value["event"] == "start" and events:
            yield _read_session(events)
            events = []
        events.append(value)
        if len(events) > EVENTS_LIMIT:
            raise DataError(f"{source.path}: a session of more than {EVENTS_LIMIT} events; give one file a session")
    if events:
        yield _read_session(events)


def _read_session(events: list[Mapping[str, Any]]) -> Trajectory:
    start = next((event for event in events if event["event"] == "start"), {})
    start_metadata = as_mapping(start.get("metadata"))
    subject = to_text(start.get("subject")) or "crew"
    draft = TrajectoryDraft("crew", agent_id=subject)
    model: str | None = None
    waiting: Mapping[str, Any] = {}  # metadata of the step that the next reply answers
    for event in events:
        metadata = as_mapping(event.get("metadata"))
        if event["event"] == "message" and event.get("role") == "assistant":
            employee = waiting.get("employee") or metadata.get("employee")
            turn = draft.turn(to_text(event.get("content")), agent_id=to_text(employee) or None)
            turn.usage = parse_usage(metadata)
            turn.extra.update(without_keys(metadata, "input_tokens", "output_tokens"))
            model = first_text(model, metadata.get("model"))
            waiting = {}
        elif event["event"] == "message":
            role = to_text(event.get("role"))
            waiting = metadata if role == "step" else waiting
            kind = role if role in ("prompt", "step") else ""
            said_by = "user" if role in ("prompt", "step", "user", "") else role
            draft.note(said_by, to_text(event.get("content")), **drop_empty(kind=kind, metadata=dict(metadata)))
        elif event["event"] not in ("start", "end"):
            draft.extra.setdefault("events", []).append(dict(event))
    _set_outcome(draft, next((event for event in reversed(events) if event["event"] == "end"), None))
    arguments = as_mapping(start_metadata.get("args"))
    draft.extra.update({"session": without_keys(start, "event", "timestamp")} if start else {})
    draft.collected_at = to_iso(start.get("timestamp"))
    started = to_text(start.get("timestamp"))
    return draft.finish(
        native_id=f"{started}/{subject}" if started else None,
        description=first_text(*(arguments.get(key) for key in ("task", "target", "goal"))),
        domain="generic",
        agent=f"crew/{subject}",
        model=first_text(model, start_metadata.get("model")),
    )


def _set_outcome(draft: TrajectoryDraft, end: Mapping[str, Any] | None) -> None:
    status = to_text(end.get("status")) if end is not None else ""
    if status in FAILED_STATUSES:
        draft.failure = Failure(FailureKind.INFRASTRUCTURE, status, to_text(as_mapping(end).get("detail")))
    if end is not None and end.get("detail"):
        draft.extra["detail"] = end["detail"]
    draft.outcome = Outcome(terminated=status == "completed", reason=status)


def read_crew_trajectory(value: Mapping[str, Any]) -> Trajectory:
    """Return the trajectory of a line of `trajectories.jsonl`. Its `success` is the same in every line and is ignored."""
    employee = to_text(value.get("employee"))
    draft = TrajectoryDraft("crew", agent_id=employee or "agent")
    task = value.get("task")
    description = to_text(as_mapping(task).get("description")) or (task if isinstance(task, str) else "")
    if description:
        draft.message("user", description)
    for step in as_mappings(value["steps"]):
        _add_step(draft, step)
    draft.extra.update(without_keys(value, "steps", "task", "model"))
    first = next((step for step in as_mappings(value["steps"]) if step.get("timestamp")), {})
    draft.collected_at = to_iso(first.get("timestamp"))
    native_id, model = first_text(value.get("task_id")), first_text(value.get("model"))
    return draft.finish(native_id=native_id, domain="generic", agent=f"crew/{employee}", model=model)


def _add_step(draft: TrajectoryDraft, step: Mapping[str, Any]) -> None:
    call, result = as_mapping(step.get("tool_call")), as_mapping(step.get("tool_result"))
    tool = to_text(step.get("tool_name") or step.get("tool") or call.get("name"))
    output = to_text(step.get("tool_output") or step.get("output") or result.get("output") or "")
    thought = to_text(step.get("thought"))
    if tool in ("", "respond", "unknown") and (not thought or thought == output):
        turn = draft.turn(output)
    else:
        turn = draft.turn("", thought or None)
        arguments: Any = step.get("tool_params") or step.get("params") or call.get("parameters") or {}
        code = step.get("tool_exit_code", result.get("exit_code"))
        tool_call = draft.call(tool, arguments)
        unfinished = code == -1 and not output  # knowlyr-crew's mark of a call that never returned
        if not unfinished:
            error = to_text(result.get("error")) or None
            draft.result(output, call_id=tool_call.call_id, exit_code=to_int(code), error=error)
    turn.extra.update(drop_empty(token_count=to_count(step.get("token_count")), timestamp=step.get("timestamp")))


# Logs with several lines for one trajectory, each with its reader.
_STREAM_READERS: tuple[
    tuple[Callable[[Any], bool], Callable[[LogSource, Iterator[LocatedValue]], Iterator[Trajectory]]], ...
] = (
    (crewai_events.is_crewai_event, crewai_events.read_events),
    (is_session_event, read_sessions),
    (crewai_tasks.is_task_entry, crewai_tasks.read_task_entries),
    (crewai_tasks.is_agent_step, crewai_tasks.read_agent_steps),
)


class CrewReader:
    """Reader of CrewAI's and knowlyr-crew's logs."""

    def detects(self, source: LogSource) -> bool:
        """Return whether most sample values belong to one of the logs, or the text begins like CrewAI's."""
        if source.is_folder:
            return False
        if not source.sample:
            return crewai_tasks.is_task_log_text(source)
        checks = (*(is_known for is_known, _ in _STREAM_READERS), crewai_tasks.is_crew_output, is_crew_trajectory)
        return any(map(source.mostly_matches, checks))

    def read(self, source: LogSource) -> Iterator[Trajectory]:
        """Yield every run."""
        source.drop_sample()
        if crewai_tasks.is_task_log_text(source):
            yield from crewai_tasks.read_task_entries(source, crewai_tasks.parse_task_log_text(source))
            return
        values = _values(source)
        # The first records determine the kind of the log; they are read again as the beginning of it.
        head = list(islice(values, 20))
        all_values = chain(head, values)
        for is_known, read in _STREAM_READERS:
            if any(is_known(value) for _, value in head):
                yield from read(source, all_values)
                return
        yield from _read_single_records(source, all_values)


def _values(source: LogSource) -> Iterator[LocatedValue]:
    for where, value in source.roots():
        if isinstance(value, list):
            yield from (LocatedValue(f"{where}, element {index}", element) for index, element in enumerate(value))
        elif isinstance(value, str):  # an event that was encoded twice
            yield LocatedValue(where, load_json(value))
        else:
            yield LocatedValue(where, value)


def _read_single_records(source: LogSource, values: Iterator[LocatedValue]) -> Iterator[Trajectory]:
    for where, value in values:
        if is_crew_trajectory(value):
            yield read_crew_trajectory(value)
        elif crewai_tasks.is_crew_output(value):
            yield crewai_tasks.read_crew_output(source, where, value)
        else:
            source.bad_value(where, "nothing of a Crew's log: no task, event, session or steps", value)


READER = CrewReader()
