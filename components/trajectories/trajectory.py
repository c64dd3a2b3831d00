"""Trajectory: the record of one episode, one line of JSON. Scores are not part of it.

Two rules: null is not zero, and an infrastructure failure is not a policy failure.

All structs have `gc=False`: JSON values have no cycles, and lists of thousands are read several times faster without
the collector.
"""

import hashlib
import json
from enum import StrEnum
from typing import Any

import msgspec

from ratchet.components.core import TaskSpec, ToolCall, ToolResult, Usage

from .notebook_tables import NotebookTable

SCHEMA_VERSION = 1


class Message(msgspec.Struct, frozen=True, forbid_unknown_fields=True, gc=False):
    """A message before the first turn. `blobs`: hashes of images and other large parts."""

    role: str
    content: str
    blobs: tuple[str, ...] = ()


class TaskRef(msgspec.Struct, frozen=True, forbid_unknown_fields=True, gc=False):
    """Reference to the task that was played. `task_hash` is TaskSpec.task_hash."""

    task_id: str
    task_hash: str
    taskset: str
    family: str
    kind: str
    role: str
    domain: str
    description: str

    @classmethod
    def from_task(cls, task: TaskSpec) -> "TaskRef":
        """Return the reference to a TaskSpec."""
        return cls(
            task.task_id,
            task.task_hash,
            task.taskset,
            task.family,
            task.kind,
            task.role.value,
            task.domain,
            task.description,
        )


class Agent(msgspec.Struct, frozen=True, forbid_unknown_fields=True, gc=False):
    """The agent that played. `policy_version` identifies the weights; `sampling` holds the sampling parameters."""

    name: str
    policy: str
    policy_version: str
    scaffold: str = ""
    sampling: dict[str, Any] = {}


class Turn(msgspec.Struct, frozen=True, forbid_unknown_fields=True, gc=False):
    """One reply of the policy and the results of its calls. A step is one call with its result.

    `seconds`: of the reply and its calls; `call_seconds`: of each executed call, omitted where it was not measured.
    """

    index: int
    agent_id: str
    text: str
    thought: str | None = None
    calls: tuple[ToolCall, ...] = ()
    results: tuple[ToolResult, ...] = ()
    env_reward: float | None = None
    stop_reason: str | None = None
    usage: Usage | None = None
    seconds: float | None = None
    call_seconds: tuple[float, ...] | msgspec.UnsetType = msgspec.UNSET


class Outcome(msgspec.Struct, frozen=True, forbid_unknown_fields=True, gc=False):
    """Outcome of an episode. None means unknown, which differs from False or 0."""

    success: bool | None = None
    score: float | None = None
    tests_passed: int | None = None
    tests_total: int | None = None
    terminated: bool = False
    truncated: bool = False
    reason: str = ""


class FailureKind(StrEnum):
    """Cause of a failure."""

    POLICY = "policy"
    INFRASTRUCTURE = "infrastructure"


class Failure(msgspec.Struct, frozen=True, forbid_unknown_fields=True, gc=False):
    """Reason why an episode has no ordinary end."""

    kind: FailureKind
    type: str
    message: str


class Parent(msgspec.Struct, frozen=True, forbid_unknown_fields=True, gc=False):
    """Origin of a branched episode: the parent and the turn at which the branch diverges."""

    episode_id: str
    turn: int
    snapshot_id: str | None = None


class Provenance(msgspec.Struct, frozen=True, forbid_unknown_fields=True, gc=False):
    """Origin of the record. `collected_at`: ISO 8601 in UTC; `source`: the name of a reader, or `ratchet`.

    `sandbox` is the back end that ran the agent's commands, `isolation` what separated them from the host (see
    Sandbox). Both are omitted where no command was run, in records of other agents, and in older records, whose bytes
    must not change.
    """

    source: str = "ratchet"
    commit: str | None = None
    image_digest: str | None = None
    collected_at: str | None = None
    sandbox: str | msgspec.UnsetType | None = msgspec.UNSET
    isolation: str | msgspec.UnsetType | None = msgspec.UNSET

    @property
    def where(self) -> str | None:
        """Sandbox back end, isolation and image as a short text; None where no sandbox is known."""
        parts = [part for part in (self.sandbox, self.isolation, self.image_digest) if part]
        return ", ".join(parts) if self.sandbox else None


class Trajectory(NotebookTable, msgspec.Struct, frozen=True, forbid_unknown_fields=True, gc=False):
    """One episode: one line of JSON."""

    episode_id: str
    group_id: str
    attempt: int
    seed: int
    task: TaskRef
    agent: Agent
    messages: tuple[Message, ...]
    turns: tuple[Turn, ...]
    outcome: Outcome = Outcome()
    failure: Failure | None = None
    parent: Parent | None = None
    provenance: Provenance = Provenance()
    source_extra: dict[str, Any] = {}
    content_hash: str = ""
    schema_version: int = SCHEMA_VERSION

    @property
    def has_infrastructure_failure(self) -> bool:
        """Whether an infrastructure failure ended the episode, which is then no evidence about the policy."""
        return self.failure is not None and self.failure.kind is FailureKind.INFRASTRUCTURE

    @property
    def effective_hash(self) -> str:
        """The stored content hash; computed if the record has none."""
        return self.content_hash or content_hash(self)

    def with_content_hash(self) -> "Trajectory":
        """Return the same record with its `content_hash` computed anew."""
        return with_content_hash(self)

    def rows(self) -> list[dict[str, Any]]:
        """Return one dictionary per step: the call and its result; a turn without calls is one row too."""
        return [row for turn in self.turns for row in _step_rows(turn)]

    def _caption(self) -> tuple[str, str]:
        success = {True: "success", False: "failure", None: "outcome unknown"}[self.outcome.success]
        end = self.failure.message if self.failure else self.outcome.reason
        title = f"{self.task.task_id}, attempt {self.attempt} by {self.agent.name}: {success}{end and f' ({end})'}"
        return title, self.task.description


def _step_rows(turn: Turn) -> list[dict[str, Any]]:
    results = {result.call_id: result for result in turn.results}
    rows = []
    for call in turn.calls:
        result = results.get(call.call_id)
        rows.append(
            {
                "turn": turn.index,
                "tool": call.tool,
                "arguments": call.raw if call.parse_error else json.dumps(call.arguments, ensure_ascii=False),
                "result": result and result.content,
                "error": call.parse_error or (result and result.error),
                "reward": turn.env_reward,
            }
        )
    answer = {"turn": turn.index, "tool": None, "arguments": turn.text, "result": None, "error": None}
    return rows or [{**answer, "reward": turn.env_reward}]


def digest(*parts: object) -> str:
    """Return the SHA-256 (first 24 hex digits) of the parts as JSON with sorted keys."""
    return hashlib.sha256(msgspec.json.encode(parts, order="sorted")).hexdigest()[:24]


def episode_id(task_id: str, task_hash: str, policy_version: str, attempt: int, seed: int) -> str:
    """Return the identity of an episode, which is known before it is played."""
    return "ep-" + digest(task_id, task_hash, policy_version, attempt, seed)


def group_id(task_id: str, task_hash: str, policy_version: str) -> str:
    """Return the identity of a group: the episodes of one TaskSpec by one policy version."""
    return "gr-" + digest(task_id, task_hash, policy_version)


def content_hash(trajectory: Trajectory) -> str:
    """Hash what happened, without timing, usage or dates: equal for episodes with the same turns and outcome."""
    # Part of every identity on disk: another field or another order makes all stored hashes wrong.
    turns = [
        (turn.index, turn.agent_id, turn.thought, turn.text, turn.calls, turn.results, turn.env_reward)
        for turn in trajectory.turns
    ]
    return digest(trajectory.task, trajectory.messages, turns, trajectory.outcome)


def with_content_hash(trajectory: Trajectory) -> Trajectory:
    """Return the record with its `content_hash` filled in."""
    return msgspec.structs.replace(trajectory, content_hash=content_hash(trajectory))


def schema_text() -> str:
    """Return the JSON Schema (2020-12) of one line of a shard, indented, with a final newline. Unknown fields are
    invalid, as in the reader.
    """
    schema = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"Ratchet trajectory, schema version {SCHEMA_VERSION}",
        **msgspec.json.schema(Trajectory),
    }
    plain = msgspec.json.decode(msgspec.json.encode(schema))
    return json.dumps(plain, indent=2, ensure_ascii=False) + "\n"
