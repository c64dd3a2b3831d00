"""Reader of the results of τ-bench (Yao et al. 2024, arXiv:2406.12045) and τ²-bench (Barres et al. 2025, arXiv:2506.07982).

τ-bench publishes one JSON array of runs per model and domain, τ²-bench one object with `info`, `tasks` and `simulations`. The
messages are OpenAI's; the first turn of the simulated user is the request. Success is the benchmark's own verdict: a reward
of 1, which compares the database and the required outputs. A run that broke off with an error has no verdict and is an
infrastructure failure. The instruction to the simulated user is not part of the conversation; it is the task's description.
Calls of τ²-bench's simulated user, and their results, are left out: the agent does not see them.
"""

from collections.abc import Iterator
from typing import Any

from ratchet.components.trajectories.trajectory import Failure, FailureKind, Outcome, Trajectory

from .chat_import import ChatImporter, parse_usage, root_records
from .log_source import LogSource
from .log_values import as_mapping, as_mappings, drop_empty, first_text, to_count, to_iso, to_number, to_text
from .trajectory_draft import TrajectoryDraft


class TauBenchReader:
    """Reader of τ-bench's and τ²-bench's results."""

    def detects(self, source: LogSource) -> bool:
        """Return whether the first value is a run, an array of runs, or results of τ²-bench."""
        first = [value[0] if isinstance(value, list) and value else value for value in source.sample[:1]]
        return any(_is_run(value) or _is_tau2(value) for value in first)

    def read(self, source: LogSource) -> Iterator[Trajectory]:
        """Yield every run."""
        for where, value in root_records(source):
            if _is_run(value):
                yield _trajectory(source, where, value)
            elif _is_tau2(value):
                for run in as_mappings(value["simulations"]):
                    yield _simulation(source, where, value, run)
            else:
                source.bad_value(
                    where, "no run of τ-bench: an object with `task_id`, `reward`, `info` and `traj`", value
                )


def _is_run(value: Any) -> bool:
    return {"task_id", "reward", "info", "traj"} <= as_mapping(value).keys() and isinstance(value["traj"], list)


def _is_tau2(value: Any) -> bool:
    return {"info", "tasks", "simulations"} <= as_mapping(value).keys() and isinstance(value["simulations"], list)


def _simulation(source: LogSource, where: str, results: dict[str, Any], run: dict[str, Any]) -> Trajectory:
    """Return a run of τ²-bench. A premature end has the reward 0; only one that the agent may have caused is a verdict."""
    draft = TrajectoryDraft("tau_bench")
    chat = ChatImporter(draft, source, f"{where}, simulation {run.get('id')}")
    for message in as_mappings(run.get("messages")):
        role, usage = message.get("role"), as_mapping(message.get("usage"))
        told = {name: message.get(name) for name in ("role", "content")}
        if role == "tool" and message.get("requestor") != "user":
            error = to_text(message.get("content")) or "failed" if message.get("error") is True else None
            chat.add(told | {"tool_call_id": message.get("id"), "error": error})
        elif role == "assistant" and (turn := chat.add(told | {"tool_calls": message.get("tool_calls")})):
            turn.usage = parse_usage(usage, message.get("cost"))
            turn.seconds = to_number(message.get("generation_time_seconds"))
        elif role not in ("tool", "assistant") and message.get("content"):
            chat.add(told)
    info, reason = as_mapping(results["info"]), to_text(run.get("termination_reason"))
    agent, environment = as_mapping(info.get("agent_info")), as_mapping(info.get("environment_info"))
    reward = to_number(as_mapping(run.get("reward_info")).get("reward"))
    has_ended, cut = reason in ("agent_stop", "user_stop"), reason in ("max_steps", "too_many_errors")
    success = reward == 1 if reward is not None and (has_ended or cut) else None
    draft.outcome = Outcome(success=success, score=reward, terminated=has_ended, truncated=cut, reason=reason)
    if not has_ended and not cut:
        draft.failure = Failure(FailureKind.INFRASTRUCTURE, reason or "Error", to_text(run.get("info")))
    draft.collected_at = to_iso(run.get("start_time"))
    tasks = (task for task in as_mappings(results["tasks"]) if task.get("id") == run.get("task_id"))
    scenario = as_mapping(next(tasks, {}).get("user_scenario")).get("instructions")
    policy = run.get("policy") or environment.get("policy")
    draft.extra.update(drop_empty(policy=policy, reward_info=run.get("reward_info")))
    domain = to_text(environment.get("domain_name"))
    return draft.finish(
        native_id=first_text(run.get("id")),
        task_id="/".join(filter(None, ("tau2", domain, to_text(run.get("task_id"))))),
        description=to_text(scenario) or None,
        taskset="tau2",
        domain="generic",
        agent=to_text(agent.get("implementation")),
        model=first_text(agent.get("llm")),
        sampling=as_mapping(agent.get("llm_args")),
        attempt=to_count(run.get("trial")) or 0,
        seed=to_count(run.get("seed")) or 0,
    )


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
