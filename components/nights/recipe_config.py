"""Recipes: how a challenger is trained. A recipe is one stage, or several that build on each other, each with a gate.

Its sizes override what differs between two CPU cores, one GPU and many.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, Self

import msgspec
from pydantic import ConfigDict, Field, ValidationError, model_validator

from ratchet.components.core import ConfigurationError, DataError
from ratchet.components.core.configuration import Configuration, explain_validation_error
from ratchet.components.training.config.job_config import AnyJob, load_job
from ratchet.components.training.config.overrides import merge_values, parse_assignments

from .scale_config import PlayConfig, named_file, yaml_names


class Gate(Configuration):
    """Lower (`least`) and upper (`most`) bounds, inclusive, for figures of a stage's report, by name. A stage without
    bounds always passes.
    """

    least: dict[str, float] = Field(default_factory=dict)
    most: dict[str, float] = Field(default_factory=dict)

    def check(self, stage: str, figures: Mapping[str, object]) -> None:
        """Raise DataError that lists the figures that are out of bounds, unknown or NaN, with the name `stage`."""
        failed = []
        for bound_text, bounds, direction in (("at least", self.least, 1), ("at most", self.most, -1)):
            for name, bound in bounds.items():
                value = figures.get(name)
                if (
                    isinstance(value, int | float) and direction * value >= direction * bound
                ):  # in this form NaN fails too
                    continue
                value_text = f"{value:.4g}" if isinstance(value, int | float) else "not known"
                failed.append(f"{name} is {value_text}, the gate asks for {bound_text} {bound:g}")
        if failed:
            raise DataError(
                f"stage {stage} does not pass its gate: {'; '.join(failed)}; lower the gate and start the same command again, "
                "or begin another night with a changed recipe"
            )


RECIPES_FOLDER = Path(__file__).parents[2] / "flows" / "recipes"
CONTROL = "sft"
"""Recipe of controls: plain supervised training."""
CHAMPION, SCRATCH = "champion", "scratch"
"""What a stage may begin from, beside an earlier stage."""
OUTCOMES = "outcomes"
STEP_ROWS = (OUTCOMES, "labels", "scores")
"""Training targets of a step model (`method: prm`), from all nights: the outcomes of episodes, sealed labels of steps (by
people, Monte Carlo continuations or planted errors), or the build's scores of steps (by rules and judges)."""
DEFAULT_DATASETS = {"sft": "sft", "dpo": "dpo", "grpo": "grpo", "prm": OUTCOMES}
"""Default dataset of a method."""
DATASETS = ("sft", "dpo", "grpo", "groups")
DEMONSTRATION_ROWS = "demonstrations"
"""Name of the rows of the teacher's demonstrations."""
SINGLE_STAGE_NAME = "training"
"""Name of the stage of a recipe without `stages`."""
RUN_KEYS = {
    *("output", "seed", "model.base", "data.train", "data.validation", "data.trajectories", "data.labels"),
    "checkpoints.candidates",
}
"""Job keys that are filled in when a stage runs."""


class CheckpointChoice(PlayConfig):
    """Choose among the saved checkpoints by pass@k, k = `pass_at_k`, over `attempts` (by default k) sampled attempts at each
    of `tasks` train tasks that were never demonstrated, sampled at `temperature`; of equal ones the earliest.

    A high pass@1 after SFT does not promise a good result of RL; pass@k at a large k predicts it better (Kang et al. 2025,
    "Quagmires in SFT-RL Post-Training", arXiv:2510.01624).
    """

    pass_at_k: int = Field(gt=0)
    attempts: int = Field(0, ge=0)
    temperature: float = Field(1.0, gt=0)

    @model_validator(mode="before")
    @classmethod
    def _default_attempts(cls, values: Any) -> Any:
        return {"attempts": values.get("pass_at_k", 0), **values} if isinstance(values, dict) else values

    @model_validator(mode="after")
    def _check_attempts(self) -> Self:
        if self.attempts < self.pass_at_k:
            raise ValueError(f"{self.attempts} attempts do not give pass@{self.pass_at_k}; raise attempts")
        return self


class Stage(Configuration):
    """A training job, or (`method: sample`) episodes of an earlier stage's model, built into datasets.

    `name`: the key of the stage in `stages`. `sample`: the tasks and attempts of a sampling stage. `begin`: the
    champion, an earlier stage, or `scratch` (a new model of `model.shape`). `rows`: a dataset of the newest build,
    `demonstrations`, or the SFT rows of a sampling stage; for `prm` one of STEP_ROWS, or a sampling stage for how
    its episodes ended. `job`: the sections of the job.

    `step_model`: an earlier `prm` stage, whose scores join the rules' in the rewards of a `grpo` stage, or in the ranking of
    what a `sample` stage has played; with `best_of: n` it also chooses the best of n replies at each turn. `choose`:
    which saved checkpoint is the result of an `sft` stage; None for the last, or the best by `checkpoints.best_by`.
    """

    name: str = Field(pattern=r"^[a-z][a-z0-9-]{0,40}$")
    method: Literal["sft", "dpo", "grpo", "prm", "sample"]
    begin: str
    rows: str = ""
    gate: Gate = Gate()
    sample: PlayConfig | None = None
    step_model: str | None = None
    best_of: int | None = Field(None, gt=0)
    choose: CheckpointChoice | None = None
    job: dict[str, Any] = Field(default_factory=dict)

    @property
    def trains(self) -> bool:
        """Whether the stage trains a model."""
        return self.method != "sample"

    @property
    def makes_policy(self) -> bool:
        """Whether the stage trains a policy: one that can play, be the challenger, and be trained further."""
        return self.method in ("sft", "dpo", "grpo")

    @property
    def learns_from_demonstrations(self) -> bool:
        """Whether the stage learns the hardest tasks from demonstrations of the night's SFT dataset (ReLIFT)."""
        return uses_relift(self.job)

    def build_job(
        self, output: Path, data: Mapping[str, Any], *, seed: int, base: str | None, step_model: str | None = None
    ) -> AnyJob:
        """Return the training job of this stage. `data`: the section of that name; `base`: checkpoint to start from
        (None: as the stage's own section `model` says); `step_model`: checkpoint of the step model of a `grpo` stage.
        Raises ConfigurationError.
        """
        overrides: dict[str, Any] = {"method": self.method, "output": str(output), "seed": seed, "data": data}
        if base is not None:
            overrides["model"] = {"base": base}
        if step_model is not None:
            overrides["grpo"] = {"step_model": step_model}
        if self.choose is not None:
            overrides["checkpoints"] = {"candidates": True}
        return load_job(merge_values(self.job, overrides))


class Recipe(msgspec.Struct, frozen=True):
    """Stages in order. `challenger` names the stage that trains the challenger; later stages are extra."""

    name: str
    size: str | None
    stages: tuple[Stage, ...]
    challenger: str

    def model_title(self, stage: Stage) -> str:
        """Return the name of a stage's model in steps, folders and the registry: `challenger`, or `RECIPE-STAGE`."""
        return "challenger" if stage.name == self.challenger else f"{self.name}-{stage.name}"

    @property
    def plain_sft_stage(self) -> Stage | None:
        """The only stage of a recipe that is plain SFT from the champion for a fixed number of tokens, else None."""
        first = self.stages[0]
        has_token_budget = (
            first.method == "sft" and first.begin == CHAMPION and first.job.get("optimization", {}).get("token_budget")
        )
        return first if has_token_budget and len(self.stages) == 1 else None


def uses_relift(job: Mapping[str, Any]) -> bool:
    """Return whether a job sets `grpo.selection.relift` without demonstrations of its own."""
    section: Any = job
    for name in ("grpo", "selection", "relift"):
        section = section.get(name) if isinstance(section, Mapping) else None
    data = job.get("data")
    return section is not None and not (isinstance(data, Mapping) and "demonstrations" in data)


def known_recipes() -> list[str]:
    """Return the names that `load_recipe` accepts."""
    return yaml_names(RECIPES_FOLDER)


def recipe_sizes(name: str) -> list[str]:
    """Return the sizes of a recipe. Raises ConfigurationError."""
    return list(_RecipeFile.load(named_file("recipe", name, RECIPES_FOLDER)).sizes)


def load_recipe(name_or_path: str, size: str | None = None) -> Recipe:
    """Load a recipe by name or YAML file, with the overrides of a size (None: without). Raises ConfigurationError."""
    path = named_file("recipe", name_or_path, RECIPES_FOLDER)
    values = _RecipeFile.load(path)
    raw_stages = _sized(values, size, path)
    stages_by_name: dict[str, Stage] = {}
    for name, settings in raw_stages.items():
        stages_by_name[name] = _stage(name, settings, stages_by_name, path)
    trained = [name for name, stage in stages_by_name.items() if stage.makes_policy]
    challenger = values.challenger or (trained or [""])[-1]
    if challenger not in trained:
        raise ConfigurationError(
            f"{path}: 'challenger' must be a stage that trains a policy: {', '.join(trained) or 'there is none'}"
        )
    if stages_by_name[challenger].rows not in DATASETS:
        raise ConfigurationError(
            f"{path}: the challenger's stage must read a dataset of all nights ({', '.join(DATASETS)}), or the next night's "
            "control would not learn from all that it learned from"
        )
    return Recipe(path.stem, size, tuple(stages_by_name.values()), challenger)


def job_values(recipe: str, method: str, size: str | None = None) -> dict[str, Any]:
    """Return the job sections of the recipe's first stage of a method, for a manual job. Raises ConfigurationError."""
    stages = load_recipe(recipe, size).stages
    for stage in stages:
        if stage.method == method:
            return dict(stage.job)
    methods = ", ".join(dict.fromkeys(stage.method for stage in stages if stage.trains))
    raise ConfigurationError(f"recipe {recipe} has no stage of method {method}; it has {methods}")


def override_recipe(recipe: Recipe, assignments: Sequence[str]) -> Recipe:
    """Return the recipe with changed jobs. An assignment is `KEY=VALUE` for the challenger's stage, or `STAGE.KEY=VALUE`;
    keys as in `parse_assignments`. Raises ConfigurationError.
    """
    stages = {stage.name: stage for stage in recipe.stages}
    for text in assignments:
        name, dot, key = text.partition(".")
        stage, key = (stages[name], key) if dot and name in stages else (stages[recipe.challenger], text)
        if not stage.trains:
            raise ConfigurationError(f"{text}: stage {stage.name} samples and has no job; change it in a recipe's file")
        changed = stage.model_copy(update={"job": merge_values(stage.job, parse_assignments(stage.method, [key]))})
        _check_job(changed, f"recipe {recipe.name} with {text}")
        stages[stage.name] = changed
    return msgspec.structs.replace(recipe, stages=tuple(stages.values()))


class _RecipeFile(Configuration):
    """A recipe's file: `stages` by name, or the keys of its only stage."""

    model_config = ConfigDict(extra="allow", frozen=True)

    stages: dict[str, dict[str, Any]] | None = None
    challenger: str | None = None
    sizes: dict[str, dict[str, Any]] = Field(default_factory=dict)

    @property
    def alone(self) -> dict[str, Any]:
        """Keys of the only stage."""
        return dict(self.model_extra or {})


def _sized(values: _RecipeFile, size: str | None, path: Path) -> dict[str, dict[str, Any]]:
    """Return the stages with the size's overrides."""
    if (values.stages is None) == (not values.alone):
        raise ConfigurationError(
            f"{path}: give 'stages', or the keys of one stage (method, optimization, ...), and not both"
        )
    stages = values.stages if values.stages is not None else {SINGLE_STAGE_NAME: values.alone}
    for name, changes in values.sizes.items():
        if values.stages is not None and (strange := changes.keys() - stages.keys()):
            raise ConfigurationError(
                f"{path}: size {name} changes '{min(strange)}', which is no stage; the stages are {', '.join(stages)}"
            )
    if size is None:
        return stages
    if size not in values.sizes:
        raise ConfigurationError(f"{path}: there is no size '{size}'; it has {', '.join(values.sizes) or 'none'}")
    changes = values.sizes[size]
    return merge_values(stages, changes if values.stages is not None else {SINGLE_STAGE_NAME: changes})


def _stage(name: str, raw: Mapping[str, Any], before: Mapping[str, Stage], path: Path) -> Stage:
    """Return a validated stage: its job can be loaded and refers to earlier stages only."""
    own = {key: value for key, value in raw.items() if key in Stage.model_fields.keys() - {"name", "job"}}
    job = {key: value for key, value in raw.items() if key not in own}
    trained = [earlier for earlier in before.values() if earlier.makes_policy]
    own.setdefault("begin", trained[-1].name if trained else CHAMPION)
    own.setdefault("rows", DEFAULT_DATASETS.get(str(own.get("method")), ""))
    where = f"{path}, stage {name}"
    try:
        stage = Stage.model_validate({"name": name, **own, "job": job})
    except ValidationError as error:
        raise ConfigurationError(f"{where}: {explain_validation_error(Stage, error)}") from error
    _check(stage, before, where)
    return stage


def _check(stage: Stage, before: Mapping[str, Stage], where: str) -> None:
    """Raise ConfigurationError for an invalid stage."""
    if stage.name in (CHAMPION, SCRATCH, DEMONSTRATION_ROWS, *DATASETS, *STEP_ROWS):
        raise ConfigurationError(f"{where}: that name has a meaning already; choose another")
    starts = [earlier.name for earlier in before.values() if earlier.makes_policy]
    if stage.begin not in (CHAMPION, SCRATCH, *starts) or (stage.begin == SCRATCH and not stage.trains):
        choices = ", ".join([CHAMPION, *([SCRATCH] if stage.trains else []), *starts])
        raise ConfigurationError(f"{where}: it cannot begin from '{stage.begin}'; earlier there are {choices}")
    if stage.trains == (stage.sample is not None):
        raise ConfigurationError(
            f"{where}: 'sample' (tasks, attempts, ...) goes with method: sample, and with no other"
        )
    _check_step_model(stage, before, where)
    if stage.choose is not None and stage.method != "sft":
        raise ConfigurationError(f"{where}: 'choose' goes with method: sft, and with no other")
    if not stage.trains:
        if stage.job:
            raise ConfigurationError(f"{where}: '{min(stage.job)}' is a section of training; method: sample has none")
        return
    sampled = [earlier.name for earlier in before.values() if not earlier.trains]
    rows = [*STEP_ROWS, *sampled] if stage.method == "prm" else [*DATASETS, DEMONSTRATION_ROWS, *sampled]
    if stage.rows not in rows:
        raise ConfigurationError(f"{where}: there are no rows '{stage.rows}'; take one of {', '.join(rows)}")
    _check_job(stage, where)


def _check_job(stage: Stage, where: str) -> None:
    """Raise ConfigurationError for a job that cannot be loaded, or that has a key of RUN_KEYS."""
    sections = ((name, stage.job.get(name)) for name in ("model", "data", "checkpoints"))
    inner = {f"{name}.{key}" for name, section in sections if isinstance(section, dict) for key in section}
    if reserved_keys := RUN_KEYS & (stage.job.keys() | inner):
        raise ConfigurationError(f"{where}: '{min(reserved_keys)}' is filled in when it runs; remove it")
    # With stand-ins for its files: a job that cannot be loaded is refused before a night plays for hours.
    try:
        data = {"trajectories": ["train"]} if stage.method == "prm" else {"train": "train.jsonl"}
        stage.build_job(Path("output"), data, seed=0, base=None, step_model=stage.step_model)
    except ConfigurationError as error:
        raise ConfigurationError(f"{where}: {error}") from error


def _check_step_model(stage: Stage, before: Mapping[str, Stage], where: str) -> None:
    """Raise ConfigurationError for an invalid `step_model` or `best_of`."""
    known = {earlier.name: earlier.job.get("prm", {}) for earlier in before.values() if earlier.method == "prm"}
    if stage.best_of is not None and (stage.method != "sample" or stage.step_model is None):
        raise ConfigurationError(f"{where}: 'best_of' goes with method: sample and a step_model")
    if stage.step_model is None:
        return
    if stage.method not in ("grpo", "sample"):
        raise ConfigurationError(f"{where}: 'step_model' goes with method: grpo or sample, and with no other")
    if stage.step_model not in known:
        raise ConfigurationError(
            f"{where}: there is no step model '{stage.step_model}'; earlier stages of method prm: {', '.join(known) or 'none'}"
        )
    options = known[stage.step_model]
    if stage.method == "grpo" and options.get("objective", "value") != "value":
        raise ConfigurationError(f"{where}: grpo needs prm.objective: value in stage {stage.step_model}")
    if stage.best_of is not None and not options.get("replies"):
        raise ConfigurationError(f"{where}: best_of needs prm.replies: true in stage {stage.step_model}")
