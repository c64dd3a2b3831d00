"""Evaluating: the agents meet on the same held-out tasks with the same seeds, and the promotion rule decides."""

from typing import Any

import msgspec

from components.environments.tasksets import load
from components.evaluation.promotion import Decision, Trained
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
    tasks = tuple(
        task_id
        for role, count in roles.items()
        for task_id in draw(taskset.tasks(role), count, tonight.seed, role.value)
    )
    folders = {name: folder("evaluations", tonight.id) / name for name in agents}

    def work() -> Any:
        runs = {
            name: play.submit(
                f"evaluate {name}",
                scale.plan(held_out, model.policy, Role.PROMOTE, tasks, tonight.seed),
                folders[name],
            )
            for name, model in agents.items()
        }
        return {name: run.result() for name, run in runs.items()}

    tonight.night.once("evaluate", work)
    record = tonight.night.folder / "decision.json"
    made = msgspec.convert(tonight.night.results.get("trained"), Trained | None)
    how: dict[str, Any] = {"night": tonight.id, "seed": tonight.seed, "trained": made}
    decision: Decision = tonight.night.once(
        "decision", lambda: compare(folders, scale.taskset, scale.promotion, record, **how), Decision
    )
    for name, place in folders.items():
        log_agent(tonight.run, name, result_of(name, place))
    log_decision(tonight.run, decision)
    return decision


def promote_or_keep(tonight: Tonight, decision: Decision, challenger: Model) -> None:
    """Turn the ratchet one tooth, or leave it where it stands."""
    if decision.verdict == "promote":
        version = challenger.version
        assert version is not None
        tonight.night.once("promote", lambda: promote(version, decision.why))
