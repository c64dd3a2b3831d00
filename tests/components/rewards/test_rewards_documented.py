"""What docs/rewards.md says is so: its example, its rules, its weights, its words for what was left out."""

import json
import re
from pathlib import Path

import msgspec
import pytest

from ratchet.components.core import load_domain
from ratchet.components.rewards.episode_score import EpisodeScore
from ratchet.components.rewards.episode_scoring import score
from ratchet.components.rewards.preferences.pair_building import LEFT_OUT, PairConfig
from ratchet.components.rewards.reward_config import Aggregation, RewardWeights, Verifier
from ratchet.components.rewards.rules.rule_engine import RULES
from ratchet.components.rewards.verifiable.episode_components import COMPONENTS, VerifiableConfig

ROOT = Path(__file__).parents[3]
TEXT = (ROOT / "docs" / "rewards.md").read_text(encoding="utf-8")
BLOCKS = dict(re.findall(r"```(json)\n(.*?)```", TEXT, re.DOTALL))


def test_the_example_is_the_score_of_the_episode_that_it_tells_of(play):
    written = json.loads(BLOCKS["json"])
    played = play.trajectory(play.read(), play.read(), play.submit(), success=False)
    found = msgspec.to_builtins(score(played, load_domain("coding")))
    assert msgspec.convert(written, EpisodeScore) is not None
    for name in ("episode_id", "version"):
        assert found.pop(name).startswith(written.pop(name).rstrip("…"))
    assert found.pop("total") == pytest.approx(written.pop("total"), abs=1e-4)
    assert found == written


def test_every_rule_has_its_row():
    rows = re.findall(r"^\| `(\w+)` \| .+ \| .+ \| .+ \|$", TEXT, re.MULTILINE)
    assert tuple(rows) == RULES


def test_the_formula_has_the_default_weights():
    weights = RewardWeights()
    told = f"({weights.outcome:g} outcome + {weights.process:g} process + {weights.efficiency:g} efficiency)".replace(
        "0.", "."
    )
    assert told in TEXT


def test_the_weights_of_the_rules_are_those_of_the_profiles():
    for name in ("coding", "conversation", "generic"):
        weights = load_domain(name).rubric
        rules = ("information_use", "non_redundancy", "non_regression", "non_repetition", "validity")
        cells = [f"{weights[rule]:g}".lstrip("0") if rule in weights else "" for rule in rules]
        assert f"| {name} | {' | '.join(cells)} |" in TEXT


def test_a_verifiable_component_counts_only_where_it_is_named():
    section = VerifiableConfig.model_validate({"accuracy": 1.0})
    assert {name: getattr(section, name) for name in COMPONENTS if getattr(section, name)} == {"accuracy": 1.0}


@pytest.mark.parametrize("literal", [Aggregation, Verifier])
def test_every_choice_is_explained(literal):
    assert all(re.search(rf"`(\w+: )?{choice}`", TEXT) for choice in literal.__args__)


def test_every_reason_for_leaving_out_and_every_setting_of_pairs_is_named():
    assert all(f"`{name}`" in TEXT for name in LEFT_OUT)
    assert all(re.search(rf"`{name}(: \w+)?`", TEXT) for name in ("margin", "min_samples", "max_length_gap", "worth"))
    assert set(PairConfig.model_fields) == {"margin", "min_samples", "levels", "worth", "max_length_gap"}


def test_commands_that_are_named_are_there():
    from ratchet import cli

    commands = set(re.findall(r"^ratchet (\w+)", TEXT, re.MULTILINE)) | set(re.findall(r"`ratchet (\w+)", TEXT))
    known = {command.name or command.callback.__name__ for command in cli.app.registered_commands}
    assert commands <= known | {group.name for group in cli.app.registered_groups}


def test_pages_that_are_named_are_there():
    pages = re.findall(r"\]\((\w+\.md)\)", TEXT)
    assert pages and all((ROOT / "docs" / page).is_file() for page in pages)
