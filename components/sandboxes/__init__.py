"""Sandboxes: where the agent's commands really run. `make_sandbox` gives one of two back ends, docker or local."""

from .config import SandboxConfig
from .factory import describe, make_sandbox, resolve

__all__ = ["SandboxConfig", "describe", "make_sandbox", "resolve"]
