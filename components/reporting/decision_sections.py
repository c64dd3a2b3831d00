"""Report sections about the decision: the answer, success rates, differences by kind of task, guardrails and the rule."""

from collections.abc import Iterator

from ratchet.components.evaluation.promotion.decision_record import (
    Contender,
    Decision,
    Guardrail,
    PairedEffect,
    effect_text,
)
from ratchet.components.statistics.result_types import (
    Estimate,
    format_number,
    interval_text,
    p_text,
    percent,
    percentage_points,
)

from .decision_text import (
    VERDICT_TITLES,
    as_sentence,
    audit_sentence,
    control_sentence,
    explain_decision,
    kinds_by_lead,
    match_text,
    model_verdict,
    role_meaning,
    sandboxes_text,
    success_cells,
)
from .report_blocks import CollapsedBlocks, Paragraph, ReportBlock, ReportTable, Tone, VerdictBanner

NO_BREAK_SPACE = "\u00a0"
"""A no-break space."""
VERDICT_TONES: dict[str, Tone] = {"promote": "good", "keep": "plain", "undecided": "plain"}


def verdict_banner(decision: Decision) -> VerdictBanner:
    """Return the banner of a decided night: verdict, reason, headline numbers, and notes on the control and the audit
    tasks.
    """
    lead = decision.versus_champion
    return VerdictBanner(
        VERDICT_TITLES[decision.verdict],
        as_sentence(decision.why),
        VERDICT_TONES[decision.verdict],
        (
            (percent(decision.champion.success.value), "champion"),
            (percent(decision.challenger.success.value), "challenger"),
            (_lead_text(lead.difference), "lead in points"),
            (p_text(lead.p_value).removeprefix("p = "), "p (one-sided)"),
        ),
        tuple(note for note in (control_sentence(decision), audit_sentence(decision)) if note is not None),
    )


def success_blocks(decision: Decision) -> Iterator[ReportBlock]:
    """Yield success rates and leads on deciding and audit tasks, and the cost of an episode."""
    level, taskset = f"{100 * decision.rule.level:g} % interval", decision.taskset
    yield ReportTable(
        ("agent", "success", level),
        tuple((name, *success_cells(contender)) for name, contender in _contenders(decision)),
        f"{decision.n_tasks} promote tasks × {decision.k} attempts, {decision.n_families} families of {taskset.name} "
        f"{taskset.version}: {role_meaning('promote', taskset)}; {decision.lost} attempts without an outcome",
    )
    if decision.declared is not None and len(decision.looked) < len(decision.declared.looks):
        end, whole = decision.looked[-1].look, decision.declared
        yield Paragraph(f"The evaluation ended early, as declared, after {end.tasks} of {whole.tasks} tasks.")
    leads = [("champion", decision.versus_champion), ("control", decision.versus_control)]
    rows = tuple(_lead_row(f"the {name}", effect) for name, effect in leads if effect is not None)
    yield ReportTable(
        ("challenger against", "lead, points", "p (one-sided)", "won : lost : tied"),
        rows,
        "Leads, and tasks solved more often, less often, as often",
    )
    if decision.sandboxes:
        yield Paragraph(f"{sandboxes_text(decision)}.")
    claimed = "yes" if decision.self_improvement else "not claimed"
    yield Paragraph(f"Self-improvement: {claimed}. {as_sentence(decision.self_improvement_why)}")
    if limit := model_verdict(decision.champion.agent, decision.challenger.agent):
        yield Paragraph(limit, "quiet")
    if (match := decision.match) is not None:
        yield Paragraph(f"{match_text(match)}.", "bad" if match.rollback else "plain")
    if (audit := decision.audit) is not None:
        contenders = [("champion", audit.champion), ("control", audit.control), ("challenger", audit.challenger)]
        yield ReportTable(
            ("agent", "success", level),
            tuple((name, *success_cells(contender)) for name, contender in contenders if contender is not None),
            f"{audit.n_tasks} audit tasks × {audit.k}, {role_meaning('audit', taskset)}: for information only. "
            f"Lead over the champion: {effect_text(audit.versus_champion)}",
        )
    yield ReportTable(
        ("agent", "calls", "tokens", "invalid calls", "cut off"),
        tuple((name, *_cost_cells(contender)) for name, contender in _contenders(decision)),
        "Cost of an episode",
    )


def kind_table(decision: Decision) -> ReportTable:
    """Return the results by kind of task, for reading, without tests."""
    return ReportTable(
        ("kind of task", "champion", "challenger", "lead, points"),
        tuple(
            (f"{row.kind} ({lead.tasks})", percent(row.a.value), percent(row.b.value), _lead_text(lead))
            for row in kinds_by_lead(decision)
            if (lead := row.difference)
        ),
        f"From the worst change to the best, with {100 * decision.rule.level:g} % intervals; coloured where they exclude 0",
        tuple(_interval_tone(row.difference) for row in kinds_by_lead(decision)),
    )


def guardrail_table(decision: Decision) -> ReportTable:
    """Return the guardrails with their state."""
    guardrails = decision.guardrails
    return ReportTable(
        ("guardrail", "verdict", "champion → challenger", "margin"),
        tuple(_guardrail_row(guardrail) for guardrail in guardrails),
        "Each must be shown to be worse by less than its margin",
        tuple(_guardrail_tone(guardrail) for guardrail in guardrails),
    )


def rule_details(decision: Decision) -> CollapsedBlocks:
    """Return what was declared before the night and how each test came out, collapsed."""
    return CollapsedBlocks(
        "What was declared and how it was tested",
        tuple(Paragraph(line) for line in explain_decision(decision).splitlines()),
    )


def _contenders(decision: Decision) -> Iterator[tuple[str, Contender]]:
    yield "champion", decision.champion
    if decision.control is not None:
        yield "control", decision.control
    yield "challenger", decision.challenger
    if decision.match is not None:
        yield "anchor", decision.match.anchor


def _cost_cells(contender: Contender) -> tuple[str, ...]:
    figures = contender.summary
    tokens = figures.prompt_and_completion
    return (
        format_number(figures.mean_steps),
        "n/a" if tokens is None else f"{tokens:,.0f}",
        percent(figures.invalid_call_rate),
        percent(figures.truncation_rate),
    )


def _lead_row(name: str, effect: PairedEffect) -> tuple[str, ...]:
    return (
        name,
        _lead_text(effect.difference),
        p_text(effect.p_value).removeprefix("p = "),
        f"{effect.won} : {effect.lost_to} : {effect.tied}",
    )


def _guardrail_row(guard: Guardrail) -> tuple[str, ...]:
    state = guard.state or ("holds" if guard.passed else "broken")
    tested = "" if guard.p_value is None else f", {p_text(guard.p_value).replace(' ', NO_BREAK_SPACE)}"
    verdict = (state if guard.passed else state.upper()) + tested
    return (
        guard.name,
        verdict,
        " → ".join(_guardrail_figures(guard)),
        _margin_text(guard),
    )


_SHARES = {"invalid_call_rate": "of calls", "unsafe_actions": "of attempts", "lost_attempts": "of attempts"}
_UNITS = {"mean_steps": "calls", "tokens": "tokens", "cost": "an episode"}


def _guardrail_figures(guard: Guardrail) -> tuple[str, str]:
    """Return the figures of champion and challenger, the second with their unit."""
    if guard.name not in _UNITS:
        unit = _SHARES.get(guard.name, "")
        return percent(guard.champion), f"{percent(guard.challenger)} {unit}".rstrip()
    return format_number(guard.champion), f"{format_number(guard.challenger)} {_UNITS[guard.name]}"


def _margin_text(guard: Guardrail) -> str:
    return f"{guard.margin:.3g} {_UNITS[guard.name]}" if guard.name in _UNITS else f"{100 * guard.margin:.3g} points"


def _guardrail_tone(guard: Guardrail) -> Tone:
    if not guard.passed:
        return "bad"
    return "quiet" if guard.state == "untested" else "good"


def _lead_text(lead: Estimate) -> str:
    """Format a lead in points with its interval, with no-break spaces so that a narrow column does not split it."""
    return f"{percentage_points(lead.value)} {interval_text(lead, signed=True).replace(' ', NO_BREAK_SPACE)}"


def _interval_tone(estimate: Estimate) -> Tone:
    interval = estimate.interval
    if interval is None or interval.low <= 0 <= interval.high:
        return "plain"
    return "good" if interval.low > 0 else "bad"
