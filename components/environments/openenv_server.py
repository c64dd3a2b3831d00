"""A taskset of ours behind an OpenEnv server (`openenv-core` 0.3): each session plays episodes of its tasks."""

from collections.abc import Sequence
from typing import Any

from openenv.core.env_server import Action, Environment, Observation, State
from openenv.core.env_server.http_server import create_fastapi_app
from pydantic import Field

from ratchet.components.core import TaskSpec

from .peer_task import open_environment

MAX_SESSIONS = 64


class ToolAction(Action):  # type: ignore[misc]
    """One call of a tool. The tool `answer` ends an episode with the reply `params.text`, where no tool ends it."""

    tool: str
    params: dict[str, Any] = Field(default_factory=dict)


class TextObservation(Observation):  # type: ignore[misc]
    """An observation. The first one of an episode lists the tools; the last one has the outcome of the grading."""

    text: str = ""
    error: str | None = None
    tools: list[dict[str, Any]] | None = None
    outcome: dict[str, Any] | None = None


class TasksetSession(Environment):  # type: ignore[misc]
    """One session. `reset` takes the `task_id`, else the task number `seed` (0 without one), counted round."""

    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(self, environment_id: str, tasks: Sequence[TaskSpec]) -> None:
        super().__init__()
        self._environment = open_environment(environment_id)
        self._tasks = tasks
        self._by_id = {task.task_id: task for task in tasks}
        self._state = State()

    def reset(
        self, seed: int | None = None, episode_id: str | None = None, task_id: str | None = None, **_: Any
    ) -> TextObservation:
        """Begin an episode. Raises ValueError for an unknown task."""
        if task_id is not None and task_id not in self._by_id:
            raise ValueError(f"unknown task '{task_id}'")
        task = self._by_id[task_id] if task_id is not None else self._tasks[(seed or 0) % len(self._tasks)]
        first = self._environment.reset(task=task, seed=seed)
        self._state = State(episode_id=episode_id, step_count=0, task_id=task.task_id)
        return TextObservation(text=first.observation, tools=[tool.as_openai() for tool in self._environment.tools])

    def step(self, action: ToolAction, timeout_s: float | None = None, **_: Any) -> TextObservation:
        """Execute one call."""
        if self._state.step_count == 0 and getattr(self._state, "task_id", None) is None:
            self.reset()
        self._state.step_count += 1
        if action.tool == "answer":
            step = self._environment.answer(str(action.params.get("text", "")))
        else:
            step = self._environment.step({"tool": action.tool, "params": action.params})
        return TextObservation(
            text=step.observation,
            error=step.info["result"].error,
            outcome=step.info.get("outcome"),
            reward=step.reward,
            done=step.done,
        )

    @property
    def state(self) -> State:
        """The episode's id and task, and the number of its steps."""
        return self._state

    def close(self) -> None:
        """Release the environment."""
        self._environment.close()


def make_app(environment_id: str, tasks: Sequence[TaskSpec]) -> Any:
    """Return the ASGI app of a server for these tasks, with at most MAX_SESSIONS at once."""
    return create_fastapi_app(
        lambda: TasksetSession(environment_id, tasks), ToolAction, TextObservation, max_concurrent_envs=MAX_SESSIONS
    )
