"""The memory that a job needs, before it runs."""

import json
from pathlib import Path

import pytest

from ratchet.components.core import DataError, InfrastructureError
from ratchet.components.training import memory_estimate
from ratchet.components.training.base_model import count_parameters
from ratchet.components.training.config.job_config import load_job
from ratchet.components.training.config.overrides import merge_values
from ratchet.components.training.config.shared_sections import ModelOptions, ModelShape
from ratchet.components.training.memory_estimate import (
    VLLM_ENGINE_BYTES,
    ModelSize,
    _parameters,
    _widths,
    estimate_memory,
    estimate_server,
    model_size,
)

BASE = Path(__file__).parents[3] / "data" / "models" / "programs-base"
SEVEN = ModelSize(7_000_000_000, 14_000_000_000, 4096, 32, 11008, 32000, 4096, 4096)
"""A model of 7B parameters in bfloat16."""


def estimate(size=SEVEN, processes=1, bfloat16=True, method="sft", device_bytes=0, **sections):
    values = {"method": method, "output": "out", "optimization": {"batch_size": 8, "micro_batch": 1}}
    values |= {"data": {"train": "train.jsonl"}} if method != "prm" else {"data": {"trajectories": ["a"]}}
    job = load_job(merge_values(values, sections))
    return estimate_memory(job, size, processes=processes, bfloat16=bfloat16, device_bytes=device_bytes)


def test_a_new_model_has_the_parameters_that_a_checkpoint_of_its_shape_stores():
    stored = sum(count_parameters(file) for file in BASE.glob("*.safetensors"))
    shape = ModelShape(hidden=128, layers=3, heads=4, kv_heads=2, intermediate=384, vocabulary=766)
    assert model_size(ModelOptions(shape=shape)).parameters == stored
    read = model_size(ModelOptions(base=str(BASE)))
    assert (read.parameters, read.hidden, read.layers, read.queries, read.keys) == (stored, 128, 3, 128, 64)


def test_every_trained_parameter_takes_sixteen_bytes():
    whole = estimate()
    assert whole.weights + whole.gradients + whole.optimizer == 16 * SEVEN.parameters == 112_000_000_000
    assert whole.trained_parameters == whole.parameters == SEVEN.parameters


def test_adapters_leave_the_base_as_it_is_stored_and_train_little():
    lora = estimate(model={"lora": {"r": 32}})
    by_hand = 32 * 32 * (4 * (4096 + 4096) + 3 * (4096 + 11008))
    assert lora.trained_parameters == by_hand
    assert lora.weights == SEVEN.stored + 4 * by_hand and lora.gradients + lora.optimizer == 12 * by_hand
    four = estimate(model={"base": "a/b", "lora": {"r": 32}, "quantize": "4bit"})
    assert four.weights < lora.weights / 3


def test_a_job_over_several_gpus_divides_the_state_of_the_model():
    one, four = estimate(run={"launch": "fsdp"}), estimate(processes=4, run={"launch": "fsdp"})
    assert four.weights == one.weights / 4 and four.optimizer == one.optimizer / 4
    assert estimate(processes=4, run={"launch": "ddp"}).weights == one.weights


def test_less_is_kept_where_activations_are_computed_again_rows_are_fewer_or_numbers_shorter():
    def activations(micro_batch=4, bfloat16=False, **sections):
        return estimate(optimization={"micro_batch": micro_batch}, bfloat16=bfloat16, **sections).activations

    whole = activations()
    assert activations(2) == activations(format={"max_length": 512}) == whole / 2
    assert activations(model={"gradient_checkpointing": True}) < whole / 2
    assert activations(bfloat16=True) < whole
    assert activations(method="dpo") == 2 * whole


def test_gradients_of_one_micro_batch_wait_for_the_next_and_of_a_single_one_take_the_place_of_its_activations():
    several, single = estimate(), estimate(optimization={"batch_size": 1, "micro_batch": 1})
    state = several.weights + several.optimizer
    # The layer that is left first is not there together with the tiles of logits.
    assert several.total == pytest.approx(state + several.gradients + several.activations + several.logits, rel=0.01)
    doubled = 4 * SEVEN.vocabulary * SEVEN.hidden  # of a tied embedding, from both of its ends
    assert single.total == state + max(single.activations + single.logits, single.gradients + doubled)


def test_logits_are_tiles_however_long_the_rows_and_however_large_the_vocabulary():
    wide = ModelSize(**{**{name: getattr(SEVEN, name) for name in SEVEN.__struct_fields__}, "vocabulary": 256_000})
    rows = {"format": {"max_length": 16384}, "device_bytes": 80 * 10**9}
    assert estimate(wide, **rows).logits == estimate(**rows, size=wide).logits < 1_000_000_000
    hidden = 16384 * SEVEN.hidden * (2 + 4)
    assert estimate(wide, **rows).logits == 4096 * 32768 * 2 + hidden


def test_sampling_takes_memory_beside_the_model_where_it_happens_in_the_process():
    own = estimate(method="grpo", grpo={"sampling": {"max_episode_tokens": 1000}})
    assert own.sampler == 8 * 1000 * 2 * 2 * SEVEN.layers * SEVEN.keys
    colocated = {"grpo": {"sampling": {"sampler": "colocate"}}, "device_bytes": 80 * 10**9}
    assert estimate(method="grpo", **colocated).sampler == 24 * 10**9, "TRL's default share"
    half = estimate(method="grpo", trl={"vllm_gpu_memory_utilization": 0.5}, **colocated)
    asleep = estimate(
        method="grpo", trl={"vllm_gpu_memory_utilization": 0.5, "vllm_enable_sleep_mode": True}, **colocated
    )
    assert half.sampler == asleep.sampler == 40 * 10**9 and asleep.total < half.total
    served = {"grpo": {"sampling": {"sampler": "vllm", "server": "http://127.0.0.1:8000/v1"}}}
    assert estimate(method="grpo", **served).sampler == 0


def test_an_asynchronous_sampler_in_the_process_has_two_copies_of_the_weights_while_the_job_trains():
    """One samples, one is the next version that waits for the running batch; both stay beside activations."""
    plain, beside = (estimate(method="grpo", grpo=grpo) for grpo in ({}, {"asynchronous": {}}))
    assert beside.sampler == plain.sampler + 8 * SEVEN.parameters
    assert beside.total >= plain.total + 8 * SEVEN.parameters
    lora = estimate(method="grpo", grpo={"asynchronous": {}}, model={"base": "a/b", "lora": {"r": 32}})
    assert lora.sampler == plain.sampler + 2 * SEVEN.stored
    served = {"sampler": "vllm", "server": "http://127.0.0.1:8000/v1"}
    assert estimate(method="grpo", grpo={"asynchronous": {}, "sampling": served}).sampler == 0


def test_a_vllm_server_has_its_weights_and_what_its_share_leaves_for_keys_and_values():
    server = estimate_server(SEVEN, 40 * 10**9, {"gpu_memory_utilization": 0.5, "max_model_len": 4096})
    assert (server.weights, server.cache) == (14 * 10**9, 6 * 10**9 - VLLM_ENGINE_BYTES)
    assert server.rows == server.cache / (4096 * 2 * 2 * 32 * 4096)
    both = estimate_server(SEVEN, 40 * 10**9, {"max_model_len": 4096, "tensor_parallel_size": 2})
    assert both.weights == 7 * 10**9 and both.rows > 4 * server.rows
    assert estimate_server(SEVEN, 16 * 10**9, {"max_model_len": 4096}).rows == 0


def test_a_reference_model_is_a_second_copy_where_it_stays_in_memory():
    assert estimate(method="dpo", dpo={"precompute": False}).weights == 2 * estimate(method="dpo").weights
    assert estimate(method="grpo", grpo={"beta": 0.1}).weights == 2 * estimate(method="grpo").weights


def test_adamw_in_eight_bits_keeps_a_quarter_of_the_state_of_all_but_the_embeddings():
    embeddings = 32000 * 4096
    state = estimate(optimization={"optimizer": "adamw_8bit"}).optimizer
    assert state == pytest.approx(2.06 * (SEVEN.parameters - embeddings) + 8 * embeddings, abs=1)


def test_muon_keeps_one_moment_of_a_matrix():
    assert estimate(optimization={"optimizer": "muon"}).optimizer == 4 * SEVEN.parameters + 4 * 32000 * 4096


def test_where_only_the_number_of_parameters_is_known_no_activations_are_counted():
    known = estimate(size=ModelSize(1000, 2000))
    assert (
        known.total == 16_000 + 2_000 and not known.is_complete
    )  # autocast's copies of the weights and estimate().is_complete


PUBLISHED = {
    "qwen2": (494_032_768, (896, 24, 4864, 151936, 14, 2, True)),
    "llama": (8_030_261_248, (4096, 32, 14336, 128256, 32, 8, False)),
    "mistral": (7_248_023_552, (4096, 32, 14336, 32768, 32, 8, False)),
    "qwen3": (4_022_468_096, (2560, 36, 9728, 151936, 32, 8, True)),
}
"""Parameters of Qwen2.5-0.5B, Llama-3.1-8B, Mistral-7B-v0.3 and Qwen3-4B, and what their `config.json` says."""


@pytest.mark.parametrize("kind", PUBLISHED)
def test_the_parameters_of_a_dense_decoder_follow_from_its_configuration_alone(kind):
    count, values = PUBLISHED[kind]
    names = ("hidden_size", "num_hidden_layers", "intermediate_size", "vocab_size", "num_attention_heads")
    config = dict(zip((*names, "num_key_value_heads", "tie_word_embeddings"), values, strict=True)) | {
        "model_type": kind
    }
    config |= {"head_dim": 128} if kind == "qwen3" else {}
    assert _parameters(_widths(config), config) == pytest.approx(count, rel=1e-3)
    assert _parameters(_widths(config), config | {"num_experts": 8}) is None


@pytest.mark.slow
def test_a_configuration_alone_is_enough_where_the_hub_is_away(tmp_path, monkeypatch):
    monkeypatch.setattr(
        memory_estimate, "base_model_config", lambda *given: json.loads((BASE / "config.json").read_text())
    )

    def away(*given):
        raise InfrastructureError("the hub is away")

    monkeypatch.setattr(memory_estimate, "base_model_info", away)
    read = model_size(ModelOptions(base="org/name"))
    whole = model_size(ModelOptions(base=None, shape=ModelShape(layers=3, vocabulary=766)))
    assert read.parameters == pytest.approx(whole.parameters, rel=1e-3) and read.stored == 2 * read.parameters


def test_what_is_no_model_is_refused(tmp_path):
    with pytest.raises(DataError, match="is not a folder"):
        model_size(ModelOptions(base=str(tmp_path / "nosuch")))
