"""Tasks that collect episodes and seal them. A collection is one task run and keeps its own shards."""

import contextlib
import hashlib
import json
import os
import shutil
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
from prefect import task
from prefect.cache_policies import NO_CACHE

from ratchet.components.core import InfrastructureError
from ratchet.components.core.configuration import read_section
from ratchet.components.core.home import PARAMS_FILE, home
from ratchet.components.core.home import home_folder as local
from ratchet.components.core.processes import owner_token, run_job_process
from ratchet.components.datasets.stage_params import DuplicatesParams
from ratchet.components.models.policy_factory import started_server_gpus
from ratchet.components.nights.scale_config import TrafficConfig
from ratchet.components.operations.shared_collection import share_collection
from ratchet.components.reporting.progress_display import ProgressStep, current_display
from ratchet.components.rollouts.collect_job import JOB_FILE, PROGRESS_FILE, CollectJob
from ratchet.components.rollouts.collection_plan import CollectPlan
from ratchet.components.rollouts.collection_progress import CollectionProgress, read_progress
from ratchet.components.traffic.traffic_episodes import TrafficPlan, take_night
from ratchet.components.traffic.traffic_store import TrafficStore, traffic_file
from ratchet.components.training.gpu_locks import reserve_gpus, visible_gpus
from ratchet.components.trajectories.shards import seal_folder
from ratchet.tasks import RETRY
from ratchet.tasks.prefect_executor import play_by_workers
from ratchet.tasks.ray_executor import play_on_ray


@task(name="collect", task_run_name="{title}", cache_policy=NO_CACHE, **RETRY)
def play(title: str, plan: CollectPlan, folder: Path) -> dict[str, Any]:
    """Play a plan into `folder`, resuming where it was interrupted; return the CollectReport as JSON values."""
    with current_display().step(title) as step:
        report = _play(plan, folder, step)
        counted = max(report["episodes"] - report["infrastructure_failures"], 1)
        failures = f", {report['infrastructure_failures']} lost" if report["infrastructure_failures"] else ""
        step.update(
            remark=f"{report['episodes']} episodes, {100 * report['successes'] / counted:.1f} % succeed{failures}"
        )
    return report


def _play(plan: CollectPlan, folder: Path, step: ProgressStep) -> dict[str, Any]:
    """Run the collection by the plan's executor; return its report."""
    if plan.executor == "local":
        return play_here(plan, folder, step)
    begin = time.monotonic()
    played = _play_elsewhere(plan, folder, step)
    report = play_here(plan, folder, step)  # reads the shards, and finds nothing to play
    return report | {"seconds": time.monotonic() - begin, "replayed": played}


def _play_elsewhere(plan: CollectPlan, folder: Path, step: ProgressStep) -> int:
    """Let other machines play the cohorts that `folder` lacks; return the number of episodes that they played."""
    executor = play_on_ray if plan.executor == "ray" else play_by_workers
    with share_collection(plan, folder) as shared:
        missing = [number for number in shared.unfinished if not shared.adopt(number)]
        total, played = sum(map(shared.episodes, missing)), 0
        for ended in executor(plan, shared.location, missing):
            if ended is not None and shared.adopt(ended):
                played += shared.episodes(ended)
            step.update(played, total, f"played by {plan.executor}")
        if shared.unfinished:
            raise InfrastructureError(
                f"{len(shared.unfinished)} cohorts ended without a shard in {shared.location}; run the same command again"
            )
        shared.remove()
    return played


def play_here(plan: CollectPlan, folder: Path, step: ProgressStep, cohort: int | None = None) -> dict[str, Any]:
    """Run the collection, or one cohort of it, in a process of its own; return its report."""
    name = hashlib.sha256(str(folder.absolute()).encode()).hexdigest()[:12]
    answers = local("run", f"player-{owner_token()}-{name}")
    # Answers of an attempt that failed would be taken for this one's.
    for stale in answers.glob("*.json"):
        stale.unlink()
    place = folder.relative_to(home()) if folder.is_absolute() and folder.is_relative_to(home()) else folder
    job = answers / JOB_FILE
    what = step.name.partition(" ")[2]
    job.write_bytes(
        msgspec.json.encode(CollectJob(plan.model_dump(mode="json"), str(folder), str(answers), what, cohort))
    )
    # The workers share the cores; by default torch starts a thread per core in each of them.
    threads = str(max(1, (os.cpu_count() or 1) // plan.workers))
    with _reserve_gpu(plan, step) as gpu:
        run_job_process(
            [sys.executable, "-m", "ratchet.components.rollouts.collect_job", str(job)],
            log=local("logs") / f"collect-{'-'.join(place.parts[1 : None if cohort is None else -1])}.log",
            error_file=answers / "error.json",
            env={"OMP_NUM_THREADS": threads, "TOKENIZERS_PARALLELISM": "false", **gpu},
            on_poll=lambda: _show_progress(step, read_progress(answers / PROGRESS_FILE)),
        )
    report: dict[str, Any] = json.loads((answers / "report.json").read_bytes())
    shutil.rmtree(answers, ignore_errors=True)
    return report


@contextlib.contextmanager
def _reserve_gpu(plan: CollectPlan, step: ProgressStep) -> Iterator[dict[str, str]]:
    """Claim the GPUs of a policy that starts a model server here; yield its environment. Served agents take turns."""
    count = started_server_gpus(plan.policy) if plan.executor == "local" else 0
    if not count:
        yield {}
        return
    with reserve_gpus(visible_gpus(), count, waiting=lambda: step.update(remark="waiting for a GPU")) as names:
        yield {"CUDA_VISIBLE_DEVICES": ",".join(names)} if names else {}


def _show_progress(step: ProgressStep, progress: CollectionProgress | None) -> None:
    if progress is not None:
        step.update(progress.done, progress.total, progress.remark())


@task(name="collect and seal", task_run_name="{title}", cache_policy=NO_CACHE, **RETRY)
def play_and_seal(title: str, plan: CollectPlan, spool: Path, target: Path) -> dict[str, Any]:
    """Collect into the folder `spool`, then rename it to `target`, which is never changed again; return the report.

    If `target` exists, nothing is played.
    """
    report: dict[str, Any] = play.fn(title, plan, target if target.exists() else spool)
    if not target.exists():
        seal_folder(spool, target)
    return report


@task(name="take traffic", task_run_name="take traffic of {night}", cache_policy=NO_CACHE, **RETRY)
def take_traffic(night: str, how: TrafficConfig, domain: str, spool: Path, target: Path) -> dict[str, Any]:
    """Seal the episodes of a service's traffic that have an outcome as the night `target`; return the report."""
    duplicates = read_section(PARAMS_FILE, "duplicates", DuplicatesParams)
    plan = TrafficPlan(how.episodes, 60 * how.quiet_minutes, domain, Path("data/tasksets"), duplicates)
    with current_display().step("take traffic") as step, contextlib.closing(TrafficStore(traffic_file())) as store:
        report = take_night(store, night, plan, spool, target)
        step.update(remark=f"{report.episodes} episodes, {100 * report.successes / report.episodes:.1f} % succeed")
    result: dict[str, Any] = msgspec.to_builtins(report)
    return result
