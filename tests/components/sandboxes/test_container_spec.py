"""What an engine is asked for: mounts, variables and refusals. tests/docker runs the containers."""

from pathlib import Path

import pytest

from ratchet.components.core import ConfigurationError
from ratchet.components.sandboxes import SandboxConfig, docker_engine
from ratchet.components.sandboxes.container_spec import ContainerSpec


@pytest.fixture
def spec(monkeypatch):
    monkeypatch.setattr(docker_engine, "image_id", lambda image, timeout: f"sha256:{image}")
    return lambda **settings: ContainerSpec.from_config(SandboxConfig(backend="docker", **settings))


class Api:
    """Of the SDK: it gives back what it is asked for."""

    def create_host_config(self, **settings):
        return settings


def test_nothing_is_mounted_unless_it_is_configured(spec):
    assert spec().host_config(Api())["mounts"] == []


def test_what_is_mounted_is_read_only_and_holds_no_mount_below_it(spec):
    wanted = spec(programs=(Path("/opt/agent"),))._replace(socket_folder=Path("/tmp/sockets"))
    mounts = wanted.host_config(Api())["mounts"]
    assert [(each["Source"], each["Target"]) for each in mounts] == [
        ("/opt/agent", "/opt/agent"),
        ("/tmp/sockets", "/run/owner"),
    ]
    assert all(each["ReadOnly"] and each["BindOptions"]["NonRecursive"] for each in mounts)


@pytest.mark.parametrize("folder", ["/tmp/programs", "/workspace", "/dev/shm/programs"])
def test_programs_that_the_container_would_hide_are_refused_in_one_line(spec, folder):
    with pytest.raises(ConfigurationError, match="move it elsewhere") as refusal:
        spec(programs=(Path(folder),))
    assert folder in str(refusal.value) and "\n" not in str(refusal.value)
