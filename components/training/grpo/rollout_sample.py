"""One attempt at a task as TRL, credit assignment and selection see it: its tokens, rewards and origin."""

import hashlib
from collections.abc import Sequence
from typing import Any

import msgspec

from ratchet.components.core import ConfigurationError, TokenTrace

from .episode_rewards import RewardBreakdown

ENVIRONMENT_TURN = -1
"""Turn of a token that the policy did not write."""


class EpisodeTokens(msgspec.Struct, frozen=True):
    """Tokens of an episode. `completion_ids`, `logprobs` and `turns` have equal length and end with the last token of
    the policy.

    `turns`: 0-based turn of each token that the policy wrote, -1 for environment tokens, whose log-probability is 0.
    `versions`: number of the weights that sampled each turn; empty if unknown.
    """

    prompt_ids: list[int]
    completion_ids: list[int]
    logprobs: list[float]
    turns: list[int]
    versions: list[int] = []

    @property
    def mask(self) -> list[int]:
        """1 for tokens that the policy wrote: TRL's `env_mask`."""
        return [int(turn != ENVIRONMENT_TURN) for turn in self.turns]


def join_traces(traces: Sequence[TokenTrace]) -> EpisodeTokens | None:
    """Join the token traces of an episode's turns; None if the policy wrote nothing.

    Raises ConfigurationError if a turn's prompt does not extend the previous turns token for token: then the trained
    tokens would differ from the sampled ones.
    """
    if not any(trace.completion_ids for trace in traces):
        return None
    prompt = list(traces[0].prompt_ids)
    ids: list[int] = []
    logprobs: list[float] = []
    turns: list[int] = []
    for turn, trace in enumerate(traces):
        if turn:
            if trace.kept != len(prompt) + len(ids):
                raise ConfigurationError(
                    f"grpo: the prompt of turn {turn + 1} does not keep the {len(prompt) + len(ids)} tokens before it as sampled"
                )
            ids += trace.prompt_ids
            logprobs += [0.0] * len(trace.prompt_ids)
            turns += [ENVIRONMENT_TURN] * len(trace.prompt_ids)
        ids += trace.completion_ids
        logprobs += trace.logprobs
        turns += [turn] * len(trace.completion_ids)
    return EpisodeTokens(prompt, ids, logprobs, turns, [trace.version for trace in traces])


def padding_episode(pad: int) -> EpisodeTokens:
    """Return an episode of one padding token, for an attempt without tokens. `pad`: id of the padding token."""
    return EpisodeTokens([pad], [pad], [0.0], [ENVIRONMENT_TURN])


# Checkpoints hold past successes (`selection-N.msgpack`), whose key for the breakdown stays "earned".
class RolloutSample(msgspec.Struct, frozen=True, rename={"breakdown": "earned"}):
    """One attempt. `solved`: None if unknown, False for a reward hack. `lost`: ended by the infrastructure, so that
    nothing is trained.

    `staleness`: age in steps of a replayed attempt, None for a new one. `guided`: sampled with a hint that `tokens`
    does not show. For both, `tokens.logprobs` are those of sampling. `agents`: `agent_id` of each turn; empty if
    unknown.
    """

    task_id: str
    kind: str
    family: str
    tokens: EpisodeTokens
    breakdown: RewardBreakdown
    solved: bool | None = None
    lost: bool = False
    staleness: int | None = None
    guided: bool = False
    agents: tuple[str, ...] = ()

    @property
    def off_policy(self) -> bool:
        """Whether the attempt was sampled by another policy than the trained one, or from another prompt."""
        return self.guided or self.staleness is not None


def trl_rollout(samples: Sequence[RolloutSample]) -> dict[str, Any]:
    """Return the dictionary that TRL expects of a `rollout_func`; `env_mask` is 1 for the policy's tokens."""
    tokens = [sample.tokens for sample in samples]
    return {
        "prompt_ids": [item.prompt_ids for item in tokens],
        "completion_ids": [item.completion_ids for item in tokens],
        "logprobs": [item.logprobs for item in tokens],
        "env_mask": [item.mask for item in tokens],
        "sample": list(samples),
    }


def named_seed(*names: object) -> int:
    """Return a 53-bit seed (exact in JSON numbers) that is determined by `names`."""
    raw = hashlib.blake2b("/".join(map(str, names)).encode(), digest_size=8).digest()
    return int.from_bytes(raw, "big") >> 11
