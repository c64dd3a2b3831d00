"""PeerEnvironment: what the environments have in common whose tools another framework or server executes."""

import math
from abc import abstractmethod
from typing import Any

from ratchet.components.core import InfrastructureError, ToolSpec

from .episode_environment import EpisodeEnvironment
from .peer_task import SUCCESS_REWARD
from .sandbox_tools import Observation, ToolSettings, check_call, tool_spec, truncate_text

RESPOND = tool_spec("respond", "Say something to the user, whose answer is the result.", {"text": "string"})


class PeerEnvironment(EpisodeEnvironment):
    """Base class. Subclasses set `_tools` in `_begin_episode`, and implement `_call_peer`; those with an `own_tool` beside the
    tools of the other side implement `_speak`, which gets its `text`.
    """

    own_tool: ToolSpec | None = None

    def __init__(self, max_steps: int) -> None:
        super().__init__(max_steps)
        self._tools: tuple[ToolSpec, ...] = ()

    @property
    def tools(self) -> tuple[ToolSpec, ...]:
        """The tools of the running (or last) episode."""
        return self._tools

    def _call_tool(self, tool: Any, params: Any) -> tuple[Observation, bool]:
        spec = next((spec for spec in self._tools if spec.name == tool), None)
        # The other side checks parameters itself: its schemas may say more than ours understand.
        if spec is not None and spec is not self.own_tool and isinstance(params, dict):
            return self._call_peer(tool, params)
        if (fault := check_call(tool, params, self._tools)) is not None:
            return Observation(f"error: {fault}", error=fault), False
        return self._speak(params.get("text", ""))

    @abstractmethod
    def _call_peer(self, tool: str, params: dict[str, Any]) -> tuple[Observation, bool]:
        """Let the other side execute a call; return its observation and whether it ends the episode."""

    def _speak(self, text: str) -> tuple[Observation, bool]:
        """Execute a call of `own_tool`."""
        raise NotImplementedError


def bounded_observation(text: str, error: str | None = None) -> Observation:
    """Return a text of the other side as an observation, cut at the tools' limit."""
    content, truncated = truncate_text(text, ToolSettings().observation_limit)
    return Observation(content, error=error, truncated=truncated)


def tool_fault(text: str) -> str:
    """Return the reason in the text of a tool that failed: its first line, up to 500 characters."""
    return (text.strip() or "the tool failed").splitlines()[0][:500]


def peer_outcome(reward: float, reason: str | None, failure: str = "low_reward") -> tuple[float, dict[str, Any]]:
    """Return the grade of a framework's reward, as an environment's `_grade` does. Success is a reward of at least 1; `failure`
    is the reason of any other that ended by itself. Raises InfrastructureError for a reward that is no finite number.
    """
    if not math.isfinite(reward):
        raise InfrastructureError(f"the framework's reward is {reward}, which is no grade; correct its rewards")
    success = reward >= SUCCESS_REWARD
    why = reason or ("passed" if success else failure)
    outcome = {"success": success, "score": reward, "tests_passed": None, "tests_total": None, "reason": why}
    return reward, {"outcome": outcome}
