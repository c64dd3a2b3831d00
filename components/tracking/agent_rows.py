"""The experiment of agents: one run an agent, gone on with on every night that the agent plays, and its saved views.

A row holds the figures of the agent's latest night; the figures of earlier nights are the history of its metrics, with
the number of the night as the step. Everything is taken from decision records, so that the rows of earlier nights can
be written later.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import NamedTuple

from ratchet.components.core import InfrastructureError, TaskSpec
from ratchet.components.evaluation.promotion.decision_record import Contender, Decision, PairedEffect
from ratchet.components.statistics.result_types import Estimate, interval_text, p_text, percent, percentage_points

from .mlflow_client import MlflowRefusal, call_mlflow, client
from .model_registry import POLICY_TAG, ModelRef
from .record_upload import KEY_TAG
from .run_writer import TrackedRun
from .saved_views import KIND_TAG, NOTE_TAG, RUNS_KIND, column, runs_view, traces_view

AGENT_PARAMS = ("role", "night", "base", "nights", "dataset", "build", "code")
"""Registry tags of a version that become parameters of its agent's row: where the agent comes from."""


class DecidedNight(NamedTuple):
    """A night with its decision. `number`: its place in the history, from 1; `begun`: ISO 8601; `params`: of the
    night, such as recipe and seed.
    """

    number: int
    begun: str
    decision: Decision
    params: Mapping[str, object]


class AgentRow(NamedTuple):
    """An agent on one night. `lead`: over the champion of the night, whose policy version is `over`; None for the
    champion itself. `audit`: on the audit tasks. `result`: what the night meant for it.
    """

    role: str
    contender: Contender
    result: str
    lead: PairedEffect | None = None
    over: str | None = None
    audit: Contender | None = None

    @property
    def policy_version(self) -> str:
        """Policy version of the agent."""
        return self.contender.agent.policy_version


_RESULTS = {"promote": "promoted", "keep": "kept out", "undecided": "undecided"}


def agent_rows(decision: Decision) -> list[AgentRow]:
    """Return the row of each agent that played the deciding tasks of a night."""
    night, audit, over = decision.night, decision.audit, decision.champion.agent.policy_version
    kept = f"{'replaced' if decision.verdict == 'promote' else 'champion'} {night}"
    result, lead = f"{_RESULTS[decision.verdict]} {night}", decision.versus_champion
    rows = [
        AgentRow("champion", decision.champion, kept, audit=audit.champion if audit else None),
        AgentRow("challenger", decision.challenger, result, lead, over, audit.challenger if audit else None),
    ]
    if decision.control is not None:
        audited = None if audit is None else audit.control
        effect = decision.control_versus_champion
        rows.append(AgentRow("control", decision.control, f"control {night}", effect, over, audited))
    return rows


def agents_experiment(taskset: str) -> str:
    """Return the name of the experiment that holds the agents of a taskset's nights."""
    return f"{taskset} agents"


def log_agent_rows(
    night: TrackedRun, nights: Sequence[DecidedNight], models: Mapping[str, ModelRef], tasks: Sequence[TaskSpec]
) -> None:
    """Log the agents of the last of `nights` in the experiment of agents, and describe both experiments. Agents of
    earlier nights that have no row yet are logged too.

    `nights`: all decided nights of the taskset, oldest first. `models`: registered versions by policy version. `tasks`: the
    promote tasks of the last night's taskset, which become an evaluation dataset. Logging a night again changes nothing.
    """
    experiment = agents_experiment(night.experiment)
    present = _logged_agents(experiment)
    for entry in nights:
        rows = agent_rows(entry.decision)
        if entry is not nights[-1] and (present is None or all(row.policy_version in present for row in rows)):
            continue
        for row in rows:
            name = agent_name(row.policy_version, models, f"{row.role} {entry.decision.night}")
            with night.open_shared(experiment, row.policy_version, name, {"ratchet.kind": "agent"}) as run:
                run.log_params(_origin(row.policy_version, nights, models))
                _log_row(run, row, entry, models)
                if entry is nights[-1]:
                    run.set_experiment_tags(agents_tags(nights, models))
                if entry is nights[-1] and row.role == "challenger" and tasks:
                    taskset = entry.decision.taskset
                    about = {"taskset": taskset.name, "version": taskset.version, "hash": taskset.hash}
                    name = f"{taskset.name}-promote {taskset.version} {taskset.hash[:8]}"
                    run.log_evaluation_dataset(name, about, tasks)
    night.set_experiment_tags(nights_tags(nights))


def _logged_agents(experiment: str) -> set[str] | None:
    """Return the policy versions that have a row; None where MLflow does not answer."""

    def search() -> set[str]:
        found = client().get_experiment_by_name(experiment)
        runs = client().search_runs([found.experiment_id], max_results=10_000) if found else []
        return {run.data.tags.get(KEY_TAG, "") for run in runs}

    try:
        return call_mlflow(search)
    except (InfrastructureError, MlflowRefusal):
        return None


def _origin(policy_version: str, nights: Sequence[DecidedNight], models: Mapping[str, ModelRef]) -> dict[str, object]:
    """Return the parameters of an agent, which never change: where it comes from."""
    tags = models[policy_version].tags if policy_version in models else {}
    trained_on = next((entry.params for entry in nights if entry.decision.night == tags.get("night")), {})
    lineage = {name: tags[name] for name in AGENT_PARAMS if tags.get(name)}
    return {POLICY_TAG: policy_version, **lineage, **trained_on}


def agent_name(policy_version: str, models: Mapping[str, ModelRef], otherwise: str) -> str:
    """Return an agent's name: `v3 challenger 2026-11-23-b2`, its version, first role and first night; `otherwise`
    where it is not registered.
    """
    ref = models.get(policy_version)
    if ref is None:
        return otherwise
    return " ".join(filter(None, (f"v{ref.version}", ref.tags.get("role"), ref.tags.get("night"))))


def short_name(policy_version: str, models: Mapping[str, ModelRef]) -> str:
    """Return `v3`, the registered version, or the policy version where there is none."""
    return f"v{models[policy_version].version}" if policy_version in models else policy_version


def _log_row(run: TrackedRun, row: AgentRow, entry: DecidedNight, models: Mapping[str, ModelRef]) -> None:
    figures, success = row.contender.summary, row.contender.success
    ref = models.get(row.policy_version)
    lead = None if row.lead is None else row.lead.difference
    metrics = {
        "eval/success": success.value,
        **_bounds("eval/success", success),
        "eval/lead": None if lead is None else lead.value,
        **_bounds("eval/lead", lead),
        "eval/lead_p": None if row.lead is None else row.lead.p_value,
        "eval/audit_success": None if row.audit is None else row.audit.success.value,
        "eval/steps": figures.mean_steps,
        "cost/tokens": figures.prompt_and_completion,
        "cost/money": figures.mean_cost,
    }
    tags = {
        "success": f"{percent(success.value)} {interval_text(success)}",
        "result": row.result,
        "ratchet.agent": row.role,
    }
    if ref is not None:
        tags |= {"version": str(ref.version), "ratchet.model": f"{ref.name}/{ref.version}"}
    if lead is not None and row.over is not None:
        over = short_name(row.over, models)
        tags["lead"] = f"{percentage_points(lead.value)} {interval_text(lead, signed=True)} over {over}"
    decision = entry.decision
    dataset = (f"{decision.taskset.name}-promote", decision.taskset.hash)
    # Of the night and not of now: a point that is logged again with the same time and step adds nothing.
    time = round(datetime.fromisoformat(entry.begun).timestamp() * 1000)
    run.set_tags(tags)
    # MLflow's tables show every digit, and cut what does not fit.
    known = ((key, float(f"{value:.4g}")) for key, value in metrics.items() if value is not None)
    run.log_history((key, value, entry.number, time) for key, value in known)
    run.log_dataset(*dataset, f"data/tasksets/{decision.taskset.name}", "evaluation")
    if ref is not None:
        run.log_evaluated_model(ref.version, {}, dataset)
    run.set_description(f"{row.result}: {decision.why}" if row.role == "challenger" else row.result)


def _bounds(name: str, estimate: Estimate | None) -> dict[str, float | None]:
    interval = None if estimate is None else estimate.interval
    return {} if interval is None else {f"{name}_low": interval.low, f"{name}_high": interval.high}


LEADERBOARD_VIEW, NIGHTS_VIEW, LOST_VIEW, WON_VIEW = "leaderboard", "nights", "lost", "won"
"""Ids of the saved views."""
_LEADERBOARD_COLUMNS = (
    *(column("tags", name) for name in ("success", "lead")),
    column("metrics", "eval/lead_p"),
    column("tags", "result"),
    *(column("metrics", name) for name in ("eval/audit_success", "cost/tokens", "cost/money", "eval/steps")),
    column("params", "recipe"),
)
_NIGHT_COLUMNS = (*(column("tags", name) for name in ("verdict", "lead", "why")), column("params", "recipe"))


def agents_tags(nights: Sequence[DecidedNight], models: Mapping[str, ModelRef]) -> dict[str, str]:
    """Return the tags of the experiment of agents: its description, which names the best agent, its kind and its view."""
    order = column("metrics", "eval/success")
    widths = {
        column("tags", "success"): 165,
        column("tags", "lead"): 200,
        column("tags", "result"): 180,
        column("metrics", "eval/lead_p"): 95,
        column("metrics", "eval/audit_success"): 140,
    }
    view = runs_view(LEADERBOARD_VIEW, "Leaderboard", _LEADERBOARD_COLUMNS, order_by=order, widths=widths)
    return {NOTE_TAG: champion_sentence(nights, models), KIND_TAG: RUNS_KIND} | view


def nights_tags(nights: Sequence[DecidedNight]) -> dict[str, str]:
    """Return the tags of the experiment of nights: its description, the last night's result, its kind and its views."""
    last = nights[-1].decision
    order, nights_only = column("attributes", "start_time"), "tags.`ratchet.kind` = 'night'"
    widths = {column("tags", "lead"): 240, column("tags", "why"): 700}
    return {
        NOTE_TAG: f"{_RESULTS[last.verdict]} on {last.night}: {last.why}",
        KIND_TAG: RUNS_KIND,
        **runs_view(NIGHTS_VIEW, "Nights", _NIGHT_COLUMNS, order_by=order, where=nights_only, widths=widths),
        **traces_view(LOST_VIEW, "Lost tasks", {"ratchet.flip": "lost"}),
        **traces_view(WON_VIEW, "Won tasks", {"ratchet.flip": "won"}),
    }


def champion_sentence(nights: Sequence[DecidedNight], models: Mapping[str, ModelRef]) -> str:
    """Return which agent is champion after the last of `nights`, its success, and its lead when it was promoted."""
    last = nights[-1].decision
    contender = last.challenger if last.verdict == "promote" else last.champion
    version = contender.agent.policy_version
    success = f"{percent(contender.success.value)} {interval_text(contender.success)} of its tasks on {last.night}"
    for entry in reversed(nights):
        decision = entry.decision
        if decision.verdict == "promote" and decision.challenger.agent.policy_version == version:
            effect, beaten = decision.versus_champion, decision.champion.agent.policy_version
            # The start page shows the first 45 characters or so.
            return (
                f"{short_name(version, models)} leads {short_name(beaten, models)} by "
                f"{percentage_points(effect.difference.value)} points {interval_text(effect.difference, signed=True)}, "
                f"{p_text(effect.p_value)}: promoted on {decision.night}. It solved {success}."
            )
    return f"{short_name(version, models)} is champion, as the first. It solved {success}."
