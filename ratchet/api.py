"""What plugins and notebooks use: import from here, and the rooms behind may move."""

from components.environments.tasksets import load as load_taskset
from components.policies.factory import make_policy
from components.protocol import (
    DomainProfile,
    Environment,
    Policy,
    PolicyReply,
    PolicyRequest,
    RatchetError,
    Sandbox,
    TaskSpec,
    TimeStep,
    ToolCall,
    ToolResult,
    ToolSpec,
    as_gymnasium,
    list_envs,
    make,
    register,
    spec,
)
from components.rewards.engine import score, score_file
from components.rollouts.collect import CollectReport, collect
from components.rollouts.plan import CollectPlan
from components.sandboxes import SandboxConfig, make_sandbox
from components.trajectories.record import Trajectory
from components.trajectories.store import read_folder, read_jsonl

__all__ = [
    "CollectPlan",
    "CollectReport",
    "DomainProfile",
    "Environment",
    "Policy",
    "PolicyReply",
    "PolicyRequest",
    "RatchetError",
    "Sandbox",
    "SandboxConfig",
    "TaskSpec",
    "TimeStep",
    "ToolCall",
    "ToolResult",
    "ToolSpec",
    "Trajectory",
    "as_gymnasium",
    "collect",
    "list_envs",
    "load_taskset",
    "make",
    "make_policy",
    "make_sandbox",
    "read_folder",
    "read_jsonl",
    "register",
    "score",
    "score_file",
    "spec",
]
