"""The parts of a night by hand: what the single commands do. Nothing here needs a Prefect server."""

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from components.environments.tasksets import load
from components.evaluation.metrics import summary
from components.evaluation.promotion import Decision, decide
from components.protocol import ConfigurationError, Role
from components.rollouts.collect import collect
from components.rollouts.plan import CollectPlan
from components.rollouts.progress import Progress
from components.trajectories.shards import read_manifest
from tasks.display import Display, Step
from tasks.home import folder as local
from tasks.player import remark_of

from .choice import draw
from .scale import load_scale

if TYPE_CHECKING:
    from components.versioning import Request


def policy_named(policy: str) -> str:
    """`champion` as the checkpoint that it is; any other policy as it was given."""
    if policy != "champion":
        return policy
    from tasks.registry import find_champion

    model = find_champion.fn()
    if model is None:
        raise ConfigurationError("there is no champion yet; run `ratchet night`, or give --policy teacher")
    return model.policy


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
    """One collection in this process; its report. `changes`: fields of the plan that differ from the scale's, None where not."""
    parameters = load_scale(scale)
    if taskset != parameters.taskset:  # a scale's turns are those of its own tasks
        parameters = parameters.model_copy(update={"taskset": taskset, "max_turns": None})
    found = load(taskset).tasks(role)
    chosen = draw(found, tasks or len(found), seed, "collection")
    how = parameters.collection.model_copy(update={"tasks": len(chosen), "attempts": attempts})
    plan = parameters.plan(how, policy_named(policy), Role(role), chosen, seed)
    asked = {name: value for name, value in changes.items() if value is not None}
    return _play(folder, CollectPlan.load({**plan.model_dump(), **asked}), f"collect {policy}")


def _play(folder: Path, plan: Any, title: str) -> dict[str, Any]:
    with Display() as display, display.step(title) as step:
        report = collect(plan, folder, on_progress=lambda progress: _show(step, progress))
    result: dict[str, Any] = msgspec.to_builtins(report)
    return result


def _show(step: Step, progress: Progress) -> None:
    step.update(progress.done, progress.total, remark_of(progress))


def evaluate_policy(policy: str, scale: str, seed: int, out: Path | None) -> tuple[dict[str, dict[str, Any]], Path]:
    """A policy on a scale's held-out tasks: its figures by role, and the folder of its episodes."""
    from tasks.evaluate import result_of

    parameters = load_scale(scale)
    held_out = parameters.evaluation
    name = policy.replace("/", "-").replace(":", "-")
    place = out or local("evaluations", "by-hand", f"{name}-s{seed}")
    taskset = load(parameters.taskset)
    roles = {Role.PROMOTE: held_out.promote, Role.AUDIT: held_out.audit}
    tasks = tuple(
        task_id for role, count in roles.items() for task_id in draw(taskset.tasks(role), count, seed, role.value)
    )
    _play(place, parameters.plan(held_out, policy_named(policy), Role.PROMOTE, tasks, seed), f"evaluate {policy}")
    result = result_of(policy, place)
    played = sorted({task.role for task in result.tasks}, reverse=True)
    return {role: msgspec.to_builtins(summary(result, role)) for role in played}, place


def compare_folders(
    champion: Path, challenger: Path, control: Path | None, scale: str, seed: int = 0
) -> dict[str, Any]:
    """The decision record over episodes that were played already."""
    from tasks.evaluate import result_of, taskset_ref

    parameters = load_scale(scale)
    folders = {"champion": champion, "challenger": challenger, **({"control": control} if control else {})}
    for place in folders.values():
        if not read_manifest(place):
            raise ConfigurationError(
                f"{place} holds no finished episodes; give a folder that `ratchet evaluate` has filled"
            )
    results = {name: result_of(name, place) for name, place in folders.items()}
    decision = decide(
        results["champion"],
        results["challenger"],
        results.get("control"),
        taskset_ref(parameters.taskset),
        parameters.promotion,
        night="by hand",
        seed=seed,
    )
    encoded: dict[str, Any] = msgspec.to_builtins(decision)
    msgspec.convert(encoded, Decision)
    return encoded


def promote_version(version: int, why: str) -> str:
    """Move the alias by hand; what has happened, in one line."""
    from components.tracking import models

    before = models.champion()
    now = models.promote(version, why=why)
    was = f"version {before.version}" if before else "none"
    return f"champion: version {now.version} ({now.policy_version}); before: {was}"


def build_nights(request: "Request", *, force: bool) -> dict[str, Any]:
    """Run the data build that is asked for; the BuildReport. Raises ConfigurationError for a scale that there is none of."""
    from components import versioning

    if request.scale is not None:
        request = msgspec.structs.replace(request, scale=load_scale(request.scale).name)
    inputs = versioning.inputs_for(request, datetime.now(UTC).date().isoformat())
    with Display() as display, display.step("build") as step:
        report = versioning.build(inputs, force=force, on_stage=lambda stage: step.update(remark=stage))
    found: dict[str, Any] = msgspec.to_builtins(report)
    return found


def checkout_night(night: str, into: Path | None, remote: str | None) -> dict[str, Any]:
    """Bring a night's data back; where it stands and the hashes that it was checked against."""
    from components import versioning

    with Display() as display, display.step(f"check out {night}"):
        found = versioning.checkout_night(night, into, remote=remote)
    return {"night": found.night, "commit": found.commit, "place": str(found.place), "data": found.data}
