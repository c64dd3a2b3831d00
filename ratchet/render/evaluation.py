"""Print evaluations of an agent, and how well a checkpoint predicts held-out rows."""

from typing import Any

import msgspec

from ratchet.components.core.errors import count_text
from ratchet.components.evaluation.agent_metrics import AgentOverview, AgentSummary, agent_overview
from ratchet.components.evaluation.promotion.decision_record import TasksetRef
from ratchet.components.operations.manual_evaluation import AgentEvaluation, HeldOutPrediction
from ratchet.components.reporting.decision_text import role_meaning
from ratchet.components.statistics.result_types import interval_text, percent

from .terminal import print_fields, print_table, print_text

MAX_CAUSES_SHOWN = 8
"""Causes of failure in a line; --json prints all."""


def _overviews(evaluation: AgentEvaluation) -> dict[str, AgentOverview]:
    """Return overviews by role, deciding roles first."""
    roles = sorted({task.role for task in evaluation.result.tasks}, reverse=True)
    return {role: agent_overview(evaluation.result, role, seed=evaluation.plan.seed) for role in roles}


def evaluation_record(evaluation: AgentEvaluation) -> dict[str, Any]:
    """Return an evaluation as `--json` prints it."""
    result, taskset = evaluation.result, evaluation.taskset
    return {
        "policy": result.name,
        "policy_version": result.policy_version,
        "taskset": taskset.name,
        "taskset_hash": taskset.hash,
        "seed": evaluation.plan.seed,
        "attempts": evaluation.plan.attempts,
        "folder": str(evaluation.folder),
        "episodes_played": evaluation.report.replayed,
        "roles": _overviews(evaluation),
    }


def show_evaluation(evaluation: AgentEvaluation) -> None:
    """Print success, causes of failure and costs for each role."""
    for role, overview in _overviews(evaluation).items():
        summary = overview.summary
        taskset = evaluation.taskset
        ref = TasksetRef(taskset.name, taskset.version, taskset.hash, taskset.split_by)
        what = f"{role}: {role_meaning(role, ref)}"
        print_text(
            f"{what}; {count_text(summary.tasks, 'task')} of {count_text(summary.families, 'family')} x "
            f"{count_text(evaluation.plan.attempts, 'attempt')}, seed {evaluation.plan.seed}"
        )
        print_fields(
            {
                "  success": f"{percent(overview.success.value)} {interval_text(overview.success)}",
                "  majority vote": None if summary.majority_vote is None else percent(summary.majority_vote),
                "  truncated": percent(summary.truncation_rate),
                "  invalid calls": percent(summary.invalid_call_rate),
                "  unsafe or hacked": percent(summary.unsafe_rate),
                "  failed by": _causes_text(summary.causes),
                "  left out": _causes_text(summary.lost_causes) if summary.lost_causes else None,
            }
        )
        _show_attempts(summary)
        _show_quantiles(summary)
        _show_kinds(overview)
    print_text(f"episodes: {evaluation.folder}")


def _show_attempts(summary: AgentSummary) -> None:
    print_table(
        ("of k attempts", "tasks", "any succeeds", "most do", "all do"),
        [
            (f"k = {at.k}", at.tasks, percent(at.pass_at), percent(at.cons), percent(at.pass_hat))
            for at in summary.by_k
            if at.k & (at.k - 1) == 0 or at is summary.by_k[-1]  # powers of two, and the last
        ],
    )


def _causes_text(causes: dict[str, int]) -> str:
    ranked = sorted(causes.items(), key=lambda pair: (-pair[1], pair[0]))
    more = f", and {len(ranked) - MAX_CAUSES_SHOWN} more causes" if len(ranked) > MAX_CAUSES_SHOWN else ""
    return (", ".join(f"{cause} {count}" for cause, count in ranked[:MAX_CAUSES_SHOWN]) + more) or "none"


def _show_quantiles(summary: AgentSummary) -> None:
    print_table(
        ("an episode's", "mean", "p5", "median", "p95"),
        [
            (name.replace("_", " "), *map(_number_text, (of.mean, of.p5, of.median, of.p95)))
            for name, of in summary.quantiles.items()
        ],
    )


def _show_kinds(overview: AgentOverview) -> None:
    print_table(
        ("kind", "tasks", "success", "reward", "steps (median)", "tokens (median)", "invalid calls", "unsafe"),
        [
            (
                kind,
                summary.tasks,
                percent(summary.success_rate),
                _number_text(summary.mean_reward),
                *(
                    _number_text(of.median) if (of := summary.quantiles.get(name)) else None
                    for name in ("steps", "tokens")
                ),
                percent(summary.invalid_call_rate),
                percent(summary.unsafe_rate),
            )
            for kind, summary in overview.by_kind.items()
        ],
    )


def _number_text(value: float | None) -> str | None:
    """Format a value with four digits, or a count with all of its digits."""
    if value is None:
        return None
    return f"{value:,.0f}" if abs(value) >= 1000 or float(value).is_integer() else f"{value:.4g}"


def prediction_record(prediction: HeldOutPrediction) -> dict[str, Any]:
    """Return a held-out prediction as `--json` prints it."""
    figures = msgspec.to_builtins(prediction.figures)
    del figures["row_losses"]
    return {"model": prediction.model, "data": prediction.data, **figures, "row_perplexity": prediction.row_perplexity}


def show_prediction(prediction: HeldOutPrediction) -> None:
    """Print how well a checkpoint predicts held-out rows."""
    figures, spread = prediction.figures, prediction.row_perplexity
    print_fields(
        {
            "model": prediction.model,
            "rows": f"{figures.rows} of {prediction.data}, at most {figures.max_length} tokens each",
            "left out": _causes_text(figures.left_out) if figures.left_out else None,
            "tokens": figures.tokens,
            "loss": figures.loss,
            "perplexity": figures.perplexity,
            "token accuracy": figures.token_accuracy,
            "perplexity of a row": spread and f"p5 {spread.p5:.4g}, median {spread.median:.4g}, p95 {spread.p95:.4g}",
        }
    )
