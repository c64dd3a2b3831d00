"""Collecting many episodes: cohorts over worker processes, a shard each, and nothing played twice.

Only the parent writes. A cohort whose shard stands in the manifest is finished; any other is played whole again with
the same seeds. A worker that loses its parent ends itself.
"""

import multiprocessing
import os
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from functools import partial
from pathlib import Path

import msgspec

from components.environments.sandbox import SandboxEnvironment
from components.environments.tasksets import load
from components.policies.factory import make_policy, policy_version
from components.protocol import ConfigurationError, InfrastructureError, Policy
from components.trajectories.record import Agent, FailureKind, Provenance, Trajectory
from components.trajectories.store import read_jsonl, read_manifest, write_atomically, write_shard
from components.trajectories.tokens import encode_tokens

from .cohort import CohortSettings, play_cohort
from .plan import CollectPlan, PlannedEpisode, cohorts, folder_plan, plan_episodes, plan_hash


class Progress(msgspec.Struct):
    """Where a collection stands, shards of earlier tries included."""

    total: int
    done: int = 0
    successes: int = 0
    failures: Counter[str] = msgspec.field(default_factory=Counter)

    def add(self, trajectory: Trajectory) -> None:
        """Count one episode; causes are the outcome's reason, or the type of an infrastructure failure."""
        self.done += 1
        if trajectory.outcome.success:
            self.successes += 1
        elif trajectory.failure is not None:
            self.failures[f"{trajectory.failure.kind}: {trajectory.failure.type}"] += 1
        else:
            self.failures[trajectory.outcome.reason or "unknown"] += 1


class CollectReport(msgspec.Struct, frozen=True):
    """What a collection holds at its end. `seconds` and `replayed` are of this call alone."""

    episodes: int
    successes: int
    infrastructure_failures: int
    failures: dict[str, int]
    policy_version: str
    taskset_hash: str
    seconds: float
    replayed: int


def collect(plan: CollectPlan, folder: Path, *, on_progress: Callable[[Progress], None] | None = None) -> CollectReport:
    """Collect what the plan asks for into `folder`. Raises RatchetError; what was finished stays."""
    begin = time.perf_counter()
    taskset = load(plan.taskset)
    version = policy_version(plan.policy, taskset)
    episodes = plan_episodes(plan, taskset, version)
    _open(folder, plan_hash(plan, version, taskset.hash))
    lots = cohorts(episodes, plan.cohort_size)
    progress = Progress(total=len(episodes))
    finished = {int(entry.shard[6:11]): folder / entry.shard for entry in read_manifest(folder)}
    for path in finished.values():
        for trajectory in read_jsonl(path):
            progress.add(trajectory)
    todo = [index for index in range(len(lots)) if index not in finished]
    replayed = sum(len(lots[index]) for index in todo)
    if on_progress:
        on_progress(progress)
    for trajectories in _play(plan, folder, lots, todo):
        for trajectory in trajectories:
            progress.add(trajectory)
        if on_progress:
            on_progress(progress)
    return _report(plan, progress, version, taskset.hash, time.perf_counter() - begin, replayed)


def _report(
    plan: CollectPlan, progress: Progress, version: str, taskset_hash: str, seconds: float, replayed: int
) -> CollectReport:
    broken = sum(n for cause, n in progress.failures.items() if cause.startswith(FailureKind.INFRASTRUCTURE.value))
    return CollectReport(
        episodes=progress.done,
        successes=progress.successes,
        infrastructure_failures=broken,
        failures=dict(sorted(progress.failures.items())),
        policy_version=version,
        taskset_hash=taskset_hash,
        seconds=seconds,
        replayed=replayed,
    )


def _open(folder: Path, identity: str) -> None:
    """Make the folder, or check that it was begun with this very plan."""
    folder.mkdir(parents=True, exist_ok=True)
    begun = folder_plan(folder)
    if begun is None and not read_manifest(folder):
        write_atomically(folder / "plan.txt", f"{identity}\n".encode())
    elif begun != identity:
        raise ConfigurationError(
            f"{folder} holds episodes of another plan (tasks, policy or seeds differ); give another folder or remove it"
        )


def _play(
    plan: CollectPlan, folder: Path, lots: list[list[PlannedEpisode]], todo: list[int]
) -> Iterator[list[Trajectory]]:
    if plan.workers == 1 or len(todo) <= 1:
        _prepare(plan, None)
        for index in todo:
            yield _keep(plan, folder, index, _cohort(lots[index]))
        return
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(
        min(plan.workers, len(todo)), mp_context=context, initializer=_prepare, initargs=(plan, os.getpid())
    ) as pool:
        futures = {pool.submit(_cohort, lots[index]): index for index in todo}
        try:
            for future in as_completed(futures):
                yield _keep(plan, folder, futures[future], future.result())
        except BrokenProcessPool as error:
            raise InfrastructureError(
                "a collection worker died (out of memory?); run the same command again"
            ) from error
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


class Shard(msgspec.Struct, frozen=True):
    """A cohort as a worker hands it over: trajectories as JSON lines, tokens as Parquet."""

    trajectories: bytes
    tokens: bytes | None


def _keep(plan: CollectPlan, folder: Path, index: int, shard: bytes) -> list[Trajectory]:
    """Write a cohort's shard, unless too much of it was lost: then nothing is written, and a later try plays it again."""
    cohort = msgspec.msgpack.decode(shard, type=Shard)
    trajectories = msgspec.json.decode(cohort.trajectories, type=list[Trajectory])
    lost = Counter(f"{each.failure.type}: {each.failure.message}" for each in trajectories if each.failure is not None)
    if lost.total() > (1 - plan.min_completed) * len(trajectories):
        cause, _ = lost.most_common(1)[0]
        raise InfrastructureError(
            f"{lost.total()} of {len(trajectories)} episodes were lost, more than min_completed {plan.min_completed} allows; "
            f"mostly {cause}; see `ratchet doctor`, then run the same command again"
        )
    write_shard(folder, index, trajectories, cohort.tokens)
    return trajectories


_worker: tuple[Policy, CohortSettings] | None = None


def _prepare(plan: CollectPlan, parent: int | None) -> None:
    """Load the policy once per process."""
    global _worker
    if parent is not None:
        threading.Thread(target=_end_with, args=(parent,), daemon=True).start()
    threads = plan.model_threads or max(1, (os.cpu_count() or 1) // plan.workers)
    policy = make_policy(
        plan.policy,
        load(plan.taskset),
        temperature=plan.temperature,
        top_p=plan.top_p,
        max_new_tokens=plan.max_new_tokens,
        threads=threads,
    )
    settings = CohortSettings(
        make_environment=partial(SandboxEnvironment, sandbox=plan.sandbox, max_steps=plan.max_turns + 8),
        agent=Agent(policy.name, plan.policy.partition(":")[0], policy.version, "ratchet/sandbox", policy.sampling),
        max_turns=plan.max_turns,
        threads=plan.threads,
        retries=plan.retries,
        provenance=Provenance(commit=_commit()),
    )
    _worker = (policy, settings)


def _cohort(planned: list[PlannedEpisode]) -> bytes:
    assert _worker is not None
    policy, settings = _worker
    result = play_cohort(planned, policy, settings)
    tokens = None
    if result.tokens:
        tokens = encode_tokens(
            result.tokens,
            tokenizer_hash=policy.tokenizer_hash or "",
            template_hash=policy.template_hash or "",
        )
    return msgspec.msgpack.encode(Shard(msgspec.json.encode(result.trajectories), tokens))


def _end_with(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(0.5)
    os._exit(1)


def _commit() -> str | None:
    """The checkout's commit, None outside of one."""
    try:
        found = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, timeout=5, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return found.stdout.strip() or None
