"""GRPO as a job: a checkpoint and a player in, a better checkpoint and a report out.

With `grpo.offline` nothing is played: the groups that `data.train` recorded are learned from, and the report says so.
"""

import math
from collections.abc import Callable, Mapping
from typing import Any

from components.policies.continuation import end_of_reply
from components.policies.formats.tool_call import CLOSE
from components.policies.sampler import Sampler, Sampling, stop_ids
from components.policies.token_exact import TokenExact
from components.protocol import ConfigurationError, DataError, make_player
from components.rewards.judgement import Judgement
from components.trajectories.record import Trajectory

from ..config import GrpoConfig
from ..fit import fit
from ..format import TrainingRow
from ..models import start
from ..selection import SelectionOptions
from ..trainer import TrainReport, callbacks, fit_attention, planned_steps, prepare_torch, trainer_arguments
from .chooser import Chooser
from .rewards import Rewards
from .rollout import Rollout
from .tasks import choose


class GrpoReport(TrainReport, frozen=True, kw_only=True):
    """`rows` counts tasks. `episodes` were played, `untrained` of them hold no token of the policy's: `lost` because the
    infrastructure ended them, others because their prompt did not fit.

    `first_reward` and `last_reward` are means over the first and the last tenth of the steps. `offline`: the episodes were
    recorded, by whatever policy played them, and the ratio to that policy was taken for 1; `left_out` of them were too long.
    """

    episodes: int
    lost: int
    untrained: int
    first_reward: float | None
    last_reward: float | None
    offline: bool = False
    left_out: int = 0


REPORT = GrpoReport


def train(config: GrpoConfig) -> GrpoReport:
    """Train from the newest whole checkpoint on, or from the start. Raises RatchetError with one clear line."""
    _check(config)
    prepare_torch(config)
    model, tokenizer = start(config, (), config.grpo.sampling.max_new_tokens)
    fit_attention(config, model)
    if config.grpo.offline:
        from .offline import REWARD, recorded

        rollout, prompts = recorded(config, tokenizer)
        trainer = make_trainer(config, model, tokenizer, prompts, {REWARD: 1.0})
        trainer.rollout_func = rollout
    else:
        player = make_player(config.grpo.player, config.grpo.play)
        tasks = choose(player.tasks(), config.data.train)
        prompts = [task.task_id for task in tasks]
        chooser = Chooser(config.grpo.selection, tasks, config.seed, _demonstrations(config, tokenizer))
        trainer = make_trainer(config, model, tokenizer, prompts, config.grpo.reward, chooser)
        rewards = Rewards(config.grpo.reward, config.grpo.scoring, _judge(config))
        policy = make_policy(config, trainer, tokenizer)
        trainer.rollout_func = Rollout(player, policy, rewards, chooser, seed=config.seed, pad=tokenizer.pad_token_id)
    fields = fit(config, trainer, tokenizer, rows=len(prompts), tokens_per_step=0.0)
    return _report(config, trainer, fields)


def _check(config: GrpoConfig) -> None:
    """Raises ConfigurationError for settings that do not go together."""
    size, grpo = config.optimization.batch_size, config.grpo
    if size % grpo.group_size:
        raise ConfigurationError(
            f"optimization.batch_size {size} holds no whole groups of {grpo.group_size}; take a multiple of grpo.group_size"
        )
    if config.model.base is None:
        raise ConfigurationError(
            "grpo needs model.base: a policy that can already act a little; train one by sft first"
        )
    if config.optimization.token_budget is not None:
        raise ConfigurationError(
            "grpo plays its own data: optimization.token_budget cannot end it; set steps or epochs"
        )
    if config.checkpoints.save_every % grpo.updates:
        raise ConfigurationError(
            f"checkpoints.save_every {config.checkpoints.save_every} would save between the {grpo.updates} updates on one batch "
            "of episodes, which could not be gone on with exactly; take a multiple of grpo.updates"
        )
    if grpo.offline and config.data.train is None:
        raise ConfigurationError("grpo.offline needs data.train: the exported groups; or play, with offline: false")
    if (grpo.selection.relift is None) != (config.data.demonstrations is None):
        raise ConfigurationError("grpo.selection.relift and data.demonstrations go together; set both, or neither")
    if grpo.offline and grpo.selection != SelectionOptions():
        raise ConfigurationError(
            "grpo.selection chooses among what is played; leave it out, or set grpo.offline: false"
        )
    if not any(weight for weight in grpo.reward.values()):
        raise ConfigurationError("grpo.reward weighs every component 0; give one a weight")


def _demonstrations(config: GrpoConfig, tokenizer: Any) -> Mapping[str, TrainingRow] | None:
    if config.data.demonstrations is None:
        return None
    from .demonstrations import read_demonstrations

    return read_demonstrations(config.data.demonstrations, tokenizer, config.format.max_length)


def _judge(config: GrpoConfig) -> Callable[[Trajectory], list[Judgement]] | None:
    """The step model of the configuration. Raises DataError for one that knows no chances of success."""
    if config.grpo.step_model is None:
        return None
    from ..prm.predict import StepModel, predict

    model = StepModel.load(config.grpo.step_model)
    if model.card.objective != "value":
        raise DataError(
            f"step model {config.grpo.step_model} has the objective {model.card.objective}: it knows no chance of success after "
            "each step; train one with prm.objective: value"
        )
    return lambda trajectory: list(predict(model, [trajectory]))


def make_policy(config: GrpoConfig, trainer: Any, tokenizer: Any) -> TokenExact:
    """What plays while it is trained."""
    sampling = config.grpo.sampling
    return TokenExact(
        make_sampler(config, trainer, tokenizer),
        tokenizer,
        Sampling(sampling.temperature, sampling.top_p, sampling.max_new_tokens),
        version="online",
        max_episode_tokens=sampling.max_episode_tokens,
    )


def make_sampler(config: GrpoConfig, trainer: Any, tokenizer: Any) -> Sampler:
    """Where it draws from."""
    from .samplers import ColocatedSampler, ModelSampler

    context = trainer.model.config.get_text_config().max_position_embeddings
    if config.grpo.sampling.sampler == "colocate":
        return ColocatedSampler(trainer, stop_ids(tokenizer, CLOSE), context)
    if config.grpo.sampling.sampler == "vllm":
        from .served import served_sampler

        return served_sampler(config, trainer, stop_ids(tokenizer, CLOSE))
    return ModelSampler(trainer, stop_ids(tokenizer, CLOSE), context)


def make_trainer(
    config: GrpoConfig,
    model: Any,
    tokenizer: Any,
    prompts: list[str],
    components: dict[str, float],
    chooser: Chooser | None = None,
) -> Any:
    """The trainer of that configuration and those components of the reward; its rollout function is still to be set."""
    from datasets import Dataset
    from trl import GRPOConfig

    from .trainer import EpisodeGRPOTrainer

    grpo, size = config.grpo, config.optimization.batch_size
    groups = size // grpo.group_size
    rows = prompts * -(-groups // len(prompts))  # a batch is never larger than the data
    steps = planned_steps(config, grpo.group_size * len(rows), float("inf"))
    trainer = EpisodeGRPOTrainer(
        model=model,
        args=GRPOConfig(**{**trainer_arguments(config, steps, validated=False), **trl_settings(config, tokenizer)}),
        train_dataset=Dataset.from_dict({"prompt": rows}),
        processing_class=tokenizer,
        callbacks=callbacks(config, 0.0, validated=False),
        components=components,
        credit=grpo.credit,
        chooser=chooser,
        signal_window=grpo.signal_window,
        trust_sampler=grpo.offline or grpo.sampling.sampler != "vllm",
    )
    trainer.eos_token_ids = sorted({*stop_ids(tokenizer, CLOSE), end_of_reply(tokenizer)[1]})
    return trainer


def trl_settings(config: GrpoConfig, tokenizer: Any) -> dict[str, Any]:
    """The settings of TRL's own GRPO."""
    grpo, sampling = config.grpo, config.grpo.sampling
    found: dict[str, Any] = {
        "num_generations": grpo.group_size,
        "max_completion_length": sampling.max_episode_tokens,
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        "loss_type": grpo.loss,
        "importance_sampling_level": grpo.importance,
        "scale_rewards": grpo.scale_rewards,
        "epsilon": grpo.clip,
        "epsilon_high": grpo.upper_clip,
        "beta": grpo.beta,
        "use_bias_correction_kl": grpo.unbiased_kl,
        "num_iterations": grpo.updates,
        "logging_steps": 1,
        "model_init_kwargs": {"revision": config.model.revision} if config.model.revision else None,
        "trust_remote_code": config.model.trust_remote_code,
    }
    if sampling.sampler == "colocate":
        found |= {
            "use_vllm": True,
            "vllm_mode": "colocate",
            "generation_kwargs": {"stop_token_ids": stop_ids(tokenizer, CLOSE)},
        }
    return found


def _report(config: GrpoConfig, trainer: Any, fields: dict[str, Any]) -> GrpoReport:
    history = trainer.state.log_history
    rewards = [entry["reward"] for entry in history if entry.get("reward") is not None]
    tenth = max(1, len(rewards) // 10)
    batches = math.ceil(trainer.state.global_step / config.grpo.updates)
    size, tokens = config.optimization.batch_size, round(trainer.state.num_input_tokens_seen)
    counted = {"tokens": tokens, "tokens_per_second": tokens / max(fields["seconds"], 1e-9)}
    return GrpoReport(
        **{**fields, **counted},
        episodes=size * batches,
        lost=_counted(history, "rollout/lost", size),
        untrained=_counted(history, "rollout/untrained", size),
        first_reward=_mean(rewards[:tenth]),
        last_reward=_mean(rewards[-tenth:]),
        offline=config.grpo.offline,
        left_out=getattr(trainer.rollout_func, "left_out", 0),
    )


def _counted(history: list[dict[str, Any]], name: str, size: int) -> int:
    """How many attempts a share of each batch comes to."""
    return round(math.fsum(entry[name] for entry in history if name in entry) * size)


def _mean(values: list[float]) -> float | None:
    return sum(values) / len(values) if values else None
