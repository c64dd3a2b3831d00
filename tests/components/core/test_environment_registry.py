"""The registry of environments: what it refuses, and that its one line helps."""

import pytest

from ratchet.components.core import ConfigurationError, environment_registry, list_envs, make, register, spec
from ratchet.components.core.contracts import Environment, TimeStep


class Counter(Environment):
    """Counts its steps."""

    domain = "counting"

    def __init__(self, start: int = 0, stride: int = 1) -> None:
        self.start, self.stride = start, stride
        self.closed = False

    @property
    def tools(self):
        return ()

    def reset(self, *, task=None, seed=None):
        return TimeStep(str(self.start))

    def step(self, action):
        return TimeStep()

    def finish(self, reason):
        return TimeStep(truncated=True)

    def close(self):
        self.closed = True


@pytest.fixture(autouse=True)
def own_registry(monkeypatch):
    monkeypatch.setattr(environment_registry, "_specs", dict(environment_registry._specs))


def test_an_environment_is_made_with_its_defaults_and_then_the_overrides():
    register("test/counter", Counter, domain="counting", start=3, stride=2)
    made = make("test/counter", stride=5)
    assert (made.start, made.stride) == (3, 5)


def test_an_entry_may_be_named_and_is_imported_only_when_made():
    register("test/late", "collections:Counter", domain="counting")
    register("test/never", "no.such.module:Thing", domain="counting")
    with pytest.raises(ConfigurationError, match="Counter is no environment: it has no `reset`"):
        make("test/late")
    with pytest.raises(ModuleNotFoundError):
        make("test/never")


def test_a_second_registration_of_an_id_is_refused():
    register("test/counter", Counter, domain="counting")
    with pytest.raises(ConfigurationError, match="'test/counter' is registered already"):
        register("test/counter", Counter, domain="counting")


def test_an_unknown_id_is_refused_with_the_nearest_and_the_known():
    with pytest.raises(ConfigurationError, match=r"did you mean 'ratchet/sandbox'\?.*Known: .*ratchet/sandbox"):
        make("ratchet/sandbx")
    with pytest.raises(ConfigurationError, match="unknown environment 'x'") as caught:
        spec("x")
    assert "\n" not in str(caught.value)


def test_the_ids_are_listed_sorted_and_by_domain():
    register("test/zebra", Counter, domain="counting")
    register("test/ant", Counter, domain="counting")
    assert list_envs("counting") == ["test/ant", "test/zebra"]
    assert list_envs() == sorted(list_envs())
    assert "ratchet/sandbox" in list_envs("coding")
    assert list_envs("astrology") == []


def test_the_sandbox_environment_is_registered_for_coding():
    assert spec("ratchet/sandbox").domain == "coding"


def test_leaving_an_environments_block_closes_it():
    counter = Counter()
    with counter as entered:
        assert entered is counter and not counter.closed
    assert counter.closed
    assert counter.unwrapped is counter and counter.available_tools == ()
