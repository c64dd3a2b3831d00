"""Rubrics of judges: criteria, each a question with anchors. The bundled rubrics are one YAML file per domain; their
weights are in the domain profile.

A user's own rubric file may contain weights, and criteria that no domain profile has a weight for.
"""

import re
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import Field, field_validator, model_validator

from ratchet.components.core import ConfigurationError, DomainProfile, load_domain
from ratchet.components.core.configuration import Configuration
from ratchet.components.trajectories.trajectory import digest

RUBRICS_FOLDER = Path(__file__).parents[1] / "rubrics"
ANCHORS = (0.0, 0.5, 1.0)
FALLBACK_RUBRIC = "generic"
_NAME = re.compile(r"[a-z][a-z0-9_]{0,40}")
RubricText = Annotated[str, Field(min_length=1, max_length=600)]


class RubricCriterion(Configuration):
    """One criterion (an entry of `lines` in the rubric's file).

    `asks`: a question about a step; "yes" is in favour of the agent. `whole`: the question about a whole episode; None:
    the same as `asks`. `anchors`: descriptions of the scores 0, 0.5 and 1. `weight` None: the weight in the domain
    profile.
    """

    asks: RubricText
    whole: RubricText | None = None
    anchors: dict[float, RubricText]
    weight: float | None = Field(None, ge=0, allow_inf_nan=False)

    @field_validator("anchors")
    @classmethod
    def _three(cls, value: dict[float, str]) -> dict[float, str]:
        if sorted(value) != list(ANCHORS):
            raise ValueError("give an anchor for 0, 0.5 and 1, and no other")
        return dict(sorted(value.items()))


class JudgeRubric(Configuration):
    """A rubric. `about`: what is judged, for the prompt. `lines`: criteria by name, at most 12, because a judge is
    asked about all of them at once.

    Names are lower case with underscores.
    """

    name: str
    about: RubricText
    lines: dict[str, RubricCriterion] = Field(min_length=1, max_length=12)

    @model_validator(mode="after")
    def _plain_names(self) -> Self:
        wrong = [name for name in (self.name, *self.lines) if not _NAME.fullmatch(name)]
        if wrong:
            raise ValueError(f"'{wrong[0]}' is not a valid name; use lower-case letters, digits and underscores")
        return self

    @property
    def version(self) -> str:
        """`name@` and 12 hex digits of a hash over the texts. Weights are excluded: a changed weight requires no new
        judgement.
        """
        words = {name: (line.asks, line.whole, list(line.anchors.items())) for name, line in self.lines.items()}
        return f"{self.name}@{digest(self.about, words)[:12]}"

    def weights(self, profile: DomainProfile) -> dict[str, float]:
        """Return the weight of each criterion: from the file, else from the profile, else 0."""
        return {
            name: profile.model_rubric.get(name, 0.0) if line.weight is None else line.weight
            for name, line in self.lines.items()
        }

    def only(self, names: set[str]) -> "JudgeRubric":
        """Return the rubric restricted to the criteria in `names`."""
        return self.model_copy(update={"lines": {name: line for name, line in self.lines.items() if name in names}})


def describe_rubric(rubric: JudgeRubric, weights: dict[str, float]) -> dict[str, Any]:
    """Return a rubric with its weights (by criterion), as JSON values."""
    lines = {
        name: {
            "weight": weights[name],
            "asks": line.asks,
            "whole": line.whole or line.asks,
            "anchors": {f"{value:g}": words for value, words in line.anchors.items()},
        }
        for name, line in rubric.lines.items()
    }
    return {"name": rubric.name, "version": rubric.version, "about": rubric.about, "lines": lines}


def bundled_rubrics() -> dict[str, JudgeRubric]:
    """Return the rubrics that are part of the package, by name."""
    return {path.stem: _load_bundled(path.stem) for path in sorted(RUBRICS_FOLDER.glob("*.yaml"))}


def load_rubric(domain: str) -> JudgeRubric:
    """Return the rubric that `select_rubric` finds for a domain; an unknown domain uses `generic`. Raises
    ConfigurationError.
    """
    return select_rubric(load_domain(domain))


def select_rubric(profile: DomainProfile, file: Path | None = None) -> JudgeRubric:
    """Return the criteria with a positive weight from the first source that exists, in this order:

    1. `file`,
    2. the bundled rubric with the profile's name,
    3. the criteria that the profile's `model_rubric` names, taken from all bundled rubrics,
    4. the rubric `generic` with its own weights, for a profile without `model_rubric`.

    Raises ConfigurationError if no criterion has a weight, if `model_rubric` names one that no bundled rubric defines,
    or if `file` cannot be read as a rubric.
    """
    if file is not None:
        rubric = JudgeRubric.load(file)
        return _weighted_lines(rubric, profile, str(file))
    if (RUBRICS_FOLDER / f"{profile.name}.yaml").is_file():
        return _weighted_lines(_load_bundled(profile.name), profile, f"rubric '{profile.name}'")
    return _compose_rubric(profile)


def _weighted_lines(rubric: JudgeRubric, profile: DomainProfile, origin: str) -> JudgeRubric:
    names = {name for name, weight in rubric.weights(profile).items() if weight > 0}
    if not names:
        raise ConfigurationError(
            f"{origin}: no criterion has a weight; give `weight:` in the file, or in model_rubric of domain '{profile.name}'"
        )
    return rubric.only(names)


def _compose_rubric(profile: DomainProfile) -> JudgeRubric:
    """Compose a rubric for a domain without a file, from the criteria of all bundled rubrics."""
    if not profile.model_rubric:
        return _weighted_lines(
            _load_bundled(FALLBACK_RUBRIC), load_domain(FALLBACK_RUBRIC), f"rubric '{FALLBACK_RUBRIC}'"
        )
    criteria = {name: line for rubric in bundled_rubrics().values() for name, line in rubric.lines.items()}
    criteria |= _load_bundled(FALLBACK_RUBRIC).lines
    names = [name for name, weight in profile.model_rubric.items() if weight > 0]
    unknown = [name for name in names if name not in criteria]
    if unknown:
        raise ConfigurationError(
            f"domain '{profile.name}': no rubric defines the criterion '{unknown[0]}'; give a file (--rubric FILE, or `rubric:`)"
        )
    return JudgeRubric(
        name=FALLBACK_RUBRIC, about=_load_bundled(FALLBACK_RUBRIC).about, lines={name: criteria[name] for name in names}
    )


@cache
def _load_bundled(name: str) -> JudgeRubric:
    return JudgeRubric.load(RUBRICS_FOLDER / f"{name}.yaml")
