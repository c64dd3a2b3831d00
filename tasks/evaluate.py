"""From evaluation episodes to the decision: read the shards, compare, write the record."""

from pathlib import Path
from typing import Any

import msgspec
from prefect import task
from prefect.cache_policies import NO_CACHE

from components.environments.tasksets import load
from components.evaluation.metrics import AgentResult, agent_result
from components.evaluation.promotion import Decision, PromotionRule, TasksetRef, Trained, decide
from components.trajectories.files import write_atomically
from components.trajectories.shards import read_folder

from .display import display


def result_of(name: str, folder: Path) -> AgentResult:
    """One agent's result over its folder of shards. Raises DataError."""
    return agent_result(read_folder(folder), name=name)


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
) -> dict[str, Any]:
    """The decision over champion, challenger and (where it was played) control; it is written to `record`."""
    with display().step("compare") as step:
        results = {name: result_of(name, found) for name, found in folders.items()}
        decision = decide(
            results["champion"],
            results["challenger"],
            results.get("control"),
            taskset_ref(taskset),
            rule,
            night=night,
            seed=seed,
            trained=trained,
        )
        write_decision(record, decision)
        step.update(remark=decision.verdict)
    encoded: dict[str, Any] = msgspec.to_builtins(decision)
    return encoded


def write_decision(path: Path, decision: Decision) -> None:
    """The record as readable JSON, written whole."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, msgspec.json.format(msgspec.json.encode(decision)) + b"\n")
