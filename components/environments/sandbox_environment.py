"""SandboxEnvironment: an agent works on files in a sandbox and is graded by hidden tests in a fresh one."""

from collections.abc import Callable
from typing import Any

import msgspec

from ratchet.components.core import Sandbox, SandboxUnavailable, TaskSpec, ToolSpec
from ratchet.components.sandboxes import SandboxConfig, make_sandbox, resolve_backend

from .episode_environment import EpisodeEnvironment
from .harbor_task import HarborLayout
from .repository_tasks import RepositoryLayout
from .sandbox_tools import GIT, TOOLS, Observation, ToolSettings, call_tool, check_call
from .task_grading import FilesLayout, TaskLayout


def make_task_layout(task: TaskSpec) -> TaskLayout:
    """Return a RepositoryLayout for a task with a repository, a HarborLayout for one of Harbor, else a FilesLayout."""
    if task.criteria.get("graded_by") == "harbor":
        return HarborLayout(task)
    return FilesLayout(task) if task.repository is None else RepositoryLayout(task)


class SandboxEnvironment(EpisodeEnvironment):
    """Domain `coding`; tools: read_file, edit_file, bash, grep, submit; git for a repository if the sandbox has git.

    - The first observation is the task's description. The workspace holds the task's `files`, or its repository at the
      base commit. `submit` ends the episode; see Grade for the score.
    - `info["outcome"]` is the outcome; for a repository task `info["patch"]` is the answer as a unified diff.
    - `sandbox` configures the back end; the task's `image` takes precedence over `sandbox.image`. `sandbox_factory`, if
      given, makes the sandboxes instead. `tools` sets the tools' limits. `grading_timeout` replaces the default time
      limit of a task's tests, in seconds.
    """

    domain = "coding"

    def __init__(
        self,
        sandbox: SandboxConfig | None = None,
        *,
        max_steps: int = 8,
        grading_timeout: float | None = None,
        tools: ToolSettings | None = None,
        sandbox_factory: Callable[[], Sandbox] | None = None,
    ) -> None:
        super().__init__(max_steps)
        self.grading_timeout = grading_timeout
        self.settings = tools or ToolSettings()
        self._config = sandbox or SandboxConfig()
        self._factory = sandbox_factory or self._new_sandbox
        self._layout: TaskLayout | None = None
        self._tools: tuple[ToolSpec, ...] = TOOLS
        self._sandbox: Sandbox | None = None

    @property
    def tools(self) -> tuple[ToolSpec, ...]:
        """The specs of the running (or last) episode's tools."""
        return self._tools

    @property
    def sandbox(self) -> Sandbox | None:
        """The sandbox of the running episode; None before `reset` and after the end."""
        return self._sandbox

    def close(self) -> None:
        """Remove the sandbox; safe to call twice."""
        if self._sandbox is not None:
            self._sandbox.stop()
            self._sandbox = None

    def _is_running(self) -> bool:
        return self._sandbox is not None

    def _begin_episode(self, task: TaskSpec) -> tuple[str, dict[str, Any]]:
        """Start a sandbox and write the task's files to it."""
        self._layout = make_task_layout(task)
        self._sandbox = sandbox = self._layout.new_sandbox(self._factory)
        sandbox.start()
        self._layout.prepare_workspace(sandbox)
        has_git = task.repository is not None and sandbox.run(["git", "--version"]).exit_code == 0
        self._tools = (*TOOLS[:-1], GIT, TOOLS[-1]) if has_git else TOOLS
        facts = {"sandbox": sandbox.backend, "isolation": sandbox.isolation, "image_digest": sandbox.image_digest}
        return task.description, {"sandbox": facts}

    def _call_tool(self, tool: Any, params: Any) -> tuple[Observation, bool]:
        fault = check_call(tool, params, self._tools)
        if fault is not None:
            return Observation(f"error: {fault}", error=fault), False
        if tool == "submit":
            return Observation("submitted"), True
        assert self._sandbox is not None and self._layout is not None
        params = self._layout.adapt_call(tool, params)
        return call_tool(tool, params, self._sandbox, self.settings), False

    def _grade(self, task: TaskSpec, reason: str | None) -> tuple[float | None, dict[str, Any]]:
        if self._sandbox is None or self._layout is None:
            raise ValueError("no episode is running; call reset first")
        answer = self._layout.collect_answer(self._sandbox)
        # Before grading, so that the tests can get this sandbox's container.
        self.close()
        graded = self._layout.grade(answer, self._factory, timeout=self.grading_timeout)
        patch = self._layout.answer_diff(answer)
        outcome = msgspec.structs.asdict(graded) | ({} if reason is None else {"reason": reason})
        return graded.score, {"outcome": outcome} | ({} if patch is None else {"patch": patch})

    def _new_sandbox(self) -> Sandbox:
        """Return a sandbox of the configured back end with the task's image."""
        image = self._task.image if self._task else None
        if image is None:
            return make_sandbox(self._config)
        if resolve_backend(self._config.backend, image) == "local":
            raise SandboxUnavailable(
                f"the task needs the image {image}, and no Docker engine answers that has it; pull it"
            )
        return make_sandbox(self._config.model_copy(update={"image": image}))
