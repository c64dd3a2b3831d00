"""Evaluating: the agents meet on the same held-out tasks with the same seeds, and the promotion rule decides."""

from typing import Any

import msgspec

from components.environments.tasksets import load
from components.evaluation.promotion import Decision
from components.protocol import Role
from components.tracking.results import log_agent, log_decision
from tasks.collect import play
from tasks.evaluate import compare, result_of
from tasks.home import folder
from tasks.registry import Model, promote

from .choice import draw
from .tonight import Tonight


def evaluate(tonight: Tonight, agents: dict[str, Model]) -> Decision:
    """Champion, challenger and control play promote and audit tasks; the decision record."""
    scale, held_out = tonight.scale, tonight.scale.evaluation
    taskset = load(scale.taskset)
    roles = {Role.PROMOTE: held_out.promote, Role.AUDIT: held_out.audit}
    tasks = {role: draw(taskset.tasks(role), count, tonight.seed, role.value) for role, count in roles.items() if count}
    place = folder("evaluations", tonight.id)
    folders = {name: [place / name / role.value for role in tasks] for name in agents}

    def work() -> Any:
        runs = [
            play.submit(
                f"evaluate {name} ({role.value})",
                scale.plan(held_out, model.policy, role, tasks[role], tonight.seed),
                place / name / role.value,
            )
            for role in tasks  # the longest first
            for name, model in agents.items()
        ]
        return [run.result() for run in runs]

    tonight.night.once("evaluate", work)
    record = tonight.night.folder / "decision.json"
    decision = tonight.night.once(
        "decision",
        lambda: compare(folders, scale.taskset, scale.promotion, record, night=tonight.id, seed=tonight.seed),
        Decision,
    )
    for name, places in folders.items():
        log_agent(tonight.run, name, result_of(name, places))
    log_decision(tonight.run, decision)
    return decision


def promote_or_keep(tonight: Tonight, decision: Decision, challenger: Model) -> None:
    """Turn the ratchet one tooth, or leave it where it stands."""
    if decision.verdict == "promote":
        version = challenger.version
        assert version is not None
        tonight.night.once("promote", lambda: promote(version, decision.why))


def verdict_line(decision: Decision) -> dict[str, Any]:
    """The record as plain JSON values."""
    encoded: dict[str, Any] = msgspec.to_builtins(decision)
    return encoded
