"""Figures of an evaluation: calibration, success against cost, failure causes, episode lengths, rewards, the lead by kind
of task, success rates, and learning curves over nights. Pure functions over matplotlib.
"""

from collections.abc import Callable, Mapping, Sequence
from math import fsum
from statistics import median
from typing import TYPE_CHECKING

from ratchet.components.evaluation.agent_comparison import CauseConfusion, cause_confusion
from ratchet.components.evaluation.agent_results import AgentResult, TaskAttempt
from ratchet.components.evaluation.night_trends import NightPoint
from ratchet.components.evaluation.promotion.decision_record import Contender, Decision, effect_text
from ratchet.components.evaluation.reliability import reliability
from ratchet.components.statistics.bootstrap import bootstrap_ci, rate_estimate
from ratchet.components.statistics.result_types import Estimate, Interval, percent

from .decision_text import kinds_by_lead, role_meaning
from .figure_canvas import (
    AGENT_COLOURS,
    BAD,
    GOOD,
    INK,
    QUIET,
    WIDTH,
    RenderedFigure,
    assign_colours,
    draw_interval,
    draw_legend,
    empty_figure,
    new_axes,
    safe_label,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Drawing


def calibration_figure(
    scores: Sequence[float], successes: Sequence[bool], what: str = "process score"
) -> RenderedFigure:
    """Draw observed success over the score in at most ten bins of equal count, with Wilson's intervals; a
    calibrated score lies on the diagonal.

    `scores` (n,) in [0, 1] and `successes` (n,), one per episode. `what`: name of the score in the figure. Raises
    DataError.
    """
    calibration = reliability(scores, successes)
    title = f"calibration of the {safe_label(what)}, {calibration.n:,} episodes"
    if calibration.error is None or calibration.brier is None:
        return empty_figure(title, f"no episode has a {what}")
    drawing, axes = new_axes(title)
    axes.plot([0, 1], [0, 1], color=QUIET, linewidth=1, zorder=0)
    for score_bin in calibration.bins:
        if score_bin.interval is not None:
            axes.plot(
                [score_bin.score] * 2, [score_bin.interval.low, score_bin.interval.high], color=GOOD, linewidth=1.5
            )
    axes.plot(
        [score_bin.score for score_bin in calibration.bins],
        [score_bin.rate for score_bin in calibration.bins],
        "o-",
        color=GOOD,
        linewidth=0.8,
    )
    axes.set_xlim(-0.02, 1.02)
    axes.set_ylim(-0.02, 1.02)
    axes.set_xlabel(f"mean {safe_label(what)} of the bin")
    axes.set_ylabel("share that succeeded (95 % interval)")
    axes.text(0.02, 0.97, f"calibration error {calibration.error:.3f}\nBrier score {calibration.brier:.3f}", va="top")
    return RenderedFigure(
        drawing,
        f"The {what} of {calibration.n} episodes: calibration error {calibration.error:.3f}, "
        f"Brier score {calibration.brier:.3f}.",
    )


FIGURE_RESAMPLES = 2000
"""Of the intervals, which are for reading only."""


def cost_success_figure(results: "Mapping[str, AgentResult]") -> RenderedFigure:
    """Draw each agent's success against the mean cost of an episode, both with intervals that resample families.

    The cost is money where every agent's episodes report it, else tokens.
    """
    money = all(any(attempt.cost is not None for attempt in _known_attempts(result)) for result in results.values())
    unit = "cost" if money else "tokens"
    drawing, axes = new_axes(f"success against {unit}")
    names, agent_texts = assign_colours(list(results)), []
    for name, result in results.items():
        success, cost, around = _cost_and_success(result, money)
        if success.value is None or cost is None:
            continue
        _draw_cost_and_success(axes, cost, around, success, names[name], name)
        agent_texts.append(f"{name} {percent(success.value)} at {cost:,.4g}")
    if not agent_texts:
        return empty_figure(f"success against {unit}", f"no episode has a recorded cost in {unit}")
    axes.set_xlabel(f"{unit} an episode (95 % interval)")
    axes.set_ylabel("success, %")
    draw_legend(drawing)
    return RenderedFigure(drawing, f"Success against {unit} an episode: {', '.join(agent_texts)}.")


def _cost_and_success(result: "AgentResult", money: bool) -> "tuple[Estimate, float | None, Interval | None]":
    """Return success, and the mean over tasks of an episode's cost with its interval."""
    tasks = [task for task in result.of("promote") if task.success_rate is not None]
    rates = [task.success_rate for task in tasks if task.success_rate is not None]
    success = rate_estimate(rates, [task.family for task in tasks], n_resamples=FIGURE_RESAMPLES)
    # Mean over tasks of the mean over attempts: a task with more known costs must not count for more.
    costs, families = [], []
    for task in tasks:
        attempts = (attempt for attempt in task.attempts if attempt.success is not None)
        attempt_costs = [
            cost for attempt in attempts if (cost := attempt.cost if money else attempt.tokens) is not None
        ]
        if attempt_costs:
            costs.append(fsum(attempt_costs) / len(attempt_costs))
            families.append(task.family)
    if not costs:
        return success, None, None
    around = bootstrap_ci(costs, clusters=families, n_resamples=FIGURE_RESAMPLES)
    return success, fsum(costs) / len(costs), around


def _draw_cost_and_success(
    axes: "Axes", cost: float, around: "Interval | None", success: "Estimate", colour: str, name: str
) -> None:
    assert success.value is not None
    height = 100 * success.value
    if around is not None:
        axes.plot([around.low, around.high], [height, height], color=colour, linewidth=1.5)
    draw_interval(axes, cost, success.interval, color=colour, linewidth=1.5)
    axes.plot([cost], [height], "o", color=colour, markersize=8, label=f"{safe_label(name)}: {height:.1f} %")


def _known_attempts(result: "AgentResult") -> "list[TaskAttempt]":
    return [attempt for task in result.of("promote") for attempt in task.attempts if attempt.success is not None]


CAUSE_CHARACTERS = 18
"""Characters shown of a cause."""


def failure_cause_figure(a: "AgentResult", b: "AgentResult") -> RenderedFigure:
    """Draw the counts of outcomes: rows are causes for `a`, columns are causes of the same attempts for `b`."""
    confusion = cause_confusion(a, b, "promote")
    size = len(confusion.causes)
    title = f"how the same attempts ended: {safe_label(a.name)} and {safe_label(b.name)}"
    if not confusion.total:
        return empty_figure(title, "no attempt has a known outcome of both", 1.6 + 0.42 * size)
    drawing, axes = new_axes(title, WIDTH, 1.6 + 0.42 * size)
    _draw_matrix(axes, confusion)
    stayed = sum(confusion.counts[place][place] for place in range(size))
    return RenderedFigure(
        drawing,
        f"Of {confusion.total} attempts of {a.name} and {b.name}, {stayed} ended alike; {b.name} solved "
        f"{sum(row[0] for row in confusion.counts[1:])} that {a.name} did not, and lost "
        f"{sum(confusion.counts[0][1:])} that it did.",
    )


def _draw_matrix(axes: "Axes", confusion: "CauseConfusion") -> None:
    from matplotlib.colors import LinearSegmentedColormap, PowerNorm, to_rgba

    most = max(map(max, confusion.counts))
    # Half transparent at most, so that the numbers are readable in INK on a light page and on a dark one.
    shades = LinearSegmentedColormap.from_list("counts", [to_rgba(GOOD, 0.0), to_rgba(GOOD, 0.5)])
    places = range(len(confusion.causes))
    axes.pcolormesh(places, places, confusion.counts, cmap=shades, norm=PowerNorm(0.5, 0, most), shading="nearest")
    axes.invert_yaxis()
    for row, counts in enumerate(confusion.counts):
        for column, count in enumerate(counts):
            axes.text(column, row, f"{count:,}" if count else "·", ha="center", va="center", color=INK)
    names = [safe_label(cause, CAUSE_CHARACTERS) for cause in confusion.causes]
    axes.set_xticks(places, names, rotation=35, ha="right", rotation_mode="anchor")
    axes.set_yticks(places, names)
    axes.set_xlabel(safe_label(confusion.b))
    axes.set_ylabel(safe_label(confusion.a))


MAX_CALLS = 40
"""Calls with a bin each; longer episodes fall into the last."""


def episode_length_figure(results: "Mapping[str, AgentResult]") -> RenderedFigure:
    """Draw each agent's share of episodes by number of calls."""
    import numpy as np

    lengths = _known_values(results, lambda attempt: attempt.steps)
    if not lengths:
        return empty_figure("length of the episodes", "no episode has a known outcome")
    drawing, axes = new_axes("length of the episodes")
    longest = min(MAX_CALLS, int(max(map(max, lengths.values()))))
    chosen = assign_colours(list(lengths))
    for name, values in lengths.items():
        counts = np.bincount(np.minimum(values, longest).astype(np.int64), minlength=longest + 1)
        label = f"{safe_label(name)}: median {median(values):g}, mean {sum(values) / len(values):.2f}"
        edges = np.arange(longest + 2) - 0.5
        axes.stairs(100 * counts / len(values), edges, color=chosen[name], linewidth=1.8, label=label)
    return _finish_distribution(
        drawing,
        axes,
        f"calls an episode{f' ({MAX_CALLS}: that many or more)' if longest == MAX_CALLS else ''}",
        "Calls an episode; means: "
        + ", ".join(f"{name} {sum(values) / len(values):.2f}" for name, values in lengths.items()),
    )


REWARD_BINS = 20


def reward_figure(results: "Mapping[str, AgentResult]") -> RenderedFigure:
    """Draw each agent's share of episodes by reward, in bins over [0, 1], with a mark at its mean."""
    import numpy as np

    rewards = _known_values(results, lambda attempt: attempt.reward)
    if not rewards:
        return empty_figure("rewards of the episodes", "no episode has a reward")
    drawing, axes = new_axes("rewards of the episodes")
    chosen = assign_colours(list(rewards))
    means = {name: fsum(values) / len(values) for name, values in rewards.items()}
    for name, values in rewards.items():
        shares, edges = np.histogram(np.clip(values, 0, 1), bins=REWARD_BINS, range=(0, 1))
        label = f"{safe_label(name)}: mean {means[name]:.3f} (n = {len(values):,})"
        axes.stairs(100 * shares / len(values), edges, color=chosen[name], linewidth=1.8, label=label)
        axes.plot([means[name]], [0], "^", color=chosen[name], markersize=9, clip_on=False)
    axes.set_xlim(0, 1)
    text = ", ".join(f"{name} {mean:.3f}" for name, mean in means.items())
    return _finish_distribution(drawing, axes, "reward", f"Distribution of rewards; means: {text}")


def _known_values(
    results: "Mapping[str, AgentResult]", of: Callable[[TaskAttempt], float | None]
) -> dict[str, list[float]]:
    """Return a figure of each agent's counted episodes, of agents that have one."""
    values = {
        name: [value for attempt in _known_attempts(result) if (value := of(attempt)) is not None]
        for name, result in results.items()
    }
    return {name: own for name, own in values.items() if own}


def _finish_distribution(drawing: "Drawing", axes: "Axes", figure: str, text: str) -> RenderedFigure:
    axes.set_ylim(bottom=0)
    axes.set_xlabel(figure)
    axes.set_ylabel("episodes, %")
    draw_legend(drawing)
    return RenderedFigure(drawing, f"{text}.")


def difference_figure(decision: Decision) -> RenderedFigure:
    """Draw the challenger's lead in points with intervals: each kind of task from the worst change to
    the best, all tasks, and on all tasks the lead over the control.

    Green where the interval lies above 0, red where it lies below.
    """
    rows = [(row.kind, row.difference) for row in kinds_by_lead(decision)]
    rows.append(("all promote tasks", decision.versus_champion.difference))
    if decision.versus_control is not None:
        rows.append(("all, less the control", decision.versus_control.difference))
    title = f"{safe_label(decision.night or decision.taskset.name)}: {decision.verdict}"
    drawing, axes = new_axes(title, WIDTH, 1.2 + 0.4 * len(rows))
    for height, (_, estimate) in enumerate(reversed(rows)):
        _draw_difference(axes, height, estimate)
    axes.axvline(0, color=QUIET, linewidth=1, zorder=0)
    axes.set_yticks(
        range(len(rows)), [f"{safe_label(name)} (n = {estimate.tasks})" for name, estimate in reversed(rows)]
    )
    axes.set_ylim(-0.6, len(rows) - 0.4)
    axes.set_xlabel(f"lead in points ({100 * decision.rule.level:g} % interval by family)")
    return RenderedFigure(
        drawing,
        f"The challenger's lead over the champion by kind of task; in all {effect_text(decision.versus_champion)}.",
    )


def _draw_difference(axes: "Axes", height: int, estimate: Estimate) -> None:
    if estimate.value is None:
        return
    value, interval = 100 * estimate.value, estimate.interval
    colour = QUIET
    if interval is not None:
        colour = GOOD if interval.low > 0 else BAD if interval.high < 0 else INK
        axes.plot([100 * interval.low, 100 * interval.high], [height, height], color=colour, linewidth=2)
    axes.plot([value], [height], "o", color=colour, markersize=6)


def success_figure(decision: Decision) -> RenderedFigure:
    """Draw each agent's success with its interval, on promote tasks and, where they were played, on audit tasks."""
    panels = [("promote", _labelled_contenders(decision.champion, decision.control, decision.challenger))]
    if (audit := decision.audit) is not None:
        panels.append(("audit", _labelled_contenders(audit.champion, audit.control, audit.challenger)))
    title = f"success on {decision.n_tasks} tasks × {decision.k} attempts"
    drawing, axes = new_axes(title, WIDTH, 0.9 + 0.42 * sum(len(agents) + 1 for _, agents in panels))
    place, ticks = 0.0, []
    for role, agents in panels:
        axes.text(0, place, f"{role}: {role_meaning(role, decision.taskset)}", va="center", color=INK)
        for label, contender in agents:
            place += 1
            _draw_bar(axes, place, contender.success, AGENT_COLOURS[label])
            ticks.append((place, label))
        place += 1.2
    axes.set_yticks([at for at, _ in ticks], [label for _, label in ticks])
    axes.set_ylim(place - 0.6, -0.6)
    axes.set_xlim(0, 118)
    axes.set_xticks(range(0, 101, 20))
    axes.set_xlabel(f"success, % ({100 * decision.rule.level:g} % interval by family)")
    rates = ", ".join(f"{label} {percent(contender.success.value)}" for label, contender in panels[0][1])
    return RenderedFigure(drawing, f"Success rates on promote tasks: {rates}.")


def _labelled_contenders(
    champion: Contender, control: Contender | None, challenger: Contender
) -> "list[tuple[str, Contender]]":
    contenders = [("champion", champion), ("control", control), ("challenger", challenger)]
    return [(label, contender) for label, contender in contenders if contender is not None]


def _draw_bar(axes: "Axes", place: float, estimate: Estimate, colour: str) -> None:
    if estimate.value is None:
        return
    end = 100 * estimate.value
    axes.barh([place], [end], color=colour, height=0.8)
    if (interval := estimate.interval) is not None:
        axes.plot([100 * interval.low, 100 * interval.high], [place, place], color=INK, linewidth=1.5)
        end = max(end, 100 * interval.high)
    axes.text(end + 1.5, place, percent(estimate.value), va="center", color=INK)


CURVE_ROLES = ("champion", "control", "challenger", "anchor")
MAX_TICKS = 8
"""Nights labelled below the figure."""


def learning_curve_figure(points: Sequence[NightPoint]) -> RenderedFigure:
    """Draw each role's success over the nights with intervals, and a band where a challenger was promoted.

    A champion plays other tasks each night, so small changes are chance. Undecided nights are left out.
    """
    decided = [point for point in points if point.agents]
    title = f"success over {len(decided)} night{'' if len(decided) == 1 else 's'}"
    if not decided:
        return empty_figure(title, "no night has been decided", 4.2)
    drawing, axes = new_axes(title, WIDTH, 4.2)
    for place, point in enumerate(decided):
        if point.promoted:
            axes.axvline(place, color=GOOD, alpha=0.25, linewidth=6, zorder=0)
    chosen = assign_colours(list(CURVE_ROLES))
    for number, role in enumerate(CURVE_ROLES):
        _draw_curve(axes, decided, role, chosen[role], 0.08 * (number - 1))
    step = -(-len(decided) // MAX_TICKS)
    axes.set_xticks(
        range(0, len(decided), step),
        [safe_label(point.night, 16) for point in decided[::step]],
        rotation=35,
        ha="right",
        rotation_mode="anchor",
    )
    axes.set_xlim(-0.5, len(decided) - 0.5)
    axes.set_ylabel("success, %")
    axes.grid(axis="y", color=QUIET, alpha=0.3)
    draw_legend(drawing, columns=len(CURVE_ROLES))
    promoted = sum(point.promoted for point in decided)
    ends = [point.champion.success.value for point in (decided[0], decided[-1]) if point.champion is not None]
    rates = " to ".join(map(percent, ends))
    text = f"Success over {len(decided)} nights: the champion went from {rates}; {promoted} challengers were promoted."
    return RenderedFigure(drawing, text)


def _draw_curve(axes: "Axes", points: list[NightPoint], role: str, colour: str, aside: float) -> None:
    """Draw one role's points, shifted a little so that intervals do not overlap."""
    successes = [
        (place + aside, agent.success)
        for place, point in enumerate(points)
        if (agent := point.agents.get(role)) is not None and agent.success.value is not None
    ]
    if not successes:
        return
    for place, success in successes:
        draw_interval(axes, place, success.interval, color=colour, linewidth=1.2, alpha=0.6)
    heights = [100 * success.value for _, success in successes if success.value is not None]
    axes.plot([place for place, _ in successes], heights, "o-", color=colour, linewidth=1.5, markersize=5, label=role)


def evaluation_figures(
    decision: Decision,
    results: Mapping[str, AgentResult],
    points: Sequence[NightPoint] = (),
    forecasts: Sequence[tuple[float, bool]] = (),
) -> dict[str, Callable[[], bytes]]:
    """Return functions that each draw one figure of a night's evaluation as PNG bytes, by the figure's name in MLflow.

    `points`: this night and those before it. `forecasts`: process score and success of each episode.
    """
    champion, challenger = results["champion"], results["challenger"]
    scores, successes = [score for score, _ in forecasts], [success for _, success in forecasts]
    figures: dict[str, Callable[[], RenderedFigure]] = {
        "difference_by_kind": lambda: difference_figure(decision),
        "success": lambda: success_figure(decision),
        "rewards": lambda: reward_figure(results),
        "lengths": lambda: episode_length_figure(results),
        "cost_quality": lambda: cost_success_figure(results),
        "failure_causes": lambda: failure_cause_figure(champion, challenger),
    }
    if scores:
        figures["calibration"] = lambda: calibration_figure(scores, successes)
    if points:
        figures["learning_curves"] = lambda: learning_curve_figure(points)
    # Bound as a default argument: a plain closure would draw the last figure under every name.
    return {name: lambda draw=draw: draw().png() for name, draw in figures.items()}  # type: ignore[misc]
