"""The section `trl` of a job: every argument of TRL's can be given, and none that Ratchet decides."""

import pytest

from ratchet.components.core import ConfigurationError
from ratchet.components.training.config.job_config import load_job
from ratchet.components.training.config.trl_options import CHANGEABLE, DECIDED, argument_names, with_trl_options

DATA = {"train": "train.jsonl"}
METHODS = ("sft", "dpo", "grpo", "prm")


def job(method="sft", **trl):
    data = {"trajectories": ["a"]} if method == "prm" else DATA
    return load_job({"method": method, "output": "out", "data": data, "trl": trl})


def test_a_wrong_name_is_refused_with_the_nearest_one():
    assert job(neftune_noise_alpha=5).trl == {"neftune_noise_alpha": 5}
    with pytest.raises(
        ConfigurationError, match="TRL's sft trainer has no such argument; did you mean 'neftune_noise_alpha'"
    ):
        job(neftune_alpha=5)
    with pytest.raises(ConfigurationError, match="no such argument"):
        job("prm", use_liger_kernell=True)
    assert job("grpo", vllm_gpu_memory_utilization=0.4).trl


def test_what_ratchet_decides_is_refused_with_the_key_that_sets_it():
    for name, place in {"learning_rate": "optimization.learning_rate", "bf16": "model.precision"}.items():
        with pytest.raises(ConfigurationError, match=rf"trl\.{name}: set {place}; remove it here"):
            job(**{name: 1})


@pytest.mark.parametrize("method", METHODS)
def test_the_names_are_those_of_the_installed_trainers(method):
    names = argument_names(method)
    assert {"learning_rate", "optim", "lr_scheduler_kwargs", *CHANGEABLE} <= names
    assert ("vllm_enable_sleep_mode" in names) == (method == "grpo")


def test_a_decided_argument_without_a_place_in_the_table_is_refused_too():
    assert with_trl_options({"adam_beta2": 0.99, "optim": "x"}, {"adam_beta2": 0.95, "a": 1}) == {
        "adam_beta2": 0.99,
        "optim": "x",
        "a": 1,
    }
    with pytest.raises(ConfigurationError, match=r"trl\.a: Ratchet sets it itself; remove it here"):
        with_trl_options({"a": 2}, {"a": 1})


@pytest.mark.slow
@pytest.mark.parametrize("method", METHODS)
def test_the_names_read_from_the_sources_are_those_of_the_classes(method):
    import dataclasses

    import trl
    from transformers import TrainingArguments

    kind = TrainingArguments if method == "prm" else getattr(trl, f"{method.upper()}Config")
    assert argument_names(method) == {field.name for field in dataclasses.fields(kind) if field.init}


@pytest.mark.slow
def test_every_argument_that_a_job_gives_its_trainer_is_in_the_table(tmp_path):
    from small_model import make_checkpoint
    from transformers import AutoTokenizer

    from ratchet.components.training.grpo.train_grpo import trl_arguments
    from ratchet.components.training.trainer_arguments import trainer_arguments

    tokenizer = AutoTokenizer.from_pretrained(make_checkpoint(tmp_path / "model"))
    given = trainer_arguments(job(), 3, validated=True) | trl_arguments(job("grpo"), tokenizer)
    assert given.keys() - {*CHANGEABLE} <= DECIDED.keys()
