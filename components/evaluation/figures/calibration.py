"""The calibration of a score: how often what was scored so has succeeded, against what a calibrated score would say."""

from collections.abc import Sequence

from ..reliability import reliability
from .figure import GOOD, QUIET, Figure, canvas, nothing, shown, title


def calibration(scores: Sequence[float], successes: Sequence[bool], what: str = "process score") -> Figure:
    """A point for each of at most ten bins of equal count, with Wilson's interval; on the diagonal the score is calibrated.

    `scores` (n,) in [0, 1] and `successes` (n,), an episode each. Raises DataError.
    """
    found = reliability(scores, successes)
    drawing, axes = canvas()
    title(axes, f"calibration of the {shown(what)}, {found.n:,} episodes")
    if found.error is None or found.brier is None:
        nothing(axes, f"no episode has a {shown(what)}")
        return Figure(drawing, f"No episode has a {what}.")
    axes.plot([0, 1], [0, 1], color=QUIET, linewidth=1, zorder=0)
    for each in found.bins:
        if each.interval is not None:
            axes.plot([each.score] * 2, [each.interval.low, each.interval.high], color=GOOD, linewidth=1.5)
    axes.plot([each.score for each in found.bins], [each.rate for each in found.bins], "o-", color=GOOD, linewidth=0.8)
    axes.set_xlim(-0.02, 1.02)
    axes.set_ylim(-0.02, 1.02)
    axes.set_xlabel(f"mean {shown(what)} of the bin")
    axes.set_ylabel("share that succeeded (95 % interval)")
    axes.text(0.02, 0.97, f"calibration error {found.error:.3f}\nBrier score {found.brier:.3f}", va="top")
    return Figure(
        drawing,
        f"The {what} of {found.n} episodes: calibration error {found.error:.3f}, Brier score {found.brier:.3f}.",
    )
