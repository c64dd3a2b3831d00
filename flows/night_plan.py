"""Plan of a night before it runs: steps with time, disk and money, memory of its training jobs, and what its decision can show.

Nothing is started and no night is begun. Times and sizes are medians over the past nights of this home, of the same
scale; a step that no past night took has none.
"""

import statistics
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, Literal

import msgspec

from ratchet.components.core import RatchetError, Role
from ratchet.components.core.home import home
from ratchet.components.datasets.versioning import dvc_client, dvc_lock
from ratchet.components.evaluation.promotion.decision_record import Decision, Guardrail
from ratchet.components.evaluation.promotion.guardrail_tests import KIND_PREFIX, RUNAWAY_FACTOR
from ratchet.components.evaluation.promotion.promotion_rule import DECIDING_ROLES, NightDeclaration, PromotionRule
from ratchet.components.evaluation.promotion.season_plan import (
    ASSUMED_COMPONENTS,
    LeadPower,
    count_task_uses,
    declare_night,
    lead_powers,
)
from ratchet.components.nights.episode_sets import evaluations_folder
from ratchet.components.nights.night_sampling import draw_least_used
from ratchet.components.nights.night_state import Night, list_nights, next_night, night_decision, running_night
from ratchet.components.nights.recipe_config import CHAMPION, CONTROL, SCRATCH, Recipe, Stage, load_recipe
from ratchet.components.nights.scale_config import Scale, load_scale
from ratchet.components.operations.host_checks import TrainingMemory, training_memory
from ratchet.components.statistics.bootstrap import families_for_margin
from ratchet.components.statistics.power_analysis import clustered_design, minimum_detectable_effect
from ratchet.components.tasksets import load_taskset
from ratchet.components.tracking import model_registry
from ratchet.components.training.config.job_config import AnyJob
from ratchet.components.training.memory_estimate import PROCESS_BYTES, MemoryEstimate, estimate_memory, model_size
from ratchet.components.trajectories.shards import read_manifest
from ratchet.flows.night_context import ROLLOUTS_FOLDER
from ratchet.flows.steps.declare import DECLARED_STEP, TASKS_STEP, past_nights

PAST_NIGHTS = 5
"""Estimates are medians over at most this many of the latest nights."""
LEADS = (0.02, 0.04, 0.06, 0.08, 0.1, 0.12, 0.15, 0.2)
"""Leads whose power is planned, in shares of attempts, beside the rule's minimum effect."""
SIZES = ((0.5, 1), (1, 0.5), (1, 1), (1, 2), (2, 1), (4, 1))
"""Other designs that are planned: factors of tonight's tasks and attempts."""
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
    """A training job and its memory in each process; `problem` says why there is no estimate."""

    name: str
    method: str
    base: str
    memory: MemoryEstimate | None
    problem: str = ""


class PlannedDesign(msgspec.Struct, frozen=True):
    """The least lead that a number of tasks and attempts shows with the rule's power; None where none does."""

    tasks: int
    attempts: int
    detectable: float | None


class PlannedMargin(msgspec.Struct, frozen=True):
    """A guardrail. `families`: how many show the margin where none loses anything, of the `available` ones; `passes`:
    chance that an equal challenger passes with the spread of the last decided night, None before there is one.
    """

    name: str
    margin: float
    families: int | None
    available: int
    passes: float | None


class NightPlan(msgspec.Struct, frozen=True):
    """Plan of one night. `past`: ids of the nights that the estimates rest on; `running`: the night that runs now, if any.
    `needed`: bytes that training needs at once in each device; `fits`: whether the memory holds it, None if unknown.
    """

    night: str
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
    needed: int | None
    fits: bool | None
    taskset: str
    declaration: NightDeclaration
    variance_of: str | None
    leads: tuple[LeadPower, ...]
    designs: tuple[PlannedDesign, ...]
    margins: tuple[PlannedMargin, ...]

    @property
    def seconds(self) -> float | None:
        """Time of the steps that are still to do; None where any of them is unknown."""
        parts = [step.seconds for step in self.steps if step.state == "to do"]
        return None if None in parts else sum(part for part in parts if part is not None)


def plan_night(
    scale: str = "smoke", seed: int | None = None, night: str | None = None, recipe: str | None = None
) -> NightPlan:
    """Return the plan of the night that `ratchet night` with the same arguments would resume or begin. Raises
    RatchetError.
    """
    import shutil

    parameters = load_scale(scale)
    state = next_night(scale, seed, night, recipe)
    how = load_recipe(state.recipe or parameters.recipe, parameters.size)
    others = [other for other in list_nights() if other.id != state.id]
    past = _PastNights([other for other in others if other.scale == state.scale], how, parameters)
    champion = _champion(state)
    declaration, families = _declaration(parameters, state)
    steps = tuple(_Steps(state, parameters, how, past, champion, declaration).all())
    memory = training_memory()
    jobs = tuple(_jobs(parameters, how, champion, state, memory))
    needed = _needed_memory(jobs, how, memory)
    decided = [(other.id, decision) for other in others if (decision := night_decision(other)) is not None]
    spreads = [(id, decision.spread) for id, decision in decided if decision.spread is not None]
    components = spreads[-1][1] if spreads else None
    design = clustered_design(families, declaration.attempts, components or ASSUMED_COMPONENTS)
    rule = parameters.promotion
    leads = sorted({*LEADS, rule.minimum_effect})
    scaled = [(round(tasks * design.tasks), max(1, round(attempts * design.attempts))) for tasks, attempts in SIZES]
    return NightPlan(
        night=state.id,
        resumes=bool(state.results),
        running=running_night(),
        scale=parameters.name,
        recipe=how.name,
        seed=state.seed,
        champion=champion and champion.policy_version,
        past=tuple(night.id for night in past.nights),
        steps=steps,
        disk_free=shutil.disk_usage(Path()).free,
        memory=memory,
        jobs=jobs,
        needed=needed,
        fits=None if needed is None else needed <= memory.total,
        taskset=parameters.taskset,
        declaration=declaration,
        variance_of=spreads[-1][0] if spreads else None,
        leads=lead_powers(rule, past_nights(state), design, leads),
        designs=tuple(
            PlannedDesign(
                tasks,
                attempts,
                minimum_detectable_effect(
                    msgspec.structs.replace(design.scaled_to(tasks), attempts=attempts),
                    target_power=rule.power,
                    alpha=declaration.level,
                ),
            )
            for tasks, attempts in dict.fromkeys(scaled)
        ),
        margins=tuple(_margins(rule, parameters, declaration, families, decided[-1][1] if decided else None)),
    )


class _Champion(msgspec.Struct, frozen=True):
    policy_version: str
    checkpoint: str | None
    nights: tuple[str, ...]


def _champion(state: Night) -> _Champion | None:
    """Return the champion that the night uses: its own where it has looked already, else that of the registry."""
    for step in ("register cold-start", "champion"):
        if (model := state.results.get(step)) is not None:
            return _Champion(model["policy_version"], model["checkpoint"], tuple(model["nights"]))
    version = model_registry.aliases().get(model_registry.CHAMPION)
    if version is None:
        return None
    ref = model_registry.get_version(version)
    nights = tuple(night for night in ref.tags.get("nights", "").split(",") if night)
    return _Champion(ref.policy_version, None if ref.path is None else str(ref.path), nights)


def _declaration(scale: Scale, state: Night) -> tuple[NightDeclaration, list[str]]:
    """Return what the night has declared, or would declare now, and the family of each deciding task."""
    taskset, past = load_taskset(scale.taskset), past_nights(state)
    tasks = state.result(TASKS_STEP, tuple[str, ...])
    if tasks is None:
        pools = {role: taskset.tasks(role) for role in DECIDING_ROLES}
        tasks = draw_least_used(pools, scale.evaluation.promote, state.seed, count_task_uses(past))
    families = [taskset.by_id[task].family for task in tasks]
    declared = state.result(DECLARED_STEP, NightDeclaration)
    attempts = scale.evaluation.attempts
    return declared or declare_night(scale.promotion, past, families, attempts, at=state.begun), families


class _PastNights:
    """The latest nights of a scale, for medians. Steps that depend on the recipe are taken from nights with the same one."""

    def __init__(self, nights: Sequence[Night], recipe: Recipe, scale: Scale) -> None:
        timed = [night for night in nights if night.durations]
        self.nights = timed[-PAST_NIGHTS:]
        same = [night for night in timed if (night.recipe or scale.recipe) == recipe.name]
        self.same_recipe = same[-PAST_NIGHTS:]

    def step(
        self, name: str, steps: "StepNames", *, episodes: int = 0, by_recipe: bool = False, **fields: Any
    ) -> PlannedStep:
        """Return a planned step. `steps`: its names in the state of a past night; with `episodes` its time is scaled by
        the number of episodes.
        """
        seconds = []
        for night in self.same_recipe if by_recipe else self.nights:
            taken = [night.seconds[step] for step in steps(night) if step in night.seconds]
            played = _episodes(night.results.get(name)) if episodes else 0
            if taken and (played or not episodes):
                seconds.append(sum(taken) * (episodes / played if episodes else 1))
        median = statistics.median(seconds) if seconds else None
        return PlannedStep(name, seconds=median, nights=len(seconds), **fields)

    def bytes_of(
        self, place: Callable[[Night], Path], copies: int = 1, *, of: str = "", episodes: int = 0
    ) -> int | None:
        """Return the median size of a folder of past nights times `copies`; with `episodes` scaled by those of step `of`."""
        sizes = []
        for night in self.nights:
            size, played = _folder_bytes(place(night)), _episodes(night.results.get(of)) if episodes else 0
            if size and (played or not episodes):
                sizes.append(size * (episodes / played if episodes else 1))
        return round(statistics.median(sizes) * copies) if sizes else None


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


class _Steps:
    """The steps of a night in their order."""

    def __init__(
        self,
        state: Night,
        scale: Scale,
        recipe: Recipe,
        past: _PastNights,
        champion: _Champion | None,
        declaration: NightDeclaration,
    ) -> None:
        self.state, self.scale, self.recipe, self.past = state, scale, recipe, past
        self.champion, self.agents = champion, 4 if declaration.match else 3
        # A sealed file stands in the work tree, in DVC's cache and, where that is a folder, in the remote.
        self.copies = 2 + (not _is_remote_elsewhere())

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
        yield self._collect("attempts", lambda night: night.id, scale.collection)
        if scale.judge is not None:
            yield self._judge()
        yield self._build("build", self._cached_scores())
        yield self.past.step("traces", lambda _: ("traces",))
        for stage in self.recipe.stages:
            yield from self._stage(stage)
        parallel = self.recipe.plain_sft_stage is not None
        note = "trained beside the challenger: the time is what remains after it" if parallel else ""
        yield self._train("train control", "control", note=note)
        episodes = (scale.evaluation.promote + scale.evaluation.audit) * scale.evaluation.attempts * self.agents
        yield self.past.step(
            "evaluate",
            lambda night: ("evaluate", *(step for step in night.seconds if step.startswith("look "))),
            episodes=episodes,
            disk=self.past.bytes_of(lambda night: evaluations_folder() / night.id, of="evaluate", episodes=episodes),
            note=f"{episodes:,} episodes of {self.agents} agents",
        )
        yield self.past.step("publish", lambda _: ("publish",))

    def _collect(self, title: str, name: Callable[[Night], str], play: Any) -> PlannedStep:
        episodes, step = play.tasks * play.attempts, f"collect {title}"
        teacher = self.scale.teacher if title == "demonstrations" else ""
        billed = teacher.startswith("openai:") or teacher.endswith((".yaml", ".yml"))
        kept = sum(entry.episodes for entry in read_manifest(home() / "spool" / name(self.state)))
        note = f"{episodes:,} episodes" + (f", {kept:,} of them played already" if kept else "")
        return self.past.step(
            step,
            lambda _: (step,),
            episodes=episodes,
            disk=self.past.bytes_of(
                lambda night: ROLLOUTS_FOLDER / name(night), self.copies, of=step, episodes=episodes
            ),
            money=None if billed else 0.0,
            note=note + ("; the teacher's server may ask money" if billed else ""),
        )

    def _judge(self) -> PlannedStep:
        judging = self.scale.judge
        assert judging is not None
        limits = judging.budget
        paid = [model for model in judging.models if model.price is None or any(model.price.model_dump().values())]
        bounds = [f"{limit:,g} {name}" for name, limit in limits.model_dump().items() if limit is not None]
        return self.past.step(
            "judge",
            lambda _: ("judge",),
            money=limits.money if paid else 0.0,
            note=f"at most {', '.join(bounds)}" if bounds and judging.has_judge_models else "",
        )

    def _build(self, step: str, note: str) -> PlannedStep:
        stages = dvc_lock.read_lock(dvc_lock.LOCK).get("stages") or {}
        outputs = [out.get("size", 0) for stage in stages.values() for out in stage.get("outs") or ()]
        disk = self.copies * sum(outputs) if outputs else None
        return self.past.step(step, lambda _: (step,), disk=disk, note=note)

    def _cached_scores(self) -> str:
        """Return in words which nights a build scores anew; every later stage runs, since a night is added."""
        finished = [night.id for night in list_nights() if night.is_finished]
        names = list(dict.fromkeys([*(self.champion.nights if self.champion else ()), *finished]))
        sealed = [
            name
            for name in names
            if (ROLLOUTS_FOLDER / name).is_dir() or Path(f"{ROLLOUTS_FOLDER / name}.dvc").is_file()
        ]
        if not sealed:
            return "nothing is cached: it is the first night"
        return f"scores of {len(dvc_lock.cached_scores(sealed))} of {len(sealed)} earlier nights are cached"

    def _train(self, step: str, title: str, *, by_recipe: bool = True, note: str = "") -> PlannedStep:
        disk = self.past.bytes_of(lambda night: night.folder / "training" / title)
        return self.past.step(step, lambda _: (step,), by_recipe=by_recipe, disk=disk, note=note)

    def _stage(self, stage: Stage) -> Iterable[PlannedStep]:
        """Yield the steps of a recipe's stage."""
        if stage.sample is not None:
            yield self._collect(stage.name, lambda night: f"{night.id}-{stage.name}", stage.sample)
            build = f"build {self.state.id}-{stage.name}"
            yield self.past.step(build, lambda night: (f"build {night.id}-{stage.name}",), by_recipe=True)
            return
        title = "challenger" if stage.name == self.recipe.challenger else f"{self.recipe.name}-{stage.name}"
        yield self._train(f"train {title}", title)
        if stage.choose is not None:
            choose = f"choose checkpoint of {title}"
            yield self.past.step(choose, lambda _: (choose,), by_recipe=True)

    def _rest(self, claimed: set[str]) -> PlannedStep:
        """Return a row for all steps that have no row of their own."""

        def rest(night: Night) -> Iterable[str]:
            mine = claimed | {step.replace(self.state.id, night.id) for step in claimed}
            return (step for step in night.seconds if step not in mine and not step.startswith("look "))

        whole = [night for night in self.past.nights if night.is_finished]
        seconds = [sum(night.seconds[step] for step in rest(night)) for night in whole]
        return PlannedStep(OTHER_STEPS, seconds=statistics.median(seconds) if seconds else None, nights=len(whole))


def _is_remote_elsewhere() -> bool:
    """Return whether the data's remote is a server; also where none is configured: then there is no third copy."""
    try:
        return "://" in (dvc_client.remote_override() or dvc_client.remote_url(Path()))
    except RatchetError:
        return True


def _jobs(
    scale: Scale, recipe: Recipe, champion: _Champion | None, state: Night, memory: TrainingMemory
) -> Iterable[PlannedJob]:
    """Yield the training jobs of a night with their memory."""
    data = {"train": "train.jsonl"}
    base = champion.checkpoint if champion else None
    first = scale.cold_start.job(Path("output"), {"train": Path("train.jsonl")}, seed=state.seed)
    if champion is None:
        yield _job("cold start", first, memory)
    # The first champion has the sizes of the model that it is trained from.
    start = base or (first.model.base if champion is None else None)
    scratch = first.model if champion is None and start is None else None
    control = recipe.plain_sft_stage or load_recipe(CONTROL, scale.size).stages[0]
    for stage, name in [(stage, stage.name) for stage in recipe.stages if stage.trains] + [(control, "control")]:
        files: dict[str, Any] = {"trajectories": ["rollouts"]} if stage.method == "prm" else data
        job = stage.build_job(
            Path("output"),
            files,
            seed=state.seed,
            base=None if stage.begin == SCRATCH else start,
            step_model=stage.step_model,
        )
        if scratch is not None and stage.begin != SCRATCH:
            job = job.model_copy(update={"model": job.model.model_copy(update={"shape": scratch.shape})})
        title = "challenger" if name == recipe.challenger else name
        if champion is None or stage.begin != CHAMPION:
            yield _job(title, job, memory)
        elif base is None:
            problem = "the champion's checkpoint is not on this machine"
            yield PlannedJob(title, job.method, champion.policy_version, None, problem)
        else:
            yield msgspec.structs.replace(_job(title, job, memory), base=champion.policy_version)


def _job(name: str, job: AnyJob, memory: TrainingMemory) -> PlannedJob:
    base = job.model.base or "a new model"
    try:
        size = model_size(job.model)
    except RatchetError as error:
        return PlannedJob(name, job.method, base, None, str(error))
    processes = max(1, memory.devices) if job.run.launch != "single" else 1
    estimate = estimate_memory(job, size, processes=processes, bfloat16=memory.devices > 0)
    return PlannedJob(name, job.method, base, estimate)


def _needed_memory(jobs: Sequence[PlannedJob], recipe: Recipe, memory: TrainingMemory) -> int | None:
    """Return the bytes that the largest job needs, or on a host without a GPU challenger and control together."""
    if any(job.memory is None for job in jobs):
        return None
    totals = {job.name: job.memory.total + PROCESS_BYTES for job in jobs if job.memory is not None}
    pair = totals["challenger"] + totals["control"] if recipe.plain_sft_stage and not memory.devices else 0
    return max(*totals.values(), pair)


def _margins(
    rule: PromotionRule, scale: Scale, declaration: NightDeclaration, families: Sequence[str], last: Decision | None
) -> Iterable[PlannedMargin]:
    """Yield the guardrails, and of the kinds of task the one that an equal challenger passes least often."""
    guards = {guard.name: guard for guard in last.guardrails} if last else {}
    available = len(set(families))
    shares = {"invalid_call_rate": (declaration.margins["invalid_call_margin"], 1.0)}
    shares["unsafe_actions"] = (declaration.margins["unsafe_margin"], 1.0)
    for name, key in (("mean_steps", "steps_margin"), ("tokens", "tokens_margin"), ("cost", "cost_margin")):
        shares[name] = (declaration.margins[key], RUNAWAY_FACTOR)
    for name, (margin, worst) in shares.items():
        if margin is not None:
            least = families_for_margin(margin, worst, rule.guardrail_alpha)
            yield PlannedMargin(name, margin, least, available, _chance_if_equal(guards.get(name), rule))
    if rule.kind_margin is None:
        return
    tasks = load_taskset(scale.taskset).tasks(Role.PROMOTE)
    chosen = set(families)
    counts: dict[str, set[str]] = {}
    for task in tasks:
        if task.family in chosen:
            counts.setdefault(task.kind, set()).add(task.family)
    chances = [
        (chance, name)
        for name, guard in guards.items()
        if name.startswith(KIND_PREFIX) and (chance := _chance_if_equal(guard, rule)) is not None
    ]
    least = families_for_margin(rule.kind_margin, 1.0, rule.guardrail_alpha)
    fewest = min((len(of) for of in counts.values()), default=0)
    hardest = min(chances, default=(None, ""))
    title = f"success of each of {len(counts)} kinds" if len(counts) != 1 else "success of the one kind"
    yield PlannedMargin(title, rule.kind_margin, least, fewest, hardest[0])


def _chance_if_equal(guard: Guardrail | None, rule: PromotionRule) -> float | None:
    """Return the chance that an equal challenger passes, with the spread of a tested guardrail; None for one without
    an interval.
    """
    if guard is None or guard.difference is None or guard.difference.interval is None or guard.difference.value is None:
        return None
    from statistics import NormalDist

    value, interval = guard.difference.value, guard.difference.interval
    sides = (interval.high - value, value - interval.low)
    limit, other = sides if guard.better == "lower" else sides[::-1]
    # The worse side holds the allowance for an unseen family too; the other side is sampling error alone.
    error = max(other, 0.0) / NormalDist().inv_cdf(1 - rule.guardrail_alpha)
    room = guard.margin - limit
    return NormalDist().cdf(room / error) if error > 0 else float(room >= 0)
