"""Label: what is known, or what somebody said, of one step or of a whole episode.

People label (`annotator` is their name), and so do experiments whose truth is known by construction: an injected error
(`injection:<kind>`), a repaired step that was replayed (`repair`), the success rate of continuations (`monte_carlo`).
A night's labels are sealed in `data/labels/<night>/labels.jsonl`.
"""

from typing import Annotated

import msgspec

OVERALL = "overall"
"""The line of a label that is about a step or an episode as such, and not about one line of a rubric."""
FILE = "labels.jsonl"

Value = Annotated[float, msgspec.Meta(ge=0, le=1)]


class Label(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """`turn` and `step` are -1 for the episode as a whole. `value` in [0, 1]: 0 wrong or useless, 1 right."""

    episode_id: str
    content_hash: str
    domain: str
    turn: int = -1
    step: int = -1
    line: str = OVERALL
    value: Value
    annotator: str
    comment: str = ""
    labelled_at: str = ""
    schema_version: int = 1
