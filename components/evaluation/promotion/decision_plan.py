"""Power of a night before it is played: of its tasks, of other numbers of tasks and attempts, and of its guardrails."""

from collections.abc import Sequence
from statistics import NormalDist

import msgspec

from ratchet.components.statistics.bootstrap import families_for_margin
from ratchet.components.statistics.multiple_testing import PastTest, alpha_allowance
from ratchet.components.statistics.power_analysis import (
    ClusteredDesign,
    minimum_detectable_effect,
    minimum_families,
    power,
)

from .decision_record import Decision, Guardrail
from .guardrail_tests import KIND_PREFIX, RUNAWAY_FACTOR
from .promotion_rule import PromotionRule
from .season_plan import PastNight

LEADS = (0.02, 0.04, 0.06, 0.08, 0.1, 0.12, 0.15, 0.2)
"""Leads whose power is planned, in shares of attempts, beside the rule's minimum effect."""
SIZES = ((0.5, 1), (1, 0.5), (1, 1), (1, 2), (2, 1), (4, 1))
"""Designs that are planned, as factors of a night's tasks and attempts."""


class LeadPower(msgspec.Struct, frozen=True):
    """Chances of a challenger that is better by `lead`: the `power` of tonight's test, and the mean number of `nights`
    until a promotion if every night has such a challenger and every guardrail holds; None above MAX_NIGHTS.
    """

    lead: float
    power: float
    nights: float | None


MAX_NIGHTS = 365
"""Nights after which `lead_powers` gives up."""


def lead_powers(
    rule: PromotionRule, past: Sequence[PastNight], design: ClusteredDesign, leads: Sequence[float] = LEADS
) -> tuple[LeadPower, ...]:
    """Return the power of each lead and of the rule's minimum effect. `design`: of every night from tonight on; a spending
    rule lowers the level of later nights.
    """
    tests = [PastTest(night.tested, night.promoted) for night in past]
    count = 1 if rule.season.method == "fixed" else MAX_NIGHTS
    later = ([*tests, *[PastTest(True, False)] * night] for night in range(count))
    levels = [min(alpha_allowance(rule.season, known).level, rule.alpha) for known in later]
    return tuple(_lead_power(lead, design, levels) for lead in sorted({*leads, rule.minimum_effect}))


def _lead_power(lead: float, design: ClusteredDesign, levels: Sequence[float]) -> LeadPower:
    """Return the power at the first level, and the mean waiting time over all of them (one level: of every night)."""
    chances = [power(lead, design, alpha=level) for level in levels]
    if len(chances) == 1:
        mean = 1 / chances[0] if chances[0] * MAX_NIGHTS >= 1 else None
        return LeadPower(lead, chances[0], mean)
    waiting, mean = 1.0, 0.0
    for chance in chances:
        mean, waiting = mean + waiting, waiting * (1 - chance)
    return LeadPower(lead, chances[0], mean if waiting < MAX_WAITING else None)


MAX_WAITING = 0.01
"""Chance of no promotion in MAX_NIGHTS nights above which their mean number is not given."""


class PlannedDesign(msgspec.Struct, frozen=True):
    """The least lead that a number of tasks and attempts shows with the rule's power; None where none does."""

    tasks: int
    attempts: int
    detectable: float | None


def planned_designs(rule: PromotionRule, level: float, design: ClusteredDesign) -> tuple[PlannedDesign, ...]:
    """Return what nights of other sizes than `design` find at `level`, in families of the same sizes."""
    sizes = [(max(1, round(tasks * design.tasks)), max(1, round(k * design.attempts))) for tasks, k in SIZES]
    return tuple(
        PlannedDesign(tasks, k, minimum_detectable_effect(scaled, target_power=rule.power, alpha=level))
        for tasks, k in dict.fromkeys(sizes)
        for scaled in [msgspec.structs.replace(design.scaled_to(tasks), attempts=k)]
    )


class PlannedMargin(msgspec.Struct, frozen=True):
    """A guardrail. `families`: how many show the margin where none loses anything, of the `available` ones; `passes`:
    chance that an equal challenger passes with the spread of the last decided night, None before there is one.
    """

    name: str
    margin: float
    families: int | None
    available: int
    passes: float | None


def planned_margins(
    rule: PromotionRule, families: Sequence[str], kinds: Sequence[str], latest: Decision | None
) -> tuple[PlannedMargin, ...]:
    """Return the guardrails; of the kinds of task the one of fewest families, with the least chance of any.

    `families` and `kinds`, shape (n,): of each deciding task. `latest`: the last decision, for the spread of each figure.
    """
    chances = {guard.name: chance_if_equal(guard, rule) for guard in latest.guardrails} if latest else {}
    planned = []
    for name, margin, worst in (
        ("invalid_call_rate", rule.invalid_call_margin, 1.0),
        ("unsafe_actions", rule.unsafe_margin, 1.0),
        ("mean_steps", rule.steps_margin, RUNAWAY_FACTOR),
        ("tokens", rule.tokens_margin, RUNAWAY_FACTOR),
        ("cost", rule.cost_margin, RUNAWAY_FACTOR),
    ):
        if margin is not None:
            least = families_for_margin(margin, worst, rule.guardrail_alpha)
            planned.append(PlannedMargin(name, margin, least, len(set(families)), chances.get(name)))
    if rule.kind_margin is not None:
        fewest = min(len({f for f, k in zip(families, kinds, strict=True) if k == kind}) for kind in set(kinds))
        least = families_for_margin(rule.kind_margin, 1.0, rule.guardrail_alpha)
        known = [chance for name, chance in chances.items() if name.startswith(KIND_PREFIX) and chance is not None]
        name = f"success of every kind of task ({len(set(kinds))})"
        planned.append(PlannedMargin(name, rule.kind_margin, least, fewest, min(known, default=None)))
    return tuple(planned)


def promotion_obstacles(
    rule: PromotionRule, level: float, families: Sequence[str], margins: Sequence[PlannedMargin]
) -> tuple[str, ...]:
    """Return, in words, why no promotion is to be expected on deciding tasks of `families`, shape (n,), however large the lead;
    empty where one is. Guardrails are taken to be equal: a challenger that is better there may pass with fewer families.
    """
    tasks, count = len(families), len(set(families))
    reasons = []
    if tasks < rule.min_tasks or count < rule.min_families:
        least = f"{rule.min_tasks} tasks of {rule.min_families} families"
        reasons.append(f"the rule requires {least}, and there are {tasks} of {count}")
    if count < (shown := minimum_families(level)):
        reasons.append(f"a p-value of {level:.2g} needs {shown} families, and there are {count}")
    # Tokens and cost are tested only where they are recorded, and a kind with too few families is excused.
    tested = [margin for margin in margins if margin.name in ("invalid_call_rate", "unsafe_actions", "mean_steps")]
    return (
        *reasons,
        *(
            f"the guardrail {margin.name} needs {margin.families} families, and there are {margin.available}"
            for margin in tested
            if margin.families is not None and margin.families > margin.available
        ),
    )


def chance_if_equal(guard: Guardrail, rule: PromotionRule) -> float | None:
    """Return the chance that an equal challenger passes a guardrail with the same spread; None for one without an
    interval.
    """
    difference = guard.difference
    if difference is None or difference.interval is None or difference.value is None:
        return None
    sides = (difference.interval.high - difference.value, difference.value - difference.interval.low)
    limit, other = sides if guard.better == "lower" else sides[::-1]
    # The worse side holds the allowance for an unseen family too; the other side is sampling error alone.
    error = max(other, 0.0) / NormalDist().inv_cdf(1 - rule.guardrail_alpha)
    room = guard.margin - limit
    return NormalDist().cdf(room / error) if error > 0 else float(room >= 0)
