"""Print comparisons of agents and nights: tests, rewards, decision records, leaderboards and histories."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from ratchet.components.core.errors import count_text
from ratchet.components.statistics.result_types import interval_text, p_text, percent, percentage_points

from .terminal import print_drawing, print_note, print_table, print_text

if TYPE_CHECKING:
    from ratchet.components.evaluation.agent_comparison import AgentComparison
    from ratchet.components.evaluation.leaderboard import Leaderboard
    from ratchet.components.evaluation.night_trends import BenchmarkDrift, NightChange, NightPoint
    from ratchet.components.evaluation.reward_comparison import RewardComparison
    from ratchet.components.operations.compare_sets import SetComparison
    from ratchet.components.statistics.result_types import Estimate

MAX_FLIPS_SHOWN = 20
"""Flipped tasks in the table; --json prints all."""
MAX_TASKS_SHOWN = 20
"""Tasks in the table; --json prints all."""
REWARD_COMPONENTS = ("total", "outcome", "process", "efficiency")


def show_set_comparison(sets: "SetComparison") -> None:
    """Print the verdict if there is one, else the sets side by side; for two sets also the tests and flipped tasks."""
    from ratchet.components.reporting.decision_text import model_verdict

    first = sets.comparisons[0]
    if sets.decision is not None:
        if (first.a.name, first.b.name) != ("champion", "challenger"):
            print_text(f"The promotion rule compares {first.a.name} as champion with {first.b.name} as challenger.")
        show_decision(msgspec.to_builtins(sets.decision))
    else:
        _show_sets(sets)
        agents = [first.a, *(comparison.b for comparison in sets.comparisons)]
        for remark in filter(None, (model_verdict(*agents), sets.remark)):
            print_text(remark)
    if sets.why_not:
        print_note(f"no verdict: {sets.why_not}")
    if len(sets.comparisons) == 1 or sets.decision is not None:
        print_text()
        _show_tests(first)
        print_text()
        _show_kinds(first)
        print_text()
        _show_flips(first)


def _show_sets(sets: "SetComparison") -> None:
    """Print a row for the first set, and one for each other set with its difference to the first."""
    first = sets.comparisons[0]
    rows: list[tuple[object, ...]] = [
        (first.a.name, percent(first.mean_a.value), interval_text(first.mean_a), *(None,) * 6)
    ]
    for comparison, corrected in zip(sets.comparisons, sets.corrected, strict=True):
        rows.append(
            (
                comparison.b.name,
                percent(comparison.mean_b.value),
                interval_text(comparison.mean_b),
                percentage_points(comparison.difference.value),
                interval_text(comparison.difference, signed=True),
                p_text(comparison.p_value)[4:],
                p_text(corrected)[4:],
                f"{comparison.won} / {comparison.lost_to} / {comparison.tied}",
                _played_text(comparison),
            )
        )
    columns = (
        "",
        first.by,
        "interval",
        f"minus {first.a.name}",
        "interval",
        "p (two-sided)",
        "Holm",
        "won / lost / tied",
        "tasks",
    )
    print_table(columns, rows)


def _played_text(comparison: "AgentComparison") -> str:
    unpaired = f", {comparison.unshared} not shared" if comparison.unshared else ""
    without_outcome = f", {comparison.lost} attempts without an outcome" if comparison.lost else ""
    by_task = ", paired by task: seeds differ" if comparison.paired_by == "task" else ""
    return f"{count_text(comparison.n_tasks, 'task')} × {comparison.k}{unpaired}{without_outcome}{by_task}"


def _show_tests(comparison: "AgentComparison") -> None:
    rows: list[tuple[object, ...]] = [
        (test.name, test.about, p_text(test.p_value)[4:] + ("" if test.exact else " (sampled)"), test.families)
        for test in comparison.tests
    ]
    if (posterior := comparison.posterior) is not None:
        probabilities = (posterior.p_better, posterior.p_equivalent, posterior.p_worse)
        better, equal, worse = map(_percent_text, probabilities)
        about = f"equal: within ±{100 * posterior.rope:g} points; better {better}, equal {equal}, worse {worse}"
    else:
        about = "no probabilities: they need two families, and differences that are not all equal"
    rows.append(("bayes", about, None, comparison.n_families))
    print_table(
        ("test", "about", "p (two-sided)", "families"), rows, title=f"{comparison.b.name} minus {comparison.a.name}"
    )


def _show_kinds(comparison: "AgentComparison") -> None:
    posteriors = {kind.kind: kind.posterior for kind in comparison.kinds}
    rows: list[tuple[object, ...]] = [
        (
            row.kind,
            f"{row.difference.tasks} of {count_text(row.difference.families, 'family')}",
            percent(row.a.value),
            percent(row.b.value),
            percentage_points(row.difference.value),
            interval_text(row.difference, signed=True),
            _percent_text(posterior.p_better) if (posterior := posteriors.get(row.kind)) else None,
            _percent_text(posterior.p_worse) if posterior else None,
        )
        for row in comparison.by_kind
    ]
    columns = (
        "kind",
        "tasks",
        comparison.a.name,
        comparison.b.name,
        "difference",
        "interval",
        "better (bayes)",
        "worse (bayes)",
    )
    print_table(columns, rows, title="by kind of task")


def _show_flips(comparison: "AgentComparison") -> None:
    if not comparison.flips:
        print_text("no task has different success rates")
        return
    rows: list[tuple[object, ...]] = [
        (
            "won" if flip.won else "lost",
            flip.task_id,
            flip.kind,
            percent(flip.a),
            percent(flip.b),
            flip.attempts[0].a_episode if flip.attempts else None,
            flip.attempts[0].b_episode if flip.attempts else None,
        )
        for flip in comparison.flips[:MAX_FLIPS_SHOWN]
    ]
    names = comparison.a.name, comparison.b.name
    columns = ("", "task", "kind", *names, *(f"episode of {name}" for name in names))
    print_table(columns, rows, title="flipped tasks")
    if len(comparison.flips) > MAX_FLIPS_SHOWN:
        print_note(f"{len(comparison.flips) - MAX_FLIPS_SHOWN} more flipped tasks; --json gives all")


def _percent_text(probability: float) -> str:
    return f"{100 * probability:.1f} %"


def show_decision(decision: dict[str, object]) -> None:
    """Print a decision record, given as JSON values, as a table and sentences."""
    from ratchet.components.evaluation.promotion.decision_record import Decision
    from ratchet.components.reporting.decision_text import decision_table, explain_decision

    record = msgspec.convert(decision, Decision)
    print_drawing(decision_table(record))
    print_text(explain_decision(record))


def show_rewards(comparison: "RewardComparison") -> None:
    """Print mean rewards of each set and their differences to the first."""
    columns = ("set", "episodes", "tasks", *REWARD_COMPONENTS)
    print_table(
        columns,
        [
            (
                episode_set.name,
                episode_set.episodes,
                episode_set.tasks,
                *(_estimate_text(episode_set.means[part]) for part in REWARD_COMPONENTS),
            )
            for episode_set in comparison.sets
        ],
        title="mean over tasks [95 % interval]",
    )
    for difference in comparison.differences:
        print_text()
        rows = [
            (part, _estimate_text(estimate, signed=True), estimate.tasks, estimate.families)
            for part, estimate in difference.parts.items()
        ]
        print_table(
            ("part", "difference", "tasks", "families"), rows, title=f"{difference.name} minus {difference.against}"
        )
        unpaired = f"; {difference.unpaired} tasks only in one of them" if difference.unpaired else ""
        print_text(
            f"total: {difference.verdict}; higher at {difference.higher} tasks, lower at {difference.lower}, "
            f"equal at {difference.equal}{unpaired}"
        )
    print_text()
    _show_tasks(comparison)


def _show_tasks(comparison: "RewardComparison") -> None:
    """Print the tasks that differ most first."""

    def total_range(totals: Sequence[float | None]) -> float:
        present = [total for total in totals if total is not None]
        return max(present) - min(present) if present else 0.0

    ranked = sorted(comparison.tasks, key=lambda task: (-total_range(task.totals), task.task_id))
    rows = [
        (task.task_id, *(None if total is None else f"{total:.3f}" for total in task.totals))
        for task in ranked[:MAX_TASKS_SHOWN]
    ]
    print_table(("task", *(episode_set.name for episode_set in comparison.sets)), rows, title="mean total of each task")
    if len(ranked) > MAX_TASKS_SHOWN:
        print_note(f"{len(ranked) - MAX_TASKS_SHOWN} more tasks; --json gives all")


def _estimate_text(estimate: "Estimate", *, signed: bool = False) -> str | None:
    if estimate.value is None:
        return None
    sign = "+" if signed else ""
    interval = estimate.interval
    around = f" [{interval.low:{sign}.3f}, {interval.high:{sign}.3f}]" if interval else ""
    return f"{estimate.value:{sign}.3f}{around}"


def show_leaderboard(board: "Leaderboard") -> None:
    """Print a leaderboard as a table and a sentence."""
    from ratchet.components.reporting.leaderboard_text import (
        leaderboard_caption,
        leaderboard_headings,
        leaderboard_rows,
    )

    print_table(leaderboard_headings(board), leaderboard_rows(board))
    print_text(leaderboard_caption(board))


def show_history(nights: "Sequence[NightPoint]") -> None:
    """Print one row for each night."""

    def rate(estimate: "Estimate | None") -> str | None:
        return None if estimate is None else f"{percent(estimate.value)} {interval_text(estimate)}"

    def lead(estimate: "Estimate | None") -> str | None:
        return (
            None if estimate is None else f"{percentage_points(estimate.value)} {interval_text(estimate, signed=True)}"
        )

    rows = [
        (
            point.night,
            point.verdict or point.state,
            rate(point.champion.success if point.champion else None),
            rate(point.challenger.success if point.challenger else None),
            lead(point.lead),
            lead(point.audit_lead),
            f"{point.n_tasks} × {point.k}" if point.n_tasks else None,
        )
        for point in nights
    ]
    print_table(("night", "verdict", "champion", "challenger", "lead", "on audit tasks", "tasks"), rows)


def show_change(change: "NightChange") -> None:
    """Print how the champion's success changed from one night to another."""
    difference = f"{percentage_points(change.difference.value)} points {interval_text(change.difference, signed=True)}"
    if change.same:
        print_text(f"{change.before} to {change.night}: the same champion, {difference}")
        return
    sure = "" if change.corrected is None else f", {p_text(change.corrected)} (Holm)"
    word = "REGRESSION: the champion is worse than the previous one, " if change.worse else "a different champion, "
    print_text(f"{change.before} to {change.night}: {word}{difference}{sure}")


def show_drift(drift: "BenchmarkDrift") -> None:
    """Print whether the success rate of an unchanged agent changed over the nights."""
    nights = ", ".join(f"{appearance.night} {percent(appearance.success.value)}" for appearance in drift.appearances)
    word = "DRIFT: the agent is unchanged and its success rate changed" if drift.has_drifted() else "no drift detected"
    print_text(f"{drift.policy_version} played {len(drift.appearances)} nights: {word} ({nights})")
