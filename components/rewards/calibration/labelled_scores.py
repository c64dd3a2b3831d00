"""Match scores with labels of the same item, and measure their agreement. Scores and labels are in [0, 1].

Metrics that need a binary label count a label of at least .5 as right, else as wrong.
"""

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from ratchet.components.rewards.annotation_records import ADJUDICATION, OVERALL, Judgement, Label

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

BINS = 10
PER_BIN = 15
"""Least number of labels per bin: with fewer, ECE mostly measures sample size (Roelofs et al. 2022)."""


class ReliabilityDiagramBin(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One bin: mean score, mean label, and number of scores."""

    score: float
    label: float
    count: int


class CalibrationMetrics(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Agreement of scores with `labels` labels of `episodes` episodes.

    `mae` mean absolute error, `brier` mean squared error, `bias` mean of score - label, `ece` expected calibration
    error over bins of equal mass, `auroc` probability that a right item scores above a wrong one (None if all labels
    are right or all wrong), `tnr` share of the wrong items that score below .5 (None if no label is wrong).
    """

    labels: int
    episodes: int
    mae: float
    brier: float
    bias: float
    ece: float
    auroc: float | None
    tnr: float | None


def calibration_metrics(
    scores: Sequence[float], labels: Sequence[float], episodes: Sequence[str]
) -> CalibrationMetrics:
    """Return the metrics of n >= 1 scores, their labels, and the episode id of each."""
    import numpy as np

    score, label = np.asarray(scores, dtype=np.float64), np.asarray(labels, dtype=np.float64)
    error = score - label
    wrong = label < 0.5
    bins = reliability_bins(scores, labels)
    return CalibrationMetrics(
        labels=len(score),
        episodes=len(set(episodes)),
        mae=float(np.abs(error).mean()),
        brier=float((error**2).mean()),
        bias=float(error.mean()),
        ece=sum(score_bin.count * abs(score_bin.score - score_bin.label) for score_bin in bins) / len(score),
        auroc=auroc(scores, labels),
        tnr=float((score[wrong] < 0.5).mean()) if wrong.any() else None,
    )


def reliability_bins(scores: Sequence[float], labels: Sequence[float]) -> list[ReliabilityDiagramBin]:
    """Return at most BINS bins with about equally many scores, by rising score. Equal scores share a bin."""
    import numpy as np

    score, label = np.asarray(scores, dtype=np.float64), np.asarray(labels, dtype=np.float64)
    _, score_index = np.unique(score, return_inverse=True)
    counts = np.bincount(score_index).astype(np.float64)
    bins = min(BINS, max(2, len(score) // PER_BIN))
    middle = np.cumsum(counts) - counts / 2
    number = np.minimum((middle * bins / len(score)).astype(np.int64), bins - 1)[score_index]
    total = np.bincount(number, minlength=bins)
    sums = (np.bincount(number, weights=values, minlength=bins) for values in (score, label))
    return [
        ReliabilityDiagramBin(float(scores_sum / count), float(labels_sum / count), int(count))
        for scores_sum, labels_sum, count in zip(*sums, total, strict=True)
        if count
    ]


def auroc(scores: Sequence[float], labels: Sequence[float]) -> float | None:
    """Return P(a right item scores higher than a wrong one), ties half (Mann & Whitney 1947); None without both."""
    import numpy as np

    score, right = np.asarray(scores, dtype=np.float64), np.asarray(labels, dtype=np.float64) >= 0.5
    positives = int(right.sum())
    negatives = len(right) - positives
    if not positives or not negatives:
        return None
    return float((midranks(score)[right].sum() - positives * (positives + 1) / 2) / (positives * negatives))


def midranks(values: "Floats") -> "Floats":
    """Return ranks (n,) from 1; ties share their mean."""
    import numpy as np

    _, rank_index, counts = np.unique(values, return_inverse=True, return_counts=True)
    ranks: Floats = (np.cumsum(counts) - (counts - 1) / 2)[rank_index]
    return ranks


class LabelledScore(NamedTuple):
    """A judge's score of a criterion (`line`, or OVERALL), and the mean label of the same criterion by all annotators.

    `wording`: versions of rubric and prompt.
    """

    layer: str
    judge: str
    domain: str
    line: str
    episode_id: str
    score: float
    label: float
    wording: str = ""


class MatchedLabels(msgspec.Struct, frozen=True):
    """Scores paired with labels, sorted; and the numbers of all scores and of all labels.

    `unmet`: number of labels without a score. `changed`: how many of these have a score, but of another content hash.
    """

    pairs: list[LabelledScore]
    scores: int
    labels: int
    unmet: int
    changed: int


LabelledPosition = tuple[str, int, int, str]
"""(episode, turn, step, line)"""


def latest_labels(labels: Iterable[Label], *, withdrawn: bool = False) -> list[Label]:
    """Return one label, the latest, per annotator and labelled item (episode, turn, step and criterion). Labels that
    their annotator withdrew are left out; with `withdrawn`, the withdrawals are returned.
    """
    latest: dict[tuple[LabelledPosition, str], Label] = {}
    for label in labels:
        key = (_position(label), label.annotator)
        previous = latest.get(key)
        if previous is None or labelled_when(label) >= labelled_when(previous):
            latest[key] = label
    return [label for label in latest.values() if withdrawn or label.value is not None]


def settled_labels(labels: Iterable[Label]) -> list[Label]:
    """Return the latest labels that count: an adjudication replaces the labels of its item by other annotators."""
    latest = latest_labels(labels)
    adjudicated = {
        (_position(label), label.content_hash) for label in latest if label.annotator.startswith(ADJUDICATION)
    }
    return [
        label
        for label in latest
        if label.annotator.startswith(ADJUDICATION) or (_position(label), label.content_hash) not in adjudicated
    ]


def match_labels(judgements: Iterable[Judgement], labels: Iterable[Label]) -> MatchedLabels:
    """Pair every score with the mean label of its episode, turn, step and criterion. Of judgements with one key only
    the last is used, and of the labels of one annotator on one item only the latest.

    A label of another content hash is ignored; an empty hash matches any content. An adjudication replaces other labels.
    """
    labels_counted = settled_labels(labels)
    by_position: dict[LabelledPosition, list[Label]] = defaultdict(list)
    for label in labels_counted:
        by_position[_position(label)].append(label)
    pairs, matched, changed_positions, scores = [], set(), set(), 0
    for judgement in {judgement.key: judgement for judgement in judgements}.values():
        for line, score in scores_by_line(judgement).items():
            scores += 1
            position = (judgement.episode_id, judgement.turn, judgement.step, line)
            candidates = by_position.get(position, ())
            matching = [label for label in candidates if _same_content(label.content_hash, judgement.content_hash)]
            if not matching:
                changed_positions.update([position] if candidates else [])
                continue
            matched.add(position)
            mean = mean_label(matching)
            source = (judgement.layer, judgement.judge, judgement.domain)
            pairs.append(LabelledScore(*source, line, judgement.episode_id, score, mean, judgement.wording))
    unmet = sum(len(candidates) for position, candidates in by_position.items() if position not in matched)
    changed = sum(len(by_position[position]) for position in changed_positions - matched)
    return MatchedLabels(sorted(pairs), scores, len(labels_counted), unmet, changed)


def mean_label(labels: Sequence[Label]) -> float:
    """Return the mean value of labels, of which none is a withdrawal."""
    return sum(label.value for label in labels if label.value is not None) / len(labels)


def scores_by_line(judgement: Judgement) -> dict[str, float]:
    """Return the scores that are not None by criterion, with the overall score under OVERALL."""
    scores = {line: score for line, score in judgement.scores.items() if score is not None and line != OVERALL}
    if judgement.overall is not None:
        scores[OVERALL] = judgement.overall
    return scores


def _position(label: Label) -> LabelledPosition:
    return (label.episode_id, label.turn, label.step, label.line)


def labelled_when(label: Label) -> tuple[float, str]:
    """Return a sort key by time (UTC where no zone is given). Invalid dates sort first."""
    try:
        when = datetime.fromisoformat(label.labelled_at)
    except ValueError:
        return -math.inf, label.labelled_at
    return (when if when.tzinfo else when.replace(tzinfo=UTC)).timestamp(), ""


def _same_content(one: str, other: str) -> bool:
    return one == other or not one or not other
