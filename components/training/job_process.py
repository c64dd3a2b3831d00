"""Run a training job in a child process, show its progress, and stop it if it stalls. A repeated call resumes the job."""

import json
import os
import sys
import time
from collections.abc import Set
from pathlib import Path
from typing import Any, Protocol

import msgspec

from ratchet.components.core import ConfigurationError, InfrastructureError
from ratchet.components.core.home import home_folder
from ratchet.components.core.processes import run_job_process
from ratchet.components.training.checkpoint_io import newest_checkpoint
from ratchet.components.training.config.job_config import JobConfig
from ratchet.components.training.heartbeat import HEARTBEAT_FILE, HeartbeatState, read_heartbeat

METRICS_FILE = "metrics.jsonl"


class ProgressReporter(Protocol):
    """A progress display of one step of a night."""

    def update(self, done: float | None = None, total: float | None = None, remark: str | None = None) -> None:
        """Show `done` of `total` units of work and a remark; None leaves a value unchanged."""


def run_job(config: JobConfig, step: ProgressReporter) -> dict[str, Any]:
    """Run a job in a subprocess, wait, and return its report; return the existing report of a finished job. `step`:
    receives the progress.

    Raises the job's own RatchetError, ConfigurationError if the output folder cannot be made, and InfrastructureError
    if the job stalled.
    """
    report_file = config.output / "report.json"
    if not report_file.is_file():
        try:
            config.output.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ConfigurationError(f"{config.output} cannot be made: {error.strerror}; give another") from error
        config_file = config.output / "config.json"
        config_file.write_bytes(msgspec.json.format(config.model_dump_json().encode()))
        metrics = config.output / METRICS_FILE
        earlier = frozenset(metrics.read_bytes().splitlines(keepends=True) if metrics.is_file() else ())
        # A killed process leaves one, which would look stalled.
        (config.output / HEARTBEAT_FILE).unlink(missing_ok=True)
        if newest_checkpoint(config.output) is not None:
            step.update(remark="resumes from its newest checkpoint")
        run_job_process(
            [sys.executable, "-m", "ratchet.components.training.job", str(config_file)],
            log=home_folder("logs")
            / f"training-{config.output.absolute().parent.parent.name}-{config.output.name}.log",
            error_file=config.output / "error.json",
            # A launcher of several processes sets the number of threads itself.
            env={"OMP_NUM_THREADS": str(config.run.threads or os.cpu_count() or 1)}
            if config.run.threads or config.run.launch == "single"
            else {},
            on_poll=lambda: _check_progress(step, config, earlier),
        )
    report: dict[str, Any] = json.loads(report_file.read_bytes())
    return report


def changed_settings(config: JobConfig) -> list[str]:
    """Return the dotted names of the settings in which the finished job in `config.output` differs from `config`,
    without those of `run`; empty if there is none.
    """
    return differing_settings(config, ("run.",)) if (config.output / "report.json").is_file() else []


def unfinished_job_changes(config: JobConfig) -> list[str]:
    """Return the dotted names of the settings in which `config` differs from the unfinished job in `config.output` and
    which forbid to resume it: those that affect what is learned.

    Options of `optimization` other than `batch_size` may change, so a job can be made longer. Empty if the job is
    finished, or has no complete checkpoint to resume from.
    """
    if (config.output / "report.json").is_file() or newest_checkpoint(config.output) is None:
        return []
    return [
        name
        for name in differing_settings(config, ("run.", "checkpoints."))
        if name == "optimization.batch_size" or not name.startswith("optimization.")
    ]


def differing_settings(config: JobConfig, excluded: tuple[str, ...]) -> list[str]:
    """Return the dotted names, sorted, of the settings in which the job in `config.output` differs from `config`; empty
    if there is no job.

    Settings whose dotted name begins with one of `excluded` are ignored.
    """
    config_file = config.output / "config.json"
    if not config_file.is_file():
        return []
    before, now = _flatten(json.loads(config_file.read_bytes())), _flatten(json.loads(config.model_dump_json()))
    names = sorted(name for name in {**before, **now} if before.get(name) != now.get(name))
    return [name for name in names if not name.startswith(excluded)]


def _flatten(values: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Flatten nested settings to dotted names."""
    flat: dict[str, Any] = {}
    for name, value in values.items():
        flat |= _flatten(value, f"{prefix}{name}.") if isinstance(value, dict) else {f"{prefix}{name}": value}
    return flat


def _check_progress(step: ProgressReporter, config: JobConfig, earlier: Set[bytes] = frozenset()) -> None:
    """Show the newest line of metrics that is not one of the `earlier` ones, logged before the job was resumed. Raises
    InfrastructureError if the job stalls; the caller then stops it, and a retry resumes it.
    """
    if metrics := last_metrics(config.output / METRICS_FILE, earlier):
        loss, total = metrics.get("loss"), metrics.get("total_steps") or config.optimization.steps
        step.update(metrics.get("step"), total, f"loss {loss:.3f}" if loss else "")
    heartbeat = read_heartbeat(config.output)
    if heartbeat is not None and (idle_seconds := stalled_seconds(heartbeat, config, time.monotonic())) is not None:
        raise InfrastructureError(
            f"training in {config.output} has not moved for {idle_seconds:.0f} s ({heartbeat.phase}, step {heartbeat.step}); "
            "it was ended: run the same command again, and raise run.stalled_after if it was only slow"
        )


def stalled_seconds(heartbeat: HeartbeatState, config: JobConfig, now: float) -> float | None:
    """Return for how many seconds a job has made no progress if it counts as stalled, else None. `now`: time of
    the monotonic clock.

    A job is stalled after more than `run.stalled_after` seconds without progress, or without writing its heartbeat; the
    latter only if the heartbeat is also ten intervals late.
    """
    limit = config.run.stalled_after
    if limit is None:
        return None
    idle_seconds, silent_seconds = heartbeat.at - heartbeat.moved, now - heartbeat.at
    stalled = idle_seconds > limit or silent_seconds > max(limit, 10 * config.run.heartbeat_seconds)
    return max(idle_seconds, silent_seconds) if stalled else None


def last_metrics(path: Path, earlier: Set[bytes] = frozenset()) -> dict[str, Any]:
    """Return the last complete line of a metrics file that is none of `earlier`; empty if there is none."""
    try:
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - 4096))
            lines = file.read().splitlines(keepends=True)
    except OSError:
        return {}
    # The last line may be half written, and the first one cut.
    for line in reversed(lines):
        if line.endswith(b"\n") and line not in earlier:
            try:
                metrics: dict[str, Any] = json.loads(line)
            except ValueError:
                continue
            return metrics
    return {}
