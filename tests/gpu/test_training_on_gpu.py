"""Training on a GPU does what it does on a CPU, and its memory is what the plan says. `make gpu` runs these tests.

They are skipped without a CUDA GPU. A rehearsal (`benchmarks/gpu.py --rehearse`) runs the same lines on the CPU.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

CUDA = torch.cuda.is_available()
REHEARSED = os.environ.get("RATCHET_REHEARSE_GPU") == "1"
pytestmark = [pytest.mark.gpu, pytest.mark.slow, pytest.mark.skipif(not (CUDA or REHEARSED), reason="no CUDA GPU here")]

DEVICE = "cuda" if CUDA else "cpu"
SCRIPT = Path(__file__).parents[1] / "helpers" / "measured_jobs.py"
SHAPE = {
    "vocab_size": 512,
    "hidden_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 256,
    "initializer_range": 0.1,
    "tie_word_embeddings": True,
    "pad_token_id": 0,
}


def need(*packages):
    """Skip a test where one of them is missing: `make gpu` runs on machines that have little more than torch."""
    for package in packages:
        pytest.importorskip(package)


def make_model(attention="sdpa", dtype=torch.float32):
    from transformers import Qwen2Config, Qwen2ForCausalLM

    torch.manual_seed(0)
    return Qwen2ForCausalLM(Qwen2Config(**SHAPE, attn_implementation=attention)).to(DEVICE, dtype)


def tokens(rows=2, length=200):
    torch.manual_seed(1)
    return torch.randint(1, SHAPE["vocab_size"], (rows, length), device=DEVICE)


def difference(one, other):
    """The norm of the difference, as a share of the norm."""
    one, other = (item.detach().float().cpu() for item in (one, other))
    return ((one - other).norm() / other.norm()).item()


def logits_and_gradients(attention, dtype):
    """Of two rows, of which the second ends with padding."""
    model, ids = make_model(attention, dtype), tokens()
    mask = torch.ones_like(ids)
    mask[1, 150:] = 0
    output = model(input_ids=ids, attention_mask=mask, labels=ids.masked_fill(mask == 0, -100), use_cache=False)
    output.loss.backward()
    gradients = torch.cat([item.grad.float().flatten() for item in model.parameters()])
    return output.logits[mask == 1], gradients


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-4), (torch.bfloat16, 0.05)])
@pytest.mark.parametrize("attention", ["sdpa", "flex_attention", "flash_attention_2"])
def test_fused_attention_gives_the_logits_and_gradients_of_eager_attention(attention, dtype, tolerance):
    if attention == "flash_attention_2":
        pytest.importorskip("flash_attn")
        if dtype == torch.float32:
            pytest.skip("FlashAttention has no float32")
    if attention == "flex_attention" and not CUDA:
        pytest.skip("flex attention has no backward pass on a CPU")
    usual, fused = logits_and_gradients("eager", torch.float32), logits_and_gradients(attention, dtype)
    assert difference(fused[0], usual[0]) < tolerance
    assert difference(fused[1], usual[1]) < tolerance


def test_bfloat16_autocast_computes_in_bfloat16_and_trains_float32_weights():
    model, ids = make_model().train(), tokens()
    before = [item.detach().clone() for item in model.parameters()]
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=CUDA)
    losses = []
    for _ in range(5):
        with torch.autocast(DEVICE, torch.bfloat16):
            output = model(input_ids=ids, labels=ids, use_cache=False)
        output.loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(output.loss.item())
    assert output.logits.dtype == torch.bfloat16
    assert losses[-1] < losses[0]
    for weight, old in zip(model.parameters(), before, strict=True):
        assert weight.dtype == torch.float32 and weight.isfinite().all() and not weight.equal(old)


def test_a_lack_of_memory_is_recognised():
    need("msgspec", "pydantic")
    from ratchet.components.training.gpu_memory import is_out_of_memory

    with pytest.raises(RuntimeError) as error:
        torch.empty(1 << 50, dtype=torch.uint8, device=DEVICE)
    assert is_out_of_memory(error.value)


def test_a_weight_that_is_not_finite_ends_the_job_before_it_is_saved(tmp_path):
    need("msgspec", "pydantic")
    from types import SimpleNamespace

    from ratchet.components.core import DataError
    from ratchet.components.training.trainer_callbacks import FiniteCheck

    model, state = make_model(), SimpleNamespace(global_step=3)
    arguments, control = SimpleNamespace(output_dir=str(tmp_path)), SimpleNamespace(should_save=True)
    FiniteCheck().on_step_end(arguments, state, control, model=model)
    with torch.no_grad():
        model.model.layers[1].mlp.up_proj.weight[3, 5] = torch.nan
    with pytest.raises(DataError, match=r"layers\.1\.mlp\.up_proj\.weight became nan by step 3"):
        FiniteCheck().on_step_end(arguments, state, control, model=model)


class Waited(Exception):
    """A second job would wait."""


def test_a_second_job_waits_for_the_gpus_that_torch_sees(tmp_path):
    need("msgspec", "pydantic")
    from ratchet.components.training.gpu_locks import reserve_gpus, visible_gpus

    names = visible_gpus()
    assert len(names) == torch.cuda.device_count()
    names = names or ["rehearsed"]

    def wait():
        raise Waited

    with (
        reserve_gpus(names, len(names), folder=tmp_path),
        pytest.raises(Waited),
        reserve_gpus(names, 1, waiting=wait, folder=tmp_path),
    ):
        pass
    with reserve_gpus(names, 1, waiting=wait, folder=tmp_path) as reserved:
        assert reserved == names[:1]


def test_an_adapter_that_is_saved_and_loaded_gives_the_same_logits_and_so_does_its_merge(tmp_path):
    need("msgspec", "pydantic")
    need("peft")
    import peft

    from ratchet.components.training.config.shared_sections import LoraOptions
    from ratchet.components.training.model_loading import add_adapters

    ids = tokens()
    model = add_adapters(make_model(), LoraOptions(r=4)).eval()
    with torch.no_grad():
        plain = model(input_ids=ids).logits
        for name, weight in model.named_parameters():
            if "lora_B" in name:
                weight.normal_(std=0.1)
        trained = model(input_ids=ids).logits
        model.save_pretrained(tmp_path)
        loaded = peft.PeftModel.from_pretrained(make_model(), tmp_path).eval()
        assert next(loaded.parameters()).device.type == DEVICE
        assert difference(plain, trained) > 0.01
        assert loaded(input_ids=ids).logits.equal(trained)
        assert difference(loaded.merge_and_unload()(input_ids=ids).logits, trained) < 1e-4


def test_the_sampler_of_asynchronous_training_in_memory_is_on_the_gpu(tmp_path):
    need("msgspec", "pydantic", "trl", "datasets")
    from ratchet.components.models.sampled_policy import SamplingParameters
    from ratchet.components.training.config.job_config import load_job
    from ratchet.components.training.grpo.weight_transfers import make_transfer
    from ratchet.components.training.scratch_model import fit_tokenizer

    tokenizer = fit_tokenizer([Path(__file__).read_text()] * 2, SHAPE["vocab_size"])
    values = {"method": "grpo", "output": str(tmp_path), "model": {"base": "a/b"}, "grpo": {"asynchronous": {}}}
    transfer = make_transfer(load_job(values), make_model().cpu(), tokenizer)
    try:
        weights = list(make_model().cpu().named_parameters())
        transfer.send_weights(iter(weights))
        transfer.sampler.publish(1)
        (sampled,) = transfer.sampler.sample([tokens()[0].tolist()], [7], SamplingParameters(1.0, 1.0, 4))
        assert len(sampled.ids) == 4 and sampled.version == 1
        assert {weight.device.type for weight in transfer.sampler._model.parameters()} == {DEVICE}
    finally:
        transfer.destroy()


def write_jobs(folder):
    """SFT, DPO and GRPO from one checkpoint, in float32."""
    from ratchet.components.training.config.shared_sections import ModelShape
    from ratchet.components.training.scratch_model import fit_tokenizer, make_model

    shape = ModelShape(hidden=256, layers=4, heads=4, kv_heads=2, intermediate=1024, vocabulary=640)
    tokenizer = fit_tokenizer([Path(__file__).read_text()] * 2, shape.vocabulary)
    for item in (tokenizer, make_model(shape, tokenizer, 0)):
        item.save_pretrained(folder / "base")

    def says(text):
        return [{"role": "assistant", "content": text * 8}]

    asked = [{"role": "user", "content": "Say which device this is."}]
    rows = {
        "sft": [{"messages": asked + says(text), "episode_id": text} for text in ("It is a card. ", "It is none. ")],
        "dpo": [{"prompt": asked, "chosen": says("A card. "), "rejected": says("None. "), "episode_ids": ["a", "b"]}] * 2,
        "grpo": [{"prompt": asked, "attempts": [says("A card. "), says("None. ")], "rewards": [1.0, 0.0], "task_id": "t"}] * 2,
    }  # fmt: skip
    for method, values in rows.items():
        (folder / f"{method}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in values))
        job = {
            "method": method,
            "output": str(folder / method),
            "data": {"train": str(folder / f"{method}.jsonl")},
            "model": {"base": str(folder / "base"), "precision": "float32"},
            "format": {"max_length": 128},
            "optimization": {"batch_size": 2, "steps": 2, "learning_rate": 1e-3, "warmup_steps": 0},
            "checkpoints": {"save_every": 1},
        }
        if method == "grpo":
            job["grpo"] = {"group_size": 2, "offline": True, "sampling": {"max_episode_tokens": 128}}
        (folder / f"{method}.json").write_text(json.dumps(job))
    return [str(folder / f"{method}.json") for method in rows]


@pytest.fixture(scope="module")
def jobs(tmp_path_factory):
    """The figures of each job by method: in this process, and in one that sees no GPU."""
    need("msgspec", "pydantic", "trl", "datasets", "accelerate")
    from measured_jobs import measure

    here = [measure(Path(path)) for path in write_jobs(tmp_path_factory.mktemp("jobs"))]
    done = subprocess.run(
        [sys.executable, str(SCRIPT), *write_jobs(tmp_path_factory.mktemp("jobs"))],
        capture_output=True,
        text=True,
        env={**os.environ, "CUDA_VISIBLE_DEVICES": ""},
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return [{item["method"]: item for item in side} for side in (here, json.loads(done.stdout.splitlines()[-1]))]


@pytest.mark.parametrize("method", ["sft", "dpo", "grpo"])
def test_the_losses_of_a_job_are_those_of_the_same_job_on_a_cpu(jobs, method):
    here, cpu = (side[method] for side in jobs)
    assert (here["device"], cpu["device"]) == (DEVICE, "cpu")
    assert len(cpu["losses"]) == 2 and here["losses"] == pytest.approx(cpu["losses"], rel=1e-3, abs=1e-4)


@pytest.mark.skipif(not CUDA, reason="only a GPU counts the memory of tensors")
@pytest.mark.parametrize("method", ["sft", "dpo", "grpo"])
def test_a_job_takes_no_more_memory_than_the_plan_says(jobs, method):
    measured = jobs[0][method]
    workspace = 1 << 27  # cuBLAS keeps up to 128 MiB, whatever the model
    assert measured["peak"] < 1.25 * measured["planned"] + workspace
