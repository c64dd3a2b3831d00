"""The worker of asynchronous GRPO: episodes overlap, groups come whole and in time, and a resumed run repeats nothing trained."""

import json
import queue
import random
import threading
import time

import numpy as np
import pytest
from patience import LIMIT, until

torch = pytest.importorskip("torch")
pytest.importorskip("trl")
pytestmark = pytest.mark.slow

from episodes import make_episode, turn  # noqa: E402
from training_jobs import make_job  # noqa: E402

from ratchet.components.core import (  # noqa: E402
    DataError,
    EpisodePlayer,
    EpisodeStream,
    InfrastructureError,
    PlayableTask,
    PlayedEpisode,
    TokenTrace,
)
from ratchet.components.training.credit.estimators import EPSILON  # noqa: E402
from ratchet.components.training.grpo.async_worker import EpisodeRolloutWorker  # noqa: E402
from ratchet.components.training.grpo.episode_rewards import RewardBreakdown  # noqa: E402
from ratchet.components.training.grpo.grpo_trainer import SampleBatch  # noqa: E402
from ratchet.components.training.grpo.task_sampler import TaskSampler  # noqa: E402

TASKS = [PlayableTask(f"repair/t{number}", f"f{number % 2}", "k") for number in range(5)]


class Sampler:
    """Counts versions, and samples nothing."""

    def __init__(self):
        self.version, self.closed, self.busy = 0, False, 0.0

    def publish(self, version):
        self.version = version

    def busy_seconds(self):
        return self.busy

    def close(self):
        self.closed = True


class Player(EpisodePlayer):
    """Two turns an attempt; each turn carries the version that the sampler had. `seconds(attempt)`: duration of a turn."""

    def __init__(self, sampler, seconds=lambda attempt: 0.0, reward=lambda attempt: attempt.number % 2):
        self.sampler, self.seconds, self.reward = sampler, seconds, reward
        self.submitted = []
        self.error = None
        self.open = None
        self.between_turns = lambda: None

    def tasks(self):
        return TASKS

    def play(self, policy, attempts):
        raise AssertionError("the worker streams")

    def stream(self, policy):
        self.open = Stream(self)
        return self.open


class Stream(EpisodeStream):
    def __init__(self, player):
        self.player, self.ended, self.closed = player, queue.SimpleQueue(), False
        self.halfway = []

    def submit(self, attempt):
        self.player.submitted.append(attempt)
        threading.Thread(target=self._play, args=(attempt,), daemon=True).start()

    def _play(self, attempt):
        traces, length = [], 0
        for index in range(2):
            time.sleep(self.player.seconds(attempt))
            ids = (7, 8) if index == 0 else (9,)
            traces.append(TokenTrace(ids, (1, 2, 3), (-0.5, -0.25, -0.125), length, self.player.sampler.version))
            length += len(ids) + 3
            if index == 0:
                self.halfway.append(attempt)
                self.player.between_turns()
        reward = self.player.reward(attempt)
        record = None
        if reward is not None:
            record = make_episode(
                attempt.task_id, attempt.number, success=bool(reward), turns=(turn(0, "read_file"), turn(1, "submit"))
            )
        self.ended.put((attempt, PlayedEpisode(record, tuple(traces) if record else ())))

    def wait(self):
        if self.player.error is not None:
            raise self.player.error
        try:
            return self.ended.get(timeout=0.01)
        except queue.Empty:
            return None

    def close(self):
        self.closed = True


class Rewards:
    """1 for success, with a score for each turn."""

    def __init__(self):
        self.weights = {"success": 1.0}

    def compute(self, record):
        if record is None:
            return RewardBreakdown(None, {"success": None}, [])
        return RewardBreakdown(float(record.outcome.success), {"success": float(record.outcome.success)}, [0.5, 0.5])


class Policy:
    def forget_episode(self, episode_id):
        pass


class Tokenizer:
    pad_token_id = 0


@pytest.fixture
def made(tmp_path):
    workers = []

    def make(player=None, *, group_size=2, batch_size=4, seed=0, credit=None, **options):
        player = player or Player(Sampler())
        config = make_job(
            "grpo",
            output=tmp_path / "job",
            base=tmp_path,
            batch_size=batch_size,
            seed=seed,
            group_size=group_size,
            reward={"success": 1.0},
            credit=credit or {},
            asynchronous={"max_staleness": 1, **options},
        )
        tasks = TaskSampler(config.grpo.selection, player.tasks(), config.seed)
        workers.append(
            EpisodeRolloutWorker(config, player, Policy(), player.sampler, Rewards(), tasks, tokenizer=Tokenizer())
        )
        return workers[-1]

    yield make
    for worker in workers:
        worker.stop()


def take(worker, groups):
    """The next samples of `groups` groups."""
    return [worker.rollout_buffer.get(timeout=LIMIT) for _ in range(groups * worker.group_size)]


def train(worker, versions, first=0):
    """Train whole versions as a trainer does; return all samples, each with the version that trained it."""
    trained = []
    worker.update_model_version(first)
    worker.start()
    for version in range(first, first + versions):
        samples = take(worker, worker.control.batch)
        trained += [(sample, version) for sample in samples]
        worker.update_model_version(version + 1)  # before the marks: the order of TRL's callbacks
        worker.mark_trained(sorted({sample.group_id for sample in samples}))
    return trained


def test_tokens_carry_versions_advantages_and_log_probabilities(made):
    (first, second), *_ = [take(worker, 1) for worker in [begin(made())]]
    assert first.group_id == second.group_id  # of the groups that play at once, the one that ends first
    assert first.model_version == 3
    assert first.input_ids.tolist() == [7, 8, 1, 2, 3, 9, 1, 2, 3]
    assert first.completion_mask.tolist() == [0, 0, 1, 1, 1, 0, 1, 1, 1]
    np.testing.assert_allclose(first.old_log_probs, [0, 0, -0.5, -0.25, -0.125, 0, -0.5, -0.25, -0.125])
    assert first.token_versions.tolist() == [-1, -1, 3, 3, 3, -1, 3, 3, 3]
    # Rewards 0 and 1: TRL divides by the standard deviation with Bessel's correction, which is sqrt(1/2).
    expected = 0.5 / (np.sqrt(0.5) + EPSILON)
    np.testing.assert_allclose(second.token_advantages, expected * first.completion_mask, rtol=1e-6)
    np.testing.assert_allclose(first.token_advantages, -second.token_advantages)
    assert second.metrics["reward"] == 1.0 and second.metrics["rewards/success"] == 1.0


def begin(worker, version=3):
    worker.update_model_version(version)
    worker.start()
    return worker


def test_an_episode_that_spans_an_update_has_tokens_of_both_versions(made):
    player, updated = Player(Sampler()), threading.Event()
    player.between_turns = lambda: updated.wait(LIMIT)
    worker = begin(made(player), 0)
    until(lambda: player.open and len(player.open.halfway) >= 2 and {*player.submitted[:2]} <= {*player.open.halfway})
    worker.update_model_version(1)
    updated.set()
    sample = take(worker, 1)[0]
    assert sample.token_versions.tolist() == [-1, -1, 0, 0, 0, -1, 1, 1, 1] and sample.model_version == 0


@pytest.mark.parametrize("max_staleness", [0, 1, 3])
def test_no_token_is_staler_than_the_bound_and_no_group_is_trained_twice(made, max_staleness):
    draws = random.Random(max_staleness)
    player = Player(Sampler(), seconds=lambda attempt: min(0.3, draws.paretovariate(1.1) / 500))
    trained = train(made(player, max_staleness=max_staleness), 12)
    assert max(version - sample.model_version for sample, version in trained) <= max_staleness
    groups = [sample.group_id for sample, _ in trained[::2]]
    assert len(set(groups)) == len(groups) == 24


def test_a_slow_tool_holds_its_own_episode_alone(made):
    slow = threading.Event()
    player = Player(Sampler(), seconds=lambda attempt: slow.wait(20) and 0 if attempt == player.submitted[0] else 0)
    worker = begin(made(player, max_staleness=3))
    assert 0 not in {sample.group_id for sample in take(worker, 3)}, "others overtake it"
    slow.set()
    assert 0 in {sample.group_id for sample in take(worker, 5)}


def test_a_resumed_run_repeats_the_untrained_groups_with_their_seeds_and_nothing_else(made):
    player = Player(Sampler(), seconds=lambda attempt: random.random() / 100)
    worker = made(player)
    done = {sample.group_id for sample, _ in train(worker, 3)}
    state = json.loads(json.dumps(worker.state()))
    worker.stop()
    again = Player(Sampler())
    resumed = made(again)
    resumed.restore(state)
    rest = {sample.group_id for sample, _ in train(resumed, 4, first=3)}
    assert not done & rest and {int(group) for group in state["untrained"]} <= rest
    played = {(attempt.seed, attempt.number): attempt for attempt in player.submitted}
    both = [attempt for attempt in again.submitted if (attempt.seed, attempt.number) in played]
    assert both and all(played[attempt.seed, attempt.number] == attempt for attempt in both)


def test_a_run_resumed_within_a_version_keeps_the_bound(made):
    worker = made(weight_sync_steps=2, max_staleness=0)
    worker.update_model_version(0)
    worker.start()
    trained = {sample.group_id for sample in take(worker, 2)}
    worker.mark_trained(sorted(trained))
    state = worker.state()
    worker.stop()
    resumed = made(weight_sync_steps=2, max_staleness=0)
    resumed.restore(state)
    resumed.update_model_version(0)
    resumed.start()
    assert {sample.group_id for sample in take(resumed, 2)} == {0, 1, 2, 3} - trained
    time.sleep(0.1)
    assert resumed.rollout_buffer.empty(), "the version's four groups are complete"


@pytest.mark.parametrize("max_staleness", [0, 1])
def test_a_resumed_run_plays_as_far_ahead_as_one_that_ran_through(made, max_staleness):
    """Groups trained before the checkpoint take no place of the next version: with a bound of 0 it would wait for ever."""
    worker = made(max_staleness=max_staleness)
    train(worker, 2)
    state = worker.state()
    worker.stop()
    resumed = made(max_staleness=max_staleness)
    resumed.restore(state)
    begin(resumed, 2)
    assert len(take(resumed, 2 * (max_staleness + 1))) == 4 * (max_staleness + 1)
    time.sleep(0.1)
    assert resumed.rollout_buffer.empty(), "the bound admits no more"


def test_turns_with_advantages_of_their_own_are_a_signal_where_all_rewards_are_equal(made):
    """As in the synchronous trainer, the advantages decide, not the rewards."""
    worker = begin(
        made(Player(Sampler(), reward=lambda attempt: 1), credit={"turns": "turn_sum_norm"}, max_staleness=20)
    )
    assert any(sample.token_advantages.any() for sample in take(worker, 30))


def test_a_schedule_of_tokens_counts_optimiser_steps_not_versions(made):
    regions = {"start": {"reasoning": 1.0}, "end": {"reasoning": 0.0}, "steps": 4}
    steps = []
    worker = made(weight_sync_steps=2, credit={"regions": regions})
    worker.update_model_version(2)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            SampleBatch,
            "advantages",
            lambda batch, *options: (steps.append(options[2]), torch.zeros(batch.turns.shape))[1],
        )
        worker.start()
        take(worker, 1)
        worker.stop()
    assert set(steps) == {4}


def test_refill_replaces_groups_whose_rewards_are_equal(made):
    player = Player(Sampler(), reward=lambda attempt: attempt.number % 2 if attempt.task_id != "repair/t0" else 0)
    worker = made(player, refill=True)
    trained = train(worker, 8)
    assert {attempt.task_id for attempt in player.submitted} == {task.task_id for task in TASKS}
    assert all(sample.metrics["reward_std"] > 0 for sample, _ in trained)
    assert max(version - sample.model_version for sample, version in trained) <= 1


def test_groups_that_never_teach_anything_end_the_job(made):
    worker = begin(made(Player(Sampler(), reward=lambda attempt: 1), refill=True))
    with pytest.raises(DataError, match="nothing can be learned"):
        poll_health(worker)


def poll_health(worker, stale_after_s=10.0):
    for _ in range(1000):
        worker.check_health(stale_after_s)
        time.sleep(0.01)


def test_a_lost_attempt_is_handed_over_without_a_trained_token(made):
    player = Player(Sampler(), reward=lambda attempt: None if attempt.number == 0 else 1)
    lost, other = take(begin(made(player)), 1)
    assert not lost.completion_mask.any() and np.isnan(lost.metrics["reward"]) and lost.metrics["rollout/lost"] == 1
    assert other.completion_mask.any() and not other.token_advantages.any()


def test_the_error_that_ended_the_worker_is_raised_and_everything_closed(made):
    player = Player(Sampler())
    worker = begin(made(player))
    take(worker, 1)
    player.error = InfrastructureError("no attempt could be played for too long: ModelUnavailable")
    with pytest.raises(InfrastructureError, match="ModelUnavailable"):
        poll_health(worker)
    worker.stop()
    assert player.open.closed and player.sampler.closed


def test_a_hung_worker_or_sampler_is_told_within_the_limit(made):
    player = Player(Sampler())
    worker = begin(made(player))
    player.sampler.busy = 500.0
    with pytest.raises(InfrastructureError, match=r"sampler has hung for 500 s \(limit 200\)"):
        worker.check_health(200.0)
    player.sampler.busy = 0.0
    player.open.wait = lambda: time.sleep(1.5)
    time.sleep(0.2)
    with pytest.raises(InfrastructureError, match="worker has hung"):
        poll_health(worker, 0.5)
