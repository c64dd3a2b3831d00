"""The memory that a job needs, before it runs."""

from pathlib import Path

import pytest

from ratchet.components.core import DataError
from ratchet.components.training.base_model import count_parameters
from ratchet.components.training.config.job_config import load_job
from ratchet.components.training.config.overrides import merge_values
from ratchet.components.training.config.shared_sections import ModelOptions, ModelShape
from ratchet.components.training.memory_estimate import ModelSize, estimate_memory, model_size

BASE = Path(__file__).parents[3] / "data" / "models" / "programs-base"
SEVEN = ModelSize(7_000_000_000, 14_000_000_000, 4096, 32, 11008, 32000, 4096, 4096)
"""A model of 7B parameters in bfloat16."""


def estimate(size=SEVEN, processes=1, bfloat16=True, method="sft", **sections):
    values = {"method": method, "output": "out", "optimization": {"batch_size": 8, "micro_batch": 1}}
    values |= {"data": {"train": "train.jsonl"}} if method != "prm" else {"data": {"trajectories": ["a"]}}
    return estimate_memory(load_job(merge_values(values, sections)), size, processes=processes, bfloat16=bfloat16)


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
    whole = estimate(optimization={"micro_batch": 4})
    assert estimate(optimization={"micro_batch": 2}).activations == whole.activations / 2
    assert estimate(optimization={"micro_batch": 4}, format={"max_length": 512}).activations == whole.activations / 2
    again = estimate(optimization={"micro_batch": 4}, model={"gradient_checkpointing": True})
    assert again.activations < whole.activations / 2
    assert whole.activations < estimate(optimization={"micro_batch": 4}, bfloat16=False).activations
    assert estimate(method="dpo", optimization={"micro_batch": 4}).activations == 2 * whole.activations


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
    assert known.total == 16_000 and not known.is_complete and estimate().is_complete


def test_what_is_no_model_is_refused(tmp_path):
    with pytest.raises(DataError, match="is not a folder"):
        model_size(ModelOptions(base=str(tmp_path / "nosuch")))
