"""The verdict: promote, keep, or undecided, and why, in words. What it rests on was computed before."""

import math
from collections.abc import Sequence
from typing import NamedTuple

from ..report import effect_text
from ..statistics.power import least_families
from ..statistics.variance import Components
from .guardrails import KIND
from .planning import more_for_margin, more_tasks
from .record import Effect, Guardrail, Match, Verdict
from .rule import PromotionRule


class Found(NamedTuple):
    """What a verdict is made of. `families` holds the family of each task, `level` is that of tonight's test of superiority."""

    effect: Effect
    families: Sequence[str]
    attempts: int
    spread: Components | None
    guardrails: tuple[Guardrail, ...]
    level: float
    match: Match | None = None


class Answer(NamedTuple):
    """`needs`: how many more tasks an undecided night asks for; None where that is not known."""

    verdict: Verdict
    why: str
    needs: int | None = None


def answer(found: Found, rule: PromotionRule) -> Answer:
    """Promote where superiority and every guardrail are shown; keep where either is ruled out; else no decision.

    A lead of `minimum_effect` counts as ruled out where the interval lies below it. On a night on which the champion loses its
    place to the anchor, a challenger that was made from it is not promoted.
    """
    figures = effect_text(found.effect)
    if found.match is not None and found.match.rollback:
        return Answer("keep", f"the anchor takes its place back, {found.match.why}; the challenger ({figures}) waits")
    if (families := len(set(found.families))) < rule.min_families or len(found.families) < rule.min_tasks:
        return _too_little(found, families, rule)
    if found.effect.p_value > found.level:
        return _not_better(found, families, rule, figures)
    doubtful = [guard for guard in found.guardrails if not guard.passed]
    if not doubtful:
        untested = [
            guard.name for guard in found.guardrails if guard.state == "untested" and guard.name.startswith(KIND)
        ]
        but = f" but {', '.join(untested)}, of which too little was played to tell" if untested else ""
        why = f"the challenger is better: {figures}, below alpha {found.level:.2g}; every guardrail holds{but}"
        return Answer("promote", why)
    if broken := [guard for guard in doubtful if guard.state != "unclear"]:
        return Answer("keep", f"better ({figures}), but {_list(broken)}")
    asked = [more for guard in doubtful if (more := _more_for(guard, found, rule)) is not None]
    needs = max(asked, default=None)
    return Answer("undecided", f"better ({figures}), but it is not shown that {_list(doubtful)}{_asks(needs)}", needs)


def _too_little(found: Found, families: int, rule: PromotionRule) -> Answer:
    tasks = len(found.families)
    needs = max(rule.min_tasks - tasks, rule.min_families - families)
    text = (
        f"too little was played to decide: {tasks} tasks of {families} families, "
        f"the rule asks for {rule.min_tasks} of {rule.min_families}"
    )
    return Answer("undecided", f"{text}{_asks(needs)}", needs)


def _not_better(found: Found, families: int, rule: PromotionRule, figures: str) -> Answer:
    text = f"the challenger is not shown to be better: {figures}, not below alpha {found.level:.2g}"
    interval, wanted = found.effect.difference.interval, f"{100 * rule.minimum_effect:g} points"
    if interval is not None and interval.high < rule.minimum_effect:
        return Answer("keep", f"{text}; a lead of {wanted} is ruled out")
    needs = more_tasks(found.families, found.attempts, found.spread, rule.minimum_effect, found.level, rule.power)
    hopeless = f" ({families} families can never show it)" if families < least_families(found.level) else ""
    return Answer("undecided", f"{text}{hopeless}; a lead of {wanted} is not ruled out{_asks(needs)}", needs)


def _more_for(guard: Guardrail, found: Found, rule: PromotionRule) -> int | None:
    """Tasks, of all kinds, until a guardrail would be clear."""
    if guard.difference is None or not guard.difference.tasks:
        return None
    more = more_for_margin(guard.difference, guard.margin, rule.guardrail_alpha, rule.power)
    return None if more is None else math.ceil(more * len(found.families) / guard.difference.tasks)


def _asks(needs: int | None) -> str:
    return "" if needs is None else f"; needs {needs} more tasks"


def _list(guards: Sequence[Guardrail]) -> str:
    return "; ".join(_said(guard) for guard in guards)


def _said(guard: Guardrail) -> str:
    """`mean_steps is within its limit of 3.54 (3.41, p = 0.2)`, or that it is not."""
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
