"""Log a night to MLflow: collections, judging, builds, agents, decision, figures and traces.

Nothing here decides or plays anything. Where MLflow is down, records wait in the spool and the night goes on.
"""

import logging
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ratchet.components.core import DataError, InfrastructureError
from ratchet.components.datasets.lineage.build_state import sha256_if_present
from ratchet.components.datasets.lineage.known_builds import head_commit
from ratchet.components.evaluation.agent_comparison import flips
from ratchet.components.evaluation.agent_results import AgentResult
from ratchet.components.evaluation.leaderboard import leaderboard
from ratchet.components.evaluation.promotion.decision_record import Decision
from ratchet.components.nights.episode_sets import SCORED_AGENTS
from ratchet.components.nights.night_history import night_points
from ratchet.components.nights.night_models import NightModel
from ratchet.components.nights.night_state import list_nights, night_decision
from ratchet.components.reporting.decision_text import explain_decision, summary_sentence
from ratchet.components.reporting.evaluation_figures import evaluation_figures
from ratchet.components.reporting.leaderboard_text import leaderboard_columns
from ratchet.components.reporting.progress_display import current_display
from ratchet.components.rewards.episode_score import EpisodeScore
from ratchet.components.tasksets import load_taskset
from ratchet.components.tracking.agent_rows import DecidedNight, log_agent_rows
from ratchet.components.tracking.evaluation_tables import (
    agent_run,
    deciding_dataset,
    log_agent,
    log_decision,
    log_figures,
    log_tasks,
)
from ratchet.components.tracking.run_writer import TrackedRun
from ratchet.components.tracking.trace_log import PairSample, sample_paired_traces
from ratchet.flows.night_context import NightContext
from ratchet.tasks.build import quality_page
from ratchet.tasks.judge import JudgeReport
from ratchet.tasks.traces import log_paired_traces

if TYPE_CHECKING:
    from ratchet.components.tracking.model_registry import ModelRef

DATASETS_FOLDER = Path("data/datasets")
"""Folder of the data build's exports."""

_log = logging.getLogger(__name__)


def log_evaluation(tonight: NightContext, decision: Decision, agents: Mapping[str, NightModel]) -> None:
    """Log agents (by name), decision, tables, figures, and traces of the tasks whose success rates differ, once a
    night.

    Errors are logged and do not end the night: the decision stands in the night's own state.
    """
    try:
        tonight.night.run_once("logged", lambda: _log_all(tonight, decision, agents))
    except Exception:
        _log.exception("the evaluation of night %s could not be logged whole; its decision stands", tonight.id)


def _log_all(tonight: NightContext, decision: Decision, agents: Mapping[str, NightModel]) -> dict[str, Any]:
    with current_display().step("log to MLflow") as step:
        played = tonight.played
        results, scores = played.results, played.scores
        _log_agents(tonight, decision, results, agents)
        log_decision(tonight.run, decision, explain_decision(decision), summary_sentence(decision))
        log_tasks(tonight.run, results)
        board = leaderboard(list(results.values()), seed=tonight.seed)
        tonight.run.log_table("decision/leaderboard.json", leaderboard_columns(board))
        points = [point for point in night_points() if point.taskset_hash == decision.taskset.hash]
        log_figures(
            tonight.run, evaluation_figures(decision, results, points, list(_process_forecasts(results, scores)))
        )
        models = _registered_models()
        taskset = load_taskset(tonight.scale.taskset)
        tasks = taskset.tasks("promote") if taskset.hash == decision.taskset.hash else []
        log_agent_rows(tonight.run, _decided_nights(tonight, decision.taskset.name), models, tasks)
        paired_traces = sample_paired_traces(
            flips(results["champion"], results["challenger"], "promote"),
            results["champion"],
            results["challenger"],
            PairSample(),
            tonight.seed,
        )
        traces = {}
        for name in SCORED_AGENTS:
            own = [trace for trace in paired_traces if trace.agent == name]
            with agent_run(tonight.run, name, tonight.seed) as run:
                traces[name] = log_paired_traces(run, played.folders[name], scores, own)
        step.update(remark=f"{sum(report['found'] for report in traces.values())} episodes as traces")
    return {"traces": traces}


def _log_agents(
    tonight: NightContext, decision: Decision, results: Mapping[str, AgentResult], agents: Mapping[str, NightModel]
) -> None:
    """Log a run for each agent, with a child run for its evaluation."""
    reports = tonight.night.result("evaluate", dict[str, dict[str, Any]]) or {}
    for name, result in results.items():
        with agent_run(tonight.run, name, tonight.seed) as run:
            log_agent(run, result, deciding_dataset(decision), agents[name].version if name in agents else None)
            if (report := reports.get(name)) is not None:
                seconds = report.get("seconds") or 0.0
                with run.open_child(f"evaluate {name}", {"ratchet.kind": "evaluation"}, seconds) as stage:
                    stage.log_metrics(
                        {
                            "data/episodes": report.get("episodes"),
                            "sandbox/lost_episodes": report.get("infrastructure_failures"),
                            "cost/evaluation_seconds": report.get("seconds"),
                        }
                    )


def _registered_models() -> "dict[str, ModelRef]":
    """Map policy versions to registered models; empty where the registry does not answer."""
    from ratchet.components.tracking.model_registry import versions

    try:
        return {ref.policy_version: ref for ref in versions()}
    except InfrastructureError as error:
        _log.warning("%s; agents are named without their versions until the next night", error)
        return {}


def _decided_nights(tonight: NightContext, taskset: str) -> list[DecidedNight]:
    """Return all nights of this home that were decided on a taskset, up to tonight, oldest first."""
    nights = []
    for number, night in enumerate(list_nights(), start=1):
        try:
            decision = night_decision(night)
        except DataError:  # its report says so
            continue
        recipe = night.recipe or (tonight.recipe.name if night.id == tonight.id else None)
        if decision is not None and decision.taskset.name == taskset:
            params = {"recipe": recipe, "seed": night.seed, "scale": night.scale}
            own = {name: value for name, value in params.items() if value is not None}
            nights.append(DecidedNight(number, night.begun, decision, own))
        if night.id == tonight.id:
            break
    return nights


def _process_forecasts(
    results: Mapping[str, AgentResult], scores: Mapping[str, EpisodeScore]
) -> Iterator[tuple[float, bool]]:
    """Yield the process score of every scored episode and whether it succeeded, for the calibration figure."""
    for name in SCORED_AGENTS:
        for task in results[name].of("promote"):
            for attempt in task.attempts:
                score = scores.get(attempt.episode_id)
                if attempt.success is not None and score is not None and score.process is not None:
                    yield score.process, attempt.success


def log_collection(night: TrackedRun, title: str, report: Mapping[str, Any]) -> None:
    """Log a collection in a child run of `night`: episodes, success, lost episodes by cause, seconds."""
    counted = max(report["episodes"] - report["infrastructure_failures"], 1)
    tags = {"ratchet.kind": "collection", "policy_version": report["policy_version"]}
    with night.open_child(f"collect {title}", tags, report["seconds"]) as run:
        run.log_metrics(
            {
                "data/episodes": report["episodes"],
                "data/success": report["successes"] / counted,
                "sandbox/lost_episodes": report["infrastructure_failures"],
                "cost/collection_seconds": report["seconds"],
            }
        )
        run.log_table("failures.json", {"cause": list(report["failures"]), "count": list(report["failures"].values())})


def log_judging(night: TrackedRun, report: JudgeReport) -> None:
    """Log a night's judging in a child run: counts of judgements, agreement of the judges, and cost."""
    tags = {"ratchet.kind": "judging"} | ({"stopped": report.stopped} if report.stopped else {})
    with night.open_child("judge", tags) as run:
        run.log_metrics(
            {
                "data/judgements": report.judgements,
                "data/judgements_failed": report.failed,
                "data/judged_share": report.judged / max(report.episodes, 1),
                "data/judge_agreement": report.agreement,
                "cost/judge_calls": report.calls,
                "cost/judge_tokens": report.tokens,
                "cost/judge_money": report.money,
            }
        )


QUALITY_ARTIFACT = "quality.html"
"""Artifact of a build's run: the verdicts on its data."""


def log_build(night: TrackedRun, step: str, nights: Sequence[str], report: Mapping[str, Any], root: Path) -> None:
    """Log a data build of the project `root` in a child run: its nights, commit, manifests, metrics and the page of
    quality verdicts.
    """
    manifests = {
        f"ratchet.manifest.{path.parent.name}": str(sha256_if_present(path))
        for path in sorted((root / DATASETS_FOLDER).glob("*/manifest.json"))
    }
    tags = {"ratchet.kind": "build", "ratchet.dvc_lock": report["lock_hash"]}
    with night.open_child(step, tags, report["seconds"]) as run:
        run.log_params({"nights": " ".join(nights)})
        run.set_tags({"ratchet.code": head_commit() or "no commit", **manifests})
        run.log_metrics({f"data/{name}": value for name, value in report["metrics"].items()})
        run.log_metrics({"cost/build_seconds": report["seconds"]})
        run.log_artifact(QUALITY_ARTIFACT, quality_page(root))


def log_failed_build(night: TrackedRun, step: str, root: Path) -> None:
    """Log the quality verdicts of a failed build of the project `root` in a child run."""
    with night.open_child(step, {"ratchet.kind": "build"}) as run:
        run.log_artifact(QUALITY_ARTIFACT, quality_page(root, failed=True))


def log_acceptance(night: TrackedRun, stage: str, shares: Mapping[str, float], reasons: Mapping[str, int]) -> None:
    """Log in a child run which share of a sampling stage's episodes passed each filter (`shares`, by metric), and the
    number of episodes by selection reason.
    """
    with night.open_child(f"accept {stage}", {"ratchet.kind": "acceptance"}) as run:
        run.log_metrics({f"data/{name}": value for name, value in shares.items()})
        run.log_table("data/reasons.json", {"reason": list(reasons), "episodes": list(reasons.values())})
