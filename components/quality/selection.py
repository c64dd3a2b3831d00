"""Selection: which ranked episodes are accepted for training, with the reason why, and how much each weighs. Pure."""

from collections import Counter, defaultdict
from collections.abc import Sequence

import msgspec

from .params import RankParams


class Candidate(msgspec.Struct, frozen=True):
    """What the selection looks at in an episode. `gdi` and `pass_rate` are None where they are not known.

    `caught`: the guards found a hack in it.
    """

    episode_id: str
    task_id: str
    source: str
    messages_hash: str
    success: bool | None
    gdi: float | None
    pass_rate: float | None
    infrastructure_failure: bool = False
    quarantined: str | None = None
    caught: bool | None = None


class Choice(msgspec.Struct, frozen=True):
    """`reason` says in words why an episode was accepted or not; `weight` is its weight in training."""

    accepted: bool
    reason: str
    weight: float


def select(candidates: Sequence[Candidate], params: RankParams) -> list[Choice]:
    """A choice per candidate, in their order. Ties are broken by `episode_id`; equal runs are accepted once.

    The best of a task are chosen among the episodes of one source: demonstrations never displace a policy's own attempts.
    """
    order = sorted(range(len(candidates)), key=lambda i: (-(candidates[i].gdi or 0.0), candidates[i].episode_id))
    first: dict[tuple[str, str], str] = {}
    taken: Counter[tuple[str, str]] = Counter()
    reasons: dict[int, str] = {}
    ranks: defaultdict[int, int] = defaultdict(int)
    for index in order:
        candidate = candidates[index]
        refused = _refusal(candidate, params)
        if refused is None:
            twin = first.setdefault((candidate.task_id, candidate.messages_hash), candidate.episode_id)
            if twin != candidate.episode_id:
                refused = f"went the same way as {twin}"
        if refused is None:
            taken[candidate.task_id, candidate.source] += 1
            ranks[index] = taken[candidate.task_id, candidate.source]
            if ranks[index] > params.best_of:
                refused = f"not among the best {params.best_of} of its task"
        reasons[index] = refused or f"success {ranks[index]} of its task"
    return [
        Choice(0 < ranks[index] <= params.best_of, reasons[index], weight(candidate, params))
        for index, candidate in enumerate(candidates)
    ]


def _refusal(candidate: Candidate, params: RankParams) -> str | None:
    if candidate.infrastructure_failure:
        return "infrastructure failure"
    if candidate.quarantined is not None:
        return f"quarantined by {candidate.quarantined}"
    if candidate.caught:
        return "a hack was found in it: see its score's explanations"
    if not candidate.success:
        return "failed" if candidate.success is False else "end not known"
    if candidate.gdi is None:
        return "not scored"
    if candidate.gdi < params.min_gdi:
        return f"gdi below {params.min_gdi}"
    return None


def weight(candidate: Candidate, params: RankParams) -> float:
    """4 p (1 - p) of the group's pass rate, at least `min_weight`: most is learnt where about half succeeds.

    A demonstration weighs 1: its pass rate is the teacher's and says nothing of the learner.
    """
    if candidate.source == "demonstration" or candidate.pass_rate is None:
        return 1.0
    return max(params.min_weight, 4.0 * candidate.pass_rate * (1.0 - candidate.pass_rate))
