"""The rollout worker of asynchronous GRPO: our player as TRL's `RolloutWorkerProtocol`.

Generation, tools and training overlap. Every attempt is played on its own, so that a slow tool holds its own episode
alone; an episode that spans an update of the weights goes on with the new ones, and each token carries the version of
its weights. One thread owns all groups: it starts them, collects ended attempts, computes rewards and advantages, and
hands whole groups to the trainer. `StalenessControl` decides when.

A group's task and seeds follow from its number alone, so a resumed job plays groups that were started and not trained
again as they were.
"""

import base64
import copy
import queue
import threading
import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np
from trl.experimental.async_grpo.async_rollout_worker import RolloutSample as TrlSample

from ratchet.components.core import (
    EpisodeAttempt,
    EpisodePlayer,
    EpisodeStream,
    InfrastructureError,
    PlayedEpisode,
    PolicyReply,
    PolicyRequest,
)
from ratchet.components.models.sampled_policy import Sampled, SamplingParameters, TokenExactPolicy
from ratchet.components.trajectories.trajectory import Trajectory

from ..config.job_config import GrpoConfig
from ..credit.advantages import SignalWindow, trained_std
from .attempt_selection import AccuracyBand, accuracy_band
from .episode_rewards import EpisodeRewards
from .episode_rollout import check_same_prompts, make_attempt, make_sample
from .grpo_trainer import SampleBatch
from .rollout_sample import RolloutSample
from .staleness_control import StalenessControl
from .task_sampler import TaskSampler
from .versioned_samplers import VersionedSampler

STOP_SECONDS = 30.0
"""How long `stop` waits for tools and sandboxes to end."""


@dataclass(slots=True, kw_only=True)
class EpisodeSample(TrlSample):  # type: ignore[misc]
    """One attempt with values for each of the L tokens of `input_ids`. `model_version` is the oldest of its tokens.

    `token_advantages` (L,) float32: 0 where nothing is trained. `token_versions` (L,) int32: version of the weights that
    sampled the token; -1 for tokens of prompt and environment.
    """

    token_advantages: Any
    token_versions: Any


class ConcurrentPolicy(TokenExactPolicy):
    """A token-exact policy for many threads, each with another episode."""

    lockstep = False

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._lock = threading.Lock()  # fast tokenizers raise "Already borrowed" when two threads use one

    def _continue_episode(self, request: PolicyRequest) -> Any:
        with self._lock:
            return super()._continue_episode(request)

    def _reply(self, request: PolicyRequest, episode: Any, sampled: Sampled) -> PolicyReply:
        with self._lock:
            return super()._reply(request, episode, sampled)

    def forget_episode(self, episode_id: str) -> None:
        """Drop the token ids of an ended episode."""
        self._episodes.pop(episode_id, None)


class _Group(msgspec.Struct, eq=False):
    number: int
    task_id: str
    version: int
    began: float
    samples: dict[int, RolloutSample]
    advantages: Any = None


class EpisodeRolloutWorker:
    """Plays groups of `group_size` attempts until `stop`; see TRL's RolloutWorkerProtocol for its methods.

    The trainer must train every group of `rollout_buffer`, earlier ones first, `control.batch` of them for each version;
    samples of a group follow each other.

    Failures of the worker's thread are raised by `check_health`, with the exception that ended it: ConfigurationError,
    DataError if no group has a learning signal, InfrastructureError for an outage.
    """

    def __init__(
        self,
        config: GrpoConfig,
        player: EpisodePlayer[Trajectory],
        policy: ConcurrentPolicy,
        sampler: VersionedSampler,
        rewards: EpisodeRewards,
        task_sampler: TaskSampler,
        *,
        tokenizer: Any,
    ) -> None:
        grpo, options = config.grpo, config.grpo.asynchronous
        assert options is not None
        self.rollout_buffer: queue.Queue[EpisodeSample] = queue.Queue()
        self.metrics_queue: queue.Queue[dict[str, Any]] = queue.Queue()
        self.group_size = grpo.group_size
        batch = config.optimization.batch_size // grpo.group_size * options.weight_sync_steps
        self.control = StalenessControl(batch, options.max_staleness, options.inflight_groups)
        self._credit, self._scale = grpo.credit, grpo.scale_rewards
        self._band = (grpo.selection.accuracy_band or AccuracyBand()) if options.refill else None
        self._signal = SignalWindow(grpo.signal_window * batch // options.weight_sync_steps, "groups")
        self._steps_per_version = options.weight_sync_steps
        self._seed, self._pad, self._tokenizer = config.seed, tokenizer.pad_token_id, tokenizer
        self._player, self._policy, self._sampler = player, policy, sampler
        self._rewards, self._task_sampler = rewards, task_sampler
        self._tasks = {task.task_id: task for task in player.tasks()}
        self._running: dict[EpisodeAttempt, _Group] = {}
        self._held: list[_Group] = []
        # Shared with the trainer's thread, under the lock:
        self._lock = threading.Lock()
        self._version = 0
        self._first_version: int | None = None
        self._next = 0
        self._repeat: deque[int] = deque()
        self._untrained: dict[int, str] = {}
        self._trained = 0
        self._thread: threading.Thread | None = None
        self._stopping = threading.Event()
        self._error: BaseException | None = None
        self._heartbeat = time.monotonic()

    # What the trainer's thread calls

    def start(self) -> None:
        """Begin to play. Versions count from the last one that `update_model_version` was given."""
        self._first_version = self._version
        self._heartbeat = time.monotonic()
        self._thread = threading.Thread(target=self._run, name="rollout-worker", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Give up what plays, and close its tools and sandboxes. Idempotent."""
        self._stopping.set()
        self._sampler.close()  # first, so that no episode waits for a reply
        if self._thread is not None:
            self._thread.join(STOP_SECONDS)

    def update_model_version(self, model_version: int) -> None:
        """Record the version of the weights that were transferred."""
        # The sampler first: a group that starts at a version never samples from older weights.
        self._sampler.publish(model_version)
        with self._lock:
            if self._first_version is not None:
                self.control.version = model_version - self._first_version
            self._version = model_version

    def mark_trained(self, groups: Sequence[int]) -> None:
        """Record that an optimiser step has learned from these groups."""
        with self._lock:
            self._trained += len(groups)
            for group in groups:
                del self._untrained[group]

    def check_health(self, stale_after_s: float) -> None:
        """Raise the error that ended the worker, or InfrastructureError if it has hung for `stale_after_s` seconds."""
        if self._error is not None:
            raise self._error
        silent, sampling = time.monotonic() - self._heartbeat, self._sampler.busy_seconds()
        for name, seconds in (("worker", silent), ("sampler", sampling)):
            if seconds > stale_after_s:
                raise InfrastructureError(
                    f"the rollout {name} has hung for {seconds:.0f} s (limit {stale_after_s:g}); start the same command again "
                    "to resume"
                )

    def state(self) -> dict[str, Any]:
        """Return the state for a checkpoint, as JSON."""
        with self._lock:
            return {
                "trained": self._trained,
                "next": self._next,
                "untrained": {str(number): task for number, task in sorted(self._untrained.items())},
                "task_sampler": base64.b64encode(self._task_sampler.state()).decode(),
            }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from a state, before `start`: groups that were not trained are played first."""
        self._trained, self._next = state["trained"], state["next"]
        self._untrained = {int(number): task for number, task in state["untrained"].items()}
        self._repeat = deque(self._untrained)
        # Groups that the current version has trained count into the first one of this run. The trainer marks the last groups of
        # a version after its update, so this cannot be counted from update to update.
        self.control.released = self._trained % self.control.batch
        self._task_sampler.restore(base64.b64decode(state["task_sampler"]))

    # What the worker's own thread does

    def _run(self) -> None:
        stream: EpisodeStream[Trajectory] | None = None
        try:
            stream = self._player.stream(self._policy)
            while not self._stopping.is_set():
                self._heartbeat = time.monotonic()
                self._start_groups(stream)
                if (ended := stream.wait()) is not None:
                    self._collect(*ended)
        except BaseException as error:
            self._error = error
        finally:
            self._sampler.close()
            if stream is not None:
                stream.close()

    def _start_groups(self, stream: EpisodeStream[Trajectory]) -> None:
        while self.control.can_start():
            with self._lock:
                number = self._repeat.popleft() if self._repeat else self._next
                task = self._untrained.get(number) or self._task_sampler.tasks(number, 1)[0]
                self._next = max(self._next, number + 1)
                self._untrained[number] = task
                version = self._version
                self.control.start(number)
            group = _Group(number, task, version, time.monotonic(), {})
            for index in range(self.group_size):
                attempt = make_attempt(f"{self._seed}/asynchronous", task, number, index)
                self._running[attempt] = group
                stream.submit(attempt)

    def _collect(self, attempt: EpisodeAttempt, played: PlayedEpisode[Trajectory]) -> None:
        group = self._running.pop(attempt)
        if played.record is not None:
            self._policy.forget_episode(played.record.episode_id)
        group.samples[attempt.number] = make_sample(self._tasks[group.task_id], played, self._rewards, self._pad)
        if len(group.samples) < self.group_size:
            return
        self.control.end(group.number)
        samples = [group.samples[index] for index in range(self.group_size)]
        check_same_prompts(samples, 0, self.group_size)
        group.advantages, spread = self._advantages(samples)
        self._signal.add(spread)
        if self._is_kept(samples):
            self._held.append(group)
        else:
            with self._lock:
                self.control.drop(group.number)
                del self._untrained[group.number]
            self.metrics_queue.put({"rollout/refilled_total": 1.0})
        while ready := next((held for held in self._held if self.control.can_release(held.number)), None):
            self._held.remove(ready)
            self._release(ready)

    def _is_kept(self, samples: Sequence[RolloutSample]) -> bool:
        """Return whether a group is trained, and not replaced by `refill`."""
        rewards = _rewards(samples)
        band = self._band
        return band is None or bool(accuracy_band(rewards, np.zeros(len(rewards), int), band.low, band.high).any())

    def _release(self, group: _Group) -> None:
        samples = [group.samples[index] for index in range(self.group_size)]
        rows = group.advantages
        self._task_sampler_update(samples, rows)
        metrics = _group_metrics(samples, self._rewards.weights)
        for sample, advantages, measured in zip(samples, rows, metrics, strict=True):
            self.rollout_buffer.put(_episode_sample(group, sample, advantages, measured))
        with self._lock:
            self.control.release(group.number)
        self.metrics_queue.put(
            {
                "rollout/group_s": time.monotonic() - group.began,
                "rollout/groups_playing": float(self.control.playing),
                "rollout/groups_held": float(len(self._held)),
            }
        )

    def _advantages(self, samples: Sequence[RolloutSample]) -> tuple[Any, float]:
        """Return the advantage of each token, (G, T), and their standard deviation over the trained tokens. Estimators that pool
        the groups of a step are refused (`check_config`).
        """
        width = max(len(sample.tokens.turns) for sample in samples)
        batch = SampleBatch.join(samples, samples, 0, width, self.group_size)
        step = self._version * self._steps_per_version
        rows = batch.advantages(self._credit, self._scale, step, self._tokenizer, None).numpy()
        return rows, trained_std(rows, batch.turns)

    def _task_sampler_update(self, samples: Sequence[RolloutSample], rows: Any) -> None:
        trained = [np.array(sample.tokens.mask, bool) for sample in samples]
        means = [
            float(row[: len(mask)][mask].mean()) if mask.any() and sample.breakdown.reward is not None else np.nan
            for sample, row, mask in zip(samples, rows, trained, strict=True)
        ]
        with self._lock:
            self._task_sampler.update_families(samples, means)


def _rewards(samples: Sequence[RolloutSample]) -> Any:
    return np.array([np.nan if (reward := item.breakdown.reward) is None else reward for item in samples])


def _group_metrics(samples: Sequence[RolloutSample], components: Mapping[str, float]) -> list[dict[str, float]]:
    """Return the metrics of each attempt of a group under the names of TRL's trainer."""
    rewards = _rewards(samples)
    is_known = ~np.isnan(rewards)
    spread = float(rewards[is_known].std()) if is_known.any() else np.nan
    result = []
    for sample, reward in zip(samples, rewards.tolist(), strict=True):
        parts = {name: sample.breakdown.parts[name] for name in components}
        result.append(
            {
                "reward": reward,
                "reward_std": spread,
                **{f"rewards/{name}": np.nan if part is None else part for name, part in parts.items()},
                "rollout/hacked": float(sample.breakdown.hacked),
                "rollout/untrained": float(not any(sample.tokens.mask)),
                "rollout/lost": float(sample.lost),
                "rollout/turns": max(sample.tokens.turns) + 1.0,
            }
        )
    return result


def _episode_sample(group: _Group, sample: RolloutSample, advantages: Any, metrics: dict[str, float]) -> EpisodeSample:
    tokens = sample.tokens
    prompt, mask = len(tokens.prompt_ids), np.array(tokens.mask, np.int64)
    turns = np.array(tokens.turns)
    versions = np.where(mask == 1, np.array([*tokens.versions, -1])[turns], -1)
    own = np.where(mask == 1, advantages[: len(mask)], 0.0)
    zeros = np.zeros(prompt)
    return EpisodeSample(
        prompt=[],
        completion=[],
        input_ids=np.array([*tokens.prompt_ids, *tokens.completion_ids], np.int64),
        completion_mask=np.concatenate([zeros, mask]).astype(np.int64),
        old_log_probs=np.concatenate([zeros, tokens.logprobs]).astype(np.float32),
        advantage=float(own[mask == 1].mean()) if mask.any() else 0.0,
        model_version=int(versions[mask == 1].min()) if mask.any() else group.version,
        group_id=group.number,
        metrics=metrics,
        enqueued_at=time.time(),
        token_advantages=np.concatenate([zeros, own]).astype(np.float32),
        token_versions=np.concatenate([zeros - 1, versions]).astype(np.int32),
    )


def make_worker(
    config: GrpoConfig,
    player: EpisodePlayer[Trajectory],
    sampler: VersionedSampler,
    rewards: EpisodeRewards,
    task_sampler: TaskSampler,
    tokenizer: Any,
) -> EpisodeRolloutWorker:
    """Return the worker that plays with `sampler`."""
    sampling = config.grpo.sampling
    own_tokenizer = copy.deepcopy(tokenizer)  # the trainer's thread uses the other
    policy = ConcurrentPolicy(
        sampler,
        own_tokenizer,
        SamplingParameters(sampling.temperature, sampling.top_p, sampling.max_new_tokens),
        version="online",
        max_episode_tokens=sampling.max_episode_tokens,
    )
    return EpisodeRolloutWorker(config, player, policy, sampler, rewards, task_sampler, tokenizer=own_tokenizer)
