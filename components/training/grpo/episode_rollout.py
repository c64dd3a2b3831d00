"""TRL's `rollout_func`: play tasks and return the sampled tokens with their rewards.

TRL passes a task id per attempt, attempts at the same task together. Prompts are made by the environment, so that
training, collection and evaluation use the same ones.
"""

import time
from collections.abc import Sequence
from typing import Any

import msgspec

from ratchet.components.core import ConfigurationError, EpisodeAttempt, EpisodePlayer, PlayableTask, PlayedEpisode
from ratchet.components.models.sampled_policy import TokenExactPolicy
from ratchet.components.trajectories.trajectory import Trajectory

from .episode_rewards import EpisodeRewards
from .failed_groups import partial_solution, with_hint
from .rollout_sample import RolloutSample, join_traces, named_seed, padding_episode, trl_rollout
from .task_sampler import TaskSampler


class EpisodeRollout:
    """Play the attempts that TRL asks for, as its `rollout_func`. `seed`, with step, task and attempt, determines the
    seed of every environment and sample; `pad`: id of the padding token.

    `seconds`: duration of the last batch.
    """

    def __init__(
        self,
        player: EpisodePlayer[Trajectory],
        policy: TokenExactPolicy,
        rewards: EpisodeRewards,
        task_sampler: TaskSampler,
        *,
        seed: int,
        pad: int,
    ) -> None:
        self.seconds = 0.0
        self.task_sampler = task_sampler
        self._player = player
        self._policy = policy
        self._rewards = rewards
        self._seed = seed
        self._pad = pad
        self._tasks = {task.task_id: task for task in player.tasks()}

    def __call__(self, prompts: Sequence[str], trainer: Any) -> dict[str, Any]:
        """Return TRL's keys, and `sample` with a RolloutSample per row. The number of prompts sets the number of
        attempts; in training the task sampler chooses the tasks, in evaluation the prompts are task ids.
        """
        count, step, size = len(prompts), trainer.state.global_step, trainer.group_size
        first = trainer.accelerator.process_index * count
        if not trainer.model.training:
            return trl_rollout(self.play(prompts, name=f"{self._seed}/evaluation/{step}", size=size, first=first))
        # Several updates (`num_iterations`) learn from one batch of episodes.
        groups = self.task_sampler.tasks(
            step // trainer.num_iterations, trainer.accelerator.num_processes * count // size
        )
        tasks = [groups[(first + index) // size] for index in range(count)]
        name = f"{self._seed}/{step}"
        played = self.play(tasks, name=name, size=size, first=first)
        self.task_sampler.collect_hard_tasks(played, size=size, first=first)
        samples = self._guided(played, name, size=size, first=first)
        return trl_rollout(self.task_sampler.replay_successes(samples, step=step, size=size, first=first))

    def play(self, tasks: Sequence[str], *, name: str, size: int, first: int = 0) -> list[RolloutSample]:
        """Play one attempt per item of `tasks` (task ids), in groups of `size` successive items. `name`: unique name of
        the batch, from which seeds derive; `first`: number of the first attempt within the batch of all processes.

        Raises ConfigurationError if attempts of a group had different prompts.
        """
        begin = time.perf_counter()
        samples = self._play(
            name,
            [
                make_attempt(name, task, (first + index) // size, (first + index) % size)
                for index, task in enumerate(tasks)
            ],
        )
        self.seconds = time.perf_counter() - begin
        check_same_prompts(samples, first, size)
        return samples

    def _play(self, version: str, attempts: Sequence[EpisodeAttempt]) -> list[RolloutSample]:
        self._policy.version = f"online-{version}"
        played = self._player.play(self._policy, attempts)
        # The policy keeps the tokens of each episode that it has played.
        self._policy.forget()
        return [
            make_sample(self._tasks[attempt.task_id], item, self._rewards, self._pad)
            for attempt, item in zip(attempts, played, strict=True)
        ]

    def _guided(self, samples: list[RolloutSample], name: str, *, size: int, first: int) -> list[RolloutSample]:
        """Play half of each failed group again with a hint, and record it with the prompt without the hint."""
        guide = self.task_sampler.options.guide
        if guide is None:
            return samples
        hints: dict[str, str] = {}
        attempts: dict[int, EpisodeAttempt] = {}
        prompts: dict[int, list[int]] = {}
        for start in self.task_sampler.failed_groups(samples, size=size, first=first):
            task = samples[start].task_id
            hint = partial_solution(self._player.solution(task), guide.share)
            prompt = samples[start].tokens
            if hint and any(prompt.mask):
                hints[task] = hint
                group = (first + start) // size
                for index in range(start + size - size // 2, start + size):
                    attempts[index] = make_attempt(f"{name}/guided", task, group, index - start)
                    prompts[index] = prompt.prompt_ids
        if not attempts:
            return samples
        self._policy.opening = lambda asked: list(map(dict, with_hint(asked.messages, hints[asked.task_id])))
        try:
            played = self._play(f"{name}/guided", list(attempts.values()))
        finally:
            self._policy.opening = None
        result = list(samples)
        for index, sample in zip(attempts, played, strict=True):
            if any(sample.tokens.mask):
                tokens = msgspec.structs.replace(sample.tokens, prompt_ids=prompts[index])
                result[index] = msgspec.structs.replace(sample, tokens=tokens, guided=True)
        return result


def make_sample(
    task: PlayableTask, played: PlayedEpisode[Trajectory], rewards: EpisodeRewards, pad: int
) -> RolloutSample:
    """Return a played attempt at `task` with its rewards. `pad`: id of the padding token."""
    record = played.record
    is_lost = record is None or record.has_infrastructure_failure
    tokens = None if is_lost else join_traces(played.traces)
    breakdown = rewards.compute(record)
    solved = None if is_lost or record is None else record.outcome.success
    return RolloutSample(
        task.task_id,
        task.kind,
        task.family,
        tokens or padding_episode(pad),
        breakdown,
        solved and not breakdown.hacked,
        is_lost,
        agents=() if record is None else tuple(turn.agent_id for turn in record.turns),
    )


def make_attempt(name: str, task: str, group: int, number: int) -> EpisodeAttempt:
    """Return attempt `number` of a group: `name` and `group` seed the environment, all of it the sampling."""
    return EpisodeAttempt(task, named_seed(name, task, group), number, named_seed(name, task, group, number))


def check_same_prompts(samples: Sequence[RolloutSample], first: int, size: int) -> None:
    """Raise ConfigurationError if a group's prompts differ: its advantages would compare prompts, not attempts."""
    prompt_by_group: dict[int, list[int]] = {}
    for index, sample in enumerate(samples):
        if any(sample.tokens.mask):
            prompt = prompt_by_group.setdefault((first + index) // size, sample.tokens.prompt_ids)
            if prompt != sample.tokens.prompt_ids:
                raise ConfigurationError(
                    f"grpo: attempts at task '{sample.task_id}' began with different prompts; its environment must lay "
                    "out the same opening for the same task and seed"
                )
