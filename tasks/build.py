"""Tasks for the data's versions: add a night to DVC, run the build, publish a night. Each may be repeated."""

import contextlib
from pathlib import Path
from typing import Any

import msgspec
from prefect import task
from prefect.cache_policies import NO_CACHE

from ratchet.components.core import RatchetError
from ratchet.components.datasets import versioning
from ratchet.components.datasets.lineage import known_builds
from ratchet.components.datasets.validation.quality_report import html_page, markdown_summary
from ratchet.components.datasets.versioning import use_ledger
from ratchet.components.datasets.versioning.use_ledger import TrainedDataset
from ratchet.components.evaluation.promotion.decision_record import Decision
from ratchet.components.nights.report_contents import read_quality_reports
from ratchet.components.reporting.decision_text import summary_sentence
from ratchet.components.reporting.progress_display import current_display
from ratchet.tasks import RETRY


def quality_page(root: Path = Path(), *, failed: bool = False) -> str:
    """Return the quality verdicts of the last build (with `failed`: of the last failed build) as an HTML page."""
    return html_page(read_quality_reports(root, failed=failed))


def show_quality(root: Path = Path(), *, failed: bool = False) -> None:
    """Add the quality verdicts, as in `quality_page`, to the Prefect run. Does nothing without a Prefect server."""
    from prefect.artifacts import create_markdown_artifact

    with contextlib.suppress(Exception):  # a page less is no reason to lose a build
        create_markdown_artifact(
            markdown_summary(read_quality_reports(root, failed=failed)),
            key="data-quality",
            description="Verdicts on the data",
        )


@task(name="add night", task_run_name="add night {night}", cache_policy=NO_CACHE, **RETRY)
def add_night(night: str, root: Path = Path()) -> str:
    """Add a sealed night of the project `root` to DVC; return the hash of its folder."""
    with current_display().step(f"version {night}") as step:
        folder_hash = versioning.add_night(night, root=root)
        step.update(remark=folder_hash)
    return folder_hash


def _build_run_name(parameters: dict[str, Any]) -> str:
    return f"build {parameters['nights'][-1]}"


_BUILD_RUN_NAME: Any = _build_run_name  # no function satisfies Prefect's protocol, which has a class method
"""Name of a task run of the build, which says its newest night."""


@task(name="build", task_run_name=_BUILD_RUN_NAME, cache_policy=NO_CACHE, **RETRY)
def run_build(
    nights: list[str], *, scale: str, seed: int, as_of: str, baseline: str | None = None, root: Path = Path()
) -> dict[str, Any]:
    """Run the data build of the project `root` over nights; return the BuildReport as JSON values. Unchanged stages are
    not repeated.

    `as_of`: day from which ages are counted (ISO). `baseline`: hash of the profile against which drift is measured;
    None: no drift.
    """
    with current_display().step(f"build {nights[-1]}") as step:
        try:
            report = versioning.build(
                versioning.BuildInputs(tuple(nights), as_of=as_of, scale=scale, seed=seed, baseline=baseline),
                on_stage=lambda stage: step.update(remark=stage),
                root=root,
            )
        except RatchetError:
            show_quality(root, failed=True)
            raise
        show_quality(root)
        ran = sum(stage.state == "ran" for stage in report.stages)
        rows = [
            f"{value:.0f} {name.removesuffix('_train_rows')}"
            for name, value in report.metrics.items()
            if name.endswith("_train_rows")
        ]
        step.update(remark=f"{ran} of {len(report.stages)} stages ran, {', '.join(rows) or 'nothing exported'}")
    result: dict[str, Any] = msgspec.to_builtins(report)
    return result


@task(name="keep build", task_run_name="keep build", cache_policy=NO_CACHE, **RETRY)
def keep_build(root: Path = Path()) -> str:
    """Store a copy of the current build's lock, since no night's tag will contain it; return its hash."""
    return known_builds.keep_build(root)


@task(name="seal uses", task_run_name="seal uses {night}", cache_policy=NO_CACHE, **RETRY)
def seal_uses(night: str, trainings: list[TrainedDataset]) -> str:
    """Seal what a night's models were trained on and add it to DVC; return the hash of the folder."""
    with current_display().step(f"uses {night}") as step:
        folder_hash = use_ledger.seal_uses(night, trainings)
        step.update(remark=f"training data of {len(trainings)} models")
    return folder_hash


@task(name="publish", task_run_name="publish {night}", cache_policy=NO_CACHE, **RETRY)
def publish_night(night: str, decision: Decision) -> dict[str, Any]:
    """Push the data, and tag a commit of pointers, lock, parameters and decision; return tag, commit and remote."""
    with current_display().step("publish") as step:
        remote = versioning.push()
        text = f"Night {night}\n\n{summary_sentence(decision)}"
        commit = versioning.commit_night(night, msgspec.to_builtins(decision), text)
        step.update(remark=f"night/{night} ({commit[:10]}), data at {remote}")
    return {"tag": f"night/{night}", "commit": commit, "remote": remote}
