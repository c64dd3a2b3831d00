"""Learning: pairs of scores and labels to a calibration, from wide pools to narrow ones."""

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from .calibration import Calibration, Place, Pool, Verdict
from .config import CalibrationConfig
from .measures import measure, reliability
from .pairs import Pair
from .selection import choose

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

Record = TypeVar("Record", bound=msgspec.Struct)

DIGITS = 9
"""Decimals that are kept: the last ones of a float may differ from machine to machine."""
EACH = 10
"""Labels of either side, right and wrong, below which nothing is said of a layer."""


def learn(pairs: Sequence[Pair], config: CalibrationConfig | None = None) -> Calibration:
    """The calibration of those pairs; the same in whatever order they come. Without enough labels it is empty."""
    config = config or CalibrationConfig()
    learner = _Learner(sorted(pairs, key=_narrowing), config)
    pools = tuple(learner.pools())
    return Calibration(pools, tuple(_verdicts(learner.pairs, learner.held_out, config)))


class _Learner:
    """Holds, for every pair, the held-out score of the narrowest pool that was settled so far."""

    def __init__(self, pairs: list[Pair], config: CalibrationConfig) -> None:
        import numpy as np

        self.pairs = pairs
        self.held_out = np.array([pair.score for pair in pairs])
        self._config = config
        self._alpha = config.alpha

    def pools(self) -> Iterator[Pool]:
        """Every pool with labels enough, each after the wider one that it falls back to."""
        places = list(_places(self.pairs))
        enough = [(place, members) for place, members in places if self._enough(members)]
        self._alpha = self._config.alpha / max(1, len(enough))  # Bonferroni
        for place, members in enough:
            yield self._settle(place, members)

    def _enough(self, members: Sequence[int]) -> bool:
        episodes = {self.pairs[each].episode_id for each in members}
        return len(members) >= self._config.min_labels and len(episodes) >= self._config.min_episodes

    def _settle(self, place: Place, members: list[int]) -> Pool:
        own = [self.pairs[each] for each in members]
        chosen = choose(own, self.held_out[members], self._alpha)
        self.held_out[members] = chosen.held_out
        before, labels = [pair.score for pair in own], [pair.label for pair in own]
        after = chosen.held_out.tolist()
        episodes = [pair.episode_id for pair in own]
        return Pool(
            place,
            None if chosen.curve is None else _rounded(chosen.curve),
            _rounded(measure(before, labels, episodes)),
            _rounded(measure(after, labels, episodes)),
            tuple(_rounded(each) for each in reliability(before, labels)),
            tuple(_rounded(each) for each in reliability(after, labels)),
            round(chosen.p_value, DIGITS),
        )


def _places(pairs: Sequence[Pair]) -> Iterator[tuple[Place, list[int]]]:
    """The pools of sorted pairs, a wider one before those within it; one that spans no more than the wider is left out."""
    numbered = list(enumerate(pairs))
    for (layer, judge), group in groupby(numbered, key=lambda each: (each[1].layer, each[1].judge)):
        whole = list(group)
        yield Place(layer, judge), [number for number, _ in whole]
        for domain, members in groupby(whole, key=lambda each: each[1].domain):
            part = list(members)
            if len(part) < len(whole):
                yield Place(layer, judge, domain), [number for number, _ in part]
            for asked, same in groupby(part, key=lambda each: each[1].asked):
                own = list(same)
                if len(own) < len(part):
                    yield Place(layer, judge, domain, None, asked), [number for number, _ in own]
                for line, found in groupby(own, key=lambda each: each[1].line):
                    one = [number for number, _ in found]
                    if len(one) < len(own):
                        yield Place(layer, judge, domain, line, asked), one


def _narrowing(pair: Pair) -> tuple[str, str, str, str, str, Pair]:
    """The order in which a pool's pairs stand together, and each pool's within the wider one's."""
    return (pair.layer, pair.judge, pair.domain, pair.asked, pair.line, pair)


def _verdicts(pairs: Sequence[Pair], held_out: "Floats", config: CalibrationConfig) -> Iterator[Verdict]:
    for layer in sorted({pair.layer for pair in pairs}):
        domains = sorted({pair.domain for pair in pairs if pair.layer == layer})
        for domain in (None, *domains):
            of = [i for i, pair in enumerate(pairs) if pair.layer == layer and domain in (None, pair.domain)]
            if (verdict := _verdict(layer, domain, [pairs[i] for i in of], held_out[of].tolist(), config)) is not None:
                yield verdict


def _verdict(
    layer: str, domain: str | None, pairs: Sequence[Pair], scores: list[float], config: CalibrationConfig
) -> Verdict | None:
    right = sum(pair.label >= 0.5 for pair in pairs)
    episodes = [pair.episode_id for pair in pairs]
    few = len(pairs) < config.min_labels or len(set(episodes)) < config.min_episodes
    if few or min(right, len(pairs) - right) < EACH:
        return None
    found = measure(scores, [pair.label for pair in pairs], episodes)
    why = []
    if found.auroc is not None and found.auroc < config.min_auroc:
        why.append(f"AUROC {found.auroc:.2f} is below {config.min_auroc:g}")
    if found.ece > config.max_ece:
        why.append(f"ECE {found.ece:.2f} is above {config.max_ece:g}")
    return Verdict(layer, domain, not why, _rounded(found), "; ".join(why))


def _rounded(record: Record) -> Record:
    """The record with every float, in it or in its tuples, to DIGITS decimals."""
    return type(record)(**{name: _short(getattr(record, name)) for name in record.__struct_fields__})


def _short(value: Any) -> Any:
    if isinstance(value, float):
        return round(value, DIGITS)
    return tuple(_short(each) for each in value) if isinstance(value, tuple) else value
