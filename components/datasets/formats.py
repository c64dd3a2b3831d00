"""The formats of export, and the datasets of each."""

from typing import Literal

Format = Literal["sft", "dpo", "grpo", "benchmark", "huggingface", "verifiers", "prime-rl"]

DATASETS = ("sft", "dpo", "grpo", "groups")
"""What the data build exports. `grpo` are tasks to play, `groups` attempts that were played."""

FORMATS: dict[Format, tuple[str, ...]] = {
    "sft": ("sft",),
    "dpo": ("dpo",),
    "grpo": ("grpo", "groups"),
    "benchmark": ("benchmark",),
    "huggingface": (*DATASETS, "benchmark"),
    "verifiers": ("verifiers",),
    "prime-rl": ("prime-rl",),
}
