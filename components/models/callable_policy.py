"""Policies made of Python functions, and policies with a system prompt."""

import asyncio
import inspect
import threading
import types
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any

from ratchet.components.core import Action, ConfigurationError, Policy, PolicyReply, PolicyRequest, ToolCall
from ratchet.components.trajectories.trajectory import digest

AgentReply = PolicyReply | Action | str
"""A whole reply; one tool call, `{"tool": str, "params": dict, "thought": str?}`; or text that calls no tool."""
AgentFunction = Callable[[PolicyRequest], AgentReply | Awaitable[AgentReply]]
CALL_KEYS = {"tool", "params", "thought"}


class CallablePolicy(Policy):
    """A function of a PolicyRequest that returns an AgentReply, or a coroutine function of that kind.

    Coroutines of all episodes run in one event loop, so that they can share an asynchronous client. The version is
    the function's attribute `version`, else a hash of its code, its parameters' defaults and the plain values it captures.
    """

    def __init__(self, agent: AgentFunction) -> None:
        function = agent.func if isinstance(agent, partial) else agent
        name = getattr(function, "__name__", type(function).__name__)
        self.name = "agent" if name == "<lambda>" else name
        self.version = str(getattr(agent, "version", f"{self.name}-{digest(_identity(agent))[:16]}"))
        self.sampling = {}
        self._agent = agent
        self._loop: asyncio.AbstractEventLoop | None = None
        self._lock = threading.Lock()

    def act(self, requests: Sequence[PolicyRequest]) -> list[PolicyReply]:
        """Call the function with each request, in order. Raises ConfigurationError for a reply of another type."""
        return [self._reply(request) for request in requests]

    def _reply(self, request: PolicyRequest) -> PolicyReply:
        reply = self._agent(request)
        if inspect.isawaitable(reply):
            reply = asyncio.run_coroutine_threadsafe(_await(reply), self._event_loop()).result()
        if isinstance(reply, PolicyReply):
            return reply
        if isinstance(reply, str):
            return PolicyReply(reply)
        if isinstance(reply, dict) and isinstance(reply.get("tool"), str) and reply.keys() <= CALL_KEYS:
            call = ToolCall(f"{request.turn}-0", reply["tool"], dict(reply.get("params") or {}))
            return PolicyReply("", (call,), reply.get("thought"))
        raise ConfigurationError(
            f"the agent {self.name} returned {str(reply)[:80]!r}; return a ratchet.PolicyReply, a dictionary with "
            "`tool` and `params`, or text"
        )

    def _event_loop(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                threading.Thread(target=self._loop.run_forever, daemon=True, name="agent").start()
            return self._loop

    def close(self) -> None:
        """Stop the event loop."""
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._loop = None


async def _await(reply: Awaitable[AgentReply]) -> AgentReply:
    return await reply


DEPTH, ITEMS = 8, 100
"""Nesting and length to which captured values are part of a version: they may be cyclic, or large."""


def _identity(value: Any, depth: int = 0) -> Any:
    """Return what distinguishes one function from another as JSON values, the same in every process."""

    def inner(*values: Any) -> list[Any]:
        return [_identity(each, depth + 1) for each in values[:ITEMS]]

    if depth > DEPTH:
        return "…"
    if isinstance(value, partial):
        return inner(value.func, value.args, value.keywords)
    if isinstance(value, types.MethodType):
        return inner(value.__func__, getattr(value.__self__, "__dict__", None))
    if isinstance(value, types.FunctionType):
        captured = [cell.cell_contents for cell in value.__closure__ or ()]
        return inner(value.__code__, captured, value.__defaults__, value.__kwdefaults__)
    if isinstance(value, types.CodeType):
        return [value.co_code.hex(), value.co_names, *inner(*value.co_consts)]
    if isinstance(value, dict):
        return [[str(key), *inner(item)] for key, item in list(value.items())[:ITEMS]]
    if isinstance(value, list | tuple):
        return inner(*value)
    if isinstance(value, str | int | float | bytes | frozenset | None):
        return repr(sorted(map(repr, value)) if isinstance(value, frozenset) else value)
    call = vars(type(value)).get("__call__")
    if isinstance(call, types.FunctionType):
        return inner(call, getattr(value, "__dict__", None))
    return type(value).__qualname__  # its address or state would differ from run to run


class SystemPromptPolicy(Policy):
    """A policy with a system prompt, which is the first message of each episode and part of the version."""

    def __init__(self, policy: Policy, system: str) -> None:
        self.name, self.sampling, self.lockstep, self.system = policy.name, policy.sampling, policy.lockstep, system
        self.tokenizer_hash, self.template_hash = policy.tokenizer_hash, policy.template_hash
        self.version = f"{policy.version}+{digest(policy.system, system)[:8]}"
        self._policy = policy

    def act(self, requests: Sequence[PolicyRequest]) -> list[PolicyReply]:
        """Return the replies of the policy; the requests begin with the system prompt already."""
        return self._policy.act(requests)

    def close(self) -> None:
        """Close the policy."""
        self._policy.close()


def as_policy(agent: Policy | AgentFunction) -> Policy:
    """Return a policy as it is, and a function as a CallablePolicy. Raises ConfigurationError for anything else."""
    if isinstance(agent, Policy):
        return agent
    if callable(agent) and not isinstance(agent, type):
        return CallablePolicy(agent)
    raise ConfigurationError(
        f"{agent!r} is no agent; give a policy's name, a ratchet.Policy, or a function of a ratchet.PolicyRequest"
    )
