"""The account of a decision in plain lines: what was declared, each test with its numbers, and what is missing."""

from collections.abc import Iterator, Sequence

from ..report import effect_text, interval_text, p_text, percent
from ..statistics import Estimate
from .declared import Declared
from .guardrails import KIND
from .record import Decision, Guardrail, Match

_STATES = {"holds": "holds", "broken": "BROKEN", "unclear": "NOT SHOWN", "untested": "too few families to test"}


def account(decision: Decision) -> str:
    """Everything that the verdict rests on, a line each."""
    return "\n".join(_lines(decision))


def _lines(decision: Decision) -> Iterator[str]:
    if decision.declared is not None:
        yield from _declared(decision.declared)
    elif decision.schema_version < 2:
        yield "Declared: nothing is known; a decision of an older version, by the rule in its record."
    else:
        yield "Declared: nothing beforehand; compared by hand, at the rule's own alpha."
    yield from _looks(decision)
    level = decision.tested_at
    effect = decision.versus_champion
    shown = "shown" if effect.p_value <= level else "not shown"
    tasks = f"{effect.won} tasks won, {effect.lost_to} lost, {effect.tied} tied"
    yield f"Superiority: {shown}; {effect_text(effect)} against alpha {level:.2g}; {tasks}."
    for guard in decision.guardrails:
        yield guardrail_line(guard, decision.guarded_at)
    if decision.match is not None:
        yield f"Match: {decision.match.why}, against alpha {decision.match.alpha:g}; {_moved(decision.match)}."
    if decision.needs is not None:
        yield f"Needs: {decision.needs} more tasks, {_for_what(decision)}."
    yield f"Correction: {decision.correction}."


def _declared(made: Declared) -> Iterator[str]:
    yield (
        f"Declared at {made.at}, before anything was played: {made.tasks} tasks of {made.families} families × {made.attempts} "
        f"attempts, superiority at alpha {made.level:.2g}, guardrails at {made.guardrail_alpha:g}."
    )
    if (left := made.allowance) is not None:
        how = (
            f"LORD++, alpha {left.alpha:g} in all" if left.method == "lord" else f"every night at alpha {left.alpha:g}"
        )
        yield (
            f"Season {left.season}, test {left.test} of {left.nights} ({how}): promotions so far: {left.promotions}; "
            f"p-values so far: {_listed(made.p_values)}."
        )
    if made.expected_false is not None:
        yield (
            f"False promotions expected of the season, with tonight's test, if no challenger is better: at most "
            f"{made.expected_false:.2g}, the sum of the levels."
        )
    found = "unknown" if made.detectable is None else f"{100 * made.detectable:.1f} points"
    yield (
        f"Power {made.power:g} was asked for a lead of {100 * made.minimum_effect:g} points; these tasks find with it: {found}."
    )


def _looks(decision: Decision) -> Iterator[str]:
    """What was declared of them, and what each that was taken found."""
    if decision.declared is None or not decision.looked:
        return
    looks = decision.declared.looks
    bounds = "; ".join(f"after {look.tasks} tasks {look.level:.2g} and {look.guardrail_alpha:.2g}" for look in looks)
    yield f"Looks: the levels above are spent over {len(looks)}, superiority's and each guardrail's: {bounds}."
    for number, found in enumerate(decision.looked, 1):
        end = "the evaluation ended here" if found.stopped else "it went on"
        yield f"Look {number}: {found.look.tasks} tasks of {found.look.families} families, {p_text(found.p_value)}; {end}."


def guardrail_line(guard: Guardrail, alpha: float) -> str:
    """`Guardrail mean_steps: holds; 3.05 against 3.04, +0.01 [-0.02, +0.05], margin 0.5, p = 0.0001 against alpha 0.05.`"""
    state = _STATES[guard.state] if guard.state else ("holds" if guard.passed else "BROKEN")
    if guard.name.startswith(KIND):
        figures, margin = (
            f"{percent(guard.challenger)} against {percent(guard.champion)}",
            f"{100 * guard.margin:g} points",
        )
    else:
        figures, margin = f"{_number(guard.challenger)} against {_number(guard.champion)}", f"{guard.margin:.3g}"
    if guard.champion is None:
        return f"Guardrail {guard.name}: {state}; {_number(guard.challenger)}, limit {margin}."
    difference = (
        "" if guard.difference is None else f", {_difference(guard.difference, points=guard.name.startswith(KIND))}"
    )
    test = "" if guard.p_value is None else f", {p_text(guard.p_value)} against alpha {alpha:g}"
    return f"Guardrail {guard.name}: {state}; {figures}{difference}, margin {margin}{test}."


def _difference(estimate: Estimate, *, points: bool) -> str:
    if points and estimate.value is not None:
        return f"{100 * estimate.value:+.1f} points {interval_text(estimate, signed=True)}"
    around = estimate.interval
    bounds = "[no interval]" if around is None else f"[{around.low:+.3g}, {around.high:+.3g}]"
    return f"{0.0 if estimate.value is None else estimate.value:+.3g} {bounds}"


def _moved(match: Match) -> str:
    if match.rollback:
        return "the place goes back to the anchor"
    return "the anchor stays" if match.better is False else "the champion becomes the anchor"


def _listed(p_values: Sequence[float | None]) -> str:
    return ", ".join("unknown" if p is None else f"{p:.2g}" for p in p_values) or "none"


def _number(value: float | None) -> str:
    return "unknown" if value is None else f"{value:.3g}"


def _for_what(decision: "Decision") -> str:
    rule = decision.rule
    if decision.n_tasks < rule.min_tasks or decision.n_families < rule.min_families:
        return f"for the rule asks for {rule.min_tasks} of {rule.min_families} families"
    return f"with which a decision has power {rule.power:g}"
