"""Which attention and which optimizer a job takes, and the one line where its package or device is missing."""

import importlib.util

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("trl")
pytestmark = pytest.mark.slow

from tiny_models import tiny_model  # noqa: E402

from ratchet.components.core import ConfigurationError  # noqa: E402
from ratchet.components.training import job, trainer_arguments  # noqa: E402
from ratchet.components.training.config.job_config import load_job  # noqa: E402
from ratchet.components.training.run_trainer import readable_errors  # noqa: E402


def job_with(method="sft", precision="bfloat16", **sections):
    data = {"data": {"train": "rows.jsonl"}} if method == "sft" else {}
    model = {"precision": precision, **sections.pop("model", {})}
    return load_job({"method": method, "output": "out", "model": model, **data, **sections})


@pytest.fixture
def machine(monkeypatch):
    """Set what the machine has."""

    def give(*, gpu, packages=()):
        monkeypatch.setattr(torch.cuda, "is_available", lambda: gpu)
        for number in (2, 3):
            there = f"flash_attention_{number}" in packages
            monkeypatch.setattr(f"transformers.utils.is_flash_attn_{number}_available", lambda there=there: there)

    return give


class Model:
    """A model that only keeps its attention."""

    _supports_flash_attn = True
    attention = None

    def set_attn_implementation(self, name):
        self.attention = name


def chosen(config, model=None):
    model = model or Model()
    trainer_arguments.choose_attention(config, model)
    return model.attention


BOTH = ("flash_attention_2", "flash_attention_3")


def test_auto_takes_the_newest_flash_attention_for_sft_on_a_gpu_and_torchs_own_elsewhere(machine):
    machine(gpu=True, packages=BOTH)
    assert chosen(job_with()) == "flash_attention_3"
    assert chosen(job_with(precision="float32")) is None
    assert chosen(job_with("grpo")) is None
    machine(gpu=True, packages=BOTH[:1])
    assert chosen(job_with()) == "flash_attention_2"
    machine(gpu=True)
    assert chosen(job_with()) is None
    machine(gpu=False, packages=BOTH)
    assert chosen(job_with()) == "eager"  # of plain products, which are faster in bfloat16 there
    assert chosen(job_with(precision="float32")) is None


def test_a_named_attention_is_taken_whatever_the_hardware_prefers(machine):
    machine(gpu=False)
    assert chosen(job_with(model={"attention": "sdpa"})) == "sdpa"


@pytest.mark.parametrize(
    ("name", "gpu", "precision", "message"),
    [
        ("flash_attention_2", False, "bfloat16", "GPU"),
        ("flex_attention", False, "float32", "GPU"),
        ("flash_attention_2", True, "bfloat16", "package flash-attn;"),
        ("flash_attention_3", True, "bfloat16", "package flash-attn-3"),
        ("flash_attention_3", True, "float32", "model.precision"),
    ],
)
def test_an_attention_without_its_device_precision_or_package_is_one_line(machine, name, gpu, precision, message):
    machine(gpu=gpu)
    with pytest.raises(ConfigurationError, match=message) as raised:
        chosen(job_with(precision=precision, model={"attention": name}))
    assert "\n" not in str(raised.value)


def test_an_attention_that_the_model_does_not_have_is_one_line():
    model = tiny_model()
    model._supports_sdpa = False
    model.set_attn_implementation("eager")
    with pytest.raises(ConfigurationError, match="not for this model"):
        chosen(job_with(model={"attention": "sdpa"}), model)


def test_an_optimizer_of_eight_bits_without_bitsandbytes_is_one_line(monkeypatch):
    config = job_with(optimization={"optimizer": "adamw_8bit", "steps": 1})
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ConfigurationError, match="bitsandbytes"):
        trainer_arguments.trainer_arguments(config, 1, validated=False)


def test_a_package_that_trl_misses_is_one_line(tmp_path):
    with pytest.raises(ConfigurationError, match=r"missing: install liger-kernel$"), readable_errors(tmp_path):
        raise ImportError("install liger-kernel\nand more")


@pytest.mark.skipif(importlib.util.find_spec("bitsandbytes") is None, reason="needs the package bitsandbytes")
class TestBitsAndBytes:
    """What bitsandbytes does, on a CPU too."""

    def test_adamw_in_eight_bits_learns_as_much_and_its_moments_take_a_quarter(self, sft, monkeypatch):
        from transformers import Trainer

        sizes, train = [], Trainer.train

        def measured(self, *args, **kwargs):
            result = train(self, *args, **kwargs)
            tensors = [value for state in self.optimizer.state.values() for value in state.values()]
            sizes.append(sum(value.nbytes for value in tensors if isinstance(value, torch.Tensor)))
            return result

        monkeypatch.setattr(Trainer, "train", measured)
        shape = {"hidden": 128, "layers": 2, "heads": 2, "kv_heads": 1, "intermediate": 256, "vocabulary": 360}
        usual, small = (job.run(sft(name, steps=30, optimizer=name, shape=shape)) for name in ("adamw", "adamw_8bit"))
        assert small.train_loss == pytest.approx(usual.train_loss, rel=0.03)
        assert sizes[1] < 0.45 * sizes[0]  # embeddings keep float32, and are large in so small a model

    def test_a_base_in_four_bits_learns_through_adapters_and_is_merged_into_a_float32_model(self, sft, tmp_path):
        from transformers import AutoModelForCausalLM

        base = job.run(sft("base", steps=10))
        start = tmp_path / "base" / "checkpoint"
        tuned = job.run(sft("tuned", steps=30, base=start, lora={"r": 8}, quantize="4bit", learning_rate=5e-3))
        assert tuned.train_loss < base.train_loss
        model = AutoModelForCausalLM.from_pretrained(tmp_path / "tuned" / "checkpoint")
        before = AutoModelForCausalLM.from_pretrained(start)
        changed = [
            not torch.equal(parameter, other)
            for parameter, other in zip(model.parameters(), before.parameters(), strict=True)
        ]
        assert model.dtype == torch.float32 and any(changed) and not all(changed)
