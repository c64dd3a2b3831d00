"""Tau2Environment: serve the users of τ²-bench's domains, as the package `inspect-evals` bundles them.

The package's own tools, databases and scorers run in one process beside ours (`tau2_bridge`), by the interpreter that
RATCHET_TAU2_PYTHON names, because its libraries contradict ours. Without the variable it must be installed beside Ratchet.
"""

import json
import os
import re
import sys
import threading
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Any

import msgspec

from ratchet.components.core import (
    ConfigurationError,
    DataError,
    InfrastructureError,
    Message,
    Policy,
    PolicyReply,
    PolicyRequest,
    TaskSpec,
    TimeStep,
    ToolCall,
    ToolSpec,
    assistant_message,
)
from ratchet.components.core.processes import LineProcess
from ratchet.components.models.policy_config import OpenAIConfig

from .peer_environment import RESPOND, PeerEnvironment, bounded_observation, peer_outcome
from .peer_task import PeerTask, read_peer_task
from .sandbox_tools import Observation

DOMAINS = ("airline", "retail", "telecom", "banking")
PYTHON_VARIABLE = "RATCHET_TAU2_PYTHON"
STOP = "###STOP###"
OTHER_USER = "play the episode again, or take another model as user"
SECONDS = 600.0
USER_SECONDS = 240.0
"""Longest time of a model user between two of its messages; below a collection's limit of a tool call, which names no cause."""
MAX_USER_TURNS = 20
"""Most replies in a row in which the user only calls its own tools."""


class UserUnavailable(InfrastructureError):
    """The model that plays the user fails or says nothing: no fault of the agent, and of another server than the agent's."""


# By process id, since a fork must not share its parent's pipes, and interpreter.
_bridges: dict[tuple[int, str], LineProcess] = {}
_bridges_lock = threading.Lock()


def _bridge() -> LineProcess:
    """Return the process that runs the package, which is started where none runs."""
    python = os.environ.get(PYTHON_VARIABLE) or sys.executable
    key = os.getpid(), python
    with _bridges_lock:  # episodes that begin together share one process
        if key not in _bridges or _bridges[key].process.poll() is not None:
            try:
                _bridges[key] = LineProcess([python, str(Path(__file__).with_name("tau2_bridge.py"))])
            except OSError as error:
                raise ConfigurationError(f"{PYTHON_VARIABLE} names no interpreter: {error}") from error
        return _bridges[key]


def ask_bridge(do: str, **fields: Any) -> Any:
    """Return the answer to a request. Raises ConfigurationError without the package, DataError for a task that it refuses, and
    InfrastructureError for its other errors and a process that does not answer within SECONDS.
    """
    process = _bridge()
    # With a limit: a process that hangs in one request would hold up all episodes.
    answer = process.ask(json.dumps({"do": do, **fields}).encode(), SECONDS)
    if answer is None:
        process.kill()
        process.process.wait()
        raise InfrastructureError(f"the process of inspect-evals ended (do: {do}); play the episode again")
    reply = json.loads(answer)
    if reply.get("kind") == "ModuleNotFoundError":
        raise ConfigurationError(
            f"{reply['error']}; install inspect-evals beside Ratchet, or in an environment whose python {PYTHON_VARIABLE} names"
        )
    if "error" in reply:
        failure = DataError if do == "begin" else InfrastructureError
        raise failure(f"inspect-evals refuses (do: {do}): {reply['error']}")
    return reply["ok"]


class Tau2Environment(PeerEnvironment):
    """The tools are the domain's, and `respond`. The first observation is the policy and the user's first message.

    - The user ends the episode. A reply in text is said to the user, and ends it too.
    - The score is 1 or 0, the verdict of the package's scorer: the final database against the expected one, and the task's
      criteria. `info["explanation"]` is its reason.
    - The user is a script of the task's instructions, or the model that the taskset's setting `user` names,
      `<model>@<base_url>` or a YAML file of an endpoint; it has the tools of the domain's users.
    """

    own_tool = RESPOND

    def __init__(self, *, max_steps: int = 60) -> None:
        super().__init__(max_steps)
        self._session = ""
        self._user: Policy

    def close(self) -> None:
        """Forget the episode's database; safe to call twice."""
        session, self._session = self._session, ""
        if session:
            self._user.close()
            with suppress(InfrastructureError):
                ask_bridge("end", session=session)

    def answer(self, text: str, *, truncated: bool = False) -> TimeStep:
        """Say the last words to the user, and end the episode."""
        observation = Observation("")
        if self._last is None:
            observation, _ = self._speak(text)
        return self._last or self._end(observation, "", "length" if truncated else None)

    def _begin_episode(self, task: TaskSpec) -> tuple[str, dict[str, Any]]:
        peer = read_peer_task(task.criteria, "tau2")
        record = {key: value for key, value in peer.data.items() if key != "name"}
        self._user = _make_user(peer.config.get("user", ""), record)
        self._session = uuid.uuid4().hex
        episode = ask_bridge("begin", session=self._session, domain=peer.package, task=record)
        self._tools = (*msgspec.convert(episode["tools"], list[ToolSpec]), RESPOND)
        self._user_tools = msgspec.convert(episode["user_tools"], tuple[ToolSpec, ...])
        self._user_messages: list[Message] = list(episode["user_messages"])
        opening, over = self._user_turn()
        if over:
            raise UserUnavailable(f"the user ends the conversation before the agent speaks; {OTHER_USER}")
        return f"{episode['policy']}\n\nThe user says: {opening.content}", {}

    def _turn(self, by: str, text: str, call: dict[str, Any] | None = None) -> Any:
        return ask_bridge("turn", session=self._session, by=by, text=text, call=call)

    def _speak(self, text: str) -> tuple[Observation, bool]:
        self._turn("agent", text)
        self._user_messages.append({"role": "user", "content": text})
        return self._user_turn()

    def _user_turn(self) -> tuple[Observation, bool]:
        """Let the user call its tools and speak; return its text, and whether it has ended the conversation."""
        deadline = time.monotonic() + USER_SECONDS
        watchdog = threading.Timer(USER_SECONDS, self._user.close)  # which cancels its request
        watchdog.start()
        try:
            for _ in range(MAX_USER_TURNS):
                reply = self._ask_user(deadline)
                if not reply.calls:
                    return bounded_observation(reply.text), bool(self._turn("user", reply.text)["over"])
                for call in reply.calls:
                    self._call_of_user(reply.text, call)
        finally:
            watchdog.cancel()
        raise UserUnavailable(f"the user called tools {MAX_USER_TURNS} times without a word; {OTHER_USER}")

    def _ask_user(self, deadline: float) -> PolicyReply:
        """Return the user's next reply, and add it to its conversation. Raises UserUnavailable, ConfigurationError."""
        messages = self._user_messages
        request = PolicyRequest("user", "user", len(messages), 0, tuple(messages), self._user_tools)
        try:
            (reply,) = self._user.act([request])
        except ConfigurationError as error:
            raise ConfigurationError(f"the user: {error}") from error
        except InfrastructureError as error:
            overdue = f"no word within {USER_SECONDS:g} s; see whether its server runs"
            raise UserUnavailable(f"the user: {error if time.monotonic() < deadline else overdue}") from error
        if not reply.calls and not reply.text.strip():
            raise UserUnavailable(f"the user says nothing (it stopped for '{reply.stop_reason}'); {OTHER_USER}")
        messages.append(assistant_message(reply.text, reply.calls))
        return reply

    def _call_of_user(self, text: str, call: ToolCall) -> None:
        result = {"content": "", "error": call.parse_error}
        if call.parse_error is None:
            result = self._turn("user", text, {"tool": call.tool, "arguments": call.arguments})
        content = f"Error: {result['error']}" if result["error"] else result["content"]  # as the package words it
        self._user_messages.append(
            {"role": "tool", "content": content, "tool_call_id": call.call_id, "name": call.tool}
        )

    def _call_peer(self, tool: str, params: dict[str, Any]) -> tuple[Observation, bool]:
        result = self._turn("agent", "", {"tool": tool, "arguments": params})
        if result["error"]:
            return Observation(f"error: {result['error']}", error=result["error"]), False
        return bounded_observation(result["content"]), False

    def _grade(self, task: TaskSpec, reason: str | None) -> tuple[float | None, dict[str, Any]]:
        graded = ask_bridge("grade", session=self._session)
        self.close()
        score, facts = peer_outcome(float(graded["success"]), reason, "criteria_failed")
        return score, {**facts, "explanation": graded["explanation"]}


class ScriptedTau2User(Policy):
    """A user without a model. It says why it calls, answers each question with the next of its instructions, calls a tool of
    its own that the agent names, and ends the conversation at a statement, or when it has nothing left to say.
    """

    name, version = "scripted-tau2-user", "1"

    def __init__(self, task: dict[str, Any]) -> None:
        instructions = task["user_scenario"]["instructions"]
        parts = ("reason_for_call", "known_info", "task_instructions")
        lines = [instructions] if isinstance(instructions, str) else [instructions.get(part) for part in parts]
        # Instructions that say how to end a conversation must not end this one.
        self._lines = [line.replace("###", "") for line in lines if line]
        actions = (task.get("evaluation_criteria") or {}).get("actions") or []
        self._expected = [action for action in actions if action.get("requestor") == "user"]
        self.sampling = {}

    def act(self, requests: Sequence[PolicyRequest]) -> list[PolicyReply]:
        """See Policy. Equal conversations give equal replies."""
        return [self._reply(request) for request in requests]

    def _reply(self, request: PolicyRequest) -> PolicyReply:
        said = [message["content"] for message in request.messages if message["role"] == "assistant"]
        heard = max(at for at, message in enumerate(request.messages) if message["role"] == "user")
        if not said:
            return PolicyReply(self._lines[0])
        words = f" {' '.join(re.findall(r'[a-z0-9]+', request.messages[heard]['content'].casefold()))} "
        results = [message for message in request.messages[heard:] if message["role"] == "tool"]
        used = {message["name"] for message in results}
        for tool in request.tools:
            arguments = self._arguments(tool)
            if tool.name not in used and f" {tool.name.replace('_', ' ')} " in words and arguments is not None:
                return PolicyReply("", (ToolCall(f"user_{len(request.messages)}", tool.name, arguments),))
        if results:
            return PolicyReply("\n".join(message["content"] for message in results))
        left = [line for line in self._lines if line not in said]
        return PolicyReply(left[0] if left and "?" in request.messages[heard]["content"] else STOP)

    def _arguments(self, tool: ToolSpec) -> dict[str, Any] | None:
        """Return those of the task's expected call, whose tool may lack the domain's prefix; None without arguments."""
        for action in self._expected:
            if f"_{tool.name}".endswith(f"_{action['name']}"):
                return dict(action["arguments"])
        return None if tool.parameters.get("required") else {}


def _make_user(name: str, task: dict[str, Any]) -> Policy:
    if not name:
        return ScriptedTau2User(task)
    from ratchet.components.models.openai_policy import OpenAIPolicy

    # As in the package: a user has no temperature.
    return OpenAIPolicy(OpenAIConfig.named(name), temperature=0.0, top_p=1.0, max_new_tokens=512)


def peer_tasks(domain: str, config: dict[str, Any], size: int) -> Iterator[tuple[PeerTask, str]]:
    """Yield the first `size` tasks of a domain's base split, each with a description. `config`: `user`, see
    Tau2Environment. Raises ConfigurationError.
    """
    user = config.get("user") or ""
    if domain not in DOMAINS or set(config) - {"user"} or not isinstance(user, str):
        raise ConfigurationError(
            f"tau2 has the domains {', '.join(DOMAINS)} and the setting `user`; '{domain}' and {config} were given"
        )
    if user:
        OpenAIConfig.named(user)
    for record in islice(ask_bridge("tasks", domain=domain), size):
        # The package's ids have characters that a task id must not have.
        name = re.sub(r"[^\w.-]+", "_", record["id"]).strip("_")
        description = f"Serve a user of the domain {domain} by its policy."
        yield PeerTask("tau2", domain, config, {"name": name, **record}), description
