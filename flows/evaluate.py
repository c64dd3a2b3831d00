"""Evaluating: the agents meet on the same held-out tasks with the same seeds, and the promotion rule decides."""

from typing import Any

from components.environments.tasksets import load
from components.evaluation.promotion import Decision, Trained
from components.protocol import Role
from tasks.collect import play
from tasks.display import display
from tasks.evaluate import compare
from tasks.home import folder
from tasks.registry import Model, find_anchor, keep_decision, move_anchor, promote, roll_back

from .choice import draw
from .decided import DECISION, decision_of
from .logged import log_evaluation
from .season import deciding_tasks, declared, declared_rule
from .state import decision_file
from .tonight import Tonight


def evaluate(tonight: Tonight, agents: dict[str, Model]) -> Decision:
    """Champion, challenger and control (and the anchor, on the nights of a match) play tonight's tasks; the decision record."""
    anchor = _anchor(tonight, agents["champion"])
    agents = agents | ({"anchor": anchor} if anchor is not None else {})
    tonight.night.once("evaluate", lambda: _play(tonight, agents))
    record, made = decision_file(tonight.id), tonight.night.result("trained", Trained)
    how: dict[str, Any] = {"night": tonight.id, "seed": tonight.seed, "trained": made, "declared": declared(tonight)}
    tonight.night.once(
        DECISION,
        lambda: compare(lambda: tonight.played.results, tonight.scale.taskset, declared_rule(tonight), record, **how),
    )
    decision = decision_of(tonight.night)
    assert decision is not None
    log_evaluation(tonight, decision, agents)
    return decision


def promote_or_keep(tonight: Tonight, decision: Decision, agents: dict[str, Model]) -> None:
    """Turn the ratchet one tooth, or leave it where it stands; on the nights of a match, back to the anchor where that is better.

    The record is kept with the challenger before any alias moves, and each alias moves as a whole. Where another took the place
    while the night ran, nobody has met it: it stays.
    """
    night, challenger, champion = tonight.night, agents["challenger"].version, agents["champion"].version
    assert challenger is not None
    if challenger != champion:  # else training changed nothing, and the champion keeps the decision that made it one
        night.once("keep decision", lambda: keep_decision(challenger, decision))
    if decision.match is not None and decision.match.rollback:
        why, anchor = decision.match.why, night.result("anchor", Model)
        assert anchor is not None and anchor.version is not None
        version = anchor.version
        _said(version, night.once("roll back", lambda: roll_back(version, why, over=champion)))
    elif decision.verdict == "promote":
        _said(challenger, night.once("promote", lambda: promote(challenger, decision.why, over=champion)))
    made = declared(tonight)
    if made is not None and made.match and not (decision.match and decision.match.rollback) and champion is not None:
        night.once("move anchor", lambda: move_anchor(champion))


def _said(wanted: int, holder: int) -> None:
    if holder != wanted:
        told = f"the place stays with version {holder}, which took it while the night ran"
        display().say(f"{told}; `ratchet promote {wanted}` gives it to what tonight decided for")


def _anchor(tonight: Tonight, champion: Model) -> Model | None:
    """The old champion that plays tonight too; None on most nights, and where the champion is the anchor itself."""
    made = declared(tonight)
    if made is None or not made.match:
        return None
    anchor = tonight.night.once("anchor", find_anchor, Model | None)
    return None if anchor is None or anchor.policy_version == champion.policy_version else anchor


def _play(tonight: Tonight, agents: dict[str, Model]) -> dict[str, Any]:
    """All agents beside each other, on the tasks that decide and on the sealed ones that are only looked at."""
    scale, held_out = tonight.scale, tonight.scale.evaluation
    place = folder("evaluations", tonight.id)
    sealed = draw(load(scale.taskset).tasks(Role.AUDIT), held_out.audit, tonight.seed, Role.AUDIT.value)
    tasks = (*deciding_tasks(tonight), *sealed)
    runs = {
        name: play.submit(
            f"evaluate {name}", scale.plan(held_out, model.policy, Role.PROMOTE, tasks, tonight.seed), place / name
        )
        for name, model in agents.items()
    }
    return {name: run.result() for name, run in runs.items()}
