"""A batch of attempts for TRL: its `rollout_func`. Tasks in, tokens as they were sampled and what was earned out.

TRL hands over a task id for each attempt, the attempts at one task together. What a policy reads of a task is laid out by its
environment, so that training, collection and evaluation ask with the same prompts.
"""

import hashlib
import time
from collections.abc import Sequence
from typing import Any

import msgspec

from components.policies.token_exact import TokenExact
from components.protocol import Attempt, ConfigurationError, Played, Player
from components.rewards.episode import is_infrastructure_failure
from components.trajectories.record import Trajectory

from .episode import EpisodeTokens, nothing, of_traces
from .rewards import Earned, Rewards


class Outing(msgspec.Struct, frozen=True):
    """One attempt, as credit and selection see it."""

    task_id: str
    kind: str
    family: str
    tokens: EpisodeTokens
    earned: Earned
    lost: bool


class Rollout:
    """Plays what TRL asks for. `seed` names every world and every draw, with the step, the task and the attempt."""

    def __init__(
        self, player: Player[Trajectory], policy: TokenExact, rewards: Rewards, *, seed: int, pad: int
    ) -> None:
        self.seconds = 0.0
        self._player = player
        self._policy = policy
        self._rewards = rewards
        self._seed = seed
        self._pad = pad
        self._tasks = {task.task_id: task for task in player.tasks()}

    def __call__(self, prompts: Sequence[str], trainer: Any) -> dict[str, Any]:
        """The keys that TRL asks for, and `outing` for the trainer."""
        training = trainer.model.training
        size = trainer.num_generations if training else trainer.num_generations_eval
        first = trainer.accelerator.process_index * len(prompts)
        outings = self.play(prompts, step=trainer.state.global_step, size=size, first=first, training=training)
        return as_trl(outings)

    def play(
        self, tasks: Sequence[str], *, step: int, size: int, first: int = 0, training: bool = True
    ) -> list[Outing]:
        """The attempts at those tasks, in groups of `size` of one task; `first` is the number of the first within its batch.

        Raises ConfigurationError where attempts of a group were asked with other prompts.
        """
        when = f"{self._seed}/{'' if training else 'evaluation/'}{step}"
        self._policy.version = f"online-{when}"
        attempts = [
            _attempt(when, task, (first + place) // size, (first + place) % size) for place, task in enumerate(tasks)
        ]
        begin = time.perf_counter()
        played = self._player.play(self._policy, attempts)
        self._policy.forget()
        self.seconds = time.perf_counter() - begin
        outings = [self._outing(attempt, each) for attempt, each in zip(attempts, played, strict=True)]
        _same_prompts(outings, first, size)
        return outings

    def _outing(self, attempt: Attempt, played: Played[Trajectory]) -> Outing:
        task = self._tasks[attempt.task_id]
        earned = self._rewards.of(played.record)
        lost = played.record is None or is_infrastructure_failure(played.record)
        tokens = None if lost else of_traces(played.traces)
        return Outing(task.task_id, task.kind, task.family, tokens or nothing(self._pad), earned, lost)


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


def _attempt(when: str, task: str, group: int, number: int) -> Attempt:
    return Attempt(task, _seed(when, task, group), number, _seed(when, task, group, number))


def _seed(*names: object) -> int:
    """53 bits, exact in JSON anywhere."""
    raw = hashlib.blake2b("/".join(map(str, names)).encode(), digest_size=8).digest()
    return int.from_bytes(raw, "big") >> 11


def _same_prompts(outings: Sequence[Outing], first: int, size: int) -> None:
    """Advantages compare attempts at one prompt: a group of different ones would compare luck."""
    known: dict[int, list[int]] = {}
    for place, outing in enumerate(outings):
        if any(outing.tokens.mask):
            prompt = known.setdefault((first + place) // size, outing.tokens.prompt_ids)
            if prompt != outing.tokens.prompt_ids:
                raise ConfigurationError(
                    f"grpo: attempts at task '{outing.task_id}' began with different prompts; its environment must lay "
                    "out the same opening for the same task and seed"
                )
