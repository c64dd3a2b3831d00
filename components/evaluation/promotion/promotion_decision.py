"""The promotion decision: from the results of champion, challenger and control to the decision record with its verdict
and reasons.
"""

import math
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from ratchet.components.core.errors import count_text
from ratchet.components.statistics.bootstrap import rate_estimate
from ratchet.components.statistics.permutation import permutation_test
from ratchet.components.statistics.power_analysis import VarianceComponents, minimum_families
from ratchet.components.statistics.result_types import Alternative

from ..agent_metrics import summarise_agent
from ..agent_results import AgentResult
from ..paired_comparison import AgentRef, PairedComparison, compare_paired
from .decision_record import (
    AnchorMatch,
    AuditResult,
    Contender,
    Decision,
    Guardrail,
    PairedEffect,
    TasksetRef,
    TrainedAgents,
    Verdict,
    effect_text,
)
from .guardrail_tests import KIND_PREFIX, evaluate_guardrails
from .promotion_rule import (
    LookResult,
    NightDeclaration,
    PromotionRule,
    ends_evaluation,
    merge_deciding_roles,
)
from .season_plan import additional_tasks_for_lead, additional_tasks_for_margin, difference_components


class VerdictEvidence(NamedTuple):
    """The figures that a verdict rests on. `families`: the family of each task; `attempts`: planned attempts
    per task. `level`: of the test of superiority. `spread`: variance of the paired difference.
    """

    effect: PairedEffect
    families: Sequence[str]
    attempts: int
    spread: VarianceComponents | None
    guardrails: tuple[Guardrail, ...]
    level: float
    match: AnchorMatch | None = None


class VerdictReason(NamedTuple):
    """A verdict with its reason. `needs`: more tasks that an undecided night asks for; None where unknown."""

    verdict: Verdict
    why: str
    needs: int | None = None


def reach_verdict(evidence: VerdictEvidence, rule: PromotionRule) -> VerdictReason:
    """Promote where superiority and every guardrail are shown, keep where either is ruled out, else leave the night
    undecided.

    A lead of `minimum_effect` is ruled out where the interval lies below it. On a night on which the champion loses to
    the anchor its challenger is not promoted.
    """
    figures = effect_text(evidence.effect)
    if evidence.match is not None and evidence.match.rollback:
        return VerdictReason(
            "keep", f"the anchor takes its place back, {evidence.match.why}; the challenger ({figures}) waits"
        )
    if (families := len(set(evidence.families))) < rule.min_families or len(evidence.families) < rule.min_tasks:
        return _too_few_tasks(evidence, families, rule)
    if evidence.effect.p_value > evidence.level:
        return _not_superior(evidence, families, rule, figures)
    doubtful = [guard for guard in evidence.guardrails if not guard.passed]
    if not doubtful:
        untested = [
            guard.name
            for guard in evidence.guardrails
            if guard.state == "untested" and guard.name.startswith(KIND_PREFIX)
        ]
        but = f" but {', '.join(untested)}, of which too little was played to tell" if untested else ""
        why = f"the challenger is better: {figures}, below alpha {evidence.level:.2g}; every guardrail holds{but}"
        return VerdictReason("promote", why)
    if broken := [guard for guard in doubtful if guard.state != "unclear"]:
        return VerdictReason("keep", f"better ({figures}), but {'; '.join(map(_describe_guardrail, broken))}")
    asked = [more for guard in doubtful if (more := _tasks_until_clear(guard, evidence, rule)) is not None]
    needs, limits = max(asked, default=None), "; ".join(map(_describe_guardrail, doubtful))
    return VerdictReason(
        "undecided", f"better ({figures}), but it is not shown that {limits}{_request_text(needs)}", needs
    )


def _too_few_tasks(evidence: VerdictEvidence, families: int, rule: PromotionRule) -> VerdictReason:
    tasks = len(evidence.families)
    needs = max(rule.min_tasks - tasks, rule.min_families - families)
    text = (
        f"too little was played to decide: {count_text(tasks, 'task')} of {count_text(families, 'family')}, "
        f"the rule asks for {rule.min_tasks} of {rule.min_families}"
    )
    return VerdictReason("undecided", f"{text}{_request_text(needs)}", needs)


def _not_superior(evidence: VerdictEvidence, families: int, rule: PromotionRule, figures: str) -> VerdictReason:
    text = f"the challenger is not shown to be better: {figures}, not below alpha {evidence.level:.2g}"
    interval = evidence.effect.difference.interval
    lead = f"{100 * rule.minimum_effect:g} points (the rule's minimum_effect)"
    if interval is not None and interval.high < rule.minimum_effect:
        return VerdictReason("keep", f"{text}; a lead of {lead} is ruled out")
    needs = additional_tasks_for_lead(
        evidence.families, evidence.attempts, evidence.spread, rule.minimum_effect, evidence.level, rule.power
    )
    hopeless = f" ({families} families can never show it)" if families < minimum_families(evidence.level) else ""
    return VerdictReason(
        "undecided", f"{text}{hopeless}; a lead of {lead} is not ruled out{_request_text(needs)}", needs
    )


def _tasks_until_clear(guard: Guardrail, evidence: VerdictEvidence, rule: PromotionRule) -> int | None:
    """Return the tasks of all kinds until a guardrail would be clear."""
    if guard.difference is None or not guard.difference.tasks:
        return None
    more = additional_tasks_for_margin(guard.difference, guard.margin, rule.guardrail_alpha, rule.power)
    return None if more is None else math.ceil(more * len(evidence.families) / guard.difference.tasks)


def _request_text(needs: int | None) -> str:
    return "" if needs is None else f"; needs {needs} more tasks"


def _describe_guardrail(guard: Guardrail) -> str:
    """Describe a guardrail as `mean_steps is within its limit of 3.54 (3.41, p = 0.2)`, or what its figure and limit
    are.
    """
    if guard.challenger is None:
        return f"{guard.name}, unknown of the challenger, is within its limit"
    sign = 1.0 if guard.better == "higher" else -1.0
    limit = (guard.champion or 0.0) - sign * guard.margin
    if guard.state == "broken" and sign * (guard.challenger - limit) >= 0:
        return (
            f"{guard.name} is {guard.challenger:.3g}, shown to be worse than the champion's {guard.champion or 0.0:.3g}"
        )
    if guard.state != "unclear":
        return f"{guard.name} is {guard.challenger:.3g}, the limit is {limit:.3g}"
    return f"{guard.name} ({guard.challenger:.3g}, p = {guard.p_value:.2g}) is within its limit of {limit:.3g}"


CORRECTION = (
    "intersection-union test (Berger 1982): superiority and every guardrail must be shown, each at its own level, so that who is "
    "no better is promoted with at most alpha and who breaks a margin with at most the guardrails' alpha; then, in fixed "
    "sequence, the control at alpha"
)
DRAWS_PER_LEVEL = 20
"""A p-value is sampled so finely that the smallest possible one is at most the level divided by this."""
MAX_DRAWS = 2_000_000
"""Most draws of one p-value. The level of a very early look lies below what they can show, and nothing is promoted
there.
"""


def decide_promotion(
    champion: AgentResult,
    challenger: AgentResult,
    control: AgentResult | None,
    taskset: TasksetRef,
    rule: PromotionRule | None = None,
    *,
    night: str = "",
    seed: int = 0,
    trained: TrainedAgents | None = None,
    declared: NightDeclaration | None = None,
    anchor: AgentResult | None = None,
    looked: tuple[LookResult, ...] = (),
) -> Decision:
    """Return the decision on the tasks of the deciding roles (`promote`, `reserve`); `audit` tasks are reported where
    all agents have them.

    Superiority is tested at the declared level (the rule's alpha without a declaration), guardrails at theirs; `rule`
    None is the default rule. The test against the control comes second and counts only after a significant first one,
    which keeps the family-wise error without dividing it. With an `anchor` the champion is first tested against it, at
    the declared level of the match. With declared looks, the decision is that of the look after those in `looked`.
    Raises DataError where the agents cannot be compared.
    """
    # `whole` is what the record keeps; `rule` below has the guardrail level of this look.
    whole = rule or PromotionRule()
    look = declared.looks[len(looked)] if declared and declared.looks else None
    level = look.level if look else declared.level if declared else whole.alpha
    rule = msgspec.structs.replace(whole, guardrail_alpha=look.guardrail_alpha) if look else whole
    champion, challenger = merge_deciding_roles(champion), merge_deciding_roles(challenger)
    control = merge_deciding_roles(control) if control else None
    main = _compare_by_rule(champion, challenger, "promote", rule, seed)
    versus_champion = _paired_effect(main, rule, level, seed)
    second = _compare_by_rule(control, challenger, "promote", rule, seed) if control else None
    versus_control = _paired_effect(second, rule, level, seed) if second else None
    drift = _compare_by_rule(champion, control, "promote", rule, seed) if control else None
    # Before the last look more tasks are still to come, which may show what a kind of task has too few families for.
    final = look is None or declared is None or look == declared.looks[-1]
    # n_tasks counts only tasks with a pair of outcomes: a task that lost all attempts belongs to the denominator too.
    lost_share = main.lost / ((main.n_tasks + main.lost_tasks) * main.k)
    guards = evaluate_guardrails(champion, challenger, lost_share, rule, seed, final=final)
    match_alpha = rule.alpha if declared is None or declared.match_alpha is None else declared.match_alpha
    match = _anchor_match(merge_deciding_roles(anchor), champion, rule, match_alpha, seed) if anchor else None
    variance = difference_components(main.pairs, main.k)
    families = [pair.family for pair in main.pairs]
    conclusion = reach_verdict(VerdictEvidence(versus_champion, families, main.k, variance, guards, level, match), rule)
    if look and declared:
        stopped = look == declared.looks[-1] or ends_evaluation(conclusion.verdict, versus_champion.p_value, look)
        looked = (*looked, LookResult(look, versus_champion.p_value, conclusion.verdict, conclusion.why, stopped))
    sandboxes = [Counter(agent.sandboxes) for agent in (champion, challenger, control) if agent is not None]
    improvement, improvement_why = _claim_self_improvement(versus_champion, versus_control, conclusion.verdict, level)
    return Decision(
        night=night,
        taskset=taskset,
        rule=whole,
        n_tasks=main.n_tasks,
        n_families=main.n_families,
        k=main.k,
        lost=main.lost,
        champion=_make_contender(champion, "promote", rule, seed),
        challenger=_make_contender(challenger, "promote", rule, seed),
        control=_make_contender(control, "promote", rule, seed) if control else None,
        versus_champion=versus_champion,
        versus_control=versus_control,
        control_versus_champion=_paired_effect(drift, rule, level, seed) if drift else None,
        correction=CORRECTION,
        by_kind=main.by_kind,
        guardrails=guards,
        audit=_audit_result(champion, challenger, control, rule, seed),
        verdict=conclusion.verdict,
        why=conclusion.why,
        self_improvement=improvement,
        self_improvement_why=improvement_why,
        trained=trained,
        level=level,
        spread=variance,
        needs=conclusion.needs,
        declared=declared,
        match=match,
        looked=looked if look else (),
        sandboxes=dict(sum(sandboxes, Counter())),
    )


def _compare_by_rule(a: AgentResult, b: AgentResult, role: str, rule: PromotionRule, seed: int) -> PairedComparison:
    return compare_paired(a, b, role, level=rule.level, n_resamples=rule.n_resamples, seed=seed)


def _make_contender(result: AgentResult, role: str, rule: PromotionRule, seed: int) -> Contender:
    rates = [(rate, task.family) for task in result.of(role) if (rate := task.success_rate) is not None]
    success = rate_estimate(
        [rate for rate, _ in rates],
        [family for _, family in rates],
        level=rule.level,
        n_resamples=rule.n_resamples,
        seed=seed,
    )
    return Contender(AgentRef.of(result), success, summarise_agent(result, role))


def _paired_effect(comparison: PairedComparison, rule: PromotionRule, level: float, seed: int) -> PairedEffect:
    """Return the effect; a sampled p-value that is too coarse for the level is drawn again, finely enough."""
    coarse = not comparison.exact and _draw_count(rule, level) > rule.n_resamples
    p_value = (
        _sign_flip_p_value(comparison, "greater", _draw_count(rule, level), seed) if coarse else comparison.p_value
    )
    return PairedEffect(
        comparison.difference, p_value, comparison.exact, comparison.won, comparison.lost_to, comparison.tied
    )


def _draw_count(rule: PromotionRule, level: float) -> int:
    return min(MAX_DRAWS, max(rule.n_resamples, round(DRAWS_PER_LEVEL / level)))


def _sign_flip_p_value(comparison: PairedComparison, alternative: Alternative, draws: int, seed: int) -> float:
    """Return the p-value of the sign-flip test over families."""
    return permutation_test(
        [pair.b for pair in comparison.pairs],
        [pair.a for pair in comparison.pairs],
        clusters=[pair.family for pair in comparison.pairs],
        alternative=alternative,
        n_resamples=draws,
        seed=seed,
    ).p_value


def _anchor_match(
    anchor: AgentResult, champion: AgentResult, rule: PromotionRule, alpha: float, seed: int
) -> AnchorMatch:
    """Test the champion against the anchor in both directions, each one-sided at `alpha`."""
    comparison = _compare_by_rule(anchor, champion, "promote", rule, seed)
    p_value, other = (
        _sign_flip_p_value(comparison, side, _draw_count(rule, alpha), seed) for side in ("less", "greater")
    )
    effect = PairedEffect(
        comparison.difference, p_value, comparison.exact, comparison.won, comparison.lost_to, comparison.tied
    )
    worse, better = p_value <= alpha, other <= alpha
    direction = "worse" if worse else "better" if better else "not shown to be worse or better"
    text = effect_text(msgspec.structs.replace(effect, p_value=other) if better else effect)
    sentence = f"the champion is {direction} than the anchor: {text}"
    return AnchorMatch(_make_contender(anchor, "promote", rule, seed), effect, alpha, worse, sentence, better, other)


def _claim_self_improvement(
    main: PairedEffect, second: PairedEffect | None, verdict: str, level: float
) -> tuple[bool, str]:
    if second is None:
        return False, "no control was trained, so training longer on old data may explain the difference"
    figures = effect_text(second)
    if main.p_value > level:
        return False, f"not tested, the challenger does not beat the champion (against the control: {figures})"
    if second.p_value > level:
        return False, f"the challenger is not shown to beat the control: {figures}"
    if verdict != "promote":
        return False, f"the challenger beats the control ({figures}) but was not promoted"
    return True, f"the challenger also beats the control, which trained equally long on old data: {figures}"


def _audit_result(
    champion: AgentResult, challenger: AgentResult, control: AgentResult | None, rule: PromotionRule, seed: int
) -> AuditResult | None:
    agents = [champion, challenger, *([control] if control else [])]
    if not all(agent.of("audit") for agent in agents):
        return None
    main = _compare_by_rule(champion, challenger, "audit", rule, seed)
    second = _compare_by_rule(control, challenger, "audit", rule, seed) if control else None
    return AuditResult(
        n_tasks=main.n_tasks,
        n_families=main.n_families,
        k=main.k,
        champion=_make_contender(champion, "audit", rule, seed),
        challenger=_make_contender(challenger, "audit", rule, seed),
        control=_make_contender(control, "audit", rule, seed) if control else None,
        versus_champion=_paired_effect(main, rule, rule.alpha, seed),
        versus_control=_paired_effect(second, rule, rule.alpha, seed) if second else None,
    )
