"""Verdict: a report's sections about the decision: the answer, its figures, where the difference lies, and what it rests on."""

from collections.abc import Iterator

from ..promotion import Contender, Decision, Effect, Guardrail
from ..statistics import Estimate
from .blocks import Banner, Block, Fold, Prose, Table, Tone
from .words import (
    AUDIT_MEANING,
    VERDICTS,
    audit_sentence,
    control_sentence,
    effect_text,
    explain,
    interval_text,
    kinds_by_lead,
    meaning,
    number,
    p_text,
    percent,
    points,
    sandboxes_text,
    sentence,
)

UNBROKEN = "\u00a0"
"""A space at which no line ends."""
TONES: dict[str, Tone] = {"promote": "good", "keep": "plain", "undecided": "plain"}


def banner(decision: Decision) -> Banner:
    """The answer, why, the numbers that a person remembers, and what the control and the audit tasks say of the lead."""
    lead = decision.versus_champion
    return Banner(
        VERDICTS[decision.verdict],
        sentence(decision.why),
        TONES[decision.verdict],
        (
            (percent(decision.champion.success.value), "champion"),
            (percent(decision.challenger.success.value), "challenger"),
            (_points(lead.difference), "lead in points"),
            (p_text(lead.p_value).removeprefix("p = "), "p (one-sided)"),
        ),
        tuple(note for note in (control_sentence(decision), audit_sentence(decision)) if note is not None),
    )


def success(decision: Decision) -> Iterator[Block]:
    """Who solved how much, on the tasks that decide and on those that are only looked at, at what expense."""
    level, taskset = f"{100 * decision.rule.level:g} % interval", decision.taskset
    yield Table(
        ("agent", "success", level),
        tuple((name, *_success(each)) for name, each in _agents(decision)),
        f"{decision.n_tasks} promote tasks × {decision.k} attempts, {decision.n_families} families of {taskset.name} "
        f"{taskset.version}: {meaning('promote', taskset.split_by)}; {decision.lost} attempts lost",
    )
    if decision.declared is not None and len(decision.looked) < len(decision.declared.looks):
        end, whole = decision.looked[-1].look, decision.declared
        yield Prose(f"The evaluation ended early, as declared, after {end.tasks} of {whole.tasks} tasks.")
    leads = [("champion", decision.versus_champion), ("control", decision.versus_control)]
    rows = tuple(_lead(f"the {name}", effect) for name, effect in leads if effect is not None)
    yield Table(
        ("challenger against", "lead, points", "p (one-sided)", "won : lost : tied"),
        rows,
        "Leads, and tasks solved more often, less often, as often",
    )
    if decision.sandboxes:
        yield Prose(f"{sandboxes_text(decision)}.")
    claimed = "yes" if decision.self_improvement else "not claimed"
    yield Prose(f"Self-improvement: {claimed}. {sentence(decision.self_improvement_why)}")
    if (match := decision.match) is not None:
        told = f"Match against an old champion: {effect_text(match.effect)}. {sentence(match.why)}"
        yield Prose(told, "bad" if match.rollback else "plain")
    if (audit := decision.audit) is not None:
        found = [("champion", audit.champion), ("control", audit.control), ("challenger", audit.challenger)]
        yield Table(
            ("agent", "success", level),
            tuple((name, *_success(each)) for name, each in found if each is not None),
            f"{audit.n_tasks} audit tasks × {audit.k}, {AUDIT_MEANING}: only looked at. Lead over the champion: "
            f"{effect_text(audit.versus_champion)}",
        )
    yield Table(
        ("agent", "calls", "tokens", "invalid calls", "cut off"),
        tuple((name, *_expense(each)) for name, each in _agents(decision)),
        "What an episode takes",
    )


def kinds(decision: Decision) -> Table:
    """Each kind of task: for reading, without a test of its own."""
    return Table(
        ("kind of task", "champion", "challenger", "lead, points"),
        tuple(
            (
                f"{row.kind} ({row.difference.tasks})",
                percent(row.a.value),
                percent(row.b.value),
                _points(row.difference),
            )
            for row in kinds_by_lead(decision)
        ),
        f"From the worst change to the best, with {100 * decision.rule.level:g} % intervals; coloured where they leave 0 out",
        tuple(_tone(row.difference) for row in kinds_by_lead(decision)),
    )


def guardrails(decision: Decision) -> Table:
    """What must not get worse, and whether it did."""
    found = decision.guardrails
    return Table(
        ("guardrail", "verdict", "champion → challenger", "margin"),
        tuple(_guardrail(each) for each in found),
        "Worse by no more than the margin",
        tuple(_guarded(each) for each in found),
    )


def rule(decision: Decision) -> Fold:
    """What was declared before the night, and what was tested how."""
    return Fold(
        "What was declared and how it was tested", tuple(Prose(line) for line in explain(decision).splitlines())
    )


def _agents(decision: Decision) -> Iterator[tuple[str, Contender]]:
    yield "champion", decision.champion
    if decision.control is not None:
        yield "control", decision.control
    yield "challenger", decision.challenger
    if decision.match is not None:
        yield "anchor", decision.match.anchor


def _expense(contender: Contender) -> tuple[str, ...]:
    figures = contender.summary
    prompt, completion = figures.mean_prompt_tokens, figures.mean_completion_tokens
    return (
        number(figures.mean_steps),
        "n/a" if prompt is None or completion is None else f"{prompt + completion:,.0f}",
        percent(figures.invalid_call_rate),
        percent(figures.truncation_rate),
    )


def _success(contender: Contender) -> tuple[str, str]:
    return percent(contender.success.value), interval_text(contender.success)


def _lead(name: str, effect: Effect) -> tuple[str, ...]:
    return (
        name,
        _points(effect.difference),
        p_text(effect.p_value).removeprefix("p = "),
        f"{effect.won} : {effect.lost_to} : {effect.tied}",
    )


def _guardrail(guard: Guardrail) -> tuple[str, ...]:
    state = guard.state or ("holds" if guard.passed else "broken")
    tested = "" if guard.p_value is None else f", {p_text(guard.p_value).replace(' ', UNBROKEN)}"
    verdict = (state if guard.passed else state.upper()) + tested
    return guard.name, verdict, f"{number(guard.champion)} → {number(guard.challenger)}", f"{guard.margin:.3g}"


def _guarded(guard: Guardrail) -> Tone:
    if not guard.passed:
        return "bad"
    return "quiet" if guard.state == "untested" else "good"


def _points(lead: Estimate) -> str:
    """A lead with its interval, which is never broken over two lines."""
    return f"{points(lead.value)} {interval_text(lead, signed=True).replace(' ', UNBROKEN)}"


def _tone(estimate: Estimate) -> Tone:
    interval = estimate.interval
    if interval is None or interval.low <= 0 <= interval.high:
        return "plain"
    return "good" if interval.low > 0 else "bad"
