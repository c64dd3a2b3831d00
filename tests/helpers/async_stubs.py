"""A rollout worker and a weight transfer without a server: groups are sampled from a copy of the weights that arrived.

Whatever the bound admits is played when a version arrives, so a run is deterministic. `python async_stubs.py JOB.json`
runs a job with them, for tests that kill it.
"""

import queue
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from trl.experimental.async_grpo.async_rollout_worker import RolloutSample

from ratchet.components.core import InfrastructureError
from ratchet.components.training.checkpoint_io import checkpoint_step, newest_checkpoint
from ratchet.components.training.config.job_config import load_job
from ratchet.components.training.grpo.async_trainer import make_async_trainer
from ratchet.components.training.grpo.rollout_sample import named_seed
from ratchet.components.training.grpo.staleness_control import StalenessControl
from ratchet.components.training.grpo.train_grpo import make_report
from ratchet.components.training.model_loading import load_base_model, load_start_model
from ratchet.components.training.run_trainer import run_trainer
from ratchet.components.training.trainer_arguments import prepare_torch, process_index

TOKENS = 4


@dataclass(slots=True)
class Sample(RolloutSample):
    token_advantages: Any = None
    token_versions: Any = None


@dataclass
class MemoryTransfer:
    """Copies weights into `model`; `refuse_at`: number of the transfer that fails."""

    model: Any
    refuse_at: int | None = None
    calls: list[str] = field(default_factory=list)
    sent: int = 0

    def init_weight_transfer(self):
        self.calls.append("init")

    def pause(self):
        self.calls.append("pause")

    def send_weights(self, iterator):
        self.sent += 1
        if self.sent == self.refuse_at:
            raise InfrastructureError("the sampler refuses the weights")
        own = dict(self.model.named_parameters())
        with torch.no_grad():
            for name, weight in iterator:
                own[name].copy_(weight)

    def resume(self):
        self.calls.append("resume")

    def destroy(self):
        self.calls.append("destroy")


class StubWorker:
    """Attempts of four tokens, rewarded for small ids. `late`: groups that end when the trainer waits;
    `lost`: attempt numbers of each third group that are lost; `gap`: added to the reported log-probabilities.
    """

    def __init__(self, config, model, late=(), lost=(), gap=0.0):
        self.rollout_buffer, self.metrics_queue = queue.Queue(), queue.Queue()
        self.model, self.late, self.lost, self.gap = model, set(late), lost, gap
        self.size = config.grpo.group_size
        options = config.grpo.asynchronous
        batch = config.optimization.batch_size // self.size * options.weight_sync_steps
        self.control = StalenessControl(batch, options.max_staleness)
        self.version, self.next, self.started = 0, 0, False
        self.untrained, self.history, self.late_groups, self.ended = [], [], {}, {}
        self.repeat, self.stopped = [], False

    def start(self):
        self.started = True
        self._play()

    def stop(self):
        self.stopped = True

    def update_model_version(self, version):
        self.version = self.control.version = version
        if self.started:
            self._play()

    def check_health(self, stale_after_s):
        if not self.late_groups:
            raise InfrastructureError("the worker has nothing left to play")
        late, self.late_groups = self.late_groups, {}  # the trainer waits: a straggler ends
        self._release(late)

    def mark_trained(self, groups):
        self.history += groups
        self.untrained = [group for group in self.untrained if group not in groups]

    def state(self):
        return {"next": self.next, "untrained": self.untrained, "version": self.version, "history": self.history}

    def restore(self, state):
        self.next, self.repeat, self.history = state["next"], list(state["untrained"]), state["history"]
        self.control.released = len(self.history)

    def _play(self):
        ended = {}
        while self.control.can_start():
            number = self.repeat.pop(0) if self.repeat else self.next
            self.next = max(self.next, number + 1)
            if number not in self.untrained:
                self.untrained.append(number)
            self.control.start(number)
            (self.late_groups if number in self.late else ended)[number] = self._group(number)
        self._release(ended)

    def _release(self, ended):
        self.ended |= ended
        while (ready := next((number for number in self.ended if self.control.can_release(number)), None)) is not None:
            for sample in self.ended.pop(ready):
                self.rollout_buffer.put(sample)
            self.control.release(ready)

    @torch.no_grad()
    def _group(self, number):
        generator = torch.Generator().manual_seed(named_seed("stub", number))
        ids = torch.tensor([[5 + number % 7, 9, 11]]).repeat(self.size, 1)
        prompt, logprobs = ids.shape[1], []
        for _ in range(TOKENS):
            logits = torch.log_softmax(self.model(input_ids=ids).logits[:, -1].float(), -1)
            drawn = torch.multinomial(logits.exp(), 1, generator=generator)
            logprobs.append(logits.gather(-1, drawn))
            ids = torch.cat([ids, drawn], dim=1)
        old = np.concatenate([np.zeros((self.size, prompt)), torch.cat(logprobs, 1).numpy()], 1).astype(np.float32)
        rewards = (ids[:, prompt:] < 150).float().mean(1).numpy()
        advantages = (rewards - rewards.mean()) / (rewards.std() + 1e-4)
        samples = []
        for index in range(self.size):
            mask = np.array([0] * prompt + [1] * TOKENS)
            lost = number % 3 == 2 and index in self.lost
            samples.append(
                Sample(
                    [],
                    [],
                    ids[index].numpy(),
                    mask * (not lost),
                    old[index] + self.gap,
                    0.0,
                    self.version,
                    number,
                    {"reward": float("nan") if lost else float(rewards[index]), "rollout/lost": float(lost)},
                    token_advantages=(mask * advantages[index]).astype(np.float32),
                    token_versions=np.where(mask == 1, self.version, -1).astype(np.int32),
                )
            )
        return samples


def prepare(config, refuse_at=None, **stub):
    """Return a trainer, its tokenizer, worker and transfer."""
    prepare_torch(config)
    model, tokenizer = load_start_model(config, (), 8)
    worker = transfer = None
    if process_index() == 0:
        copy, _ = load_base_model(config.model.model_copy(update={"lora": None}))
        worker, transfer = StubWorker(config, copy.eval(), **stub), MemoryTransfer(copy, refuse_at)
    trainer = make_async_trainer(config, model, tokenizer, ["a", "b"], config.optimization.steps, worker, transfer)
    return trainer, tokenizer, worker, transfer


def run(config, **stub):
    """Run a job to its end; return report, trainer and worker."""
    config.output.mkdir(parents=True, exist_ok=True)
    trainer, tokenizer, worker, _ = prepare(config, **stub)
    saved = newest_checkpoint(config.output)
    fields = run_trainer(config, trainer, tokenizer, rows=2, tokens_per_step=0.0)
    return make_report(config, trainer, fields, checkpoint_step(saved) if saved else 0), trainer, worker


if __name__ == "__main__":
    report, *_ = run(load_job(Path(sys.argv[1])))
    print(report.steps)
