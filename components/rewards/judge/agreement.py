"""Agreement between judges: how far they differ on each thing, and Krippendorff's alpha over all of them."""

from collections import defaultdict
from collections.abc import Hashable, Iterable, Mapping

import msgspec

from ..judgement import Judgement
from ..label import OVERALL

Place = tuple[str, int, int]
"""Episode, turn, step."""
Scores = Mapping[Place, Mapping[str, float]]
"""Of one line: by place, then by judge."""


class LineAgreement(msgspec.Struct, frozen=True):
    """Of one line: `things` that at least two judges scored.

    `spread`: the mean distance between the highest and the lowest score of a thing. `alpha`: Krippendorff's, 1 is perfect,
    0 chance; None where it cannot be told.
    """

    things: int
    spread: float | None
    alpha: float | None


class Agreement(msgspec.Struct, frozen=True):
    """Of `judges` on their overall scores, and line by line."""

    judges: int
    things: int
    spread: float | None
    alpha: float | None
    lines: dict[str, LineAgreement]


def agreement(judgements: Iterable[Judgement]) -> Agreement:
    """How far the judges agree. One that asks in two ways is two judges."""
    found = _by_line(judgements)
    whole = _of(found.pop(OVERALL, {}))
    judges = {judge for scores in found.values() for given in scores.values() for judge in given}
    lines = {line: _of(found[line]) for line in sorted(found)}
    return Agreement(len(judges), whole.things, whole.spread, whole.alpha, lines)


def _of(scores: Scores) -> LineAgreement:
    spreads = _spreads(scores)
    if not spreads:
        return LineAgreement(0, None, None)
    from ..people.agreement import krippendorff

    ratings: dict[tuple[Hashable, Hashable], Mapping[str, float]] = {
        (place[0], place[1:]): given for place, given in scores.items()
    }
    alpha = krippendorff(ratings, resamples=0).alpha.value
    return LineAgreement(len(spreads), sum(spreads.values()) / len(spreads), alpha)


def _spreads(scores: Scores) -> dict[Place, float]:
    return {place: max(given.values()) - min(given.values()) for place, given in scores.items() if len(given) > 1}


def _by_line(judgements: Iterable[Judgement]) -> dict[str, dict[Place, dict[str, float]]]:
    found: dict[str, dict[Place, dict[str, float]]] = defaultdict(lambda: defaultdict(dict))
    for each in judgements:
        place = (each.episode_id, each.turn, each.step)
        for line, score in {**each.scores, OVERALL: each.overall}.items():
            if score is not None:
                found[line][place][f"{each.layer} {each.judge} {each.prompt}"] = score
    return found
