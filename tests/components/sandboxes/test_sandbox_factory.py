import os
import subprocess
import time

import pytest
from patience import LIMIT

from ratchet.components.core import ConfigurationError, SandboxUnavailable, processes
from ratchet.components.sandboxes import (
    SandboxConfig,
    describe_backend,
    docker_engine,
    make_sandbox,
    resolve_backend,
    sandbox_factory,
)


@pytest.fixture(autouse=True)
def _forget():
    sandbox_factory._docker_problem.cache_clear()
    docker_engine._client.cache_clear()
    yield
    sandbox_factory._docker_problem.cache_clear()
    docker_engine._client.cache_clear()


def test_an_unknown_key_is_refused_with_the_nearest_one():
    with pytest.raises(ConfigurationError, match="did you mean 'memory_mb'"):
        SandboxConfig.load({"memory": 12})


def test_auto_is_local_at_once_where_there_is_no_engine(monkeypatch, tmp_path):
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/absent.sock")
    monkeypatch.setattr(docker_engine, "image_problem", lambda *_: pytest.fail("nobody is there to be asked"))
    assert resolve_backend("auto") == "local"
    assert make_sandbox().backend == "local"


@pytest.mark.slow
def test_auto_does_not_wait_for_an_engine_that_is_silent(monkeypatch, tmp_path):
    import socket

    with socket.socket(socket.AF_UNIX) as silent:
        silent.bind(f"{tmp_path}/s")
        silent.listen()
        monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/s")
        begin = time.perf_counter()
        assert resolve_backend("auto") == "local"
        assert time.perf_counter() - begin < LIMIT / 2  # one second, and the import of the SDK


def test_what_is_asked_for_by_name_is_given():
    assert (resolve_backend("docker"), resolve_backend("local")) == ("docker", "local")
    assert make_sandbox(SandboxConfig(backend="docker")).backend == "docker"


def test_an_unknown_back_end_is_refused():
    with pytest.raises(ConfigurationError, match="podman"):
        resolve_backend("podman")


def test_without_an_engine_docker_is_unavailable_in_one_line(monkeypatch, tmp_path):
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/absent.sock")
    with pytest.raises(SandboxUnavailable) as caught:
        make_sandbox(SandboxConfig(backend="docker")).start()
    assert "\n" not in str(caught.value)
    assert "dockerd" in str(caught.value)


def test_an_owner_is_dead_only_when_it_is_known_to_be():
    mine = processes.owner_label()
    ended = subprocess.Popen(["true"])
    ended.wait()
    place, pid, started = mine.rsplit("/", 2)
    assert pid == str(os.getpid())
    assert not processes.owner_is_dead(mine)
    assert processes.owner_is_dead(f"{place}/{ended.pid}/{started}")
    assert processes.owner_is_dead(f"{place}/{pid}/1")  # the id was given to another process
    assert not processes.owner_is_dead(f"another-boot/1/{ended.pid}/{started}")
    assert not processes.owner_is_dead("")


def test_what_auto_takes_is_said_in_one_line_with_the_reason(monkeypatch, tmp_path):
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/absent.sock")
    said = describe_backend(SandboxConfig())
    assert said.startswith("sandbox: local, ") and f"no Docker engine listens at unix://{tmp_path}/absent.sock" in said
    monkeypatch.setattr(sandbox_factory, "_docker_problem", lambda image: f"the Docker engine has no image {image}")
    assert "the Docker engine has no image ratchet-sandbox:latest" in describe_backend(SandboxConfig())
    monkeypatch.setattr(sandbox_factory, "_docker_problem", lambda image: "")
    assert (
        describe_backend(SandboxConfig())
        == "sandbox: docker, container (an engine that has ratchet-sandbox:latest answers)"
    )
    assert (
        describe_backend(SandboxConfig(backend="docker", runtime="runsc")) == "sandbox: docker, runsc (as configured)"
    )
    assert "\n" not in said


@pytest.mark.parametrize("backend", ["auto", "local"])
def test_where_docker_is_required_and_absent_nothing_is_run_elsewhere(monkeypatch, tmp_path, backend):
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/absent.sock")
    config = SandboxConfig(backend=backend, require="docker")
    for refused in (make_sandbox, describe_backend):
        with pytest.raises(SandboxUnavailable, match=r"`sandbox\.require` is docker, but") as caught:
            refused(config)
        assert "\n" not in str(caught.value)


def test_where_docker_is_required_and_there_it_is_taken(monkeypatch):
    monkeypatch.setattr(sandbox_factory, "_docker_problem", lambda image: "")
    assert make_sandbox(SandboxConfig(require="docker")).backend == "docker"
    with pytest.raises(ConfigurationError, match="require"):
        SandboxConfig.load({"require": "podman"})


@pytest.mark.docker
@pytest.mark.slow
def test_an_image_that_the_engine_has_not_is_named_in_the_reason():
    if docker_engine.image_problem("ratchet-sandbox:latest", 5.0):
        pytest.skip("no Docker engine answers that has ratchet-sandbox:latest; .ci/run starts one")
    assert docker_engine.image_problem("no/such:image", 5.0) == "the Docker engine has no image no/such:image"
