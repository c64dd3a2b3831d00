"""The task that runs one training job in the GPU slots that it needs.

A slot orders the training tasks of one Prefect server: as many run at once as the host has GPUs for. A slot leaks where
a flow is killed, so each job also locks its GPU (training/gpu_locks.py).
"""

import contextlib
import socket
from collections.abc import Iterator
from typing import Any

from prefect import task
from prefect.cache_policies import NO_CACHE

from ratchet.components.reporting.progress_display import current_display
from ratchet.components.training.config.job_config import JobConfig
from ratchet.components.training.gpu_locks import visible_gpus
from ratchet.components.training.job_process import run_job

from . import RETRY


@task(name="train", task_run_name="{title}", cache_policy=NO_CACHE, **RETRY)
def train(title: str, config: JobConfig) -> dict[str, Any]:
    """Run a job and return its report. Raises the job's own error, or InfrastructureError where it was killed."""
    with current_display().step(title) as step, gpu_slot(config.run.launch):
        report = run_job(config, step)
        loss = report.get("validation_loss")
        step.update(
            remark=f"{report['steps']} steps, {report['tokens']:,} tokens at {report['tokens_per_second']:,.0f}/s"
            + (f", validation loss {loss:.4f}" if loss is not None else "")
            + (", converged" if report.get("converged") else "")
        )
    return report


SLOT_LEASE_SECONDS = 300.0
"""Seconds after which the slots of a killed process are free again."""


@contextlib.contextmanager
def gpu_slot(launch: str) -> Iterator[None]:
    """Hold one slot of this host's GPUs, or all of them for a job of several processes (`launch` other than `single`).

    Without a GPU nothing is held.
    """
    count = len(visible_gpus())
    if not count:
        yield
        return
    from prefect.concurrency.sync import concurrency

    name = f"gpu:{socket.gethostname()}"
    _set_slot_limit(name, count)
    # Without `strict` Prefect ignores a missing limit, and all jobs would start at once.
    with concurrency(name, occupy=1 if launch == "single" else count, strict=True, lease_duration=SLOT_LEASE_SECONDS):
        yield


def _set_slot_limit(name: str, count: int) -> None:
    """Set the limit of a slot; without a limit Prefect counts nothing."""
    from prefect.client.orchestration import get_client
    from prefect.exceptions import ObjectAlreadyExists

    # Prefect looks and then creates: of two that begin at once, the other may have been first.
    with get_client(sync_client=True) as client, contextlib.suppress(ObjectAlreadyExists):
        client.upsert_global_concurrency_limit_by_name(name, count)
