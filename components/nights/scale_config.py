"""Scales: the parameters of a night, with their section `judge`. Flow and code are the same at every scale."""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

import msgspec
from pydantic import BeforeValidator, ConfigDict, Field, PlainSerializer, model_validator

from ratchet.components.core import ConfigurationError, Role
from ratchet.components.core.configuration import Configuration
from ratchet.components.core.errors import suggest_name
from ratchet.components.evaluation.promotion.promotion_rule import PromotionRule
from ratchet.components.models import checkpoint_folders
from ratchet.components.models.best_of_policy import BestOfName
from ratchet.components.models.endpoint import Price
from ratchet.components.models.policy_factory import check_policy
from ratchet.components.models.server_probe import PYTHON_VARIABLE
from ratchet.components.models.vllm_options import check_vllm_options
from ratchet.components.rewards.judges.judge_config import JudgeConfig, JudgeModelConfig
from ratchet.components.rollouts.collection_plan import CollectPlan, Executor, StageTimeouts
from ratchet.components.rollouts.harness_config import HarnessConfig
from ratchet.components.sandboxes import SandboxConfig
from ratchet.components.tasksets import load_taskset
from ratchet.components.training.config.job_config import SftConfig
from ratchet.components.training.config.method_sections import SftOptions
from ratchet.components.training.config.shared_sections import (
    CheckpointOptions,
    DataOptions,
    FormatOptions,
    ModelOptions,
    OptimizationOptions,
    RunOptions,
)

if TYPE_CHECKING:
    from ratchet.components.models.model_server import ModelServer


class LocalJudge(Configuration):
    """A judge that the night serves itself. It uses no money of a budget.

    - `model`: a checkpoint folder, or a model that the `engine` can load. `arguments` are passed on to the engine.
    - `max_tokens`: limit of a reply. `concurrency`: simultaneous requests.
    """

    model: str = Field(min_length=1)
    engine: Literal["transformers", "vllm"] = "transformers"
    arguments: tuple[str, ...] = ()
    max_tokens: int = Field(512, gt=0)
    concurrency: int = Field(4, gt=0)

    def with_server(self, server: "ModelServer") -> JudgeModelConfig:
        """Return the configuration of requests to the server that serves this judge. Records name a checkpoint by its
        weights, not by its path.
        """
        folder = server.served.checkpoint
        return JudgeModelConfig(
            base_url=server.base_url,
            model=server.served.name,
            name=checkpoint_folders.checkpoint_version(folder) if folder else None,
            structured="json_schema" if self.engine == "vllm" else "none",
            max_tokens=self.max_tokens,
            concurrency=self.concurrency,
            price=Price(prompt=0.0, completion=0.0),
        )


class NightJudgeConfig(JudgeConfig):
    """At least one of `models` (running servers), `local` (served by the night) and `prm` (checkpoint of a step reward
    model).

    `episodes`: upper limit for judges. All attempts at a task are judged or none, since their totals are compared. A
    step reward model reads all episodes without requests.
    """

    models: tuple[JudgeModelConfig, ...] = ()
    local: LocalJudge | None = None
    prm: Path | None = None

    @model_validator(mode="after")
    def _somebody_judges(self) -> Self:
        if not self.has_judge_models and self.prm is None:
            raise ValueError("nobody judges; give models, local or prm, or leave the section out")
        return self

    @property
    def has_judge_models(self) -> bool:
        """Whether any judge receives requests."""
        return bool(self.models) or self.local is not None

    def check(self) -> None:
        """Raise ConfigurationError for a missing API key or step reward model, before anything is played."""
        for model in self.models:
            model.key()
        if self.rubric is not None and not self.rubric.is_file():
            raise ConfigurationError(f"judge.rubric: {self.rubric} is no file; give a rubric (docs/judging.md)")
        if self.prm is not None and not self.prm.is_dir():
            raise ConfigurationError(
                f"judge.prm: {self.prm} is no folder; give a checkpoint that `ratchet train` has made"
            )

    def with_served_judge(self, server: "ModelServer | None") -> JudgeConfig:
        """Return the configuration of the judges to ask, with the one on `server` (None: none is served)."""
        local = (self.local.with_server(server),) if self.local and server else ()
        values = self.model_dump(exclude={"local", "models", "prm"})
        return JudgeConfig(**values, models=(*self.models, *local))


class NightBudget(Configuration):
    """Limits of one night; it stops before a step that would exceed one (docs/operating.md). None: no limit.

    - `hours`: time of its steps, over all its starts. `gpu_hours`: time of the steps that run a model, times the GPUs of
      this host. `disk_gb`: size of the home, `data` and DVC's cache, in 10⁹ bytes.
    - `money`: paid to judges and to a teacher, in the currency of their prices.
    """

    hours: float | None = Field(None, gt=0)
    gpu_hours: float | None = Field(None, gt=0)
    disk_gb: float | None = Field(None, gt=0)
    money: float | None = Field(None, ge=0)


def is_billed(policy: str) -> bool:
    """Return whether a policy asks a server that may ask money."""
    return policy.startswith("openai:") or policy.endswith((".yaml", ".yml"))


class TrafficConfig(Configuration):
    """Take the traffic of a service, which `ratchet receive` has stored, instead of playing tasks (docs/receiving.md).

    `episodes`: maximum number of a night. `quiet_minutes`: time for which nothing was added to a conversation.
    """

    episodes: int = Field(4000, gt=0)
    quiet_minutes: float = Field(10.0, ge=0)


SCALES_FOLDER = Path(__file__).parents[2] / "flows" / "scales"
FLOW_KEYS = {"output", "seed", "data"}
"""Job keys that the flow fills in: a scale may not set them."""

Engine = Literal["transformers", "vllm"]
"""Inference engine for checkpoints: transformers in the workers, or a vLLM server that is started for the collection.
"""


class _Play(Configuration):
    """How tasks are played. `attempts`: at each task. `temperature`: of the sampling of tokens. `cohort_size`: episodes of a
    shard. `workers`: processes. `engine`: what runs a checkpoint, in the workers (`transformers`) or as a server (`vllm`).
    """

    attempts: int = Field(gt=0)
    temperature: float = Field(0.8, ge=0)
    cohort_size: int = Field(250, gt=0, le=500)
    workers: int = Field(2, gt=0)
    engine: Engine = "transformers"


class PlayConfig(_Play):
    """Number of tasks and attempts, and parallelism. `tasks`: number of tasks."""

    tasks: int = Field(gt=0)


class EvaluationConfig(_Play):
    """Number of held-out tasks: `promote` tasks decide, `audit` tasks are only reported. Agents play in parallel,
    `workers` each.
    """

    promote: int = Field(gt=0)
    audit: int = Field(ge=0)
    attempts: int = Field(4, gt=0)
    workers: int = Field(1, gt=0)


class ColdStartConfig(Configuration):
    """Sections of the job that trains the first champion, without the keys that the flow fills in. A relative
    `model.base` is a folder of the clone.
    """

    model: ModelOptions = ModelOptions()
    format: FormatOptions = FormatOptions()
    optimization: OptimizationOptions = OptimizationOptions()
    checkpoints: CheckpointOptions = CheckpointOptions()
    run: RunOptions = RunOptions()
    sft: SftOptions = SftOptions()

    @model_validator(mode="before")
    @classmethod
    def _paths_are_not_for_a_scale(cls, values: Any) -> Any:
        if isinstance(values, dict) and (reserved_keys := FLOW_KEYS & values.keys()):
            raise ValueError(f"'{min(reserved_keys)}' is filled in by the flow; remove it")
        return values

    def job(self, output: Path, data: Mapping[str, Path], *, seed: int) -> SftConfig:
        """Return the job for a night's files."""
        sections = {name: getattr(self, name) for name in ColdStartConfig.model_fields}
        return SftConfig(output=output, seed=seed, data=DataOptions.model_validate(data), **sections)


def _rule(value: Any) -> Any:
    try:
        return value if isinstance(value, PromotionRule) else msgspec.convert(value, PromotionRule)
    except (msgspec.ValidationError, ConfigurationError) as error:
        raise ValueError(str(error)) from error


_ONLINE = ("taskset", "max_turns", "concurrency", "retries", "patience", "timeouts", "sandbox")
"""Fields that a policy which plays while it trains needs too."""
Rule = Annotated[PromotionRule, BeforeValidator(_rule), PlainSerializer(msgspec.to_builtins)]


class NightPolicy(Configuration):
    """How the models of a night act. `harness`: the program that plays in place of Ratchet's own loop (docs/gateway.md). The
    teacher demonstrates without it.
    """

    harness: HarnessConfig | None = None


class Scale(Configuration):
    """Parameters of a night. `teacher` plays `demonstrations` once; `cold_start` trains the first champion on them.

    `judge`: who judges tonight's attempts; without it rules alone score them. `recipe`, in size `size`, trains the
    challenger (flows/recipes). The control is plain SFT on the champion's old data with as many tokens.
    `vllm`: engine arguments of the vLLM servers of policies played with `engine: vllm`, by vLLM's own names
    (`gpu_memory_utilization`, `max_model_len`, `tensor_parallel_size` …). A server starts with each collection, on GPUs of
    its own, and stops at its end.

    - `name`: name of the scale's file. `taskset`: name or folder of the tasks.
    - `max_new_tokens`: maximum tokens of a reply. `max_turns`: maximum replies; None for the environment's limit.
    - `concurrency`: parallel tool calls of a worker, or parallel episodes of a policy behind a server. `model_threads`:
      CPU threads of a worker's model; None for the cores divided by the workers.
    - `policy`: how the models act; see NightPolicy.
    - `retries`: further attempts after an infrastructure failure. `patience`: seconds to wait while everything fails.
      `min_completed`: minimum share of episodes without an infrastructure failure.
    - `traffic`: take the episodes of a service instead of `collection`, once there is a champion.
    - `executor`: where episodes are played: on this machine, on a Ray cluster or by Prefect workers (docs/deployment.md).
    """

    model_config = ConfigDict(arbitrary_types_allowed=True)

    name: str = ""
    taskset: str
    teacher: str = "teacher"
    sandbox: SandboxConfig = SandboxConfig()
    max_turns: int | None = Field(None, gt=0)
    max_new_tokens: int = Field(96, gt=0)
    concurrency: int = Field(16, gt=0)
    vllm: dict[str, Any] = Field(default_factory=dict)
    model_threads: int | None = Field(None, gt=0)
    policy: NightPolicy = NightPolicy()
    retries: int = Field(2, ge=0)
    patience: float = Field(300.0, gt=0)
    min_completed: float = Field(0.95, ge=0, le=1)
    timeouts: StageTimeouts = StageTimeouts()
    executor: Executor = "local"
    demonstrations: PlayConfig
    cold_start: ColdStartConfig
    collection: PlayConfig
    traffic: TrafficConfig | None = None
    judge: NightJudgeConfig | None = None
    recipe: str = "sft"
    size: str | None = None
    evaluation: EvaluationConfig
    promotion: Rule = PromotionRule()
    budget: NightBudget = NightBudget()

    def check(self) -> None:
        """Raise ConfigurationError for a policy or judge that cannot be asked (an unknown name, a missing file, a key
        variable that is not set), or a harness that could not start, before anything is started.
        """
        try:
            check_policy(self.teacher, load_taskset(self.taskset))
        except ConfigurationError as error:
            raise ConfigurationError(f"teacher: {error}") from error
        if self.judge is not None:
            self.judge.check()
        if self.policy.harness is not None and self.executor == "local":
            self.policy.harness.sandbox(self.sandbox)
        python = os.environ.get(PYTHON_VARIABLE)
        check_vllm_options(self.vllm, Path(python) if python else None)

    @property
    def serves_vllm(self) -> bool:
        """Whether policies are played by vLLM servers on this machine."""
        return self.executor == "local" and "vllm" in (self.collection.engine, self.evaluation.engine)

    def plan(
        self, play: PlayConfig | EvaluationConfig, policy: str, role: Role, task_ids: tuple[str, ...], seed: int
    ) -> CollectPlan:
        """Return the plan to play `task_ids` with a policy. `play`: attempts, engine and parallelism."""
        names = (*_ONLINE, "model_threads", "max_new_tokens", "min_completed", "executor")
        shared = {name: getattr(self, name) for name in names}
        return CollectPlan(
            role=role,
            task_ids=task_ids,
            policy=self._policy(policy, play.engine),
            seed=seed,
            attempts=play.attempts,
            cohort_size=play.cohort_size,
            workers=play.workers,
            temperature=play.temperature,
            harness=None if policy == self.teacher else self.policy.harness,
            **shared,
        )

    def _policy(self, policy: str, engine: Engine) -> str:
        """Return the policy for an engine: the same weights under the same version."""
        if best_of := BestOfName.parse(policy):
            return str(best_of._replace(policy=self._policy(best_of.policy, engine)))
        folder = policy.removeprefix("transformers:")
        if folder == policy or engine == "transformers":
            return policy
        if not self.vllm:
            return f"vllm:{folder}"
        model_source = {"checkpoint": folder, "options": self.vllm}
        return f"vllm:{json.dumps(model_source, ensure_ascii=False)}"

    def online(self) -> dict[str, Any]:
        """Return the settings for policies that play while they train (OnlinePlayer), as JSON values."""
        return self.model_dump(mode="json", include=set(_ONLINE))


def load_scale(name_or_path: str) -> Scale:
    """Load a scale by name or YAML file. Raises ConfigurationError that suggests the nearest name."""
    path = named_file("scale", name_or_path, SCALES_FOLDER)
    return Scale.load(path).model_copy(update={"name": path.stem})


def yaml_names(folder: Path) -> list[str]:
    """Return the names of the YAML files in a folder and in the project's own folder of that name, without suffix."""
    return sorted({path.stem for place in (Path(folder.name), folder) for path in place.glob("*.yaml")})


def named_file(kind: str, name_or_path: str, folder: Path) -> Path:
    """Return the path of a YAML file, given as a path (not checked) or as a name; `kind` is for the message. A name is
    looked for in the working directory's `scales` or `recipes`, then in `folder`. Raises ConfigurationError that suggests
    the nearest name.
    """
    path = Path(name_or_path)
    if path.suffix in (".yaml", ".yml"):
        return path
    if name_or_path not in (names := yaml_names(folder)):
        choices = f"known: {', '.join(names)}, or a path to a YAML file"
        raise ConfigurationError(f"unknown {kind} '{name_or_path}'; {suggest_name(name_or_path, names, choices)}")
    own = Path(folder.name) / f"{name_or_path}.yaml"
    return own if own.is_file() else folder / own.name
