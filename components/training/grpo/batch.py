"""A batch of attempts as credit sees it, gathered over all processes: groups lie across them."""

from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np
import torch

from ..credit import CreditOptions, Played, Scale, advantages, chances_of_success, learned_contributions
from .episode import ENVIRONMENT
from .outing import Outing
from .regions import regions_of


class Batch(msgspec.Struct, frozen=True):
    """B attempts of all processes, of which this one's begin at `first`; T is this process's width.

    `rewards` (B,), NaN where unknown; `groups` (B,); `turns` (own, T), -1 for what the policy did not write.
    """

    outings: list[Outing]
    own: list[Outing]
    first: int
    rewards: Any
    groups: Any
    turns: Any

    @classmethod
    def of(cls, own: Sequence[Outing], width: int, size: int, accelerator: Any) -> "Batch":
        """The batch of which `own` are this process's attempts, in groups of `size`."""
        from accelerate.utils import gather_object

        everyone: list[Outing] = gather_object(list(own))
        rewards = np.array([np.nan if each.earned.reward is None else each.earned.reward for each in everyone])
        return cls(
            everyone,
            list(own),
            accelerator.process_index * len(own),
            rewards,
            np.arange(len(everyone)) // size,
            _table([each.tokens.turns for each in own], width, ENVIRONMENT),
        )

    def advantages(
        self, options: CreditOptions, scale: Scale, step: int, tokenizer: Any, entropies: torch.Tensor | None
    ) -> torch.Tensor:
        """The advantage of each of this process's tokens, (own, T), float64. Raises what credit raises.

        `entropies`: (own, T), where the options ask for them.
        """
        last = max((len(each.earned.turns) for each in self.outings), default=0)
        turn_rewards = _table([each.earned.turns for each in self.outings], max(last, 1), np.nan)
        rows = slice(self.first, self.first + len(self.own))
        width = self.turns.shape[1]
        turns = _table([each.tokens.turns for each in self.outings], max(width, self._longest), ENVIRONMENT)
        found = advantages(
            Played(
                rewards=self.rewards,
                groups=self.groups,
                turns=turns,
                turn_rewards=turn_rewards,
                tasks=np.array([each.kind for each in self.outings]),
                roles=self._roles(turn_rewards.shape[1]) if options.turns == "per_role" else None,
                values=self._chances() if options.turns == "progress" else None,
                contributions=self._contributions(turn_rewards) if options.turns == "sum_decomposition" else None,
                regions=self._regions(turns.shape[1], tokenizer)
                if "region_schedule" in options.token_weights
                else None,
                entropies=self._everyones(entropies, turns.shape[1]),
                step=step,
            ),
            options,
            scale,
        )
        return torch.from_numpy(np.ascontiguousarray(found[rows, :width]))

    def of_episodes(self, own: torch.Tensor) -> Any:
        """(B,) of all processes: the mean advantage of each episode's own tokens. `own`: this process's, (own,) or (own, T)."""
        from accelerate.utils import gather_object

        found = own.double().cpu().numpy()
        if found.ndim == 2:
            trained = self.turns != ENVIRONMENT
            found = (found * trained).sum(axis=1) / np.maximum(1, trained.sum(axis=1))
        return np.array(gather_object(found.tolist()))

    def own_rows(self, everyone: Any) -> Any:
        """This process's part of (B,), as float64."""
        return np.asarray(everyone, dtype=np.float64)[self.first : self.first + len(self.own)]

    @property
    def _longest(self) -> int:
        return max(len(each.tokens.turns) for each in self.outings)

    def _chances(self) -> Any:
        """(B, S + 1) the chance of success around each turn, as a step model sees it; None without one."""
        if not any(each.earned.chances for each in self.outings):
            return None
        lengths = np.array([len(each.earned.turns) for each in self.outings])
        chances = _table([each.earned.chances for each in self.outings], max(1, int(lengths.max())), np.nan)
        return chances_of_success(chances, self.rewards, self.groups, lengths)

    def _roles(self, width: int) -> Any:
        """(B, S) the agent of each turn as a number, the same for a name in all processes; None where one is not known."""
        acted = [each.agents for each in self.outings if not each.lost and any(each.tokens.mask)]
        if not all(acted):
            return None
        number = {name: place for place, name in enumerate(sorted(set().union(*acted)))}
        return _table([[number.get(name, 0) for name in each.agents[:width]] for each in self.outings], width, 0)

    def _contributions(self, turn_rewards: Any) -> Any:
        """(B, S) what each turn contributed, by a linear fit of the rewards on the turns' own scores."""
        known = ~np.isnan(turn_rewards)
        there = np.array(
            [[turn < len(each.earned.turns) for turn in range(turn_rewards.shape[1])] for each in self.outings]
        )
        mean = turn_rewards[known].mean() if known.any() else 0.0
        scores = np.where(known, turn_rewards, mean)
        features = np.stack([np.ones_like(scores), scores], axis=-1)
        return learned_contributions(np.where(there[..., None], features, np.nan), self.rewards)

    def _regions(self, width: int, tokenizer: Any) -> Any:
        return _table(
            [regions_of(each.tokens.completion_ids, each.tokens.turns, tokenizer) for each in self.outings], width, 0
        )

    def _everyones(self, own: torch.Tensor | None, width: int) -> Any:
        """(B, width) of all processes."""
        from accelerate.utils import gather_object

        return None if own is None else _table(gather_object(own.double().cpu().tolist()), width, 0.0)


def _table(rows: Sequence[Sequence[float]], width: int, filler: float) -> Any:
    """(B, width), each row filled up."""
    return np.array([[*row, *[filler] * (width - len(row))] for row in rows])
