"""With `preset: plain` a whole job is TRL: from the same conversations it ends with the same weights, to the bit."""

import json

import pytest

pytest.importorskip("trl")
pytestmark = pytest.mark.slow

import torch  # noqa: E402
from datasets import Dataset  # noqa: E402
from safetensors.torch import load_file  # noqa: E402
from training_jobs import make_job  # noqa: E402
from transformers import AutoModelForCausalLM, AutoTokenizer, set_seed  # noqa: E402
from trl import DPOConfig, DPOTrainer, SFTConfig, SFTTrainer  # noqa: E402

from ratchet.components.training import job  # noqa: E402
from ratchet.components.training.trainer_arguments import trainer_arguments  # noqa: E402


def talk(number):
    """A conversation of two turns; its last message apart."""
    ask = {"role": "user", "content": f"add {number} to a"}
    first = {"role": "assistant", "content": f"return a + {number}"}
    return [ask, first, {"role": "user", "content": "and b"}], {"role": "assistant", "content": "b " * (number % 4 + 1)}


@pytest.fixture
def plain(tmp_path, base):
    def make(method, rows, **changes):
        path = tmp_path / "train.jsonl"
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        settings = {"steps": 4, "batch_size": 4, "micro_batch": 2, "warmup_steps": 1, "learning_rate": 1e-3}
        settings |= {"max_length": 512, "precision": "float32", "threads": 1, "base": base, "output": tmp_path / "out"}
        return make_job(method, preset="plain", train=path, **settings | changes)

    return make


def theirs(config, trainer, arguments, rows, folder):
    """The weights of TRL's own run."""
    set_seed(config.seed)
    model = AutoModelForCausalLM.from_pretrained(config.model.base, dtype=torch.float32)
    settings = trainer_arguments(config.model_copy(update={"output": folder}), 4, validated=False)
    made = trainer(
        model=model,
        args=arguments(**settings),
        train_dataset=Dataset.from_list(rows),
        processing_class=AutoTokenizer.from_pretrained(config.model.base),
    )
    made.train()
    return made.model.state_dict()


def ours(config):
    job.run(config)
    return load_file(config.output / "checkpoint" / "model.safetensors")


def assert_same_bits(own, wanted):
    assert own and all(torch.equal(own[name], wanted[name]) for name in own)


def test_supervised_fine_tuning(plain, tmp_path):
    chats = [[*before, last] for before, last in map(talk, range(10))]
    config = plain("sft", [{"messages": chat, "episode_id": f"ep-{place}"} for place, chat in enumerate(chats)])
    own = ours(config)
    rows = [{"messages": chat} for chat in chats]
    assert_same_bits(
        own, theirs(config, SFTTrainer, lambda **given: SFTConfig(max_length=512, **given), rows, tmp_path)
    )


@pytest.mark.parametrize("loss", ["sigmoid", pytest.param("ipo", marks=pytest.mark.long)])
def test_preference_optimisation(plain, tmp_path, loss):
    rows = []
    for before, last in map(talk, range(10)):
        rows.append({"prompt": before, "chosen": [last], "rejected": [{"role": "assistant", "content": "no idea"}]})
    exported = [row | {"episode_ids": ["a", "b"], "margin": 0.5} for row in rows]
    own = ours(plain("dpo", exported, loss=loss, beta=0.2, precompute=False))

    def arguments(**given):
        return DPOConfig(max_length=None, loss_type=loss, beta=0.2, **given)

    config = plain("dpo", exported)
    wanted = theirs(config, DPOTrainer, arguments, rows, tmp_path / "theirs")
    assert_same_bits(own, wanted)
    kept = ours(plain("dpo", exported, loss=loss, beta=0.2, output=tmp_path / "kept"))
    # Asked beforehand, the reference answers in other batches: the last digits of its sums differ.
    assert all(torch.allclose(kept[name], wanted[name], atol=1e-4) for name in kept)
