"""Asynchronous GRPO: TRL's loss at plain options, a bound on staleness, nothing trained twice, and clear ends."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("trl")
pytestmark = pytest.mark.slow

import async_stubs  # noqa: E402
from safetensors.torch import load_file  # noqa: E402
from training_jobs import make_job  # noqa: E402
from trl.experimental.async_grpo import AsyncGRPOTrainer  # noqa: E402

from ratchet.components.core import ConfigurationError, DataError, InfrastructureError  # noqa: E402
from ratchet.components.training import job  # noqa: E402

HELPERS = Path(async_stubs.__file__).parent


@pytest.fixture
def settings(base, tmp_path):
    def made(name="out", asynchronous=None, **changes):
        return make_job(
            "grpo",
            **{
                "output": tmp_path / name,
                "base": base,
                "precision": "float32",
                "batch_size": 8,
                "micro_batch": 8,
                "group_size": 4,
                "steps": 6,
                "save_every": 2,
                "learning_rate": 1e-3,
                "schedule": "constant",
                "warmup_steps": 0,
                "threads": 1,
                "asynchronous": {"max_staleness": 2, "drift_alarm": 50.0} | (asynchronous or {}),
            }
            | changes,
        )

    return made


def weights(report):
    return load_file(f"{report.checkpoint}/model.safetensors")


def lines(config):
    return [json.loads(line) for line in (config.output / "metrics.jsonl").read_text().splitlines()]


def first_batches(trainer):
    """Return the micro-batches of the first step, before any training."""
    trainer.create_optimizer_and_scheduler(1)
    trainer._sync_weight()
    trainer.rollout_worker.start()
    trainer.current_gradient_accumulation_steps = trainer.args.gradient_accumulation_steps
    loader = iter(trainer.get_train_dataloader())
    return [next(loader) for _ in range(trainer.args.gradient_accumulation_steps)]


def loss_and_gradients(trainer, compute, batches):
    trainer.model.zero_grad()
    loss = sum(compute(trainer, trainer.model, batch) for batch in batches)
    loss.backward()
    gradients = {name: item.grad.clone() for name, item in trainer.model.named_parameters() if item.grad is not None}
    return loss.item(), gradients


def for_trl(batch):
    """Return a micro-batch as TRL's `compute_loss` takes it: rows of one process, padded, and all sizes in tensors."""
    rows = {name: torch.as_tensor(values)[None] for name, values in batch.items()}
    return rows | {"attention_mask": torch.ones_like(rows["input_ids"])}


def assert_close(found, expected):
    assert found[0] == pytest.approx(expected[0], abs=1e-6)
    largest = max(float(item.abs().max()) for item in expected[1].values())
    assert largest > 1e-4, "no gradient to compare"
    for name, gradient in expected[1].items():
        assert torch.allclose(found[1][name], gradient, atol=1e-5 * largest), name


@pytest.mark.parametrize(("loss", "micro_batch"), [("bnpo", 8), ("bnpo", 4), ("dapo", 8)])
def test_plain_options_give_the_loss_and_gradients_of_trl(settings, loss, micro_batch):
    """`bnpo` always; `dapo` where a step is one micro-batch, and the tokens of a micro-batch are those of the step."""
    trainer, *_ = async_stubs.prepare(settings(loss=loss, micro_batch=micro_batch), gap=0.2)
    batches = first_batches(trainer)
    theirs = loss_and_gradients(trainer, AsyncGRPOTrainer.compute_loss, [for_trl(batch) for batch in batches])
    trl = {name: value for name, value in trainer._metrics["train"].items() if name in ("ratio", "kl", "entropy")}
    trl = {name: np.mean(value) for name, value in trl.items()}
    trainer._metrics["train"].clear()
    assert_close(loss_and_gradients(trainer, type(trainer).compute_loss, batches), theirs)
    trainer._log_statistics()
    for name, value in trl.items():
        pairs = trainer._metrics["train"][name]
        assert sum(total for total, _ in pairs) / sum(count for _, count in pairs) == pytest.approx(value, abs=1e-5)


@pytest.mark.parametrize("loss", ["grpo", "dapo", "dr_grpo", "cispo"])
def test_micro_batches_do_not_change_the_loss_of_a_step(settings, loss):
    """Attempts differ in their trained tokens; TRL's asynchronous trainer weighs those of a short micro-batch more."""
    found = []
    for micro_batch in (8, 2):
        trainer, *_ = async_stubs.prepare(settings(loss=loss, micro_batch=micro_batch), lost=(0, 1), gap=0.2)
        worker = trainer.rollout_worker
        worker.next = 2  # group 2 has lost attempts
        batches = first_batches(trainer)
        found.append(loss_and_gradients(trainer, type(trainer).compute_loss, batches))
        theirs = found[0] if micro_batch == 8 else None
    assert_close(found[1], theirs or found[0])


def test_trl_fails_on_a_micro_batch_of_lost_attempts_and_ours_does_not(settings):
    """If this fails for TRL, `compute_loss` needs this reason no more."""
    trainer, *_ = async_stubs.prepare(settings(micro_batch=2), lost=(0, 1))
    trainer.rollout_worker.next = 2
    batches = first_batches(trainer)
    (empty,) = [batch for batch in batches if not len(batch["token_index"])]
    with pytest.raises((RuntimeError, IndexError)):
        AsyncGRPOTrainer.compute_loss(trainer, trainer.model, for_trl(empty))
    loss = trainer.compute_loss(trainer.model, empty)
    loss.backward()
    assert loss.item() == 0.0


def test_a_job_trains_in_the_bound_and_reports_staleness_waits_and_drift(settings):
    config = settings(steps=10, learning_rate=2e-3)
    report, trainer, worker = async_stubs.run(config, late=(1, 5), lost=(3,))
    found = [line for line in lines(config) if "loss" in line]
    assert [line["step"] for line in found] == list(range(1, 11))
    assert sorted(worker.history) == sorted(set(worker.history)) and len(worker.history) == 20
    assert report.steps == 10 and report.episodes == 80 and report.lost > 0 and report.tokens > 0
    summary = report.asynchronous
    assert summary.staleness_max == max(line["sample/staleness_max"] for line in found) == 2
    assert 0 < summary.staleness_mean <= 2 and summary.wait_seconds >= 0 and summary.drift_max > 0
    assert found[0]["drift/mean"] < 1e-4, "the first step is on policy"
    assert found[-1]["drift/mean"] > found[0]["drift/mean"]
    assert {"ratio", "kl", "entropy", "clip_ratio/low_mean", "advantages/std", "tokens_per_second"} <= found[0].keys()
    assert worker.stopped and trainer.weight_transfer.calls[-1] == "destroy"


def test_what_is_rewarded_is_done_more_often(settings):
    config = settings(steps=24, learning_rate=2e-3, batch_size=16, micro_batch=16, save_every=100)
    async_stubs.run(config)
    rewards = [line["reward"] for line in lines(config) if "reward" in line]
    assert sum(rewards[-6:]) > 1.15 * sum(rewards[:6]), rewards


def test_without_staleness_play_and_training_alternate(settings):
    """TRL's loader would read an episode of the next step before it trains this one, and wait for ever."""
    config = settings(asynchronous={"max_staleness": 0}, steps=3)
    report, _, worker = async_stubs.run(config)
    assert worker.history == [0, 1, 2, 3, 4, 5] and report.asynchronous.staleness_max == 0
    assert report.asynchronous.drift_max < 1e-4


def test_versions_count_weight_updates(settings):
    config = settings(asynchronous={"weight_sync_steps": 2, "max_staleness": 1}, steps=4)
    _, trainer, worker = async_stubs.run(config)
    assert worker.version == trainer.model_version == 2
    assert trainer.weight_transfer.sent == 3  # at the start, and after steps 2 and 4
    assert max(line["sample/staleness_max"] for line in lines(config) if "loss" in line) == 1


@pytest.mark.parametrize("max_staleness", [0, 2])
def test_a_killed_job_goes_on_and_repeats_no_group(settings, max_staleness):
    """With max_staleness 0 the weights are those of a job that ran through. With more, groups in flight are played again
    with newer weights."""
    changes = {"asynchronous": {"max_staleness": max_staleness}, "steps": 8}
    config = settings("killed", **changes)
    config.output.mkdir(exist_ok=True)
    path = config.output.parent / "job.json"
    path.write_text(config.model_dump_json())
    environment = os.environ | {"PYTHONPATH": str(HELPERS)}
    process = subprocess.Popen([sys.executable, str(HELPERS / "async_stubs.py"), str(path)], env=environment)
    deadline = time.monotonic() + 300
    while not (config.output / "saved" / "checkpoint-2" / "trainer_state.json").is_file():
        assert process.poll() is None and time.monotonic() < deadline
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    process.wait()
    resumed, _, worker = async_stubs.run(config)
    assert resumed.steps == 8
    assert sorted(worker.history) == list(range(16)) if max_staleness == 0 else len(set(worker.history)) == 16
    assert worker.version == 8
    found = [line for line in lines(config) if "loss" in line]
    assert [line["step"] for line in found] == list(range(1, 9))
    assert max(line["sample/staleness_max"] for line in found) <= max_staleness
    if max_staleness == 0:
        straight = weights(async_stubs.run(settings("straight", **changes))[0])
        assert all(torch.equal(item, straight[name]) for name, item in weights(resumed).items())


def test_a_checkpoint_of_the_synchronous_trainer_is_refused(settings):
    config = settings()
    async_stubs.run(settings(steps=2))
    checkpoint = config.output / "saved" / "checkpoint-2"
    (checkpoint / "worker.json").unlink()
    with pytest.raises(ConfigurationError, match=r"not saved by this asynchronous trainer; remove grpo\.asynchronous"):
        async_stubs.run(config)


def test_nan_ends_the_job_before_the_weights_are_touched(settings):
    config = settings(steps=4)
    trainer, tokenizer, worker, _ = async_stubs.prepare(config)
    original = worker._group

    def poisoned(number):
        samples = original(number)
        if number == 6:
            samples[0].token_advantages[3:] = np.nan
        return samples

    worker._group = poisoned
    config.output.mkdir(exist_ok=True)
    with pytest.raises(
        DataError, match=r"the loss became nan by step 4; .* the newest good checkpoint is .*checkpoint-2"
    ):
        async_stubs.run_trainer(config, trainer, tokenizer, rows=2, tokens_per_step=0.0)
    assert all(item.isfinite().all() for item in trainer.model.parameters()) and worker.stopped


def test_a_drift_of_the_sampler_stops_the_job_or_warns(settings, capsys):
    options = {"drift_alarm": 0.5}
    with pytest.raises(DataError, match=r"differ by 0\.7 nats a token in step 1 .* new weights reach the sampler"):
        async_stubs.run(settings(asynchronous=options), gap=0.7)
    report, *_ = async_stubs.run(settings("warned", asynchronous=options | {"on_drift": "warn"}, steps=2), gap=0.7)
    assert report.steps == 2 and report.asynchronous.drift_max > 0.5
    assert capsys.readouterr().err.count("warning: the log-probabilities of trainer and sampler differ") == 2


def test_refused_weights_end_the_job_and_it_resumes(settings):
    with pytest.raises(InfrastructureError, match="refuses the weights"):
        async_stubs.run(settings(steps=4), refuse_at=4)
    report, _, worker = async_stubs.run(settings(steps=4))
    assert report.steps == 4 and len(set(worker.history)) == len(worker.history) == 8


def test_adapters_are_sent_without_touching_the_base(settings):
    """TRL merges and unmerges in place; each round trip rounds the frozen base."""
    config = settings(lora={"r": 4, "alpha": 64.0}, steps=4, learning_rate=1e-2)
    report, _, worker = async_stubs.run(config)
    merged = weights(report)
    assert all(torch.allclose(item, merged[name], atol=1e-6) for name, item in worker.model.named_parameters())

    trainer, *_ = async_stubs.prepare(settings("again", lora={"r": 4, "alpha": 64.0}))
    for name, item in trainer.model.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(item)
    base = {name: item.clone() for name, item in trainer.model.named_parameters()}
    trainer._sync_weight_merged(0.0)
    assert all(torch.equal(item, base[name]) for name, item in trainer.model.named_parameters())
    trainer.model.merge_adapter()
    trainer.model.unmerge_adapter()
    changed = [name for name, item in trainer.model.named_parameters() if not torch.equal(item, base[name])]
    assert changed, "merging in place has become exact: TRL's own transfer would do"


def test_selection_drops_attempts_from_the_loss_and_its_normaliser(settings):
    config = settings(selection={"accuracy_band": {"low": 0.0, "high": 0.45}})
    trainer, *_ = async_stubs.prepare(config)
    (batch,) = first_batches(trainer)
    kept = int((batch["token_index"] >= 0).sum())
    assert kept in (0, 16) and trainer._metrics["train"]["selection/kept"] == [kept / 32]
    if kept:
        assert batch["weights"][batch["token_index"] >= 0].sum().item() == pytest.approx(1.0)


@pytest.mark.long
@pytest.mark.parametrize("loss", ["dapo", "grpo"])
def test_two_processes_train_what_one_trains(settings, loss):
    """The main process alone plays; each process gets its row of every micro-batch."""
    changes = {"asynchronous": {"max_staleness": 0}, "steps": 3, "loss": loss, "learning_rate": 1e-4}
    together = settings("together", **changes)
    path = together.output.parent / "job.json"
    path.write_text(together.model_dump_json())
    command = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", HELPERS / "async_stubs.py", path]
    environment = os.environ | {"PYTHONPATH": str(HELPERS), "OMP_NUM_THREADS": "1"}
    ended = subprocess.run(
        [sys.executable, *map(str, command)], env=environment, capture_output=True, text=True, timeout=1500
    )
    assert ended.returncode == 0, ended.stderr[-3000:]
    alone = weights(async_stubs.run(settings("alone", **changes))[0])
    ours = load_file(together.output / "checkpoint" / "model.safetensors")
    assert all(torch.allclose(ours[name], alone[name], atol=5e-5) for name in alone)
    assert [line["step"] for line in lines(together) if "loss" in line] == [1, 2, 3]


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"selection": {"replay": {"per_task": 2}}}, r"selection\.replay has no meaning with grpo\.asynchronous"),
        ({"selection": {"guide": {}}}, r"selection\.guide has no meaning"),
        ({"credit": {"token_weights": ["entropy_topk"], "keep": 0.5}}, "entropy_topk needs the batch"),
        ({"scale_rewards": "batch"}, r"grpo\.scale_rewards: batch pools the groups of a step"),
        ({"credit": {"advantage": "batch_std"}}, r"grpo\.scale_rewards: batch pools"),
        ({"credit": {"advantage": "per_task"}}, r"grpo\.credit\.advantage: per_task pools"),
        ({"credit": {"turns": "sum_decomposition"}}, r"grpo\.credit\.turns: sum_decomposition pools"),
        ({"beta": 0.1}, "keeps no reference model"),
        ({"updates": 2}, "one update per batch"),
        ({"sampling": {"sampler": "colocate"}}, "colocate plays in turn"),
        ({"launch": "fsdp"}, r"run\.launch shards them"),
        ({"attention": "sdpa"}, r"set model\.attention: auto"),
        ({"share_prefixes": False}, "always shares prefixes"),
        ({"offline": True, "train": "x"}, "grpo.offline does not"),
    ],
)
def test_settings_that_do_not_go_together_are_one_line(settings, changes, why):
    with pytest.raises(ConfigurationError, match=why):
        job.run(settings(**changes))


def test_arguments_reach_trl_under_their_names(settings):
    trainer, *_ = async_stubs.prepare(settings(trl={"adam_epsilon": 1e-6}))
    assert trainer.args.adam_epsilon == 1e-6 and trainer.args.adam_beta2 == 0.95


@pytest.mark.parametrize("name", ["use_liger_kernel", "mask_truncated_completions", "top_k", "chat_template_kwargs"])
def test_an_argument_without_an_effect_on_the_asynchronous_trainer_is_refused(settings, name):
    with pytest.raises(ConfigurationError, match=f"trl.{name}: the asynchronous trainer does not read it"):
        async_stubs.prepare(settings(trl={name: True}))
