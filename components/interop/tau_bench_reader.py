"""Reader of τ-bench's results as published: one JSON array of runs per model and domain (Yao et al. 2024, arXiv:2406.12045).

The messages are OpenAI's; the first turn of the simulated user is the request. Success is the benchmark's own verdict: a reward
of 1, which compares the database and the required outputs. A run that broke off with an error has no verdict and is an
infrastructure failure. The instruction to the simulated user is not part of the conversation; it is the task's description.
"""

from collections.abc import Iterator
from typing import Any

from ratchet.components.trajectories.trajectory import Failure, FailureKind, Outcome, Trajectory

from .chat_import import ChatImporter, root_records
from .log_source import LogSource
from .log_values import as_mapping, first_text, to_count, to_number, to_text
from .trajectory_draft import TrajectoryDraft


class TauBenchReader:
    """Reader of τ-bench's results."""

    def detects(self, source: LogSource) -> bool:
        """Return whether the first value is a run, or an array of runs."""
        return any(_is_run(value[0] if isinstance(value, list) and value else value) for value in source.sample[:1])

    def read(self, source: LogSource) -> Iterator[Trajectory]:
        """Yield every run."""
        for where, value in root_records(source):
            if _is_run(value):
                yield _trajectory(source, where, value)
            else:
                source.bad_value(
                    where, "no run of τ-bench: an object with `task_id`, `reward`, `info` and `traj`", value
                )


def _is_run(value: Any) -> bool:
    return {"task_id", "reward", "info", "traj"} <= as_mapping(value).keys() and isinstance(value["traj"], list)


def _trajectory(source: LogSource, where: str, run: dict[str, Any]) -> Trajectory:
    draft = TrajectoryDraft("tau_bench")
    ChatImporter(draft, source, where).add_all(run["traj"])
    info, reward = as_mapping(run["info"]), to_number(run["reward"])
    task = as_mapping(info.get("task"))
    if "error" in info:
        draft.failure = Failure(FailureKind.INFRASTRUCTURE, "Error", to_text(info["error"]))
    else:
        is_verdict = reward is not None and bool(as_mapping(info.get("reward_info")))
        draft.outcome = Outcome(success=reward == 1 if is_verdict else None, score=reward, terminated=True)
    draft.extra["info"] = {name: field for name, field in info.items() if name != "error"}
    # Published files are named after model and domain (`gpt-4o-airline.json`); their content states neither.
    agent, _, domain = source.path.name.removesuffix(".json").rpartition("-")
    known = domain in ("airline", "retail")
    return draft.finish(
        native_id=None,
        task_id="/".join(["tau-bench", *([domain] if known else []), to_text(run["task_id"])]),
        description=first_text(task.get("instruction")),
        taskset="tau-bench",
        domain="generic",
        model=agent if known else None,
        attempt=to_count(run.get("trial")) or 0,
    )


READER = TauBenchReader()
