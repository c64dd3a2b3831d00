"""VerifiersEnvironment: play the tasks of an installed `verifiers` package (0.4, its v1 API).

The package's own harness, tool servers and rewards run as they do under `vf-eval`. Its model is a TurnServer: each step of the
agent is the model's next message.
"""

import itertools
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from ratchet.components.core import ConfigurationError, InfrastructureError, TaskSpec, TimeStep, ToolSpec
from ratchet.components.core.errors import first_line

from .peer_environment import RESPOND, PeerEnvironment, bounded_observation, peer_outcome
from .peer_task import PeerTask, missing_package, read_peer_task
from .sandbox_tools import Observation

CLOSING_REPLIES = 3
"""Empty replies with which an episode is ended from outside, before its run is given up."""


class VerifiersEnvironment(PeerEnvironment):
    """The tools are those that the package's harness offers.

    - Where the environment of the package plays the other side of a conversation, `respond` says something to it. Otherwise a
      reply in text ends the episode.
    - The score is the package's reward; success is a reward of at least 1. `info["rewards"]` holds its parts.
    - `seconds` limits what the package does between two turns. An error of the package is an InfrastructureError.
    """

    own_tool = RESPOND

    def __init__(self, *, max_steps: int = 20, seconds: float = 300.0) -> None:
        super().__init__(max_steps)
        self._seconds = seconds
        self._resources = ExitStack()
        self._run: Any = None

    def close(self) -> None:
        """Stop the package's run and its servers; safe to call twice."""
        resources, self._resources, run, self._run = self._resources, ExitStack(), self._run, None
        if run is not None:
            run.cancel()
        resources.close()

    def answer(self, text: str, *, truncated: bool = False) -> TimeStep:
        """End the episode with a reply in text, which the package grades."""
        if self._last is None:
            self._speak(text)
        return self._last or self._end(Observation(""), "", "length" if truncated else None)

    def _begin_episode(self, task: TaskSpec) -> tuple[str, dict[str, Any]]:
        from anyio.from_thread import start_blocking_portal

        environment, own_task = load_peer_task(read_peer_task(task.criteria, "verifiers"))
        import verifiers.v1 as vf

        from .turn_server import TurnServer  # needs aiohttp, which verifiers brings

        portal = self._resources.enter_context(start_blocking_portal())
        self._server = self._resources.enter_context(TurnServer(self._seconds))
        client = vf.EvalClientConfig(base_url=self._server.base_url, api_key_var="RATCHET_NO_KEY")

        async def play() -> Any:
            async with environment.serving():
                return await environment.run_episode(own_task, vf.ModelContext("ratchet", client))

        self._run = portal.start_task_soon(play)
        self._run.add_done_callback(lambda _: self._server.end())
        self._open, self._tools = True, ()
        self._seen = 0
        messages = self._next_messages()
        if messages is None:
            raise InfrastructureError(f"verifiers asked for no turn: {self._problem(self._run_result())}")
        if not isinstance(environment, vf.SingleAgentEnv):
            self._tools = (*self._tools, RESPOND)
        return _text(messages), {}

    def _next_messages(self) -> list[dict[str, Any]] | None:
        """Wait for the next request; return its messages that are new, or None if the run has ended."""
        request = self._server.next_request()
        if request is None:
            return None
        if not self._seen:
            functions = [tool["function"] for tool in request.get("tools", ())]
            self._tools = tuple(
                ToolSpec(each["name"], each.get("description") or "", each["parameters"]) for each in functions
            )
        messages = request["messages"][self._seen :]
        self._seen = len(request["messages"])
        return [message for message in messages if message["role"] != "assistant"]

    def _call_peer(self, tool: str, params: dict[str, Any]) -> tuple[Observation, bool]:
        return self._speak("", (f"call_{self._seen}", tool, params))

    def _speak(self, text: str, call: tuple[str, str, dict[str, Any]] | None = None) -> tuple[Observation, bool]:
        """Say `text` or make a call, as the package's model; return what the package answers."""
        self._server.reply(text, call)
        messages = self._next_messages()
        self._open = messages is not None
        return bounded_observation(_text(messages or [])), not self._open

    def _grade(self, task: TaskSpec, reason: str | None) -> tuple[float | None, dict[str, Any]]:
        for _ in range(CLOSING_REPLIES):
            if self._open:
                self._speak("")
        if self._open:  # a conversation that an empty reply does not end has no grade
            self.close()
            return None, {"outcome": {"success": None, "score": None, "reason": reason or "stopped"}}
        episode = self._run_result()
        if not episode.ok:
            raise InfrastructureError(f"verifiers could not play the task: {self._problem(episode)}")
        trace = episode.traces[-1]
        rewards = {name: None if part is None else part.value for name, part in trace.rewards.items()}
        reward, graded = peer_outcome(float(trace.reward), reason)
        return reward, {**graded, "rewards": rewards}

    def _run_result(self) -> Any:
        try:
            return self._run.result(timeout=self._seconds)
        except Exception as error:  # whatever the package's code raises
            raise InfrastructureError(f"verifiers failed: {first_line(error)}") from error

    def _problem(self, episode: Any) -> str:
        errors = [*episode.errors, *(error for trace in episode.traces for error in trace.errors)]
        return f"{errors[0].type}: {' '.join(errors[0].message.split())[:300]}" if errors else "it gave no reason"


@contextmanager
def _loading(package: str) -> Iterator[Any]:
    """Yield the module of verifiers. Raises ConfigurationError without it, and where it cannot load what belongs to `package`."""
    try:
        import verifiers.v1 as vf
    except ImportError as error:
        raise missing_package("verifiers", error) from error
    try:
        yield vf
    except (ImportError, AttributeError, TypeError, ValueError) as error:
        raise ConfigurationError(f"verifiers cannot load '{package}': {first_line(error)}") from error


def load_peer_task(peer: PeerTask) -> tuple[Any, Any]:
    """Return the verifiers environment of a task, and the task. Raises ConfigurationError for an unknown package, refused
    settings and an environment of several agents, and without verifiers.
    """
    with _loading(peer.package) as vf:
        from verifiers.v1.configs.agent import agent_config_fields

        config = vf.resolve_env_config({"taskset": {**peer.config, "id": peer.package}})
        roles = list(agent_config_fields(config))
        if len(roles) != 1:
            raise ConfigurationError(f"'{peer.package}' has the agents {', '.join(roles)}; only one can be played")
        # The null harness executes no code on this machine.
        seat = {"harness": {"id": "null"}, "runtime": {"type": "subprocess"}}
        environment = vf.load_environment(vf.resolve_env_config(config.model_dump() | {roles[0]: seat}))
        task_type = type(environment.taskset).task_type()
        return environment, task_type(task_type.data_type().model_validate(peer.data), config.taskset.task)


def peer_tasks(package: str, config: dict[str, Any], size: int) -> Iterator[tuple[PeerTask, str]]:
    """Yield the first `size` tasks of a package, and the prompt of each. Raises ConfigurationError."""
    with _loading(package) as vf:
        taskset = vf.load_taskset(vf.taskset_config_type(package).model_validate({**config, "id": package}))
    for task in itertools.islice(taskset, size):
        data = task.data.model_dump(mode="json", exclude_defaults=True)
        yield PeerTask("verifiers", package, config, data), task.data.prompt_text or task.data.name or package


def _text(messages: list[dict[str, Any]]) -> str:
    """Return the text of messages, without the parts that are no text."""
    texts = []
    for message in messages:
        content = message.get("content") or ""
        parts = content if isinstance(content, list) else [{"type": "text", "text": content}]
        texts += [part["text"] if part.get("type") == "text" else f"[{part.get('type')}]" for part in parts]
    return "\n".join(texts)
