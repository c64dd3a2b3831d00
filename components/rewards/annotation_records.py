"""Judgements and labels: scores that a model, a person or an experiment with known truth gave to a step or an episode.

The key of a judgement is a hash of what is judged and of its judge, so that nothing is paid for twice. The annotator of
a label is a person's name, `adjudication:<name>` for a decision between people who disagree, or for an experiment
`injection:<kind>` (a planted error), `repair` (a replayed repair) or `monte_carlo` (success rate of continuations). Both
records are JSON lines, sealed per night in `data/judgements/<night>/judgements.jsonl` and
`data/labels/<night>/labels.jsonl`. Scoring and dataset builds read these files and never recompute them.
"""

from datetime import UTC, datetime
from typing import Annotated, Any, Literal

import msgspec

from ratchet.components.trajectories.trajectory import Trajectory, digest

WHOLE = -1
"""`turn` of the whole episode; `step` of a whole turn or episode."""
JUDGEMENTS_FILE = "judgements.jsonl"

JudgementLayer = Literal["judge", "learned"]
UnitFloat = Annotated[float, msgspec.Meta(ge=0, le=1)]


class JudgementCost(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Cost of a judgement. `calls`: requests sent. `money`: in the currency of the configured prices. None: unknown,
    because a price or a token count is.
    """

    calls: int = 0
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    money: float | None = None


class Judgement(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One judgement of a step, turn or episode by one judge.

    `content_hash`: of the trajectory that was judged. `scores`: score in [0, 1] of each criterion of the rubric, or
    None. `overall`: mean of the scores that are not None, by the rubric's weights. `reasons`: by criterion. `rubric`,
    `judge` and `prompt` are versioned names (`name@hash`): another text, model or wording gives another judgement.
    `error`: reason why there are no scores; such a judgement is excluded, it does not count as a score of 0.
    `judged_at`: ISO 8601.
    """

    key: str
    layer: JudgementLayer
    episode_id: str
    content_hash: str
    domain: str
    turn: int = WHOLE
    step: int = WHOLE
    rubric: str
    judge: str
    prompt: str
    scores: dict[str, UnitFloat | None] = {}
    overall: UnitFloat | None = None
    reasons: dict[str, str] = {}
    error: str | None = None
    cost: JudgementCost = JudgementCost()
    judged_at: str = ""
    schema_version: int = 1

    @property
    def wording(self) -> str:
        """Versions of rubric and prompt, separated by a blank. Scores of different wordings are calibrated separately."""
        return f"{self.rubric} {self.prompt}"


def judgement_key(content_hash: str, turn: int, step: int, rubric: str, judge: str, prompt: str) -> str:
    """Return the key of a judgement. It depends only on the arguments, so that it is known before a request is sent."""
    return "jd-" + digest(content_hash, turn, step, rubric, judge, prompt)


OVERALL = "overall"
"""`line` of a label about a step or an episode as a whole, not about one criterion of a rubric."""
LABELS_FILE = "labels.jsonl"
PREFERRED_TO = "preferred_to "
"""Prefix of `line` for a label of a preference pair, followed by the id of the rejected episode. The label stands at the
chosen episode and the turn where the sides differ (-1 for whole episodes)."""
ADJUDICATION = "adjudication:"
"""Prefix of the annotator of an adjudication, followed by a person's name."""


class Label(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One label by one annotator. `value` in [0, 1]: 0 wrong or useless, 1 right; None withdraws the annotator's earlier
    label of the same item. `line`: the criterion that is labelled.

    `turn` and `step` are -1 for the whole episode. `content_hash`: of the labelled trajectory; empty if not recorded.
    `labelled_at`: ISO 8601 or empty; of two labels by one annotator on the same item the later one counts. `edit`: of an
    accepted pair, the message that the annotator wrote in place of the chosen one, as JSON of an `EditedMessage`.
    """

    episode_id: str
    content_hash: str
    domain: str
    turn: int = -1
    step: int = -1
    line: str = OVERALL
    value: UnitFloat | None
    annotator: str
    comment: str = ""
    labelled_at: str = ""
    edit: str = ""
    schema_version: int = 2

    @classmethod
    def now(cls, trajectory: Trajectory, **fields: Any) -> "Label":
        """Return a label that is given now to a trajectory, or to a step of it. `fields`: the fields that it does not know."""
        return cls(
            episode_id=trajectory.episode_id,
            content_hash=trajectory.content_hash,
            domain=trajectory.task.domain,
            labelled_at=datetime.now(UTC).isoformat(timespec="microseconds"),
            **fields,
        )
