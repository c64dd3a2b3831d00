"""Load the model and tokenizer that a job starts from: made from scratch, a base model, or a base model under LoRA
adapters.

Trained weights are float32 whatever the compute precision: in bfloat16 small updates are rounded away and most weights
never move (Micikevicius et al. 2017, arXiv:1710.03740, keep such a master copy). A base that is frozen under adapters
keeps the precision of its files where bfloat16 is the compute precision, or is quantised to four bits.
"""

import importlib.util
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ratchet.components.core import ConfigurationError, DataError, RatchetError

from . import base_model
from .config.job_config import JobConfig
from .config.shared_sections import LoraOptions, ModelOptions

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


def uses_bfloat16(precision: str) -> bool:
    """Return whether to compute in bfloat16. `precision`: as configured; with `auto`, whether the hardware supports
    bfloat16 natively.
    """
    import torch

    if precision == "auto":
        if torch.cuda.is_available():
            return bool(torch.cuda.is_bf16_supported())
        return bool(torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported())
    return precision == "bfloat16"


def load_start_model(config: JobConfig, texts: Iterable[str], max_length: int) -> tuple[Any, "PreTrainedTokenizerBase"]:
    """Return the causal language model and tokenizer to train. `texts`: what a tokenizer from scratch is fitted on; not
    read for a base model.

    Raises RatchetError with a one-line message, also if `max_length` (tokens of a row) exceeds the model's context.
    """
    if config.model.base is None:
        from .scratch_model import fit_tokenizer, make_model

        tokenizer: PreTrainedTokenizerBase = fit_tokenizer(
            texts, config.model.shape.vocabulary, config.model.shape.digits
        )
        model: Any = make_model(config.model.shape, tokenizer, config.seed)
    else:
        model, tokenizer = load_base_model(config.model)
    check_context_length(model, max_length)
    return (model if config.model.lora is None else add_adapters(model, config.model.lora)), tokenizer


def load_base_model(model: ModelOptions) -> tuple[Any, "PreTrainedTokenizerBase"]:
    """Return the configured base model and its tokenizer. Raises RatchetError with a one-line message."""
    loaded, folder = load_weights(model)
    assert model.base is not None
    try:
        tokenizer = load_tokenizer(model.base, folder, trust_remote_code=model.trust_remote_code)
    except RatchetError:
        raise
    except Exception as error:  # transformers raises errors of many types for a broken checkpoint
        raise loading_error(model.base, error, trusted=model.trust_remote_code) from error
    return loaded, tokenizer


def load_weights(model: ModelOptions) -> tuple[Any, Path]:
    """Return the configured base model and the folder that it was read from. Raises RatchetError."""
    import torch
    from transformers import AutoModelForCausalLM

    assert model.base is not None
    folder, _ = base_model.fetch_base_model(model.base, model.revision, code=model.trust_remote_code)
    frozen = model.lora is not None and uses_bfloat16(model.precision)
    options: dict[str, Any] = {"dtype": "auto" if frozen else torch.float32}
    if model.quantize == "4bit":
        options["quantization_config"] = four_bit_config()
    try:
        loaded = AutoModelForCausalLM.from_pretrained(
            folder, use_safetensors=True, trust_remote_code=model.trust_remote_code, **options
        )
    except Exception as error:
        raise loading_error(model.base, error, trusted=model.trust_remote_code) from error
    return loaded, folder


TOKENIZER_FILES = ("tokenizer.json", "tokenizer.model", "vocab.json", "vocab.txt", "spiece.model", "tekken.json")


def load_tokenizer(base: str, folder: Path, *, trust_remote_code: bool = False) -> "PreTrainedTokenizerBase":
    """Return the tokenizer in a base model's folder; `base` is what messages call it. Raises DataError for one that lacks
    its files, an end token or a chat template.
    """
    from transformers import AutoTokenizer

    if not trust_remote_code and not any((folder / name).is_file() for name in TOKENIZER_FILES):
        raise DataError(
            f"base {base} has no tokenizer ({', '.join(TOKENIZER_FILES[:3])}); put its model's into {folder}, or take another base"
        )
    tokenizer: PreTrainedTokenizerBase = AutoTokenizer.from_pretrained(folder, trust_remote_code=trust_remote_code)
    if tokenizer.pad_token is None:
        # Safe here: collators mask padding by position, not by id, so a real end token stays trained.
        tokenizer.pad_token = tokenizer.eos_token
    if tokenizer.pad_token is None:
        raise DataError(
            f"the tokenizer of {base} has neither a pad nor an end token; set eos_token in {folder / 'tokenizer_config.json'}"
        )
    if not tokenizer.chat_template:
        raise DataError(
            f"base {base} has no chat template, so it is no chat model; take its instruct form, or put a chat_template.jinja into "
            f"a copy of {folder}"
        )
    return tokenizer


def loading_error(base: str, error: Exception, *, trusted: bool = True) -> DataError:
    """Return the one-line error for a base model that fails to load. `trusted`: whether its own Python was allowed to
    run.
    """
    first_line = next(iter(str(error).splitlines()), "") or type(error).__name__
    if not trusted and "trust_remote_code" in str(error):
        return DataError(
            f"checkpoint {base} asks to run its own Python; read it, then set model.trust_remote_code, or use another one"
        )
    return DataError(f"checkpoint {base} cannot be loaded: {first_line}; use another one")


def check_context_length(model: Any, max_length: int) -> None:
    """Raise ConfigurationError if rows of `max_length` tokens would exceed the model's context."""
    context = getattr(model.config, "max_position_embeddings", None)
    if context is not None and context < max_length:
        raise ConfigurationError(
            f"max_length {max_length} exceeds the {context} tokens that the model reads; lower format.max_length (grpo: "
            "grpo.sampling.max_new_tokens)"
        )


def four_bit_config() -> Any:
    """Return QLoRA's quantisation: NF4, double quantisation, bfloat16 compute (Dettmers et al. 2023, arXiv:2305.14314).

    Raises ConfigurationError without the package bitsandbytes.
    """
    if importlib.util.find_spec("bitsandbytes") is None:
        raise ConfigurationError("quantize: 4bit needs the package bitsandbytes; install it, or set none")
    import torch
    from transformers import BitsAndBytesConfig

    return BitsAndBytesConfig(
        load_in_4bit=True,
        bnb_4bit_quant_type="nf4",
        bnb_4bit_use_double_quant=True,
        bnb_4bit_compute_dtype=torch.bfloat16,
    )


def add_adapters(model: Any, lora: LoraOptions) -> Any:
    """Return the frozen model with new float32 LoRA adapters. Raises ConfigurationError if no module matches the
    targets.
    """
    from peft import LoraConfig, get_peft_model, prepare_model_for_kbit_training

    if getattr(model, "is_loaded_in_4bit", False):
        # Freezes the base and casts the layers that are not quantised to float32.
        model = prepare_model_for_kbit_training(model, use_gradient_checkpointing=False)
    targets = lora.targets if isinstance(lora.targets, str) else list(lora.targets)
    shape = LoraConfig(
        r=lora.r, lora_alpha=lora.alpha, lora_dropout=lora.dropout, target_modules=targets, task_type="CAUSAL_LM"
    )
    try:
        return get_peft_model(model, shape)
    except ValueError as error:
        raise ConfigurationError(
            f"model.lora.targets: {next(iter(str(error).splitlines()), 'no such module')}"
        ) from error


def has_adapters(model: Any) -> bool:
    """Return whether the model is trained through adapters alone."""
    return hasattr(model, "peft_config") and hasattr(model, "merge_and_unload")


def merge_adapters(config: ModelOptions, model: Any, adapter: Path) -> Any:
    """Return the float32 model with its adapter merged; `model` itself is changed. For a quantised base, its original
    weights are loaded instead and merged with the adapter saved in folder `adapter`.
    """
    return model.float().merge_and_unload() if config.quantize == "none" else merge_saved_adapters(config, adapter)


def merge_saved_adapters(config: ModelOptions, adapter: Path) -> Any:
    """Return the float32 base model with a saved adapter merged into it."""
    from peft import PeftModel

    base, _ = load_base_model(config.model_copy(update={"quantize": "none", "lora": None}))
    return PeftModel.from_pretrained(base, adapter).merge_and_unload()
