"""Training: the first champion from demonstrations; then the challenger and, beside it, the control."""

from pathlib import Path
from typing import Any

from components.tracking.retention import BASE_TAG
from components.tracking.runs import Run
from components.versioning.lineage.models import data_tags
from tasks.registry import Model, register, trained
from tasks.train import metrics_history, train

from .build import TrainingData
from .tonight import Tonight


def train_first(tonight: Tonight, data: TrainingData) -> Model:
    """A new model on the demonstrations alone, until its validation loss has stopped falling."""
    recipe = tonight.scale.cold_start
    config = recipe.job(tonight.training("cold-start"), data.train, data.validation, seed=tonight.seed)
    report = tonight.night.once("train cold start", lambda: train("train cold start", config))
    return _registered(tonight, "cold-start", data, report)


def train_pair(tonight: Tonight, champion: Model, data: TrainingData, old: TrainingData) -> tuple[Model, Model]:
    """Challenger (on all data, tonight's included) and control (on the champion's old data), with equally many tokens."""
    recipe, base = tonight.scale.training, Path(champion.checkpoint)
    sources = {"challenger": data, "control": old}
    jobs = {
        name: recipe.job(tonight.training(name), each.train, each.validation, seed=tonight.seed, base=base)
        for name, each in sources.items()
    }

    def work() -> Any:
        runs = {name: train.submit(f"train {name}", job) for name, job in jobs.items()}
        return {name: run.result() for name, run in runs.items()}

    reports = tonight.night.once("train challenger and control", work)
    challenger, control = (
        _registered(tonight, name, sources[name], reports[name], champion.policy_version)
        for name in ("challenger", "control")
    )
    return challenger, control


def _registered(tonight: Tonight, name: str, data: TrainingData, report: dict[str, Any], base: str = "") -> Model:
    """The job's checkpoint in the registry, linked to a run with its losses. `base`: the policy version that it began from."""

    def work() -> Model:
        with tonight.run.child(f"train {name}", {"ratchet.kind": "training"}) as run:
            _log(run, tonight.training(name), report)
            _log_data(run, data)
            model = trained(Path(report["checkpoint"]), data.nights, data.build)
            return register(name, model, night=tonight.id, run_id=run.run_id, lineage={BASE_TAG: base} | _lineage(data))

    return tonight.night.once(f"register {name}", work, Model)


def _lineage(data: TrainingData) -> dict[str, str]:
    """What the registry keeps of a model's data, beside its nights and its build."""
    return data_tags(data.dataset, data.manifest, data.data) | ({"code": data.code} if data.code else {})


def _log_data(run: Run, data: TrainingData) -> None:
    """The same on the run of the training, and the dataset as its input."""
    tags = {"nights": ",".join(data.nights), "dvc_lock": data.build} | _lineage(data)
    run.tags({f"ratchet.{name}": value for name, value in tags.items()})
    run.dataset(data.dataset, data.data.get("train", data.build), data.folder)


def _log(run: Run, output: Path, report: dict[str, Any]) -> None:
    run.params({key: report[key] for key in ("rows", "parameters", "steps")})
    run.history(metrics_history(output / "metrics.jsonl"))
    run.metrics(
        {
            "train/tokens": report["tokens"],
            "train/seconds": report["seconds"],
            "train/best_validation_loss": report["validation_loss"],
            "train/converged": float(report["converged"]),
        }
    )
    run.file(output / "config.json", "train/config.json")
