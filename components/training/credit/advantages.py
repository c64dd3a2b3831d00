"""From the names of options to the advantage of every token: the one function that a trainer calls."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Generic

import msgspec
import numpy as np

from components.protocol import ConfigurationError, DataError

from .arrays import Array, codes, floats, like, whole
from .decomposition import sum_decomposition
from .options import CreditOptions, TokenWeight, Turns
from .outcome import batch_std, broadcast, leave_one_out, per_task
from .pools import standardised
from .tokens import entropy_topk, region_schedule, spread
from .turns import per_role, progress, step_level, turn_sum_norm

if TYPE_CHECKING:
    from .arrays import Flags, Floats


class Played(msgspec.Struct, Generic[Array], frozen=True, kw_only=True):
    """A batch of episodes as credit sees it: B episodes of up to S turns and T tokens. Arrays or tensors, all of one kind.

    Give what the options ask for, None for the rest; a reward or score that is not known is NaN. A batch that several
    processes share is gathered first: groups, tasks and the batch's deviation are those of the whole.
    """

    rewards: Array
    """(B,) what each episode earned."""
    groups: Any
    """(B,) whose attempts are compared: equal for the attempts at one task."""
    turns: Any
    """(B, T) the turn of each token that the policy wrote, from 0; -1 for the environment's, and for padding."""
    turn_rewards: Any = None
    """(B, S) a score of each turn. `step_level` (in [0, 1]), `turn_sum_norm`, `per_role`."""
    tasks: Any = None
    """(B,) the kind of task. `per_task`."""
    roles: Any = None
    """(B, S) who acted. `per_role`."""
    values: Any = None
    """(B, S + 1) the chance of success before the first turn and after each. `progress`."""
    contributions: Any = None
    """(B, S) what each turn contributed. `sum_decomposition`."""
    regions: Any = None
    """(B, T) the region of each token, see `regions`. `region_schedule`."""
    entropies: Any = None
    """(B, T) of the policy's distribution at each token, in nats. `entropy_topk`."""
    step: int = 0
    """Optimiser steps so far. `region_schedule`."""


def advantages(played: Played[Array], options: CreditOptions) -> Array:
    """The advantage of each token, (B, T): 0 for what the policy did not write, and for episodes of unknown reward.

    Raises ConfigurationError where an option needs what was not given, DataError where shapes do not fit.
    """
    found = _of_outcome(played, options) if options.turns is None else _BY_TURN[options.turns](played, options)
    result = floats(spread(found, played.turns))
    for name in options.token_weights:
        result = result * _WEIGHTS[name](played, options, result)
    return like(played.rewards, result)


def _of_outcome(played: Played[Any], options: CreditOptions) -> "Floats":
    """(B,)."""
    rewards = floats(played.rewards)
    if options.advantage == "leave_one_out":
        return leave_one_out(rewards, played.groups)
    if options.advantage == "batch_std":
        return batch_std(rewards, played.groups, epsilon=options.epsilon)
    if options.advantage == "per_task":
        tasks = _given(played.tasks, "per_task", "the kind of each task (tasks)")
        return per_task(rewards, played.groups, tasks, epsilon=options.epsilon)
    return broadcast(rewards, played.groups, epsilon=options.epsilon)


def _step_level(played: Played[Any], options: CreditOptions) -> "Floats":
    scores = floats(_given(played.turn_rewards, "step_level", "a score of each turn (turn_rewards)"))
    scores = np.where(_is_turn(played, scores.shape[1]), scores, np.nan)
    return step_level(_of_outcome(played, options), scores, strength=options.step_strength)


def _progress(played: Played[Any], options: CreditOptions) -> "Floats":
    values = _given(played.values, "progress", "the chance of success around each turn (values)")
    known = ~np.isnan(floats(played.rewards))[:, None]
    return np.where(known, progress(_of_outcome(played, options), values, weight=options.progress_weight), 0.0)


def _turn_sum_norm(played: Played[Any], options: CreditOptions) -> "Floats":
    return turn_sum_norm(_turn_rewards(played, options), played.groups, epsilon=options.epsilon)


def _per_role(played: Played[Any], options: CreditOptions) -> "Floats":
    roles = _given(played.roles, "per_role", "who acted at each turn (roles)")
    return per_role(_turn_rewards(played, options), roles, epsilon=options.epsilon)


def _sum_decomposition(played: Played[Any], options: CreditOptions) -> "Floats":
    """Contributions that sum to the reward, times the episode's turns (so that equal ones are the reward), by group."""
    given = _given(played.contributions, "sum_decomposition", "what each turn contributed (contributions)")
    there = _is_turn(played, floats(given).shape[1])
    parts = sum_decomposition(floats(played.rewards), np.where(there, np.nan_to_num(floats(given), nan=0.0), np.nan))
    groups = np.broadcast_to(codes(played.groups)[:, None], parts.shape)
    return standardised(parts * there.sum(axis=1, keepdims=True), groups, options.epsilon)


def _turn_rewards(played: Played[Any], options: CreditOptions) -> "Floats":
    """(B, S): the turns' own rewards, and at the last turn the outcome's. NaN where there is no turn, or no reward."""
    own = None if played.turn_rewards is None else np.nan_to_num(floats(played.turn_rewards), nan=0.0)
    there = _is_turn(played, None if own is None else own.shape[1])
    rewards = np.zeros(there.shape) if own is None else options.process_weight * own
    last = there.sum(axis=1) - 1
    rows = np.flatnonzero(last >= 0)
    rewards[rows, last[rows]] += floats(played.rewards)[rows]
    known = there & ~np.isnan(floats(played.rewards))[:, None]
    return np.where(known, rewards, np.nan)


def _is_turn(played: Played[Any], width: int | None) -> "Flags":
    """(B, S): whether an episode has that turn. S is the longest episode's, or the given width."""
    counts = whole(played.turns).max(axis=1, initial=-1) + 1
    longest = int(counts.max(initial=0))
    if width is not None and width < longest:
        raise DataError(f"credit: an episode has {longest} turns, but {width} are scored; give (B, S) for all of them")
    there: Flags = np.arange(longest if width is None else width) < counts[:, None]
    return there


def _given(values: Any, option: str, what: str) -> Any:
    if values is None:
        raise ConfigurationError(
            f"credit: '{option}' needs {what}, which this run does not have; provide it or set another"
        )
    return values


def _regions(played: Played[Any], options: CreditOptions, so_far: "Floats") -> "Floats":
    regions = _given(played.regions, "region_schedule", "the region of each token (regions)")
    return region_schedule(regions, _mask(played), played.step, options.regions)


def _entropy(played: Played[Any], options: CreditOptions, so_far: "Floats") -> "Floats":
    entropies = _given(played.entropies, "entropy_topk", "the entropy at each token (entropies)")
    return entropy_topk(so_far, entropies, _mask(played), options.keep)


def _mask(played: Played[Any]) -> "Floats":
    return (whole(played.turns) >= 0).astype(np.float64)


_BY_TURN: Mapping[Turns, Callable[[Played[Any], CreditOptions], "Floats"]] = {
    "turn_sum_norm": _turn_sum_norm,
    "per_role": _per_role,
    "step_level": _step_level,
    "progress": _progress,
    "sum_decomposition": _sum_decomposition,
}
_WEIGHTS: Mapping[TokenWeight, Callable[[Played[Any], CreditOptions, "Floats"], "Floats"]] = {
    "region_schedule": _regions,
    "entropy_topk": _entropy,
}
