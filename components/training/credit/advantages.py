"""Combine the credit options into the advantage of every token, and detect batches without a learning signal."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from ratchet.components.core import ConfigurationError, DataError

from .credit_options import CreditOptions, Scale, TokenWeight, Turns
from .estimators import codes, estimate_advantages, pair_codes, pooled_std
from .token_weights import entropy_topk, region_schedule, spread
from .turn_advantages import progress, returns_to_go, step_level, sum_decomposition

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from .estimators import Codes, Floats


class CreditInputs(msgspec.Struct, frozen=True, kw_only=True):
    """A batch of B episodes of up to S turns and T tokens, as numpy arrays.

    Inputs that no option needs may be None; unknown rewards and scores are NaN. If several processes share a batch,
    gather it first: means and deviations are taken over the episodes given here.
    """

    rewards: Any
    """(B,) rewards of episodes."""
    groups: Any
    """(B,) equal for attempts at the same task."""
    turns: Any
    """(B, T) 0-based turn of each token that the policy wrote; -1 for environment tokens and padding."""
    turn_rewards: Any = None
    """(B, S) scores of turns, for `step_level` (in [0, 1]), `turn_sum_norm`, `per_role`."""
    tasks: Any = None
    """(B,) kinds of tasks, for `per_task`."""
    roles: Any = None
    """(B, S) acting agents, for `per_role`."""
    values: Any = None
    """(B, S + 1) chance of success before the first turn and after each, for `progress`."""
    contributions: Any = None
    """(B, S) contributions of turns, for `sum_decomposition`."""
    regions: Any = None
    """(B, T) regions of tokens, for `region_schedule`."""
    entropies: Any = None
    """(B, T) entropy of the policy's distribution at each token in nats, for `entropy_topk`."""
    step: int = 0
    """Optimiser steps so far, for `region_schedule`."""

    @property
    def known(self) -> "NDArray[np.bool_]":
        """(B, 1) flags: True where the episode's reward is known, i.e. not NaN."""
        has_reward: NDArray[np.bool_] = ~np.isnan(self.rewards)[:, None]
        return has_reward

    def require(self, name: str, option: str) -> Any:
        """Return the input called `name`. Raises ConfigurationError, which names the `option` that needs it, if it is
        None.
        """
        if (values := getattr(self, name)) is None:
            raise ConfigurationError(f"credit: '{option}' needs {name}, which this run lacks; set another")
        return values


def advantages(inputs: CreditInputs, options: CreditOptions, scale: Scale = "group") -> "Floats":
    """Return the advantage of each token, (B, T): 0 for tokens that the policy did not write and for episodes of
    unknown reward.

    `scale`: TRL's `scale_rewards`. With the default options the result is TRL's. Raises ConfigurationError if an option
    lacks its input, DataError if fewer turns are scored than were played.
    """
    turn_advantages = _outcome_advantages if options.turns is None else _BY_TURN[options.turns]
    result = spread(turn_advantages(inputs, options, scale), inputs.turns)
    for name in options.token_weights:
        result = result * _WEIGHTS[name](inputs, options, result)
    return result


def _outcome_advantages(inputs: CreditInputs, options: CreditOptions, scale: Scale) -> "Floats":
    """Return the advantages of episodes, (B,)."""
    return _estimate(inputs, options, scale, inputs.rewards)


def _estimate(
    inputs: CreditInputs,
    options: CreditOptions,
    scale: Scale,
    values: "Floats",
    roles: "Codes | None" = None,
    **more: Any,
) -> "Floats":
    """Return advantages of values of episodes (B,) or turns (B, S), compared within groups, or within their roles."""

    def pools(names: Any) -> "Codes":
        pool = codes(names).reshape(-1, *[1] * (values.ndim - 1))
        return (
            np.broadcast_to(pool, values.shape)
            if roles is None
            else pair_codes(np.broadcast_to(pool, values.shape), roles)
        )

    tasks = pools(inputs.require("tasks", "per_task")) if options.advantage == "per_task" else None
    return estimate_advantages(
        values, pools(inputs.groups), options.advantage, scale, tasks=tasks, epsilon=options.epsilon, **more
    )


def _step_level(inputs: CreditInputs, options: CreditOptions, scale: Scale) -> "Floats":
    scores = inputs.require("turn_rewards", "step_level")
    scores = np.where(_turn_exists(inputs, scores.shape[1]), scores, np.nan)
    return step_level(_outcome_advantages(inputs, options, scale), scores, strength=options.step_strength)


def _progress(inputs: CreditInputs, options: CreditOptions, scale: Scale) -> "Floats":
    values = inputs.require("values", "progress")
    result = progress(_outcome_advantages(inputs, options, scale), values, weight=options.progress_weight)
    return np.where(inputs.known, result, 0.0)


def _turn_sum_norm(inputs: CreditInputs, options: CreditOptions, scale: Scale) -> "Floats":
    """Normalise the return of each turn over all turns of its group (MARS, Yuan et al. 2025, "Reinforcing Multi-Agent
    Reasoning of LLMs through Self-Play").

    With a reward at the end alone and equally many turns this is the advantage of whole episodes. Normalising within
    one episode instead would always give 0. With `per_role` the returns of each role of a group are normalised apart
    (MARS's agent-specific normalisation), so that roles with different rewards do not shift each other's baseline.
    """
    roles = codes(inputs.require("roles", "per_role")) if options.turns == "per_role" else None
    return _estimate(inputs, options, scale, returns_to_go(_turn_rewards(inputs, options)), roles)


def _sum_decomposition(inputs: CreditInputs, options: CreditOptions, scale: Scale) -> "Floats":
    """Return advantages (B, S) of contributions that sum to the reward, times the number of turns.

    With equal contributions this is the reward itself. Episodes have equal weight in means and deviations, however many
    turns they have.
    """
    contributions = inputs.require("contributions", "sum_decomposition")
    turn_exists = _turn_exists(inputs, contributions.shape[1])
    parts = sum_decomposition(inputs.rewards, np.where(turn_exists, np.nan_to_num(contributions, nan=0.0), np.nan))
    count = turn_exists.sum(axis=1, keepdims=True)
    weights = np.broadcast_to(1.0 / np.maximum(1, count), parts.shape)
    return _estimate(inputs, options, scale, parts * count, weights=weights)


def _turn_rewards(inputs: CreditInputs, options: CreditOptions) -> "Floats":
    """Return rewards of turns (B, S) with the outcome added to the last turn; NaN without a turn or a reward."""
    turn_rewards = None if inputs.turn_rewards is None else np.nan_to_num(inputs.turn_rewards, nan=0.0)
    turn_exists = _turn_exists(inputs, None if turn_rewards is None else turn_rewards.shape[1])
    rewards = np.zeros(turn_exists.shape) if turn_rewards is None else options.process_weight * turn_rewards
    last = turn_exists.sum(axis=1) - 1
    rows = np.flatnonzero(last >= 0)
    rewards[rows, last[rows]] += inputs.rewards[rows]
    return np.where(turn_exists & inputs.known, rewards, np.nan)


def _turn_exists(inputs: CreditInputs, width: int | None) -> "NDArray[np.bool_]":
    """Return (B, S) whether an episode has that turn; S is the longest episode's, or `width`."""
    counts = inputs.turns.max(axis=1, initial=-1) + 1
    longest = int(counts.max(initial=0))
    if width is not None and width < longest:
        raise DataError(f"credit: an episode has {longest} turns, but {width} are scored; give (B, S) for all of them")
    turn_exists: NDArray[np.bool_] = np.arange(longest if width is None else width) < counts[:, None]
    return turn_exists


def _region_weights(inputs: CreditInputs, options: CreditOptions, current: "Floats") -> "Floats":
    regions = inputs.require("regions", "region_schedule")
    return region_schedule(regions, inputs.turns >= 0, inputs.step, options.regions)


def _entropy_weights(inputs: CreditInputs, options: CreditOptions, current: "Floats") -> "Floats":
    entropies = inputs.require("entropies", "entropy_topk")
    # An episode of unknown reward has no share of the tokens to keep.
    return entropy_topk(current, entropies, (inputs.turns >= 0) & inputs.known, options.keep)


_BY_TURN: Mapping[Turns, Callable[[CreditInputs, CreditOptions, Scale], "Floats"]] = {
    "turn_sum_norm": _turn_sum_norm,
    "per_role": _turn_sum_norm,
    "step_level": _step_level,
    "progress": _progress,
    "sum_decomposition": _sum_decomposition,
}
_WEIGHTS: Mapping[TokenWeight, Callable[[CreditInputs, CreditOptions, "Floats"], "Floats"]] = {
    "region_schedule": _region_weights,
    "entropy_topk": _entropy_weights,
}


ZERO_STD = 1e-6
"""Standard deviations of advantages up to this count as 0."""


def uniform_group_share(rewards: "Floats", groups: Any) -> float:
    """Return the share of groups in which all known rewards are equal, so that nothing can be learned from them; groups
    without a known reward are not counted. NaN if no reward is known.

    `rewards`: (B,), NaN if unknown; `groups`: (B,).
    """
    group = codes(groups)
    std = pooled_std(rewards, group, np.arange(len(rewards)))
    has_reward = ~np.isnan(rewards)
    uniform = set(group[has_reward & ~(std > 0)].tolist())
    return len(uniform) / len(set(group[has_reward].tolist())) if has_reward.any() else float("nan")


def trained_std(advantages: "Floats", turns: "Codes") -> float:
    """Return the standard deviation of advantages (B, T) over trained tokens (turn >= 0); 0 if there are none."""
    trained = advantages[turns >= 0].astype(np.float64)
    return float(trained.std()) if len(trained) else 0.0


class SignalWindow:
    """Raise an error when the advantages within each of `size` successive steps, or other `units`, are about equal, so that
    nothing is learned.

    The loss looks healthy meanwhile. Typical causes are tasks that are always or never solved, and normalisation within
    a single episode that is rewarded only at its end.
    """

    def __init__(self, size: int = 10, units: str = "steps") -> None:
        self.size, self.units = size, units
        self.recent: list[float] = []

    def add(self, std: float) -> None:
        """Add the standard deviation of one unit's advantages (`trained_std`). Raises DataError if the last `size` are
        all about 0.
        """
        self.recent = [*self.recent, std][-self.size :]
        if len(self.recent) == self.size and not any(item > ZERO_STD for item in self.recent):
            raise DataError(
                f"grpo: the advantages did not differ in {self.size} {self.units}: nothing can be learned; "
                "take easier or harder tasks, or a higher temperature"
            )
