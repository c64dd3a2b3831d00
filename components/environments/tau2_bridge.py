"""The τ² tasks of the package `inspect-evals`, behind lines of JSON. Runs alone, by an interpreter that has the package.

Its libraries contradict Ratchet's, so nothing of Ratchet is imported here. Each line of standard input is a request, each line
of standard output its answer: `{"ok": …}`, or `{"error": one line, "kind": class}`. `do` is one of

- `tasks` {domain}: the records of the domain's `base` split.
- `begin` {session, domain, task}: a new database in the task's initial state. Returns `policy`, `tools`, `user_tools` (JSON
  Schema) and `user_messages`, the conversation with which the package instructs its user.
- `turn` {session, by: agent or user, text, call}: with `call` {tool, arguments} the result of a tool, `content` and `error`;
  without, the text is said to the other side, and `over` tells whether the user has ended the conversation with it.
- `grade` {session}: the package's own score, `success` and `explanation`. `end` {session} forgets the session.

Tools, databases, initial states and scorers are the package's; the order of turns is that of its user simulator.
"""

import asyncio
import atexit
import contextvars
import functools
import importlib
import json
import os
import sys
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

STOP_WORDS = ("###STOP###", "###OUT-OF-SCOPE###", "###TRANSFER###")


class Domain:
    """One domain of the package."""

    def __init__(self, name: str) -> None:
        self.instance = f"{name.capitalize()}Agent"
        self.dataset = self._module(name, "dataset")
        agents = self._module(name, "agents")
        # Not the loop of agent and user, which asks its models itself: only what it is made of.
        agents.get_user_simulator_agent = lambda config, message_limit=None, tools=None: (config, tools or [])
        self.config, self.user_tools = agents.get_user_agent(instance=self.instance)
        self.scorer = getattr(self._module(name, "scorer"), f"{name}_scorer")()
        try:
            self.initializer = getattr(self._module(name, "solver"), f"{name}_initializer")()
        except ModuleNotFoundError:
            self.initializer = None

    @staticmethod
    def _module(name: str, part: str) -> Any:
        return importlib.import_module(f"inspect_evals.tau2.{name}.{part}")


@functools.cache
def domain_of(name: str) -> Domain:
    """Return a domain; the package is imported here."""
    utils: Any = importlib.import_module("inspect_evals.tau2.utils")
    # HAZARD: it unpacks a database to a temporary file that nobody removes, for each episode and each grade.
    utils.uncompress_file = functools.cache(_removed_at_exit(utils.uncompress_file))
    return Domain(name)


def _removed_at_exit(uncompress: Any) -> Any:
    def uncompress_once(path: str) -> str:
        unpacked: str = uncompress(path)
        if unpacked != path:
            atexit.register(Path(unpacked).unlink, missing_ok=True)
        return unpacked

    return uncompress_once


class Session:
    """One episode. The package finds its databases in a store of the context, so each session has a context."""

    def __init__(self, domain: Domain, task: dict[str, Any]) -> None:
        from inspect_ai.model import ChatMessageSystem, ModelName
        from inspect_ai.solver import TaskState
        from inspect_ai.util import Store
        from inspect_ai.util._store import init_subtask_store

        self.domain = domain
        sample = domain.dataset.get_record_to_sample(domain.instance)(task)
        self.state = TaskState(
            ModelName("mockllm/model"), sample.id, 1, list(sample.input), list(sample.input), metadata=sample.metadata
        )
        self.messages = {
            "agent": [ChatMessageSystem(content=domain.config.get_domain_policy())],
            "user": self.state.messages,
        }
        self.context = contextvars.copy_context()
        self.context.run(init_subtask_store, Store())
        if domain.initializer is not None:
            self._run(domain.initializer(self.state, None))

    def describe(self) -> dict[str, Any]:
        """Return what `begin` answers."""
        roles = [{"role": message.role, "content": message.text} for message in self.state.messages]
        tools = {"tools": _schemas(self.domain.config.tools), "user_tools": _schemas(self.domain.user_tools)}
        return {"policy": self.domain.config.get_domain_policy(), "user_messages": roles, **tools}

    def turn(self, by: str, text: str, call: dict[str, Any] | None) -> dict[str, Any]:
        """Record one message of the agent or the user; see the module."""
        from inspect_ai.model import ChatMessageAssistant, ChatMessageUser

        own, other = self.messages[by], self.messages["user" if by == "agent" else "agent"]
        if call is not None:
            return self._call(by, text, call)
        own.append(ChatMessageAssistant(content=text))
        over = by == "user" and any(word in text for word in STOP_WORDS)
        if not over:
            other.append(ChatMessageUser(content=text))
        return {"over": over}

    def _call(self, by: str, text: str, call: dict[str, Any]) -> dict[str, Any]:
        from inspect_ai.model import ChatMessageAssistant, execute_tools
        from inspect_ai.tool import ToolCall

        messages = self.messages[by]
        tools = self.domain.config.tools if by == "agent" else self.domain.user_tools
        tool_call = ToolCall(id=f"call_{len(messages)}", function=call["tool"], arguments=call["arguments"])
        messages.append(ChatMessageAssistant(content=text, tool_calls=[tool_call]))
        try:
            results = self._run(execute_tools(messages[-1:], tools)).messages
        except Exception as error:  # a fault of the package's tool
            return {"content": "", "error": first_line(error)}
        messages += results
        refusal = results[-1].error
        return {"content": results[-1].text, "error": None if refusal is None else refusal.message}

    def grade(self) -> dict[str, Any]:
        """Return the verdict of the package's scorer."""
        score = self._run(self._score())
        return {"success": score.value == "C", "explanation": score.explanation or ""}

    async def _score(self) -> Any:
        from inspect_ai.util import store_as
        from inspect_evals.tau2.common.agents import StoredAgentState

        store_as(StoredAgentState, self.domain.config.instance).messages = self.messages["agent"]
        return await self.domain.scorer(self.state, None)

    def _run(self, work: Coroutine[Any, Any, Any]) -> Any:
        return self.context.run(asyncio.run, work)


def _schemas(tools: list[Any]) -> list[dict[str, Any]]:
    from inspect_ai.tool import ToolDef

    definitions = [ToolDef(tool) for tool in tools]
    return [
        {
            "name": each.name,
            "description": each.description,
            "parameters": each.parameters.model_dump(mode="json", exclude_none=True),
        }
        for each in definitions
    ]


def first_line(error: BaseException) -> str:
    """Return an error as one line."""
    return " ".join(f"{type(error).__name__}: {error}".split())[:500]


def answer(sessions: dict[str, Session], request: dict[str, Any]) -> Any:
    """Return the answer to a request."""
    do, session = request["do"], request.get("session", "")
    if do == "tasks":
        domain = domain_of(request["domain"])
        return [sample.metadata["task"] for sample in domain.dataset.read_dataset(domain.instance)]
    if do == "begin":
        sessions[session] = Session(domain_of(request["domain"]), request["task"])
        return sessions[session].describe()
    if do == "turn":
        return sessions[session].turn(request["by"], request["text"], request.get("call"))
    if do == "grade":
        return sessions[session].grade()
    return sessions.pop(session, None) is not None


def main() -> None:
    """Answer requests until standard input ends."""
    # What libraries print must not reach the answers.
    output = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    sessions: dict[str, Session] = {}
    for line in sys.stdin:
        try:
            reply = {"ok": answer(sessions, json.loads(line))}
        except Exception as error:
            reply = {"error": first_line(error), "kind": type(error).__name__}
        print(json.dumps(reply, default=str), file=output, flush=True)


if __name__ == "__main__":
    main()
