"""TRL's GRPO trainer with rewards, credit assignment and selection for agents, at a few named hooks.

- `_calculate_rewards`: rewards come with the episodes. A row with an unknown weighted component is unscorable, where
  TRL would count the component as 0.
- `_generate_and_score_completions`: replaces the advantages (B, T) by those of the credit options, drops unselected
  attempts, corrects for attempts of another policy, and fails without a learning signal.
- `_get_per_token_logps_and_entropies`, `_prepare_inputs`: with `share_prefixes`, common beginnings of attempts are
  forwarded once.
- `_compute_loss`: adds the SFT loss on demonstrations of hard tasks that are due.
- `_save_checkpoint`, `_load_optimizer_and_scheduler`: include the state of the task sampler.

Losses, clipping, KL and aggregation are TRL's; with plain options so are the advantages, bit for bit. Groups of attempts
may span processes, so advantages are computed on the batch of all processes (`SampleBatch`).
"""

import math
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import torch
from trl import GRPOTrainer

from .. import tree_attention
from ..config.method_sections import CorrectionOptions
from ..credit.advantages import CreditInputs, SignalWindow, advantages, trained_std, uniform_group_share
from ..credit.credit_options import CreditOptions, Scale
from ..credit.token_weights import REASONING, reply_regions
from ..credit.turn_advantages import chances_of_success, learned_contributions
from .attempt_selection import select_attempts
from .failed_groups import negative_log_likelihood
from .policy_losses import correction_weights
from .prefix_sharing import SharedRows, group_rows, shared_log_probabilities
from .rollout_sample import ENVIRONMENT_TURN, EpisodeTokens, RolloutSample
from .task_sampler import TaskSampler


def episode_regions(tokens: EpisodeTokens, tokenizer: Any) -> list[int]:
    """Return the region of each completion token (see `credit.token_weights`). Environment tokens, which are never
    trained, get the region REASONING.
    """
    result: list[int] = []
    for turn, pairs in groupby(zip(tokens.turns, tokens.completion_ids, strict=True), key=lambda pair: pair[0]):
        own = [token for _, token in pairs]
        result += [REASONING] * len(own) if turn == ENVIRONMENT_TURN else reply_regions(tokenizer, own)
    return result


class SampleBatch(msgspec.Struct, frozen=True):
    """The B samples of all processes in one update.

    `samples`: all B. `own`: those of this process, padded to T tokens; they begin at index `first` of `samples`.
    `rewards` (B,): NaN if unknown. `groups` (B,): number of the group of attempts at one task. `turns` (own, T): turn of
    each token, -1 for tokens that the policy did not write.
    """

    samples: list[RolloutSample]
    own: list[RolloutSample]
    first: int
    rewards: Any
    groups: Any
    turns: Any

    @classmethod
    def gather(cls, own: Sequence[RolloutSample], width: int, size: int, accelerator: Any) -> "SampleBatch":
        """Gather the attempts of all processes, in groups of `size`. `own`: those of this process; `width`: T, to which
        their tokens are padded.
        """
        from accelerate.utils import gather_object

        # In the order of processes, so that a group that spans two of them stays together.
        return cls.join(gather_object(list(own)), own, accelerator.process_index * len(own), width, size)

    @classmethod
    def join(
        cls, samples: Sequence[RolloutSample], own: Sequence[RolloutSample], first: int, width: int, size: int
    ) -> "SampleBatch":
        """Return the batch of `samples`, in groups of `size`; see the class for the others."""
        return cls(
            list(samples),
            list(own),
            first,
            np.array([np.nan if item.breakdown.reward is None else item.breakdown.reward for item in samples]),
            np.arange(len(samples)) // size,
            _pad_rows([item.tokens.turns for item in own], width, ENVIRONMENT_TURN),
        )

    def advantages(
        self, options: CreditOptions, scale: Scale, step: int, tokenizer: Any, entropies: torch.Tensor | None
    ) -> torch.Tensor:
        """Return the advantage of each of this process's tokens, (own, T) float64. Raises as `credit.advantages` does.

        `step`: optimiser steps so far; `entropies`: (own, T), if the options need them.
        """
        last = max((len(item.breakdown.turns) for item in self.samples), default=0)
        turn_rewards = _pad_rows([item.breakdown.turns for item in self.samples], max(last, 1), np.nan)
        rows = slice(self.first, self.first + len(self.own))
        width = self.turns.shape[1]
        longest = max(len(item.tokens.turns) for item in self.samples)
        turns = _pad_rows([item.tokens.turns for item in self.samples], max(width, longest), ENVIRONMENT_TURN)
        result = advantages(
            CreditInputs(
                rewards=self.rewards,
                groups=self.groups,
                turns=turns,
                turn_rewards=turn_rewards,
                tasks=np.array([item.kind for item in self.samples]),
                roles=self._roles(turn_rewards.shape[1]) if options.turns == "per_role" else None,
                values=self._chances() if options.turns == "progress" else None,
                contributions=self._contributions(turn_rewards) if options.turns == "sum_decomposition" else None,
                regions=None
                if "region_schedule" not in options.token_weights
                else _pad_rows([episode_regions(item.tokens, tokenizer) for item in self.samples], turns.shape[1], 0),
                entropies=self._gather_rows(entropies, turns.shape[1]),
                step=step,
            ),
            options,
            scale,
        )
        return torch.from_numpy(result[rows, :width])

    def episode_means(self, own: torch.Tensor) -> Any:
        """Return the mean advantage of the trained tokens of each episode of all processes, (B,). `own`: this process's
        advantages, (own,) or (own, T). Every process must call it.
        """
        from accelerate.utils import gather_object

        result = own.double().cpu().numpy()
        if result.ndim == 2:
            trained = self.turns != ENVIRONMENT_TURN
            result = (result * trained).sum(axis=1) / np.maximum(1, trained.sum(axis=1))
        return np.array(gather_object(result.tolist()))

    def _chances(self) -> Any:
        """Return (B, S + 1) chances of success around each turn by the step model; None without one."""
        if not any(item.breakdown.chances for item in self.samples):
            return None
        lengths = np.array([len(item.breakdown.turns) for item in self.samples])
        chances = _pad_rows([item.breakdown.chances for item in self.samples], max(1, int(lengths.max())), np.nan)
        return chances_of_success(chances, self.rewards, self.groups, lengths)

    def _roles(self, width: int) -> Any:
        """Return (B, S) agents as codes, equal in all processes; None if one is unknown."""
        acted = [item.agents for item in self.samples if not item.lost and any(item.tokens.mask)]
        if not all(acted):
            return None
        number = {name: index for index, name in enumerate(sorted(set().union(*acted)))}
        return _pad_rows([[number.get(name, 0) for name in item.agents[:width]] for item in self.samples], width, 0)

    def _contributions(self, turn_rewards: Any) -> Any:
        """Return (B, S) contributions of turns, by a linear fit of the rewards on the turns' scores."""
        is_scored = ~np.isnan(turn_rewards)
        there = np.array(
            [[turn < len(item.breakdown.turns) for turn in range(turn_rewards.shape[1])] for item in self.samples]
        )
        mean = turn_rewards[is_scored].mean() if is_scored.any() else 0.0
        scores = np.where(is_scored, turn_rewards, mean)
        features = np.stack([np.ones_like(scores), scores], axis=-1)
        return learned_contributions(np.where(there[..., None], features, np.nan), self.rewards)

    def _gather_rows(self, own: torch.Tensor | None, width: int) -> Any:
        """Gather rows (B, width) of all processes."""
        from accelerate.utils import gather_object

        return None if own is None else _pad_rows(gather_object(own.double().cpu().tolist()), width, 0.0)


def _pad_rows(rows: Sequence[Sequence[float]], width: int, filler: float) -> Any:
    """Pad rows to (B, width)."""
    return np.array([[*row, *[filler] * (width - len(row))] for row in rows])


class EpisodeGRPOTrainer(GRPOTrainer):  # type: ignore[misc]
    """TRL's trainer over a rollout function that returns a `sample` (RolloutSample) per row.

    `components`: weight of each reward component by name. `trust_sampler`: set if the sampler has exactly the trained
    weights; otherwise ratios use the sampler's log-probabilities, or with a `correction` the trained model's own, and
    importance weights lead there from the sampler's. `share_prefixes`: forward common beginnings of attempts once, see
    `prefix_sharing`. `trl`: keyword arguments of TRL's GRPOTrainer.
    """

    _buffered_inputs: Any

    def __init__(
        self,
        *,
        components: dict[str, float],
        credit: CreditOptions | None = None,
        task_sampler: TaskSampler | None = None,
        signal_window: int = 10,
        trust_sampler: bool = True,
        correction: CorrectionOptions | None = None,
        share_prefixes: bool = False,
        **trl: Any,
    ) -> None:
        super().__init__(reward_funcs=[_named_reward(name) for name in components], **trl)
        self.reward_weights = torch.tensor(list(components.values()), dtype=torch.float32)
        self.components = components
        self.credit = credit or CreditOptions()
        self.task_sampler = task_sampler
        self.trust_sampler = trust_sampler
        self.correction = correction
        self.signal = SignalWindow(signal_window)
        self.share_prefixes = share_prefixes
        self._shared_rows: SharedRows | None = None  # of the micro-batch whose loss is computed
        if share_prefixes:
            for model in filter(None, (self.model, self.ref_model)):
                self.accelerator.unwrap_model(model).set_attn_implementation(tree_attention.register())

    def _prepare_inputs(self, generation_batch: Any) -> dict[str, Any]:
        """Return TRL's micro-batch; with `share_prefixes`, attempts of a group stand together within each step."""
        before = self._buffered_inputs
        inputs: dict[str, Any] = super()._prepare_inputs(generation_batch)
        if self.share_prefixes and self._buffered_inputs is not before:
            buffered, step = self._buffered_inputs, self.args.gradient_accumulation_steps
            batches = [
                item for index in range(0, len(buffered), step) for item in group_rows(buffered[index : index + step])
            ]
            for batch in batches:  # before the first step: packed later, each micro-batch would wait for the one before
                ids, masks = _joined(batch)
                batch["shared_rows"] = SharedRows.pack(ids, masks, batch["completion_ids"].shape[1])
            self._buffered_inputs = batches
            inputs = batches[self._step % len(batches)]
        return inputs

    def _get_per_token_logps_and_entropies(
        self,
        model: Any,
        input_ids: torch.Tensor,
        attention_mask: torch.Tensor,
        logits_to_keep: int,
        batch_size: int | None = None,
        **options: Any,
    ) -> Any:
        """Return TRL's log-probabilities and entropies (B, `logits_to_keep`) and auxiliary loss; the latter two are None
        unless asked for.
        """
        # The load-balancing loss of a mixture of experts counts every token of every row.
        if not self.share_prefixes or options.get("compute_aux_loss"):
            return super()._get_per_token_logps_and_entropies(
                model, input_ids, attention_mask, logits_to_keep, batch_size, **options
            )
        if self._shared_rows is not None:
            parts = [self._shared_rows]
            self._metrics["train"]["prefix_sharing/gain"].append(self._shared_rows.gain)
        else:
            size = batch_size or len(input_ids)
            chunks = zip(input_ids.split(size), attention_mask.split(size), strict=True)
            parts = [SharedRows.pack(ids, masks, logits_to_keep) for ids, masks in chunks]
        with self.accelerator.autocast():
            logprobs, entropies = zip(*(shared_log_probabilities(model, rows) for rows in parts), strict=True)
        return torch.cat(logprobs), torch.cat(entropies) if options.get("compute_entropy") else None, None

    def _calculate_rewards(
        self, inputs: list[dict[str, Any]], prompts: Any, completions: Any, completion_ids_list: Any
    ) -> torch.Tensor:
        """Return (B of all processes, components); NaN for unknown components and for whole unscorable rows."""
        from accelerate.utils import gather

        rows = [_reward_row(item["sample"], self.components) for item in inputs]
        return gather(torch.tensor(rows, dtype=torch.float32, device=self.accelerator.device))

    def _generate_and_score_completions(self, inputs: list[dict[str, Any]]) -> dict[str, Any]:
        """Return TRL's batch with the advantages of the credit options, without unselected attempts."""
        output: dict[str, Any] = super()._generate_and_score_completions(inputs)
        samples: list[RolloutSample] = [item["sample"] for item in inputs]
        batch = SampleBatch.gather(samples, output["completion_ids"].shape[1], self.group_size, self.accelerator)
        weights = self._weigh_against_sampler(samples, output)
        if not self.credit.plain:
            entropies = self._score_tokens(output)[1] if "entropy_topk" in self.credit.token_weights else None
            result = batch.advantages(
                self.credit, self.scale_rewards, self.state.global_step, self._tokenizer, entropies
            )
            output["advantages"] = result.to(output["advantages"])
        self._log_metrics(samples, batch, output)
        if self.model.training:
            self._select(batch, output)
        if weights is not None:  # every loss is linear in the advantages
            advantages = output["advantages"]
            output["advantages"] = weights * (advantages if advantages.dim() == 2 else advantages[:, None])
        return output

    def _compute_loss(self, model: Any, inputs: dict[str, Any]) -> torch.Tensor:
        """Return TRL's loss, plus the SFT loss on demonstrations (`relift`) that are due in this step."""
        self._shared_rows = inputs.get("shared_rows")
        loss = super()._compute_loss(model, inputs)
        self._shared_rows = None
        if self.task_sampler is None or not self.task_sampler.due_demonstrations or not self.model.training:
            return loss
        demonstrations, self.task_sampler.due_demonstrations = self.task_sampler.due_demonstrations, []
        rows = [row for demonstration in demonstrations for row in demonstration]
        with self.accelerator.autocast():
            sft_loss = negative_log_likelihood(model, rows, self._tokenizer.pad_token_id)
        self._metrics["train"]["relift/tasks"].append(len(demonstrations))
        self._metrics["train"]["relift/loss"].append(sft_loss.item())
        return loss + sft_loss  # added to one micro-batch alone: gradients of a step's micro-batches are summed

    @property
    def group_size(self) -> int:
        """Number of attempts at one task."""
        size: int = self.num_generations if self.model.training else self.num_generations_eval
        return size

    def _weigh_against_sampler(self, samples: Sequence[RolloutSample], output: dict[str, Any]) -> torch.Tensor | None:
        """Use the sampler's log-probabilities as the old ones for attempts that another policy sampled. With a
        correction use the trained model's, and return the weights of tokens, (own, T).
        """
        off_policy = torch.tensor([item.off_policy or not self.trust_sampler for item in samples])
        if not off_policy.any():
            return None
        old, sampled, weights = output.get("old_per_token_logps"), output["sampling_per_token_logps"], None
        is_corrected = self.correction is not None and self.correction.mode != "none" and not self.trust_sampler
        if old is None:
            old = self._score_tokens(output)[0] if is_corrected or not off_policy.all() else sampled
        if is_corrected:
            assert self.correction is not None
            trained = (output["completion_mask"] * output.get("tool_mask", 1)).bool()
            weights = torch.ones_like(old)
            weights[trained] = correction_weights(
                (old - sampled)[trained],
                torch.nonzero(trained)[:, 0],
                self.correction.mode,
                self.correction.clip_min,
                self.correction.clip_max,
            )
            mode = "train" if self.model.training else "eval"
            self._metrics[mode]["correction/weight"].append(weights[trained].mean().item())
        else:
            old = torch.where(off_policy.to(old.device)[:, None], sampled, old)
        output["old_per_token_logps"] = old
        return weights

    def _select(self, batch: SampleBatch, output: dict[str, Any]) -> None:
        """Remove unselected attempts from the loss: advantage 0, and not counted in its normaliser."""
        if self.task_sampler is None:
            return
        selection = self.task_sampler.options
        if not (selection.accuracy_band or selection.max_variance or selection.curriculum_ucb):
            return
        advantages_of_all = np.where(np.isnan(batch.rewards), np.nan, batch.episode_means(output["advantages"]))
        self.task_sampler.update_families(batch.samples, advantages_of_all)
        flags = select_attempts(batch.rewards, batch.groups, advantages_of_all, selection)
        keep = flags[batch.first : batch.first + len(batch.own)].astype(np.float64)
        self._metrics["train"]["selection/kept"].append(float(keep.mean()))
        attempt_mask = torch.from_numpy(keep).to(output["tool_mask"])
        dropped = (attempt_mask == 0).view(-1, *[1] * (output["advantages"].dim() - 1))
        output["advantages"] = output["advantages"].masked_fill(dropped, 0.0)
        output["tool_mask"] = output["tool_mask"] * attempt_mask[:, None]
        count = (output["completion_mask"] * output["tool_mask"]).sum()
        # The normaliser of `dapo` and `cispo` counts the tokens of the whole batch.
        output["num_items_in_batch"] = self.accelerator.gather(count).sum()

    @torch.no_grad()  # type: ignore[untyped-decorator]
    def _score_tokens(self, output: dict[str, Any]) -> tuple[torch.Tensor, torch.Tensor]:
        """Return log-probabilities (B, T) of the tokens and entropies (B, T) in nats under the current policy."""
        ids, mask = _joined(output)
        width = output["completion_ids"].shape[1]
        logprobs, entropies, _ = self._get_per_token_logps_and_entropies(
            self.model, ids, mask, width, batch_size=self.args.per_device_train_batch_size, compute_entropy=True
        )
        return logprobs, entropies

    def _log_metrics(self, samples: Sequence[RolloutSample], batch: SampleBatch, output: dict[str, Any]) -> None:
        """Log metrics of the batch. Raises DataError if a whole window of steps has no learning signal."""
        mode = "train" if self.model.training else "eval"
        metrics = self._metrics[mode]
        uniform = uniform_group_share(batch.rewards, batch.groups)
        if not math.isnan(uniform):
            metrics["groups/without_difference"].append(uniform)
        staleness = [item.staleness for item in samples if item.staleness is not None]
        if staleness:
            metrics["replay/staleness"].append(sum(staleness) / len(staleness))
        if self.task_sampler is not None:
            metrics["replay/share"].append(len(staleness) / len(samples))
            metrics["guide/share"].append(sum(item.guided for item in samples) / len(samples))
        metrics["rollout/hacked"].append(sum(item.breakdown.hacked for item in samples) / len(samples))
        metrics["rollout/untrained"].append(sum(not any(item.tokens.mask) for item in samples) / len(samples))
        metrics["rollout/lost"].append(sum(item.lost for item in samples) / len(samples))
        metrics["rollout/turns"].append(sum(max(item.tokens.turns) + 1 for item in samples) / len(samples))
        metrics["rollout/seconds"].append(float(getattr(self.rollout_func, "seconds", 0.0)))
        advantages = output["advantages"]
        if advantages.dim() == 1:
            advantages = advantages.unsqueeze(1).expand(-1, batch.turns.shape[1])
        std = trained_std(advantages.cpu().numpy(), batch.turns)
        metrics["advantages/std"].append(std)
        if mode == "train":
            self.signal.add(self.accelerator.reduce(torch.tensor(std, device=self.accelerator.device), "mean").item())

    def _save_checkpoint(self, model: Any, trial: Any) -> None:
        if self.task_sampler is not None:
            # Before TRL writes `trainer_state.json`, which marks a checkpoint as complete.
            folder = Path(self._get_output_dir(trial=trial)) / f"checkpoint-{self.state.global_step}"
            folder.mkdir(parents=True, exist_ok=True)
            (folder / self._state_file).write_bytes(self.task_sampler.state())
        super()._save_checkpoint(model, trial)

    def _load_optimizer_and_scheduler(self, checkpoint: str | None) -> None:
        super()._load_optimizer_and_scheduler(checkpoint)
        if self.task_sampler is not None and checkpoint is not None and (Path(checkpoint) / self._state_file).is_file():
            self.task_sampler.restore((Path(checkpoint) / self._state_file).read_bytes())

    @property
    def _state_file(self) -> str:
        return f"selection-{self.accelerator.process_index}.msgpack"


def _joined(batch: dict[str, Any]) -> tuple[torch.Tensor, torch.Tensor]:
    """Return token ids and attention mask, (B, L), of prompts with their completions."""
    ids, mask = (torch.cat([batch[f"prompt_{name}"], batch[f"completion_{name}"]], dim=1) for name in ("ids", "mask"))
    return ids, mask


def _named_reward(name: str) -> Any:
    def reward(**values: Any) -> list[float]:
        raise AssertionError("rewards come with the episodes")  # `_calculate_rewards` never calls it

    # TRL logs a component under the name of its function.
    reward.__name__ = name
    return reward


def _reward_row(sample: RolloutSample, components: dict[str, float]) -> list[float]:
    if sample.breakdown.reward is None:
        return [math.nan] * len(components)
    return [math.nan if (part := sample.breakdown.parts[name]) is None else part for name in components]
