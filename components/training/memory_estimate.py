"""Estimate the memory of a training job and of a vLLM server before they run, from configurations alone.

Weights, gradients and optimizer state follow from what the jobs keep: float32 weights and gradients, two float32 moments
of AdamW for each trained parameter. Activations are those that PyTorch saves in a decoder layer with gated feed-forward and
fused attention (in the manner of Korthikanti et al. 2022, arXiv:2205.05198, section 4); gradient checkpointing keeps the
input of each layer and one layer whole. TRL computes log-probabilities in tiles (`HEAD_TOKENS` x `HEAD_WORDS`), never all
logits. Rows are taken at their longest, so that shorter ones need less. Not counted: fragmentation and the CUDA context.

`benchmarks/memory.py` compares the estimates with measured peaks. Imports no torch.
"""

import math
from collections.abc import Mapping
from typing import Any

import msgspec

from ratchet.components.core import DataError, InfrastructureError
from ratchet.components.models.vllm_options import option_number, server_gpus

from .base_model import base_model_config, base_model_info
from .config.job_config import AnyJob, DpoConfig, GrpoConfig, PrmConfig, SftConfig
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
HEAD_TOKENS, HEAD_WORDS = 4096, 32768
"""Size of the largest tile of logits that TRL 1.16 computes at a time (`trl.kernels.chunked_logprob`)."""
EVALUATED_ROWS = 4
"""Rows of an evaluation per row of a training micro-batch."""
SAMPLED_ROWS = 8
"""Rows that the trained model samples at a time per row of a micro-batch."""
VLLM_ENGINE_BYTES = 3_000_000_000
"""What vLLM takes on a GPU beside weights and cache: CUDA context, graphs, activations of a batch; an upper estimate."""


class ModelSize(msgspec.Struct, frozen=True):
    """Sizes of a model. `stored`: bytes of its weights on disk. The others are zero where only the number of
    parameters is known: then no activations are counted. `is_tied`: whether input and output embeddings are one matrix;
    `normed_heads`: whether queries and keys are normalised (Qwen3).
    """

    parameters: int
    stored: int
    hidden: int = 0
    layers: int = 0
    intermediate: int = 0
    vocabulary: int = 0
    queries: int = 0
    keys: int = 0
    context: int | None = None
    is_tied: bool = True
    normed_heads: bool = False

    @property
    def cache_per_token(self) -> int:
        """Bytes of a token in a cache of keys and values of two bytes each."""
        return 2 * 2 * self.layers * self.keys


class MemoryEstimate(msgspec.Struct, frozen=True):
    """Bytes of a job in each of its processes. `model`: what `parameters` counts; `logits`: tiles of logits and their
    gradients; `sampler`: what the sampling of GRPO holds beside the model; `is_complete`: whether activations are included;
    `total`: the largest sum of parts that are there at the same time.
    """

    parameters: int
    trained_parameters: int
    weights: int
    gradients: int
    optimizer: int
    activations: int
    logits: int
    sampler: int
    total: int
    is_complete: bool


class ServerEstimate(msgspec.Struct, frozen=True):
    """Bytes of a vLLM server on each of its GPUs. `cache`: what its share of the GPU leaves for keys and values;
    `rows`: sequences of `context` tokens that the cache holds at once, below 1 where it cannot start.
    """

    weights: int
    cache: int
    context: int
    rows: float


def model_size(model: ModelOptions) -> ModelSize:
    """Return the sizes of a job's base model, or of the new model of its shape. Of a hub's repository its `config.json`
    alone is downloaded. Raises RatchetError.
    """
    if model.base is None:
        return _size_of_shape(model.shape)
    config = base_model_config(model.base, model.revision)
    text = config.get("text_config") or config
    widths = _widths(text)
    try:
        facts = base_model_info(model.base, model.revision)
        parameters, stored = facts.parameters, facts.size
    except InfrastructureError:  # the hub is away, and of the cache the configuration is enough
        parameters = None
    if parameters is None:
        parameters = _parameters(widths, text)
        stored = (2 if (text.get("dtype") or text.get("torch_dtype")) in ("bfloat16", "float16") else 4) * (
            parameters or 0
        )
    if parameters is None:
        raise DataError(f"{model.base} does not say how many parameters it has; its memory cannot be estimated")
    return ModelSize(parameters, stored, **widths)


def _widths(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the widths in a `config.json`; empty for an architecture that names them otherwise."""
    names = ("hidden_size", "num_hidden_layers", "intermediate_size", "vocab_size", "num_attention_heads")
    if not all(isinstance(config.get(name), int) for name in names):
        return {}
    hidden, layers, intermediate, vocabulary, heads = (config[name] for name in names)
    head = config.get("head_dim") or hidden // heads
    keys = head * (config.get("num_key_value_heads") or heads)
    kind = str(config.get("model_type"))
    return {
        "hidden": hidden,
        "layers": layers,
        "intermediate": intermediate,
        "vocabulary": vocabulary,
        "queries": head * heads,
        "keys": keys,
        "context": config.get("max_position_embeddings"),
        "is_tied": config.get("tie_word_embeddings", kind.startswith("gemma")),
        "normed_heads": kind.startswith(("qwen3", "gemma3")),
    }


def _parameters(widths: Mapping[str, Any], config: Mapping[str, Any]) -> int | None:
    """Return the parameters of a dense decoder of those widths, biases apart; None for any other model."""
    if not widths or any("expert" in name for name in config):
        return None
    hidden, vocabulary = widths["hidden"], widths["vocabulary"]
    attention = hidden * 2 * (widths["queries"] + widths["keys"])
    layer = attention + 3 * hidden * widths["intermediate"] + 2 * hidden
    return int(vocabulary * hidden * (2 - widths["is_tied"]) + widths["layers"] * layer + hidden)


def _size_of_shape(shape: ModelShape) -> ModelSize:
    """Return the sizes of a Qwen3-shaped model with tied embeddings."""
    config = {
        "model_type": "qwen3",
        "hidden_size": shape.hidden,
        "num_hidden_layers": shape.layers,
        "intermediate_size": shape.intermediate,
        "vocab_size": shape.vocabulary,
        "num_attention_heads": shape.heads,
        "num_key_value_heads": shape.kv_heads,
        "max_position_embeddings": shape.context,
        "tie_word_embeddings": True,
    }
    widths = _widths(config)
    # Queries and keys have a norm of the size of a head each.
    parameters = (_parameters(widths, config) or 0) + 2 * (shape.hidden // shape.heads) * shape.layers
    return ModelSize(parameters, 4 * parameters, **widths)


def estimate_memory(
    job: AnyJob, size: ModelSize, *, processes: int = 1, bfloat16: bool = False, device_bytes: int = 0
) -> MemoryEstimate:
    """Return the memory of a job in each of `processes` processes. `bfloat16`: whether the machine computes in it where
    `model.precision` is `auto`. `device_bytes`: memory of a GPU, of which a colocated vLLM takes its share; 0 on a CPU.
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
    rows = micro_batch(job, processes) * (2 if isinstance(job, DpoConfig) else 1)
    length = row_tokens(job)
    held, working, evaluation = _activations(job, size, rows * length, half=half)
    if half and model.lora is None:
        held += 2 * size.parameters // (processes if job.run.launch in SHARDED else 1)  # autocast's copies
    logits = 0 if isinstance(job, PrmConfig) else _logits(size, rows * length, 2 if half else 4, bool(device_bytes))
    merged = size.stored if half and model.lora is not None else 4 * size.parameters
    sampler, colocated = _sampler(job, size, rows * length, device_bytes, merged)
    # Gradients of one micro-batch are there while the next one is computed; of a single one, only once its activations go.
    accumulates = job.optimization.batch_size > micro_batch(job, processes) * processes
    doubled = 4 * size.vocabulary * size.hidden if size.is_tied and model.lora is None else 0  # of a tied embedding
    # The head has gone when the layers are left, one after the other.
    stepping = max(held + max(working, logits) + gradients * accumulates, gradients + doubled, evaluation)
    total = weights + optimizer + (sampler + stepping if colocated else max(sampler, stepping))
    return MemoryEstimate(
        size.parameters,
        trained,
        weights,
        gradients,
        optimizer,
        held + working,
        logits,
        sampler,
        total,
        size.hidden > 0,
    )


def row_tokens(job: AnyJob) -> int:
    """Return the tokens of the longest row that a job trains on."""
    return job.grpo.sampling.max_episode_tokens if isinstance(job, GrpoConfig) else job.format.max_length


def _holds_reference(job: AnyJob) -> bool:
    """Return whether a second copy of the policy stays in memory. Adapters are switched off instead."""
    if isinstance(job, DpoConfig):
        return not job.dpo.precompute
    return isinstance(job, GrpoConfig) and job.grpo.beta > 0


def _adapter_parameters(rank: int, size: ModelSize) -> int:
    """Return the parameters of adapters at all linear layers."""
    attention = 2 * (size.hidden + size.queries) + 2 * (size.hidden + size.keys)
    return rank * size.layers * (attention + 3 * (size.hidden + size.intermediate))


def _activations(job: AnyJob, size: ModelSize, tokens: int, *, half: bool) -> tuple[int, int, int]:
    """Return the bytes that the layers hold for a micro-batch of `tokens` tokens until they are left, those of the layer
    that is being left, and those of an evaluation.
    """
    width, adapters = 2 if half else 4, job.model.lora is not None
    # A norm saves its float32 input, a trained one also what it scales; the inputs of q, k, v and of gate, up are one
    # tensor in float32, and a bfloat16 copy for each matrix under autocast.
    norms = 2 * 4 * (1 if adapters else 2) * size.hidden + (5 * 2 if half else 2 * 4) * size.hidden
    heads = 4 * (1 if adapters else 2) * (size.queries + size.keys) if size.normed_heads else 0
    # Queries, keys and values, the attention's output as it is and in order; gate, its activation, up and the product.
    layer = norms + heads + width * (3 * size.queries + 2 * size.keys + 4 * size.intermediate)
    backward = width * (3 * size.intermediate + 2 * size.hidden)  # gradients inside the layer that is being left
    evaluation = EVALUATED_ROWS * width * (3 * size.intermediate + 3 * size.hidden)
    if job.model.gradient_checkpointing:
        held, working = size.layers * 4 * size.hidden, layer + backward
    else:
        held, working = size.layers * layer, backward
    return tokens * held, tokens * working, tokens * evaluation


def _logits(size: ModelSize, tokens: int, width: int, gpu: bool) -> int:
    """Return the bytes of the language head: a tile of logits, and the hidden states with their gradients."""
    tile = min(tokens, HEAD_TOKENS) * min(size.vocabulary, HEAD_WORDS)
    # Without Triton the tile's gradient is computed by PyTorch, through seven more float32 tensors of its size.
    return tile * (width if gpu else width + 7 * 4) + tokens * size.hidden * (width + 4)


def _sampler(job: AnyJob, size: ModelSize, tokens: int, device_bytes: int, merged: int) -> tuple[int, bool]:
    """Return the bytes that sampling takes beside the model, and whether it keeps them while the job trains. `merged`: bytes
    of the weights without adapters.
    """
    if not isinstance(job, GrpoConfig) or job.grpo.offline or job.grpo.sampling.sampler == "vllm":
        return 0, False
    if job.grpo.sampling.sampler == "colocate":
        share = float(job.trl.get("vllm_gpu_memory_utilization", 0.3))  # TRL's default
        return round(share * device_bytes) or 2 * size.parameters, not job.trl.get("vllm_enable_sleep_mode")
    cache = SAMPLED_ROWS * tokens * size.cache_per_token
    if job.grpo.asynchronous is None:
        return cache, False
    # The sampler has a copy of the model, and a second one stands beside it until it takes the next version.
    return cache + 2 * merged, True


def estimate_server(size: ModelSize, device_bytes: int, options: Mapping[str, Any]) -> ServerEstimate:
    """Return the memory of a vLLM server on each of its GPUs of `device_bytes`. `options`: a scale's section `vllm`. Raises
    ConfigurationError for an option that is no number.
    """
    gpus = server_gpus({**options, "data_parallel_size": 1})
    weights = 2 * size.parameters // gpus
    share = option_number(options, "gpu_memory_utilization", 0.9)  # vLLM's default
    cache = max(0, round(share * device_bytes) - weights - VLLM_ENGINE_BYTES)
    context = int(option_number(options, "max_model_len", size.context or 0))
    sequence = size.cache_per_token * context / gpus
    return ServerEstimate(weights, cache, context, cache / sequence if sequence else 0.0)
