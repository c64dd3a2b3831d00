"""The rules in domains other than coding: what a page or an order database makes of a call."""

import pytest

from ratchet.components.core import list_envs, load_domain, make, spec
from ratchet.components.rewards.rules.rule_engine import RuleEngine


def redundancy(domain, *steps):
    engine = RuleEngine(load_domain(domain))
    return [engine.step(call, result).non_redundancy for call, result in steps]


def test_a_page_read_again_after_a_click_or_typing_is_not_redundant(play):
    look = play.call("extract_text", _content="page")
    for moved in (
        play.call("click", ref="e1"),
        play.call("type_text", ref="e1", text="tea"),
        play.call("select", ref="e1", option="x"),
    ):
        assert redundancy("browser", look, moved, look) == [1, 1, 1]
    assert redundancy("browser", look, look) == [1, 0]


def test_the_same_click_is_redundant_where_nothing_came_of_it(play):
    next_page = [play.call("click", ref="next", _content=f"page {number}") for number in (1, 2, 2)]
    assert redundancy("browser", *next_page) == [1, 1, 0]


def test_an_order_looked_at_again_after_it_was_changed_is_not_redundant(play):
    look = play.call("look_up_order", order_id="W1", _content="processing")
    steps = look, play.call("cancel_order", order_id="W1"), look, look
    assert redundancy("conversation", *steps) == [1, 1, 1, 0]
    assert redundancy("conversation", look, play.call("cancel_order", order_id="W2"), look)[-1] == 0
    assert redundancy("conversation", look, play.call("create_note", text="hm"), look)[-1] == 0


def test_refunds_of_two_items_are_two_things_and_one_twice_is_not(play):
    refunds = [play.call("issue_refund", order_id="W1", item_id=item, amount=5) for item in ("I1", "I2")]
    assert redundancy("conversation", *refunds) == [1, 1]


def test_saying_something_earns_nothing_by_itself(play):
    engine = RuleEngine(load_domain("conversation"))
    scores = engine.step(*play.call("respond", text="hello"))
    assert scores.total(load_domain("conversation").rubric) is None


@pytest.mark.parametrize("environment", [id for id in list_envs() if spec(id).domain != "generic"])
def test_every_tool_of_an_environment_is_known_to_its_domains_profile(environment):
    made = make(environment, max_steps=1)
    profile = load_domain(spec(environment).domain)
    assert made.domain == profile.name == spec(environment).domain
    assert [name for name in made.available_tools if profile.tool(name) is None] == []
