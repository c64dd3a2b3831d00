"""Nights that were played and decided, made by hand: episodes of two agents, their decision, and the morning after."""

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import msgspec
from episodes import make_episode

from ratchet.components.evaluation.agent_comparison import flips, most_informative_flips
from ratchet.components.evaluation.agent_results import agent_result
from ratchet.components.evaluation.night_trends import NightCost, NightQuality, consecutive_changes, night_point
from ratchet.components.evaluation.promotion.decision_record import Decision, TasksetRef
from ratchet.components.evaluation.promotion.promotion_decision import decide_promotion
from ratchet.components.evaluation.promotion.promotion_rule import PromotionRule
from ratchet.components.reporting.episode_pairs import EpisodePair
from ratchet.components.reporting.night_report import FailedExpectation, NightReport, StageVerdict
from ratchet.components.reporting.report_blocks import ReportFigure
from ratchet.components.trajectories.trajectory import Trajectory, with_content_hash

TASKS, ATTEMPTS, KINDS = 24, 2, ("off_by_one", "missing_return", "wrong_constant")
TASKSET = TasksetRef("repair", "1", "0123456789abcdef", "instance")
Solves = Callable[[int, int], bool]
"""(task, attempt) to whether it is solved."""


def champion_solves(task: int, attempt: int) -> bool:
    return task % 2 == 0 or (task % 5 == 0 and attempt == 0)


def challenger_solves(task: int, attempt: int) -> bool:
    return task % 8 != 0


def played(name: str, solves: Solves, *, tasks: int = TASKS, role: str = "promote") -> list[Trajectory]:
    """Each attempt at each task; every task is a family of its own."""
    return [
        _of_family(
            make_episode(f"repair/{role}-{task:04d}", attempt, success=solves(task, attempt), version=name, role=role),
            task,
        )
        for task in range(tasks)
        for attempt in range(ATTEMPTS)
    ]


def _of_family(episode: Trajectory, number: int) -> Trajectory:
    task = msgspec.structs.replace(episode.task, family=f"family-{number}", kind=KINDS[number % len(KINDS)])
    return with_content_hash(msgspec.structs.replace(episode, task=task))


def decided(
    champion: Sequence[Trajectory], challenger: Sequence[Trajectory], night: str = "2026-11-21-a1b2"
) -> Decision:
    """What the rule says of them; the control is the champion over again."""
    return decide_promotion(
        agent_result(champion, name="champion"),
        agent_result(challenger, name="challenger"),
        None,
        TASKSET,
        PromotionRule(n_resamples=500),
        night=night,
    )


def duels(champion: Sequence[Trajectory], challenger: Sequence[Trajectory]) -> tuple[EpisodePair, ...]:
    """The most telling pairs with their episodes."""
    mine, theirs = ({each.episode_id: each for each in episodes} for episodes in (champion, challenger))
    chosen = most_informative_flips(flips(agent_result(champion), agent_result(challenger), "promote"))
    return tuple(
        EpisodePair(flip, mine[flip.attempts[0].a_episode], theirs[flip.attempts[0].b_episode]) for flip in chosen
    )


@cache
def _night() -> tuple[Decision, tuple[EpisodePair, ...]]:
    champion, challenger = played("weights-1", champion_solves), played("weights-2", challenger_solves)
    return decided(champion, challenger), duels(champion, challenger)


def morning(change: Callable[[Trajectory], Trajectory] = lambda each: each, **changes: Any) -> NightReport:
    """A night that was finished and decided. `change` is made to each episode that it shows."""
    decision, pairs = _night()
    facts: dict[str, Any] = {"begun": "2026-11-21T21:37:05+00:00", "scale": "smoke"}
    cost = NightCost({"collect attempts": 194.6, "build": 31.4, "choose nights": 0.001}, 5600, 2_200_000)
    point = night_point(decision, cost=cost, quality=NightQuality(6400, 1, {"warning": 1}), **facts)
    before = msgspec.structs.replace(point, night="2026-11-20-9f00", begun="2026-11-20T21:00:00+00:00")
    fields: dict[str, Any] = {
        "state": "finished",
        "point": point,
        "seed": 3,
        "decision": decision,
        "ended": "2026-11-21T21:53:43+00:00",
        "before": before,
        "changes": consecutive_changes((before, point)),
        "flips": tuple(each.flip for each in pairs),
        "duels": tuple(EpisodePair(each.flip, change(each.champion), change(each.challenger)) for each in pairs),
        "pictures": (ReportFigure("success_bars", "Success", "champion 50 %, challenger 87 %", SVG),),
        "verdicts": (StageVerdict("validate", True, 6400, "episodes", 1, 51, (FAILURE,)),),
        "version": 2,
    }
    return NightReport(**(fields | changes))


FAILURE = FailedExpectation("rollouts", "turns_plausible", "warning", "has more turns than its limit", 1)
SVG = b'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 10 5"><rect width="10" height="5" fill="#1b7f5c"/></svg>'
