"""A registered agent as MLflow loads it: by its alias, with signature and example, and it predicts."""

import json

import pytest
from small_model import CHAT, OPENAI, make_checkpoint

from ratchet.components.core import ConfigurationError
from ratchet.components.tracking import champion_aliases, model_registry
from ratchet.components.tracking.agent_pyfunc import EXAMPLE, AgentModel
from ratchet.components.tracking.mlflow_client import client, default_tracking_uri

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("mlflow")]


@pytest.fixture(scope="module")
def registered(tmp_path_factory):
    """A champion with random weights."""
    with pytest.MonkeyPatch.context() as patch:
        place = tmp_path_factory.mktemp("home")
        patch.setenv("RATCHET_HOME", str(place / "home"))
        patch.delenv("MLFLOW_TRACKING_URI", raising=False)
        tags = {"role": "challenger", "night": "2026-11-22-a1"}
        ref = model_registry.register(make_checkpoint(place / "model"), policy_version="w0", tags=tags)
        champion_aliases.promote(ref.version, why="the first", anchor=True)
        yield ref


@pytest.fixture(scope="module")
def champion(registered):
    import mlflow

    with default_tracking_uri():
        return mlflow.pyfunc.load_model("models:/agent@champion")


def test_the_champion_predicts_the_next_turn_of_its_own_input_example(champion):
    assert champion.input_example == EXAMPLE
    (text,) = champion.predict(champion.input_example)
    assert isinstance(text, str) and champion.predict(EXAMPLE) == [text], "without sampling noise"


def test_it_takes_tools_a_length_and_many_conversations(champion):
    import pandas

    table = pandas.DataFrame({"messages": [CHAT[:3]] * 2})
    first, second = champion.predict(table, params={"tools": json.dumps(OPENAI), "max_new_tokens": 4})
    assert first == second


def test_tools_that_are_none_are_refused_in_one_line(registered):
    import pandas

    table = pandas.DataFrame({"messages": [EXAMPLE["messages"]]})
    for wrong in ("{", "[1]", '[{"function": {}}]'):
        with pytest.raises(ConfigurationError, match="no list of functions"):
            AgentModel(registered.path).predict(table, {"tools": wrong})


def test_what_mlflow_adds_is_no_part_of_the_checkpoint_and_the_model_has_a_name(registered, champion):
    assert (registered.path / "MLmodel").is_file() and (registered.path / "input_example.json").is_file()
    assert model_registry.download(registered.version) == registered.path, "its hash is that of the checkpoint alone"
    assert client().get_logged_model(registered.model_id).name == "challenger-2026-11-22-a1"
