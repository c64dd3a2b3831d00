"""Installed packages add policies, rewards, sandboxes and more; `ratchet plugins` lists them, broken ones too."""

import importlib
import json
import sys
import textwrap

import pytest

import ratchet
from ratchet.components.core import environment_registry
from ratchet.components.interop import reader_registry, trajectory_writers
from ratchet.components.models import policy_factory
from ratchet.components.sandboxes import sandbox_config
from ratchet.components.trajectories import trajectory_list

SOURCE = """
    import ratchet

    def make_parrot(argument, *, temperature, top_p, max_new_tokens):
        def parrot(request):
            return {"tool": "respond", "params": {"text": argument}}
        return parrot

    def brevity(trajectory):
        return 1 / len(trajectory.turns)

    def make_box(config):
        return ratchet.make_sandbox(config.model_copy(update={"backend": "local"}))
    """
ENTRIES = """
    [ratchet.policies]
    parrot = birds:make_parrot
    teacher = birds:make_parrot
    [ratchet.rewards]
    brevity = birds:brevity
    [ratchet.sandboxes]
    box = birds:make_box
    [ratchet.readers]
    broken = birds:no_such_reader
    """


@pytest.fixture(autouse=True)
def birds(tmp_path, monkeypatch):
    """The package `birds`, as a package manager would install it, and registries that nothing was loaded into."""
    monkeypatch.setattr(environment_registry, "_specs", dict(environment_registry._specs))
    monkeypatch.setattr(environment_registry, "_loaded", set())
    monkeypatch.setattr(environment_registry, "_plugins", [])
    for module, name in (
        (policy_factory, "_plugin_policies"), (trajectory_list, "_plugin_rewards"),
        (reader_registry, "_plugin_readers"), (trajectory_writers, "_plugin_writers"),
    ):  # fmt: skip
        monkeypatch.setattr(module, name, {})
    monkeypatch.setattr(sandbox_config, "plugin_backends", sandbox_config.plugin_backends)
    info = tmp_path / "birds-1.dist-info"
    info.mkdir()
    (tmp_path / "birds.py").write_text(textwrap.dedent(SOURCE))
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: birds\nVersion: 1\n")
    (info / "entry_points.txt").write_text(textwrap.dedent(ENTRIES))
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("RATCHET_HOME", str(tmp_path / "home"))
    importlib.invalidate_caches()
    monkeypatch.delitem(sys.modules, "birds", raising=False)
    yield
    sandbox_config.plugin_backends.clear()


def test_a_policy_is_named_with_its_argument_and_its_version_depends_on_it():
    first, second = (ratchet.collect("orders", agent=f"parrot:{word}", tasks=1)[0] for word in ("hello", "bye"))
    assert first.turns[0].calls[0].arguments == {"text": "hello"} and first.agent.policy == "parrot"
    assert first.agent.policy_version != second.agent.policy_version


def test_a_policy_of_a_bundled_name_is_left_out(caplog):
    assert ratchet.make_policy("teacher", ratchet.load_taskset("orders")).name == "teacher"
    assert ratchet.list_policies()[-1] == "parrot" and "plugin 'teacher'" in caplog.text


def test_a_reward_is_named():
    rollouts = ratchet.collect("orders", agent="parrot:hello", tasks=1, reward="brevity")
    assert list(rollouts.rewards.values()) == [1 / len(rollouts[0].turns)]


def test_a_sandbox_is_a_back_end_and_an_unknown_one_names_it():
    with ratchet.make_sandbox(ratchet.SandboxConfig(backend="box")) as sandbox:
        assert isinstance(sandbox, ratchet.Sandbox) and sandbox.run("echo hi").stdout == b"hi\n"
    with pytest.raises(ratchet.ConfigurationError, match="choose auto, docker, local, box"):
        ratchet.SandboxConfig.load({"backend": "bx"})


def test_the_command_lists_them_and_says_in_one_line_what_is_broken(run):
    code, out, _ = run("plugins", "--json")
    found = {(each["group"], each["name"]): each for each in json.loads(out)}
    broken = found["ratchet.readers", "broken"]["problem"]
    assert code == 2 and "no_such_reader" in broken and "\n" not in broken
    assert (
        found["ratchet.rewards", "brevity"]["problem"] == ""
        and found["ratchet.sandboxes", "box"]["package"] == "birds 1"
    )
    assert "exists already" in found["ratchet.policies", "teacher"]["problem"]
    code, out, _ = run("plugins")
    assert code == 2 and "brevity" in out and "works" in out
