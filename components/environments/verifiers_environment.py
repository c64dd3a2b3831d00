"""VerifiersEnvironment: play the tasks of an installed `verifiers` package (0.4, its v1 API).

The package's own harness, tool servers and rewards run as they do under `vf-eval`. Its model is a TurnServer: each step of the
agent is the model's next message.
"""

import itertools
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

from ratchet.components.core import ConfigurationError, InfrastructureError, TaskSpec, TimeStep, ToolSpec
from ratchet.components.core.errors import first_line

from .episode_environment import EpisodeEnvironment
from .peer_task import PeerTask, missing_package, peer_outcome, read_peer_task
from .sandbox_tools import Observation, check_call, tool_spec
from .turn_server import TurnServer

RESPOND = tool_spec("respond", "Say something; the other side answers.", {"text": "string"})
CLOSING_REPLIES = 3
"""Empty replies with which an episode is ended from outside, before its run is given up."""


class VerifiersEnvironment(EpisodeEnvironment):
    """The tools are those that the package's harness offers.

    - Where the environment of the package plays the other side of a conversation, `respond` says something to it. Otherwise a
      reply in text ends the episode.
    - The score is the package's reward; success is a reward of at least 1. `info["rewards"]` holds its parts.
    - `harness`: the program that calls the model. `null` executes no code on this machine, `bash` does.
    - `seconds` limits what the package does between two turns. An error of the package is an InfrastructureError.
    """

    def __init__(self, *, max_steps: int = 20, harness: str = "null", seconds: float = 300.0) -> None:
        super().__init__(max_steps)
        self._harness = harness
        self._seconds = seconds
        self._resources = ExitStack()
        self._tools: tuple[ToolSpec, ...] = ()
        self._run: Any = None

    @property
    def tools(self) -> tuple[ToolSpec, ...]:
        """The tools of the running (or last) episode."""
        return self._tools

    def close(self) -> None:
        """Stop the package's run and its servers; safe to call twice."""
        resources, self._resources, run, self._run = self._resources, ExitStack(), self._run, None
        if run is not None:
            run.cancel()
        resources.close()

    def answer(self, text: str, *, truncated: bool = False) -> TimeStep:
        """End the episode with a reply in text, which the package grades."""
        if self._last is None:
            self._server.reply(text)
            self._open = self._next_messages() is not None
        return self._last or self._end(Observation(""), "", "length" if truncated else None)

    def _begin_episode(self, task: TaskSpec) -> tuple[str, dict[str, Any]]:
        from anyio.from_thread import start_blocking_portal

        try:
            environment, own_task = load_peer_task(read_peer_task(task.criteria, "verifiers"), self._harness)
            import verifiers.v1 as vf
        except ImportError as error:
            raise missing_package("verifiers", error) from error
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
            functions = [tool["function"] for tool in request.get("tools") or ()]
            self._tools = tuple(
                ToolSpec(
                    function["name"],
                    function.get("description") or "",
                    function.get("parameters") or {"type": "object"},
                )
                for function in functions
            )
        messages = request["messages"][self._seen :]
        self._seen = len(request["messages"])
        return [message for message in messages if message["role"] != "assistant"]

    def _call_tool(self, tool: Any, params: Any) -> tuple[Observation, bool]:
        spec = next((spec for spec in self._tools if spec.name == tool), None)
        # The package checks parameters itself: its schemas may say more than ours understand.
        fault = (
            check_call(tool, params, self._tools) if spec in (None, RESPOND) or not isinstance(params, dict) else None
        )
        if fault is not None:
            return Observation(f"error: {fault}", error=fault), False
        if spec is RESPOND:
            self._server.reply(params["text"])
        else:
            self._server.reply("", (f"call_{self._seen}", tool, params))
        messages = self._next_messages()
        self._open = messages is not None
        return Observation(_text(messages or [])), not self._open

    def _grade(self, task: TaskSpec, reason: str | None) -> tuple[float | None, dict[str, Any]]:
        for _ in range(CLOSING_REPLIES):
            if self._open:
                self._server.reply("")
                self._open = self._next_messages() is not None
        if self._open:  # a conversation that an empty reply does not end has no grade
            self.close()
            return None, {"outcome": {"success": None, "score": None, "reason": reason or "stopped"}}
        episode = self._run_result()
        trace = episode.traces[-1] if episode is not None and episode.traces else None
        if trace is None or not episode.ok:
            raise InfrastructureError(f"verifiers could not play the task: {self._problem(episode)}")
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


def load_peer_task(peer: PeerTask, harness: str) -> tuple[Any, Any]:
    """Return the verifiers environment of a task, and the task. Raises ConfigurationError for an unknown package, refused
    settings and an environment of several agents; ImportError without verifiers.
    """
    import verifiers.v1 as vf
    from verifiers.v1.configs.agent import agent_config_fields

    try:
        config = vf.resolve_env_config({"taskset": {**peer.config, "id": peer.package}})
        roles = list(agent_config_fields(config))
        if len(roles) != 1:
            raise ConfigurationError(f"'{peer.package}' has the agents {', '.join(roles)}; only one can be played")
        seat = {"harness": {"id": harness}, "runtime": {"type": "subprocess"}}
        environment = vf.load_environment(vf.resolve_env_config(config.model_dump() | {roles[0]: seat}))
        task_type = type(environment.taskset).task_type()
        return environment, task_type(task_type.data_type().model_validate(peer.data), config.taskset.task)
    except (ImportError, AttributeError, TypeError, ValueError) as error:
        raise ConfigurationError(f"verifiers cannot load '{peer.package}': {first_line(error)}") from error


def peer_tasks(package: str, config: dict[str, Any], size: int) -> Iterator[tuple[PeerTask, str]]:
    """Yield the first `size` tasks of a package, and the prompt of each. Raises ConfigurationError."""
    try:
        import verifiers.v1 as vf

        taskset = vf.load_taskset(vf.taskset_config_type(package).model_validate({**config, "id": package}))
    except (ImportError, AttributeError, TypeError, ValueError) as error:
        raise ConfigurationError(f"verifiers cannot load '{package}': {first_line(error)}") from error
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
