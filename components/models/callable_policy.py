"""Policies made of Python functions, and policies with a system prompt."""

import asyncio
import dis
import inspect
import json
import os
import threading
import types
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import Future
from functools import cache, partial
from typing import Any

from ratchet.components.core import Action, ConfigurationError, Policy, PolicyReply, PolicyRequest, ToolCall
from ratchet.components.trajectories.trajectory import digest

AgentReply = PolicyReply | Action | str
"""A whole reply; one tool call, `{"tool": str, "params": dict, "thought": str?}`; or text that calls no tool."""
AgentFunction = Callable[[PolicyRequest], AgentReply | Awaitable[AgentReply]]
CALL_KEYS = {"tool", "params", "thought"}


class CallablePolicy(Policy):
    """A function of a PolicyRequest that returns an AgentReply, or a coroutine function of that kind.

    Coroutines of all such policies run in one event loop of the process, so that they can share an asynchronous client.
    The version is the function's attribute `version`, else a hash of its code, its parameters' defaults, and the plain
    values and functions of its module that it captures or reads as globals.
    """

    def __init__(self, agent: AgentFunction) -> None:
        function = agent.func if isinstance(agent, partial) else agent
        name = getattr(function, "__name__", type(function).__name__)
        self.name = "agent" if name == "<lambda>" else name
        self.version = str(getattr(agent, "version", f"{self.name}-{digest(_identity(agent))[:16]}"))
        self.sampling = {}
        self._agent = agent
        self._running: set[Future[AgentReply]] = set()
        self._lock = threading.Lock()

    def act(self, requests: Sequence[PolicyRequest]) -> list[PolicyReply]:
        """Call the function with each request, in order. Raises ConfigurationError for a reply of another type."""
        return [self._reply(request) for request in requests]

    def _reply(self, request: PolicyRequest) -> PolicyReply:
        reply = self._agent(request)
        if inspect.isawaitable(reply):
            if threading.current_thread().name == LOOP_THREAD:  # it would wait for itself
                raise ConfigurationError(
                    f"the agent {self.name} is asynchronous and was called by another asynchronous agent; await its function, "
                    "or call it by asyncio.to_thread"
                )
            with self._lock:  # a coroutine may run before it is noted, and `close` must not miss it
                future = asyncio.run_coroutine_threadsafe(_await(reply), _event_loop())
                self._running.add(future)
            try:
                reply = future.result()
            finally:
                self._running.discard(future)
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

    def close(self) -> None:
        """Cancel the coroutines that still run."""
        with self._lock:
            running = tuple(self._running)
        for future in running:
            future.cancel()


_loop_lock = threading.Lock()
LOOP_THREAD = "ratchet-agents"


def _event_loop() -> asyncio.AbstractEventLoop:
    """Return the event loop of all agents of this process. It runs in a thread, which no forked process inherits."""
    with _loop_lock:
        return _start_loop(os.getpid())


@cache
def _start_loop(process: int) -> asyncio.AbstractEventLoop:
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, daemon=True, name=LOOP_THREAD).start()
    return loop


async def _await(reply: Awaitable[AgentReply]) -> AgentReply:
    return await reply


DEPTH, ITEMS, FUNCTIONS = 8, 100, 50
"""Nesting and length of values, and number of functions, that are part of a version: they may be cyclic, or large."""
PLAIN = (str, int, float, bytes, set, frozenset, dict, list, tuple, types.NoneType)


def _identity(value: Any, depth: int = 0, functions: set[int] | None = None) -> Any:
    """Return what distinguishes one function from another as JSON values, the same in every process.

    `functions`: ids of those that are part of it already.
    """
    functions = set() if functions is None else functions

    def inner(*values: Any) -> list[Any]:
        return [_identity(each, depth + 1, functions) for each in values[:ITEMS]]

    if depth > DEPTH:
        return "…"
    if isinstance(value, partial):
        return inner(value.func, value.args, value.keywords)
    if isinstance(value, types.MethodType):
        return inner(value.__func__, getattr(value.__self__, "__dict__", None), _methods(type(value.__self__)))
    if isinstance(value, types.FunctionType):
        if id(value) in functions or len(functions) == FUNCTIONS:
            return value.__qualname__
        functions.add(id(value))
        depth = 0  # a chain of helpers ends by the number of functions
        captured = [cell.cell_contents for cell in value.__closure__ or ()]
        own = inner(value.__code__, captured, value.__defaults__, value.__kwdefaults__)
        return own + inner(read) if (read := _globals_read(value)) else own
    if isinstance(value, types.CodeType):
        return [value.co_code.hex(), value.co_names, *inner(*value.co_consts)]
    if isinstance(value, dict):
        return [
            [key if isinstance(key, str) else inner(key), *inner(item)] for key, item in list(value.items())[:ITEMS]
        ]
    if isinstance(value, list | tuple):
        return inner(*value)
    if isinstance(value, set | frozenset):
        return sorted(json.dumps(inner(each)) for each in list(value)[:ITEMS])
    if isinstance(value, PLAIN):
        return repr(value)
    if isinstance(inspect.getattr_static(type(value), "__call__", None), types.FunctionType):
        return inner(_methods(type(value)), getattr(value, "__dict__", None))
    return type(value).__qualname__  # its address or state would differ from run to run


def _globals_read(function: types.FunctionType) -> dict[str, Any]:
    """Return the plain values, and the functions of the same module, that a function reads as globals, by name; without
    those that it also sets, which a call changes.
    """
    values = function.__globals__
    return {
        name: value
        for name in sorted(_global_names(function.__code__) & values.keys())
        if isinstance(value := values[name], (*PLAIN, partial))
        or (isinstance(value, types.FunctionType) and value.__module__ == function.__module__)
    }


def _methods(cls: type) -> dict[str, Any]:
    """Return the methods and plain values that a class defines or inherits, by name."""
    found = dict[str, Any]()
    for name, value in (item for base in reversed(cls.__mro__[:-1]) for item in vars(base).items()):
        method = value.fget if isinstance(value, property) else getattr(value, "__func__", value)
        if isinstance(method, types.FunctionType) or (isinstance(value, PLAIN) and not name.startswith("__")):
            found[name] = method
    return found


def _global_names(code: types.CodeType) -> set[str]:
    """Return the names of globals and builtins that code reads and never sets, inner functions included."""
    instructions = list(dis.get_instructions(code))
    read = {each.argval for each in instructions if each.opname in ("LOAD_GLOBAL", "LOAD_NAME")}
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            read |= _global_names(constant)
    return read - {each.argval for each in instructions if each.opname == "STORE_GLOBAL"}


class SystemPromptPolicy(Policy):
    """A policy with a system prompt, which is the first message of each episode and part of the version."""

    def __init__(self, policy: Policy, system: str) -> None:
        self.name, self.sampling, self.lockstep, self.system = policy.name, policy.sampling, policy.lockstep, system
        self.tokenizer_hash, self.template_hash = policy.tokenizer_hash, policy.template_hash
        self.version = version_with_system(policy.version, system)
        self._policy = policy

    def act(self, requests: Sequence[PolicyRequest]) -> list[PolicyReply]:
        """Return the replies of the policy; the requests begin with the system prompt already."""
        return self._policy.act(requests)

    def close(self) -> None:
        """Close the policy."""
        self._policy.close()


def version_with_system(version: str, system: str) -> str:
    """Return the version of a policy that is given a system prompt."""
    return f"{version}+{digest(None, system)[:8]}"


def as_policy(agent: Policy | AgentFunction) -> Policy:
    """Return a policy as it is, and a function as a CallablePolicy. Raises ConfigurationError for anything else."""
    if isinstance(agent, Policy):
        return agent
    if callable(agent) and not isinstance(agent, type):
        return CallablePolicy(agent)
    raise ConfigurationError(
        f"{agent!r} is no agent; give a policy's name, a ratchet.Policy, or a function of a ratchet.PolicyRequest"
    )
