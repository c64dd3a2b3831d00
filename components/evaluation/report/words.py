"""A decision in words, for the terminal: one table and a few sentences."""

from typing import TYPE_CHECKING

from ..statistics import Estimate

if TYPE_CHECKING:
    from rich.table import Table

    from ..comparison import KindRow
    from ..promotion import Contender, Decision, Effect

_MEANING = {
    ("instance", "promote"): "new instances of known programs",
    ("family", "promote"): "families never seen in train",
}
AUDIT_MEANING = "programs never seen"
VERDICTS = {"promote": "Promoted", "keep": "Kept the champion", "undecided": "No decision, the champion stays"}
"""A verdict as a person says it."""


def meaning(role: str, split_by: str) -> str:
    """What a success rate on the tasks of a role measures, given how the taskset was split."""
    if role == "audit":
        return AUDIT_MEANING
    return _MEANING.get((split_by, role), f"{role} tasks")


def percent(value: float | None) -> str:
    """`71.3 %`, or n/a."""
    return "n/a" if value is None else f"{100 * value:.1f} %"


def points(value: float | None) -> str:
    """A difference of rates in percentage points, signed."""
    return "n/a" if value is None else f"{100 * value:+.1f}"


def interval_text(estimate: Estimate, *, signed: bool = False) -> str:
    """`[64.9, 77.2]` in percent; says so where the data give no interval."""
    if estimate.interval is None:
        return "[no interval]"
    sign = "+" if signed else ""
    return f"[{100 * estimate.interval.low:{sign}.1f}, {100 * estimate.interval.high:{sign}.1f}]"


def p_text(p_value: float) -> str:
    """`p = 0.0012`, never rounded to nothing."""
    return f"p = {p_value:.2g}" if p_value < 0.001 else f"p = {p_value:.4f}"


def effect_text(effect: "Effect") -> str:
    """`+12.0 points [+5.1, +18.8], p = 0.0012`."""
    lead = points(effect.difference.value)
    return f"{lead} points {interval_text(effect.difference, signed=True)}, {p_text(effect.p_value)}"


def summary_sentence(decision: "Decision") -> str:
    """The verdict in one sentence with its numbers: the description of a run."""
    return (
        f"{VERDICTS[decision.verdict]}: {decision.why} (champion {percent(decision.champion.success.value)}, "
        f"challenger {percent(decision.challenger.success.value)}, {decision.n_tasks} tasks × {decision.k} attempts)."
    )


def sandboxes_text(decision: "Decision") -> str:
    """Where the agents' commands ran: back end, isolation level and image digest, with the number of episodes."""
    return "Sandbox: " + "; ".join(f"{name} ({count} episodes)" for name, count in decision.sandboxes.items())


def explain(decision: "Decision") -> str:
    """The whole decision in plain lines: what was played, what came out, and the account of every test that it rests on."""
    from ..promotion.account import account

    taskset, rule = decision.taskset, decision.rule
    tested = any(guard.difference is not None for guard in decision.guardrails)
    guarded = f", of guardrails {100 - 200 * decision.guarded_at:.3g} %" if tested else ""
    lines = [
        f"Verdict: {decision.verdict}. {sentence(decision.why)}",
        f"Self-improvement: {'yes' if decision.self_improvement else 'not claimed'}. {sentence(decision.self_improvement_why)}",
        f"Played: {decision.n_tasks} promote tasks × {decision.k} attempts ({decision.n_families} families) of {taskset.name} "
        f"{taskset.version} [{taskset.hash}], split by {taskset.split_by}: {meaning('promote', taskset.split_by)}; "
        f"{decision.lost} attempts lost.",
        f"Test: sign-flip permutation over families, one-sided. Intervals: {100 * rule.level:g} %{guarded}, resampled by family.",
    ]
    if (control := control_sentence(decision)) is not None:
        lines.insert(2, control)
    if decision.sandboxes:
        lines.append(f"{sandboxes_text(decision)}.")
    if (made := decision.trained) is not None:
        lines.append(
            f"Trained: the challenger by the recipe {made.recipe} ({made.challenger_tokens:,} tokens), the control by "
            f"{made.control} ({made.control_tokens:,} tokens)."
        )
    lines.append(audit_sentence(decision))
    return "\n".join([*lines, account(decision)])


def control_sentence(decision: "Decision") -> str | None:
    """The control's gain from training longer on old data, beside the challenger's lead; None without a control."""
    found = decision.control_versus_champion
    if found is None:
        return None
    lead = points(decision.versus_champion.difference.value)
    return (
        f"The control alone, trained equally long on the champion's old data, gained {points(found.difference.value)} points "
        f"{interval_text(found.difference, signed=True)}; the challenger's lead is {lead}."
    )


def audit_sentence(decision: "Decision") -> str:
    """The challenger's result on the audit tasks, for information."""
    if (audit := decision.audit) is None:
        return "Audit tasks were not played."
    around = audit.versus_champion.difference.interval
    shown = "no difference is shown"
    if around is not None and (around.low > 0 or around.high < 0):
        shown = f"the challenger is {'better' if around.low > 0 else 'worse'} there too"
        if (around.low > 0) != ((decision.versus_champion.difference.value or 0.0) > 0):
            shown = shown.removesuffix(" too")
    return (
        f"Audit ({AUDIT_MEANING}, {audit.n_tasks} tasks × {audit.k}, for information): champion "
        f"{percent(audit.champion.success.value)}, challenger {percent(audit.challenger.success.value)}, difference "
        f"{effect_text(audit.versus_champion)}; {shown}."
    )


def kinds_by_lead(decision: "Decision") -> "list[KindRow]":
    """The kinds of tasks from the worst change to the best: the order of the table and of the forest plot."""
    return sorted(decision.by_kind, key=lambda row: row.difference.value or 0.0)


def render(decision: "Decision") -> "Table":
    """The table of a night: success with intervals, the challenger's differences, and the audit under its own name."""
    from rich.table import Table

    taskset = decision.taskset
    table = Table(
        title=f"{taskset.name} {taskset.version}, split by {taskset.split_by}: {decision.n_tasks} tasks × {decision.k} attempts"
    )
    for heading in (
        "",
        "success",
        f"{100 * decision.rule.level:g} % interval",
        "challenger's lead",
        "interval",
        "p (one-sided)",
    ):
        table.add_column(heading, justify="left" if not heading else "right")
    table.add_row(f"[bold]promote: {meaning('promote', taskset.split_by)}[/bold]")
    _rows(
        table,
        decision.champion,
        decision.control,
        decision.challenger,
        decision.versus_champion,
        decision.versus_control,
    )
    audit = decision.audit
    if audit is not None:
        table.add_section()
        table.add_row(f"[bold]audit: {AUDIT_MEANING}[/bold]", f"{audit.n_tasks} tasks")
        _rows(table, audit.champion, audit.control, audit.challenger, audit.versus_champion, audit.versus_control)
    return table


def _rows(
    table: "Table",
    champion: "Contender",
    control: "Contender | None",
    challenger: "Contender",
    versus_champion: "Effect",
    versus_control: "Effect | None",
) -> None:
    table.add_row("champion", *_success(champion), *_lead(versus_champion))
    if control is not None and versus_control is not None:
        table.add_row("control", *_success(control), *_lead(versus_control))
    table.add_row("challenger", *_success(challenger))


def _success(contender: "Contender") -> tuple[str, str]:
    return percent(contender.success.value), interval_text(contender.success)


def _lead(effect: "Effect") -> tuple[str, str, str]:
    return points(effect.difference.value), interval_text(effect.difference, signed=True), p_text(effect.p_value)[4:]


def sentence(text: str) -> str:
    """The text as a sentence."""
    return text[:1].upper() + text[1:] + "."


def number(value: float | None) -> str:
    """Three digits, or n/a."""
    return "n/a" if value is None else f"{value:.3g}"
