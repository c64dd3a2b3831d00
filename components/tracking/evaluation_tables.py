"""Evaluation results in MLflow: a nested run per agent of a night, the promotion decision, the leaderboard of an
experiment, and figures.

Texts and figures come from the caller, so that this package does not import `reporting`.
"""

import logging
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager

import msgspec

from ratchet.components.evaluation.agent_metrics import AgentSummary, breakdown, summarise_agent
from ratchet.components.evaluation.agent_results import AgentResult
from ratchet.components.evaluation.promotion.decision_record import Decision, PairedEffect, effect_text
from ratchet.components.statistics.result_types import percent

from .run_writer import TrackedRun

Columns = dict[str, list[object]]
Drawing = Callable[[], bytes]
"""Draw a figure and return it as PNG."""
RUN_AGENT_TAG, RUN_NIGHT_TAG, RUN_SEED_TAG = "ratchet.agent", "ratchet.night", "ratchet.seed"


def agent_run(night: TrackedRun, agent: str, seed: int) -> AbstractContextManager[TrackedRun]:
    """Open a run nested in the run of a night for one agent (champion, challenger, control, …) and training seed."""
    tags = {"ratchet.kind": "agent", RUN_AGENT_TAG: agent, RUN_SEED_TAG: seed, RUN_NIGHT_TAG: night.key}
    return night.open_child(f"{agent} s{seed}", tags)


def log_agent(run: TrackedRun, result: AgentResult, dataset: tuple[str, str], version: int | None = None) -> None:
    """Log an agent's metrics on promote and audit tasks, its tables, and a sentence as the run's description.

    `dataset`: from `deciding_dataset`. `version`: the agent's registered model version, which is linked with the run
    and its metrics; None if the agent is not registered.
    """
    promote = summarise_agent(result, "promote")
    run.set_tags({"policy": result.policy, "policy_version": result.policy_version})
    run.log_params({"policy": result.policy, "policy_version": result.policy_version})
    audit = summarise_agent(result, "audit")
    figures = _agent_metrics(promote) | {
        "eval/audit_success": audit.success_rate,
        "eval/audit_mean_steps": audit.mean_steps,
    }
    run.log_dataset(*dataset, dataset[0], "evaluation")
    if version is None:
        run.log_metrics(figures)
    else:
        run.set_tags({"ratchet.model": f"agent/{version}"})
        run.log_evaluated_model(version, figures, dataset)
    for path, columns in _agent_tables(result, promote).items():
        run.log_table(path, columns)
    run.log_artifact("eval/result.json", msgspec.json.encode(result))
    run.set_description(_agent_sentence(result.name, promote))


def _agent_metrics(figures: AgentSummary) -> dict[str, float | None]:
    """Return the headline metrics, at most 25 with those of the audit; means unless the name says otherwise."""
    seconds = figures.quantiles.get("seconds")
    return {
        "eval/success": figures.success_rate,
        "eval/pass_any": figures.pass_any,
        "eval/pass_all": figures.pass_all,
        "eval/reward": figures.mean_reward,
        "eval/mean_steps": figures.mean_steps,
        "eval/invalid_call_rate": figures.invalid_call_rate,
        "eval/truncation_rate": figures.truncation_rate,
        "eval/unsafe_rate": figures.unsafe_rate,
        "eval/completion_tokens": figures.mean_completion_tokens,
        "eval/lost_rate": figures.lost_rate,
        "eval/seconds_median": seconds.median if seconds else None,
        "eval/seconds_p95": seconds.p95 if seconds else None,
        "cost/tokens_per_episode": figures.mean_tokens,
        "cost/per_episode": figures.mean_cost,
    }


def _agent_tables(result: AgentResult, promote: AgentSummary) -> dict[str, Columns]:
    tasks = [task for task in result.tasks for _ in task.attempts]
    attempts = [attempt for task in result.tasks for attempt in task.attempts]
    names: Columns = {"what": list(promote.quantiles)}
    return {
        "eval/by_kind.json": _breakdown_table(result, "kind"),
        "eval/by_family.json": _breakdown_table(result, "family"),
        "eval/causes.json": _cause_table(promote),
        "eval/spread.json": names
        | _same_names(promote.quantiles.values(), "n", "mean", "p5", "p25", "median", "p75", "p95"),
        "eval/at_k.json": _same_names(promote.by_k, "k", "tasks", "pass_at", "pass_hat", "cons"),
        "eval/episodes.json": _same_names(tasks, "role", "kind", "family", "task_id")
        | _same_names(attempts, *_ATTEMPT_COLUMNS),
    }


def _breakdown_table(result: AgentResult, by: str) -> Columns:
    rows = [
        (role, name, figures)
        for role in sorted({task.role for task in result.tasks})
        for name, figures in breakdown(result, by, role).items()
    ]
    summaries = [figures for _, _, figures in rows]
    return {
        "role": [role for role, _, _ in rows],
        by: [name for _, name, _ in rows],
        **_columns(
            summaries,
            tasks="tasks",
            success="success_rate",
            reward="mean_reward",
            mean_steps="mean_steps",
            tokens="mean_tokens",
        ),
        "lost": [figures.infrastructure + figures.unknown for figures in summaries],
    }


def _columns(rows: Iterable[object], **paths: str) -> Columns:
    """Return a column for each dotted path of attributes; None where a part of the path is None."""
    return {name: [_attribute(row, path) for row in rows] for name, path in paths.items()}


def _attribute(value: object, path: str) -> object:
    for name in path.split("."):
        value = None if value is None else getattr(value, name)
    return value


def _cause_table(figures: AgentSummary) -> Columns:
    causes = {"failed": figures.causes, "lost": figures.lost_causes}
    return {
        "episodes": [episodes for episodes, counts in causes.items() for _ in counts],
        "cause": [cause for counts in causes.values() for cause in counts],
        "count": [count for counts in causes.values() for count in counts.values()],
    }


def _same_names(rows: Iterable[object], *names: str) -> Columns:
    return _columns(rows, **dict(zip(names, names, strict=True)))


_ATTEMPT_COLUMNS = (
    "attempt", "seed", "success", "cause", "reward", "unsafe", "truncated", "turns", "steps", "invalid_calls", "tokens", "cost",
    "seconds", "episode_id",
)  # fmt: skip


def _agent_sentence(name: str, figures: AgentSummary) -> str:
    tokens = f", {figures.mean_tokens:,.0f} tokens an episode" if figures.mean_tokens is not None else ""
    lost_text = f", {figures.infrastructure + figures.unknown} left out" if figures.lost_rate else ""
    return (
        f"{name}: {percent(figures.success_rate)} of {figures.tasks} promote tasks solved "
        f"({figures.episodes:,} episodes{lost_text}){tokens}."
    )


def deciding_dataset(decision: Decision) -> tuple[str, str]:
    """Return the name and hash under which the promote tasks, on which the decision is based, are logged as a dataset."""
    return f"{decision.taskset.name}-promote", decision.taskset.hash


def log_decision(night: TrackedRun, decision: Decision, explanation: str, summary_line: str) -> None:
    """Log a promotion decision: metrics, tags, tables, the decision record and `explanation` as artifacts, and
    `summary_line` as the run's description.
    """
    night.log_metrics(_decision_metrics(decision))
    night.set_tags(
        {
            "verdict": decision.verdict,
            "why": decision.why,
            "lead": effect_text(decision.versus_champion),
            "self_improvement": str(decision.self_improvement).lower(),
            "sandbox": "; ".join(decision.sandboxes) or "not recorded",
        }
    )
    night.log_table("decision/by_kind.json", _kind_table(decision))
    night.log_table("decision/guardrails.json", _guardrail_table(decision))
    night.log_artifact("decision/decision.json", decision.text.encode())
    night.log_artifact("decision/explained.txt", explanation + "\n")
    night.log_dataset(*deciding_dataset(decision), f"data/tasksets/{decision.taskset.name}", "evaluation")
    night.set_description(summary_line)


def log_tasks(night: TrackedRun, results: dict[str, AgentResult]) -> None:
    """Log a table with a row per task and, per agent in `results` (by name), a column of success rates; None where an
    agent did not play the task.
    """
    rates = {name: {task.task_id: task.success_rate for task in result.tasks} for name, result in results.items()}
    tasks = dict(sorted({task.task_id: task for result in results.values() for task in result.tasks}.items()))
    columns = _columns(tasks.values(), role="role", kind="kind", family="family", task="task_id")
    by_agent = {name: [task_rates.get(task_id) for task_id in tasks] for name, task_rates in rates.items()}
    night.log_table("decision/tasks.json", columns | by_agent)


def _decision_metrics(decision: Decision) -> dict[str, float | None]:
    metrics: dict[str, float | None] = {
        "eval/promoted": float(decision.verdict == "promote"),
        "eval/tasks": float(decision.n_tasks),
        "eval/lost_attempts": float(decision.lost),
        "eval/alpha": decision.superiority_level,
        "eval/guardrails_broken": float(sum(not guard.passed for guard in decision.guardrails)),
        **_effect_metrics("eval/lead_over_champion", decision.versus_champion),
    }
    if decision.versus_control is not None:
        metrics |= _effect_metrics("eval/lead_over_control", decision.versus_control)
    audit, match = decision.audit, decision.match
    contenders = {
        "champion": decision.champion,
        "control": decision.control,
        "challenger": decision.challenger,
        "audit_champion": audit and audit.champion,
        "audit_challenger": audit and audit.challenger,
        "anchor": match and match.anchor,
    }
    return metrics | {f"eval/{label}_success": agent.success.value for label, agent in contenders.items() if agent}


def _effect_metrics(name: str, effect: PairedEffect) -> dict[str, float | None]:
    return {name: effect.difference.value, f"{name}_p": effect.p_value}


def _kind_table(decision: Decision) -> Columns:
    return _columns(
        decision.by_kind,
        kind="kind",
        tasks="difference.tasks",
        champion="a.value",
        challenger="b.value",
        lead="difference.value",
        low="difference.interval.low",
        high="difference.interval.high",
    )


def _guardrail_table(decision: Decision) -> Columns:
    rows = decision.guardrails
    figures = _columns(
        rows,
        champion="champion",
        challenger="challenger",
        margin="margin",
        difference="difference.value",
        low="difference.interval.low",
        high="difference.interval.high",
        p="p_value",
    )
    states: list[object] = [guard.state or ("holds" if guard.passed else "broken") for guard in rows]
    return _columns(rows, guardrail="name") | {"state": states} | figures


FIGURES_FOLDER = "figures"
_log = logging.getLogger(__name__)


def log_figures(run: TrackedRun, figures: Mapping[str, Drawing]) -> None:
    """Draw each figure, by name, and log it as `figures/<name>.png`; see `log_figure`."""
    for name, draw in figures.items():
        log_figure(run, name, draw)


def log_figure(run: TrackedRun, name: str, draw: Drawing) -> None:
    """Draw one figure and log it as `figures/<name>.png`. If drawing fails, warn and leave it out."""
    try:
        content = draw()
    except Exception as error:  # whatever a drawing library raises: a night is not lost for a picture
        _log.warning("the figure '%s' of run '%s' could not be drawn: %s", name, run.name, error)
        return
    run.log_artifact(f"{FIGURES_FOLDER}/{name}.png", content)
