"""Peaks of memory that training jobs reach, beside those that `ratchet plan` predicts.

    python benchmarks/memory.py [--json] [--quick] [--only CASE]

Whole jobs train models with random weights for two steps in float32 on a CPU: all weights and adapters, with and without gradient
checkpointing, one and several micro-batches a step, SFT and DPO, models whose memory is mostly layers, rows or vocabulary. Measured
is the peak of resident memory above that of the process before the job (Linux's VmHWM). Exit code 1 where a prediction is more than
20 % from its peak. On a GPU, benchmarks/gpu.py compares the same predictions with torch's own count.
"""

import argparse
import gc
import json
import os
import random
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

TOLERANCE = 0.2
WIDE = {"hidden": 384, "layers": 2, "heads": 6, "kv_heads": 2, "intermediate": 1152}
DEEP = {"hidden": 192, "layers": 8, "heads": 4, "kv_heads": 2, "intermediate": 576}
TINY = {"hidden": 64, "layers": 1, "heads": 2, "kv_heads": 1, "intermediate": 64}
LORA = {"lora": {"r": 8}}
AGAIN = {"gradient_checkpointing": True}
Case = tuple[str, dict[str, int], int, int, int, dict[str, Any]]
CASES: dict[str, Case] = {
    "sft, adapters": ("sft", DEEP, 1000, 1024, 1, LORA),
    "sft, all weights": ("sft", WIDE, 8000, 512, 1, {}),
    "sft, accumulated": ("sft", WIDE, 16000, 256, 2, {}),
    "sft, large vocabulary": ("sft", WIDE, 64000, 128, 1, {}),
    "sft, checkpointing": ("sft", DEEP, 1000, 1536, 1, AGAIN),
    "sft, adapters, checkpointing": ("sft", DEEP, 8000, 1024, 1, LORA | AGAIN),
    "dpo, all weights": ("dpo", WIDE, 4000, 512, 1, {}),
    "dpo, adapters": ("dpo", DEEP, 1000, 512, 1, LORA),
}
"""Method, shape, vocabulary, tokens of a row, micro-batches a step, further options of the model."""
QUICK = ("sft, adapters",)
STEPS = 2


def compare(name: str, case: Case) -> dict[str, Any]:
    """Train one case in this process; return its prediction and its peak, in bytes."""
    from ratchet.components.training import job
    from ratchet.components.training.config.job_config import load_job
    from ratchet.components.training.config.shared_sections import ModelOptions
    from ratchet.components.training.memory_estimate import estimate_memory, model_size

    method, shape, vocabulary, length, batch, options = case
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        _make_base(folder, method, shape, vocabulary, length, STEPS * batch + 1)
        values = {
            "method": method,
            "output": str(folder / "out"),
            "data": {"train": str(folder / "rows.jsonl")},
            "model": {"base": str(folder / "base"), "precision": "float32", **options},
            "format": {"max_length": length},
            "optimization": {"batch_size": batch, "micro_batch": 1, "steps": STEPS, "warmup_steps": 0},
        }
        config = load_job(values)
        predicted = estimate_memory(config, model_size(ModelOptions(base=str(folder / "base"))))
        gc.collect()
        Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
        before, begun = _status("VmRSS"), time.monotonic()
        job.run(config)
        peak = _status("VmHWM") - before
    parts = ("weights", "gradients", "optimizer", "activations", "logits", "total")
    print(f"{name}: {predicted.total / peak:.2f}, {time.monotonic() - begun:.0f} s", file=sys.stderr, flush=True)
    return {"measured": peak, **{part: getattr(predicted, part) for part in parts}}


def _make_base(folder: Path, method: str, shape: dict[str, int], vocabulary: int, length: int, count: int) -> None:
    """Write a model with random weights, and rows that nearly fill its length."""
    from transformers import Qwen3ForCausalLM

    from ratchet.components.training.config.shared_sections import ModelShape
    from ratchet.components.training.scratch_model import fit_tokenizer, make_config

    words = [f"word{number}" for number in range(50)]
    tokenizer = fit_tokenizer([" ".join(words)] * 4, 400)
    config = make_config(ModelShape(**shape, context=4096), tokenizer)
    config.vocab_size = vocabulary
    Qwen3ForCausalLM(config).save_pretrained(folder / "base")
    tokenizer.save_pretrained(folder / "base")
    rows = [_row(method, length, tokenizer, words, seed) for seed in range(count)]
    (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def _row(method: str, length: int, tokenizer: Any, words: list[str], seed: int) -> dict[str, Any]:
    """A row of nearly `length` tokens."""
    draw = random.Random(seed)
    count = length
    while True:
        text = " ".join(draw.choices(words, k=count))
        chat = [{"role": "user", "content": "go"}, {"role": "assistant", "content": text}]
        tokens = len(tokenizer.apply_chat_template(chat, tokenize=True, return_dict=True)["input_ids"])
        if tokens <= length - 8:
            break
        count = min(count - 1, count * (length - 8) // tokens)
    if method == "sft":
        return {"messages": chat, "episode_id": f"ep-{seed}"}
    other = [{"role": "assistant", "content": text[::-1][: len(text)] if seed % 2 else text.replace("word1", "word2")}]
    return {"prompt": chat[:1], "chosen": chat[1:], "rejected": other, "episode_ids": [f"a-{seed}", f"b-{seed}"]}


def _status(name: str) -> int:
    (line,) = (line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(name))
    return 1024 * int(line.split()[1])


def measure(names: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Prediction and peak of each case, in bytes; first a job that imports what the others need."""
    for method in ("sft", "dpo"):
        compare(f"warm-up, {method}", (method, TINY, 400, 64, 1, LORA))
    return {name: compare(name, CASES[name]) for name in names}


def main() -> int:
    """Measure and print; exit code 1 where a prediction is too far from its peak."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--quick", action="store_true", help="one case")
    parser.add_argument("--only", choices=CASES)
    given = parser.parse_args()
    if "MALLOC_MMAP_THRESHOLD_" not in os.environ:  # then glibc gives every tensor back as soon as it is freed
        os.execve(sys.executable, [sys.executable, *sys.argv], os.environ | {"MALLOC_MMAP_THRESHOLD_": "65536"})
    figures = measure([given.only] if given.only else QUICK if given.quick else tuple(CASES))
    ratios = {name: row["total"] / row["measured"] for name, row in figures.items()}
    if given.json:
        print(json.dumps({name: row | {"ratio": ratios[name]} for name, row in figures.items()}))
    else:
        parts = ("weights", "gradients", "optimizer", "activations", "logits", "total", "measured")
        print(f"{'MB':30}" + "".join(f"{part:>12}" for part in parts) + f"{'ratio':>8}")
        for name, row in figures.items():
            print(f"{name:30}" + "".join(f"{row[part] / 1e6:12.0f}" for part in parts) + f"{ratios[name]:8.2f}")
        print(f"promised: every ratio within {1 - TOLERANCE:g} to {1 + TOLERANCE:g}")
    return any(abs(ratio - 1) > TOLERANCE for ratio in ratios.values())


if __name__ == "__main__":
    sys.exit(main())
