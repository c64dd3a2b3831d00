"""Calibration: monotone curves from [0, 1] into [0, 1], verdicts on layers, their file, and their application to
judgements. Pure Python.

A score is mapped by the curve of the narrowest scope that has one: a criterion of a rubric, the rubric, the domain, then
all scores of the judge. Without a curve it is unchanged.
"""

import math
from bisect import bisect_right
from functools import cached_property
from pathlib import Path
from typing import Self

import msgspec

from ratchet.components.core import DataError
from ratchet.components.core.files import open_atomically
from ratchet.components.rewards.annotation_records import OVERALL, Judgement
from ratchet.components.trajectories.trajectory import digest

from .labelled_scores import CalibrationMetrics, ReliabilityDiagramBin

SCHEMA_VERSION = 1
EDGE = 0.005
"""Distance from 0 and 1 to which scores are clamped before a logarithm."""


class CalibrationCurve(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="kind"):
    """Base class of curves: callables that map a score in [0, 1] to a calibrated score in [0, 1]."""

    def __call__(self, score: float) -> float:
        """Return the calibrated score."""
        raise NotImplementedError


class IdentityCurve(CalibrationCurve, frozen=True, forbid_unknown_fields=True, tag="identity", tag_field="kind"):
    """Leaves scores unchanged."""

    def __call__(self, score: float) -> float:
        """Return the score."""
        return score


class LogisticCurve(CalibrationCurve, frozen=True, forbid_unknown_fields=True, tag="logistic", tag_field="kind"):
    """logit p = slope · logit s + shift, for score s and calibrated score p: Platt scaling (1999) on log-odds. Slope 1
    and shift 0 change nothing.
    """

    slope: float
    shift: float

    def __call__(self, score: float) -> float:
        """Return the calibrated score."""
        score = _clamp_score(score)
        return sigmoid(self.slope * (math.log(score) - math.log1p(-score)) + self.shift)


class BetaCurve(CalibrationCurve, frozen=True, forbid_unknown_fields=True, tag="beta", tag_field="kind"):
    """logit p = a · ln s - b · ln(1 - s) + c, for score s and calibrated score p: beta calibration (Kull, Silva Filho &
    Flach 2017), a and b not negative.
    """

    a: float
    b: float
    c: float

    def __call__(self, score: float) -> float:
        """Return the calibrated score."""
        score = _clamp_score(score)
        return sigmoid(self.a * math.log(score) - self.b * math.log1p(-score) + self.c)


class IsotonicCurve(CalibrationCurve, frozen=True, forbid_unknown_fields=True, tag="isotonic", tag_field="kind"):
    """Linear interpolation between knots of rising x and y, constant beyond them (Zadrozny & Elkan 2002)."""

    x: tuple[float, ...]
    y: tuple[float, ...]

    def __call__(self, score: float) -> float:
        """Return the calibrated score."""
        after = bisect_right(self.x, score)
        if after == 0 or after == len(self.x):
            return self.y[0 if after == 0 else -1]
        left, right = self.x[after - 1], self.x[after]
        share = (score - left) / (right - left)
        return self.y[after - 1] + share * (self.y[after] - self.y[after - 1])


AnyCurve = IdentityCurve | LogisticCurve | BetaCurve | IsotonicCurve


def sigmoid(value: float) -> float:
    """Return 1 / (1 + e^-value) without overflow."""
    if value >= 0:
        return 1 / (1 + math.exp(-value))
    small = math.exp(value)
    return small / (1 + small)


def _clamp_score(score: float) -> float:
    return min(1 - EDGE, max(EDGE, score))


class PoolScope(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which labelled scores form a pool. `line`: a criterion of the rubric. `asked`: versions of rubric and prompt, as
    in `Judgement.wording`.

    None for `domain`, `line` or `asked`: any value.
    """

    layer: str
    judge: str
    domain: str | None = None
    line: str | None = None
    asked: str | None = None


class CalibrationPool(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A pool of labelled scores and its curve (None: the curve of the wider pool is used). `place`: its scope.

    `before`, `diagram_before`: metrics and reliability diagram of the raw scores; `after`, `diagram_after`: of the
    calibrated scores, each by a curve that was not fitted to its episode. `p_value`: of the improvement by a curve of
    the pool's own.
    """

    place: PoolScope
    curve: AnyCurve | None
    before: CalibrationMetrics
    after: CalibrationMetrics
    diagram_before: tuple[ReliabilityDiagramBin, ...]
    diagram_after: tuple[ReliabilityDiagramBin, ...]
    p_value: float | None = None


class LayerVerdict(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Whether the calibrated scores of a layer are trusted in a domain (None: over all domains), judged on held-out
    labels.

    `measures`: the metrics behind the verdict. `why`: reason where the layer is not trusted, else empty.
    """

    layer: str
    domain: str | None
    trusted: bool
    measures: CalibrationMetrics
    why: str = ""


class Calibration(msgspec.Struct, frozen=True, forbid_unknown_fields=True, dict=True):
    """Content of `data/calibration.json`. An empty calibration changes nothing and trusts every layer."""

    pools: tuple[CalibrationPool, ...] = ()
    verdicts: tuple[LayerVerdict, ...] = ()
    schema_version: int = SCHEMA_VERSION

    @classmethod
    def load(cls, path: Path) -> Self:
        """Read the file. Raises DataError where it is missing, invalid or of a newer schema."""
        try:
            calibration = msgspec.json.decode(path.read_bytes(), type=cls)
        except OSError as error:
            raise DataError(f"{path} cannot be read: {error.strerror}; create it with `ratchet calibrate`") from error
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise DataError(
                f"{path} is not a calibration: {error}; create it again with `ratchet calibrate`"
            ) from error
        if calibration.schema_version > SCHEMA_VERSION:
            raise DataError(
                f"{path}: schema_version {calibration.schema_version} is newer than {SCHEMA_VERSION}; upgrade Ratchet"
            )
        return calibration

    def save(self, path: Path) -> None:
        """Write the file atomically; equal calibrations give equal bytes. Raises ConfigurationError where it cannot be
        created.
        """
        with open_atomically(path) as file:
            file.write(msgspec.json.format(msgspec.json.encode(self)) + b"\n")

    @cached_property
    def version(self) -> str:
        """Version, equal for calibrations with the same curves and the same distrusted layers; `none` for one that
        changes nothing.
        """
        curves = sorted(
            msgspec.json.encode((pool.place, pool.curve)).decode() for pool in self.pools if pool.curve is not None
        )
        distrusted = sorted((verdict.layer, verdict.domain or "") for verdict in self.verdicts if not verdict.trusted)
        return "none" if not curves and not distrusted else f"cal-{digest(curves, distrusted)[:12]}"

    @cached_property
    def _curves(self) -> dict[PoolScope, AnyCurve]:
        return {pool.place: pool.curve for pool in self.pools if pool.curve is not None}

    def curve(self, layer: str, judge: str, domain: str, line: str, asked: str = "") -> AnyCurve | None:
        """Return the calibration curve of the narrowest scope for scores of a criterion (`line`); None if they are used
        uncorrected.

        `asked`: versions of rubric and prompt, as in `Judgement.wording`.
        """
        for scope in ((domain, line, asked), (domain, None, asked), (domain, None, None), (None, None, None)):
            if (curve := self._curves.get(PoolScope(layer, judge, *scope))) is not None:
                return curve
        return None

    def apply(self, judgement: Judgement) -> Judgement:
        """Return the judgement with calibrated scores; None stays None. Applied to its own result, it would calibrate
        twice.
        """
        if not self._curves:
            return judgement
        layer, judge, domain, asked = judgement.layer, judgement.judge, judgement.domain, judgement.wording

        def calibrated(line: str, score: float | None) -> float | None:
            curve = None if score is None else self.curve(layer, judge, domain, line, asked)
            return score if score is None or curve is None else curve(score)

        scores = {line: calibrated(line, score) for line, score in judgement.scores.items()}
        return msgspec.structs.replace(judgement, scores=scores, overall=calibrated(OVERALL, judgement.overall))

    def verdict(self, layer: str, domain: str) -> LayerVerdict | None:
        """Return the verdict on a layer in a domain, or else over all domains; None where there are too few labels for
        either.
        """
        by_domain = {verdict.domain: verdict for verdict in self.verdicts if verdict.layer == layer}
        return by_domain.get(domain) or by_domain.get(None)

    def trusts(self, layer: str, domain: str) -> bool:
        """Return False where labels show that the calibrated scores of a layer are unusable; True without a verdict."""
        verdict = self.verdict(layer, domain)
        return verdict is None or verdict.trusted
