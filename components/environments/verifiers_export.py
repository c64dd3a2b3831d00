"""A taskset of ours as a `verifiers` taskset (0.4): the base classes of the packages that `ratchet tasks export` writes.

Each rollout starts a tool server, which runs the task's environment; the environment's grade is the reward. `vf-validate` plays the
reference solutions.
"""

from pathlib import Path
from typing import Any, ClassVar, cast

import msgspec
import verifiers.v1 as vf
from mcp.types import CallToolResult, TextContent, Tool
from pydantic import Field

from ratchet.components.core import Environment, Role, TaskSpec, TimeStep
from ratchet.components.core.task_spec import REFERENCE_REPLY_FILE
from ratchet.components.environments.peer_task import open_environment


class RatchetState(vf.State):  # type: ignore[misc]
    """The calls of a rollout, and its outcome once one of them has ended the episode."""

    actions: list[dict[str, Any]] = Field(default_factory=list)
    outcome: dict[str, Any] | None = None


class RatchetData(vf.TaskData):  # type: ignore[misc]
    """A task with its hidden part, which only the tool server and the scoring read."""

    environment: str
    spec: dict[str, Any]

    def open_environment(self) -> tuple[Environment, TimeStep]:
        """Start an episode; the caller closes the environment."""
        environment = open_environment(self.environment)
        return environment, environment.reset(task=msgspec.convert(self.spec, TaskSpec))


class RatchetTools(vf.Toolset[vf.ToolsetConfig, RatchetState]):  # type: ignore[misc]
    """The tools of an environment, behind MCP. Their names have no prefix."""

    TOOL_PREFIX = None

    async def setup_task(self, task: RatchetData) -> None:
        """Start the episode."""
        self.environment, _ = task.open_environment()
        self._exit_stack.callback(self.environment.close)

    def register(self, mcp: Any) -> None:
        """Serve the tools of the running episode, whose schemas are no signatures of functions."""
        server = cast(Any, mcp)
        server.list_tools = self._list_tools
        server.call_tool = self._with_state(self._call_tool)

    async def _list_tools(self) -> list[Tool]:
        return [
            Tool(name=tool.name, description=tool.description, input_schema=tool.parameters)
            for tool in self.environment.tools
        ]

    async def _call_tool(self, name: str, arguments: dict[str, Any], context: Any = None) -> CallToolResult:
        action = {"tool": name, "params": arguments}
        step = self.environment.step(action)
        if self.state.outcome is None:
            self.state.actions = [*self.state.actions, action]
            self.state.outcome = step.info.get("outcome") if step.done else None
        failed = step.info["result"].error is not None
        return CallToolResult(content=[TextContent(type="text", text=step.observation)], is_error=failed)


class RatchetTask(vf.Task[RatchetData, RatchetState, vf.TaskConfig]):  # type: ignore[misc]
    """One task. The reward is the score of our grading, in [0, 1]."""

    @classmethod
    def toolsets(cls, config: vf.TaskConfig) -> list[RatchetTools]:
        """Return the tool server of one rollout."""
        return [RatchetTools(vf.ToolsetConfig())]

    @vf.stop  # type: ignore[untyped-decorator]
    async def episode_ended(self, trace: vf.Trace) -> bool:
        """Stop the rollout where a call has ended the episode."""
        return trace.state.outcome is not None

    @vf.reward  # type: ignore[untyped-decorator]
    async def ratchet_score(self, trace: vf.Trace) -> float:
        """Return the score. An episode that no call has ended is played again, and ends with the last reply."""
        outcome = trace.state.outcome or self._play(trace.state.actions, trace.last_reply or "")
        return float(outcome.get("score") or 0.0)

    async def validate(self, runtime: vf.Runtime) -> bool | None:
        """Play the reference; None where the task has no reference of actions or of a reply."""
        task = msgspec.convert(self.data.spec, TaskSpec)
        reply = task.reference.get(REFERENCE_REPLY_FILE)
        if not task.reference_actions and reply is None:
            return None
        return self._play(task.reference_actions, reply or "").get("success") is True

    def _play(self, actions: list[dict[str, Any]], reply: str) -> dict[str, Any]:
        environment, step = self.data.open_environment()
        with environment:
            for action in actions:
                step = environment.step(action)
            outcome: dict[str, Any] = (step if step.done else environment.answer(reply)).info.get("outcome") or {}
        return outcome


class RatchetTasksetConfig(vf.TasksetConfig):  # type: ignore[misc]
    """`role`: the tasks that are loaded. Tasks of other roles than `train` decide on promotions: do not train on them."""

    role: Role = Role.TRAIN


class RatchetTaskset(vf.Taskset[RatchetTask, RatchetTasksetConfig]):  # type: ignore[misc]
    """Base class of exported tasksets; `folder` is the taskset's."""

    folder: ClassVar[Path]

    def load(self) -> Any:
        """Yield the tasks of the role, in order. Those in a sandbox open with their description, others as they begin."""
        from ratchet.components.tasksets import load_taskset

        taskset = load_taskset(self.folder)
        for task in taskset.tasks(self.config.role):
            data = RatchetData(
                id=task.task_id, name=task.task_id, environment=taskset.head.environment, spec=msgspec.to_builtins(task)
            )
            prompt = task.description
            if taskset.head.environment != "ratchet/sandbox":
                environment, first = data.open_environment()
                environment.close()
                prompt = first.observation
            yield RatchetTask(data.model_copy(update={"prompt": prompt}), self.config.task)


if __name__ == "__main__":  # how verifiers starts a tool server
    RatchetTools.run()
