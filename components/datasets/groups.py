"""Groups: attempts at one task by one policy version, with their rewards, as offline GRPO learns from them."""

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence

from .ranked import Ranked

EPSILON = 1e-4
"""As in TRL: what keeps a group of nearly equal rewards from advantages without bound."""


def groups_of(rows: Iterable[Ranked], size: int) -> list[list[Ranked]]:
    """Groups of 2 to `size` attempts with known rewards, sorted by task and group; members by `episode_id`.

    Of more attempts the first by `episode_id` are taken, which is a hash: a choice by reward would bias the advantages. Groups
    whose rewards are all equal teach nothing (every advantage is 0) and are left out, as are groups that no filter lets pass.
    """
    members: dict[tuple[str, str], list[Ranked]] = defaultdict(list)
    for row in rows:
        if row.usable and row.reward is not None and row.source != "demonstration":
            members[row.task_id, row.group_id].append(row)
    groups = []
    for _, found in sorted(members.items()):
        chosen = sorted(found, key=lambda row: row.episode_id)[:size]
        if len(chosen) > 1 and len({row.reward for row in chosen}) > 1 and any(row.fits for row in found):
            groups.append(chosen)
    return groups


def advantages(rewards: Sequence[float]) -> list[float]:
    """(r - mean) / (std + 1e-4) with the sample's standard deviation: TRL's GRPO with `scale_rewards="group"`."""
    mean = math.fsum(rewards) / len(rewards)
    deviation = math.sqrt(math.fsum((reward - mean) ** 2 for reward in rewards) / (len(rewards) - 1))
    return [(reward - mean) / (deviation + EPSILON) for reward in rewards]
