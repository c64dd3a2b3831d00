"""Many threads ask one sampler: their requests share batches, no batch mixes versions, and nobody waits for ever."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from itertools import count

import pytest
from patience import LIMIT, until

from ratchet.components.core import ConfigurationError, InfrastructureError
from ratchet.components.models.sampled_policy import Sampled, SamplingParameters
from ratchet.components.training.grpo.versioned_samplers import BatchingSampler

SAMPLING = SamplingParameters()


class Parameter:
    """As far as a sampler needs it: its value is replaced whole."""

    def __init__(self):
        self.data = 0


class Model:
    """Its one weight is the version that it was given."""

    def __init__(self):
        self.weight = Parameter()

    def named_parameters(self):
        return [("weight", self.weight)]


class Echo:
    """Replies with the weight before and after the batch, to find one that changed while it was read."""

    stops, context_length = [0], 100

    def __init__(self, model, seconds=0.0):
        self.model, self.seconds = model, seconds
        self.may_end = lambda: True
        self.sizes = []
        self.error = None
        self.logprob = -0.5

    def sample(self, prompts, seeds, sampling):
        before = self.model.weight.data
        self.sizes.append(len(prompts))
        time.sleep(self.seconds)
        until(self.may_end)
        if self.error:
            raise self.error
        return [Sampled((before, self.model.weight.data), (self.logprob,) * 2) for _ in prompts]


@pytest.fixture
def made():
    samplers = []

    def make(size=64, **options):
        model = Model()
        echo = Echo(model, **options)
        samplers.append(BatchingSampler(echo, model, size))
        return samplers[-1], echo

    yield make
    for sampler in samplers:
        sampler.close()


def ask(sampler, seed=0):
    (reply,) = sampler.sample([[1, 2]], [seed], SAMPLING)
    return reply


def test_requests_of_many_threads_are_sampled_together(made):
    sampler, echo = made(seconds=0.05)
    with ThreadPoolExecutor(16) as pool:
        list(pool.map(lambda seed: ask(sampler, seed), range(64)))
    assert sum(echo.sizes) == 64 and len(echo.sizes) <= 16


def test_a_batch_has_at_most_the_given_size(made):
    sampler, echo = made(size=4, seconds=0.02)
    sampler.sample([[1]] * 10, range(10), SAMPLING)
    assert echo.sizes == [4, 4, 2]


def test_every_reply_has_the_version_of_the_weights_that_sampled_all_of_it(made):
    sampler, _ = made(seconds=0.002)
    ended = threading.Event()
    replies = []

    def play(seed):
        while not ended.is_set():
            replies.append(ask(sampler, seed))

    with ThreadPoolExecutor(8) as pool:
        for seed in range(8):
            pool.submit(play, seed)
        limit = time.monotonic() + LIMIT
        for version in count(1):
            sampler.stage({"weight": version})
            sampler.publish(version)
            time.sleep(0.003)
            if (version >= 40 and len({reply.version for reply in replies}) > 5) or time.monotonic() > limit:
                break
        ended.set()
    assert len({reply.version for reply in replies}) > 5
    assert all(reply.ids == (reply.version, reply.version) for reply in replies)


def test_a_request_after_publish_never_gets_older_weights(made):
    sampler, _ = made(seconds=0.01)
    with ThreadPoolExecutor(4) as pool:
        for version in range(1, 20):
            running = [pool.submit(ask, sampler) for _ in range(3)]
            sampler.stage({"weight": version})
            sampler.publish(version)
            assert ask(sampler).version == version
            assert all(each.result().version >= version - 1 for each in running)


def test_weights_that_no_batch_took_are_not_lost_by_a_version_without_weights(made):
    sampler, _ = made()
    sampler.stage({"weight": 7})
    sampler.publish(7)
    sampler.publish(8)
    assert ask(sampler).ids == (7, 7) and ask(sampler).version == 8


def test_a_failure_of_the_model_fails_its_batch_and_not_the_next(made):
    sampler, echo = made()
    echo.error = RuntimeError("out of memory")
    with pytest.raises(InfrastructureError, match="out of memory"):
        ask(sampler)
    echo.error = None
    assert ask(sampler).ids == (0, 0)


def test_log_probabilities_that_are_not_finite_end_the_job_in_one_line(made):
    sampler, echo = made()
    echo.logprob = float("nan")
    with pytest.raises(ConfigurationError, match=r"version 0 .* not finite; lower optimization.learning_rate"):
        ask(sampler)


def test_closing_ends_requests_that_wait_and_refuses_later_ones(made):
    sampler, echo = made(size=1)
    echo.may_end = lambda: sampler._closed
    with ThreadPoolExecutor(3) as pool:
        running = [pool.submit(ask, sampler, seed) for seed in range(3)]
        until(lambda: echo.sizes and len(sampler._waiting) == 2)
        assert sampler.busy_seconds() > 0
        sampler.close()
        ended = [each.exception() for each in running]
    assert len([error for error in ended if isinstance(error, InfrastructureError)]) == 2, "one was in the batch"
    with pytest.raises(InfrastructureError, match="closed"):
        ask(sampler)


def test_after_closing_no_batch_is_sampled_any_more(made):
    sampler, echo = made()
    echo.may_end = lambda: sampler._closed
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(ask, sampler)
        until(lambda: echo.sizes)
        sampler.close()
        assert sampler.busy_seconds() == 0
        assert running.result(LIMIT).version == 0
