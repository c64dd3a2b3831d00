"""From evaluation episodes to the decision: read the shards, compare, write the record."""

from pathlib import Path
from typing import Any

import msgspec
from prefect import task
from prefect.cache_policies import NO_CACHE

from components.environments.tasksets import load
from components.evaluation.promotion import Decision, Declared, PromotionRule, TasksetRef, Trained, decide
from components.trajectories.files import write_atomically

from .display import display
from .results import result_of, results_of

__all__ = ["compare", "result_of", "results_of", "taskset_ref", "write_decision"]


def taskset_ref(name: str) -> TasksetRef:
    """What the decision says of the taskset."""
    taskset = load(name)
    return TasksetRef(taskset.name, taskset.version, taskset.hash, taskset.split_by)


@task(name="compare", cache_policy=NO_CACHE)
def compare(
    folders: dict[str, Path],
    taskset: str,
    rule: PromotionRule,
    record: Path,
    *,
    night: str,
    seed: int,
    trained: Trained | None = None,
    declared: Declared | None = None,
) -> dict[str, Any]:
    """The decision over champion, challenger and (where they played) control and anchor; it is written to `record`."""
    with display().step("compare") as step:
        results = results_of(folders)
        decision = decide(
            results["champion"],
            results["challenger"],
            results.get("control"),
            taskset_ref(taskset),
            rule,
            night=night,
            seed=seed,
            trained=trained,
            declared=declared,
            anchor=results.get("anchor"),
        )
        write_decision(record, decision)
        step.update(remark=decision.verdict)
    encoded: dict[str, Any] = msgspec.to_builtins(decision)
    return encoded


def write_decision(path: Path, decision: Decision) -> None:
    """The record as readable JSON, written whole."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, msgspec.json.format(msgspec.json.encode(decision)) + b"\n")
