"""TRL's GRPO with what agents need, at two named places of its trainer.

- `_calculate_rewards`: rewards come with the episodes. A row of which any weighted component is unknown is unscorable as a whole,
  where TRL would take an unknown component for 0.
- `_generate_and_score_completions`: afterwards the advantages become those of the credit options, (B, T), and the job refuses to go
  on where they tell nothing.

Losses, clipping, KL and their aggregation are TRL's; with plain credit so are the advantages, to the bit.
"""

import math
from collections.abc import Sequence
from typing import Any

import torch
from trl import GRPOTrainer

from ..credit import CreditOptions, SignalWindow, deviation, share_without_difference
from .batch import Batch
from .rollout import Outing


class EpisodeGRPOTrainer(GRPOTrainer):  # type: ignore[misc]
    """`components`: the reward's components with their weights. The rollout function gives an `outing` for every row."""

    def __init__(
        self,
        *,
        components: dict[str, float],
        credit: CreditOptions | None = None,
        signal_window: int = 10,
        trust_sampler: bool = True,
        **trl: Any,
    ) -> None:
        super().__init__(reward_funcs=[_component(name) for name in components], **trl)
        self.reward_weights = torch.tensor(list(components.values()), dtype=torch.float32)
        self.components = components
        self.credit = credit or CreditOptions()
        self.trust_sampler = trust_sampler
        self.signal = SignalWindow(signal_window)

    def _calculate_rewards(
        self, inputs: list[dict[str, Any]], prompts: Any, completions: Any, completion_ids_list: Any
    ) -> torch.Tensor:
        """(B of all processes, components); NaN where a component is not known, and all along an unscorable row."""
        from accelerate.utils import gather

        rows = [_row(each["outing"], self.components) for each in inputs]
        return gather(torch.tensor(rows, dtype=torch.float32, device=self.accelerator.device))

    def _generate_and_score_completions(self, inputs: list[dict[str, Any]]) -> dict[str, Any]:
        """TRL's batch, with the advantages of the credit options."""
        output: dict[str, Any] = super()._generate_and_score_completions(inputs)
        outings: list[Outing] = [each["outing"] for each in inputs]
        batch = Batch.of(outings, output["completion_ids"].shape[1], self._size, self.accelerator)
        if not self.trust_sampler:
            output["old_per_token_logps"] = output["sampling_per_token_logps"]
        if not self.credit.plain:
            entropies = self._entropies(output) if "entropy_topk" in self.credit.token_weights else None
            found = batch.advantages(self.credit, self.state.global_step, self._tokenizer, entropies)
            output["advantages"] = found.to(output["advantages"])
        self._tell(outings, batch, output)
        return output

    @property
    def _size(self) -> int:
        size: int = self.num_generations if self.model.training else self.num_generations_eval
        return size

    @torch.no_grad()  # type: ignore[untyped-decorator]
    def _entropies(self, output: dict[str, Any]) -> torch.Tensor:
        """(B, T) entropies of the policy at each token, in nats."""
        ids = torch.cat([output["prompt_ids"], output["completion_ids"]], dim=1)
        mask = torch.cat([output["prompt_mask"], output["completion_mask"]], dim=1)
        width = output["completion_ids"].shape[1]
        _, entropies, _ = self._get_per_token_logps_and_entropies(
            self.model, ids, mask, width, batch_size=self.args.per_device_train_batch_size, compute_entropy=True
        )
        return entropies

    def _tell(self, outings: Sequence[Outing], batch: Batch, output: dict[str, Any]) -> None:
        """Figures of the batch. Raises DataError where the advantages of a whole window tell nothing."""
        mode = "train" if self.model.training else "eval"
        figures = self._metrics[mode]
        silent = share_without_difference(batch.rewards, batch.groups)
        if not math.isnan(silent):
            figures["groups/without_difference"].append(silent)
        figures["rollout/lost"].append(sum(each.lost for each in outings) / len(outings))
        figures["rollout/turns"].append(sum(max(each.tokens.turns) + 1 for each in outings) / len(outings))
        figures["rollout/seconds"].append(float(getattr(self.rollout_func, "seconds", 0.0)))
        advantages = output["advantages"]
        if advantages.dim() == 1:
            advantages = advantages.unsqueeze(1).expand(-1, batch.turns.shape[1])
        found = deviation(advantages.cpu(), batch.turns)
        figures["advantages/std"].append(found)
        if mode == "train":
            self.signal.add(self.accelerator.reduce(torch.tensor(found, device=self.accelerator.device), "mean").item())


def _component(name: str) -> Any:
    def never(**given: Any) -> list[float]:
        raise AssertionError("rewards come with the episodes")

    never.__name__ = name
    return never


def _row(outing: Outing, components: dict[str, float]) -> list[float]:
    if outing.earned.reward is None:
        return [math.nan] * len(components)
    return [math.nan if (part := outing.earned.parts[name]) is None else part for name in components]
