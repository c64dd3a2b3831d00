"""Report on judges from labels: curves, agreement, trust and drift; and the reliability diagram.

Drift means that a judge scores a night differently from the nights before: the model behind an address can change
without notice. Two shifts are tested. A shift of the scores can also be caused by a change of the agents; a shift of
the errors against labels can be caused by the judge alone. Both tests permute whole episodes between the night and the
nights before. The p-values of a judge are corrected for its number of nights (Holm 1979).
"""

import io
import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import msgspec

from ratchet.components.core import DataError
from ratchet.components.rewards.annotation_records import ADJUDICATION, PREFERRED_TO, Judgement, Label
from ratchet.components.statistics.multiple_testing import holm

from ..human_labels.rater_agreement import RESAMPLES, KrippendorffAlpha, RaterAgreement, krippendorff, rater_agreement
from .calibration_learning import CalibrationConfig, learn_calibration
from .calibration_record import Calibration, CalibrationPool, LayerVerdict, PoolScope
from .labelled_scores import LabelledScore, latest_labels, match_labels

if TYPE_CHECKING:
    import numpy as np
    from matplotlib.axes import Axes
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

ALPHA = 0.01
MIN_SHIFT = 0.05
"""Least shift that is reported, because with enough scores even an irrelevant one is significant."""
PERMUTATIONS = 1999
CHUNK = 200
NORMAL_FROM = 500
"""Number of episodes, on both sides together, from which the normal approximation replaces the permutations."""
MIN_EPISODES = 8
"""Least number of episodes on either side of a test."""


class NightDrift(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Scores and errors of one judge in one night, compared with its earlier nights. None where there is nothing to
    compare.

    `mean`: of its overall scores; `shift`: difference to the mean of the earlier nights; `p_value`: of that shift.
    `bias`: mean of score - label over `labels` labelled scores; `bias_shift` and `bias_p_value` likewise. `drifted`:
    the errors (the scores, where there are too few labels) shifted significantly and by at least MIN_SHIFT.
    """

    layer: str
    judge: str
    night: str
    scores: int
    mean: float
    shift: float | None = None
    p_value: float | None = None
    labels: int = 0
    bias: float | None = None
    bias_shift: float | None = None
    bias_p_value: float | None = None
    drifted: bool = False


ValuesByNight = dict[str, list[tuple[str, float]]]
"""(episode, value) by night."""


def judge_drift(
    nights: Mapping[str, Iterable[Judgement]], labels: Iterable[Label] = (), seed: int = 0
) -> list[NightDrift]:
    """Return a row per judge and night. `nights`: judgements by night, in chronological order.

    `labels`: where given, the errors of the scores are tested as well. `seed`: of the random permutations.
    """
    all_labels = list(labels)
    scores: dict[tuple[str, str], ValuesByNight] = defaultdict(lambda: defaultdict(list))
    errors: dict[tuple[str, str], ValuesByNight] = defaultdict(lambda: defaultdict(list))
    for night, judgements in nights.items():
        night_judgements = list(judgements)
        for judgement in night_judgements:
            if judgement.overall is not None:
                scores[judgement.layer, judgement.judge][night].append((judgement.episode_id, judgement.overall))
        for pair in match_labels(night_judgements, all_labels).pairs if all_labels else ():
            errors[pair.layer, pair.judge][night].append((pair.episode_id, pair.score - pair.label))
    return [row for judge in sorted(scores) for row in _drift_of_judge(*judge, scores[judge], errors[judge], seed)]


def _drift_of_judge(
    layer: str, judge: str, scores: ValuesByNight, errors: ValuesByNight, seed: int
) -> list[NightDrift]:
    shifts, bias_shifts = _night_shifts(scores, seed), _night_shifts(errors, seed)
    p_values, bias_p_values = _corrected(shifts), _corrected(bias_shifts)
    rows = []
    for night, night_scores in scores.items():
        shift, p_value = (bias_shifts, bias_p_values) if night in bias_shifts else (shifts, p_values)
        error = errors.get(night)
        rows.append(
            NightDrift(
                layer,
                judge,
                night,
                scores=len(night_scores),
                mean=_mean_value(night_scores),
                shift=shifts[night][0] if night in shifts else None,
                p_value=p_values.get(night),
                labels=len(error) if error else 0,
                bias=_mean_value(error) if error else None,
                bias_shift=bias_shifts[night][0] if night in bias_shifts else None,
                bias_p_value=bias_p_values.get(night),
                drifted=night in shift and p_value[night] < ALPHA and abs(shift[night][0]) >= MIN_SHIFT,
            )
        )
    return rows


def _corrected(shifts: Mapping[str, tuple[float, float]]) -> dict[str, float]:
    """Return the p-value of each night, corrected for the number of nights."""
    return dict(zip(shifts, holm([p_value for _, p_value in shifts.values()]), strict=True))


def _night_shifts(nights: ValuesByNight, seed: int) -> dict[str, tuple[float, float]]:
    """Return (shift, p-value) of every night but the first. Nights with too few episodes are left out."""
    shifts: dict[str, tuple[float, float]] = {}
    before: list[tuple[str, float]] = []
    for night, values in nights.items():
        earlier, tonight = _sums_by_episode(before), _sums_by_episode(values)
        if min(len(earlier), len(tonight)) >= MIN_EPISODES:
            shifts[night] = _permutation_test(earlier, tonight, seed)
        before += values
    return shifts


def _permutation_test(earlier: "Floats", tonight: "Floats", seed: int) -> tuple[float, float]:
    """Return the difference of means and its two-sided p-value, by permuting whole episodes (Phipson & Smyth 2010).

    `earlier` and `tonight`: sum and count of each episode, shape (n, 2).
    """
    import numpy as np

    table = np.concatenate([earlier, tonight])
    total = table.sum(axis=0)

    def difference(chosen: "Floats") -> "Floats":
        earlier_sums = total - chosen
        shift: Floats = chosen[..., 0] / chosen[..., 1] - earlier_sums[..., 0] / earlier_sums[..., 1]
        return shift

    observed = float(difference(tonight.sum(axis=0)))
    if len(table) > NORMAL_FROM:
        error = (_cluster_error(earlier) ** 2 + _cluster_error(tonight) ** 2) ** 0.5
        return observed, math.erfc(abs(observed) / error / 2**0.5) if error > 0 else float(observed == 0)
    rng = np.random.default_rng(seed)
    extreme = 0
    for start in range(0, PERMUTATIONS, CHUNK):
        # In chunks, because all permutations at once would need PERMUTATIONS x episodes numbers.
        order = rng.random((min(CHUNK, PERMUTATIONS - start), len(table))).argsort(axis=1)[:, : len(tonight)]
        # Equal differences can differ in their last bits, hence the tolerance.
        extreme += int((np.abs(difference(table[order].sum(axis=1))) >= abs(observed) - 1e-12).sum())
    return observed, (1 + extreme) / (1 + PERMUTATIONS)


def _cluster_error(episodes: "Floats") -> float:
    """Return the cluster-robust standard error of a mean, from sums and counts per episode (n, 2)."""
    import numpy as np

    mean = episodes[:, 0].sum() / episodes[:, 1].sum()
    residuals = episodes[:, 0] - mean * episodes[:, 1]
    count = len(episodes)
    return float(np.sqrt(count / (count - 1) * (residuals**2).sum()) / episodes[:, 1].sum())


def _sums_by_episode(values: Iterable[tuple[str, float]]) -> "Floats":
    """Return sum and count of each episode, shape (episodes, 2)."""
    import numpy as np

    sums: dict[str, list[float]] = defaultdict(lambda: [0.0, 0.0])
    for episode, value in values:
        sums[episode][0] += value
        sums[episode][1] += 1
    return np.array(list(sums.values()))


def _mean_value(values: Sequence[tuple[str, float]]) -> float:
    return sum(value for _, value in values) / len(values)


class JudgeAgreement(msgspec.Struct, frozen=True):
    """Agreement of a judge's uncalibrated scores of a criterion (`line`) with people's mean labels.

    `line` None: the scores of all criteria together.
    """

    layer: str
    judge: str
    line: str | None
    agreement: RaterAgreement


class CalibrationReport(msgspec.Struct, frozen=True):
    """Report on a calibration. `labels`, `scores`, `unmet`, `changed` as in `MatchedLabels`; `pairs`: number of its
    pairs.

    `version`: of the calibration. `people`: Krippendorff's alpha between the annotators, by criterion.
    """

    version: str
    labels: int
    scores: int
    pairs: int
    unmet: int
    changed: int
    pools: tuple[CalibrationPool, ...]
    verdicts: tuple[LayerVerdict, ...]
    judges: tuple[JudgeAgreement, ...]
    people: dict[str, KrippendorffAlpha]
    nights: tuple[NightDrift, ...]


def group_by_night(judgements: Iterable[tuple[str, Judgement]]) -> dict[str, list[Judgement]]:
    """Group (night, judgement) pairs by night. Nights are ordered by the time of their first judgement."""
    nights: dict[str, list[Judgement]] = defaultdict(list)
    for night, judgement in judgements:
        nights[night].append(judgement)
    return dict(
        sorted(nights.items(), key=lambda entry: (min(judgement.judged_at for judgement in entry[1]), entry[0]))
    )


def make_report(
    nights: Mapping[str, Sequence[Judgement]],
    labels: Sequence[Label],
    config: CalibrationConfig | None = None,
    *,
    resamples: int = RESAMPLES,
) -> tuple[CalibrationReport, Calibration]:
    """Learn the calibration from judgements and labels; return the report on it, and the calibration.

    `nights`: judgements by night, in chronological order. `resamples`: of the bootstrap intervals; 0: no intervals.
    """
    matched = match_labels((judgement for judgements in nights.values() for judgement in judgements), labels)
    calibration = learn_calibration(matched.pairs, config)
    report = CalibrationReport(
        version=calibration.version,
        labels=matched.labels,
        scores=matched.scores,
        pairs=len(matched.pairs),
        unmet=matched.unmet,
        changed=matched.changed,
        pools=calibration.pools,
        verdicts=calibration.verdicts,
        judges=tuple(_agreement_by_judge(matched.pairs, resamples)),
        people=_alpha_of_people(labels, resamples),
        nights=tuple(judge_drift(nights, labels)),
    )
    return report, calibration


def _agreement_by_judge(pairs: Sequence[LabelledScore], resamples: int) -> Iterable[JudgeAgreement]:
    judges: dict[tuple[str, str], dict[str, list[LabelledScore]]] = defaultdict(lambda: defaultdict(list))
    for pair in pairs:
        judges[pair.layer, pair.judge][pair.line].append(pair)
    for (layer, judge), lines in sorted(judges.items()):
        if len(lines) > 1:
            of_judge = [pair for of_line in lines.values() for pair in of_line]
            yield JudgeAgreement(layer, judge, None, _agreement_with_labels(of_judge, resamples))
        for line, of_line in sorted(lines.items()):
            yield JudgeAgreement(layer, judge, line, _agreement_with_labels(of_line, resamples))


def _agreement_with_labels(pairs: Sequence[LabelledScore], resamples: int) -> RaterAgreement:
    scores, labels, episodes = zip(*((pair.score, pair.label, pair.episode_id) for pair in pairs), strict=True)
    return rater_agreement(scores, labels, episodes, resamples=resamples)


def _alpha_of_people(labels: Sequence[Label], resamples: int) -> dict[str, KrippendorffAlpha]:
    ratings: dict[str, dict[tuple[str, tuple[int, int, str]], dict[str, float]]] = defaultdict(
        lambda: defaultdict(dict)
    )
    for label in latest_labels(labels):
        if label.value is None or label.annotator.startswith(ADJUDICATION):
            continue
        # A pair is an item of one criterion: its label names the other episode.
        line = PREFERRED_TO.strip() if label.line.startswith(PREFERRED_TO) else label.line
        ratings[line][label.episode_id, (label.turn, label.step, label.line)][label.annotator] = label.value
    alphas = {line: krippendorff(line_ratings, resamples=resamples) for line, line_ratings in sorted(ratings.items())}  # type: ignore[arg-type]
    return {line: alpha for line, alpha in alphas.items() if alpha.things}


MAX_PANELS = 12
"""Number of pools that are drawn, those with the most labels first."""
_COLUMNS = 3
_INK, _GOOD, _QUIET = "#1f2933", "#1b7f5c", "#9aa5b1"


def reliability_diagram(calibration: Calibration) -> bytes:
    """Draw the reliability diagram as PNG bytes, one panel per pool for the MAX_PANELS pools with the most labels.
    Raises DataError without pools.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

    pools = sorted(calibration.pools, key=lambda pool: -pool.before.labels)[:MAX_PANELS]
    if not pools:
        raise DataError("there are too few labels for a reliability diagram; label more: `ratchet label`")
    rows, columns = -(-len(pools) // _COLUMNS), min(len(pools), _COLUMNS)
    figure = Figure(figsize=(3.4 * columns, 3.5 * rows), layout="constrained")
    FigureCanvasAgg(figure)
    panels: Sequence[Axes] = figure.subplots(rows, columns, squeeze=False).ravel().tolist()
    for axes, pool in zip(panels, pools, strict=False):
        _draw_panel(axes, pool)
    for axes in panels[len(pools) :]:
        axes.set_axis_off()
    handles = [Line2D([], [], color=colour, marker="o") for colour in (_QUIET, _GOOD)]
    names = ["as given", "calibrated (held-out episodes)"]
    figure.legend(handles, names, loc="outside upper left", ncols=min(2, columns), fontsize=8, frameon=False)
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=120)
    return buffer.getvalue()


def _draw_panel(axes: "Axes", pool: CalibrationPool) -> None:
    axes.plot([0, 1], [0, 1], color=_QUIET, linewidth=1, zorder=0)
    for bins, colour in ((pool.diagram_before, _QUIET), (pool.diagram_after, _GOOD)):
        most = max(diagram_bin.count for diagram_bin in bins)
        x, y = [diagram_bin.score for diagram_bin in bins], [diagram_bin.label for diagram_bin in bins]
        axes.plot(x, y, color=colour, linewidth=1)
        axes.scatter(x, y, s=[15 + 45 * diagram_bin.count / most for diagram_bin in bins], color=colour, clip_on=False)
    axes.set_xlim(-0.02, 1.02)
    axes.set_ylim(-0.02, 1.02)
    axes.set_aspect("equal")
    figures = f"{pool.before.labels} labels, ECE {pool.before.ece:.3f} to {pool.after.ece:.3f}"
    axes.set_title(f"{describe_scope(pool.place)}\n{figures}", loc="left", fontsize=8, color=_INK)
    axes.set_xlabel("score", fontsize=8)
    axes.set_ylabel("mean label", fontsize=8)
    axes.spines[["top", "right"]].set_visible(False)


def describe_scope(scope: PoolScope) -> str:
    """Describe a scope in words: the judge without its hash, the domain, the wording, and the criterion."""
    asked = [" ".join(word.partition("@")[0] for word in scope.asked.split())] if scope.asked else []
    spanned = [scope.domain or "all domains", *asked, scope.line or "all criteria"]
    return " · ".join([scope.judge.partition("@")[0], *spanned])
