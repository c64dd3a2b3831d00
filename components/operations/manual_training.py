"""Train by hand, from a recipe, a model and data, without a Prefect server; and resume such a job.

Its MLflow run holds the same figures, curves and files as a night's training, also after a failure. A resumed job
continues the run of its folder.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ratchet.components.core import ConfigurationError
from ratchet.components.core.files import file_sha256
from ratchet.components.core.home import home
from ratchet.components.reporting.progress_display import ProgressDisplay
from ratchet.components.tracking.run_writer import TrackedRun, open_outermost_run
from ratchet.components.tracking.training_log import log_files, log_training
from ratchet.components.training import base_model
from ratchet.components.training.config.job_config import AnyJob, load_job
from ratchet.components.training.config.overrides import merge_values, parse_assignments
from ratchet.components.trajectories.trajectory import digest

EXPERIMENT = "training"
"""MLflow experiment of manual jobs, which belong to no taskset."""


@contextmanager
def training_run(job: AnyJob) -> Iterator[dict[str, Any]]:
    """Open the MLflow run of a job; the caller fills the yielded report, which is logged at the end of the block. Works
    while MLflow is down.
    """
    key = f"{job.output.name}-{digest(str(job.output))[:8]}"
    tags = {"ratchet.kind": "training", "ratchet.output": str(job.output)}
    params = {"method": job.method, "seed": job.seed, "base": job.model.base or "from scratch"}
    report: dict[str, Any] = {}
    with open_outermost_run(key, EXPERIMENT, params=params, tags=tags) as run:
        _log_data(run, job)
        try:
            yield report
        except BaseException:
            log_files(run, job.output)  # its curves come with its end: points that are told twice would stand twice
            raise
        log_training(run, job.output, report)
        run.set_description(_sentence(job, report))


def _log_data(run: TrackedRun, job: AnyJob) -> None:
    """Log the files that the job learns from, with their hashes."""
    for context, value in job.data:
        if isinstance(value, Path) and value.is_file():
            run.log_dataset(f"{value.parent.name}/{value.name}", file_sha256(value), str(value), context)


def _sentence(job: AnyJob, report: dict[str, Any]) -> str:
    formats = {
        "steps": "{:,} steps",
        "tokens": "{:,} tokens",
        "validation_loss": "validation loss {:.4f}",
        "last_reward": "reward {:.3f} at its end",
        "auroc": "AUROC {:.3f}",
    }
    facts = [text.format(report[name]) for name, text in formats.items() if report.get(name) is not None]
    return f"{job.method} from {job.model.base or 'scratch'}: {', '.join(facts) or 'done'}."


DATASETS = Path("data/datasets")
"""Folder of the data build's exports, one per method."""


def job_from_recipe(
    method: str,
    *,
    recipe: str | None = None,
    size: str | None = None,
    model: str | None = None,
    revision: str | None = None,
    data: Path | None = None,
    sets: Sequence[str] = (),
    out: Path | None = None,
    needs_data: bool = True,
) -> AnyJob:
    """Return the training job of a method by a recipe (default: the recipe with the method's name), with overrides.

    `sets`: overrides such as `optimization.learning_rate=1e-5`. `data`: folder of an export; `needs_data`: whether that of the
    last build must be there. Without `out` the folder
    is named by a hash of all settings, so that the same call finds the same job. Raises ConfigurationError.
    """
    from ratchet.components.nights.recipe_config import job_values, uses_relift

    from .manual_evaluation import resolve_policy

    values_given: dict[str, Any] = {"method": method, "data": _files(method, data, needs_data)}
    if model is not None:
        base = resolve_policy(model).removeprefix("transformers:")
        base_path = str(Path(base).absolute()) if Path(base).is_dir() else base
        values_given["model"] = {"base": base_path} | ({"revision": revision} if revision else {})
    elif revision is not None:
        raise ConfigurationError("--revision is of a hub's model; name it with --model")
    values = merge_values(
        merge_values(job_values(recipe or method, method, size), values_given), parse_assignments(method, sets)
    )
    if uses_relift(values):
        values = merge_values(values, {"data": {"demonstrations": _files("sft", None, needs_data)["train"]}})
    if out is None and "output" not in values:
        name = digest(json.dumps(values, sort_keys=True, default=str))[:8]
        values["output"] = str(home() / "training" / f"{method}-{name}")
    return load_job(values if out is None else merge_values(values, {"output": str(out.absolute())}))


def _files(method: str, data: Path | None, needs_data: bool = True) -> dict[str, str]:
    """Return the files that a method reads from an export's folder. Raises ConfigurationError for a folder without
    them.
    """
    if data is None and method == "grpo":
        return {}  # it plays the tasks of its player
    source = (data or DATASETS / method).absolute()  # a job that goes on may be asked for from somewhere else
    if source.is_file():
        return {"train": str(source)}
    train, validation = source / "train.jsonl", source / "validation.jsonl"
    if not train.is_file() and (needs_data or data is not None):
        advice = "give a file, or an export's folder" if data else "build the datasets first, or give --data"
        raise ConfigurationError(f"{data or source} holds no train.jsonl; {advice}")
    has_validation = method != "grpo" and validation.is_file() and validation.stat().st_size > 0
    return {"train": str(train)} | ({"validation": str(validation)} if has_validation else {})


def resume_job(out: Path) -> AnyJob:
    """Return the job that was begun in a folder. Raises ConfigurationError where there is none."""
    config_file = out / "config.json"
    if not config_file.is_file():
        raise ConfigurationError(f"no job was begun in {out} (it has no config.json); give the -o of one that was")
    return load_job(config_file).model_copy(update={"output": out.absolute()})


def base_model_facts(job: AnyJob) -> base_model.BaseModelInfo | None:
    """Return facts about a job's base model, as pinned or as of now; None for a model from scratch. Raises
    RatchetError.
    """
    if job.model.base is None:
        return None
    return base_model.read_base_model_info(job.output) or base_model.base_model_info(job.model.base, job.model.revision)


def train(
    method: str,
    *,
    data: Path | str | None = None,
    model: str | None = None,
    out: Path | str | None = None,
    recipe: str | None = None,
    size: str | None = None,
    settings: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Train a model in a separate process, as `ratchet train` does, and return the report.

    - `method`: sft, dpo, grpo or prm. `data`: a folder that an export wrote; None: the last data build's.
    - `model`: a checkpoint's folder, a hub's model, or a registered one (champion, @3); None: the recipe's.
    - `out`: folder of the result; the same call resumes there. The checkpoint is `out/checkpoint`, and in the report.
      None: a folder below `.ratchet/training`.
    - `settings`: options of the job by dotted name, as `{"optimization.learning_rate": 1e-5}`.

    Needs the extra `train`. Raises ConfigurationError, DataError, InfrastructureError.

    >>> _ = ratchet.export_sft(ratchet.collect("orders", agent="teacher", tasks=2), "sft")
    >>> report = ratchet.train("sft", data="sft", model="programs-base", size="smoke", settings={"optimization.steps": 1})
    >>> report["steps"], pathlib.Path(report["checkpoint"]).is_dir()
    (1, True)
    """
    sets = [f"{name}={json.dumps(value)}" for name, value in (settings or {}).items()]
    place, target = data and Path(data), out and Path(out)
    job = job_from_recipe(
        method, recipe=recipe, size=size, model=model, data=place or None, sets=sets, out=target or None
    )
    return train_manually(job)


def train_manually(job: AnyJob) -> dict[str, Any]:
    """Run a job in a process of its own, with an MLflow run; return its report. Raises ConfigurationError where the
    folder holds another job.
    """
    from ratchet.components.training.job_process import changed_settings, run_job, unfinished_job_changes

    if changed_keys := changed_settings(job):
        raise ConfigurationError(
            f"{job.output} holds the result of another job ({', '.join(changed_keys)}); give another output, or remove that folder"
        )
    if changed_keys := unfinished_job_changes(job):
        raise ConfigurationError(
            f"{job.output} holds a job that was begun otherwise ({', '.join(changed_keys)}); go on with `ratchet train --resume "
            f"{job.output}`, or give another output"
        )
    with ProgressDisplay() as display, display.step(f"train {job.output.name}") as step, training_run(job) as report:
        report |= run_job(job, step)
    return report
