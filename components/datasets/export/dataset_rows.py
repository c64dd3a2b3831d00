"""Rows of each dataset as pure functions of messages and ranked episodes, and the groups for offline GRPO.

Every row lists its episodes and the reason for its inclusion, except traces in the format of verifiers.
"""

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from .ranked_episodes import RankedEpisode, RankedPair

EPSILON = 1e-4
"""Added to the standard deviation, as in TRL: bounds the advantages of a group with nearly equal rewards."""


def offline_groups(rows: Iterable[RankedEpisode], size: int) -> list[list[RankedEpisode]]:
    """Return groups of 2 to `size` attempts with known rewards, sorted by task and group, each ordered by `episode_id`.

    Larger groups are truncated by `episode_id`, which is a hash: a selection by reward would bias the advantages.
    Groups with equal rewards are dropped because all their advantages are 0, and so are groups in which no attempt
    passes the export filters.
    """
    members: dict[tuple[str, str], list[RankedEpisode]] = defaultdict(list)
    for row in rows:
        # A demonstration is no sample of the policy whose advantages the group estimates.
        if row.usable and row.reward is not None and row.source != "demonstration":
            members[row.task_id, row.group_id].append(row)
    groups = []
    for _, attempts in sorted(members.items()):
        # By a hash: taking the best would bias the advantages.
        chosen = sorted(attempts, key=lambda row: row.episode_id)[:size]
        if len(chosen) > 1 and len({row.reward for row in chosen}) > 1 and any(row.fits for row in attempts):
            groups.append(chosen)
    return groups


def group_advantages(rewards: Sequence[float]) -> list[float]:
    """Return (r - mean) / (std + 1e-4) with the sample standard deviation.

    As in TRL's GRPO with `scale_rewards="group"`.
    """
    mean = math.fsum(rewards) / len(rewards)
    deviation = math.sqrt(math.fsum((reward - mean) ** 2 for reward in rewards) / (len(rewards) - 1))
    return [(reward - mean) / (deviation + EPSILON) for reward in rewards]


Row = dict[str, Any]
JsonList = list[Any] | msgspec.Raw
"""List of messages or tools. The export passes encoded JSON."""


def sft_row(messages: JsonList, tools: JsonList, ranked: RankedEpisode) -> Row:
    """Return the SFT row of a whole episode as a conversation."""
    return {
        "messages": messages,
        "tools": tools,
        "episode_id": ranked.episode_id,
        "task_id": ranked.task_id,
        "night": ranked.night,
        "source": ranked.source,
        "weight": round(ranked.weight, 6),
        "kind": ranked.kind,
        "family": ranked.family,
        "reason": ranked.reason,
    }


def dpo_row(
    prompt: JsonList,
    chosen: JsonList,
    rejected: JsonList,
    tools: JsonList,
    pair: RankedPair,
    sides: Sequence[RankedEpisode],
) -> Row:
    """Return the DPO row of a pair: the shared history as prompt, and one assistant message per side.

    At level `trajectory`, the prompt is the opening messages, and a side is everything after them. `sides`: the chosen
    and the rejected episode.
    """
    where = f"assistant message {pair.turn + 1}" if pair.turn >= 0 else "whole episode"
    return {
        "prompt": prompt,
        "chosen": chosen,
        "rejected": rejected,
        "tools": tools,
        "episode_ids": [pair.chosen_episode_id, pair.rejected_episode_id],
        "task_id": pair.task_id,
        "nights": nights_of(sides),
        "level": pair.level,
        "turn": pair.turn,
        "margin": round(pair.margin, 6),
        "kind": sides[0].kind,
        "family": sides[0].family,
        "reason": f"{where}: "
        + (
            "a person wrote the chosen side"
            if pair.edit
            else f"the chosen side scores {pair.margin:.2f} higher on average"
        ),
    }


def grpo_row(prompt: JsonList, tools: JsonList, attempts: Sequence[RankedEpisode]) -> Row:
    """Return the GRPO row of a task: its opening messages as prompt, and the mean pass rate over its groups.

    `pass_rate` is None if no group has one, as for a task with demonstrations only.
    """
    first, rate = attempts[0], mean_pass_rate(attempts)
    passed = "unknown" if rate is None else f"{rate:.2f}"
    return {
        "prompt": prompt,
        "tools": tools,
        "task_id": first.task_id,
        "kind": first.kind,
        "family": first.family,
        "pass_rate": rate,
        "episode_ids": [row.episode_id for row in attempts],
        "nights": nights_of(attempts),
        "reason": f"a train task, attempted {len(attempts)} times; pass rate {passed}",
    }


def group_row(
    prompt: JsonList, tools: JsonList, *attempts: JsonList, members: Sequence[RankedEpisode], steps: Sequence[Any]
) -> Row:
    """Return the offline GRPO row of attempts at one task by one policy version.

    `attempts`: the messages of each attempt after the opening. `steps`: per attempt, the process reward of each turn,
    None for a turn without a scored step. Both are in the order of `members`, as are all lists of the row.
    """
    rewards = [row.reward or 0.0 for row in members]
    first = members[0]
    return {
        "prompt": prompt,
        "tools": tools,
        "attempts": list(attempts),
        "rewards": [round(reward, 6) for reward in rewards],
        "advantages": [round(advantage, 6) for advantage in group_advantages(rewards)],
        "step_rewards": list(steps),
        "task_id": first.task_id,
        "kind": first.kind,
        "family": first.family,
        "group_id": first.group_id,
        "policy_version": first.policy_version,
        "episode_ids": [row.episode_id for row in members],
        "nights": nights_of(members),
        "reason": f"{len(members)} attempts, rewards from {min(rewards):.2f} to {max(rewards):.2f}",
    }


def benchmark_row(prompt: JsonList, tools: JsonList, attempts: Sequence[RankedEpisode]) -> Row:
    """Return the benchmark row of a task with the results of its recorded attempts, for comparison with another agent."""
    first, rate = attempts[0], mean_pass_rate(attempts)
    rewards = [row.reward for row in attempts if row.reward is not None]
    runs = [
        {
            "episode_id": row.episode_id,
            "policy_version": row.policy_version,
            "success": row.success,
            "reward": row.reward,
            "steps": row.steps,
        }
        for row in attempts
    ]
    return {
        "prompt": prompt,
        "tools": tools,
        "task_id": first.task_id,
        "taskset": first.taskset,
        "domain": first.domain,
        "kind": first.kind,
        "family": first.family,
        "difficulty": difficulty(rate),
        "pass_rate": rate,
        "reward_range": [round(min(rewards), 6), round(max(rewards), 6)] if rewards else [],
        "runs": runs,
        "episode_ids": [row.episode_id for row in attempts],
        "nights": nights_of(attempts),
        "reason": f"a task with {len(attempts)} recorded attempts",
    }


def rollout_row(shown: dict[str, Any], ranked: RankedEpisode) -> Row:
    """Return the row of an attempt in the format of prime-rl and older verifiers. `shown`: the fields that come from
    the record (the view `rollout`).
    """
    metrics = {"gdi": ranked.gdi, "pass_rate": ranked.pass_rate}
    return {
        **shown,
        "reward": ranked.reward,
        "metrics": {name: value for name, value in metrics.items() if value is not None},
        "episode_id": ranked.episode_id,
        "task_id": ranked.task_id,
        "reason": ranked.reason,
    }


def trace_row(trace: dict[str, Any], ranked: RankedEpisode) -> Row:
    """Return a verifiers trace with the total reward and the GDI as its metrics."""
    metrics = {"total": ranked.reward, "gdi": ranked.gdi}
    return {**trace, "metrics": {name: value for name, value in metrics.items() if value is not None}}


def mean_pass_rate(attempts: Iterable[RankedEpisode]) -> float | None:
    """Return the mean pass rate over groups, without demonstrations; None if no pass rate is known."""
    # One value per group: all episodes of a group have its pass rate.
    rates = {row.group_id: row.pass_rate for row in attempts if row.source != "demonstration"}
    group_rates = [rate for rate in rates.values() if rate is not None]
    return round(sum(group_rates) / len(group_rates), 6) if group_rates else None


def difficulty(rate: float | None) -> str:
    """Return `easy`, `medium` or `hard` by thirds of the pass rate; `unknown` for None."""
    if rate is None:
        return "unknown"
    return "easy" if rate >= 2 / 3 else "medium" if rate >= 1 / 3 else "hard"


def nights_of(rows: Iterable[RankedEpisode]) -> list[str]:
    """Return the distinct nights of the episodes, sorted."""
    return sorted({row.night for row in rows if row.night})
