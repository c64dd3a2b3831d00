"""Made episodes as GRPO trains on them, and trainers over a tiny model in double precision."""

import math

from ratchet.components.training.grpo.episode_rewards import RewardBreakdown
from ratchet.components.training.grpo.rollout_sample import EpisodeTokens, RolloutSample, trl_rollout

PROMPT = [7, 8, 9]
EPISODES = [
    ([11, 12, 1, 20, 21, 13, 1], [0, 0, 0, -1, -1, 1, 1]),
    ([14, 1], [0, 0]),
    ([15, 16, 1, 22, 17, 1, 23, 24, 18, 1], [0, 0, 0, -1, 1, 1, -1, -1, 2, 2]),
    ([19, 10, 1], [0, 0, 0]),
    ([11, 1, 25, 12, 13, 1], [0, 0, -1, 1, 1, 1]),
    ([16, 2, 1, 26, 27, 1], [0, 0, 0, -1, -1, 1]),
    ([3, 4, 5, 6, 1], [0, 0, 0, 0, 0]),
    ([17, 1, 28, 29, 30, 18, 1], [0, 0, -1, -1, -1, 1, 1]),
]
"""Ids and the turn of each: two groups of four."""
REWARDS = [1.0, 0.0, 0.25, 0.0, 0.5, 1.0, 0.75, 0.0]


def sample(ids, turns, reward, *, scores=None, kind="k", family="f", task="t", parts=None, **more):
    logprobs = [0.0 if turn < 0 else -1.0 - 0.1 * place for place, turn in enumerate(turns)]
    breakdown = RewardBreakdown(reward, parts or {"total": reward}, scores or [math.nan] * (max(turns) + 1))
    solved = None if reward is None else reward == 1.0
    tokens = EpisodeTokens(list(PROMPT), list(ids), logprobs, list(turns))
    return RolloutSample(task, kind, family, tokens, breakdown, solved, reward is None, **more)


def samples(rewards=REWARDS, episodes=EPISODES, **more):
    return [sample(*episode, reward, **more) for episode, reward in zip(episodes, rewards, strict=True)]


def rollout_of(batch):
    """A rollout function that gives the same batch at every step."""
    return lambda prompts, trainer: trl_rollout(batch)


def settings(folder, **changes):
    from trl import GRPOConfig

    return GRPOConfig(
        output_dir=str(folder),
        **{
            "per_device_train_batch_size": 8,
            "num_generations": 4,
            "max_completion_length": 12,
            "learning_rate": 1e-2,
            "max_steps": 3,
            "logging_steps": 1,
            "save_strategy": "no",
            "report_to": "none",
            "disable_tqdm": True,
            "use_cpu": True,
            "bf16": False,
            "gradient_checkpointing": False,
            "remove_unused_columns": False,
        }
        | changes,
    )


def prompts(count=2):
    from datasets import Dataset

    return Dataset.from_dict({"prompt": [f"t{number}" for number in range(count)]})


def our_trainer(
    model,
    tokenizer,
    folder,
    batch,
    *,
    components=None,
    credit=None,
    task_sampler=None,
    signal_window=10,
    share_prefixes=False,
    **changes,
):
    from ratchet.components.training.grpo.grpo_trainer import EpisodeGRPOTrainer

    return EpisodeGRPOTrainer(
        model=model,
        args=settings(folder, **changes),
        train_dataset=prompts(),
        processing_class=tokenizer,
        components=components or {"total": 1.0},
        credit=credit,
        task_sampler=task_sampler,
        signal_window=signal_window,
        share_prefixes=share_prefixes,
        rollout_func=rollout_of(batch),
    )


def trl_trainer(model, tokenizer, folder, batch, **changes):
    """Plain TRL on the same tokens and rewards."""
    from trl import GRPOTrainer

    def rollout(prompts, trainer):
        found = trl_rollout(batch)
        rewards = [each.breakdown.reward for each in found.pop("sample")]
        return found | {"breakdown": rewards}

    def total(breakdown, **_):
        return breakdown

    return GRPOTrainer(
        model=model,
        args=settings(folder, **changes),
        train_dataset=prompts(),
        processing_class=tokenizer,
        reward_funcs=[total],
        rollout_func=rollout,
    )
