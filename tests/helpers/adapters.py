"""LoRA adapters: folders made by hand, for what looks at files alone, and real ones on a small checkpoint."""

import json
import struct
from pathlib import Path


def tensor_file(path: Path, data: bytes) -> None:
    """A safetensors file of one tensor of two numbers."""
    header = json.dumps({"w": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}}).encode()
    path.write_bytes(struct.pack("<Q", len(header)) + header + data)


def plain_checkpoint(folder: Path, data: bytes = b"\0" * 8) -> Path:
    """A checkpoint as far as its files go."""
    folder.mkdir(parents=True)
    tensor_file(folder / "model.safetensors", data)
    (folder / "config.json").write_text("{}")
    return folder


def plain_adapter(folder: Path, base: Path, data: bytes = b"\1" * 8, **settings: object) -> Path:
    """An adapter of that base as far as its files go."""
    folder.mkdir(parents=True)
    tensor_file(folder / "adapter_model.safetensors", data)
    told = {"peft_type": "LORA", "r": 4, "target_modules": ["q_proj", "v_proj"], "base_model_name_or_path": str(base)}
    (folder / "adapter_config.json").write_text(json.dumps(told | settings))
    return folder


def make_adapter(folder: Path, base: Path, seed: int = 1, rank: int = 4, scale: float = 0.3) -> tuple[Path, Path]:
    """A real adapter as a training job leaves one, and the merged checkpoint beside it."""
    import torch
    from peft import LoraConfig, get_peft_model
    from transformers import AutoModelForCausalLM, AutoTokenizer

    model = AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32)
    shape = LoraConfig(r=rank, lora_alpha=8, target_modules="all-linear", task_type="CAUSAL_LM")
    adapted = get_peft_model(model, shape)
    torch.manual_seed(seed)
    with torch.no_grad():
        for name, weight in adapted.named_parameters():
            if "lora_B" in name:
                weight.normal_(0, scale)
    adapter, merged = folder / "adapter", folder / "checkpoint"
    adapted.save_pretrained(adapter, save_embedding_layers=False)
    adapted.merge_and_unload().save_pretrained(merged)
    for place in (adapter, merged):
        AutoTokenizer.from_pretrained(base).save_pretrained(place)
    return adapter, merged
