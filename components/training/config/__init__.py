"""Configuration of training: a job is a method, an output folder, a seed, and sections that each belong to one owner.

Defaults are for agents: what the agent wrote is trained, exactly. `preset: plain` is TRL's own; every other enhancement is off
until it is named.
"""

from .checkpoints import Checkpoints
from .data import Data, GrpoData, PrmData
from .dpo import Dpo
from .formatting import Format
from .grpo import Grpo
from .job import AnyJob, DpoConfig, GrpoConfig, JobConfig, PrmConfig, SftConfig, load_job
from .model import Lora, Model, ModelShape
from .optimization import Optimization
from .overrides import assigned, merged
from .prm import Prm
from .run import Run
from .sft import Sft

__all__ = [
    "AnyJob",
    "Checkpoints",
    "Data",
    "Dpo",
    "DpoConfig",
    "Format",
    "Grpo",
    "GrpoConfig",
    "GrpoData",
    "JobConfig",
    "Lora",
    "Model",
    "ModelShape",
    "Optimization",
    "Prm",
    "PrmConfig",
    "PrmData",
    "Run",
    "Sft",
    "SftConfig",
    "assigned",
    "load_job",
    "merged",
]
