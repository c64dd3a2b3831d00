"""The registry of environments (`register`, `make`, `spec`, `list_envs`), and the loading of entry points for every
registry.

An id may name the module that registers it, as in Gymnasium: `my_module:my/environment` imports `my_module`, also from
the working directory. A package adds environments through the entry-point group `ratchet.environments`: each entry names
a function without arguments that calls `register`. Entry points are loaded once, when an unknown id or the list of all
ids is asked for.
"""

import importlib
import inspect
import logging
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import msgspec

from .contracts import Environment
from .environment_wrappers import MaxSteps, as_environment
from .errors import ConfigurationError, suggest_name

_log = logging.getLogger("ratchet.plugins")
_loaded: set[str] = set()
_lock = threading.RLock()


class Plugin(msgspec.Struct, frozen=True):
    """An entry point of an installed package. `problem`: why it was left out, in one line; empty for a working one."""

    group: str
    name: str
    value: str
    package: str
    problem: str = ""


_plugins: list[Plugin] = []


def loaded_plugins() -> list[Plugin]:
    """Return the plugins of all groups that were loaded so far, working or not."""
    return list(_plugins)


def load_plugins(group: str, take: Callable[[str, Any], None]) -> None:
    """Call `take(name, value)` for each entry point of `group`, in order of name. Later calls with the same group do
    nothing. A plugin that fails is logged and skipped.
    """
    with _lock:
        if group in _loaded:
            return
        _loaded.add(group)  # before loading: a plugin may ask for the list that it is part of
        from importlib.metadata import entry_points  # a third of the start-up time of a command

        for entry in sorted(entry_points(group=group), key=lambda point: point.name):
            reason = ""
            try:
                take(entry.name, entry.load())
            except Exception as error:  # whatever a plugin raises, the others still stand
                reason = " ".join(f"{type(error).__name__}: {error}".split())
                _log.warning("plugin '%s' (%s, group %s) is left out: %s", entry.name, entry.value, group, reason)
            package = f"{entry.dist.name} {entry.dist.version}" if entry.dist else ""
            _plugins.append(Plugin(group, entry.name, entry.value, package, reason))


ENVIRONMENT_GROUP = "ratchet.environments"


class EnvironmentSpec(msgspec.Struct, frozen=True):
    """Registered environment. `entry`: a class or function, or its `module:name`, which is imported on first use.

    An entry that takes no `max_steps` is limited by the wrapper MaxSteps; one that is `sandboxed` takes `sandbox` (a
    SandboxConfig). `defaults`: further keyword arguments. `turns`: default limit of policy replies per episode.
    """

    id: str
    entry: str | Callable[..., Any]
    domain: str
    description: str
    sandboxed: bool = False
    turns: int = 20
    defaults: dict[str, Any] = {}


_specs: dict[str, EnvironmentSpec] = {}


def register(
    id: str,
    entry: str | Callable[..., Any],
    *,
    domain: str,
    description: str = "",
    sandboxed: bool = False,
    turns: int = 20,
    **defaults: Any,
) -> None:
    """Register an environment under `id`. Raises ConfigurationError where the id is taken.

    `entry`: a class, with at least `reset`, `step` and `available_tools` (see Environment), or a function that returns
    such an object. The named arguments are the fields of EnvironmentSpec; any others are passed to `entry` whenever
    `make` creates the environment.

    >>> class Echo:
    ...     domain = "echo"
    ...     available_tools = ("say",)
    ...     def reset(self, *, task=None, seed=None):
    ...         return ratchet.TimeStep("Say yes.")
    ...     def step(self, action):
    ...         right = action["params"].get("text") == "yes"
    ...         return ratchet.TimeStep("done", float(right), terminated=True, info={"outcome": {"success": right}})
    >>> ratchet.register("doc/echo", Echo, domain="echo")
    >>> ratchet.collect("doc/echo", agent=lambda request: {"tool": "say", "params": {"text": "yes"}}).success_rate
    1.0
    """
    if id in _specs:
        raise ConfigurationError(f"environment '{id}' is registered already; choose another id")
    _specs[id] = EnvironmentSpec(id, entry, domain, description, sandboxed, turns, defaults)


def spec(id: str) -> EnvironmentSpec:
    """Return the registration of `id`. Raises ConfigurationError for an unknown id, listing the registered ones, and for
    a module that cannot be imported.

    >>> ratchet.spec("ratchet/sandbox").domain
    'coding'
    """
    module, colon, id = id.rpartition(":")
    if colon and id not in _specs:
        import_own_module(module, "an environment")
    if id not in _specs:
        _discover()
    if id not in _specs:
        hint = suggest_name(id, _specs, otherwise="")
        ids = ", ".join(sorted(_specs)) or "none"
        raise ConfigurationError(f"unknown environment '{id}'{f'; {hint}' if hint else '.'} Known: {ids}")
    return _specs[id]


def import_own_module(name: str, what: str) -> ModuleType:
    """Import a module of the user's, also from the working directory; `what` it is of is for the message. Raises
    ConfigurationError.
    """
    folder = str(Path.cwd())
    if folder not in sys.path:  # the console script's own folder is on the path instead
        sys.path.append(folder)
    try:
        return importlib.import_module(name)
    except Exception as error:  # whatever the module raises
        reason = " ".join(f"{type(error).__name__}: {error}".split())
        raise ConfigurationError(f"module '{name}' of {what} cannot be imported from {folder}: {reason}") from error


def make(id: str, **overrides: Any) -> Environment:
    """Create the environment `id`: call its entry with the registered defaults, updated by `overrides`. Raises
    ConfigurationError for an unknown id.

    >>> with ratchet.make("ratchet/conversation", max_steps=5) as env:
    ...     first = env.reset(task=ratchet.load_taskset("orders").tasks("train")[0])
    >>> "respond" in env.available_tools
    True
    """
    registered = spec(id)
    entry = registered.entry
    if isinstance(entry, str):
        module, _, name = entry.partition(":")
        entry = getattr(importlib.import_module(module), name)
    arguments = {**registered.defaults, **overrides}
    max_steps = None if _takes_max_steps(entry) else arguments.pop("max_steps", None)
    environment = as_environment(entry(**arguments))
    return environment if max_steps is None else MaxSteps(environment, max_steps)


def _takes_max_steps(entry: Callable[..., Any]) -> bool:
    try:
        parameters = inspect.signature(entry).parameters
    except (TypeError, ValueError):  # some callables of C have no signature
        return True
    return "max_steps" in parameters or any(each.kind is each.VAR_KEYWORD for each in parameters.values())


def list_envs(domain: str | None = None) -> list[str]:
    """Sorted ids of the environments of `domain`; None: of all environments.

    >>> "ratchet/sandbox" in ratchet.list_envs("coding")
    True
    """
    _discover()
    return sorted(id for id, registered in _specs.items() if domain in (None, registered.domain))


def _discover() -> None:
    """Let installed packages register their environments, once."""
    load_plugins(ENVIRONMENT_GROUP, lambda name, enroll: enroll())


register(
    "ratchet/sandbox",
    "ratchet.components.environments.sandbox_environment:SandboxEnvironment",
    domain="coding",
    description="Repair or write code with file tools and a shell in a sandbox; graded by hidden tests in a fresh one.",
    sandboxed=True,
    turns=30,
)
register(
    "ratchet/conversation",
    "ratchet.components.environments.customer_service:ConversationEnvironment",
    domain="conversation",
    description="Answer a customer of an online shop by its rules; graded by the order database and what was said.",
)
register(
    "ratchet/engineering",
    "ratchet.components.environments.code_review:EngineeringEnvironment",
    domain="engineering",
    description="Review a pull request with its repository and guidelines; graded by the verdict and what it rests on.",
)
register(
    "ratchet/advisory",
    "ratchet.components.environments.document_environments:AdvisoryEnvironment",
    domain="advisory",
    description="Recommend one option from documents and what the client says; graded by the recommendation and its sources.",
)
register(
    "ratchet/discussion",
    "ratchet.components.environments.document_environments:DiscussionEnvironment",
    domain="discussion",
    description="Reply to the statements of a discussion from a knowledge base; graded by what each reply says.",
)
register(
    "ratchet/reasoning",
    "ratchet.components.environments.reasoning_environment:ReasoningEnvironment",
    domain="reasoning",
    description="Answer a question in text, in one reply; graded by a verifier of the answer, or by tests of a program.",
    sandboxed=True,
    turns=1,
)
register(
    "ratchet/browser",
    "ratchet.components.environments.browser:BrowserEnvironment",
    domain="browser",
    description="Shop on bundled web pages in a headless Chromium; graded by the shop's state and the answer handed in.",
)
register(
    "ratchet/mcp",
    "ratchet.components.environments.mcp_environment:McpEnvironment",
    domain="generic",
    description="Use the tools of MCP servers (RATCHET_MCP_SERVERS, else .mcp.json); graded by files, probes, calls, answer.",
)
register(
    "ratchet/verifiers",
    "ratchet.components.environments.verifiers_environment:VerifiersEnvironment",
    domain="generic",
    description="Play the tasks of an installed verifiers package, with its tools; graded by its rewards.",
)
register(
    "ratchet/openenv",
    "ratchet.components.environments.openenv_environment:OpenEnvEnvironment",
    domain="generic",
    description="Play an environment behind an OpenEnv server; graded by the sum of its rewards.",
)
register(
    "ratchet/tau2",
    "ratchet.components.environments.tau2_environment:Tau2Environment",
    domain="generic",
    description="Serve a user of a τ² domain (inspect-evals) with its tools; graded by its database and its scorer.",
    turns=60,
)
