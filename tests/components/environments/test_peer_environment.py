"""Promises that all adapters for environments of other frameworks keep."""

from types import SimpleNamespace

import pytest

from ratchet.components.core import ConfigurationError, InfrastructureError
from ratchet.components.environments.peer_environment import peer_outcome
from ratchet.components.environments.verifiers_environment import VerifiersEnvironment
from ratchet.components.environments.verifiers_package import write_package
from ratchet.components.tasksets.taskset_files import taskset_folder


@pytest.mark.parametrize("reward", [float("nan"), float("inf"), float("-inf")])
def test_a_reward_that_is_no_finite_number_is_no_grade(reward):
    with pytest.raises(InfrastructureError, match="no grade"):
        peer_outcome(reward, None)


def test_the_result_of_a_tool_of_verifiers_is_cut_at_the_limit_of_tools():
    environment = VerifiersEnvironment()
    request = {"messages": [{"role": "user", "content": "x" * 50_000}]}
    environment._server = SimpleNamespace(reply=lambda text, call: None, next_request=lambda: request)
    environment._seen = 0
    observation, _ = environment._speak("")
    assert observation.truncated and len(observation.content) < 9000


def test_a_taskset_is_exported_under_a_name_that_a_package_can_have(tmp_path):
    package = write_package(taskset_folder("orders"), "Orders_2.1", "1", tmp_path / "good")
    assert package == "ratchet-orders-2-1" and (tmp_path / "good" / "ratchet_orders_2_1" / "taskset").is_dir()
    for name in ("a b", "-a", "a\n", "\u540d", ""):
        with pytest.raises(ConfigurationError, match="no package can be named"):
            write_package(taskset_folder("orders"), name, "1", tmp_path / "bad")
    assert not (tmp_path / "bad").exists()
