"""Collect and evaluate episodes, and validate tasksets, in this process, with any policy and without a Prefect server.

The seed fixes the tasks and the world of each attempt for every policy alike, so two agents evaluated with the same
seed can be compared attempt by attempt. The folder is named by a hash of everything that decides what is played: the
same call resumes, and a different call uses a different folder.
"""

import math
import os
import re
import sys
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from ratchet.components.core import ConfigurationError, DataError, RatchetError, Role, list_envs, make, spec
from ratchet.components.core.files import file_sha256
from ratchet.components.core.home import home_folder
from ratchet.components.core.processes import run_job_process
from ratchet.components.evaluation.agent_metrics import Quantiles, known_quantiles
from ratchet.components.evaluation.agent_results import AgentResult
from ratchet.components.models import checkpoint_folders
from ratchet.components.models.best_of_policy import BestOfName
from ratchet.components.nights.episode_sets import read_agent_result
from ratchet.components.nights.night_sampling import draw_tasks
from ratchet.components.nights.scale_config import EvaluationConfig, load_scale
from ratchet.components.reporting.progress_display import ProgressDisplay, ProgressStep
from ratchet.components.rollouts.collection import collect
from ratchet.components.rollouts.collection_plan import CollectPlan, plan_hash
from ratchet.components.rollouts.collection_progress import CollectionProgress, CollectReport
from ratchet.components.rollouts.episode_runner import planned_version
from ratchet.components.sandboxes import SandboxConfig, describe_backend, make_sandbox, resolve_backend
from ratchet.components.tasksets import Taskset, load_taskset, tasksets_played_in
from ratchet.components.tasksets.validation import validate_taskset
from ratchet.components.training.perplexity import PerplexityJob, PerplexityReport
from ratchet.components.trajectories.shards import MANIFEST, read_folder
from ratchet.components.trajectories.terminal_rendering import single_line
from ratchet.components.trajectories.trajectory import digest
from ratchet.components.trajectories.trajectory_list import Trajectories

if TYPE_CHECKING:
    from ratchet.components.datasets.versioning import BuildRequest


def list_environments() -> list[dict[str, Any]]:
    """Return every registered environment with its tools and tasksets; `missing` says why an environment cannot run on
    this machine.
    """
    environments = []
    for id in list_envs():
        registration = spec(id)
        tools, missing = _tools(id)
        environments.append(
            {
                "id": id,
                "domain": registration.domain,
                "description": registration.description,
                "sandboxed": registration.sandboxed,
                "tools": tools,
                "tasksets": tasksets_played_in(id),
                "missing": missing,
            }
        )
    return environments


def _tools(id: str) -> tuple[list[str], str]:
    try:
        with make(id, max_steps=1) as environment:
            return list(environment.available_tools), ""
    except (RatchetError, ImportError, AttributeError) as error:
        return [], " ".join(str(error).split())


def describe_sandbox(taskset: str | Path, config: SandboxConfig) -> str | None:
    """Return in one line which sandbox runs a taskset's commands and why; None where its environment runs no commands.

    Raises SandboxUnavailable where `config` requires a back end that is not available.
    """
    return describe_backend(config) if spec(load_taskset(taskset).head.environment).sandboxed else None


def validate_in_sandbox(taskset: str, *, role: str | None, limit: int | None, backend: str) -> dict[str, Any]:
    """Validate a taskset's tasks in a sandbox; return the report with its duration.

    `role` None: of all roles. `limit`: only the first tasks; None: all.
    """
    config = SandboxConfig.load({"backend": backend})
    loaded_taskset = load_taskset(taskset)
    selection = Taskset(loaded_taskset.head, tuple(loaded_taskset.tasks(role)[:limit]))
    total, done = len(selection.tasks()), 0
    begin = time.perf_counter()
    with ProgressDisplay() as display, display.step(f"validate {loaded_taskset.name}") as step:

        def advance(_: object) -> None:
            nonlocal done
            done += 1
            step.update(done, total)

        report = validate_taskset(
            selection,
            lambda: make_sandbox(config),
            workers=2 * (os.cpu_count() or 1),
            on_task=advance,
            of_image=lambda image: make_sandbox(config.model_copy(update={"image": image})),
        )
        step.update(
            remark=f"{report.tasks - len({problem.task_id for problem in report.problems})} of {total} are valid"
        )
    values: dict[str, Any] = msgspec.to_builtins(report)
    return {
        **values,
        "taskset_hash": loaded_taskset.hash,
        "backend": resolve_backend(backend),
        "seconds": time.perf_counter() - begin,
    }


def resolve_policy(policy: str) -> str:
    """Return the policy of the registered checkpoint for `champion`, @ALIAS and @VERSION, within `best-of-…` too; return
    other policies unchanged.

    Raises ConfigurationError for one that is not registered.
    """
    if best_of := BestOfName.parse(policy):
        return str(best_of._replace(policy=resolve_policy(best_of.policy)))
    if policy.startswith("@"):
        return _registered_policy(policy.removeprefix("@"))
    if policy != "champion":
        return policy
    from ratchet.components.nights.night_models import champion_model

    model = champion_model()
    if model is None:
        raise ConfigurationError("there is no champion yet; run `ratchet night`, or name another model or policy")
    return model.policy_name


def _registered_policy(which: str) -> str:
    from ratchet.components.nights.night_models import download_model
    from ratchet.components.tracking import model_registry
    from ratchet.components.tracking.model_registry import aliases, version_named

    version = version_named(which)
    if version is None:
        names = ", ".join(f"@{name}" for name in aliases()) or "none"
        raise ConfigurationError(f"no registered model has the alias '{which}'; aliases: {names}; or give @VERSION")
    return download_model(model_registry.get_version(version)).policy_name


def collect_into(
    folder: Path,
    *,
    policy: str,
    taskset: str,
    role: str,
    tasks: int | None,
    attempts: int,
    seed: int,
    scale: str,
    **changes: Any,
) -> dict[str, Any]:
    """Run a collection in this process into `folder`; return its report. `tasks`: how many (None: all). `changes`:
    fields that override the scale's plan, unless None.
    """
    parameters = load_scale(scale)
    if taskset != parameters.taskset:  # a scale's turns are those of its own tasks
        parameters = parameters.model_copy(update={"taskset": taskset, "max_turns": None})
    candidates = load_taskset(taskset).tasks(role)
    task_ids = draw_tasks(candidates, tasks or len(candidates), seed, "collection")
    play = parameters.collection.model_copy(update={"tasks": len(task_ids), "attempts": attempts})
    plan = parameters.plan(play, resolve_policy(policy), Role(role), task_ids, seed)
    played = play_plan(_override(plan, changes), folder, f"collect {policy}", anew="another folder or --seed")
    report: dict[str, Any] = msgspec.to_builtins(played)
    return report


def _override(plan: CollectPlan, changes: Mapping[str, Any]) -> CollectPlan:
    """Return the plan with changes that are not None, validated again: `model_copy` would accept any value."""
    return CollectPlan.load(plan.model_dump() | {name: value for name, value in changes.items() if value is not None})


FEW_REPLIES = 3
"""As many replies may be cut at the limit of their tokens, and 2 %, before a line says so."""


def play_plan(plan: CollectPlan, folder: Path, title: str, *, anew: str) -> CollectReport:
    """Play a plan into a folder in this process, with a progress line, and a note where an earlier run has played it
    all, or where many replies were cut. `anew`: what to change in the command to play it again. Raises RatchetError.
    """
    sandbox_line = describe_sandbox(plan.taskset, plan.sandbox)
    latest = CollectionProgress(0)

    def show(progress: CollectionProgress) -> None:
        nonlocal latest
        latest = progress
        step.update(progress.done, progress.total, progress.remark())

    with ProgressDisplay() as display:
        with display.step(title) as step:
            if sandbox_line:
                display.say(sandbox_line)
            report = collect(plan, folder, on_progress=show)
        if report.replayed == 0:
            finished = datetime.fromtimestamp((folder / MANIFEST).stat().st_mtime, UTC)
            display.say(
                f"nothing was played: the {report.episodes} episodes were read from {folder}, finished "
                f"{finished:%Y-%m-%d %H:%M} UTC; to play anew give {anew}, and for a server whose model has changed "
                "another `revision` in its YAML file"
            )
        if any(cause.startswith("policy: ") for cause in report.failures):
            failed = Trajectories(each for each in read_folder(folder) if each.failure is not None)
            for cause, message in failed.failures.items():
                display.say(f"first failure of {cause}: {single_line(message)}")
        if latest.cut_replies > max(FEW_REPLIES, latest.replies // 50):
            display.say(
                f"{latest.cut_replies} of {latest.replies} replies were cut at max_new_tokens (the scale's is "
                f"{plan.max_new_tokens}); set more in the scale, or for a server in openai:FILE.yaml"
            )
    return report


def build_nights(request: "BuildRequest", *, force: bool) -> dict[str, Any]:
    """Run a data build; return the BuildReport, and as `quality_page` the path of the page of its verdicts, which is
    written for a failed build too. `force`: repeat stages that are up to date. Raises ConfigurationError for an unknown scale.
    """
    from ratchet.components.datasets import versioning

    from .quality_pages import write_quality_page

    if request.scale is not None:
        request = msgspec.structs.replace(request, scale=load_scale(request.scale).name)
    with ProgressDisplay() as display:
        for line in versioning.repair_damaged_files():
            display.say(line)
        inputs = versioning.requested_inputs(request, datetime.now(UTC).date().isoformat())
        with display.step("build") as step:
            try:
                report = versioning.build(inputs, force=force, on_stage=lambda stage: step.update(remark=stage))
            except DataError:
                if (page := write_quality_page(failed=True)) is not None:
                    display.say(f"verdicts on the data: {page}")
                raise
    page = write_quality_page()
    values: dict[str, Any] = msgspec.to_builtins(report) | {"quality_page": page and str(page)}
    return values


def checkout_night(night: str, into: Path | None, remote: str | None) -> dict[str, Any]:
    """Restore a night's data; return its folder and the verified hashes. `into` None: the default folder; `remote`
    None: the default DVC remote.
    """
    from ratchet.components.datasets import versioning

    with ProgressDisplay() as display, display.step(f"check out {night}"):
        checkout = versioning.checkout_night(night, into, remote=remote)
    return {"night": checkout.night, "commit": checkout.commit, "place": str(checkout.place), "data": checkout.data}


def measure_held_out(model: str, data: Path, step: ProgressStep, *, max_length: int | None = None) -> PerplexityReport:
    """Return the perplexity of a checkpoint (folder or hub id) on exported SFT rows, measured in a process of its own.

    `max_length`: longest row in tokens (None: the default). Results are cached by weights and rows; a hub id is
    measured anew each time. Raises RatchetError.
    """
    if not data.is_file():
        raise ConfigurationError(f"{data} is no file; give exported rows, such as data/datasets/sft/validation.jsonl")
    version = checkpoint_folders.checkpoint_version(Path(model)) if Path(model).is_dir() else model
    folder = home_folder("evaluations", "held-out", digest(version, file_sha256(data), max_length))
    report = folder / "report.json"
    if not report.is_file() or version == model:  # a hub's id may mean other weights tomorrow
        job = folder / "job.json"
        (folder / "error.json").unlink(missing_ok=True)
        job.write_bytes(msgspec.json.encode(PerplexityJob(model, str(data.absolute()), str(folder), max_length)))
        step.update(remark=f"reading {data.name}")
        run_job_process(
            [sys.executable, "-m", "ratchet.components.training.perplexity", str(job)],
            log=home_folder("logs") / f"perplexity-{folder.name}.log",
            error_file=folder / "error.json",
            on_poll=lambda: None,
        )
    try:
        return msgspec.json.decode(report.read_bytes(), type=PerplexityReport)
    except msgspec.DecodeError as error:
        raise DataError(f"{report}: {error}; remove it and repeat") from error


HELD_OUT_ROLES = (Role.PROMOTE, Role.AUDIT)
"""Default roles of an evaluation."""
PLAN_OVERRIDES = (
    "concurrency",
    "max_turns",
    "retries",
    "patience",
    "min_completed",
    "temperature",
    "sandbox",
    "system",
)
"""Fields of a plan that a caller may override."""


class AgentEvaluation(NamedTuple):
    """An agent's result with rewards and detected hacks, the folder of its episodes, and the plan, taskset and report
    of their collection.
    """

    result: AgentResult
    folder: Path
    plan: CollectPlan
    taskset: Taskset
    report: CollectReport


def evaluate_agent(
    policy: str,
    taskset: str | Path | None = None,
    *,
    k: int | None = None,
    seed: int = 0,
    role: str | None = None,
    tasks: int | None = None,
    scale: str = "smoke",
    out: Path | None = None,
    **changes: Any,
) -> AgentEvaluation:
    """Play a taskset's tasks (default: the scale's) k times each with any policy, and return the results.

    `role`: by default promote and audit. `tasks`: number of tasks per role; by default the scale's numbers for its own
    taskset, else all. `changes` override fields of the plan (PLAN_OVERRIDES). Results are kept in `out` (default: a folder
    below `.ratchet/evaluations`); repeating the call resumes there. Raises RatchetError; ConfigurationError for a folder
    with other episodes.

    >>> evaluation = ratchet.evaluate_agent("teacher", "orders", k=1, tasks=2, role="promote")
    >>> evaluation.result.tasks[0].success_rate
    1.0
    """
    if unknown := sorted(changes.keys() - set(PLAN_OVERRIDES)):
        raise ConfigurationError(f"an evaluation has no '{unknown[0]}'; what may be given: {', '.join(PLAN_OVERRIDES)}")
    parameters = load_scale(scale)
    is_scale_taskset = str(taskset or parameters.taskset) == parameters.taskset
    if not is_scale_taskset:  # a scale's turns are those of its own tasks
        parameters = parameters.model_copy(update={"taskset": str(taskset), "max_turns": None})
    loaded_taskset = load_taskset(parameters.taskset)
    play = EvaluationConfig.load(parameters.evaluation.model_dump() | ({} if k is None else {"attempts": k}))
    counts = {Role.PROMOTE: play.promote, Role.AUDIT: play.audit} if is_scale_taskset else {}
    task_ids = _draw_by_role(loaded_taskset, counts, seed, role, tasks)
    plan = parameters.plan(play, resolve_policy(policy), Role(role or Role.PROMOTE), task_ids, seed)
    plan = _override(plan, changes)
    folder = out or _evaluation_folder(policy, plan, loaded_taskset)
    report = play_plan(plan, folder, f"evaluate {policy}", anew="--out or another --seed")
    return AgentEvaluation(read_agent_result(policy, folder), folder, plan, loaded_taskset, report)


def _draw_by_role(
    taskset: Taskset, counts: Mapping[Role, int], seed: int, role: str | None, count: int | None
) -> tuple[str, ...]:
    """Draw tasks of each role as a night does: `count`, else as many as `counts` says, else all.

    Raises ConfigurationError where there are too few.
    """
    if count is not None and count < 1:
        raise ConfigurationError(f"{count} tasks cannot be played; give at least 1")
    task_ids: list[str] = []
    for task_role in HELD_OUT_ROLES if role is None else (role,):
        candidates = taskset.tasks(task_role)
        task_count = count if count is not None else counts.get(Role(task_role), len(candidates))
        if role is None and task_role == Role.AUDIT:
            task_count = min(task_count, len(candidates))  # a taskset need not have any
        task_ids += draw_tasks(candidates, task_count, seed, Role(task_role).value)
    if not task_ids:
        raise ConfigurationError(f"taskset '{taskset.name}' has no tasks of role {role or 'promote'}; give --role")
    return tuple(task_ids)


def _evaluation_folder(policy: str, plan: CollectPlan, taskset: Taskset) -> Path:
    """Return a readable folder name that is unique to these episodes."""
    identity = plan_hash(plan, planned_version(plan, taskset), taskset.hash)
    name = re.sub(r"[^\w.-]+", "-", policy)[-40:].strip("-.") or "policy"
    return home_folder("evaluations", "by-hand", f"{name}-s{plan.seed}-{identity[:8]}")


class HeldOutPrediction(NamedTuple):
    """Perplexity of a checkpoint (`model`, its folder) on held-out SFT rows (`data`, their file).

    `row_perplexity`: distribution of the perplexities of single rows; None if no row has a trained token.
    """

    model: str
    data: str
    figures: PerplexityReport
    row_perplexity: Quantiles | None


def predict_held_out(policy: str, data: Path, *, max_length: int | None = None) -> HeldOutPrediction:
    """Return perplexity and token accuracy of a policy's checkpoint on exported SFT rows. Nothing is played.

    Raises ConfigurationError for a policy other than `champion`, `transformers:FOLDER` and `vllm:FOLDER`, and the errors
    of `measure_held_out`.
    """

    resolved = resolve_policy(policy)
    kind, _, model_folder = resolved.partition(":")
    if kind not in ("transformers", "vllm") or not model_folder or "{" in model_folder:
        raise ConfigurationError(
            f"{policy} has no weights that can be read; --data is for champion, transformers:FOLDER or vllm:FOLDER"
        )
    with ProgressDisplay() as display, display.step(f"predict {data.name}") as step:
        figures = measure_held_out(model_folder, data, step, max_length=max_length)
        step.update(remark=f"perplexity {figures.perplexity:.4g}")
    return HeldOutPrediction(
        model_folder, str(data), figures, known_quantiles([math.exp(min(loss, 700.0)) for loss in figures.row_losses])
    )
