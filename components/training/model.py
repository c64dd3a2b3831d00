"""A small Qwen3-shaped model with random weights."""

from typing import TYPE_CHECKING

import torch

from .config import ModelShape

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM


def make_model(shape: ModelShape, tokenizer: "PreTrainedTokenizerFast", seed: int) -> "Qwen3ForCausalLM":
    """Float32, tied embeddings, initialised from `seed` alone."""
    from transformers import Qwen3ForCausalLM

    torch.manual_seed(seed)
    return Qwen3ForCausalLM(make_config(shape, tokenizer))


def make_config(shape: ModelShape, tokenizer: "PreTrainedTokenizerFast") -> "Qwen3Config":
    """The architecture of that shape over that tokenizer."""
    from transformers import Qwen3Config

    return Qwen3Config(
        vocab_size=len(tokenizer),
        hidden_size=shape.hidden,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads,
        num_key_value_heads=shape.kv_heads,
        head_dim=shape.hidden // shape.heads,
        intermediate_size=shape.intermediate,
        max_position_embeddings=shape.context,
        tie_word_embeddings=True,
        rope_parameters={"rope_type": "default", "rope_theta": 10_000.0},
        attention_dropout=0.0,
        pad_token_id=tokenizer.pad_token_id,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
    )
