"""The nightly flow: collect, train, evaluate, and promote only what is better.

    tasksets -> collect -> judge -> score, validate, rank, export -> train -> evaluate -> compare -> promote
        ^                                  (the data build)                                              |
        +--------------------------- @champion plays the next night <-----------------------------------+

After any interruption the same command resumes the night: each step's result is kept in the night's state, and an
interrupted step continues from its own files. The report is written at the end, also after a failure.
"""

from typing import Any

from prefect import flow
from prefect.task_runners import ThreadPoolTaskRunner

from ratchet.components.core.processes import own_children
from ratchet.components.core.run_context import name_context_in_logs
from ratchet.components.datasets.versioning import repair_damaged_files
from ratchet.components.nights.episode_sets import night_episodes
from ratchet.components.nights.night_models import NightModel
from ratchet.components.nights.night_spans import send_night, trace_steps
from ratchet.components.nights.night_state import begin_night, hold_night_lock
from ratchet.components.nights.recipe_config import load_recipe
from ratchet.components.nights.scale_config import load_scale
from ratchet.components.operations.leftovers import remove_leftovers_at_start
from ratchet.components.reporting.decision_text import verdict_line
from ratchet.components.reporting.progress_display import current_display
from ratchet.components.tracking.run_writer import night_run
from ratchet.flows.night_budget import keep_to_budget
from ratchet.flows.night_context import NightContext, announce_night, pin_sandbox
from ratchet.flows.night_notifications import HOOKS
from ratchet.flows.scheduled_run import end_with_scheduler, night_run_name, tag_own_run
from ratchet.flows.steps.build import build, build_first, publish, record_uses
from ratchet.flows.steps.collect import collect_attempts, collect_demonstrations
from ratchet.flows.steps.declare import declare_tonight
from ratchet.flows.steps.evaluate import evaluate
from ratchet.flows.steps.judge import gather_annotations, log_sampled_traces
from ratchet.flows.steps.promote import promote_or_keep
from ratchet.flows.steps.report import end_flow_run, report_at_end
from ratchet.flows.steps.train import train_first, train_pair
from ratchet.tasks.registry import find_champion, promote

PARALLEL_STEPS: Any = ThreadPoolTaskRunner(max_workers=3)
"""Task runner for steps that run in parallel: two training jobs, three evaluations."""


@flow(name="nightly", flow_run_name=night_run_name, task_runner=PARALLEL_STEPS, **HOOKS)
def nightly(
    scale: str = "smoke", seed: int | None = None, night: str | None = None, recipe: str | None = None
) -> dict[str, Any]:
    """Run a night of a scale, or resume an unfinished one; return the decision record.

    Prefect shows the verdict as the message of the run's state, or why the night failed and how to go on.
    """
    end_with_scheduler()
    decision: dict[str, Any] = end_flow_run(lambda: run_whole_night(scale, seed, night, recipe), verdict_line)
    return decision


def run_whole_night(scale: str, seed: int | None, night: str | None, recipe: str | None) -> dict[str, Any]:
    """Run a night between its lock and its report; return the decision record."""
    parameters = load_scale(scale)
    name_context_in_logs()
    tag_own_run()
    with hold_night_lock() as claim:  # before the state is read: two that begin at once would resume the same night
        own_children()
        state = begin_night(scale, seed, night, recipe)
        claim(state.id)
        trace_steps(state)
        for line in (*remove_leftovers_at_start(), *repair_damaged_files()):
            current_display().say(line)
        parameters = pin_sandbox(parameters)
        how = load_recipe(state.recipe or parameters.recipe, parameters.size)
        tag_own_run(f"scale:{parameters.name}", f"recipe:{how.name}")
        run_params = {"scale": scale, "seed": state.seed, "recipe": how.name}
        played = night_episodes(state.id)
        with night_run(state.id, parameters.taskset, params=run_params) as run, report_at_end(state, run, played):
            tonight = NightContext(state, parameters, run, how, played)
            announce_night(tonight)
            decision = run_steps(tonight)
        state.finish()
        send_night(state, decision["verdict"])
        tag_own_run(f"verdict:{decision['verdict']}")
    return decision


def run_steps(tonight: NightContext) -> dict[str, Any]:
    """Declare how tonight is decided, then run the steps shown in the module's diagram; return the decision record."""
    declare_tonight(tonight)
    keep_to_budget(tonight)
    champion = tonight.night.run_once("champion", find_champion, NightModel | None) or first_champion(tonight)
    collect_attempts(tonight, champion)
    gather_annotations(tonight)
    data, old = build(tonight, champion)
    log_sampled_traces(tonight)
    challenger, control = train_pair(tonight, champion, data, old)
    record_uses(tonight)
    agents = {"champion": champion, "challenger": challenger, "control": control}
    decision = evaluate(tonight, agents)
    promote_or_keep(tonight, decision, agents)
    publish(tonight, decision)
    record: dict[str, Any] = tonight.night.results["decision"]
    return record


def first_champion(tonight: NightContext) -> NightModel:
    """Train the first champion on the teacher's demonstrations until convergence, and promote it."""
    if "train cold start" not in tonight.night.results:
        current_display().say("no champion yet: the first one is trained on the teacher's demonstrations")
    demonstrations = collect_demonstrations(tonight)
    data = build_first(tonight, demonstrations)
    champion = train_first(tonight, data)
    version = champion.version
    assert version is not None
    tonight.night.run_once(
        "first champion", lambda: promote(version, "the first champion: there was none to beat", first=True)
    )
    return champion
