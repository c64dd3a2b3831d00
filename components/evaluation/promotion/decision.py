"""Deciding: from the results of the agents to the decision record."""

from collections import Counter

import msgspec

from ..comparison import AgentRef, Comparison, compare
from ..metrics import AgentResult, summary
from ..report import effect_text
from ..statistics import Alternative, permutation_test, rate_estimate
from .declared import Declared
from .guardrails import guardrails
from .looks import PlannedLook, TakenLook, stops
from .planning import spread
from .record import Audit, Contender, Decision, Effect, Match, TasksetRef, Trained
from .rule import PromotionRule
from .tasks import deciding
from .verdict import Answer, Found, answer

CORRECTION = (
    "intersection-union test (Berger 1982): superiority and every guardrail must be shown, each at its own level, so that who is "
    "no better is promoted with at most alpha and who breaks a margin with at most the guardrails' alpha; then, in fixed "
    "sequence, the control at alpha"
)
FINE = 20
"""A p-value is drawn so finely that the smallest possible one is at most the level divided by this."""
MOST = 2_000_000
"""Draws of one p-value; the level of a very early look lies below what so many can show, and nothing is promoted there."""


def decide(
    champion: AgentResult,
    challenger: AgentResult,
    control: AgentResult | None,
    taskset: TasksetRef,
    rule: PromotionRule | None = None,
    *,
    night: str = "",
    seed: int = 0,
    trained: Trained | None = None,
    declared: Declared | None = None,
    anchor: AgentResult | None = None,
    looked: tuple[TakenLook, ...] = (),
) -> Decision:
    """The verdict on the tasks that decide (`promote` and `reserve`); the `audit` tasks are reported where all agents played them.

    Superiority is tested at the declared level (the rule's alpha where nothing was declared), guardrails at theirs. The test
    against the control comes second and only counts after a significant first one, which keeps the family-wise error
    without dividing it. With an `anchor`, the champion must first hold its place against it, at the declared level of the match.
    Where looks were declared, the agents are at the one after those that have `looked`, and its levels hold. Raises DataError
    where the agents cannot be compared.
    """
    whole = rule or PromotionRule()
    look = declared.looks[len(looked)] if declared and declared.looks else None
    level, rule = _levels(whole, declared, look)
    champion, challenger = deciding(champion), deciding(challenger)
    control = deciding(control) if control else None
    main = _compare(champion, challenger, "promote", rule, seed)
    versus_champion = _effect(main, rule, level, seed)
    second = _compare(control, challenger, "promote", rule, seed) if control else None
    versus_control = _effect(second, rule, level, seed) if second else None
    drift = _compare(champion, control, "promote", rule, seed) if control else None
    final = look is None or declared is None or look == declared.looks[-1]
    guards = guardrails(champion, challenger, _lost(main), rule, seed, final=final)
    match_alpha = rule.alpha if declared is None or declared.match_alpha is None else declared.match_alpha
    match = _match(deciding(anchor), champion, rule, match_alpha, seed) if anchor else None
    variance = spread(main.pairs, main.k)
    families = [pair.family for pair in main.pairs]
    found = answer(Found(versus_champion, families, main.k, variance, guards, level, match), rule)
    improvement, improvement_why = _self_improvement(versus_champion, versus_control, found.verdict, level)
    return Decision(
        night=night,
        taskset=taskset,
        rule=whole,
        n_tasks=main.n_tasks,
        n_families=main.n_families,
        k=main.k,
        lost=main.lost,
        champion=_contender(champion, "promote", rule, seed),
        challenger=_contender(challenger, "promote", rule, seed),
        control=_contender(control, "promote", rule, seed) if control else None,
        versus_champion=versus_champion,
        versus_control=versus_control,
        control_versus_champion=_effect(drift, rule, level, seed) if drift else None,
        correction=CORRECTION,
        by_kind=main.by_kind,
        guardrails=guards,
        audit=_audit(champion, challenger, control, rule, seed),
        verdict=found.verdict,
        why=found.why,
        self_improvement=improvement,
        self_improvement_why=improvement_why,
        trained=trained,
        level=level,
        spread=variance,
        needs=found.needs,
        declared=declared,
        match=match,
        looked=(*looked, _taken(look, found, versus_champion, declared)) if look and declared else (),
        sandboxes=_sandboxes(champion, challenger, control),
    )


def _sandboxes(*results: AgentResult | None) -> dict[str, int]:
    return dict(sum((Counter(each.sandboxes) for each in results if each is not None), Counter()))


def _taken(look: PlannedLook, found: Answer, effect: Effect, declared: Declared) -> TakenLook:
    stopped = look == declared.looks[-1] or stops(found.verdict, effect.p_value, look)
    return TakenLook(look, effect.p_value, found.verdict, found.why, stopped)


def _levels(rule: PromotionRule, declared: Declared | None, look: PlannedLook | None) -> tuple[float, PromotionRule]:
    """The level of superiority, and the rule with that of its guardrails."""
    if look is not None:
        return look.level, msgspec.structs.replace(rule, guardrail_alpha=look.guardrail_alpha)
    return declared.level if declared else rule.alpha, rule


def _compare(a: AgentResult, b: AgentResult, role: str, rule: PromotionRule, seed: int) -> Comparison:
    return compare(a, b, role, level=rule.level, n_resamples=rule.n_resamples, seed=seed)


def _contender(result: AgentResult, role: str, rule: PromotionRule, seed: int) -> Contender:
    tasks = [task for task in result.of(role) if task.rate is not None]
    success = rate_estimate(
        [task.rate for task in tasks if task.rate is not None],
        [task.family for task in tasks],
        level=rule.level,
        n_resamples=rule.n_resamples,
        seed=seed,
    )
    return Contender(AgentRef.of(result), success, summary(result, role))


def _effect(found: Comparison, rule: PromotionRule, level: float, seed: int) -> Effect:
    """Where the sampled p-value is too coarse for the level, it is drawn again, finely enough."""
    coarse = not found.exact and _draws(rule, level) > rule.n_resamples
    p_value = _p_value(found, "greater", _draws(rule, level), seed) if coarse else found.p_value
    return Effect(found.difference, p_value, found.exact, found.won, found.lost_to, found.tied)


def _draws(rule: PromotionRule, level: float) -> int:
    return min(MOST, max(rule.n_resamples, round(FINE / level)))


def _p_value(found: Comparison, alternative: Alternative, draws: int, seed: int) -> float:
    """Of the sign-flip test over families."""
    return permutation_test(
        [pair.b for pair in found.pairs],
        [pair.a for pair in found.pairs],
        clusters=[pair.family for pair in found.pairs],
        alternative=alternative,
        n_resamples=draws,
        seed=seed,
    ).p_value


def _lost(main: Comparison) -> float:
    return main.lost / ((main.n_tasks + main.lost_tasks) * main.k)


def _match(anchor: AgentResult, champion: AgentResult, rule: PromotionRule, alpha: float, seed: int) -> Match:
    """The champion against the anchor, both directions one-sided at `alpha`."""
    found = _compare(anchor, champion, "promote", rule, seed)
    p_value, other = (_p_value(found, side, _draws(rule, alpha), seed) for side in ("less", "greater"))
    effect = Effect(found.difference, p_value, found.exact, found.won, found.lost_to, found.tied)
    worse, better = p_value <= alpha, other <= alpha
    shown = "worse" if worse else "better" if better else "not shown to be worse or better"
    text = effect_text(msgspec.structs.replace(effect, p_value=other) if better else effect)
    sentence = f"the champion is {shown} than the anchor: {text}"
    return Match(_contender(anchor, "promote", rule, seed), effect, alpha, worse, sentence, better, other)


def _self_improvement(main: Effect, second: Effect | None, verdict: str, level: float) -> tuple[bool, str]:
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


def _audit(
    champion: AgentResult, challenger: AgentResult, control: AgentResult | None, rule: PromotionRule, seed: int
) -> Audit | None:
    agents = [champion, challenger, *([control] if control else [])]
    if not all(agent.of("audit") for agent in agents):
        return None
    main = _compare(champion, challenger, "audit", rule, seed)
    second = _compare(control, challenger, "audit", rule, seed) if control else None
    return Audit(
        n_tasks=main.n_tasks,
        n_families=main.n_families,
        k=main.k,
        champion=_contender(champion, "audit", rule, seed),
        challenger=_contender(challenger, "audit", rule, seed),
        control=_contender(control, "audit", rule, seed) if control else None,
        versus_champion=_effect(main, rule, rule.alpha, seed),
        versus_control=_effect(second, rule, rule.alpha, seed) if second else None,
    )
