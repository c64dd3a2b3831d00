"""The success rates of a decision: champion, control and challenger, on the tasks that decide and on those only looked at."""

from typing import TYPE_CHECKING

from ..report.words import meaning, percent
from ..statistics import Estimate
from .figure import AGENTS, INK, WIDTH, Figure, canvas, title

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from ..promotion import Contender, Decision


def success_bars(decision: "Decision") -> Figure:
    """A bar for each agent with its interval, first on promote tasks, then on audit tasks where they were played."""
    panels = [("promote", _agents(decision.champion, decision.control, decision.challenger))]
    if (audit := decision.audit) is not None:
        panels.append(("audit", _agents(audit.champion, audit.control, audit.challenger)))
    drawing, axes = canvas(WIDTH, 0.9 + 0.42 * sum(len(agents) + 1 for _, agents in panels))
    place, ticks = 0.0, []
    for role, agents in panels:
        axes.text(0, place, f"{role}: {meaning(role, decision.taskset.split_by)}", va="center", color=INK)
        for label, contender in agents:
            place += 1
            _bar(axes, place, contender.success, AGENTS[label])
            ticks.append((place, label))
        place += 1.2
    axes.set_yticks([at for at, _ in ticks], [label for _, label in ticks])
    axes.set_ylim(place - 0.6, -0.6)
    axes.set_xlim(0, 118)
    axes.set_xticks(range(0, 101, 20))
    axes.set_xlabel(f"success, % ({100 * decision.rule.level:g} % interval by family)")
    title(axes, f"success on {decision.n_tasks} tasks × {decision.k} attempts")
    rates = ", ".join(f"{label} {percent(each.success.value)}" for label, each in panels[0][1])
    return Figure(drawing, f"Success rates on promote tasks: {rates}.")


def _agents(
    champion: "Contender", control: "Contender | None", challenger: "Contender"
) -> "list[tuple[str, Contender]]":
    found = [("champion", champion), ("control", control), ("challenger", challenger)]
    return [(label, contender) for label, contender in found if contender is not None]


def _bar(axes: "Axes", place: float, estimate: Estimate, colour: str) -> None:
    if estimate.value is None:
        return
    end = 100 * estimate.value
    axes.barh([place], [end], color=colour, height=0.8)
    if (interval := estimate.interval) is not None:
        axes.plot([100 * interval.low, 100 * interval.high], [place, place], color=INK, linewidth=1.5)
        end = max(end, 100 * interval.high)
    axes.text(end + 1.5, place, percent(estimate.value), va="center", color=INK)
