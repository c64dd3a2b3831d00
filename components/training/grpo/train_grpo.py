"""GRPO training job: trains a checkpoint on the episodes that a player produces with it, and writes a better checkpoint
and a report.

With `grpo.offline` nothing is played: the job learns from the groups recorded in `data.train`, and the report says so.
"""

import contextlib
import math
import statistics
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from ratchet.components.core import ConfigurationError, DataError, PlayableTask, make_player
from ratchet.components.models.sampled_policy import Sampler, SamplingParameters, TokenExactPolicy, stop_ids
from ratchet.components.models.template_continuation import end_of_reply
from ratchet.components.models.tool_call_formats import CLOSE
from ratchet.components.rewards.annotation_records import Judgement
from ratchet.components.trajectories.trajectory import Trajectory

from ..checkpoint_io import checkpoint_step, newest_checkpoint
from ..config.job_config import GrpoConfig
from ..config.trl_options import with_trl_options
from ..exported_rows import decode_rows
from ..model_loading import load_start_model
from ..run_trainer import run_trainer
from ..train_report import TrainReport
from ..trainer_arguments import (
    choose_attention,
    make_callbacks,
    planned_steps,
    prepare_torch,
    process_count,
    process_index,
    trainer_arguments,
)
from .attempt_selection import SelectionOptions
from .episode_rewards import EpisodeRewards
from .episode_rollout import EpisodeRollout
from .failed_groups import read_demonstrations
from .task_sampler import TaskSampler


def check_config(config: GrpoConfig) -> None:
    """Raise ConfigurationError for options that cannot be combined."""
    size, grpo, save = config.optimization.batch_size, config.grpo, config.checkpoints.save_every
    relift = grpo.selection.relift is not None
    whole_groups = f"optimization.batch_size {size} is not a multiple of grpo.group_size {grpo.group_size}"
    # A batch of episodes cannot be resumed in the middle.
    whole_batches = f"checkpoints.save_every {save} is not a multiple of grpo.updates {grpo.updates}"
    refused: list[tuple[object, str]] = [
        *(_asynchronous_refusals(config) if grpo.asynchronous is not None else []),
        (size % grpo.group_size, whole_groups),
        (config.model.base is None, "grpo needs model.base: a policy that can already act a little; train one by sft"),
        (
            config.optimization.token_budget is not None,
            "optimization.token_budget cannot end grpo; set steps or epochs",
        ),
        (save % grpo.updates, whole_batches),
        (
            config.format.chunk_long_trajectories,
            "grpo trains episodes whole: set format.chunk_long_trajectories: false",
        ),
        (grpo.offline and config.data.train is None, "grpo.offline needs data.train: the exported groups"),
        (relift != bool(config.data.demonstrations), "grpo.selection.relift and data.demonstrations go together"),
        # A lesson is due in one of several processes, and the others would wait for it.
        (relift and process_count() > 1, "grpo.selection.relift learns in one process; set run.launch: single"),
        (grpo.offline and grpo.selection != SelectionOptions(), "grpo.selection has no meaning with grpo.offline"),
        (
            grpo.offline and grpo.credit.turns == "per_role",
            "grpo.credit.turns: per_role has no meaning with grpo.offline",
        ),
        (grpo.sampling.missing_engine, grpo.sampling.missing_engine or ""),
        (not any(grpo.reward.values()), "grpo.reward weighs every component 0; give one a weight"),
    ]
    for wrong, message in refused:
        if wrong:
            raise ConfigurationError(message)


def _asynchronous_refusals(config: GrpoConfig) -> list[tuple[object, str]]:
    """Return what `grpo.asynchronous` cannot be combined with, and the message."""
    grpo, selection = config.grpo, config.grpo.selection
    # They change attempts or the loss after the batch of a step is complete, when its next groups are already played.
    others = [name for name in ("relift", "guide", "replay") if getattr(selection, name) is not None]
    # Each group has its advantages as soon as it ends, without the others of its step.
    pools = {
        "scale_rewards: batch": grpo.scale_rewards == "batch",
        "credit.advantage: per_task": grpo.credit.advantage == "per_task",
        "credit.turns: sum_decomposition": grpo.credit.turns == "sum_decomposition",
    }
    pooling = [name for name, is_set in pools.items() if is_set]
    sharded = config.run.launch not in ("single", "ddp") and grpo.sampling.sampler == "transformers"
    return [
        (grpo.offline, "grpo.asynchronous plays, and grpo.offline does not; remove one of them"),
        (others, f"grpo.selection.{next(iter(others), '')} has no meaning with grpo.asynchronous; remove one of them"),
        (pooling, f"grpo.{next(iter(pooling), '')} pools the groups of a step; remove it, or grpo.asynchronous"),
        (
            "entropy_topk" in grpo.credit.token_weights,
            "entropy_topk needs the batch before training; remove asynchronous",
        ),
        (grpo.beta, "grpo.asynchronous keeps no reference model; set grpo.beta: 0, or remove asynchronous"),
        (grpo.updates > 1, "grpo.asynchronous makes one update per batch; set grpo.updates: 1"),
        (
            grpo.sampling.sampler == "colocate",
            "sampler: colocate plays in turn with training; take transformers or vllm, or remove grpo.asynchronous",
        ),
        (sharded, "sampler: transformers copies whole weights, and run.launch shards them; take vllm"),
        (config.model.attention != "auto", "grpo.asynchronous attends along prefix trees; set model.attention: auto"),
        (grpo.share_prefixes is False, "grpo.asynchronous always shares prefixes; remove grpo.share_prefixes"),
        (config.model.quantize != "none", "grpo.asynchronous sends whole weights, not four bits; set quantize: none"),
    ]


def trl_arguments(config: GrpoConfig, tokenizer: Any) -> dict[str, Any]:
    """Return the keyword arguments of TRL's GRPOConfig."""
    grpo, sampling = config.grpo, config.grpo.sampling
    result: dict[str, Any] = {
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
        "logging_steps": 1,  # the report counts one entry of the log per step
        "model_init_kwargs": {"revision": config.model.revision} if config.model.revision else None,
        "trust_remote_code": config.model.trust_remote_code,
    }
    if (correction := grpo.correction) is not None:
        result |= {
            "vllm_importance_sampling_correction": correction.mode != "none",
            "vllm_importance_sampling_clip_max": correction.clip_max,
            "vllm_importance_sampling_clip_min": correction.clip_min,
        }
        if correction.mode != "none":
            result["vllm_importance_sampling_mode"] = correction.mode
    if sampling.sampler == "colocate":
        result |= {
            "use_vllm": True,
            "vllm_mode": "colocate",
            "generation_kwargs": {"stop_token_ids": stop_ids(tokenizer, CLOSE)},
        }
    return result


def count_steps(config: GrpoConfig, tasks: int) -> int:
    """Return the number of optimiser steps for `tasks` tasks; an epoch plays every task once and makes `grpo.updates`
    updates per batch.

    Raises DataError if the configuration names neither steps nor epochs.
    """
    return planned_steps(config, tasks * config.grpo.group_size, math.inf, config.grpo.updates)


class _PromptRow(msgspec.Struct, frozen=True):
    """The column of an exported GRPO row that training reads; the environment makes the prompt again."""

    task_id: str


def select_tasks(tasks: Sequence[PlayableTask], prompts: Path | None) -> list[PlayableTask]:
    """Return the tasks that the JSONL file `prompts` names, each once, in the file's order; all `tasks` if it is None.
    Raises DataError for an unknown task or a file without tasks.
    """
    if prompts is None:
        return list(tasks)
    by_id = {task.task_id: task for task in tasks}
    asked = list(dict.fromkeys(row.task_id for row in decode_rows(prompts, _PromptRow, "a GRPO row")))
    strange = [task_id for task_id in asked if task_id not in by_id]
    if strange:
        raise DataError(
            f"{prompts}: the player does not know task '{strange[0]}'; set grpo.play.taskset to the taskset of the rows"
        )
    if not asked:
        raise DataError(f"{prompts} has no tasks: there is nothing to play; collect episodes of train tasks first")
    return [by_id[task_id] for task_id in asked]


class AsyncReport(msgspec.Struct, frozen=True, kw_only=True):
    """How playing and training overlapped. `staleness_mean`, `staleness_max`: versions between the weights that sampled a
    group and those that trained on it. `wait_seconds`: that the trainer waited for episodes; `sync_seconds`: that it
    sent weights; `train_seconds`: forward and backward passes. `drift_mean`, `drift_max`: mean and highest step of the
    mean |difference| in nats between trainer's and sampler's log-probabilities.
    """

    staleness_mean: float
    staleness_max: int
    wait_seconds: float
    sync_seconds: float
    train_seconds: float
    drift_mean: float
    drift_max: float


class GrpoReport(TrainReport, frozen=True, kw_only=True):
    """`rows`: number of tasks. `episodes`: episodes played; `lost`: episodes that the infrastructure ended;
    `untrained`: episodes without a token of the policy, lost or with a prompt that did not fit.

    `first_reward`, `last_reward`: means over the first and last tenth of the steps. `offline`: the episodes were
    recorded by any policy, and its ratio was taken as 1; `left_out`: recorded attempts that were too long, alone in
    their group, or whose history the chat template rewrites. `asynchronous`: None for a synchronous job.
    """

    episodes: int
    lost: int
    untrained: int
    first_reward: float | None
    last_reward: float | None
    offline: bool = False
    left_out: int = 0
    asynchronous: AsyncReport | None = None


def make_report(config: GrpoConfig, trainer: Any, fields: dict[str, Any], begun: int) -> GrpoReport:
    """Return the report of a finished trainer that started from step `begun`; `fields`: values of the fields of
    TrainReport.
    """
    history = trainer.state.log_history
    rewards = [entry["reward"] for entry in history if entry.get("reward") is not None]
    tenth = max(1, len(rewards) // 10)
    batches = math.ceil(trainer.state.global_step / config.grpo.updates)
    size, tokens = config.optimization.batch_size, round(trainer.state.num_input_tokens_seen)
    before = max((entry.get("num_tokens") or 0 for entry in history if entry["step"] <= begun), default=0)
    counted = {"tokens": tokens, "tokens_per_second": (tokens - before) / max(fields["seconds"], 1e-9)}
    return GrpoReport(
        **{**fields, **counted},
        episodes=size * batches,
        lost=_count_attempts(history, "rollout/lost", size),
        untrained=_count_attempts(history, "rollout/untrained", size),
        first_reward=_mean_or_none(rewards[:tenth]),
        last_reward=_mean_or_none(rewards[-tenth:]),
        offline=config.grpo.offline,
        left_out=getattr(getattr(trainer, "rollout_func", None), "left_out", 0),
        asynchronous=None if config.grpo.asynchronous is None else _async_report(history),
    )


def _async_report(history: list[dict[str, Any]]) -> AsyncReport:
    """Return the report of an asynchronous job from the log of all its steps."""

    def values(name: str) -> list[float]:
        return [entry[name] for entry in history if entry.get(name) is not None and math.isfinite(entry[name])] or [0.0]

    return AsyncReport(
        staleness_mean=statistics.fmean(values("sample/staleness_mean")),
        staleness_max=round(max(values("sample/staleness_max"))),
        wait_seconds=math.fsum(values("perf/rollout_wait_s")),
        sync_seconds=math.fsum(values("perf/weight_sync_s")),
        train_seconds=math.fsum(values("perf/fwd_bwd_s")),
        drift_mean=statistics.fmean(values("drift/mean")),
        drift_max=max(values("drift/mean")),
    )


def _count_attempts(history: list[dict[str, Any]], name: str, size: int) -> int:
    """Return the number of attempts from the logged share of each batch."""
    return round(math.fsum(entry[name] for entry in history if name in entry) * size)


def _mean_or_none(values: list[float]) -> float | None:
    return sum(values) / len(values) if values else None


REPORT = GrpoReport


def train(config: GrpoConfig) -> GrpoReport:
    """Train, or resume from the newest complete checkpoint, and return the report. Raises RatchetError with a one-line
    message.
    """
    check_config(config)
    prepare_torch(config)
    model, tokenizer = load_start_model(config, (), config.grpo.sampling.max_new_tokens)
    if config.grpo.asynchronous is None:  # its trainer always uses tree attention
        choose_attention(config, model)
    with contextlib.ExitStack() as stack:
        trainer, prompts = _prepare(config, model, tokenizer, stack)
        saved = newest_checkpoint(config.output)
        fields = run_trainer(config, trainer, tokenizer, rows=len(prompts), tokens_per_step=0.0)
    return make_report(config, trainer, fields, checkpoint_step(saved) if saved else 0)


def _prepare(config: GrpoConfig, model: Any, tokenizer: Any, stack: contextlib.ExitStack) -> tuple[Any, list[str]]:
    """Return the trainer and its prompts; `stack` closes the policy at the end of the job."""
    if config.grpo.offline:
        from .recorded_groups import RECORDED_REWARD, recorded_rollout

        rollout, prompts = recorded_rollout(config, tokenizer)
        trainer = make_grpo_trainer(config, model, tokenizer, prompts, {RECORDED_REWARD: 1.0})
        trainer.rollout_func = rollout
        return trainer, prompts
    player = make_player(config.grpo.player, config.grpo.play)
    tasks = select_tasks(player.tasks(), config.data.train)
    prompts = [task.task_id for task in tasks]
    demonstrations = None
    if (path := config.data.demonstrations) is not None:
        demonstrations = read_demonstrations(path, tokenizer, config.format.max_length)
    task_sampler = TaskSampler(config.grpo.selection, tasks, config.seed, demonstrations)
    rewards = EpisodeRewards(config.grpo.reward, config.grpo.scoring, _load_step_model(config))
    if config.grpo.asynchronous is not None:
        parts = player, rewards, task_sampler
        return _prepare_asynchronous(config, model, tokenizer, prompts, parts, stack), prompts
    trainer = make_grpo_trainer(config, model, tokenizer, prompts, config.grpo.reward, task_sampler)
    policy = stack.enter_context(contextlib.closing(make_policy(config, trainer, tokenizer)))
    trainer.rollout_func = EpisodeRollout(
        player, policy, rewards, task_sampler, seed=config.seed, pad=tokenizer.pad_token_id
    )
    return trainer, prompts


def _prepare_asynchronous(
    config: GrpoConfig,
    model: Any,
    tokenizer: Any,
    prompts: list[str],
    parts: tuple[Any, EpisodeRewards, TaskSampler],
    stack: contextlib.ExitStack,
) -> Any:
    """Return the trainer of `grpo.asynchronous`. `parts`: player, rewards and task sampler, which play in the main
    process; `stack` closes the transfer at the end of the job.
    """
    from .async_trainer import make_async_trainer
    from .async_worker import make_worker
    from .weight_transfers import make_transfer

    worker = transfer = None
    if process_index() == 0:
        # Before the trainer adds TRL's head to the model, of which a sampler in this process takes a copy.
        transfer = make_transfer(config, model, tokenizer)
        stack.callback(transfer.destroy)  # where the trainer does not come to its end
        player, rewards, task_sampler = parts
        worker = make_worker(config, player, transfer.sampler, rewards, task_sampler, tokenizer)
    return make_async_trainer(config, model, tokenizer, prompts, count_steps(config, len(prompts)), worker, transfer)


def _load_step_model(config: GrpoConfig) -> Callable[[Trajectory], list[Judgement]] | None:
    """Return the configured step model as a judge. Raises DataError for one that does not predict chances of success."""
    if config.grpo.step_model is None:
        return None
    from ..prm.step_prediction import StepModel, predict

    model = StepModel.load(config.grpo.step_model)
    if model.card.objective != "value":
        raise DataError(
            f"step model {config.grpo.step_model} has the objective {model.card.objective}; train one with prm.objective: value"
        )
    return lambda trajectory: list(predict(model, [trajectory]))


def make_policy(config: GrpoConfig, trainer: Any, tokenizer: Any) -> TokenExactPolicy:
    """Return a policy that samples with the weights in training."""
    sampling = config.grpo.sampling
    return TokenExactPolicy(
        make_sampler(config, trainer, tokenizer),
        tokenizer,
        SamplingParameters(sampling.temperature, sampling.top_p, sampling.max_new_tokens),
        version="online",
        max_episode_tokens=sampling.max_episode_tokens,
    )


def make_sampler(config: GrpoConfig, trainer: Any, tokenizer: Any) -> Sampler:
    """Return the sampler that `grpo.sampling.sampler` names."""
    from .weight_samplers import ColocatedSampler, ModelSampler, served_sampler

    stops = stop_ids(tokenizer, CLOSE)
    if config.grpo.sampling.sampler == "vllm":
        return served_sampler(config, trainer, stops)
    kind: type[ColocatedSampler | ModelSampler]
    kind = ColocatedSampler if config.grpo.sampling.sampler == "colocate" else ModelSampler
    return kind(trainer, stops, trainer.model.config.get_text_config().max_position_embeddings)


def shares_prefixes(config: GrpoConfig, model: Any) -> bool:
    """Return whether common beginnings of attempts are forwarded once. Raises ConfigurationError if the configuration
    asks for it and the model cannot.
    """
    from .prefix_sharing import unsupported_reason

    asked = config.grpo.share_prefixes
    reason = unsupported_reason(model)
    if asked and reason:
        raise ConfigurationError(f"grpo.share_prefixes: not with this model: {reason}; remove the key")
    return reason is None and (config.preset != "plain" if asked is None else asked)


def make_grpo_trainer(
    config: GrpoConfig,
    model: Any,
    tokenizer: Any,
    prompts: list[str],
    components: dict[str, float],
    task_sampler: TaskSampler | None = None,
) -> Any:
    """Return the trainer; the caller must set its `rollout_func`. `prompts`: one text per task or recorded group;
    `components`: weight of each reward component by name.
    """
    from datasets import Dataset
    from trl import GRPOConfig

    from .grpo_trainer import EpisodeGRPOTrainer

    grpo, size = config.grpo, config.optimization.batch_size
    groups = size // grpo.group_size
    rows = prompts * -(-groups // len(prompts))  # ceiling division: TRL needs at least one prompt per group of a batch
    steps = count_steps(config, len(prompts))
    trainer = EpisodeGRPOTrainer(
        model=model,
        args=GRPOConfig(
            **with_trl_options(
                config.trl, trainer_arguments(config, steps, validated=False) | trl_arguments(config, tokenizer)
            )
        ),
        train_dataset=Dataset.from_dict({"prompt": rows}),
        processing_class=tokenizer,
        callbacks=make_callbacks(config, 0.0, validated=False),
        components=components,
        credit=grpo.credit,
        task_sampler=task_sampler,
        signal_window=grpo.signal_window,
        trust_sampler=grpo.offline or grpo.sampling.sampler != "vllm",
        correction=grpo.correction,
        share_prefixes=shares_prefixes(config, model),
    )
    trainer.eos_token_ids = sorted({*stop_ids(tokenizer, CLOSE), end_of_reply(tokenizer)[1]})
    return trainer
