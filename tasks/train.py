"""A training job in a process of its own: watched, logged, ended with us. It goes on where it was killed."""

import json
import os
import sys
from pathlib import Path
from typing import Any

import msgspec
from prefect import task
from prefect.cache_policies import NO_CACHE

from components.protocol import ConfigurationError
from components.training.config import JobConfig, SftConfig

from .display import Step, display
from .home import folder
from .process import run_to_end
from .retries import AGAIN


@task(name="train", task_run_name="train: {title}", cache_policy=NO_CACHE, **AGAIN)
def train(title: str, config: SftConfig) -> dict[str, Any]:
    """Run the job; its report. Raises the job's own error, or InfrastructureError where it was killed."""
    with display().step(title) as step:
        report = run_job(config, step)
        loss = report.get("validation_loss")
        step.update(
            remark=f"{report['steps']} steps, {report['tokens']:,} tokens at {report['tokens_per_second']:,.0f}/s"
            + (f", validation loss {loss:.4f}" if loss is not None else "")
            + (", converged" if report.get("converged") else "")
        )
    return report


def run_job(config: JobConfig, step: Step) -> dict[str, Any]:
    """The job of a configuration in a subprocess, to its end. A finished one is not started again."""
    finished = config.output / "report.json"
    if not finished.is_file():
        try:
            config.output.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ConfigurationError(
                f"{config.output} cannot be made a folder: {error.strerror}; give another"
            ) from error
        written = config.output / "config.json"
        written.write_bytes(msgspec.json.format(config.model_dump_json().encode()))
        run_to_end(
            [sys.executable, "-m", "components.training.job", str(written)],
            log=folder("logs") / f"training-{config.output.parent.parent.name}-{config.output.name}.log",
            error=config.output / "error.json",
            env={"OMP_NUM_THREADS": str(config.run.threads or os.cpu_count() or 1)},
            look=lambda: _show(step, config),
        )
    report: dict[str, Any] = json.loads(finished.read_bytes())
    return report


def changed(config: JobConfig) -> list[str]:
    """The settings that a finished job in the same folder had otherwise; none where none finished."""
    written = config.output / "config.json"
    if not (config.output / "report.json").is_file() or not written.is_file():
        return []
    before, now = _flat(json.loads(written.read_bytes())), _flat(json.loads(config.model_dump_json()))
    found = sorted(name for name in {**before, **now} if before.get(name) != now.get(name))
    return [name for name in found if not name.startswith("run.")]


def _flat(values: dict[str, Any], place: str = "") -> dict[str, Any]:
    """The leaves of nested settings, by their dotted names."""
    found: dict[str, Any] = {}
    for name, value in values.items():
        found |= _flat(value, f"{place}{name}.") if isinstance(value, dict) else {f"{place}{name}": value}
    return found


def _show(step: Step, config: JobConfig) -> None:
    """Move the bar by the newest line of the job's metrics."""
    newest = last_metrics(config.output / "metrics.jsonl")
    if newest:
        loss = newest.get("loss")
        step.update(
            newest.get("step"),
            newest.get("total_steps") or config.optimization.steps,
            f"loss {loss:.3f}" if loss else "",
        )


def last_metrics(path: Path) -> dict[str, Any]:
    """The last whole line of a metrics file; empty where there is none yet."""
    try:
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - 4096))
            lines = file.read().splitlines(keepends=True)
    except OSError:
        return {}
    for line in reversed(lines):
        if line.endswith(b"\n"):
            try:
                found: dict[str, Any] = json.loads(line)
            except ValueError:
                continue
            return found
    return {}


SHOWN = {
    "loss": "train/loss",
    "eval_loss": "train/validation_loss",
    "learning_rate": "train/learning_rate",
    "tokens_per_second": "train/tokens_per_second",
}
"""A job's metrics, and what MLflow calls them."""


def metrics_history(path: Path) -> list[tuple[str, float, int]]:
    """A job's metrics file as (metric, value, step); a last line that was cut short is left out."""
    points = []
    for line in path.read_bytes().splitlines(keepends=True) if path.is_file() else []:
        if line.endswith(b"\n"):
            values = json.loads(line)
            points += [(SHOWN[key], float(values[key]), int(values["step"])) for key in SHOWN if key in values]
    return points
