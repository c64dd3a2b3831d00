"""Rows of agents, taken from decisions: what each night meant for an agent, and which agent is best."""

import pytest
from contenders import TASKSET, contender, wins
from msgspec.structs import replace

from ratchet.components.evaluation.promotion.promotion_decision import decide_promotion
from ratchet.components.evaluation.promotion.promotion_rule import PromotionRule
from ratchet.components.tracking.agent_rows import (
    DecidedNight,
    agent_name,
    agent_rows,
    agents_tags,
    champion_sentence,
    nights_tags,
)
from ratchet.components.tracking.model_registry import ModelRef

RULE = PromotionRule(n_resamples=200)


def decided(number, champion, challenger, control=None):
    """A night of agents, each a name and a share of solved attempts."""
    agents = [agent and contender(agent[0], wins(agent[1], 40)) for agent in (champion, challenger, control)]
    decision = decide_promotion(*agents, TASKSET, RULE, night=f"night-{number}")
    return DecidedNight(number, f"2026-11-2{number}T01:00:00+00:00", decision, {"recipe": "sft"})


def ref(version, role, night):
    return ModelRef("agent", version, "", "m-1", None, "file:///x", "", {"role": role, "night": night})


MODELS = {"old-v": ref(1, "cold-start", "night-0"), "new-v": ref(2, "challenger", "night-1")}


@pytest.fixture(scope="module")
def nights():
    """The first promotes, the second does not."""
    found = [decided(1, ("old", 0.4), ("new", 0.9), ("old", 0.4)), decided(2, ("new", 0.9), ("third", 0.5))]
    assert [entry.decision.verdict for entry in found] == ["promote", "keep"]
    return found


def test_a_row_says_what_the_night_meant_for_its_agent(nights):
    first, second = (agent_rows(entry.decision) for entry in nights)
    assert [row.result for row in first] == ["replaced night-1", "promoted night-1", "control night-1"]
    assert [row.result for row in second] == ["champion night-2", "kept out night-2"]


def test_a_lead_is_over_the_champion_of_the_same_night_and_a_champion_has_none(nights):
    champion, challenger, control = agent_rows(nights[0].decision)
    assert champion.lead is None and champion.over is None
    assert challenger.lead.difference.value == pytest.approx(0.5) and challenger.over == "old-v"
    assert control.lead.difference.value == 0 and control.over == "old-v"


def test_every_agent_has_its_audit_figure():
    def agent(name, rate):
        promote, audit = contender(name, wins(rate, 40)), contender(name, wins(rate / 2, 20), role="audit")
        return replace(promote, tasks=promote.tasks + audit.tasks)

    decision = decide_promotion(agent("old", 0.4), agent("new", 0.8), agent("control", 0.6), TASKSET, RULE, night="n")
    assert [row.audit.success.value for row in agent_rows(decision)] == pytest.approx([0.2, 0.4, 0.3])


def test_the_best_agent_comes_first_and_its_lead_is_that_of_its_promotion(nights):
    for known in (nights[:1], nights):
        sentence = champion_sentence(known, MODELS)
        assert sentence.startswith("v2 leads v1 by +50.0 points [") and "promoted on night-1" in sentence
    assert "on night-2" in champion_sentence(nights, MODELS)
    assert champion_sentence(nights[1:], MODELS).startswith("v2 is champion")
    assert champion_sentence(nights, {}).startswith("new-v leads old-v by")


def test_an_agent_is_named_by_its_version_its_first_role_and_its_first_night():
    assert agent_name("new-v", MODELS, "?") == "v2 challenger night-1"
    assert agent_name("third-v", MODELS, "challenger night-2") == "challenger night-2"


def test_the_descriptions_of_both_experiments_begin_with_the_answer(nights):
    assert agents_tags(nights, MODELS)["mlflow.note.content"].startswith("v2 leads v1")
    assert nights_tags(nights)["mlflow.note.content"].startswith("kept out on night-2: ")
    for tags in (agents_tags(nights, MODELS), nights_tags(nights)):
        assert tags["mlflow.experimentKind"] == "custom_model_development"
        assert all(len(value) <= 5000 for value in tags.values()), "MLflow's limit of a tag"
