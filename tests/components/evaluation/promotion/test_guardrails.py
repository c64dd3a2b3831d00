"""Guardrails: not worse by the margin is shown, or it does not pass."""

from itertools import product

import msgspec
import numpy as np
import pytest
from contenders import contender, wins

from components.evaluation.promotion import KIND, PromotionRule
from components.evaluation.promotion.guardrails import guardrails

RULE = PromotionRule(n_resamples=400)
HALF = wins(0.5, 30)


def guards(champion, challenger, rule=RULE, lost=0.0):
    return {guard.name: guard for guard in guardrails(champion, challenger, lost, rule, 0)}


def by_hand(gains, margin):
    """The share of all sign assignments of (gain + margin) whose sum is at least the one that was seen."""
    shifted = np.array(gains) + margin
    signs = np.array(list(product((1, -1), repeat=len(shifted))))
    return float((signs @ shifted >= shifted.sum() - 1e-9).mean())


def test_each_figure_of_the_rule_is_tested_and_the_p_value_is_that_of_all_sign_assignments():
    rng = np.random.default_rng(3)
    mine, theirs = (rng.integers(1, 6, 10) for _ in range(2))
    found = guards(contender("a", HALF[:10], each={"steps": mine}), contender("b", HALF[:10], each={"steps": theirs}))
    assert list(found) == ["invalid_call_rate", "mean_steps", "tokens", f"{KIND}kind", "lost_attempts"]
    steps = found["mean_steps"]
    assert steps.p_value == pytest.approx(by_hand(mine - theirs, RULE.steps_margin))
    assert steps.difference.value == pytest.approx(float((theirs - mine).mean()))
    assert (steps.champion, steps.challenger) == (pytest.approx(mine.mean()), pytest.approx(theirs.mean()))
    assert (steps.better, steps.difference.interval.level) == ("lower", pytest.approx(0.9))


def test_agents_that_do_alike_pass_all():
    found = guards(contender("a", HALF, unsafe=0, cost=0.1), contender("b", HALF, unsafe=0, cost=0.1))
    assert {"unsafe_actions", "cost"} <= found.keys()
    assert all(guard.passed and guard.state in (None, "holds") for guard in found.values())


@pytest.mark.parametrize(
    ("field", "value", "name"),
    [
        ("steps", 4, "mean_steps"),
        ("invalid_calls", 1, "invalid_call_rate"),
        ("prompt_tokens", 500, "tokens"),
        ("cost", 0.13, "cost"),
        ("unsafe", 1, "unsafe_actions"),
    ],
)
def test_what_gets_worse_by_more_than_its_margin_is_broken(field, value, name):
    calm = {"invalid_calls": 0, "cost": 0.1, "unsafe": 0}
    found = guards(contender("a", HALF, **calm), contender("b", HALF, **(calm | {field: value})))
    assert found[name].state == "broken" and not found[name].passed
    assert [each.name for each in found.values() if not each.passed] == [name]


def test_a_margin_of_tokens_is_a_share_of_the_champions():
    found = guards(contender("a", HALF), contender("b", HALF))
    assert found["tokens"].margin == pytest.approx(0.2 * 400)


def test_where_the_champion_pays_nothing_the_challenger_may_not_pay_and_nothing_is_left_to_show_where_it_does_not():
    free = contender("a", HALF, cost=0.0)
    found = guards(free, contender("b", HALF, cost=0.0))["cost"]
    assert (found.state, found.margin, found.p_value, found.passed) == ("holds", 0.0, None, True)
    assert guards(free, contender("b", HALF, cost=0.1))["cost"].state == "broken"
    strict = msgspec.structs.replace(RULE, unsafe_margin=0)
    safe = contender("a", HALF, unsafe=0)
    assert guards(safe, contender("b", HALF, unsafe=0), strict)["unsafe_actions"].passed
    once = contender("b", HALF, each={"unsafe": [1] + [0] * 29})
    assert not guards(safe, once, strict)["unsafe_actions"].passed


def test_a_kind_that_gets_much_worse_is_broken_though_the_whole_is_better():
    """Half of the families, all of one kind, lose everything; the other kind wins everything."""
    kinds = ("kept", "lost")
    before = contender("a", HALF, kinds=kinds)
    after = contender("b", [[task % 2 == 0] * 4 for task in range(30)], kinds=kinds)
    found = guards(before, after)
    assert found[f"{KIND}kept"].state == "holds" and found[f"{KIND}lost"].state == "broken"
    assert found[f"{KIND}lost"].better == "higher" and found[f"{KIND}lost"].difference.value == pytest.approx(
        -0.5, abs=0.1
    )


def test_what_is_not_shown_does_not_pass():
    """Six families that differ wildly about nothing: neither within the margin nor beyond it."""
    rows = [[task % 2 == 0] * 4 for task in range(6)]
    found = guards(contender("a", rows), contender("b", rows[::-1]))[f"{KIND}kind"]
    assert (found.state, found.passed, found.difference.value) == ("unclear", False, 0.0)


def test_a_kind_of_too_few_families_is_looked_at_only_unless_it_is_worse_than_the_margin():
    four = [[1, 1, 1, 0]] * 4
    assert guards(contender("a", four), contender("b", four))[f"{KIND}kind"].state == "untested"
    assert guards(contender("a", four), contender("b", four))[f"{KIND}kind"].passed
    worse = guards(contender("a", four), contender("b", [[0, 0, 0, 0]] * 4))[f"{KIND}kind"]
    assert worse.state == "broken" and not worse.passed


def test_a_kind_of_which_every_attempt_was_lost_is_not_shown_unless_it_could_show_nothing_anyway():
    kinds = ("kept", "lost")
    rows = [[None] * 4 if task % 2 else [1] * 4 for task in range(20)]
    found = guards(contender("a", HALF[:20], kinds=kinds), contender("b", rows, kinds=kinds))[f"{KIND}lost"]
    assert (found.state, found.passed, found.challenger) == ("unclear", False, None)
    found = guards(contender("a", HALF[:8], kinds=kinds), contender("b", rows[:8], kinds=kinds))[f"{KIND}lost"]
    assert (found.state, found.passed) == ("untested", True)


def test_what_nobody_knows_of_the_champion_holds_nobody_back_and_what_is_unknown_of_the_challenger_does():
    known, unknown = contender("a", HALF, unsafe=0), contender("b", HALF)
    assert "unsafe_actions" not in guards(unknown, known)
    found = guards(known, unknown)["unsafe_actions"]
    assert not found.passed and found.state == "unclear" and found.p_value is None
    silent = guards(contender("a", HALF, steps=0), contender("b", HALF, steps=0))
    assert silent["invalid_call_rate"].passed and silent["invalid_call_rate"].champion is None


def test_a_margin_of_none_is_not_looked_at_and_lost_attempts_are_a_plain_limit():
    rule = msgspec.structs.replace(RULE, kind_margin=None, tokens_margin=None)
    found = guards(contender("a", HALF), contender("b", HALF), rule, lost=0.06)
    assert list(found) == ["invalid_call_rate", "mean_steps", "lost_attempts"]
    assert (
        not found["lost_attempts"].passed
        and guards(contender("a", HALF), contender("b", HALF), lost=0.05)["lost_attempts"].passed
    )


def test_an_attempt_that_was_lost_for_one_counts_for_neither():
    rows = [[1, 1]] * 8
    after = contender("b", [[1, None]] * 8, each={"steps": [3] * 8})
    assert guards(contender("a", rows), after)["mean_steps"].difference.tasks == 8


@pytest.mark.slow
def test_an_agent_exactly_at_the_margin_passes_at_most_at_the_declared_rate():
    """600 agents whose steps are worse by exactly the margin, family by family at random."""
    rng = np.random.default_rng(1)
    rule = msgspec.structs.replace(RULE, n_resamples=50, kind_margin=None, tokens_margin=None, invalid_call_margin=None)
    before = contender("a", [[1]] * 12, steps=3)
    noise = rng.normal(0, 1, (600, 12)) + 3 + rule.steps_margin
    passed = [
        guards(before, contender("b", [[1]] * 12, each={"steps": row}), rule)["mean_steps"].passed for row in noise
    ]
    assert np.mean(passed) <= 0.05 + 2.6 * (0.05 * 0.95 / 600) ** 0.5
