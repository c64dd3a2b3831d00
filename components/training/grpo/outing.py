"""Outing: one attempt at a task, as TRL, credit and selection see it."""

import hashlib
from collections.abc import Sequence
from typing import Any

import msgspec

from .episode import EpisodeTokens
from .rewards import Earned


class Outing(msgspec.Struct, frozen=True):
    """`solved` is None where nobody knows, and False for what only looks solved (a hack). `lost`: the infrastructure ended it,
    and it trains nothing.

    `staleness`: of a past attempt that is played back, how many steps ago it was sampled. `guided`: it was sampled with a hint,
    which `tokens` do not show. Of both, `tokens.logprobs` are those that they were sampled with. `agents`: who acted at each turn
    (`agent_id`); empty where that is not known.
    """

    task_id: str
    kind: str
    family: str
    tokens: EpisodeTokens
    earned: Earned
    solved: bool | None = None
    lost: bool = False
    staleness: int | None = None
    guided: bool = False
    agents: tuple[str, ...] = ()

    @property
    def off_policy(self) -> bool:
        """Whether it was sampled by another policy, or from another prompt, than the one that is trained on it."""
        return self.guided or self.staleness is not None


def as_trl(outings: Sequence[Outing]) -> dict[str, Any]:
    """What TRL's `rollout_func` returns; `env_mask` is 1 for the policy's tokens."""
    tokens = [outing.tokens for outing in outings]
    return {
        "prompt_ids": [each.prompt_ids for each in tokens],
        "completion_ids": [each.completion_ids for each in tokens],
        "logprobs": [each.logprobs for each in tokens],
        "env_mask": [each.mask for each in tokens],
        "outing": list(outings),
    }


def seed_of(*names: object) -> int:
    """A seed named by what it is for: 53 bits, exact in JSON anywhere."""
    raw = hashlib.blake2b("/".join(map(str, names)).encode(), digest_size=8).digest()
    return int.from_bytes(raw, "big") >> 11
