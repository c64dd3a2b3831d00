"""Samplers for a policy in training: the trained model itself, vLLM in its process, or a vLLM server with LoRA
adapters.
"""

import hashlib
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ratchet.components.core import ConfigurationError
from ratchet.components.models.checkpoint_folders import WEIGHTS
from ratchet.components.models.endpoint import Endpoint
from ratchet.components.models.sampled_policy import Sampled, SamplingParameters
from ratchet.components.models.vllm_policy import VllmSampler

from ..checkpoint_io import atomic_folder
from ..config.job_config import GrpoConfig
from ..model_loading import has_adapters

ROWS_PER_TRAINED_ROW = 8
"""Rows sampled at once per row of a training micro-batch: sampling needs far less memory than training."""


class ModelSampler:
    """Sample from the model of a TRL trainer with its current weights. `stops`: ids of the tokens that end a reply;
    `context`: context length in tokens.

    Raises ConfigurationError for weights sharded over processes: they would have to be gathered for every token, by
    processes whose episodes differ in length.
    """

    def __init__(self, trainer: Any, stops: Sequence[int], context: int) -> None:
        if trainer.is_fsdp_enabled or (
            trainer.is_deepspeed_enabled and trainer.accelerator.state.deepspeed_plugin.zero_stage == 3
        ):
            raise ConfigurationError(
                "grpo.sampling.sampler: transformers cannot draw from weights that are sharded over processes; take colocate or "
                "vllm, or launch without FSDP and ZeRO-3"
            )
        self.stops, self.context_length = stops, context
        self._trainer = trainer

    def sample(
        self, prompts: Sequence[Sequence[int]], seeds: Sequence[int], sampling: SamplingParameters
    ) -> list[Sampled]:
        """Draw one reply per prompt (token ids), see Sampler."""
        from trl.models import unwrap_model_for_generation

        from ratchet.components.models.transformers_policy import sample_batch

        trainer = self._trainer
        size = ROWS_PER_TRAINED_ROW * trainer.args.per_device_train_batch_size
        result: list[Sampled] = []
        with unwrap_model_for_generation(
            trainer.model_wrapped,
            trainer.accelerator,
            gather_deepspeed3_params=trainer.args.ds3_gather_for_generation,
            gradient_checkpointing_kwargs=trainer.args.gradient_checkpointing_kwargs,
        ) as model:
            training = model.training
            # With dropout the log-probabilities of sampling would not be those of the trained weights.
            model.eval()
            try:
                for begin in range(0, len(prompts), size):
                    rows = slice(begin, begin + size)
                    pad = trainer.processing_class.pad_token_id
                    result += sample_batch(model, prompts[rows], seeds[rows], sampling, stops=self.stops, pad=pad)
            finally:
                model.train(training)
        return result


class ColocatedSampler:
    """Sample from the vLLM engine that TRL keeps in the training process and updates before each rollout. Arguments as
    for ModelSampler.

    Uses vLLM's own random stream: `seeds` are ignored, so draws cannot be repeated.
    """

    def __init__(self, trainer: Any, stops: Sequence[int], context: int) -> None:
        self.stops, self.context_length = stops, context
        self._trainer = trainer

    def sample(
        self, prompts: Sequence[Sequence[int]], seeds: Sequence[int], sampling: SamplingParameters
    ) -> list[Sampled]:
        """Draw one reply per prompt (token ids), see Sampler."""
        generation = self._trainer.vllm_generation
        generation.max_completion_length = sampling.max_new_tokens  # TRL sets the limit of a whole episode
        _, completions, logprobs, _ = generation.generate(
            prompts=[list(prompt) for prompt in prompts], images=None, num_generations=1
        )
        return [
            Sampled(tuple(ids), tuple(item[0] for item in scores))
            for ids, scores in zip(completions, logprobs, strict=True)
        ]


MAX_LOGPROB_GAP = 0.5
"""Mean difference in nats per token that rounding alone never causes between two engines, bfloat16 included."""


class AdapterPublisher:
    """Writes the LoRA adapter of `model` to `folder`, which the server must be able to read, and loads it there. Names have
    a content hash: the server caches prompts by adapter name. `keep`: earlier adapters that stay loaded, and on disk.
    """

    def __init__(self, server: VllmSampler, folder: Path, *, keep: int = 0) -> None:
        self._server, self._folder, self._keep = server, folder, keep
        self._published: list[Path] = []

    def publish(self, model: Any, step: int) -> None:
        """Write and load the adapter of `step`, then delete the oldest one. `model`: unwrapped."""
        with atomic_folder(self._folder / "next") as index:
            model.save_pretrained(index, save_embedding_layers=False)
        # A resumed job repeats a step with other weights. Under the same name, vLLM would reuse the old prompts' cache.
        digest = hashlib.sha256((self._folder / "next" / WEIGHTS).read_bytes()).hexdigest()[:12]
        folder = self._folder / f"step-{step}-{digest}"
        shutil.rmtree(folder, ignore_errors=True)
        (self._folder / "next").replace(folder)
        self._server.load(f"{self._folder.parent.name}-{folder.name}", folder, keep=self._keep)
        self._published = [*(item for item in self._published if item != folder), folder]
        while len(self._published) > self._keep + 1:
            shutil.rmtree(self._published.pop(0))


class AdapterSampler:
    """Sample from a vLLM server of the base model, with the LoRA adapter in training; see AdapterPublisher.

    Raises ConfigurationError if weights outside an adapter are trained, or in several processes, since a server holds one
    adapter at a time.
    """

    def __init__(self, trainer: Any, server: VllmSampler, folder: Path) -> None:
        if not has_adapters(trainer.model):
            raise ConfigurationError(
                "grpo.sampling.sampler: vllm loads LoRA adapters; set model.lora, or take colocate"
            )
        if trainer.args.world_size > 1:
            raise ConfigurationError("grpo.sampling.sampler: vllm serves one process; take colocate, or launch: single")
        self.stops, self._server, self._trainer = server.stops, server, trainer
        self._publisher = AdapterPublisher(server, folder)
        self._step: int | None = None

    @property
    def context_length(self) -> int:
        """Context length of the server."""
        return self._server.context_length

    def sample(
        self, prompts: Sequence[Sequence[int]], seeds: Sequence[int], sampling: SamplingParameters
    ) -> list[Sampled]:
        """Draw one reply per prompt (token ids), see Sampler. Raises ConfigurationError if the server takes no
        adapters.
        """
        step: int = self._trainer.state.global_step
        first = self._step is None
        if step != self._step:
            self._publisher.publish(self._trainer.accelerator.unwrap_model(self._trainer.model), step)
            self._step = step
        samples = self._server.sample(prompts, seeds, sampling)
        if first and samples:
            self._compare(prompts[0], samples[0], sampling)
        return samples

    def _compare(self, prompt: Sequence[int], drawn: Sampled, sampling: SamplingParameters) -> None:
        """Raise ConfigurationError if the server's log-probabilities cannot come from the trained weights."""
        import torch

        model = self._trainer.accelerator.unwrap_model(self._trainer.model)
        ids = torch.tensor([[*prompt, *drawn.ids]], device=model.device)
        training = model.training
        model.eval()
        with torch.no_grad(), self._trainer.accelerator.autocast():
            logits = model(input_ids=ids, use_cache=False).logits[0, len(prompt) - 1 : -1]
        model.train(training)
        own = torch.log_softmax(logits.float() / sampling.temperature, -1).gather(-1, ids[0, len(prompt) :, None])[:, 0]
        gap = (own.cpu() - torch.tensor(drawn.logprobs)).abs().mean().item()
        if gap > MAX_LOGPROB_GAP:
            raise ConfigurationError(
                f"grpo.sampling.server serves another base than model.base: its log-probabilities are {gap:.2g} nats a token "
                "from the trained model's; start it with `ratchet serve` of that base"
            )

    def close(self) -> None:
        """Close the connection; the last adapter stays on disk and in the server."""
        self._server.close()


def served_sampler(config: GrpoConfig, trainer: Any, stops: Sequence[int]) -> AdapterSampler:
    """Return a sampler from the configured vLLM server; adapters are written to the job's output folder. `stops`: ids
    of the tokens that end a reply.
    """
    assert config.grpo.sampling.server is not None
    endpoint = Endpoint(base_url=config.grpo.sampling.server, model=config.model.base or "base", concurrency=256)
    return AdapterSampler(trainer, VllmSampler(endpoint, stops), config.output / "adapters")
