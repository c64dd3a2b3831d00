"""TRL's asynchronous GRPO trainer for agents: a worker plays episodes while the trainer learns from earlier ones.

TRL's `AsyncGRPOTrainer` gives the loop, the weight transfer, prefix-sharing rows (`TreeRow`) and the measurement of
times. What replaces parts of it, and why:

- `StepLoader` in place of its data loader. accelerate's reads one micro-batch ahead. A step would wait for an episode of
  the next step, for ever with `max_staleness: 0`; that episode would count as trained in a checkpoint; and its staleness
  would be that before the weight update. It also does not know the tokens of a whole step, so TRL normalises each
  micro-batch by its own, and tokens of short micro-batches weigh more.
- `compute_loss`: the losses and corrections of `policy_losses`, with an advantage and a version for each token. TRL's
  fails on a micro-batch without trained tokens, such as one of lost episodes. It also reads the GPU some 20 times in each
  micro-batch, and each time waits for all that is queued there; here a step reads its statistics once, before the
  weights change.
- `PrefixTree` in place of `TreeRow`, which takes a hundred times as long.
- `_sync_weight_merged`: TRL merges LoRA adapters into the base and subtracts them again. Each round trip rounds, so the
  frozen base drifts away from the one that the result is merged with. Here the sum is computed beside the base. TRL
  also counts a version more at every start; here the version is the number of weight updates so far.
- Checkpoints hold the state of the worker, which tells trained groups from those that were only started. TRL's own
  position is the first untrained prompt, after which it plays trained prompts again.
"""

import contextlib
import dataclasses
import itertools
import json
import queue
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from accelerate.utils import broadcast_object_list
from transformers import TrainingArguments
from trl.experimental.async_grpo import AsyncGRPOConfig, AsyncGRPOTrainer, async_grpo_trainer
from trl.experimental.async_grpo.async_grpo_trainer import (
    DataCollatorForRollout,
    FixedCountBatcher,
    RolloutWorkerProtocol,
    WeightTransferProtocol,
)
from trl.trainer.utils import pad

from ratchet.components.core import ConfigurationError, DataError
from ratchet.components.core.files import write_atomically

from .. import tree_attention
from ..config.job_config import GrpoConfig
from ..config.trl_options import with_trl_options
from ..credit.advantages import uniform_group_share
from ..prefix_tree import PrefixTree
from ..train_report import non_finite_error
from ..trainer_arguments import make_callbacks, trainer_arguments
from .attempt_selection import SelectionOptions, select_attempts
from .policy_losses import loss_weights, policy_loss

WORKER_STATE = "worker.json"
async_grpo_trainer.TreeRow = PrefixTree  # the class that FixedCountBatcher makes
POLL_SECONDS = 1.0
"""How often a waiting trainer asks whether the worker is alive."""


class EpisodeWorker(RolloutWorkerProtocol, Protocol):  # type: ignore[misc]
    """TRL's protocol of a rollout worker, and what resuming needs in addition.

    `rollout_buffer` receives `EpisodeSample`s: all attempts of a group one after the other, lost ones included. Trained in
    that order, no group is staler than `max_staleness`.
    """

    def mark_trained(self, groups: Sequence[int]) -> None:
        """Record that an optimiser step has learned from these groups: they are not played again."""

    def state(self) -> dict[str, Any]:
        """Return a state in JSON types, with the groups that were started and not trained."""

    def restore(self, state: dict[str, Any]) -> None:
        """Restore a state before `start`."""


class StepLoader:
    """Iterate over the micro-batches of successive optimiser steps, without end. A step is read when it is needed.

    The main process reads the worker's buffer in order and sends each process its row, so all processes must iterate together.
    `wait_s`: seconds waited for episodes since TRL last set it to 0. `groups`: numbers of the groups of this step.
    """

    def __init__(self, trainer: "EpisodeAsyncTrainer") -> None:
        self.wait_s = 0.0
        self.groups: list[int] = []
        self._trainer = trainer
        self._metrics = trainer._metrics["train"]
        self._processes = trainer.accelerator.num_processes
        self._collator = DataCollatorForRollout(
            trainer.processing_class.pad_token_id,
            self._processes,
            groups_trained=trainer._trained_groups,
            metrics=self._metrics,
        )

    def __iter__(self) -> Iterator[dict[str, Any]]:
        args, accelerator = self._trainer.args, self._trainer.accelerator
        while True:
            main = accelerator.is_main_process
            batches: list[Any] = self._read_step() if main else [None] * args.gradient_accumulation_steps
            for batch in batches:
                if self._processes > 1:
                    (batch,) = broadcast_object_list([batch])
                yield _own_row(batch, accelerator.process_index)

    def _read_step(self) -> list[dict[str, torch.Tensor]]:
        """Return the micro-batches of the next step."""
        trainer = self._trainer
        options, args = trainer.options, trainer.args
        samples = self._take_samples()
        rows = [
            {
                "input_ids": sample.input_ids,
                "completion_mask": sample.completion_mask,
                "old_log_probs": sample.old_log_probs,
                "advantage": 0.0,  # `token_advantages` replace it
                "group_id": sample.group_id,
                "metrics": sample.metrics,
                "token_advantages": sample.token_advantages,
                "token_versions": sample.token_versions,
            }
            for sample in samples
        ]
        self._select(rows)
        lengths = [int(np.count_nonzero(row["completion_mask"][1:])) for row in rows]
        for row, weight in zip(rows, loss_weights(options.loss, lengths, args.max_completion_length), strict=True):
            row["weight"] = np.full(len(row["input_ids"]), weight, np.float32)
        self._measure(rows)
        size = args.per_device_train_batch_size * self._processes
        return [self._collate(packed) for packed in FixedCountBatcher(rows, self._processes, size)]

    def _take_samples(self) -> list[Any]:
        """Wait for the samples of a step, and return them in the order of their groups' numbers."""
        trainer, begin = self._trainer, time.perf_counter()
        worker, samples = trainer.rollout_worker, list[Any]()
        while len(samples) < trainer.step_samples:
            try:
                samples.append(worker.rollout_buffer.get(timeout=POLL_SECONDS))
            except queue.Empty:
                worker.check_health(trainer.args.heartbeat_stale_after_s)
        self.wait_s += time.perf_counter() - begin
        samples.sort(key=lambda sample: sample.group_id)  # groups end in any order; float sums must not depend on it
        by_group = itertools.groupby(samples, key=lambda sample: sample.group_id)
        oldest = {group: min(item.model_version for item in attempts) for group, attempts in by_group}
        for name in ("sample/staleness_mean", "sample/staleness_max"):
            self._metrics[name] += [float(trainer.model_version - version) for version in oldest.values()]
        self.groups = list(oldest)
        return samples

    def _select(self, rows: list[dict[str, Any]]) -> None:
        """Remove unselected attempts from the loss: none of their tokens is trained or counted."""
        selection = self._trainer.selection
        if not (selection.accuracy_band or selection.max_variance):
            return
        rewards, groups = _rewards_and_groups(rows)
        means = [row["token_advantages"][row["completion_mask"] != 0] for row in rows]
        advantages = np.array([float(item.mean()) if len(item) else 0.0 for item in means])
        flags = select_attempts(rewards, groups, np.where(np.isnan(rewards), np.nan, advantages), selection)
        self._metrics["selection/kept"].append(float(flags.mean()))
        for row, keep in zip(rows, flags, strict=True):
            row["completion_mask"] = row["completion_mask"] * int(keep)

    def _measure(self, rows: list[dict[str, Any]]) -> None:
        """Log the step's signal, staleness and tokens."""
        trainer = self._trainer
        uniform = uniform_group_share(*_rewards_and_groups(rows))
        if not np.isnan(uniform):
            self._metrics["groups/without_difference"].append(uniform)
        ages = trainer.model_version - _flat(rows, "token_versions").astype(np.float64)
        self._metrics["sample/token_staleness"].append((float(ages.sum()), float(len(ages))))
        trainer.state.num_input_tokens_seen += sum(len(row["input_ids"]) for row in rows)
        self._metrics["num_tokens"].append(float(trainer.state.num_input_tokens_seen))
        advantages = _flat(rows, "token_advantages").astype(np.float64)
        self._metrics["advantages/std"].append(float(advantages.std()) if len(advantages) else 0.0)

    def _collate(self, rows: list[Any]) -> dict[str, torch.Tensor]:
        """Return a micro-batch, one row per process, with advantages, versions and weights of its loss terms."""
        batch: dict[str, torch.Tensor] = self._collator.torch_call([rows])
        terms = {"advantages": "token_advantages", "token_versions": "token_versions", "weights": "weight"}
        for name, source in terms.items():
            batch[name] = pad([torch.from_numpy(_flat(row.samples, source)) for row in rows], padding_value=0)
        if self._trainer.options.loss == "bnpo":
            # Equal tokens within a micro-batch, and equal micro-batches: TRL's `bnpo`, and its asynchronous trainer's loss.
            tokens = batch["global_n_tokens"][0].clamp(min=1.0)
            batch["weights"] = (
                torch.ones_like(batch["weights"]) / tokens / self._trainer.args.gradient_accumulation_steps
            )
        return batch


def _own_row(batch: dict[str, torch.Tensor], index: int) -> dict[str, Any]:
    """Return row `index` of a micro-batch without its padding, while it is on the host: from a GPU, the number of tokens
    that a mask selects would have to be read back. Numbers that the host needs are returned as such.
    """
    row = {name: values[index] for name, values in batch.items()}
    present, selected = row.pop("attention_mask") != 0, row["token_index"] >= 0
    result: dict[str, Any] = {
        name: row.pop(name).tolist()
        for name in ("tree_max_seqlens", "global_n_tokens", "global_n_forward_tokens", "mean_seq_len")
    }
    for name, values in row.items():
        if name in ("input_ids", "position_ids", "shift_labels"):
            result[name] = values[present]
        elif name in ("tree_kv_index", "tree_cu_seqlens_q", "tree_cu_seqlens_k"):
            result[name] = values[values >= 0]
        else:
            result[name] = values[selected]
    return result


def _flat(rows: Sequence[Mapping[str, Any]], name: str) -> Any:
    """Return the values of all trained tokens (M,), in the order of TreeRow's loss terms. The first token of a sequence
    is predicted by none and never trained.
    """
    return np.concatenate([row[name][1:][row["completion_mask"][1:] != 0] for row in rows])


def _rewards_and_groups(rows: Sequence[Mapping[str, Any]]) -> tuple[Any, Any]:
    """Return reward (B,), NaN if unknown, and group (B,) of each attempt."""
    rewards = np.array([row["metrics"].get("reward", np.nan) for row in rows], dtype=np.float64)
    return rewards, np.unique([row["group_id"] for row in rows], return_inverse=True)[1]


class EpisodeAsyncTrainer(AsyncGRPOTrainer):  # type: ignore[misc]
    """TRL's trainer over an `EpisodeWorker`. `model`: the loaded model, with adapters if any. `worker`, `transfer`: None
    in other processes than the main one. `trl`: keyword arguments of TRL's trainer.
    """

    def __init__(
        self,
        *,
        config: GrpoConfig,
        model: Any,
        worker: EpisodeWorker | None,
        transfer: WeightTransferProtocol | None,
        **trl: Any,
    ) -> None:
        assert config.grpo.asynchronous is not None
        self.options, self.asynchronous = config.grpo, config.grpo.asynchronous
        self.selection: SelectionOptions = config.grpo.selection
        self.step_samples = config.optimization.batch_size
        _use_tree_attention(model)
        with _accept_model(model):
            # TRL takes both in the main process alone; without a transfer every process would ask a vLLM server.
            super().__init__(model="", rollout_worker=worker, weight_transfer=transfer or object(), **trl)
        self._gap = [0.0, 0.0]  # sum and number of the step's |differences| between trainer and sampler
        self._statistics: list[torch.Tensor] = []  # of the step's micro-batches so far

    def get_train_dataloader(self) -> StepLoader:
        """Return the loader of steps."""
        self._rollout_dataset = StepLoader(self)
        return self._rollout_dataset

    def compute_loss(
        self, model: Any, inputs: dict[str, Any], return_outputs: bool = False, num_items_in_batch: Any = None
    ) -> torch.Tensor:
        """Return this process's part of the loss of a step, times the number of processes, over which DDP and FSDP
        average gradients.
        """
        log_probs, entropy, router_loss = self._score(model, inputs)
        names = ("old_log_probs", "advantages", "segment_id", "weights", "token_versions")
        old, advantages, sequences, weights, versions = (inputs[name] for name in names)
        old = torch.where(old.isnan(), log_probs.detach(), old)  # vLLM reports NaN for a token that it could not score
        terms = policy_loss(log_probs, old, advantages, sequences, self.options)
        loss = (terms.values * weights).sum() * self.accelerator.num_processes
        if router_loss is not None:
            loss = loss + self.router_aux_loss_coef * router_loss / self.args.gradient_accumulation_steps
        with torch.no_grad():
            log_ratio = log_probs - old
            gap = log_ratio.abs()
            is_new = (versions == self.model_version).to(gap)
            sums = {
                "ratio": terms.ratio,
                "kl": log_ratio.exp() - 1 - log_ratio,  # http://joschu.net/blog/kl-approx.html
                "entropy": entropy,
                "clip_ratio/low_mean": terms.low,
                "clip_ratio/high_mean": terms.high,
                "clip_ratio/region_mean": terms.low | terms.high,
                "correction/weight": terms.correction,
                "correction/dropped": terms.correction == 0,
                "drift/mean": gap,
            }
            totals = [item.to(gap).sum() for item in sums.values()]
            highest = gap.max() if len(gap) else gap.new_zeros(())
            others = [(gap * is_new).sum(), is_new.sum(), gap.new_tensor(len(gap)), loss.detach(), highest]
            self._statistics.append(torch.stack([*totals, *others]))
        self._names = list(sums)
        self._count_tokens(inputs)
        return loss

    def training_step(self, model: Any, inputs: dict[str, Any], num_items_in_batch: Any = None) -> torch.Tensor:
        """Return the loss of a micro-batch. Raises DataError after the last one of a step, before any weight changes, if
        a loss is not finite.
        """
        loss: torch.Tensor = super().training_step(model, inputs, num_items_in_batch)
        if self.accelerator.sync_gradients:
            self._log_statistics()
        return loss

    def _log_statistics(self) -> None:
        """Log the statistics of a step's micro-batches over all processes."""
        gathered = self.accelerator.gather(
            torch.stack(self._statistics)[None]
        )  # (processes, micro-batches, statistics)
        self._statistics = []
        rows = torch.cat([gathered[..., :-1].sum(dim=0), gathered[..., -1:].amax(dim=0)], dim=-1).tolist()
        metrics = self._metrics["train"]
        for *values, new_gap, new_count, count, loss, highest in rows:
            if not np.isfinite(loss):
                raise non_finite_error("loss", loss, self.args.output_dir, self.state.global_step + 1)
            for name, value in zip(self._names, values, strict=True):
                metrics[name].append((value, count))
            metrics["drift/same_version"].append((new_gap, new_count))
            metrics["drift/max"].append(highest)
            self._gap = [self._gap[0] + values[-1], self._gap[1] + count]

    def _score(self, model: Any, inputs: dict[str, Any]) -> tuple[torch.Tensor, torch.Tensor, Any]:
        """Return log-probabilities and entropies (M,) of the trained tokens, and the routers' loss of a mixture of
        experts.
        """
        begin = time.perf_counter()
        router = {"output_router_logits": True} if self.aux_loss_enabled else {}
        outputs = tree_attention.forward_row(model, inputs, **router)
        index = inputs["token_index"]
        self._step_forward_s += time.perf_counter() - begin
        result = outputs.log_probs.flatten()[index], outputs.entropy.flatten()[index]
        return *result, outputs.aux_loss if self.aux_loss_enabled else None

    def _count_tokens(self, inputs: dict[str, Any]) -> None:
        """Add a micro-batch to the counts that TRL logs at the end of a step."""
        tokens, mean = inputs["global_n_forward_tokens"], inputs["mean_seq_len"]
        self._step_forward_tokens += tokens
        self._step_trained_tokens += inputs["global_n_tokens"]
        self._step_seq_len_weighted += mean * tokens
        self._step_samples += tokens / mean

    def _log_step_metrics(self) -> None:
        """Log a step, and tell the worker which groups it learned from. Raises DataError at `drift_alarm`."""
        super()._log_step_metrics()
        if self.accelerator.is_main_process:
            self.rollout_worker.mark_trained(self._rollout_dataset.groups)
        (gap, count), self._gap = self._gap, [0.0, 0.0]
        limit = self.asynchronous.drift_alarm
        if not count or gap / count < limit:
            return
        message = (
            f"the log-probabilities of trainer and sampler differ by {gap / count:.2g} nats a token in step "
            f"{self.state.global_step} (grpo.asynchronous.drift_alarm is {limit:g}): check that new weights reach the sampler and "
            "that it samples as the trainer scores, or lower learning_rate or max_staleness"
        )
        if self.asynchronous.on_drift == "stop":
            raise DataError(message)
        if self.accelerator.is_main_process:
            print(f"warning: {message}", file=sys.stderr)

    def _sync_weight_merged(self, t0: float) -> tuple[float, float, float]:
        """Send the current weights, and return the times of pause, barrier and transfer. `t0` is not needed."""
        transfer = self.weight_transfer
        if transfer is not None:
            transfer.pause()
        paused = time.time()
        self.accelerator.wait_for_everyone()
        begun = time.time()
        if transfer is not None:
            transfer.send_weights(self._streaming_iter())
        else:
            for _ in self._streaming_iter():  # gathering a sharded weight needs all processes
                pass
        sent = time.time()
        self.accelerator.wait_for_everyone()
        self.model_version = self.state.global_step // self.args.weight_sync_steps
        if transfer is not None:
            transfer.resume()
            self.rollout_worker.update_model_version(self.model_version)
        return paused, begun, sent

    def _streaming_iter(self) -> Iterator[tuple[str, torch.Tensor]]:
        """Yield each weight by its name in the base checkpoint, with the adapters' contribution added to a copy."""
        model = self.accelerator.unwrap_model(self.model)
        layers = {
            id(module.base_layer.weight): module for module in model.modules() if hasattr(module, "get_delta_weight")
        }
        for name, weight in async_grpo_trainer._iter_vllm_named_params(model):
            layer, full = layers.get(id(weight)), _gather(weight.detach())
            if layer is not None:
                deltas = [_gather(layer.get_delta_weight(adapter).detach()) for adapter in layer.active_adapters]
                full = (full + sum(deltas)).to(full.dtype)
            yield name, full.to(self.accelerator.device)

    def _save_checkpoint(self, model: Any, trial: Any) -> None:
        if self.accelerator.is_main_process:
            # Before transformers writes `trainer_state.json`, which marks a checkpoint as complete.
            folder = Path(self._get_output_dir(trial=trial)) / f"checkpoint-{self.state.global_step}"
            folder.mkdir(parents=True, exist_ok=True)
            write_atomically(folder / WORKER_STATE, json.dumps(self.rollout_worker.state()).encode())
        super()._save_checkpoint(model, trial)

    def _load_optimizer_and_scheduler(self, checkpoint: str | None) -> None:
        super()._load_optimizer_and_scheduler(checkpoint)
        if checkpoint is None or not self.accelerator.is_main_process:
            return
        try:
            self.rollout_worker.restore(json.loads((Path(checkpoint) / WORKER_STATE).read_bytes()))
        except (OSError, ValueError, KeyError) as error:
            raise ConfigurationError(
                f"{checkpoint} was not saved by this asynchronous trainer; remove grpo.asynchronous, or take another output"
            ) from error


def _gather(weight: Any) -> torch.Tensor:
    """Return the whole tensor of a weight that FSDP may have sharded."""
    full: torch.Tensor = weight.full_tensor() if hasattr(weight, "full_tensor") else weight
    return full


def _base_model(model: Any) -> Any:
    return model.get_base_model() if hasattr(model, "peft_config") else model


def _use_tree_attention(model: Any) -> None:
    """Make the model compute attention along prefix trees by PyTorch alone; TRL's needs a kernel from the hub. Raises
    ConfigurationError for a model whose layers cannot.
    """
    if reason := tree_attention.unsupported_reason(model):
        raise ConfigurationError(f"grpo.asynchronous shares prefixes, and this model cannot: {reason}; remove it")
    _base_model(model).set_attn_implementation(tree_attention.register())


@contextlib.contextmanager
def _accept_model(model: Any) -> Iterator[None]:
    """As a context manager, make TRL's constructor take a loaded model.

    It loads a model from a path, which knows nothing of quantised bases and saved adapters, adds its head before PEFT
    wraps the model, and asks CUDA for the name of a device that a CPU does not have.
    """
    add_head = async_grpo_trainer.add_fused_lm_head
    replaced: dict[str, Any] = {
        "create_model_from_path": lambda *_, **__: model,
        "add_fused_lm_head": lambda model, **options: add_head(_base_model(model), **options),
    }
    if not torch.cuda.is_available():
        replaced["get_peak_flops_per_device"] = lambda *_: None
    originals = {name: getattr(async_grpo_trainer, name) for name in replaced}
    try:
        vars(async_grpo_trainer).update(replaced)
        yield
    finally:
        vars(async_grpo_trainer).update(originals)


def make_async_trainer(
    config: GrpoConfig,
    model: Any,
    tokenizer: Any,
    prompts: list[str],
    steps: int,
    worker: EpisodeWorker | None,
    transfer: WeightTransferProtocol | None,
) -> EpisodeAsyncTrainer:
    """Return the trainer of `steps` optimiser steps. `prompts`: names of the tasks; `worker`, `transfer`: None in
    other processes than the main one.
    """
    from datasets import Dataset

    grpo = config.grpo
    assert grpo.asynchronous is not None
    # Of AsyncGRPOConfig's own fields the trainer reads those below and this one; the others are for the worker replaced here.
    known = {field.name for field in dataclasses.fields(TrainingArguments)} - {"use_liger_kernel"}
    if strange := sorted(config.trl.keys() - known - {"router_aux_loss_coef"}):
        raise ConfigurationError(
            f"trl.{strange[0]}: the asynchronous trainer does not read it; remove it, or grpo.asynchronous"
        )
    arguments = {
        **trainer_arguments(config, steps, validated=False),
        "num_generations": grpo.group_size,
        "max_completion_length": grpo.sampling.max_episode_tokens,
        "temperature": grpo.sampling.temperature,
        "top_p": grpo.sampling.top_p,
        "epsilon": grpo.clip,
        "epsilon_high": grpo.upper_clip,
        "weight_sync_steps": grpo.asynchronous.weight_sync_steps,
        "max_staleness": sys.maxsize,  # admission bounds it: nothing is thrown away
        "heartbeat_stale_after_s": config.run.stalled_after or float("inf"),
        "logging_steps": 1,  # the report counts one entry of the log per step
    }
    return EpisodeAsyncTrainer(
        config=config,
        model=model,
        worker=worker,
        transfer=transfer,
        args=AsyncGRPOConfig(**with_trl_options(config.trl, arguments)),
        train_dataset=Dataset.from_dict({"prompt": prompts}),
        processing_class=tokenizer,
        callbacks=make_callbacks(config, 0.0, validated=False),
    )
