"""DPO as a job: a policy and pairs in, a policy that prefers what it should out; what it cannot do is told in one line."""

import json
import math
import random

import pytest

pytest.importorskip("trl")
pytestmark = pytest.mark.slow

import torch  # noqa: E402
from safetensors.torch import load_file  # noqa: E402
from training_jobs import make_job  # noqa: E402
from transformers import TrainerCallback  # noqa: E402
from trl import DPOTrainer  # noqa: E402

from ratchet.components.core import ConfigurationError, DataError  # noqa: E402
from ratchet.components.training import job  # noqa: E402
from ratchet.components.training.config.job_config import load_job  # noqa: E402
from ratchet.components.training.dpo import train_dpo as dpo_job  # noqa: E402


def call(name, **arguments):
    function = {"name": name, "arguments": arguments}
    return {"role": "assistant", "content": "", "tool_calls": [{"id": "0", "type": "function", "function": function}]}


def seen(text):
    return {"role": "tool", "content": text, "tool_call_id": "0", "name": "read_file"}


def pairs(count, seed=0):
    """Steps and episodes of which the better ones read main.py, and the worse ones something else."""
    draw = random.Random(seed)
    found = []
    for number in range(count):
        ask = {"role": "user", "content": f"add(a, b): return a plus {draw.randrange(100)}."}
        sides = [[call("read_file", path=path)] for path in ("main.py", f"x{draw.randrange(100)}.py")]
        if number % 2:
            sides = [[*side, seen(f"return {draw.randrange(100)}"), call("submit")] for side in sides]
        chosen, rejected = sides
        level = "trajectory" if number % 2 else "step"
        found.append(
            {"prompt": [ask], "chosen": chosen, "rejected": rejected, "episode_ids": [f"a{number}", f"b{number}"]}
            | {"level": level, "margin": 0.1 + draw.random(), "reason": "x"}
        )
    return found


@pytest.fixture
def dpo(tmp_path, base):
    """Makes small jobs on the same twelve pairs; each in a folder of its own name."""
    paths = {"train": tmp_path / "train.jsonl", "validation": tmp_path / "validation.jsonl"}
    for seed, path in enumerate(paths.values()):
        path.write_text("".join(json.dumps(row) + "\n" for row in pairs(12, seed)))
    usual = {"train": paths["train"], "base": base, "batch_size": 4, "warmup_steps": 0, "threads": 1, "max_length": 512}
    usual |= {"precision": "float32", "learning_rate": 2e-3, "schedule": "constant"}

    def make(name="out", *, validated=False, **changes):
        more = {"validation": paths["validation"]} if validated else {}
        return make_job("dpo", **{"output": tmp_path / name, **usual, **more, **changes})

    return make


def weights(config):
    return load_file(config.output / "checkpoint" / "model.safetensors")


def test_a_job_learns_what_is_preferred_on_pairs_that_it_has_not_seen(dpo):
    config = dpo(validated=True, steps=18, evaluate_every=9, patience=5, best_by="rewards/margins")
    report = job.run(config)
    assert report.steps == 18 and report.rows == 12 and report.left_out == {}
    assert report.validation_accuracy == 1.0 and report.validation_margin > 0.2
    assert report.validation_loss < math.log(2) and math.isfinite(report.train_loss)
    assert {path.name for path in config.output.iterdir()} >= {
        "checkpoint",
        "metrics.jsonl",
        "reference",
        "report.json",
    }
    assert job.run(config) == report


@pytest.mark.parametrize(
    "options",
    [
        {"loss": "ipo", "level": "step"},
        {"loss": "robust", "label_smoothing": 0.1, "level": "trajectory"},
        {"step_level_advantage": True, "curriculum": {"warmup_ratio": 0.5}},
        {"precompute": False, "agent_format": False, "mask_observations": False},
    ],
    ids=lambda options: options.get("loss", "more"),
)
def test_every_loss_level_and_option_trains(dpo, options):
    report = job.run(dpo(steps=2, **options))
    assert report.steps == 2 and math.isfinite(report.train_loss)
    assert report.rows == (6 if "level" in options else 12)


@pytest.mark.parametrize("precompute", [True, pytest.param(False, marks=pytest.mark.long)])
def test_adapters_alone_are_trained_and_the_reference_is_the_base(dpo, base, precompute):
    config = dpo(steps=6, lora={"r": 4}, learning_rate=1e-2, precompute=precompute)
    report = job.run(config)
    assert report.trained_parameters < report.parameters / 4
    names = set(load_file(config.output / "adapter" / "adapter_model.safetensors"))
    assert names and not any(".ref." in name for name in names)
    assert not (config.output / "adapter" / "ref").exists()
    first = json.loads((config.output / "metrics.jsonl").read_text().splitlines()[0])
    assert first["rewards/margins"] != 0
    before, after = load_file(base / "model.safetensors"), weights(config)
    assert any(not torch.equal(before[name], after[name]) for name in before if name in after)


@pytest.mark.parametrize(
    ("lora", "precompute"),
    [
        pytest.param(None, True, id="whole", marks=pytest.mark.long),
        pytest.param({"r": 4}, True, id="adapters"),
        pytest.param(None, False, id="reference in memory", marks=pytest.mark.long),
        pytest.param({"r": 4}, False, id="adapters, reference in memory", marks=pytest.mark.long),
    ],
)
def test_a_resumed_job_asks_the_reference_no_more_and_ends_with_the_same_bits(dpo, monkeypatch, lora, precompute):
    asked, usual = [], DPOTrainer.compute_ref_log_probs
    monkeypatch.setattr(DPOTrainer, "compute_ref_log_probs", lambda *given: asked.append(1) or usual(*given))

    class Stop(TrainerCallback):
        def on_step_end(self, args, state, control, **kwargs):
            if state.global_step == 6:
                raise KeyboardInterrupt

    settings = {"steps": 8, "save_every": 4, "lora": lora, "precompute": precompute}
    job.run(dpo("straight", **settings))
    made = dpo_job._trainer

    def stopping(*given):
        trainer = made(*given)
        trainer.add_callback(Stop())
        return trainer

    with monkeypatch.context() as patch:
        patch.setattr(dpo_job, "_trainer", stopping)
        with pytest.raises(KeyboardInterrupt):
            job.run(dpo("stopped", **settings))
    before = len(asked)
    job.run(dpo("stopped", **settings))
    assert len(asked) == before == (6 if precompute else 0)  # three batches of four pairs, once for each of two jobs
    one, other = (weights(dpo(name)) for name in ("straight", "stopped"))
    assert all(torch.equal(one[name], other[name]) for name in one)


def test_defect_28_over_long_pairs_are_counted_and_never_make_a_loss_of_nan(dpo):
    path = dpo().data.train
    rows = pairs(12)
    rows[3]["chosen"][1]["content"] = "long " * 2000
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    report = job.run(dpo(steps=3))
    assert report.left_out == {"too_long": 1} and report.rows == 11 and math.isfinite(report.train_loss)
    with pytest.raises(DataError, match=r"none of 12 pairs can be trained on in 16 tokens \(12 too long\)"):
        job.run(dpo("short", steps=3, max_length=16))


def test_what_cannot_be_is_told_in_one_line(dpo):
    with pytest.raises(ConfigurationError, match=r"model\.base"):
        job.run(dpo(steps=1, base=None))
    with pytest.raises(ConfigurationError, match=r"data\.sources has no meaning"):
        job.run(dpo(steps=1, sources=["on_policy"]))
    with pytest.raises(ConfigurationError, match="a pair is whole"):
        job.run(dpo(steps=1, chunk_long_trajectories=True))
    with pytest.raises(ConfigurationError, match="label_smoothing has no meaning for loss sigmoid"):
        dpo(label_smoothing=0.1)
    with pytest.raises(ConfigurationError, match="token_weights need precompute"):
        dpo(token_weights=True, precompute=False)
    with pytest.raises(ConfigurationError, match="did you mean 'beta'"):
        load_job({"method": "dpo", "output": "o", "data": {"train": "t"}, "dpo": {"bet": 1}})
