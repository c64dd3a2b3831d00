"""Asynchronous jobs under faults: each ends in one line, and a second start trains the rest, with nothing twice."""

import errno
import threading
import time

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("trl")
pytestmark = pytest.mark.slow

from grpo_player import Letters  # noqa: E402
from training_jobs import make_job  # noqa: E402

from ratchet.components.core import InfrastructureError, RatchetError  # noqa: E402
from ratchet.components.models.transformers_policy import LocalSampler  # noqa: E402
from ratchet.components.training import checkpoint_io, job  # noqa: E402
from ratchet.components.training.grpo import async_trainer, versioned_samplers  # noqa: E402
from ratchet.components.training.grpo.async_worker import EpisodeRolloutWorker  # noqa: E402
from ratchet.components.training.grpo.weight_transfers import MemoryTransfer  # noqa: E402

STEPS, GROUPS_PER_STEP, FAULT_AT = 5, 2, 3


@pytest.fixture
def config(base, tmp_path):
    Letters.calls, Letters.break_at = 0, None
    return make_job(
        "grpo",
        output=tmp_path / "job",
        base=base,
        precision="float32",
        batch_size=8,
        group_size=4,
        steps=STEPS,
        save_every=1,
        learning_rate=1e-5,  # this model is sensitive: more would raise the drift alarm
        schedule="constant",
        warmup_steps=0,
        threads=1,
        stalled_after=30.0,
        player="grpo_player:Letters",
        sampling={"max_new_tokens": 8, "max_episode_tokens": 64},
        reward={"grpo_player:letters": 1.0},
        asynchronous={"max_staleness": 1},
    )


@pytest.fixture
def trained(monkeypatch):
    """The groups of each optimiser step, over all runs of a test."""
    steps = []
    original = EpisodeRolloutWorker.mark_trained

    def mark(worker, groups):
        steps.append(tuple(groups))
        original(worker, groups)

    monkeypatch.setattr(EpisodeRolloutWorker, "mark_trained", mark)
    return steps


def at_call(number, fail, original):
    """A function that fails at its call of that number, and else does what it did."""
    calls = iter(range(1, 10**6))

    def call(*arguments, **options):
        if next(calls) == number:
            fail()
        return original(*arguments, **options)

    return call


def sampler_killed(patch):
    def die():
        raise RuntimeError("CUDA error: device lost")

    patch.setattr(LocalSampler, "sample", at_call(3, die, LocalSampler.sample))


def sampler_hung(patch):
    """Waits less than a job does for a thread that may yet end: this one does not."""
    patch.setattr(versioned_samplers, "CLOSE_SECONDS", 1.0)
    patch.setattr(LocalSampler, "sample", at_call(3, lambda: time.sleep(90), LocalSampler.sample))


def loss_not_finite(patch):
    original = async_trainer.policy_loss
    calls = iter(range(1, 10**6))

    def loss(log_probs, *arguments):
        return original(log_probs * float("nan") if next(calls) >= FAULT_AT else log_probs, *arguments)

    patch.setattr(async_trainer, "policy_loss", loss)


def weights_refused(patch):
    def refuse():
        raise InfrastructureError("the server refused the weights (HTTP 500)")

    patch.setattr(MemoryTransfer, "send_weights", at_call(FAULT_AT, refuse, MemoryTransfer.send_weights))


def disk_full(patch):
    def fill():
        raise OSError(errno.ENOSPC, "No space left on device")

    patch.setattr(async_trainer, "write_atomically", at_call(FAULT_AT, fill, async_trainer.write_atomically))


@pytest.mark.parametrize(
    ("fault", "line"),
    [
        (sampler_killed, "device lost"),
        (sampler_hung, "has hung"),
        (loss_not_finite, "loss became nan"),
        (weights_refused, "refused the weights"),
        (disk_full, "No space left"),
    ],
)
def test_a_fault_ends_the_job_in_one_line_and_the_next_start_trains_the_rest(config, trained, fault, line):
    with pytest.MonkeyPatch.context() as patch:
        fault(patch)
        with pytest.raises(RatchetError, match=line) as told:
            job.run(config)
    assert "\n" not in str(told.value)
    assert not [thread for thread in threading.enumerate() if thread.name == "rollout-worker"]
    saved = checkpoint_io.newest_checkpoint(config.output)
    kept = trained[: checkpoint_io.checkpoint_step(saved) if saved else 0]
    before = len(trained)
    report = job.run(config)
    groups = [group for step in [*kept, *trained[before:]] for group in step]
    assert report.steps == STEPS and len(groups) == len(set(groups)) == STEPS * GROUPS_PER_STEP


def test_a_resumed_job_plays_as_far_ahead_as_one_that_ran_through(config, trained):
    """With a bound of 0 it would else wait for ever: the worker would count the groups before the checkpoint twice."""
    options = config.grpo.asynchronous.model_copy(update={"max_staleness": 0})
    config = config.model_copy(update={"grpo": config.grpo.model_copy(update={"asynchronous": options})})
    with pytest.MonkeyPatch.context() as patch:
        loss_not_finite(patch)
        with pytest.raises(RatchetError, match="loss became nan"):
            job.run(config)
    assert job.run(config).steps == STEPS
