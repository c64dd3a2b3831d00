"""The task that compares the agents of a night and writes the decision record."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec
from prefect import task
from prefect.cache_policies import NO_CACHE

from ratchet.components.core.files import write_atomically
from ratchet.components.evaluation.agent_results import AgentResult
from ratchet.components.evaluation.promotion.decision_record import TasksetRef, TrainedAgents
from ratchet.components.evaluation.promotion.promotion_decision import decide_promotion
from ratchet.components.evaluation.promotion.promotion_rule import LookResult, NightDeclaration, PromotionRule
from ratchet.components.reporting.progress_display import current_display
from ratchet.components.tasksets import load_taskset


@task(name="compare", task_run_name="compare {night}", cache_policy=NO_CACHE)
def decide_night(
    read: Callable[[], Mapping[str, AgentResult]],
    taskset: str,
    rule: PromotionRule,
    record: Path | None,
    *,
    night: str,
    seed: int,
    trained: TrainedAgents | None = None,
    declared: NightDeclaration | None = None,
    looked: tuple[LookResult, ...] = (),
) -> dict[str, Any]:
    """Compare champion, challenger and, if present, control and anchor; return the decision as JSON values.

    `read` reads all episodes of the night and returns results by agent. `record`: file to which the decision is
    written, None at an interim look. `looked`: results of earlier looks.
    """
    with current_display().step("compare") as step:
        results, played = read(), load_taskset(taskset)
        decision = decide_promotion(
            results["champion"],
            results["challenger"],
            results.get("control"),
            TasksetRef(played.name, played.version, played.hash, played.split_by),
            rule,
            night=night,
            seed=seed,
            trained=trained,
            declared=declared,
            anchor=results.get("anchor"),
            looked=looked,
        )
        if record is not None:
            record.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(record, decision.text.encode())
        step.update(remark=decision.verdict)
    encoded: dict[str, Any] = msgspec.to_builtins(decision)
    return encoded
