"""The state of a home as Prometheus metrics, read from its files at each scrape; nothing of a night calls this module.

A figure of a collection is live while it plays, and stays as the night's result afterwards. Every metric is a gauge: what
the home holds now. Prometheus keeps the history.
"""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from ratchet.components.core import ConfigurationError, DataError
from ratchet.components.core.home import home
from ratchet.components.core.processes import require_free_port
from ratchet.components.nights.night_history import build_night_point
from ratchet.components.nights.night_state import (
    DECISION_STEP,
    FAILURE_FILE,
    Night,
    night_decision,
    night_order,
    open_night,
    running_night,
)
from ratchet.components.rollouts.collect_job import JOB_FILE, PROGRESS_FILE, CollectJob
from ratchet.components.rollouts.collection_progress import CollectionProgress, read_progress
from ratchet.components.tracking.record_upload import spool_folder
from ratchet.components.training.heartbeat import read_heartbeat

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric

METRICS: dict[str, tuple[str, tuple[str, ...]]] = {
    "nights": ("Nights of the home by verdict; 'none': not decided yet; 'unreadable': damaged.", ("verdict",)),
    "nights_since_promotion": ("Nights that decided after the last one that promoted.", ()),
    "night_info": ("1, with the latest night's name, scale and recipe.", ("night", "scale", "recipe")),
    "night_running": ("Whether a night runs now.", ()),
    "night_unfinished": ("Whether the latest night has steps left.", ()),
    "night_failed": ("Whether an error ended the latest start of the latest night.", ()),
    "night_begun_timestamp_seconds": ("Time at which the latest night began.", ()),
    "night_finished_timestamp_seconds": ("Time at which a night finished last.", ()),
    "steps": ("Finished steps of the latest night.", ()),
    "step_seconds": ("Duration of each finished step of the latest night.", ("step",)),
    "episodes": ("Episodes of the latest night: 'success', or the cause of failure.", ("collection", "outcome")),
    "episodes_lost": ("Episodes of it that infrastructure ended.", ("collection",)),
    "episodes_waiting": ("Episodes that a running collection has yet to play.", ("collection",)),
    "episodes_per_second": ("Mean speed of a running collection since its start.", ("collection",)),
    "outage": ("1 while a collection waits for something that does not answer.", ("collection", "cause")),
    "training_step": ("Optimiser step of a running training job.", ("job",)),
    "trained_tokens": ("Tokens that the latest night trained on.", ()),
    "judge_requests": ("Requests to judges in the latest night.", ()),
    "judge_failed": ("Requests of them without a usable answer.", ()),
    "judge_tokens": ("Tokens of them.", ()),
    "judge_money": ("Money paid for them, in the currency of the configured prices.", ()),
    "build_episodes": ("Episodes that the latest night's data build read.", ()),
    "build_quarantined": ("Episodes of them that it set aside.", ()),
    "build_failed_checks": ("Failed expectations of that build.", ("severity",)),
    "success_ratio": ("Success of each agent in the latest decision.", ("agent", "tasks")),
    "lead_ratio": ("Success of the challenger minus that of the champion, paired.", ("tasks",)),
    "lead_p_value": ("One-sided p-value of that lead on the promote tasks.", ()),
    "mlflow_spool_files": ("Files of records that wait for MLflow.", ()),
    "disk_free_bytes": ("Free space of the home's file system.", ()),
    "disk_size_bytes": ("Size of that file system.", ()),
}
"""Help text and labels of each metric, without the prefix `ratchet_`."""
HOST_VARIABLE, PORT_VARIABLE = "OTEL_EXPORTER_PROMETHEUS_HOST", "OTEL_EXPORTER_PROMETHEUS_PORT"
Samples = dict[str, dict[tuple[str, ...], float]]
"""Values of metrics by name, then by their labels' values."""


@contextmanager
def metrics_server() -> Iterator[str]:
    """Serve the metrics during the block, at the address of OpenTelemetry's variables; yield the URL.

    Raises ConfigurationError for an invalid or taken address.
    """
    from prometheus_client import CollectorRegistry, start_http_server
    from prometheus_client.registry import Collector

    class HomeCollector(Collector):
        def collect(self) -> "Iterator[Metric]":
            return _families(home_samples())

    host, port = os.environ.get(HOST_VARIABLE) or "localhost", os.environ.get(PORT_VARIABLE) or "9464"
    if not port.isdecimal() or not 0 < int(port) < 65536:
        raise ConfigurationError(f"{PORT_VARIABLE}={port} is no port; give a number from 1 to 65535")
    require_free_port(int(port), "Prometheus metrics", PORT_VARIABLE)
    registry = CollectorRegistry()
    registry.register(HomeCollector())
    try:
        server, thread = start_http_server(int(port), host, registry)
    except OSError as error:
        raise ConfigurationError(f"cannot listen on {host}:{port}: {error.strerror}; see {HOST_VARIABLE}") from error
    try:
        yield f"http://{host}:{port}/metrics"
    finally:
        server.shutdown()
        thread.join()


def _families(samples: Samples) -> "Iterator[Metric]":
    from prometheus_client.core import GaugeMetricFamily

    for name, (text, labels) in METRICS.items():
        family = GaugeMetricFamily(f"ratchet_{name}", text, labels=labels)
        for values, number in samples[name].items():
            family.add_metric(values, number)
        yield family


def home_samples() -> Samples:
    """Return the current value of every metric of the home that has one."""
    samples: Samples = {name: {} for name in METRICS}
    disk, running = shutil.disk_usage(home() if home().is_dir() else Path()), running_night()
    samples["disk_free_bytes"][()], samples["disk_size_bytes"][()] = disk.free, disk.total
    samples["mlflow_spool_files"][()] = sum(1 for _ in spool_folder().glob("*.jsonl"))
    samples["night_running"][()] = running is not None
    nights, verdicts = _nights(samples["nights"])
    decided = [night for night, verdict in zip(nights, verdicts, strict=True) if verdict != "none"]
    if "promote" in verdicts:
        kept = [verdict for verdict in verdicts if verdict != "none"]
        samples["nights_since_promotion"][()] = kept[::-1].index("promote")
    if ended := [night.ended for night in nights if night.ended is not None]:
        samples["night_finished_timestamp_seconds"][()] = _timestamp(max(ended))
    if nights:
        _add_night(samples, nights[-1], nights[-1].id == running)
    if decided:
        _add_decision(samples, decided[-1])
    return samples


def _nights(counts: dict[tuple[str, ...], float]) -> tuple[list[Night], list[str]]:
    """Return the readable nights in the order in which they began, with their verdicts, and count all in `counts`."""
    nights = []
    for path in (home() / "nights").glob("*/state.json"):
        try:
            status = path.stat()
            nights.append(_read_night(path, status.st_mtime_ns, status.st_size))
        except (OSError, DataError, ConfigurationError):
            counts["unreadable",] = counts.get(("unreadable",), 0) + 1
    nights.sort(key=night_order)
    verdicts = [str((night.results.get(DECISION_STEP) or {}).get("verdict", "none")) for night in nights]
    for verdict in verdicts:
        counts[verdict,] = counts.get((verdict,), 0) + 1
    return nights, verdicts


@lru_cache(maxsize=2000)  # a finished night does not change, and a home holds hundreds
def _read_night(path: Path, modified: int, size: int) -> Night:
    return open_night(path.parent.name)


def _add_night(samples: Samples, night: Night, is_running: bool) -> None:
    """Add the figures of the latest night."""
    samples["night_info"][night.id, night.scale, night.recipe or "default"] = 1
    samples["night_begun_timestamp_seconds"][()] = _timestamp(night.begun)
    samples["night_unfinished"][()] = not night.is_finished
    samples["night_failed"][()] = not is_running and (night.folder / FAILURE_FILE).is_file()
    samples["steps"][()] = len(night.results)
    for step, seconds in night.seconds.items():
        samples["step_seconds"][step.replace(night.id, "NIGHT"),] = seconds
    for title, report in night_collections(night):
        if "failures" in report:  # a night of an older version may have counted less
            _add_episodes(samples, title, report["successes"], report["failures"], report["infrastructure_failures"])
    if is_running:
        for title, progress in running_collections(night.id):
            _add_episodes(samples, title, progress.successes, progress.failures, progress.lost)
            samples["episodes_waiting"][title,] = progress.total - progress.done
            samples["episodes_per_second"][title,] = progress.rate
            if progress.waiting_for:
                samples["outage"][title, progress.waiting_for[:100]] = 1
        for folder in (night.folder / "training").glob("*"):
            if (heartbeat := read_heartbeat(folder)) is not None:
                samples["training_step"][folder.name,] = heartbeat.step
    judging = night.results.get("judge") or {}
    for name, key in (("requests", "calls"), ("failed", "failed"), ("tokens", "tokens"), ("money", "money")):
        if judging.get(key) is not None:
            samples[f"judge_{name}"][()] = judging[key]
    point = build_night_point(night)
    if point.cost is not None and point.cost.trained_tokens is not None:
        samples["trained_tokens"][()] = point.cost.trained_tokens
    if (quality := point.quality) is not None:
        samples["build_episodes"][()], samples["build_quarantined"][()] = (
            quality.episodes or 0,
            quality.quarantined or 0,
        )
        samples["build_failed_checks"] |= {(severity,): count for severity, count in quality.failed.items()}


def _add_episodes(samples: Samples, title: str, successes: int, failures: dict[str, int], lost: int) -> None:
    samples["episodes"] |= {(title, "success"): successes, **{(title, cause): n for cause, n in failures.items()}}
    samples["episodes_lost"][title,] = lost


def night_collections(night: Night) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the reports of a night's finished collections by what they collected, such as `attempts` or `champion`."""
    for step, result in night.results.items():
        if step.startswith("collect "):
            yield step.removeprefix("collect "), result
        elif step.startswith("look ") or step == "evaluate":
            yield from (result.get("reports") or result).items()


def running_collections(night: str) -> Iterator[tuple[str, CollectionProgress]]:
    """Yield the progress of the collections that a running night plays now."""
    for folder in (home() / "run").glob("player-*"):
        try:
            job = msgspec.json.decode((folder / JOB_FILE).read_bytes(), type=CollectJob)
            progress = read_progress(folder / PROGRESS_FILE)
        except (OSError, msgspec.DecodeError, DataError):  # the folder is made and removed while the night runs
            continue
        if progress is not None and night in Path(job.folder).parts:
            yield job.title, progress


def _add_decision(samples: Samples, night: Night) -> None:
    """Add the figures of the latest decision."""
    try:
        decision = night_decision(night)
    except DataError:  # the night's report says so
        return
    assert decision is not None
    samples["lead_p_value"][()] = decision.versus_champion.p_value
    for tasks, result in (("promote", decision), ("audit", decision.audit)):
        if result is None:
            continue
        if (lead := result.versus_champion.difference.value) is not None:
            samples["lead_ratio"][tasks,] = lead
        for agent in ("champion", "challenger", "control"):
            contender = getattr(result, agent)
            if contender is not None and contender.success.value is not None:
                samples["success_ratio"][agent, tasks] = contender.success.value


def _timestamp(moment: str) -> float:
    return datetime.fromisoformat(moment).timestamp()
