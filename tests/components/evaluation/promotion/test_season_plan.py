"""The season: what earlier nights leave for tonight."""

import math
from statistics import NormalDist

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import brentq

from ratchet.components.evaluation.promotion.promotion_rule import PromotionRule
from ratchet.components.evaluation.promotion.season_plan import (
    PastNight,
    additional_tasks_for_lead,
    additional_tasks_for_margin,
    count_task_uses,
    declare_night,
    is_match_due,
)
from ratchet.components.statistics.multiple_testing import AlphaSpending
from ratchet.components.statistics.power_analysis import VarianceComponents, clustered_design, power
from ratchet.components.statistics.result_types import Estimate, Interval

RULE = PromotionRule()
LORD = PromotionRule(spending=AlphaSpending())
FAMILIES = [f"f{number // 3}" for number in range(150)]
NIGHTS = st.lists(st.builds(lambda promoted: PastNight(True, promoted), st.booleans()), max_size=70)


def tonight(past=(), rule=RULE):
    return declare_night(rule, past, FAMILIES, 4, at="now")


@given(NIGHTS)
def test_by_default_every_night_is_tested_at_alpha_whatever_came_before(past):
    assert declare_night(RULE, past, (), 4, at="now").level == RULE.alpha == 0.025
    assert declare_night(PromotionRule(alpha=0.05), past, (), 4, at="now").level == 0.05


def test_a_night_reports_the_p_values_of_its_season_and_the_false_promotions_to_expect():
    rule = PromotionRule(spending=AlphaSpending(nights=3))
    past = [PastNight(True, level=0.2, p_value=0.9)] * 3  # an earlier season
    past += [PastNight(True, level=0.01, p_value=0.3), PastNight(False, level=0.01), PastNight(True, level=0.002)]
    made = tonight(past, rule)
    assert made.p_values == (0.3, None)
    assert made.expected_false == pytest.approx(0.01 + 0.002 + made.level)
    assert tonight([PastNight(True, level=0.025, p_value=0.5)] * 29).expected_false == pytest.approx(30 * 0.025)


def test_a_night_whose_level_is_not_known_is_expected_to_have_spent_alpha():
    assert tonight([PastNight(True)]).expected_false == pytest.approx(2 * RULE.alpha)


def test_the_first_night_spends_what_lord_gives_it_and_never_more_than_alpha():
    made = tonight(rule=LORD)
    assert 0 < made.level < LORD.alpha and made.level == made.allowance.level
    assert (made.tasks, made.families, made.attempts) == (150, 50, 4)
    assert (made.allowance.season, made.allowance.test) == (1, 1)


@given(NIGHTS)
def test_no_night_is_tested_above_alpha_and_the_same_past_gives_the_same_night(past):
    made = declare_night(LORD, past, (), 4, at="now")
    assert 0 < made.level <= LORD.alpha and made == declare_night(LORD, list(past), (), 4, at="now")
    assert made.allowance.test == len(past) % LORD.season.nights + 1


def test_a_season_without_a_promotion_spends_at_most_half_of_its_alpha():
    levels = [tonight([PastNight(True)] * done, LORD).level for done in range(30)]
    assert sum(levels) <= LORD.season.alpha / 2 + 1e-12
    assert tonight([PastNight(True)] * 30, LORD).level == levels[0]


def test_a_night_that_tested_nothing_costs_nothing():
    assert tonight([PastNight(False)] * 5, LORD) == tonight(rule=LORD)


def test_fixed_spends_alpha_every_night():
    rule = PromotionRule(spending=AlphaSpending("fixed", 0.025))
    assert {tonight([PastNight(True)] * done, rule).level for done in (0, 3, 40)} == {0.025}


def test_what_is_found_follows_the_variance_of_the_latest_night_that_knows_it():
    loud, calm = VarianceComponents(0.1, 0.3, 0.3), VarianceComponents(0.0, 0.01, 0.01)
    levels = [
        tonight([PastNight(True, spread=loud), PastNight(True, spread=calm), PastNight(True)]),
        tonight([PastNight(True, spread=loud)] * 3),
    ]
    assert levels[0].detectable < levels[1].detectable


@pytest.mark.parametrize(
    ("past", "due"),
    [
        ([], False),
        ([PastNight(True)] * 5, False),
        ([PastNight(True)] * 6, True),
        ([PastNight(True)] * 6 + [PastNight(True, matched=True)], False),
        ([PastNight(True, matched=True)] + [PastNight(True)] * 6, True),
        ([PastNight(False)] * 20, False),
    ],
)
def test_the_match_is_every_seventh_night(past, due):
    assert is_match_due(past, 7) is due
    assert is_match_due(past, None) is False and is_match_due(past, 1) is True


@pytest.mark.parametrize(
    ("every", "nights", "alpha"), [(7, 30, 0.005), (10, 30, 0.025 / 3), (30, 30, 0.025), (40, 30, 0.025)]
)
def test_the_matches_of_a_season_share_alpha(every, nights, alpha):
    """However the matches fall into a season, here into each of four."""
    rule = PromotionRule(anchor_every=every, spending=AlphaSpending(nights=nights))
    past, levels = [], []
    for _ in range(4 * nights):
        made = declare_night(rule, past, (), 4, at="now")
        assert made.match_alpha == (pytest.approx(alpha) if made.match else None)
        past.append(PastNight(True, matched=made.match))
        levels.append(made.match_alpha or 0.0)
    seasons = [sum(levels[first : first + nights]) for first in range(0, 4 * nights, nights)]
    assert max(levels) > 0 and max(seasons) <= rule.alpha + 1e-12


@pytest.mark.parametrize("spending", [None, AlphaSpending("fixed", 0.025)])
def test_where_every_night_spends_alpha_every_match_does(spending):
    rule = PromotionRule(anchor_every=1, spending=spending)
    assert tonight((), rule).match_alpha == rule.alpha


def test_uses_count_the_nights_on_which_a_task_decided():
    assert count_task_uses([PastNight(True, tasks=("a", "b")), PastNight(True), PastNight(False, tasks=("b",))]) == {
        "a": 1,
        "b": 2,
    }


def test_a_night_with_a_match_has_no_interim_look():
    rule = PromotionRule(looks=(0.5,), anchor_every=2)
    assert [look.families for look in tonight((), rule).looks] == [25, 50]
    match = tonight([PastNight(True)], rule)
    assert match.match and match.match_alpha == rule.alpha and match.looks == ()


@pytest.mark.parametrize(("low", "high"), [(-0.1, 0.06), (-0.06, 0.1), (-0.02, 0.09)])
def test_tasks_for_a_margin_solve_the_equation_of_noise_and_unseen_families(low, high):
    tasks, margin, level, target = 40, 0.1, 0.05, 0.8
    normal = NormalDist()
    shorter, longer = sorted((high, -low))
    noise = shorter / normal.inv_cdf(0.95) * (normal.inv_cdf(1 - level) + normal.inv_cdf(target))
    ratio = brentq(lambda n: noise / math.sqrt(n) + (longer - shorter) / n - margin / 2, 1e-3, 1e3)
    found = additional_tasks_for_margin(Estimate(0.0, Interval(low, high, 0.9), tasks, 10), margin, level, target)
    assert found == max(10, math.ceil(tasks * ratio) - tasks), "at least a quarter of the tasks again"


def test_tasks_for_a_margin_do_not_depend_on_where_the_difference_lies():
    at_zero = additional_tasks_for_margin(Estimate(0.0, Interval(-0.1, 0.06, 0.9), 40, 10), 0.1, 0.05, 0.8)
    shifted = additional_tasks_for_margin(Estimate(0.2, Interval(0.1, 0.26, 0.9), 40, 10), 0.1, 0.05, 0.8)
    assert at_zero == shifted and at_zero is not None


@pytest.mark.parametrize(
    ("estimate", "margin"),
    [
        (Estimate(0.0, None, 40, 10), 0.1),
        (Estimate(None, Interval(-0.1, 0.1, 0.9), 40, 10), 0.1),
        (Estimate(0.0, Interval(-0.1, 0.1, 0.9), 1, 1), 0.1),
        (Estimate(0.0, Interval(-0.1, 0.1, 0.9), 40, 10), 0.0),
    ],
)
def test_tasks_for_a_margin_are_unknown_without_an_interval_two_tasks_or_a_margin(estimate, margin):
    assert additional_tasks_for_margin(estimate, margin, 0.05, 0.8) is None


def test_two_tasks_are_enough_to_plan_for_a_margin():
    assert additional_tasks_for_margin(Estimate(0.0, Interval(-0.1, 0.1, 0.9), 2, 2), 0.1, 0.05, 0.8) is not None


def test_tasks_for_a_lead_are_the_fewest_with_the_power_and_unknown_without_a_variance_or_tasks():
    components = VarianceComponents(family=0.01, task=0.15, attempt=0.06)
    more = additional_tasks_for_lead(FAMILIES, 4, components, 0.05, 0.025, 0.8)
    design = clustered_design(FAMILIES, 4, components)
    assert more is not None and more > 38, "not the least share of tasks, which would hide the plan"
    assert power(0.05, design.scaled_to(150 + more), alpha=0.025) >= 0.8
    assert power(0.05, design.scaled_to(150 + more - 1), alpha=0.025) < 0.8
    assert additional_tasks_for_lead(FAMILIES, 4, None, 0.05, 0.025, 0.8) is None
    assert additional_tasks_for_lead((), 4, components, 0.05, 0.025, 0.8) is None
