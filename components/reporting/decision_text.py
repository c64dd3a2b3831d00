"""Decisions in words: the explanation line by line, a one-sentence summary, and a table for the terminal."""

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ratchet.components.evaluation.paired_comparison import AgentRef, KindComparison
from ratchet.components.evaluation.promotion.decision_record import (
    AnchorMatch,
    AuditResult,
    Contender,
    Decision,
    Guardrail,
    PairedEffect,
    TasksetRef,
    effect_text,
)
from ratchet.components.evaluation.promotion.guardrail_tests import KIND_PREFIX
from ratchet.components.evaluation.promotion.promotion_rule import NightDeclaration
from ratchet.components.statistics.result_types import (
    Estimate,
    few_families_remark,
    interval_text,
    p_text,
    percent,
    percentage_points,
)

if TYPE_CHECKING:
    from rich.table import Table


_STATE_TEXTS = {"holds": "holds", "broken": "BROKEN", "unclear": "NOT SHOWN", "untested": "too few families to test"}


def explain_tests(decision: Decision) -> str:
    """Return everything that the verdict rests on, a line each: what was declared, each test with its numbers, and what
    is missing.
    """
    return "\n".join(_test_lines(decision))


def _test_lines(decision: Decision) -> Iterator[str]:
    if decision.declared is not None:
        yield from _declaration_lines(decision.declared)
    elif decision.schema_version < 2:
        yield "Declared: nothing is known; a decision of an older version, by the rule in its record."
    else:
        yield "Declared: nothing beforehand; compared by hand, at the rule's own alpha."
    yield from _look_lines(decision)
    level = decision.superiority_level
    effect = decision.versus_champion
    verdict = "shown" if effect.p_value <= level else "not shown"
    tasks = f"{effect.won} tasks won, {effect.lost_to} lost, {effect.tied} tied"
    yield f"Superiority: {verdict}; {effect_text(effect)} against alpha {level:.2g}; {tasks}."
    for guard in decision.guardrails:
        yield guardrail_line(guard, decision.guardrail_level)
    if decision.match is not None:
        yield f"{match_text(decision.match)}, against alpha {decision.match.alpha:g}; {_anchor_text(decision.match)}."
    if decision.needs is not None:
        yield f"Needs: {decision.needs} more tasks, {_needs_reason(decision)}."
    yield f"Correction: {decision.correction}."


def _declaration_lines(declaration: NightDeclaration) -> Iterator[str]:
    yield (
        f"Declared at {declaration.at}, before anything was played: {declaration.tasks} tasks of "
        f"{declaration.families} families × {declaration.attempts} attempts, superiority at alpha "
        f"{declaration.level:.2g}, guardrails at {declaration.guardrail_alpha:g}."
    )
    if (allowance := declaration.allowance) is not None:
        how = (
            f"LORD++, alpha {allowance.alpha:g} in total"
            if allowance.method == "lord"
            else f"every night at alpha {allowance.alpha:g}"
        )
        yield (
            f"Season {allowance.season}, test {allowance.test} of {allowance.nights} ({how}): promotions so far: "
            f"{allowance.promotions}; p-values so far: {_p_values_text(declaration.p_values)}."
        )
    if declaration.expected_false is not None:
        yield (
            f"False promotions expected of the season, with tonight's test, if no challenger is better: at most "
            f"{declaration.expected_false:.2g}, the sum of the levels."
        )
    detectable = "unknown" if declaration.detectable is None else f"{100 * declaration.detectable:.1f} points"
    yield (
        f"Power {declaration.power:g} was asked for a lead of {100 * declaration.minimum_effect:g} points; these tasks "
        f"find with it: {detectable}."
    )


def _look_lines(decision: Decision) -> Iterator[str]:
    """Yield the declared looks and the result of each."""
    if decision.declared is None or not decision.looked:
        return
    looks = decision.declared.looks
    bounds = "; ".join(f"after {look.tasks} tasks {look.level:.2g} and {look.guardrail_alpha:.2g}" for look in looks)
    yield f"Looks: the levels above are spent over {len(looks)}, superiority's and each guardrail's: {bounds}."
    for number, look_result in enumerate(decision.looked, 1):
        end = "the evaluation ended here" if look_result.stopped else "it continued"
        yield (
            f"Look {number}: {look_result.look.tasks} tasks of {look_result.look.families} families, "
            f"{p_text(look_result.p_value)}; {end}."
        )


def guardrail_line(guard: Guardrail, alpha: float) -> str:
    """Return a guardrail in one line; `alpha`: level of its test. Example: `Guardrail mean_steps: holds; 3.05 against
    3.04, +0.01 [-0.02, +0.05], margin 0.5, p = 0.0001 against alpha 0.05.`
    """
    state = _STATE_TEXTS[guard.state] if guard.state else ("holds" if guard.passed else "BROKEN")
    if guard.name.startswith(KIND_PREFIX):
        figures, margin = (
            f"{percent(guard.challenger)} against {percent(guard.champion)}",
            f"{100 * guard.margin:g} points",
        )
    else:
        figures, margin = (
            f"{_number_text(guard.challenger)} against {_number_text(guard.champion)}",
            f"{guard.margin:.3g}",
        )
    if guard.champion is None:
        return f"Guardrail {guard.name}: {state}; {_number_text(guard.challenger)}, limit {margin}."
    difference = (
        ""
        if guard.difference is None
        else f", {_difference_text(guard.difference, points=guard.name.startswith(KIND_PREFIX))}"
    )
    test = "" if guard.p_value is None else f", {p_text(guard.p_value)} against alpha {alpha:g}"
    return f"Guardrail {guard.name}: {state}; {figures}{difference}, margin {margin}{test}."


def _difference_text(estimate: Estimate, *, points: bool) -> str:
    if points and estimate.value is not None:
        return f"{100 * estimate.value:+.1f} points {interval_text(estimate, signed=True)}"
    around = estimate.interval
    bounds = "[no interval]" if around is None else f"[{around.low:+z.3g}, {around.high:+z.3g}]"
    return f"{0.0 if estimate.value is None else estimate.value:+z.3g} {bounds}"


def match_text(match: AnchorMatch) -> str:
    """Return the result of an anchor match in words, with each of its p-values named."""
    better = "" if match.better_p_value is None else f", for better {p_text(match.better_p_value)}"
    return f"Match: {match.why} (one-sided, for worse {p_text(match.effect.p_value)}{better})"


def _anchor_text(match: AnchorMatch) -> str:
    if match.rollback:
        return "the anchor becomes champion again"
    return "the anchor stays" if match.better is False else "the champion becomes the anchor"


def _p_values_text(p_values: Sequence[float | None]) -> str:
    return ", ".join("unknown" if p is None else f"{p:.2g}" for p in p_values) or "none"


def _number_text(value: float | None) -> str:
    return "unknown" if value is None else f"{value:.3g}"


def _needs_reason(decision: Decision) -> str:
    rule = decision.rule
    if decision.n_tasks < rule.min_tasks or decision.n_families < rule.min_families:
        return f"because the rule requires {rule.min_tasks} tasks of {rule.min_families} families"
    return f"which gives the test power {rule.power:g}"


MODEL_VERDICT = (
    "This is about these checkpoints, not about the recipe that made them: two training seeds of one recipe differ by points, "
    "and `ratchet recipes compare` compares recipes."
)
"""Limit of a verdict on trained agents, stated beside it."""
LOCAL_POLICIES = ("transformers", "vllm")
"""Kinds of policy that play checkpoints of this home; servers, scripts and callables have no recipe here."""
VERDICT_TITLES = {"promote": "Promoted", "keep": "Kept the champion", "undecided": "No decision, the champion stays"}
"""Titles of the verdicts."""


def verdict_line(record: Mapping[str, Any]) -> str:
    """Return the verdict of a decision record (JSON values) with its reason, in one line."""
    return f"{VERDICT_TITLES[record['verdict']]}: {record['why']}"


def model_verdict(*agents: AgentRef) -> str:
    """Return the limit of a verdict on agents where one of them plays a checkpoint; empty otherwise."""
    return MODEL_VERDICT if any(agent.policy in LOCAL_POLICIES for agent in agents) else ""


def role_meaning(role: str, taskset: TasksetRef) -> str:
    """Return what a success rate on the tasks of a role measures, given how the taskset was split."""
    meanings = {
        "audit": "tasks never seen",
        "promote": {
            "instance": "new instances of known tasks",
            "family": "families never seen in train",
        }.get(taskset.split_by),
    }
    return meanings.get(role) or f"{role} tasks"


def summary_sentence(decision: Decision) -> str:
    """Return the verdict in one sentence with its numbers, for the description of a run."""
    return (
        f"{VERDICT_TITLES[decision.verdict]}: {decision.why} (champion {percent(decision.champion.success.value)}, "
        f"challenger {percent(decision.challenger.success.value)}, {decision.n_tasks} tasks × {decision.k} attempts)."
    )


def sandboxes_text(decision: Decision) -> str:
    """Return where commands ran: back end, isolation level and image digest, with the number of episodes."""
    return "Sandbox: " + "; ".join(f"{name} ({count} episodes)" for name, count in decision.sandboxes.items())


def explain_decision(decision: Decision) -> str:
    """Return the whole decision in plain lines: data, results, and the account of every test."""

    taskset, rule = decision.taskset, decision.rule
    tested = any(guard.difference is not None for guard in decision.guardrails)
    guarded = f", of guardrails {100 - 200 * decision.guardrail_level:.3g} %" if tested else ""
    lines = [
        f"Verdict: {decision.verdict}. {as_sentence(decision.why)}",
        f"Self-improvement: {'yes' if decision.self_improvement else 'not claimed'}. {as_sentence(decision.self_improvement_why)}",
        f"Played: {decision.n_tasks} promote tasks × {decision.k} attempts ({decision.n_families} families) of {taskset.name} "
        f"{taskset.version} [{taskset.hash}], split by {taskset.split_by}: {role_meaning('promote', taskset)}; "
        f"{decision.lost} attempts without an outcome.",
        f"Test: sign-flip permutation over families, one-sided. Intervals: {100 * rule.level:g} %{guarded}, resampled by family.",
    ]
    lines += filter(
        None,
        [few_families_remark(decision.n_families), model_verdict(decision.champion.agent, decision.challenger.agent)],
    )
    if (control := control_sentence(decision)) is not None:
        lines.insert(2, control)
    if decision.sandboxes:
        lines.append(f"{sandboxes_text(decision)}.")
    if (agents := decision.trained) is not None:
        lines.append(
            f"Trained: the challenger by the recipe {agents.recipe} ({agents.challenger_tokens:,} tokens), the control "
            f"by {agents.control} ({agents.control_tokens:,} tokens)."
        )
    lines.append(audit_sentence(decision))
    return "\n".join([*lines, explain_tests(decision)])


def control_sentence(decision: Decision) -> str | None:
    """Return the control's gain from longer training on old data compared with the challenger's lead; None without a
    control.
    """
    effect = decision.control_versus_champion
    if effect is None:
        return None
    lead = percentage_points(decision.versus_champion.difference.value)
    gain = percentage_points(effect.difference.value)
    return (
        f"The control alone, trained equally long on the champion's old data, gained {gain} points "
        f"{interval_text(effect.difference, signed=True)}; the challenger's lead is {lead}."
    )


def audit_sentence(decision: Decision) -> str:
    """Return the challenger's result on the audit tasks, for information."""
    if (audit := decision.audit) is None:
        return "Audit tasks were not played."
    around = audit.versus_champion.difference.interval
    finding = "no difference is shown"
    if around is not None and (around.low > 0 or around.high < 0):
        finding = f"the challenger is {'better' if around.low > 0 else 'worse'} there too"
        if (around.low > 0) != ((decision.versus_champion.difference.value or 0.0) > 0):
            finding = finding.removesuffix(" too")
    return (
        f"Audit ({role_meaning('audit', decision.taskset)}, {audit.n_tasks} tasks × {audit.k}, for information): champion "
        f"{percent(audit.champion.success.value)}, challenger {percent(audit.challenger.success.value)}, difference "
        f"{effect_text(audit.versus_champion)}; {finding}."
    )


def kinds_by_lead(decision: Decision) -> "list[KindComparison]":
    """Return the comparisons by kind of task, sorted from the worst difference to the best."""
    return sorted(decision.by_kind, key=lambda row: row.difference.value or 0.0)


def decision_table(decision: Decision) -> "Table":
    """Return the decision as a rich table for a terminal: success with intervals, the challenger's leads, and the audit
    in a separate section.
    """
    from rich.table import Table

    taskset = decision.taskset
    table = Table(
        title=f"{taskset.name} {taskset.version}, split by {taskset.split_by}: {decision.n_tasks} tasks × {decision.k} attempts"
    )
    level = f"{100 * decision.rule.level:g} % interval"
    for heading in ("", "success", level, "challenger's lead", "interval", "p (one-sided)"):
        table.add_column(heading, justify="left" if not heading else "right")
    table.add_row(f"[bold]promote: {role_meaning('promote', taskset)}[/bold]")
    _add_rows(table, decision)
    audit = decision.audit
    if audit is not None:
        table.add_section()
        table.add_row(f"[bold]audit: {role_meaning('audit', taskset)}[/bold]", f"{audit.n_tasks} tasks")
        _add_rows(table, audit)
    return table


def _add_rows(table: "Table", result: Decision | AuditResult) -> None:
    table.add_row("champion", *success_cells(result.champion), *_lead_cells(result.versus_champion))
    if result.control is not None and result.versus_control is not None:
        table.add_row("control", *success_cells(result.control), *_lead_cells(result.versus_control))
    table.add_row("challenger", *success_cells(result.challenger))


def success_cells(contender: Contender) -> tuple[str, str]:
    """Return an agent's success rate and its interval as text."""
    return percent(contender.success.value), interval_text(contender.success)


def _lead_cells(effect: PairedEffect) -> tuple[str, str, str]:
    return (
        percentage_points(effect.difference.value),
        interval_text(effect.difference, signed=True),
        p_text(effect.p_value)[4:],
    )


def as_sentence(text: str) -> str:
    """Return the text with a capital first letter and a full stop at the end."""
    return text[:1].upper() + text[1:] + "."
