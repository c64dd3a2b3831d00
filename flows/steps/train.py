"""Train: the first champion from demonstrations; then the challenger by tonight's recipe, and the control by plain SFT.

Each stage of a recipe leaves a registered model, or sealed episodes and their datasets. A stage passes its gate before
the next one begins; finished stages are not repeated when the night is resumed.
"""

import shutil
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import msgspec
from prefect import flow

from ratchet.components.core import DataError, Role
from ratchet.components.core.home import home_folder
from ratchet.components.datasets.export.build_figures import count_episodes, count_reasons
from ratchet.components.datasets.lineage.model_lineage import data_tags
from ratchet.components.evaluation.agent_metrics import success_by_k
from ratchet.components.evaluation.agent_results import AgentResult
from ratchet.components.evaluation.promotion.decision_record import TrainedAgents
from ratchet.components.models.best_of_policy import BestOfName
from ratchet.components.models.checkpoint_folders import checkpoint_version
from ratchet.components.nights.episode_sets import read_agent_result
from ratchet.components.nights.night_models import NightModel, trained_model
from ratchet.components.nights.recipe_config import CHAMPION, CONTROL, SCRATCH, CheckpointChoice, Stage, load_recipe
from ratchet.components.nights.recipe_config import DEMONSTRATION_ROWS as DEMONSTRATIONS
from ratchet.components.rewards.annotation_records import LABELS_FILE
from ratchet.components.tracking.checkpoint_retention import BASE_TAG
from ratchet.components.tracking.evaluation_tables import agent_run
from ratchet.components.tracking.run_writer import TrackedRun
from ratchet.components.tracking.training_log import log_training
from ratchet.components.training.checkpoint_io import CANDIDATES
from ratchet.components.training.config.job_config import AnyJob
from ratchet.components.training.config.overrides import merge_values
from ratchet.flows.mlflow_log import log_acceptance
from ratchet.flows.night_context import ROLLOUTS_FOLDER, NightContext
from ratchet.tasks.collect import play
from ratchet.tasks.registry import register
from ratchet.tasks.train import train

from .build import RELIFT_STEP_PREFIX, STEPS_DATASET, TrainingData, build_with_night, copy_rows, copy_steps
from .collect import DEMONSTRATIONS_PREFIX, choose_tasks, collect_samples
from .judge import judge_samples


def register_trained(
    tonight: NightContext,
    name: str,
    data: TrainingData,
    report: dict[str, Any],
    base: str = "",
    demonstrations: TrainingData | None = None,
    step_model: NightModel | None = None,
) -> NightModel:
    """Register a job's checkpoint (not in a comparison) and log its run. `name`: of the job, such as `challenger`;
    `report`: the job's; `base`: policy version that it started from; `demonstrations`: rows that ReLIFT learned from;
    `step_model`: one that rewarded its steps.
    """

    logged_agent = (
        name if name in ("cold-start", "control") else "challenger"
    )  # of which every stage of a recipe is part

    def work() -> NightModel:
        # A comparison's run is that of one model already.
        agent_of_job = (
            nullcontext(tonight.run) if tonight.workspace else agent_run(tonight.run, logged_agent, tonight.seed)
        )
        with agent_of_job as agent, agent.open_child(f"train {name}", {"ratchet.kind": "training"}) as run:
            log_training(run, tonight.training(name), report)
            _log_training_data(run, data, demonstrations)
            model = trained_model(Path(report["checkpoint"]), data.nights, data.build)
            if tonight.workspace:
                return model
            lineage = {BASE_TAG: base} | _lineage_tags(data, demonstrations)
            lineage |= {"step_model": step_model.policy_version} if step_model else {}
            # A step model cannot play: no number or alias of an agent may name it.
            kind = {"name": STEP_MODEL} if data.dataset == STEPS_DATASET else {}
            return register(name, model, night=tonight.id, run_id=run.run_id, lineage=lineage, **kind)

    return tonight.night.run_once(f"register {name}", work, NightModel)


def _lineage_tags(data: TrainingData, demonstrations: TrainingData | None) -> dict[str, str]:
    """Return registry tags for a model's data, beside its nights and its build."""
    tags = data_tags(data.dataset, data.manifest, data.data) | ({"code": data.code} if data.code else {})
    return tags if demonstrations is None else {**tags, "demonstrations_sha256": demonstrations.data["train"]}


def _log_training_data(run: TrackedRun, data: TrainingData, demonstrations: TrainingData | None) -> None:
    """Tag the training run with its data, and log the datasets as inputs."""
    tags = {"nights": ",".join(data.nights), "dvc_lock": data.build} | _lineage_tags(data, demonstrations)
    run.set_tags({f"ratchet.{name}": value for name, value in tags.items()})
    for rows in (data,) if demonstrations is None else (data, demonstrations):
        run.log_dataset(rows.dataset, rows.data.get("train", rows.build), rows.folder)


STEP_MODEL = "step-model"
"""Name of step models in the registry."""
RANKED_TABLE = Path("data/ranked.parquet")
"""Table of the build's decisions about each episode."""
T = TypeVar("T")


class RecipeResult(msgspec.Struct, frozen=True):
    """The challenger of a recipe, and the input tokens of all training up to it."""

    challenger: NightModel
    tokens: int


def run_recipe(tonight: NightContext, champion: NightModel, data: TrainingData) -> RecipeResult:
    """Run every stage of tonight's recipe from the champion. Raises DataError where a gate fails."""
    return run_as_flow(f"{tonight.recipe.name} {tonight.id}", _RecipeRun(tonight, champion, data).all)


def run_as_flow(name: str, work: Callable[[], T]) -> T:
    """Run `work` as a Prefect flow whose run is called `name`; return its result."""
    result: T = flow(name="recipe", flow_run_name=name)(work)()
    return result


class _RecipeRun:
    """A recipe in progress: its models, rows and nights so far."""

    def __init__(self, tonight: NightContext, champion: NightModel, data: TrainingData) -> None:
        self.tonight, self.recipe, self.data = tonight, tonight.recipe, data
        self.models = {CHAMPION: champion}
        self.nights, self.lock = data.nights, data.build
        self.sampled: dict[str, str] = {}
        self.tokens = 0

    def all(self) -> RecipeResult:
        """Run the stages in order."""
        result = None
        for stage in self.recipe.stages:
            if not stage.trains:
                self._sample(stage)
                continue
            self._train(stage)
            if stage.name == self.recipe.challenger:
                result = RecipeResult(self.models[stage.name], self.tokens)
        assert result is not None, "a recipe's challenger is one of its stages"
        return result

    def _train(self, stage: Stage) -> None:
        night = self.tonight.night
        title = self.recipe.model_title(stage)
        base = None if stage.begin == SCRATCH else self.models[stage.begin]
        data, demonstrations = self._rows(stage, title), self._shown(stage, title)
        files: dict[str, Any] = {
            name: str(path) for name, path in data.files.items() if name == "train" or stage.method != "grpo"
        }
        if data.dataset == STEPS_DATASET:
            labels = Path(data.folder) / LABELS_FILE
            files = {"trajectories": [str(self.tonight.root / ROLLOUTS_FOLDER / name) for name in data.nights]}
            files |= {"labels": [str(labels)]} if labels.stat().st_size else {}
        if demonstrations is not None:
            files["demonstrations"] = str(demonstrations.train)
        checkpoint = base.checkpoint if base else None
        step_model = self.models[stage.step_model] if stage.step_model else None
        job = self._placed(stage).build_job(
            self.tonight.training(title),
            files,
            seed=self.tonight.seed,
            base=checkpoint,
            step_model=step_model.checkpoint if step_model else None,
        )
        report: dict[str, Any] = night.run_once(f"train {title}", lambda: train(f"train {title}", job))
        if stage.choose is not None:
            choice = night.run_once(f"choose checkpoint of {title}", partial(self._choose, stage.choose, title, job))
            report = report | choice
            for candidate in choice["candidates"]:
                if candidate["checkpoint"] != choice["checkpoint"]:
                    shutil.rmtree(Path(candidate["checkpoint"]).parent, ignore_errors=True)
        stage.gate.check(stage.name, gate_figures(report))
        version = base.policy_version if base else ""
        self.models[stage.name] = register_trained(
            self.tonight, title, data, report, version, demonstrations, step_model
        )
        self.tokens += report["tokens"]

    def _choose(self, how: CheckpointChoice, title: str, job: AnyJob) -> dict[str, Any]:
        """Play the candidates of a job at train tasks; return the figures of the one with the highest pass@k."""
        tonight = self.tonight
        tasks = choose_tasks(tonight, f"choose tasks for checkpoints of {title}", how.tasks, self.nights)
        figures = []
        for folder in sorted((job.output / CANDIDATES).iterdir()):
            policy = f"transformers:{folder / 'checkpoint'}"
            plan = tonight.scale.plan(how, policy, Role.TRAIN, tasks, tonight.seed)
            place = home_folder("choices", tonight.id, title) / folder.name
            play(f"play {title} {folder.name}", plan, place)
            figures.append(candidate_figures(folder, read_agent_result(folder.name, place), how.pass_at_k))
        return best_candidate(figures)

    def _placed(self, stage: Stage) -> Stage:
        """Return the stage with the scale's taskset and sandbox, if it plays episodes (GRPO)."""
        how = stage.job.get("grpo", {})
        if stage.method != "grpo" or how.get("offline") or "player" in how:
            return stage
        job = merge_values(stage.job, {"grpo": {"play": self.tonight.scale.online()}})
        return stage.model_copy(update={"job": job})

    def _rows(self, stage: Stage, title: str) -> TrainingData:
        """Return the rows of a stage: a dataset of the newest build, or the SFT rows of one sampling stage; for a step
        model the episodes to learn from.
        """
        if stage.method == "prm":
            names = (self.sampled[stage.rows],) if stage.rows in self.sampled else self.nights
            return self.tonight.night.run_once(
                f"set aside {title}",
                lambda: copy_steps(self.tonight, f"{title}-rows", names, self.lock, stage.rows),
                TrainingData,
            )
        if stage.rows == self.data.dataset and self.nights == self.data.nights:
            return self.data
        nights, dataset = self._source(stage)
        return self.tonight.night.run_once(
            f"set aside {title}",
            lambda: copy_rows(self.tonight, f"{title}-rows", nights, self.lock, dataset),
            TrainingData,
        )

    def _shown(self, stage: Stage, title: str) -> TrainingData | None:
        """Return the SFT rows of all nights for a stage that uses ReLIFT, else None."""
        if not stage.learns_from_demonstrations:
            return None
        return self.tonight.night.run_once(
            f"{RELIFT_STEP_PREFIX} {title}",
            lambda: copy_rows(self.tonight, f"{title}-demonstrations", self.nights, self.lock),
            TrainingData,
        )

    def _source(self, stage: Stage) -> tuple[tuple[str, ...], str]:
        """Return the nights and the dataset whose rows a stage reads. Raises DataError where there are no
        demonstrations.
        """
        if stage.rows in self.sampled:
            return (self.sampled[stage.rows],), self.data.dataset
        if stage.rows != DEMONSTRATIONS:
            return self.nights, stage.rows
        nights = tuple(night for night in self.nights if night.startswith(DEMONSTRATIONS_PREFIX))
        if not nights:
            raise DataError(
                f"stage {stage.name} learns from demonstrations, and none of {', '.join(self.nights)} holds any; "
                "leave the stage out"
            )
        return nights, self.data.dataset

    def _sample(self, stage: Stage) -> None:
        """Play train tasks with an earlier stage's model, seal the episodes, and build datasets with them."""
        assert stage.sample is not None
        policy = self.models[stage.begin].policy_name
        step_model = self.models[stage.step_model].checkpoint if stage.step_model else None
        if stage.best_of is not None and step_model is not None:
            policy = str(BestOfName(stage.best_of, step_model, policy))
        night = collect_samples(self.tonight, stage.name, stage.sample, policy, self.nights)
        if step_model is not None:
            judge_samples(self.tonight, night, step_model)
        self.nights = (*self.nights, night)
        self.lock = build_with_night(self.tonight, night, self.nights)
        self.sampled[stage.name] = night
        ranked = self.tonight.root / RANKED_TABLE
        shares = self.tonight.night.run_once(f"acceptance of {stage.name}", lambda: acceptance(ranked, night))
        log_acceptance(self.tonight.run, stage.name, shares, count_reasons(ranked, night))
        stage.gate.check(stage.name, shares)


def candidate_figures(folder: Path, result: AgentResult, k: int) -> dict[str, Any]:
    """Return checkpoint, step, pass@k and pass@1 of a candidate in a folder. Raises DataError where no task has k
    attempts with a known outcome.
    """
    by_k = {item.k: item.pass_at for item in success_by_k(result.tasks)}
    if k not in by_k:
        raise DataError(f"{folder}: no task has {k} attempts with a known outcome; see `ratchet doctor`, and repeat")
    step = int(folder.name.rpartition("-")[2])
    return {"checkpoint": str(folder / "checkpoint"), "chosen_step": step, "pass_at_k": by_k[k], "pass_at_1": by_k[1]}


def best_candidate(figures: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return the candidate with the highest pass@k, of equal ones the first, with those of all as `candidates`."""
    return max(figures, key=lambda item: item["pass_at_k"]) | {"candidates": list(figures)}


def gate_figures(report: dict[str, Any]) -> dict[str, Any]:
    """Return the figures that a gate may check: the job's report, with `reward_gain` (last reward minus first) and
    `lost_share` (of the episodes) where the report has their parts.
    """
    figures = dict(report)
    first, last = report.get("first_reward"), report.get("last_reward")
    if first is not None and last is not None:
        figures["reward_gain"] = last - first
    if report.get("episodes") and "lost" in report:  # a step model's episodes were played before
        figures["lost_share"] = report["lost"] / report["episodes"]
    return figures


def acceptance(ranked: Path, night: str) -> dict[str, float]:
    """Return a night's number of episodes and the share that passes each filter: played to the end, correct (of those
    played to the end), not quarantined.

    `accepted`: number of episodes that the ranking accepts for training; `acceptance`: their share. `ranked`: file of
    the ranked table. Raises DataError where the night has no episode.
    """
    counts = next((row for row in count_episodes(ranked)["night"] if row.value == night), None)
    if counts is None or not counts.episodes:
        raise DataError(f"{ranked} has no episode of {night}; see data/quality_report.json for why")
    return {
        "episodes": counts.episodes,
        "accept_played": 1 - counts.broken / counts.episodes,
        "accept_correct": counts.succeeded / max(counts.episodes - counts.broken, 1),
        "accept_clean": 1 - counts.quarantined / counts.episodes,
        "accepted": counts.accepted,
        "acceptance": counts.accepted / counts.episodes,
    }


def train_first(tonight: NightContext, data: TrainingData) -> NightModel:
    """Train the scale's base model, or a new one, on the demonstrations, and register the result."""
    config = tonight.scale.cold_start.job(tonight.training("cold-start"), data.files, seed=tonight.seed)
    report = tonight.night.run_once("train cold start", lambda: train("train cold start", config))
    base = config.model.base
    version = checkpoint_version(Path(base)) if base and Path(base).is_dir() else base or ""
    return register_trained(tonight, "cold-start", data, report, version)


def train_pair(
    tonight: NightContext, champion: NightModel, data: TrainingData, old: TrainingData
) -> tuple[NightModel, NightModel]:
    """Train the challenger (by the recipe, on all data) and the control (plain SFT of the champion on its old data)
    with equal tokens.

    They are trained in parallel where the recipe fixes the number of tokens beforehand.
    """
    stage = tonight.recipe.plain_sft_stage
    waiting = _start_control(tonight, champion, old, stage) if stage else None
    result = run_recipe(tonight, champion, data)
    report = (waiting or _start_control(tonight, champion, old, _control_stage(tonight, result.tokens)))()
    control = register_trained(tonight, "control", old, report, champion.policy_version)
    size = f", size {tonight.recipe.size}" if tonight.recipe.size else ""
    tonight.night.run_once(
        "trained", lambda: TrainedAgents(f"{tonight.recipe.name}{size}", result.tokens, report["tokens"])
    )
    return result.challenger, control


def _control_stage(tonight: NightContext, tokens: int) -> Stage:
    """Return the control's stage: plain SFT for a number of tokens, without early stopping."""
    stage = load_recipe(CONTROL, tonight.scale.size).stages[0]
    end = {"optimization": {"token_budget": tokens, "steps": None, "epochs": None}, "checkpoints": {"patience": None}}
    return stage.model_copy(update={"job": merge_values(stage.job, end)})


def _start_control(
    tonight: NightContext, champion: NightModel, old: TrainingData, stage: Stage
) -> Callable[[], dict[str, Any]]:
    """Start to train the control; return a function that waits for its report."""
    step = "train control"
    if step in tonight.night.results:
        return lambda: dict(tonight.night.results[step])
    job = stage.build_job(
        tonight.training("control"),
        {name: str(path) for name, path in old.files.items()},
        seed=tonight.seed,
        base=champion.checkpoint,
    )
    tonight.night.check_step(step)
    run = train.submit(step, job)
    return lambda: dict(tonight.night.run_once(step, run.result))
