"""Estimate the memory of a training job before it runs, from its configuration and the sizes of its model.

Weights, gradients and optimizer state follow from what the jobs keep: float32 weights and gradients, two float32 moments
of AdamW for each trained parameter. Activations are those of a decoder layer with gated feed-forward and fused attention, counted
as in Korthikanti et al. 2022 (arXiv:2205.05198, section 4); gradient checkpointing keeps the input of each layer and one
layer whole. Rows are taken at their longest, so that shorter ones need less. Not counted: fragmentation, and the cache of a vLLM
sampler. Imports no torch.
"""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from ratchet.components.core import DataError

from .base_model import base_model_info
from .config.job_config import AnyJob, DpoConfig, GrpoConfig, SftConfig
from .config.shared_sections import ModelOptions, ModelShape
from .gpu_memory import micro_batch

FOUR_BIT_BYTES = 0.55
"""Bytes of a parameter in four bits, with its share of the scales."""
EIGHT_BIT_STATE_BYTES = 2.06
"""Bytes of AdamW's two moments of a parameter in eight bits, with the scales of their blocks."""
SHARDED = ("fsdp", "zero3")
"""Values of `run.launch` that divide the model's state among the processes."""
PROCESS_BYTES = 700_000_000
"""Memory of a process with torch and transformers before it loads a model, measured on Linux without a GPU."""


class ModelSize(msgspec.Struct, frozen=True):
    """Sizes of a model. `stored`: bytes of its weights on disk. The others are zero where only the number of
    parameters is known: then no activations are counted.
    """

    parameters: int
    stored: int
    hidden: int = 0
    layers: int = 0
    intermediate: int = 0
    vocabulary: int = 0
    queries: int = 0
    keys: int = 0


class MemoryEstimate(msgspec.Struct, frozen=True):
    """Bytes of a job in each of its processes. `model`: what `parameters` counts; `is_complete`: whether activations are
    included.
    """

    parameters: int
    trained_parameters: int
    weights: int
    gradients: int
    optimizer: int
    activations: int
    is_complete: bool

    @property
    def total(self) -> int:
        """Sum of all parts."""
        return self.weights + self.gradients + self.optimizer + self.activations


def model_size(model: ModelOptions) -> ModelSize:
    """Return the sizes of a job's base model, or of the new model of its shape. A hub's repository is asked for its
    number of parameters alone. Raises RatchetError.
    """
    if model.base is None:
        return _size_of_shape(model.shape)
    facts = base_model_info(model.base, model.revision)
    if facts.parameters is None:
        raise DataError(f"{model.base} does not say how many parameters it has; its memory cannot be estimated")
    config = Path(model.base) / "config.json"
    values = msgspec.json.decode(config.read_bytes(), type=dict[str, Any]) if config.is_file() else {}
    return ModelSize(facts.parameters, facts.size, **_widths(values))


def _widths(config: Mapping[str, Any]) -> dict[str, int]:
    """Return the widths in a `config.json`; empty for an architecture that names them otherwise."""
    names = ("hidden_size", "num_hidden_layers", "intermediate_size", "vocab_size", "num_attention_heads")
    if not all(isinstance(config.get(name), int) for name in names):
        return {}
    hidden, layers, intermediate, vocabulary, heads = (config[name] for name in names)
    head = config.get("head_dim") or hidden // heads
    keys = head * (config.get("num_key_value_heads") or heads)
    return {
        "hidden": hidden,
        "layers": layers,
        "intermediate": intermediate,
        "vocabulary": vocabulary,
        "queries": head * heads,
        "keys": keys,
    }


def _size_of_shape(shape: ModelShape) -> ModelSize:
    """Return the sizes of a Qwen3-shaped model with tied embeddings."""
    head = shape.hidden // shape.heads
    queries, keys = head * shape.heads, head * shape.kv_heads
    attention = shape.hidden * (2 * queries + 2 * keys) + 2 * head
    layer = attention + 3 * shape.hidden * shape.intermediate + 2 * shape.hidden
    parameters = shape.vocabulary * shape.hidden + shape.layers * layer + shape.hidden
    widths = (shape.hidden, shape.layers, shape.intermediate, shape.vocabulary, queries, keys)
    return ModelSize(parameters, 4 * parameters, *widths)


def estimate_memory(job: AnyJob, size: ModelSize, *, processes: int = 1, bfloat16: bool = False) -> MemoryEstimate:
    """Return the memory of a job in each of `processes` processes. `bfloat16`: whether the machine computes in it where
    `model.precision` is `auto`.
    """
    model = job.model
    half = model.precision == "bfloat16" or (bfloat16 and model.precision == "auto")
    trained = size.parameters if model.lora is None else _adapter_parameters(model.lora.r, size)
    if model.lora is None:
        weights = 4 * size.parameters * (1 + _holds_reference(job))
    elif model.quantize == "4bit":
        weights = math.ceil(FOUR_BIT_BYTES * size.parameters) + 4 * trained
    else:
        weights = (size.stored if half else 4 * size.parameters) + 4 * trained
    gradients, optimizer = 4 * trained, 8 * trained
    if job.optimization.optimizer == "adamw_8bit":
        # Those of embeddings stay in float32.
        embeddings = size.vocabulary * size.hidden if model.lora is None else 0
        optimizer = math.ceil(EIGHT_BIT_STATE_BYTES * (trained - embeddings)) + 8 * embeddings
    if isinstance(job, SftConfig) and job.optimization.optimizer == "muon":
        embeddings = size.vocabulary * size.hidden
        optimizer = 4 * (trained - embeddings) + 8 * embeddings  # Muon keeps one moment of a matrix
    if job.run.launch in SHARDED:
        weights, gradients, optimizer = (math.ceil(part / processes) for part in (weights, gradients, optimizer))
    activations = _activations(job, size, processes, 2 if half else 4)
    return MemoryEstimate(size.parameters, trained, weights, gradients, optimizer, activations, size.hidden > 0)


def _holds_reference(job: AnyJob) -> bool:
    """Return whether a second copy of the policy stays in memory. Adapters are switched off instead."""
    if isinstance(job, DpoConfig):
        return not job.dpo.precompute
    return isinstance(job, GrpoConfig) and job.grpo.beta > 0


def _adapter_parameters(rank: int, size: ModelSize) -> int:
    """Return the parameters of adapters at all linear layers."""
    attention = 2 * (size.hidden + size.queries) + 2 * (size.hidden + size.keys)
    return rank * size.layers * (attention + 3 * (size.hidden + size.intermediate))


def _activations(job: AnyJob, size: ModelSize, processes: int, width: int) -> int:
    """Return the bytes of activations of one micro-batch. `width`: bytes of a number."""
    rows = micro_batch(job, processes) * (2 if isinstance(job, DpoConfig) else 1)
    length = job.grpo.sampling.max_episode_tokens if isinstance(job, GrpoConfig) else job.format.max_length
    # Inputs of norms and matrices, queries, keys, values and the attention's output; gate, up, activation and product.
    layer = width * (5 * size.hidden + 2 * size.queries + 2 * size.keys + 4 * size.intermediate)
    kept = layer + size.layers * width * size.hidden if job.model.gradient_checkpointing else size.layers * layer
    logits = size.vocabulary * (width + 16)  # in float32 too: log-probabilities, their gradient, the gradient of logits
    return rows * length * (kept + logits)
