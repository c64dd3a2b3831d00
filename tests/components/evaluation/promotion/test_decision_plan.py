"""What a night's decision can show, before it is played."""

import math

import msgspec
import pytest

from ratchet.components.evaluation.promotion.decision_plan import (
    chance_if_equal,
    lead_powers,
    planned_designs,
    planned_margins,
)
from ratchet.components.evaluation.promotion.decision_record import Guardrail
from ratchet.components.evaluation.promotion.promotion_rule import PromotionRule
from ratchet.components.evaluation.promotion.season_plan import PastNight, declare_night, detectable_lead
from ratchet.components.statistics.multiple_testing import AlphaSpending
from ratchet.components.statistics.power_analysis import VarianceComponents, clustered_design, power
from ratchet.components.statistics.result_types import Estimate, Interval

RULE = PromotionRule(minimum_effect=0.08)
LORD = PromotionRule(minimum_effect=0.08, spending=AlphaSpending())
FAMILIES = [f"f{number // 3}" for number in range(150)]
PARTS = VarianceComponents(0.005, 0.15, 0.055)
DESIGN = clustered_design(FAMILIES, 4, PARTS)


def test_where_every_night_tests_alike_a_promotion_takes_one_over_the_power_nights():
    none, some, sure = lead_powers(RULE, (), DESIGN, (0.0, 0.5))
    assert none.power == pytest.approx(RULE.alpha, rel=1e-6) and none.nights == pytest.approx(1 / RULE.alpha, rel=1e-6)
    assert some.power == pytest.approx(power(0.08, DESIGN, alpha=RULE.alpha)) and some.nights == 1 / some.power
    assert sure.nights == pytest.approx(1, abs=1e-3)


def test_where_levels_fall_over_a_season_a_promotion_takes_longer_than_tonights_power_says():
    lead = lead_powers(LORD, (), DESIGN, (0.15,))[-1]
    chances, past = [], []
    for _ in range(365):
        level = declare_night(LORD, past, FAMILIES, 4, at="now").level
        chances.append(power(0.15, DESIGN, alpha=level))
        past.append(PastNight(True))
    assert lead.power == chances[0] and lead.nights is not None and lead.nights > 1 / lead.power
    waited = [math.prod(1 - chance for chance in chances[:night]) for night in range(365)]
    assert lead.nights == pytest.approx(math.fsum(waited))


def test_a_lead_that_a_year_of_nights_may_miss_has_no_number_of_nights():
    assert lead_powers(LORD, (), DESIGN, (0.0,))[0].nights is None
    lone = clustered_design(["f"] * 20, 4, PARTS)
    assert {(lead.power, lead.nights) for lead in lead_powers(RULE, (), lone, (0.3,))} == {(0.0, None)}


def test_other_sizes_of_a_night_find_what_a_declaration_of_that_size_would_say():
    found = {(each.tasks, each.attempts): each.detectable for each in planned_designs(RULE, 0.025, DESIGN)}
    assert list(found) == [(75, 4), (150, 2), (150, 4), (150, 8), (300, 4), (600, 4)]
    assert found[150, 4] == pytest.approx(detectable_lead(FAMILIES, 4, PARTS, 0.025, RULE.power))
    twice = [f"{family} {copy}" for family in FAMILIES for copy in range(2)]
    assert found[300, 4] == pytest.approx(detectable_lead(twice, 4, PARTS, 0.025, RULE.power))
    assert found[75, 4] > found[150, 2] > found[150, 4] > found[150, 8] > found[300, 4] > found[600, 4]


def test_a_margin_says_how_many_families_show_it_and_how_many_there_are():
    kinds = ["a"] * 120 + ["b"] * 30
    margins = {margin.name: margin for margin in planned_margins(RULE, FAMILIES, kinds, None)}
    assert margins["unsafe_actions"].families == 49 and 0.94**49 < 0.05 < 0.94**48  # the rule of three
    assert margins["unsafe_actions"].available == 50 and margins["unsafe_actions"].passes is None
    assert margins["success of every kind of task (2)"].available == 10
    without = msgspec.structs.replace(RULE, unsafe_margin=None, kind_margin=None)
    assert not {"unsafe_actions"} & {margin.name for margin in planned_margins(without, FAMILIES, kinds, None)}


def test_an_equal_challenger_passes_by_the_spread_of_the_last_night():
    # One standard error is 1 / 1.645 of either side: a margin of the limit itself is passed by half of equal challengers.
    guard = Guardrail("x", 0.5, 0.5, 0.1, True, Estimate(0.0, Interval(-0.1, 0.1, 0.9), 50, 50), better="lower")
    assert chance_if_equal(guard, RULE) == pytest.approx(0.5)
    assert chance_if_equal(msgspec.structs.replace(guard, margin=0.2), RULE) == pytest.approx(0.95, abs=1e-6)
    # Where more is better the worse side is the lower one.
    better = Estimate(0.0, Interval(-0.2, 0.1, 0.9), 50, 50)
    assert chance_if_equal(msgspec.structs.replace(guard, difference=better, better="higher", margin=0.2), RULE) == 0.5
    assert chance_if_equal(msgspec.structs.replace(guard, difference=None), RULE) is None
