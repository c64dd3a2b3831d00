"""Plan of a night before it runs: steps with time, disk and money, memory of its training jobs, and what its decision can show.

Nothing is started and no night is begun. Times and sizes are medians over the past nights of this home, of the same
scale; a step that no past night took has none.
"""

import shutil
import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import msgspec

from ratchet.components.core import RatchetError, Role, TaskSpec
from ratchet.components.core.home import home
from ratchet.components.datasets.versioning import dvc_client, dvc_lock
from ratchet.components.evaluation.promotion.decision_plan import (
    LeadPower,
    PlannedDesign,
    PlannedMargin,
    lead_powers,
    planned_designs,
    planned_margins,
    promotion_obstacles,
)
from ratchet.components.evaluation.promotion.promotion_rule import DECIDING_ROLES, NightDeclaration
from ratchet.components.evaluation.promotion.season_plan import ASSUMED_COMPONENTS, count_task_uses, declare_night
from ratchet.components.models.vllm_options import server_gpus
from ratchet.components.nights.episode_sets import evaluations_folder
from ratchet.components.nights.night_models import NightModel, registered_model
from ratchet.components.nights.night_sampling import check_first_night, draw_least_used
from ratchet.components.nights.night_state import Night, list_nights, next_night, night_decision, running_night
from ratchet.components.nights.recipe_config import CONTROL, SCRATCH, Recipe, Stage, load_recipe
from ratchet.components.nights.scale_config import Scale, is_billed, load_scale
from ratchet.components.operations.host_checks import TrainingMemory, training_memory
from ratchet.components.statistics.power_analysis import clustered_design
from ratchet.components.tasksets import load_taskset
from ratchet.components.tracking import model_registry
from ratchet.components.training.config.job_config import AnyJob, GrpoConfig
from ratchet.components.training.config.shared_sections import ModelOptions
from ratchet.components.training.memory_estimate import (
    PROCESS_BYTES,
    MemoryEstimate,
    ServerEstimate,
    estimate_memory,
    estimate_server,
    model_size,
    row_tokens,
)
from ratchet.components.trajectories.shards import read_manifest
from ratchet.flows.night_context import ROLLOUTS_FOLDER
from ratchet.flows.steps.declare import DECLARED_STEP, TASKS_STEP, past_nights

PAST_NIGHTS = 5
"""Estimates are medians over at most this many of the latest nights."""
OTHER_STEPS = "other steps"
"""Name of the row for the many short steps: declaring, sealing, copying rows, registering."""


class PlannedStep(msgspec.Struct, frozen=True):
    """A step of the night. `seconds`: taken where it is `done`, else the median over `nights` past nights (None: no
    past night took it). `disk`: bytes that it leaves, copies in DVC's cache and a local remote included; `money`: upper
    limit in the currency of the prices, None where there is none or it is unknown.
    """

    name: str
    state: Literal["done", "cached", "to do"] = "to do"
    seconds: float | None = None
    nights: int = 0
    disk: int | None = None
    money: float | None = 0.0
    note: str = ""


class PlannedJob(msgspec.Struct, frozen=True):
    """A training job and its memory in each process; `problem` says why there is no estimate, or why it cannot run.
    `disk`: bytes of its result; `checkpoints`: of those that it keeps until it has ended.
    """

    name: str
    method: str
    base: str
    memory: MemoryEstimate | None
    problem: str = ""
    disk: int = 0
    checkpoints: int = 0


class PlannedServer(msgspec.Struct, frozen=True):
    """The vLLM server of a collection and its memory on each of `gpus` GPUs; `problem` says why it cannot start."""

    base: str
    gpus: int
    memory: ServerEstimate | None
    problem: str = ""


class NightPlan(msgspec.Struct, frozen=True):
    """Plan of one night. `night`: its id; None where a new night gets one only when it begins. `past`: ids of the nights
    that the estimates rest on; `running`: the night that runs now, if any. `obstacles`: why no promotion is to be expected,
    if so. `server`: the largest server of a policy, None where this machine serves none on a GPU. `needed`: bytes that
    training needs at once in each device; `fits`: whether memory and disk hold the night, None if unknown.
    """

    night: str | None
    resumes: bool
    running: str | None
    scale: str
    recipe: str
    seed: int
    champion: str | None
    past: tuple[str, ...]
    steps: tuple[PlannedStep, ...]
    disk_free: int
    memory: TrainingMemory
    jobs: tuple[PlannedJob, ...]
    server: PlannedServer | None
    needed: int | None
    fits: bool | None
    taskset: str
    declaration: NightDeclaration
    variance_of: str | None
    leads: tuple[LeadPower, ...]
    designs: tuple[PlannedDesign, ...]
    margins: tuple[PlannedMargin, ...]
    obstacles: tuple[str, ...]


def plan_night(
    scale: str = "smoke", seed: int | None = None, night: str | None = None, recipe: str | None = None
) -> NightPlan:
    """Return the plan of the night that `ratchet night` with the same arguments would resume or begin. Raises
    RatchetError.
    """
    parameters = load_scale(scale)
    parameters.check()
    state = next_night(scale, seed, night, recipe)
    nights = list_nights()
    how = load_recipe(state.recipe or parameters.recipe, parameters.size)
    others = [other for other in nights if other.id != state.id]
    begun, past, champion = len(others) < len(nights), _past(state, others), _champion(state)
    if champion is None:
        check_first_night(parameters, how, len(load_taskset(parameters.taskset).tasks(Role.TRAIN)))
    declaration, tasks = _declaration(parameters, state)
    families = [task.family for task in tasks]
    steps = tuple(_Steps(state, parameters, how, past, champion, declaration).all())
    memory = training_memory()
    jobs = tuple(_jobs(parameters, how, champion, state, memory))
    needed = _needed_memory(jobs, how, memory)
    server = _server(parameters, champion, memory)
    free = shutil.disk_usage(Path()).free
    decided = [(other.id, decision) for other in others if (decision := night_decision(other)) is not None]
    spreads = [(id, decision.spread) for id, decision in decided if decision.spread is not None]
    rule, latest = parameters.promotion, decided[-1][1] if decided else None
    design = clustered_design(families, declaration.attempts, spreads[-1][1] if spreads else ASSUMED_COMPONENTS)
    margins = planned_margins(rule, families, [task.kind for task in tasks], latest)
    return NightPlan(
        night=state.id if night or begun else None,
        resumes=begun,
        running=running_night(),
        scale=parameters.name,
        recipe=how.name,
        seed=state.seed,
        champion=None if champion is None else champion.policy_version,
        past=tuple(night.id for night in past[-PAST_NIGHTS:]),
        steps=steps,
        disk_free=free,
        memory=memory,
        jobs=jobs,
        server=server,
        needed=needed,
        fits=_fits(jobs, server, needed, memory, free),
        taskset=parameters.taskset,
        declaration=declaration,
        variance_of=spreads[-1][0] if spreads else None,
        leads=lead_powers(rule, past_nights(state), design),
        designs=planned_designs(rule, declaration.level, design),
        margins=margins,
        obstacles=promotion_obstacles(rule, declaration.level, families, margins),
    )


def planned_steps(
    state: Night, scale: Scale, recipe: Recipe, declared: NightDeclaration | None
) -> tuple[PlannedStep, ...]:
    """Return the steps of a night in their order; `declared`: how it is decided, None where nothing was declared."""
    return tuple(_Steps(state, scale, recipe, _past(state, list_nights()), _champion(state), declared).all())


def _past(state: Night, nights: Sequence[Night]) -> list[Night]:
    """Return the other timed nights of its scale, oldest first."""
    return [other for other in nights if other.id != state.id and other.scale == state.scale and other.durations]


def _champion(state: Night) -> NightModel | None:
    """Return the champion that the night uses: its own where it has looked already, else that of the registry."""
    for step in ("register cold-start", "champion"):
        if (model := state.results.get(step)) is not None:
            return msgspec.convert(model, NightModel)
    registered = model_registry.version_by_alias(model_registry.CHAMPION)
    return None if registered is None else registered_model(registered, str(registered.path or ""))


def _declaration(scale: Scale, state: Night) -> tuple[NightDeclaration, list[TaskSpec]]:
    """Return what the night has declared, or would declare now, and its deciding tasks."""
    taskset, past = load_taskset(scale.taskset), past_nights(state)
    chosen = state.result(TASKS_STEP, tuple[str, ...])
    if chosen is None:
        pools = {role: taskset.tasks(role) for role in DECIDING_ROLES}
        chosen = draw_least_used(pools, scale.evaluation.promote, state.seed, count_task_uses(past))
    tasks = [taskset.by_id[task] for task in chosen]
    how = (scale.promotion, past, [task.family for task in tasks], scale.evaluation.attempts)
    return state.result(DECLARED_STEP, NightDeclaration) or declare_night(*how, at=state.begun), tasks


StepNames = Callable[[Night], Iterable[str]]
"""The names of a planned step in the state of a past night."""


def _episodes(report: object) -> int:
    """Return the episodes of a collection report, or of a report for each agent; 0 for anything else."""
    if not isinstance(report, dict):
        return 0
    own = report.get("episodes")
    return int(own) if isinstance(own, int) else sum(_episodes(part) for part in report.values())


def _folder_bytes(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file() and not file.is_symlink())


@dataclass(frozen=True)
class _Steps:
    """The steps of a night in their order. `past`: timed nights of its scale; `declared`: how it is decided."""

    state: Night
    scale: Scale
    recipe: Recipe
    past: Sequence[Night]
    champion: NightModel | None
    declared: NightDeclaration | None

    @property
    def agents(self) -> int:
        """Number of agents that play the evaluation: the anchor is one of them on nights of a match."""
        return 4 if self.declared is not None and self.declared.match else 3

    @cached_property
    def copies(self) -> int:
        """Copies of a sealed file: in the work tree, in DVC's cache and, where that is a folder, in the remote."""
        return 2 + (not _is_remote_elsewhere())

    def _step(
        self,
        name: str,
        steps: StepNames | None = None,
        folder: Callable[[Night], Path] | None = None,
        *,
        copies: int = 1,
        episodes: int = 0,
        by_recipe: bool = False,
        **fields: Any,
    ) -> PlannedStep:
        """Return a step with the median of its time, and of `copies` of the folder that it leaves. With `episodes` both are
        scaled by the episodes of past nights. `by_recipe`: times are of nights with the same recipe.
        """

        def scaled(nights: Sequence[Night], measure: Callable[[Night], float]) -> list[float]:
            played = [_episodes(night.results.get(name)) if episodes else 1 for night in nights]
            measured = [(measure(night), count) for night, count in zip(nights, played, strict=True) if count]
            return [amount * (episodes or 1) / count for amount, count in measured if amount]

        same = [night for night in self.past if (night.recipe or self.scale.recipe) == self.recipe.name]
        taken = steps or (lambda night: (name,))
        times = scaled(
            (same if by_recipe else self.past)[-PAST_NIGHTS:],
            lambda night: sum(night.seconds.get(step, 0.0) for step in taken(night)),
        )
        if folder is not None:
            sizes = scaled(self.past[-PAST_NIGHTS:], lambda night: copies * _folder_bytes(folder(night)))
            fields["disk"] = round(statistics.median(sizes)) if sizes else None
        return PlannedStep(name, seconds=statistics.median(times) if times else None, nights=len(times), **fields)

    def all(self) -> Iterable[PlannedStep]:
        """Yield the steps; finished ones of a night that is resumed are done, with the time that they took."""
        steps = list(self._steps())
        claimed = {step.name for step in steps}
        for step in steps:
            taken = self.state.seconds.get(step.name)
            if step.name in self.state.results:
                step = msgspec.structs.replace(step, state="done", seconds=taken, money=0.0, note="")
            yield step
        if not self.state.is_finished:
            yield self._rest(claimed)

    def _steps(self) -> Iterable[PlannedStep]:
        scale = self.scale
        if self.champion is None or "collect demonstrations" in self.state.results:
            yield self._collect("demonstrations", lambda night: f"demonstrations-s{night.seed}", scale.demonstrations)
            yield self._build("build demonstrations", "")
            yield self._train("train cold start", "cold-start", by_recipe=False)
        else:
            yield PlannedStep("first champion", "cached", 0.0, note=f"the champion is {self.champion.policy_version}")
        if scale.traffic is not None:
            note = f"at most {scale.traffic.episodes:,} episodes of a service's traffic"
            yield self._step("collect attempts", folder=lambda night: ROLLOUTS_FOLDER / night.id, note=note, money=0.0)
        else:
            yield self._collect("attempts", lambda night: night.id, scale.collection)
        if scale.judge is not None:
            yield self._judge()
        yield self._build("build", self._cached_scores())
        yield self._step("traces")
        for stage in self.recipe.stages:
            yield from self._stage(stage)
        parallel = self.recipe.plain_sft_stage is not None
        note = "trained beside the challenger: the time is what remains after it" if parallel else ""
        yield self._train("train control", "control", note=note)
        episodes = (scale.evaluation.promote + scale.evaluation.audit) * scale.evaluation.attempts * self.agents
        yield self._step(
            "evaluate",
            lambda night: ("evaluate", *(step for step in night.seconds if step.startswith("look "))),
            lambda night: evaluations_folder() / night.id,
            episodes=episodes,
            note=f"{episodes:,} episodes of {self.agents} agents",
        )
        yield self._step("publish")

    def _collect(self, title: str, name: Callable[[Night], str], play: Any) -> PlannedStep:
        episodes = play.tasks * play.attempts
        billed = title == "demonstrations" and is_billed(self.scale.teacher)
        kept = sum(entry.episodes for entry in read_manifest(home() / "spool" / name(self.state)))
        note = f"{episodes:,} episodes" + (f", {kept:,} of them played already" if kept else "")
        return self._step(
            f"collect {title}",
            folder=lambda night: ROLLOUTS_FOLDER / name(night),
            copies=self.copies,
            episodes=episodes,
            money=None if billed else 0.0,
            note=note + ("; the teacher's server may ask money" if billed else ""),
        )

    def _judge(self) -> PlannedStep:
        judging = self.scale.judge
        assert judging is not None
        limits = judging.budget
        paid = [model for model in judging.models if model.price is None or any(model.price.model_dump().values())]
        bounds = [f"{limit:,g} {name}" for name, limit in limits.model_dump().items() if limit is not None]
        return self._step(
            "judge",
            money=limits.money if paid else 0.0,
            note=f"at most {', '.join(bounds)}" if bounds and judging.has_judge_models else "",
        )

    def _build(self, step: str, note: str) -> PlannedStep:
        stages = dvc_lock.read_lock(dvc_lock.LOCK).get("stages") or {}
        outputs = [out.get("size", 0) for stage in stages.values() for out in stage.get("outs") or ()]
        disk = self.copies * sum(outputs) if outputs else None
        return self._step(step, disk=disk, note=note)

    def _cached_scores(self) -> str:
        """Return in words which nights a build scores anew; every later stage runs, since a night is added."""
        finished = [night.id for night in list_nights() if night.is_finished]
        names = list(dict.fromkeys([*(self.champion.nights if self.champion else ()), *finished]))
        folders = {name: ROLLOUTS_FOLDER / name for name in names}
        sealed = [name for name, path in folders.items() if path.is_dir() or path.with_name(f"{name}.dvc").is_file()]
        if not sealed:
            return "nothing is cached: it is the first night"
        return f"scores of {len(dvc_lock.cached_scores(sealed))} of {len(sealed)} earlier nights are cached"

    def _train(self, step: str, title: str, *, by_recipe: bool = True, note: str = "") -> PlannedStep:
        return self._step(step, folder=lambda night: night.folder / "training" / title, by_recipe=by_recipe, note=note)

    def _stage(self, stage: Stage) -> Iterable[PlannedStep]:
        """Yield the steps of a recipe's stage."""
        if stage.sample is not None:
            yield self._collect(stage.name, lambda night: f"{night.id}-{stage.name}", stage.sample)
            build = f"build {self.state.id}-{stage.name}"
            yield self._step(build, lambda night: (f"build {night.id}-{stage.name}",), by_recipe=True)
            return
        title = self.recipe.model_title(stage)
        yield self._train(f"train {title}", title)
        if stage.choose is not None:
            yield self._step(f"choose checkpoint of {title}", by_recipe=True)

    def _rest(self, claimed: set[str]) -> PlannedStep:
        """Return a row for all steps that have no row of their own."""

        def rest(night: Night) -> Iterable[str]:
            mine = claimed | {step.replace(self.state.id, night.id) for step in claimed}
            return (step for step in night.seconds if step not in mine and not step.startswith("look "))

        whole = [night for night in self.past[-PAST_NIGHTS:] if night.is_finished]
        seconds = [sum(night.seconds[step] for step in rest(night)) for night in whole]
        return PlannedStep(OTHER_STEPS, seconds=statistics.median(seconds) if seconds else None, nights=len(whole))


def _is_remote_elsewhere() -> bool:
    """Return whether the data's remote is a server; also where none is configured: then there is no third copy."""
    try:
        return "://" in (dvc_client.remote_override() or dvc_client.remote_url(Path()))
    except RatchetError:
        return True


def training_disk(jobs: Sequence[PlannedJob]) -> int:
    """Return the bytes that training needs at most: all results, and the checkpoints of the largest job."""
    return sum(job.disk for job in jobs) + max((job.checkpoints for job in jobs), default=0)


def _fits(
    jobs: Sequence[PlannedJob], server: PlannedServer | None, needed: int | None, memory: TrainingMemory, free: int
) -> bool | None:
    """Return whether training, servers and checkpoints fit; None where a job's memory is unknown and nothing else is too
    large.
    """
    refused = any(job.problem for job in jobs if job.memory is not None) or (
        server is not None and bool(server.problem)
    )
    if refused or training_disk(jobs) > free:
        return False
    return None if needed is None else needed <= memory.total


def _server(scale: Scale, champion: NightModel | None, memory: TrainingMemory) -> PlannedServer | None:
    """Return the server of the policies that vLLM plays on this machine's GPUs. All have the sizes of the first base."""
    if not (scale.serves_vllm and memory.devices):
        return None
    start = scale.cold_start.model if champion is None else ModelOptions(base=champion.checkpoint)
    base, gpus = start.base or NEW_MODEL, server_gpus(scale.vllm)
    if gpus > memory.devices:
        return PlannedServer(
            base, gpus, None, f"it asks for {gpus} GPUs of {memory.devices}; lower vllm.*_parallel_size"
        )
    try:
        estimate = estimate_server(model_size(start), memory.total, scale.vllm)
    except RatchetError as error:
        return PlannedServer(base, gpus, None, str(error))
    problem = ""
    if estimate.rows < 1:
        problem = (
            f"its cache holds {estimate.rows:.2f} sequences of {estimate.context:,} tokens; lower vllm.max_model_len, or raise "
            "vllm.gpu_memory_utilization or vllm.tensor_parallel_size"
        )
    return PlannedServer(base, gpus, estimate, problem)


def _jobs(
    scale: Scale, recipe: Recipe, champion: NightModel | None, state: Night, memory: TrainingMemory
) -> Iterable[PlannedJob]:
    """Yield the training jobs of a night with their memory."""
    first = scale.cold_start.job(Path("output"), {"train": Path("train.jsonl")}, seed=state.seed)
    if champion is None:
        start, name = first.model, first.model.base or NEW_MODEL
        yield _job("cold start", first, start, name, memory)
    else:
        start = ModelOptions(base=champion.checkpoint or "of the champion, which is not on this machine,")
        name = champion.policy_version
    control = recipe.plain_sft_stage or load_recipe(CONTROL, scale.size).stages[0]
    for title, stage in (*((stage.name, stage) for stage in recipe.stages if stage.trains), ("control", control)):
        data = {"trajectories": ["rollouts"]} if stage.method == "prm" else {"train": "train.jsonl"}
        base = None if stage.begin == SCRATCH else name
        job = stage.build_job(Path("output"), data, seed=state.seed, base=base, step_model=stage.step_model)
        model = job.model if base is None else start  # the first champion has the sizes of what it is trained from
        title = "challenger" if title == recipe.challenger else title
        yield _job(title, job, model, base or NEW_MODEL, memory)


NEW_MODEL = "a new model"


def _job(name: str, job: AnyJob, model: ModelOptions, base: str, memory: TrainingMemory) -> PlannedJob:
    try:
        size = model_size(model)
    except RatchetError as error:
        return PlannedJob(name, job.method, base, None, str(error))
    if name != "cold start" and base != NEW_MODEL:
        size = msgspec.structs.replace(size, stored=4 * size.parameters)  # a champion is written in float32
    processes = max(1, memory.devices) if job.run.launch != "single" else 1
    on_gpu = memory.total if memory.devices else 0
    estimate = estimate_memory(job, size, processes=processes, bfloat16=memory.devices > 0, device_bytes=on_gpu)
    problem, length = "", row_tokens(job)
    if size.context is not None and length > size.context:
        problem = (
            f"its rows of {length:,} tokens exceed the {size.context:,} that {base} reads; lower format.max_length"
        )
    elif isinstance(job, GrpoConfig):
        problem = job.grpo.sampling.missing_engine or ""
    # The result is whole and in float32; two checkpoints of a run hold weights and both moments of what is trained.
    return PlannedJob(name, job.method, base, estimate, problem, 4 * size.parameters, 24 * estimate.trained_parameters)


def _needed_memory(jobs: Sequence[PlannedJob], recipe: Recipe, memory: TrainingMemory) -> int | None:
    """Return the bytes that the largest job needs, or on a host without a GPU challenger and control together."""
    if any(job.memory is None for job in jobs):
        return None
    totals = {job.name: job.memory.total + PROCESS_BYTES for job in jobs if job.memory is not None}
    pair = totals["challenger"] + totals["control"] if recipe.plain_sft_stage and not memory.devices else 0
    return max(*totals.values(), pair)
