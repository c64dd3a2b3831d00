"""vLLM plugin for CPU-only servers, which mends two defects of vLLM 0.32 on CPUs. Remove each with the release that does.

- A request for the base model is affected by adapters in the same batch: vLLM reads the index for "no adapter", -1, as
  the last adapter (vllm-project/vllm#48421). The plugin zeroes the first of the two LoRA products for such rows, and with
  it the second.
- An output layer that is tied to the embedding keeps its old weights when weights are loaded again: it multiplies by a
  packed copy, which vLLM makes anew only for layers that a file names. The plugin packs it again.
"""

import importlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

NAME = "ratchet_cpu"


def register() -> None:
    """Entry point that vLLM calls in each of its processes."""
    punica_cpu: Any = importlib.import_module("vllm.lora.punica_wrapper.punica_cpu")
    punica_cpu.bgmv_shrink = skip_rows_without_adapter(punica_cpu.bgmv_shrink)
    punica_cpu.sgmv_shrink = skip_sequences_without_adapter(punica_cpu.sgmv_shrink)
    reload: Any = importlib.import_module("vllm.model_executor.model_loader.reload.inplace")
    reload.finalize_layerwise_reload = pack_output_layers(reload.finalize_layerwise_reload)


def pack_output_layers(finalize: Callable[..., None]) -> Callable[..., None]:
    """Wrap `finalize_layerwise_reload`, which ends a reload of a model, to pack its output layers again."""

    def call(model: Any, *more: Any) -> None:
        finalize(model, *more)
        for layer in model.modules():
            if type(layer).__name__ == "ParallelLMHead":
                layer.quant_method.process_weights_after_loading(layer)

    return call


def skip_rows_without_adapter(shrink: Callable[..., None]) -> Callable[..., None]:
    """Wrap `bgmv_shrink` (inputs (B, D), output (B, R), adapter indices (B,)) to write zero rows where there is no
    adapter.
    """

    def call(inputs: Any, weights: Any, output: Any, indices: Any, *more: Any) -> None:
        shrink(inputs, weights, output, indices, *more)
        output[: len(indices)][indices < 0] = 0

    return call


def skip_sequences_without_adapter(shrink: Callable[..., None]) -> Callable[..., None]:
    """Wrap `sgmv_shrink` likewise; its rows are sequences with a length and an adapter index each."""

    def call(inputs: Any, weights: Any, output: Any, starts: Any, lengths: Any, indices: Any, *more: Any) -> None:
        shrink(inputs, weights, output, starts, lengths, indices, *more)
        rows = indices.repeat_interleave(lengths)
        output[: len(rows)][rows < 0] = 0

    return call


def write_plugin(folder: Path) -> Path:
    """Write this module as an installed plugin into the folder, and return the folder for PYTHONPATH."""
    facts = folder / f"{NAME}-1.dist-info"
    facts.mkdir(parents=True)
    (folder / f"{NAME}.py").write_bytes(Path(__file__).read_bytes())
    (facts / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {NAME}\nVersion: 1\n")
    (facts / "entry_points.txt").write_text(f"[vllm.general_plugins]\n{NAME} = {NAME}:register\n")
    return folder
