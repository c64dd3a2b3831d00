"""Figures of a decision as PNG bytes. Drawn without a display and without pyplot's global state."""

import io
from typing import TYPE_CHECKING

from components.evaluation.promotion import Decision
from components.evaluation.report import meaning, percent
from components.evaluation.statistics import Estimate

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_INK, _GOOD, _BAD, _QUIET = "#1f2933", "#1b7f5c", "#b3382c", "#9aa5b1"


def difference_forest(decision: Decision) -> bytes:
    """The challenger's lead over the champion in points, for each kind of task and in all, with intervals."""
    rows = [(row.kind, row.difference) for row in decision.by_kind]
    rows.append(("all promote tasks", decision.versus_champion.difference))
    if decision.versus_control is not None:
        rows.append(("all, against the control", decision.versus_control.difference))
    figure, axes = _figure(7.5, 1.2 + 0.4 * len(rows))
    for height, (_, estimate) in enumerate(reversed(rows)):
        _forest_row(axes, height, estimate)
    axes.axvline(0, color=_QUIET, linewidth=1, zorder=0)
    axes.set_yticks(range(len(rows)), [f"{name} (n = {estimate.tasks})" for name, estimate in reversed(rows)])
    axes.set_ylim(-0.6, len(rows) - 0.4)
    axes.set_xlabel(f"challenger's lead in success rate, points ({100 * decision.rule.level:g} % interval by family)")
    axes.set_title(f"{decision.night or decision.taskset.name}: {decision.verdict}", loc="left", color=_INK)
    return _png(figure)


def success_bars(decision: Decision) -> bytes:
    """Success rates of champion, control and challenger on promote and audit tasks, with intervals."""
    panels = [("promote", decision.champion, decision.control, decision.challenger)]
    if decision.audit is not None:
        panels.append(("audit", decision.audit.champion, decision.audit.control, decision.audit.challenger))
    figure, axes = _figure(7.5, 3.6)
    place, ticks = 0.0, []
    for role, champion, control, challenger in panels:
        first = place
        for label, contender in (("champion", champion), ("control", control), ("challenger", challenger)):
            if contender is None:
                continue
            _bar(axes, place, contender.success, _GOOD if label == "challenger" else _QUIET)
            ticks.append((place, label))
            place += 1
        title = f"{role}: {meaning(role, decision.taskset.split_by)}"
        axes.text((first + place - 1) / 2, 1.1, title, ha="center", color=_INK, fontsize=9)
        place += 0.8
    axes.set_xticks([x for x, _ in ticks], [label for _, label in ticks])
    axes.set_ylim(0, 1.2)
    axes.set_yticks([0, 0.25, 0.5, 0.75, 1], ["0", "25", "50", "75", "100"])
    axes.set_ylabel(f"success, % ({100 * decision.rule.level:g} % interval)")
    return _png(figure)


def _forest_row(axes: "Axes", height: int, estimate: Estimate) -> None:
    if estimate.value is None:
        return
    value, interval = 100 * estimate.value, estimate.interval
    colour = _QUIET
    if interval is not None:
        colour = _GOOD if interval.low > 0 else _BAD if interval.high < 0 else _INK
        axes.plot([100 * interval.low, 100 * interval.high], [height, height], color=colour, linewidth=2)
    axes.plot([value], [height], "o", color=colour, markersize=6)


def _bar(axes: "Axes", place: float, estimate: Estimate, colour: str) -> None:
    if estimate.value is None:
        return
    axes.bar([place], [estimate.value], color=colour, width=0.8)
    if estimate.interval is not None:
        axes.plot([place, place], [estimate.interval.low, estimate.interval.high], color=_INK, linewidth=1.5)
    axes.text(place, 0.02, percent(estimate.value), ha="center", color="white", fontsize=8)


def _figure(width: float, height: float) -> "tuple[Figure, Axes]":
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    axes.spines[["top", "right"]].set_visible(False)
    return figure, axes


def _png(figure: "Figure") -> bytes:
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=120)
    return buffer.getvalue()
