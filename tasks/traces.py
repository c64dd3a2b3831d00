"""Tasks that log episodes as MLflow traces and seal the human labels given there."""

import logging
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
from prefect import task
from prefect.cache_policies import NO_CACHE

from ratchet.components.core import InfrastructureError
from ratchet.components.core.errors import count_text
from ratchet.components.core.home import home
from ratchet.components.datasets import versioning
from ratchet.components.reporting.progress_display import current_display
from ratchet.components.rewards.annotation_records import LABELS_FILE, PREFERRED_TO, Judgement, Label
from ratchet.components.rewards.episode_score import EpisodeScore
from ratchet.components.rewards.human_labels.label_files import read_labels, unsealed_labels
from ratchet.components.tracking.run_writer import TrackedRun
from ratchet.components.tracking.trace_log import PairedTrace, TraceSample, read_feedback, sample_episodes
from ratchet.components.tracking.trace_log import log_traces as write_traces
from ratchet.components.trajectories.shards import read_folder
from ratchet.tasks import RETRY

_log = logging.getLogger(__name__)


class GatheredLabels(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Labels that no sealed night contains yet. `from_feedback`, `from_file`: numbers of labels from MLflow and from
    the local file; `refused`: number of feedback entries that are no valid label; `asked`: whether MLflow answered.
    """

    labels: list[Label]
    from_feedback: int
    from_file: int
    refused: int
    asked: bool


@task(name="traces", task_run_name="traces {title}", cache_policy=NO_CACHE, **RETRY)
def log_traces(
    title: str,
    run: TrackedRun,
    rollouts: Path,
    scores: Mapping[str, EpisodeScore],
    judgements: Iterable[Judgement] = (),
    *,
    sample: TraceSample | None = None,
    seed: int = 0,
) -> dict[str, Any]:
    """Log a sample of a sealed night's episodes: the best, the worst, and some at random. `scores` by episode id.

    `sample`: numbers of each (None: the defaults).

    Returns the TraceReport as JSON values. Where MLflow is down, traces wait in the spool. Repeated calls change
    nothing.
    """
    chosen = set(sample_episodes({name: score.total for name, score in scores.items()}, sample or TraceSample(), seed))
    with current_display().step(f"traces {title}") as step:
        episodes = (trajectory for trajectory in read_folder(rollouts, verify=False) if trajectory.episode_id in chosen)
        report = write_traces(run, episodes, scores, judgements)
        step.update(remark=f"{report.found} of {report.chosen} episodes in MLflow")
    encoded: dict[str, Any] = msgspec.to_builtins(report)
    return encoded


def log_paired_traces(
    run: TrackedRun, folder: Path, scores: Mapping[str, EpisodeScore], paired_traces: Sequence[PairedTrace]
) -> dict[str, Any]:
    """Log the episodes of `paired_traces`, read from `folder`, as MLflow traces in that order; return the TraceReport
    as JSON values. Episodes that are not in `folder` are left out.
    """
    episode_ids = {trace.episode_id for trace in paired_traces}
    trajectories = {
        trajectory.episode_id: trajectory
        for trajectory in read_folder(folder, verify=False)
        if trajectory.episode_id in episode_ids
    }
    episodes = (trajectories[trace.episode_id] for trace in paired_traces if trace.episode_id in trajectories)
    encoded: dict[str, Any] = msgspec.to_builtins(write_traces(run, episodes, scores, paired_traces=paired_traces))
    return encoded


@task(name="seal labels", task_run_name="seal labels {night}", cache_policy=NO_CACHE, **RETRY)
def seal_labels(night: str) -> dict[str, Any]:
    """Seal the labels given since the last night and add them to DVC; return counts as JSON values.

    A folder that is sealed already stays as it is. Where MLflow is down, feedback given there is sealed by a later
    night.
    """
    folder = versioning.LABELS / night
    with current_display().step(f"labels {night}") as step:
        counts: dict[str, Any] = {}
        if not folder.exists():
            sealed = versioning.LABELS.glob(
                f"[!.]*/{LABELS_FILE}"
            )  # what a killed night wrote and did not seal has a hidden name
            new_labels = gather_labels(sorted(sealed))
            versioning.seal_file(versioning.LABELS, night, msgspec.json.Encoder().encode_lines(new_labels.labels))
            counts = {name: getattr(new_labels, name) for name in ("from_feedback", "from_file", "refused", "asked")}
        versioning.add_sealed([night], versioning.LABELS)
        lines = [label.line for label in read_labels(folder / LABELS_FILE)]
        step.update(remark=count_text(len(lines), "new label"))
    if any(line.startswith(PREFERRED_TO) for line in lines) and (notice := versioning.review_notice()):
        current_display().say(notice)
    return {"labels": len(lines), **counts}


def gather_labels(sealed: Sequence[Path]) -> GatheredLabels:
    """Return labels from MLflow and the local file that are in none of the sealed files.

    Where MLflow is down, feedback given there is read by a later night. Raises DataError for a damaged file.
    """
    sealed_labels = [label for path in sealed for label in read_labels(path)]
    local = home() / "labels" / LABELS_FILE
    own = list(read_labels(local)) if local.is_file() else []
    feedback, refused, asked = _read_mlflow_feedback()
    new_labels = unsealed_labels([*own, *feedback], sealed_labels)
    theirs = {id(label) for label in feedback}
    from_feedback = sum(id(label) in theirs for label in new_labels)
    return GatheredLabels(new_labels, from_feedback, len(new_labels) - from_feedback, refused, asked)


def _read_mlflow_feedback() -> tuple[list[Label], int, bool]:
    try:
        feedback = read_feedback()
    except InfrastructureError as error:
        _log.warning("%s; feedback will be read by a later night", error)
        return [], 0, False
    for reason, count in feedback.refused.items():
        _log.warning("%d feedback entries in MLflow are not valid labels: %s", count, reason)
    return feedback.labels, sum(feedback.refused.values()), True
