"""What plugins and notebooks use: import from here, and the rooms behind may move."""

from components.environments.conversation import DialogueEnvironment, Tool, tool
from components.environments.conversation.common import FINISH, RESPOND, SUBMIT, THINK
from components.environments.tasksets import load as load_taskset
from components.environments.tools import ToolError
from components.evaluation.comparison import compare_agents, flips
from components.evaluation.leaderboard import leaderboard
from components.policies.factory import make_policy
from components.protocol import (
    DomainProfile,
    Environment,
    EpisodeStatistics,
    MaxSteps,
    ObservationTruncate,
    Policy,
    PolicyReply,
    PolicyRequest,
    RatchetError,
    Reward,
    Role,
    Sandbox,
    TaskSpec,
    Timeout,
    TimeStep,
    ToolCall,
    ToolResult,
    ToolSpec,
    Wrapper,
    as_gymnasium,
    list_domains,
    list_envs,
    load_domain,
    make,
    read_domain,
    register,
    register_domain,
    spec,
    wrap,
)
from components.rewards.calibration import Calibration
from components.rewards.config import RewardConfig
from components.rewards.engine import score, score_file
from components.rewards.guards import find_hacks
from components.rewards.judgement import Judgement
from components.rewards.label import Label
from components.rewards.rules import RuleReward
from components.rollouts.collect import collect
from components.rollouts.plan import CollectPlan
from components.rollouts.progress import CollectReport
from components.rollouts.recording import RecordTrajectory
from components.sandboxes import SandboxConfig, make_sandbox
from components.trajectories.readers import read as read_log
from components.trajectories.record import Agent, Trajectory
from components.trajectories.sanitise import Sanitiser, sanitise
from components.trajectories.shards import read_folder, read_jsonl
from components.trajectories.store import Query, Store, Writer
from flows.evaluation import Evaluated, evaluate_agent

__all__ = [
    "FINISH",
    "RESPOND",
    "SUBMIT",
    "THINK",
    "Agent",
    "Calibration",
    "CollectPlan",
    "CollectReport",
    "DialogueEnvironment",
    "DomainProfile",
    "Environment",
    "EpisodeStatistics",
    "Evaluated",
    "Judgement",
    "Label",
    "MaxSteps",
    "ObservationTruncate",
    "Policy",
    "PolicyReply",
    "PolicyRequest",
    "Query",
    "RatchetError",
    "RecordTrajectory",
    "Reward",
    "RewardConfig",
    "Role",
    "RuleReward",
    "Sandbox",
    "SandboxConfig",
    "Sanitiser",
    "Store",
    "TaskSpec",
    "TimeStep",
    "Timeout",
    "Tool",
    "ToolCall",
    "ToolError",
    "ToolResult",
    "ToolSpec",
    "Trajectory",
    "Wrapper",
    "Writer",
    "as_gymnasium",
    "collect",
    "compare_agents",
    "evaluate_agent",
    "find_hacks",
    "flips",
    "leaderboard",
    "list_domains",
    "list_envs",
    "load_domain",
    "load_taskset",
    "make",
    "make_policy",
    "make_sandbox",
    "read_domain",
    "read_folder",
    "read_jsonl",
    "read_log",
    "register",
    "register_domain",
    "sanitise",
    "score",
    "score_file",
    "spec",
    "tool",
    "wrap",
]
