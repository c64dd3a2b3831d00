"""TaskSpec, one problem for an agent (not a Prefect task: those live in `tasks/`), and the tools with which it is
solved.
"""

import hashlib
from enum import StrEnum
from typing import Any

import msgspec

from .errors import DataError

REFERENCE_ACTIONS_FILE = "actions.json"
"""Key of a reference that holds actions instead of files."""
REFERENCE_REPLY_FILE = "reply.txt"
"""Key of a reference that holds one correct reply in text."""


class Role(StrEnum):
    """Split of a TaskSpec, and so its permitted use; nothing else assigns tasks to splits.

    `train`: its episodes may be trained on. `promote`: decides whether a challenger is promoted. `reserve`: decides it
    too, once the tasks of `promote` were used more often. `audit`: played and reported, but never decides.
    """

    TRAIN = "train"
    PROMOTE = "promote"
    AUDIT = "audit"
    RESERVE = "reserve"


HELD_OUT = frozenset({Role.PROMOTE, Role.AUDIT, Role.RESERVE})
"""All roles but `train`: episodes of their tasks are never trained on."""


class Repository(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Git repository of a task. `source`: a path, a bundle or a URL. `setup_command` runs in the workspace after
    `base_commit` was checked out; empty for none.
    """

    source: str
    base_commit: str
    setup_command: str = ""


class TaskSpec(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """One problem. The agent sees `description` and `files`; `tests` and `reference` are visible to the grader only.

    - `family`: identifies tasks that share a solution (the same source program, with identifiers and constants
      normalised).
    - `kind`: type of problem within its taskset (for `repair`: the kind of fault).
    - `files`: path to text, written into the workspace at reset. `editable`: paths whose content is graded.
    - `tests`: path to text, written only into the fresh grading sandbox. `test_command` runs there; success is exit
      code 0, with a runner that has reported each test and its own end.
    - `expected_output`: if given, each line is one test and `test_command` must print exactly these lines. They are
      compared outside the sandbox and never enter it, so that code under test cannot read, patch or print its way past
      them.
    - `reference`: path to text of one correct answer; never shown to an agent. Without files, `actions.json` holds the
      actions of one correct episode as a JSON list (see `reference_actions`), or `reply.txt` a correct reply.
    - `world`: state that the tools act on where there are no files (tables, documents); each episode gets a copy.
    - `criteria`: conditions on the final world and conversation, in the format of environments.outcome_criteria; for
      the grader only.
    - `repository`: checked out into the workspace. `image`: image of the sandbox where the task needs a particular one.
    """

    task_id: str
    taskset: str
    family: str
    kind: str
    role: Role
    domain: str
    description: str
    files: dict[str, str] = {}
    editable: tuple[str, ...] = ()
    tests: dict[str, str] = {}
    test_command: str = ""
    expected_output: tuple[str, ...] = ()
    reference: dict[str, str] = {}
    world: dict[str, Any] = {}
    criteria: dict[str, Any] = {}
    repository: Repository | None = None
    image: str | None = None
    metadata: dict[str, Any] = {}
    schema_version: int = 1

    @property
    def task_hash(self) -> str:
        """SHA-256 (first 16 hex digits) over all fields except the role."""
        content = msgspec.to_builtins(self)
        # The role is a decision about the task, not its content: a task keeps its identity when it changes splits.
        content.pop("role", None)
        encoded = msgspec.json.encode(content, order="sorted")
        return hashlib.sha256(encoded).hexdigest()[:16]

    @property
    def reference_actions(self) -> list[dict[str, Any]]:
        """Actions of the reference, each `{"tool", "params"}`; empty where the reference consists of files. Raises
        DataError where `actions.json` is not such a list.
        """
        text = self.reference.get(REFERENCE_ACTIONS_FILE)
        if text is None:
            return []
        try:
            actions = msgspec.json.decode(text, type=list[_Action])
        except msgspec.DecodeError as error:
            raise DataError(
                f"task '{self.task_id}', reference {REFERENCE_ACTIONS_FILE}: {error}; correct the taskset"
            ) from error
        return [{"tool": action.tool, "params": action.params} for action in actions]


class _Action(msgspec.Struct, forbid_unknown_fields=True):
    tool: str
    params: dict[str, Any] = {}


FREE_PARAMETERS: dict[str, Any] = {"type": "object", "additionalProperties": True}
"""JSON Schema of a tool whose parameters are not described: any are valid."""


class ToolSpec(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A tool as it is described to the policy. `parameters`: a JSON Schema of type object."""

    name: str
    description: str
    parameters: dict[str, Any]

    def as_openai(self) -> dict[str, Any]:
        """Return the function-calling format of OpenAI's API, which chat templates take as well."""
        function = {"name": self.name, "description": self.description, "parameters": self.parameters}
        return {"type": "function", "function": function}

    def parameter_error(self, params: Any) -> str | None:
        """Return a one-line error for the parameters of a call; None if they are valid.

        Supported schema: properties with `type`, `enum` and `items`, `required`; parameters that are not listed are
        errors, unless `additionalProperties` is true.
        """
        if not isinstance(params, dict):
            return f"{self.name}: params must be an object"
        properties = self.parameters.get("properties", {})
        for key, value in params.items():
            if key not in properties:
                if self.parameters.get("additionalProperties") is True:
                    continue
                return f"{self.name}: unknown parameter {key!r}"
            value_error = _mismatch(value, properties[key])
            if value_error:
                return f"{self.name}: {key} {value_error}"
        missing = [key for key in self.parameters.get("required", ()) if key not in params]
        return f"{self.name}: missing parameter {missing[0]!r}" if missing else None


_TYPES: dict[str, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "array": (list,),
    "object": (dict,),
    "null": (type(None),),
}
_ARTICLES = {"a": "an", "o": "an", "i": "an"}


def _mismatch(value: Any, schema: dict[str, Any]) -> str | None:
    """Return how a value differs from its schema; None where it fits. A bool is not a number."""
    declared_type = schema.get("type", [])
    kinds = declared_type if isinstance(declared_type, list) else [declared_type]
    if kinds and not any(_is(value, kind) for kind in kinds):
        return "must be " + " or ".join(f"{_ARTICLES.get(kind[0], 'a')} {kind}" for kind in kinds)
    if "enum" in schema and value not in schema["enum"]:
        return f"must be one of {', '.join(map(str, schema['enum']))}"
    if isinstance(value, list) and "items" in schema:
        item_error = next((difference for item in value if (difference := _mismatch(item, schema["items"]))), None)
        return f"must hold items of which each {item_error}" if item_error else None
    return None


def _is(value: Any, kind: str) -> bool:
    # isinstance(True, int) holds in Python, and JSON Schema keeps them apart.
    return isinstance(value, _TYPES[kind]) and (kind == "boolean" or not isinstance(value, bool))


class ToolCall(msgspec.Struct, frozen=True, forbid_unknown_fields=True, gc=False):
    """One call as the policy wrote it. A call that cannot be parsed has `parse_error` and keeps its `raw` text."""

    call_id: str
    tool: str
    arguments: dict[str, Any] = {}
    raw: str = ""
    parse_error: str | None = None


class ToolResult(msgspec.Struct, frozen=True, forbid_unknown_fields=True, gc=False):
    """Result of a call. `content` is text; a large or binary output is a blob, named by its hash.

    `exit_code` is None for tools without one; `error` is None unless the call itself could not be carried out.
    """

    call_id: str
    content: str
    exit_code: int | None = None
    error: str | None = None
    truncated: bool = False
    blob: str | None = None
