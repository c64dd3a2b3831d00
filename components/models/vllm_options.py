"""Options of a vLLM server by the names of vLLM's own engine arguments, as the section `vllm` of a scale gives them."""

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ratchet.components.core import ConfigurationError
from ratchet.components.core.library_options import check_options, declared_fields

DECIDED = {
    **dict.fromkeys(("model", "model_weights", "served_model_name"), "Ratchet serves the policy that plays"),
    **dict.fromkeys(
        ("tokenizer", "skip_tokenizer_init", "tokenizer_mode"), "Ratchet sends token ids of the policy's own tokenizer"
    ),
    **dict.fromkeys(("revision", "code_revision", "tokenizer_revision"), "set model.revision of the job"),
    **dict.fromkeys(
        ("enable_lora", "max_loras", "max_lora_rank"), "Ratchet sets it for the adapters that it serves (--adapters)"
    ),
    "logprobs_mode": "Ratchet needs the log-probabilities of what is sampled from",
    "seed": "Ratchet seeds each request, from the seed of the night",
    "generation_config": "set temperature in collection or evaluation, and max_new_tokens in the scale",
    "trust_remote_code": "set model.trust_remote_code of the job",
}
"""Engine arguments that Ratchet decides, with the reason or the place where each is set."""


def check_vllm_options(options: Mapping[str, Any], python: Path | None) -> None:
    """Raise ConfigurationError for an option that Ratchet decides, or that the vLLM of an environment does not know.
    `python`: interpreter of that environment; None to check no names.
    """
    if not options:
        return
    names: set[str] = set()
    for source in python.parent.parent.glob("lib*/python*/site-packages/vllm/engine/arg_utils.py") if python else ():
        names |= declared_fields(source, "EngineArgs", "AsyncEngineArgs")
    check_options("vllm", "vLLM", options, DECIDED, names)


def vllm_command_line(options: Mapping[str, Any]) -> tuple[str, ...]:
    """Return options as vLLM's command line: `--name value`, `--name` or `--no-name` for a truth value, JSON for a mapping
    or a list; an option that is None is left to vLLM.
    """
    words: list[str] = []
    for name, value in options.items():
        flag = name.replace("_", "-")
        if isinstance(value, bool):
            words.append(f"--{flag}" if value else f"--no-{flag}")
        elif value is not None:
            words += [f"--{flag}", json.dumps(value) if isinstance(value, dict | list) else str(value)]
    return tuple(words)


UNITS = {"k": 10**3, "m": 10**6, "g": 10**9, "K": 2**10, "M": 2**20, "G": 2**30}


def option_number(options: Mapping[str, Any], name: str, default: float) -> float:
    """Return the number that an option gives, also in vLLM's notation ("16k", "16K"); `default` where it is not given or
    "auto". Raises ConfigurationError for what is no number above 0.
    """
    text = str(options.get(name)).strip()
    if text.lower() in ("none", "auto", "-1"):
        return default
    unit = UNITS.get(text[-1:], 1)
    try:
        number = float(text[: len(text) - (unit > 1)]) * unit
    except ValueError:
        number = 0.0
    if not 0 < number < math.inf:
        raise ConfigurationError(f"vllm.{name}: {text} is not a number above 0; correct it")
    return number


def server_gpus(options: Mapping[str, Any]) -> int:
    """Return the number of GPUs of a server: its tensor, pipeline and data parallelism."""
    return math.prod(int(option_number(options, f"{kind}_parallel_size", 1)) for kind in ("tensor", "pipeline", "data"))
