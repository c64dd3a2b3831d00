"""Verdict: the sections of a report about the decision: the answer, its figures, where the difference lies, and what it rests on."""

from collections.abc import Iterator

from ..promotion import Contender, Decision, Effect, Guardrail
from ..statistics import Estimate
from .blocks import Banner, Block, Fold, Prose, Table, Tone
from .words import (
    AUDIT_MEANING,
    VERDICTS,
    effect_text,
    explain,
    interval_text,
    meaning,
    number,
    p_text,
    percent,
    points,
    sentence,
)

TONES: dict[str, Tone] = {"promote": "good", "keep": "plain", "undecided": "plain"}


def banner(decision: Decision) -> Banner:
    """The answer, why, and the numbers that a person remembers."""
    lead = decision.versus_champion
    return Banner(
        VERDICTS[decision.verdict],
        sentence(decision.why),
        TONES[decision.verdict],
        (
            (percent(decision.champion.success.value), "champion"),
            (percent(decision.challenger.success.value), "challenger"),
            (f"{points(lead.difference.value)} {interval_text(lead.difference, signed=True)}", "lead in points"),
            (p_text(lead.p_value).removeprefix("p = "), "p (one-sided)"),
        ),
    )


def success(decision: Decision) -> Iterator[Block]:
    """Who solved how much, on the tasks that decide and on those that are only looked at, at what expense."""
    level, taskset = f"{100 * decision.rule.level:g} % interval", decision.taskset
    yield Table(
        ("agent", "success", level, "calls an episode", "tokens an episode", "invalid calls", "truncated"),
        tuple(_agent(name, each) for name, each in _agents(decision)),
        f"{decision.n_tasks} promote tasks × {decision.k} attempts, {decision.n_families} families of {taskset.name} "
        f"{taskset.version}: {meaning('promote', taskset.split_by)}; {decision.lost} attempts lost",
    )
    leads = [("champion", decision.versus_champion), ("control", decision.versus_control)]
    rows = tuple(_lead(f"the {name}", effect) for name, effect in leads if effect is not None)
    yield Table(
        ("challenger against", "lead, points", level, "p (one-sided)", "won", "lost", "tied"), rows, "Tasks by lead"
    )
    yield Prose(
        f"Self-improvement: {'yes' if decision.self_improvement else 'not claimed'}. {sentence(decision.self_improvement_why)}"
    )
    if (match := decision.match) is not None:
        yield Prose(
            f"Match against an old champion: {effect_text(match.effect)}. {sentence(match.why)}",
            "bad" if match.rollback else "plain",
        )
    if (audit := decision.audit) is not None:
        found = [("champion", audit.champion), ("control", audit.control), ("challenger", audit.challenger)]
        yield Table(
            ("agent", "success", level),
            tuple((name, *_success(each)) for name, each in found if each is not None),
            f"{audit.n_tasks} audit tasks × {audit.k}, {AUDIT_MEANING}: only looked at. Lead over the champion: "
            f"{effect_text(audit.versus_champion)}",
        )


def kinds(decision: Decision) -> Table:
    """Each kind of task: for reading, without a test of its own."""
    rows = sorted(decision.by_kind, key=lambda row: row.difference.value or 0.0)
    return Table(
        (
            "kind of task",
            "tasks",
            "champion",
            "challenger",
            "lead, points",
            f"{100 * decision.rule.level:g} % interval",
        ),
        tuple(
            (
                row.kind,
                str(row.difference.tasks),
                percent(row.a.value),
                percent(row.b.value),
                points(row.difference.value),
                interval_text(row.difference, signed=True),
            )
            for row in rows
        ),
        "From the worst change to the best; coloured where the interval leaves 0 out",
        tuple(_tone(row.difference) for row in rows),
    )


def guardrails(decision: Decision) -> Table:
    """What must not get worse, and whether it did."""
    found = decision.guardrails
    return Table(
        ("guardrail", "", "champion", "challenger", "margin", "difference", "p"),
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


def _agent(name: str, contender: Contender) -> tuple[str, ...]:
    figures = contender.summary
    prompt, completion = figures.mean_prompt_tokens, figures.mean_completion_tokens
    return (
        name,
        *_success(contender),
        number(figures.mean_steps),
        "n/a" if prompt is None or completion is None else f"{prompt + completion:,.0f}",
        percent(figures.invalid_call_rate),
        percent(figures.truncation_rate),
    )


def _success(contender: Contender) -> tuple[str, str]:
    return percent(contender.success.value), interval_text(contender.success)


def _lead(name: str, effect: Effect) -> tuple[str, ...]:
    lead = effect.difference
    tested = p_text(effect.p_value).removeprefix("p = ")
    counts = (str(effect.won), str(effect.lost_to), str(effect.tied))
    return name, points(lead.value), interval_text(lead, signed=True), tested, *counts


def _guardrail(guard: Guardrail) -> tuple[str, ...]:
    state = guard.state or ("holds" if guard.passed else "broken")
    difference = "" if guard.difference is None else _plain(guard.difference)
    p_value = "" if guard.p_value is None else p_text(guard.p_value).removeprefix("p = ")
    figures = (number(guard.champion), number(guard.challenger), f"{guard.margin:g}")
    return guard.name, state if guard.passed else state.upper(), *figures, difference, p_value


def _guarded(guard: Guardrail) -> Tone:
    if not guard.passed:
        return "bad"
    return "quiet" if guard.state == "untested" else "good"


def _plain(estimate: Estimate) -> str:
    """A difference in its own unit, with its interval."""
    interval = estimate.interval
    around = "" if interval is None else f" [{interval.low:+.3g}, {interval.high:+.3g}]"
    return "n/a" if estimate.value is None else f"{estimate.value:+.3g}{around}"


def _tone(estimate: Estimate) -> Tone:
    interval = estimate.interval
    if interval is None or interval.low <= 0 <= interval.high:
        return "plain"
    return "good" if interval.low > 0 else "bad"
