"""Both bundled back ends pass the conformance suite, and so does one that a package installs."""

from functools import cache

import pytest

from ratchet.components.sandboxes import SandboxConfig, sandbox_config
from ratchet.components.sandboxes.docker_engine import image_problem
from ratchet.components.sandboxes.local_sandbox import Isolation, LocalSandbox, strongest_isolation
from ratchet.components.sandboxes.persistent_sandboxes import AttachedSandbox, create_sandbox
from ratchet.components.sandboxes.sandbox_config import DEFAULT_IMAGE
from ratchet.testing import SandboxConformance


@cache
def _docker_is_here() -> bool:
    return not image_problem(DEFAULT_IMAGE, 5.0)


class TestLocal(SandboxConformance):
    config = SandboxConfig(backend="local")
    has_network = strongest_isolation() is Isolation.LIMITS


@pytest.mark.docker
@pytest.mark.xdist_group("docker")
class TestDocker(SandboxConformance):
    config = SandboxConfig(backend="docker")

    @pytest.fixture(autouse=True)
    def _require_engine(self) -> None:
        if not _docker_is_here():
            pytest.skip(f"no Docker engine answers that has {DEFAULT_IMAGE}; .ci/run starts one")


@pytest.mark.slow
class TestPersistent(SandboxConformance):
    """The calls go through the daemon's socket."""

    config = SandboxConfig(backend="local")
    has_network = strongest_isolation() is Isolation.LIMITS

    @pytest.fixture(autouse=True)
    def _own_home(self, tmp_path, monkeypatch) -> None:
        monkeypatch.setenv("RATCHET_HOME", str(tmp_path))

    def make(self, **limits: int) -> AttachedSandbox:
        return AttachedSandbox(create_sandbox(self.config.model_copy(update={"pids": 32, **limits}), lifetime=120).id)


class _Careless(LocalSandbox):
    """A back end that breaks the contract: a file that is absent reads as empty."""

    def read(self, path: str) -> bytes:
        return self.run(["cat", path]).stdout


def test_the_suite_fails_a_back_end_that_breaks_the_contract(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sandbox_config.plugin_backends, "careless", _Careless)

    class Suite(SandboxConformance):
        config = SandboxConfig(backend="careless")

    with Suite().make() as sandbox, pytest.raises(pytest.fail.Exception, match="DID NOT RAISE"):
        Suite().test_what_is_no_file_cannot_be_read(sandbox, "absent")
