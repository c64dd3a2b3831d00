"""Compare recipes: build the data of each, train each with every seed, play the same held-out tasks, test, stop when decided.

    rows of a night -> build (a workspace for each data build) -> train (recipe x seed) -> evaluate -> test over seeds
                                                                      ^                                  |
                                                                      +----- next seed until decided ----+

Nothing is collected again, and nothing of the clone changes: models are not registered; nights, params.yaml and data/ stay as
they are. Finished steps are kept in the comparison's state, as those of a night.
"""

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import msgspec
from prefect import flow

from ratchet.components.core import Role
from ratchet.components.core.files import write_atomically
from ratchet.components.datasets.versioning.build_workspace import open_workspace
from ratchet.components.evaluation.agent_results import AgentResult
from ratchet.components.evaluation.recipe_comparison import (
    ComparisonRecord,
    RecipeVerdict,
    TrialResult,
    judge_recipe,
    seed_difference,
)
from ratchet.components.nights.comparison_plan import RECORD_STEP, ComparisonPlan
from ratchet.components.nights.episode_sets import NightEpisodes, read_agent_result
from ratchet.components.nights.night_state import Night, begin_in
from ratchet.components.nights.recipe_config import CHAMPION
from ratchet.components.operations.leftovers import COMPARISON_FLOW
from ratchet.components.reporting.progress_display import current_display
from ratchet.components.reporting.recipe_text import (
    RECIPE_COLUMNS,
    SEED_COLUMNS,
    comparison_markdown,
    recipe_rows,
    seed_rows,
    verdict_sentence,
)
from ratchet.components.statistics.bootstrap import rate_estimate
from ratchet.components.statistics.result_types import Estimate
from ratchet.components.tracking.evaluation_tables import RUN_AGENT_TAG, RUN_SEED_TAG, log_agent
from ratchet.components.tracking.run_writer import TrackedRun, open_outermost_run
from ratchet.components.trajectories.trajectory import digest
from ratchet.flows.night_context import NightContext, pin_sandbox
from ratchet.flows.nightly import PARALLEL_STEPS
from ratchet.flows.steps.build import TrainingData, build_nights, copy_rows
from ratchet.flows.steps.report import end_flow_run
from ratchet.flows.steps.train import RecipeResult, run_recipe
from ratchet.tasks.collect import play


def compare_recipes(plan: ComparisonPlan) -> None:
    """Run a comparison to its end, or go on with it, as a Prefect flow; the record is in its state and its folder."""
    flow(name=COMPARISON_FLOW, flow_run_name=plan.state.id, task_runner=PARALLEL_STEPS)(
        lambda: end_flow_run(lambda: track_comparison(plan), _verdicts_text)
    )()


def track_comparison(plan: ComparisonPlan) -> ComparisonRecord:
    """Run a comparison in its MLflow run; return its record."""
    declared = plan.declared
    params = {
        "night": declared.night,
        "champion": declared.champion,
        "seeds": declared.plan.seeds,
        "alpha": declared.plan.alpha,
    }
    labels = {f"recipe_{number}": label for number, label in enumerate(declared.recipes)}
    tags = {"ratchet.kind": "comparison", "ratchet.night": declared.night}
    with open_outermost_run(plan.state.id, declared.taskset.name, params=params | labels, tags=tags) as run:
        record = _ComparisonRun(plan, run).complete()
    plan.state.finish()
    return record


class _ComparisonRun:
    """A comparison in progress. Results of agents are read when they are needed first."""

    def __init__(self, plan: ComparisonPlan, run: TrackedRun) -> None:
        self.plan, self.state, self.run, self.declared = plan, plan.state, run, plan.declared
        self.scale = pin_sandbox(plan.scale)
        self.results: dict[str, AgentResult] = {}

    def complete(self) -> ComparisonRecord:
        """Train and evaluate seed after seed until every recipe is decided; write, log and return the record."""
        reference, *others = self.declared.recipes
        (champion,) = self._evaluate({(CHAMPION, None): RecipeResult(self.plan.source.champion, 0)})
        verdicts: dict[str, RecipeVerdict] = {}
        trials: list[TrialResult] = []
        for seed in range(self.declared.plan.seeds):
            undecided = [other for other in others if other not in verdicts or verdicts[other].outcome == "undecided"]
            if not undecided:
                break
            trained = [label for label in (reference, *undecided) if label != CHAMPION]
            trials += self._evaluate({(label, seed): self._train(label, seed) for label in trained})
            for other in undecided:
                earlier = verdicts[other].differences if other in verdicts else ()
                pair = self._result(reference, seed), self._result(other, seed)
                new = seed_difference(seed, *pair, audit="audit" in self.declared.tasks)
                verdicts[other] = judge_recipe(other, reference, self.declared.plan, (*earlier, new))
                current_display().say(verdict_sentence(verdicts[other]))
        ended = datetime.now(UTC).isoformat(timespec="seconds")
        record = ComparisonRecord(self.declared, champion, tuple(trials), tuple(verdicts.values()), ended)
        record = self.state.run_once(RECORD_STEP, lambda: record, ComparisonRecord)
        self._publish(record)
        return record

    def _train(self, label: str, seed: int) -> RecipeResult:
        """Build the data of a recipe and train it with a seed."""
        name, variant, source = self._name(label, seed), self.plan.variants[label], self.plan.source
        assert variant.recipe is not None
        own_data = name if variant.samples else digest(variant.params.decode())[:8]
        workspace = open_workspace(self.state.folder / "data" / own_data, source.nights, variant.params)
        # Both begin on the day of the night's own build, from which it counts ages.
        begin = partial(begin_in, scale=self.scale.name, begun=source.as_of)
        builder = begin(workspace, self.state.id, seed=source.seed)
        id = f"{self.state.id}-{self.declared.recipes.index(label)}-s{seed}"
        trial = begin(self.state.folder / "trials" / name, id, seed=seed)
        trial.run_once("choose baseline", lambda: source.baseline)

        def context(state: Night, run: TrackedRun) -> NightContext:
            assert variant.recipe is not None
            return NightContext(state, self.scale, run, variant.recipe, NightEpisodes({}), workspace)

        def work() -> RecipeResult:
            tags = {"ratchet.kind": "trial", RUN_AGENT_TAG: label, RUN_SEED_TAG: seed}
            with self.run.open_child(name, tags) as run:
                run.log_params({"recipe": label, "seed": seed})
                training = context(trial, run)
                step = f"build {own_data}"
                lock = build_nights(context(builder, self.run), step, source.nights, source.baseline)
                rows = partial(copy_rows, training, "challenger", source.nights, lock)
                return run_recipe(training, source.champion, trial.run_once("set aside data", rows, TrainingData))

        return trial.run_once("made", work, RecipeResult)

    def _evaluate(self, models: Mapping[tuple[str, int | None], RecipeResult]) -> list[TrialResult]:
        """Let models, by recipe and seed, play the held-out tasks in parallel; return their results."""
        playing = []
        for (label, seed), model in models.items():
            name, policy = self._name(label, seed), model.challenger.policy_name
            if name not in self.state.results:
                held_out = self.scale.evaluation
                plan = self.scale.plan(held_out, policy, Role.PROMOTE, self.plan.tasks, self.declared.seed)
                playing.append(play.submit(f"evaluate {name}", plan, self._episodes(name)))
        for run in playing:
            run.result()
        return [
            self.state.run_once(self._name(*key), partial(self._measure, *key, model), TrialResult)
            for key, model in models.items()
        ]

    def _measure(self, label: str, seed: int | None, made: RecipeResult) -> TrialResult:
        result, taskset = self._result(label, seed), self.declared.taskset
        with self.run.open_child(result.name, {"ratchet.kind": "trial"}) as run:
            log_agent(run, result, (f"{taskset.name}-promote", taskset.hash))
        audit = _success(result, "audit") if "audit" in self.declared.tasks else None
        model = made.challenger
        return TrialResult(
            label, seed, model.policy_version, model.checkpoint, made.tokens, _success(result, "promote"), audit
        )

    def _result(self, label: str, seed: int | None) -> AgentResult:
        """Return the result of a model from its episodes."""
        name = self._name(label, seed)
        if name not in self.results:
            self.results[name] = read_agent_result(name, self._episodes(name))
        return self.results[name]

    def _name(self, label: str, seed: int | None) -> str:
        """Return the name of a model, which is also that of its folders: its recipe's number and label, and its seed."""
        if label == CHAMPION:
            return CHAMPION
        return f"{self.declared.recipes.index(label)}-{re.sub(r'^[^@]*/|[^A-Za-z0-9.=-]+', '-', label).strip('-')[:40]}-s{seed}"

    def _episodes(self, name: str) -> Path:
        return self.state.folder / "episodes" / name

    def _publish(self, record: ComparisonRecord) -> None:
        """Write the record beside the state, and log it."""
        encoded, markdown = msgspec.json.format(msgspec.json.encode(record)) + b"\n", comparison_markdown(record)
        for name, content in (("comparison.json", encoded), ("comparison.md", markdown.encode())):
            write_atomically(self.state.folder / name, content)
            self.run.log_artifact(f"comparison/{name}", content)
        for number, verdict in enumerate(record.verdicts, 1):
            self.run.log_metrics(
                {f"eval/lead_{number}": verdict.test.estimate, f"eval/lead_{number}_p": verdict.test.p_value}
            )
        tables = {"recipes": (RECIPE_COLUMNS, recipe_rows(record)), "seeds": (SEED_COLUMNS, seed_rows(record))}
        for name, (columns, rows) in tables.items():
            table = {column: [row[number] for row in rows] for number, column in enumerate(columns)}
            self.run.log_table(f"comparison/{name}.json", table)
        self.run.set_description(_verdicts_text(record))


def _verdicts_text(record: ComparisonRecord) -> str:
    return "; ".join(map(verdict_sentence, record.verdicts)) + "."


def _success(result: AgentResult, role: str) -> Estimate:
    """Return the success rate on the tasks of a role, with an interval that resamples families."""
    rates = [(task.success_rate, task.family) for task in result.of(role) if task.success_rate is not None]
    return rate_estimate([rate for rate, _ in rates], [family for _, family in rates])
