"""Declare: fix tonight's deciding tasks, significance level, margins and power before anything is played."""

import shutil
from datetime import UTC, datetime, timedelta

from ratchet.components.evaluation.promotion.decision_record import Decision
from ratchet.components.evaluation.promotion.promotion_rule import DECIDING_ROLES, NightDeclaration, PromotionRule
from ratchet.components.evaluation.promotion.season_plan import PastNight, count_task_uses, declare_night
from ratchet.components.nights.episode_sets import evaluated_agents, evaluations_folder
from ratchet.components.nights.night_sampling import draw_least_used, draw_tasks, order_by_family
from ratchet.components.nights.night_state import DECISION_STEP, Night, list_nights, night_decision
from ratchet.components.reporting.progress_display import current_display
from ratchet.components.tasksets import load_taskset
from ratchet.flows.night_context import NightContext

DECLARED_STEP, TASKS_STEP, RULE_STEP = "declared", "deciding tasks", "rule"
"""Steps of the night's state."""


def declare_tonight(tonight: NightContext) -> NightDeclaration | None:
    """Choose the deciding tasks and declare level, margins and power; store the tasks and the declaration in the
    night's state.

    Returns None for a night of an older version: nothing is declared after the fact.
    """
    night, scale = tonight.night, tonight.scale
    if night.results and not {DECLARED_STEP, TASKS_STEP, RULE_STEP} & night.results.keys():
        return None
    if _is_overtaken(tonight):
        # Episodes of the tasks that it had chosen: a collection refuses to go on with others.
        shutil.rmtree(evaluations_folder() / night.id, ignore_errors=True)
        night.forget(DECLARED_STEP, TASKS_STEP)
    rule = night.run_once(RULE_STEP, lambda: scale.promotion, PromotionRule)
    tasks = night.run_once(TASKS_STEP, lambda: _choose_tasks(tonight, rule), tuple[str, ...])
    tasks_by_id = load_taskset(scale.taskset).by_id
    families = [tasks_by_id[task_id].family for task_id in tasks]
    how = (rule, past_nights(tonight.night), families, scale.evaluation.attempts)
    declaration = night.run_once(
        DECLARED_STEP, lambda: declare_night(*how, at=_declaration_time(night)), NightDeclaration
    )
    current_display().say(_declaration_text(declaration))
    return declaration


def deciding_tasks(tonight: NightContext) -> tuple[str, ...]:
    """Return the ids of tonight's deciding tasks, in playing order."""
    if (chosen := tonight.night.result(TASKS_STEP, tuple[str, ...])) is not None:
        return chosen
    pool = load_taskset(tonight.scale.taskset).tasks(DECIDING_ROLES[0])
    return draw_tasks(pool, tonight.scale.evaluation.promote, tonight.seed, DECIDING_ROLES[0])


def night_declaration(tonight: NightContext) -> NightDeclaration | None:
    """Return tonight's declaration; None for a night of an older version."""
    return tonight.night.result(DECLARED_STEP, NightDeclaration)


def declared_rule(tonight: NightContext) -> PromotionRule:
    """Return the promotion rule as of the start of the night, even if the scale has changed since."""
    return tonight.night.result(RULE_STEP, PromotionRule) or tonight.scale.promotion


def _choose_tasks(tonight: NightContext, rule: PromotionRule) -> tuple[str, ...]:
    """Choose the tasks that decided least often, promote before reserve. A night that may end early plays them family
    by family.
    """
    taskset = load_taskset(tonight.scale.taskset)
    pools = {role: taskset.tasks(role) for role in DECIDING_ROLES}
    chosen = draw_least_used(
        pools, tonight.scale.evaluation.promote, tonight.seed, count_task_uses(past_nights(tonight.night))
    )
    return order_by_family([taskset.by_id[task_id] for task_id in chosen], tonight.seed) if rule.looks else chosen


def past_nights(state: Night) -> list[PastNight]:
    """Return every other night of this home in the order of their declarations, over all scales: there is one champion.

    A night that began first, failed before it declared and is resumed after another has played comes after that one.
    """
    others = [night for night in list_nights() if night.id != state.id]
    return [past_night(night) for night in sorted(others, key=_declared_at)]


def _declared_at(night: Night) -> tuple[str, str]:
    """Return when a night declared, or when it began if it did not; ties are broken by the beginning."""
    declaration = night.result(DECLARED_STEP, NightDeclaration)
    return declaration.at if declaration is not None else night.begun, night.begun


def _declaration_time(state: Night) -> str:
    """Return the time, or a second after the latest other declaration where the clock says less: it may have been set back,
    and `_is_overtaken` would take that night for one that declared after this one.
    """
    earlier = [datetime.fromisoformat(_declared_at(night)[0]) for night in list_nights() if night.id != state.id]
    at = max([datetime.now(UTC), *(time + timedelta(seconds=1) for time in earlier)])
    return at.isoformat(timespec="seconds")


def past_night(night: Night) -> PastNight:
    """Summarise a night's state for the season plan; records of older versions have no `tasks`. Raises DataError."""
    decision, promise = night_decision(night), night.result(DECLARED_STEP, NightDeclaration)
    outcomes_seen = has_seen_outcomes(night)
    level = None if promise is None else promise.level
    if decision is None:
        return PastNight(tested=outcomes_seen, tasks=_tasks_seen(night, decision) if outcomes_seen else (), level=level)
    return PastNight(
        tested=decision.could_promote,
        promoted=decision.verdict == "promote",
        matched=promise is not None and promise.match,
        tasks=_tasks_seen(night, decision),
        spread=decision.spread,
        level=decision.superiority_level if level is None else level,
        p_value=decision.versus_champion.p_value,
    )


def has_seen_outcomes(night: Night) -> bool:
    """Return whether the challenger has finished episodes of the evaluation, or the night has decided."""
    return DECISION_STEP in night.results or "challenger" in {agent.name for agent in evaluated_agents(night.id)}


def _is_overtaken(tonight: NightContext) -> bool:
    """Return whether another night has tested since tonight declared, while tonight has seen no outcome.

    Tonight then declares anew: its level was not spent, and the other night was given the same one.
    """
    declaration = night_declaration(tonight)
    if declaration is None or has_seen_outcomes(tonight.night):
        return False
    others = (night for night in list_nights() if night.id != tonight.id and _declared_at(night)[0] >= declaration.at)
    return any(past_night(night).tested for night in others)


def _tasks_seen(night: Night, decision: Decision | None) -> tuple[str, ...]:
    """Return the tasks whose outcomes were seen, without those that an early end left unplayed."""
    tasks = night.result(TASKS_STEP, tuple[str, ...]) or ()
    return tasks[: decision.looked[-1].look.tasks] if decision is not None and decision.looked else tasks


def _declaration_text(declaration: NightDeclaration) -> str:
    lead = (
        ""
        if declaration.detectable is None
        else f", finds a lead of {100 * declaration.detectable:.1f} points with power {declaration.power:g}"
    )
    allowance = declaration.allowance
    season = "" if allowance is None else f" (test {allowance.test} of season {allowance.season})"
    match = "; tonight the champion meets the anchor" if declaration.match else ""
    early = (
        f"; it may end after {', '.join(str(look.tasks) for look in declaration.looks[:-1])} tasks"
        if declaration.looks
        else ""
    )
    size = f"{declaration.tasks} tasks × {declaration.attempts} attempts"
    return f"declared: {size} at alpha {declaration.level:.2g}{season}{lead}{early}{match}"
