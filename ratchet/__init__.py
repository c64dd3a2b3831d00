"""Ratchet's public API: what plugins, documents and notebooks import. The modules behind these names may move.

Names are loaded on first use (PEP 562): this file runs before every `ratchet.components` import, so it must stay cheap.
"""

import os
from functools import cache
from typing import TYPE_CHECKING, Any

# The telemetry of Prefect, Hugging Face and vLLM, and of MLflow, which takes no "1" for DO_NOT_TRACK.
os.environ.setdefault("DO_NOT_TRACK", "1")
os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")

if TYPE_CHECKING:  # `X as X` is how a type checker knows a name as public
    from ratchet.components.core import ConfigurationError as ConfigurationError
    from ratchet.components.core import DataError as DataError
    from ratchet.components.core import DomainProfile as DomainProfile
    from ratchet.components.core import Environment as Environment
    from ratchet.components.core import EpisodeStatistics as EpisodeStatistics
    from ratchet.components.core import InfrastructureError as InfrastructureError
    from ratchet.components.core import MaxSteps as MaxSteps
    from ratchet.components.core import ObservationTruncate as ObservationTruncate
    from ratchet.components.core import Policy as Policy
    from ratchet.components.core import PolicyReply as PolicyReply
    from ratchet.components.core import PolicyRequest as PolicyRequest
    from ratchet.components.core import RatchetError as RatchetError
    from ratchet.components.core import Reward as Reward
    from ratchet.components.core import Role as Role
    from ratchet.components.core import Sandbox as Sandbox
    from ratchet.components.core import TaskSpec as TaskSpec
    from ratchet.components.core import Timeout as Timeout
    from ratchet.components.core import TimeStep as TimeStep
    from ratchet.components.core import ToolCall as ToolCall
    from ratchet.components.core import ToolResult as ToolResult
    from ratchet.components.core import ToolSpec as ToolSpec
    from ratchet.components.core import Wrapper as Wrapper
    from ratchet.components.core import as_gymnasium as as_gymnasium
    from ratchet.components.core import list_domains as list_domains
    from ratchet.components.core import list_envs as list_envs
    from ratchet.components.core import load_domain as load_domain
    from ratchet.components.core import make as make
    from ratchet.components.core import read_domain as read_domain
    from ratchet.components.core import register as register
    from ratchet.components.core import register_domain as register_domain
    from ratchet.components.core import spec as spec
    from ratchet.components.core import wrap as wrap
    from ratchet.components.environments.dialogue_environment import DialogueEnvironment as DialogueEnvironment
    from ratchet.components.environments.sandbox_tools import ToolError as ToolError
    from ratchet.components.environments.world_tools import FINISH as FINISH
    from ratchet.components.environments.world_tools import RESPOND as RESPOND
    from ratchet.components.environments.world_tools import SUBMIT as SUBMIT
    from ratchet.components.environments.world_tools import THINK as THINK
    from ratchet.components.environments.world_tools import Tool as Tool
    from ratchet.components.environments.world_tools import tool as tool
    from ratchet.components.evaluation.agent_comparison import AgentComparison as AgentComparison
    from ratchet.components.evaluation.leaderboard import leaderboard as leaderboard
    from ratchet.components.evaluation.promotion.decision_record import Decision as Decision
    from ratchet.components.evaluation.promotion.decision_record import read_decision as read_decision
    from ratchet.components.interop.log_source import LogSource as LogSource
    from ratchet.components.interop.read_write import convert as convert
    from ratchet.components.interop.read_write import read as read
    from ratchet.components.interop.read_write import write as write
    from ratchet.components.interop.reader_registry import LogReader as LogReader
    from ratchet.components.interop.reader_registry import list_formats as list_formats
    from ratchet.components.interop.trajectory_draft import TrajectoryDraft as TrajectoryDraft
    from ratchet.components.models.policy_factory import list_policies as list_policies
    from ratchet.components.models.policy_factory import make_policy as make_policy
    from ratchet.components.operations.agent_collection import collect as collect
    from ratchet.components.operations.compare_sets import SetComparison as SetComparison
    from ratchet.components.operations.compare_sets import compare as compare
    from ratchet.components.operations.dataset_export import export_dpo as export_dpo
    from ratchet.components.operations.dataset_export import export_grpo as export_grpo
    from ratchet.components.operations.dataset_export import export_huggingface as export_huggingface
    from ratchet.components.operations.dataset_export import export_sft as export_sft
    from ratchet.components.operations.episode_scores import EpisodeScores as EpisodeScores
    from ratchet.components.operations.episode_scores import score as score
    from ratchet.components.operations.manual_evaluation import AgentEvaluation as AgentEvaluation
    from ratchet.components.operations.manual_evaluation import evaluate_agent as evaluate_agent
    from ratchet.components.operations.manual_training import train as train
    from ratchet.components.redaction import Sanitiser as Sanitiser
    from ratchet.components.redaction import sanitise as sanitise
    from ratchet.components.rewards.episode_score import EpisodeScore as EpisodeScore
    from ratchet.components.rewards.hack_detection.hack_detector import find_hacks as find_hacks
    from ratchet.components.rewards.reward_config import RewardConfig as RewardConfig
    from ratchet.components.rewards.rules.rule_engine import RuleReward as RuleReward
    from ratchet.components.rollouts.trajectory_recorder import RecordTrajectory as RecordTrajectory
    from ratchet.components.sandboxes import SandboxConfig as SandboxConfig
    from ratchet.components.sandboxes import make_sandbox as make_sandbox
    from ratchet.components.statistics.bootstrap import bootstrap_ci as bootstrap_ci
    from ratchet.components.statistics.multiple_testing import holm as holm
    from ratchet.components.statistics.permutation import permutation_test as permutation_test
    from ratchet.components.statistics.proportions import pass_at_k as pass_at_k
    from ratchet.components.statistics.proportions import wilson as wilson
    from ratchet.components.statistics.result_types import Interval as Interval
    from ratchet.components.statistics.result_types import TestResult as TestResult
    from ratchet.components.tasksets import Taskset as Taskset
    from ratchet.components.tasksets import load_taskset as load_taskset
    from ratchet.components.trajectories.store.store_reader import EpisodeQuery as EpisodeQuery
    from ratchet.components.trajectories.store.store_reader import TrajectoryStore as TrajectoryStore
    from ratchet.components.trajectories.store.store_writer import StoreWriter as StoreWriter
    from ratchet.components.trajectories.trajectory import Agent as Agent
    from ratchet.components.trajectories.trajectory import Outcome as Outcome
    from ratchet.components.trajectories.trajectory import Trajectory as Trajectory
    from ratchet.components.trajectories.trajectory import Turn as Turn
    from ratchet.components.trajectories.trajectory_list import Trajectories as Trajectories

PROVISIONAL = frozenset(
    """
    AgentComparison AgentEvaluation Decision DialogueEnvironment EpisodeQuery FINISH LogReader
    LogSource RESPOND RecordTrajectory RewardConfig RuleReward SUBMIT Sanitiser SetComparison StoreWriter
    THINK Tool ToolError TrajectoryDraft TrajectoryStore evaluate_agent find_hacks leaderboard make_policy
    make_sandbox read_decision tool
    """.split()  # noqa: SIM905
)
"""Names that may change with any minor version, and are then listed in the changelog. All others change with a major one."""


@cache
def _sources() -> dict[str, str]:
    """Map each public name to its module, read from the imports above: they are the only list."""
    import ast
    from pathlib import Path

    source = ast.parse(Path(__file__).read_text(encoding="utf-8"))
    imports = [node for node in ast.walk(source) if isinstance(node, ast.ImportFrom)]
    return {alias.name: str(node.module) for node in imports for alias in node.names if alias.name == alias.asname}


def __getattr__(name: str) -> Any:
    if name == "__all__":
        return sorted(_sources())
    if name not in _sources():
        raise AttributeError(f"module 'ratchet' has no attribute '{name}'")
    from importlib import import_module

    globals()[name] = value = getattr(import_module(_sources()[name]), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_sources()})
