"""Evaluations and decisions as runs: what a person compares in MLflow in the morning."""

import msgspec

from components.evaluation.metrics import AgentResult, Summary, breakdown, summary
from components.evaluation.promotion import Contender, Decision, Effect
from components.evaluation.report import explain, summary_sentence

from .figures import difference_forest, success_bars
from .runs import Run


def log_agent(night: Run, label: str, result: AgentResult) -> str | None:
    """A nested run of one agent (`label`: champion, control, challenger) with its figures on promote and audit tasks.

    Returns MLflow's id of the nested run, or None where it was spooled. Success by kind and failures by cause are tables.
    """
    tags = {"ratchet.kind": "agent", "policy": result.policy, "policy_version": result.policy_version}
    with night.child(label, tags) as run:
        run.params({"agent": label, "policy": result.policy, "policy_version": result.policy_version})
        run.metrics({**_metrics(summary(result, "promote"), "eval/"), **_audit_metrics(result)})
        run.table("eval/by_kind.json", _by_kind(result))
        run.table("eval/causes.json", _causes(result))
        run.artifact("eval/result.json", msgspec.json.encode(result))
        return run.run_id


def log_decision(night: Run, decision: Decision) -> None:
    """The decision on the night's run: headline metrics, the record, figures, and the verdict as the run's description."""
    night.metrics(_decision_metrics(decision))
    night.tags({"verdict": decision.verdict, "self_improvement": str(decision.self_improvement).lower()})
    night.table("decision/by_kind.json", _difference_table(decision))
    night.artifact("decision/decision.json", msgspec.json.format(msgspec.json.encode(decision), indent=2))
    night.artifact("decision/explained.txt", explain(decision) + "\n")
    night.artifact("decision/difference_by_kind.png", difference_forest(decision))
    night.artifact("decision/success.png", success_bars(decision))
    taskset = decision.taskset
    night.dataset(f"{taskset.name}-promote", taskset.hash, f"data/tasksets/{taskset.name}", "evaluation")
    night.describe(summary_sentence(decision))


def _metrics(figures: Summary, prefix: str) -> dict[str, float | None]:
    return {
        f"{prefix}success": figures.success_rate,
        f"{prefix}pass_any": figures.pass_any,
        f"{prefix}pass_all": figures.pass_all,
        f"{prefix}mean_steps": figures.mean_steps,
        f"{prefix}invalid_call_rate": figures.invalid_call_rate,
        f"{prefix}truncation_rate": figures.truncation_rate,
        f"{prefix}completion_tokens": figures.mean_completion_tokens,
        f"{prefix}lost_rate": figures.lost_rate,
        "cost/tokens_per_episode": _total_tokens(figures),
        "cost/per_episode": figures.mean_cost,
    }


def _audit_metrics(result: AgentResult) -> dict[str, float | None]:
    figures = summary(result, "audit")
    return {"eval/audit_success": figures.success_rate, "eval/audit_mean_steps": figures.mean_steps}


def _total_tokens(figures: Summary) -> float | None:
    if figures.mean_prompt_tokens is None or figures.mean_completion_tokens is None:
        return None
    return figures.mean_prompt_tokens + figures.mean_completion_tokens


def _by_kind(result: AgentResult) -> dict[str, list[object]]:
    rows = [
        (role, kind, figures)
        for role in sorted({task.role for task in result.tasks})
        for kind, figures in breakdown(result, "kind", role).items()
    ]
    return {
        "role": [role for role, _, _ in rows],
        "kind": [kind for _, kind, _ in rows],
        "tasks": [figures.tasks for _, _, figures in rows],
        "success": [figures.success_rate for _, _, figures in rows],
        "mean_steps": [figures.mean_steps for _, _, figures in rows],
        "lost": [figures.infrastructure + figures.unknown for _, _, figures in rows],
    }


def _causes(result: AgentResult) -> dict[str, list[object]]:
    figures = summary(result, "promote")
    failed = [("failed", cause, count) for cause, count in figures.causes.items()]
    rows = failed + [("lost", cause, count) for cause, count in figures.lost_causes.items()]
    return {
        "episodes": [what for what, _, _ in rows],
        "cause": [cause for _, cause, _ in rows],
        "count": [count for _, _, count in rows],
    }


def _decision_metrics(decision: Decision) -> dict[str, float | None]:
    metrics: dict[str, float | None] = {
        "eval/promoted": float(decision.verdict == "promote"),
        "eval/tasks": float(decision.n_tasks),
        "eval/lost_attempts": float(decision.lost),
        **_effect("eval/lead_over_champion", decision.versus_champion),
    }
    if decision.versus_control is not None:
        metrics |= _effect("eval/lead_over_control", decision.versus_control)
    contenders: dict[str, Contender | None] = {
        "champion": decision.champion,
        "control": decision.control,
        "challenger": decision.challenger,
    }
    if decision.audit is not None:
        contenders |= {"audit_champion": decision.audit.champion, "audit_challenger": decision.audit.challenger}
    for label, contender in contenders.items():
        metrics[f"eval/{label}_success"] = contender.success.value if contender else None
    return metrics


def _effect(name: str, effect: Effect) -> dict[str, float | None]:
    return {name: effect.difference.value, f"{name}_p": effect.p_value}


def _difference_table(decision: Decision) -> dict[str, list[object]]:
    rows = decision.by_kind
    return {
        "kind": [row.kind for row in rows],
        "tasks": [row.difference.tasks for row in rows],
        "champion": [row.a.value for row in rows],
        "challenger": [row.b.value for row in rows],
        "lead": [row.difference.value for row in rows],
        "low": [row.difference.interval.low if row.difference.interval else None for row in rows],
        "high": [row.difference.interval.high if row.difference.interval else None for row in rows],
    }
