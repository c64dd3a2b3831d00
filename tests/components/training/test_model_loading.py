"""The model that a job begins with: weights that move, adapters that become a whole model, nothing of its own run unasked."""

import json

import pytest

pytest.importorskip("trl")
pytestmark = pytest.mark.slow

import torch  # noqa: E402
from safetensors.torch import load_file  # noqa: E402

from ratchet.components.core import ConfigurationError, DataError  # noqa: E402
from ratchet.components.training import job, model_loading  # noqa: E402
from ratchet.components.training.config.shared_sections import LoraOptions, ModelOptions  # noqa: E402


def weights(folder):
    return load_file(folder / "model.safetensors")


def moved(before, after):
    """The share of weights that are not what they were."""
    changed = sum((after[name] != weight).sum().item() for name, weight in before.items())
    return changed / sum(weight.numel() for weight in before.values())


def test_defect_26_weights_move_in_bfloat16_arithmetic_as_its_master_copy_is_float32(sft, base):
    config = sft(base=base, steps=2, max_length=512, precision="bfloat16", learning_rate=1e-5, schedule="constant")
    config = config.model_copy(update={"optimization": config.optimization.model_copy(update={"warmup_steps": 0})})
    job.run(config)
    before, after = weights(base), weights(config.output / "checkpoint")
    assert {weight.dtype for weight in after.values()} == {torch.float32}
    seen = {name: weight for name, weight in before.items() if "embed" not in name}  # most words never occur
    assert moved(seen, after) > 0.99
    rounded = {name: weight.bfloat16() for name, weight in seen.items()}
    assert moved(rounded, {name: after[name].bfloat16() for name in seen}) < 0.5, "what pure bfloat16 would lose"


def test_layers_that_are_computed_again_change_nothing(sft, base):
    settings = {"base": base, "steps": 3, "max_length": 512}
    job.run(plain := sft("plain", **settings))
    job.run(again := sft("again", gradient_checkpointing=True, **settings))
    one, other = weights(plain.output / "checkpoint"), weights(again.output / "checkpoint")
    assert all(torch.allclose(one[name], other[name], atol=1e-6) for name in one)


def test_adapters_are_trained_alone_and_come_out_as_a_whole_model_and_by_themselves(sft, base):
    from peft import PeftModel
    from transformers import AutoModelForCausalLM

    report = job.run(config := sft(base=base, steps=4, max_length=512, lora=LoraOptions(r=4), weight_decay=0))
    assert report.trained_parameters < report.parameters / 4 and report.adapter == str(config.output / "adapter")
    whole = AutoModelForCausalLM.from_pretrained(report.checkpoint)
    under = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(base), report.adapter)
    ids = torch.arange(3, 40)[None]
    with torch.no_grad():
        assert torch.allclose(whole(ids).logits, under(ids).logits, atol=1e-5)
    changed = {name for name, weight in weights(base).items() if not torch.equal(weight, whole.state_dict()[name])}
    assert changed and all("proj" in name for name in changed)
    assert {each.name for each in (config.output / "adapter").iterdir()} >= {
        "adapter_config.json",
        "adapter_model.safetensors",
    }
    assert report.base.name == str(base) and report.base.licence == "unknown"


def test_unknown_adapter_targets_are_an_error(base):
    model, _ = model_loading.load_base_model(ModelOptions(base=str(base)))
    with pytest.raises(ConfigurationError, match=r"model\.lora\.targets: .*nowhere"):
        model_loading.add_adapters(model, LoraOptions(targets=("nowhere",)))


def test_four_bits_without_bitsandbytes_give_a_one_line_error(base, monkeypatch):
    monkeypatch.setattr(model_loading.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ConfigurationError, match="needs the package bitsandbytes") as told:
        model_loading.load_base_model(ModelOptions(base=str(base), quantize="4bit", lora=LoraOptions()))
    assert "\n" not in str(told.value)


def with_own_code(base, folder):
    """A checkpoint that asks to run a file of its own."""
    import shutil

    shutil.copytree(base, folder)
    config = json.loads((folder / "config.json").read_text())
    config |= {"model_type": "surprise", "auto_map": {"AutoConfig": "own.Own", "AutoModelForCausalLM": "own.Own"}}
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "own.py").write_text(f"open({str(folder / 'ran')!r}, 'w')\nclass Own: pass\n")
    return folder


def test_defect_27_a_models_own_python_is_not_run_unasked(base, tmp_path):
    folder = with_own_code(base, tmp_path / "surprise")
    with pytest.raises(DataError, match=r"asks to run its own Python; read it") as told:
        model_loading.load_base_model(ModelOptions(base=str(folder)))
    assert "\n" not in str(told.value) and not (folder / "ran").exists()
    with pytest.raises(DataError, match="cannot be loaded"):
        model_loading.load_base_model(ModelOptions(base=str(folder), trust_remote_code=True))
    assert (folder / "ran").exists(), "the test would have noticed"


def test_pickled_weights_are_not_read(base, tmp_path):
    import shutil

    shutil.copytree(base, folder := tmp_path / "pickled")
    (folder / "model.safetensors").unlink()
    (folder / "pytorch_model.bin").write_bytes(b"\x80\x04")
    with pytest.raises(DataError, match=r"no \*\.safetensors"):
        model_loading.load_base_model(ModelOptions(base=str(folder)))


def test_rows_longer_than_the_model_reads_are_refused_before_anything_is_trained(sft, base):
    with pytest.raises(ConfigurationError, match="max_length 1024 exceeds the 512 tokens"):
        job.run(sft(base=base, steps=1))


@pytest.mark.parametrize(
    ("missing", "message"),
    [
        ("tokenizer.json", r"has no tokenizer \(tokenizer\.json, "),
        ("chat_template.jinja", "has no chat template, so it is no chat model; take its instruct form"),
        ("end token", r"has neither a pad nor an end token; set eos_token in .*tokenizer_config\.json"),
    ],
)
def test_a_base_without_a_part_of_its_tokenizer_is_one_line(base, tmp_path, missing, message):
    import shutil

    folder = tmp_path / "base"
    shutil.copytree(base, folder)
    if missing == "end token":
        file = folder / "tokenizer_config.json"
        values = {name: value for name, value in json.loads(file.read_text()).items() if not name.endswith("_token")}
        file.write_text(json.dumps(values))
    else:
        (folder / missing).unlink()
    with pytest.raises(DataError, match=message) as told:
        model_loading.load_base_model(ModelOptions(base=str(folder)))
    assert "\n" not in str(told.value)
