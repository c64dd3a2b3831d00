"""What the Docker sandbox promises against code that means harm: each ends as it should, and the host is left untouched."""

import contextlib
import http.server
import secrets
import threading
from functools import cache

import pytest
from dead_owner import dead_label
from patience import LIMIT

from ratchet.components.core import CommandTimeout, OutputLimitExceeded, SandboxUnavailable, processes
from ratchet.components.sandboxes import SandboxConfig, container_pool, docker_engine, make_sandbox
from ratchet.components.sandboxes.docker_sandbox import DockerSandbox
from ratchet.components.sandboxes.orphaned_resources import orphaned_containers
from ratchet.components.sandboxes.sandbox_config import DEFAULT_IMAGE

MIB = 1 << 20
CONFIG = SandboxConfig(backend="docker", memory_mb=128, pids=32, workspace_mb=16)


@cache
def _engine_is_here():
    return not docker_engine.image_problem(DEFAULT_IMAGE, 5.0)


def _require_engine():
    if not _engine_is_here():
        pytest.skip(f"no Docker engine answers that has {DEFAULT_IMAGE}; .ci/run starts one")


@pytest.fixture(autouse=True, scope="module")
def _host_is_left_untouched():
    """After all tests, the pool emptied, there is no container more than before."""
    _require_engine()
    before = _containers()
    yield
    container_pool.drain()
    assert _containers() <= before


pytestmark = [pytest.mark.docker, pytest.mark.slow, pytest.mark.xdist_group("docker")]


def _containers():
    found = docker_engine.docker_client(30.0).api.containers(all=True, filters={"label": f"{docker_engine.LABEL}=1"})
    return {each["Id"] for each in found if each["Labels"][docker_engine.OWNER_LABEL] == processes.owner_label()}


@pytest.fixture
def sandbox():
    with make_sandbox(CONFIG) as made:
        yield made


def _is_usable(sandbox):
    return sandbox.run(["echo", "usable"]).stdout == b"usable\n"


def test_the_container_is_hardened(sandbox):
    found = docker_engine.docker_client(30.0).api.inspect_container(sandbox._lease.container.id)
    host = found["HostConfig"]
    assert host["NetworkMode"] == "none"
    assert host["CapDrop"] == ["ALL"]
    assert "no-new-privileges" in host["SecurityOpt"]
    assert host["PidsLimit"] == 32
    assert host["Memory"] == host["MemorySwap"] == 128 * MIB
    assert host["NanoCpus"] == 10**9
    assert host["ReadonlyRootfs"]
    assert host["LogConfig"]["Type"] == "none"
    assert not host["Privileged"] and not host["Binds"]
    assert found["Config"]["User"] == "1000:1000"
    assert found["Image"] == sandbox.image_digest
    assert sandbox.image_digest.startswith("sha256:")


def test_there_are_no_capabilities_and_no_way_to_any(sandbox):
    status = sandbox.run("grep -E 'CapEff|CapBnd|NoNewPrivs' /proc/self/status").stdout_text.split()
    assert [int(status[1], 16), int(status[3], 16), status[5]] == [0, 0, "1"]
    assert sandbox.run("id -u").stdout == b"1000\n"
    assert sandbox.run("touch /x || touch /usr/x || touch /etc/x").exit_code == 1


def test_a_full_disk_is_the_commands_own(sandbox):
    result = sandbox.run("head -c 100000000 /dev/zero > large; head -c 100000000 /dev/zero > /tmp/large; echo $?")
    assert b"No space left on device" in result.stderr
    assert int(sandbox.run("du -sm /workspace | cut -f1").stdout) <= 16
    sandbox.run("rm large /tmp/large")
    assert _is_usable(sandbox)


def test_the_hosts_environment_and_files_are_not_there(sandbox, monkeypatch):
    monkeypatch.setenv("A_SECRET_OF_THE_HOST", "swordfish")
    seen = sandbox.run("env; cat /proc/*/environ 2>/dev/null; cat /etc/shadow; ls /root /home; ls /var/run/docker.sock")
    assert b"swordfish" not in seen.stdout
    names = {line.split("=")[0] for line in sandbox.run("env").stdout_text.splitlines()}
    assert names <= {
        "PATH",
        "HOME",
        "TMPDIR",
        "LANG",
        "PYTHONDONTWRITEBYTECODE",
        "HOSTNAME",
        "PWD",
        "SHLVL",
        "_",
        "OLDPWD",
    }


def test_100_mb_of_output_are_cut_and_never_held(sandbox):
    import resource

    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(OutputLimitExceeded) as caught:
        sandbox.run("head -c 100000000 /dev/zero", timeout=LIMIT, output_limit=MIB)
    assert len(caught.value.result.stdout) == MIB
    assert caught.value.result.truncated
    assert (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024 < 30 * MIB
    assert _is_usable(sandbox)


def test_an_endless_command_is_ended_inside_the_container(sandbox):
    container, marker = sandbox._lease.container.id, str(secrets.randbelow(10**8) + 10**8)
    with pytest.raises(CommandTimeout) as caught:
        sandbox.run(f"trap '' TERM INT; (setsid sleep {marker} &) ; while true; do :; done", timeout=1)
    assert caught.value.result.timed_out
    assert sandbox._lease.container.id == container, "the guard outside ends the whole container"
    assert marker.encode() not in sandbox.run("cat /proc/[0-9]*/cmdline").stdout.replace(b"\0", b" ")


def test_a_container_whose_engine_lost_it_is_unavailable(sandbox):
    docker_engine.remove_container(sandbox._lease.container.id, 30.0)
    with pytest.raises(SandboxUnavailable) as caught:
        sandbox.run("true")
    assert "\n" not in str(caught.value)


def test_an_absent_image_is_unavailable_and_leaves_nothing():
    made = DockerSandbox(CONFIG.model_copy(update={"image": "ratchet-no-such-image:latest"}))
    with pytest.raises(SandboxUnavailable, match="build_base"):
        made.start()
    made.stop()


def _next_container():
    docker_engine._checked_processes.clear()  # the next container is the first one of its process
    docker_engine.remove_orphans_once(30.0)


def _next_night():
    for container in orphaned_containers():
        container.remove()


@pytest.mark.parametrize("sweep", [_next_container, _next_night])
def test_containers_of_a_dead_owner_are_swept_also_before_they_were_started_and_a_living_ones_are_not(sandbox, sweep):
    from docker.errors import NotFound

    api = docker_engine.docker_client(30.0).api
    labels = {docker_engine.LABEL: "1", docker_engine.OWNER_LABEL: dead_label()}
    host = api.create_host_config(network_mode="none")
    running, created = (
        api.create_container(DEFAULT_IMAGE, ["sleep", "1000"], labels=labels, host_config=host)["Id"] for _ in range(2)
    )
    with contextlib.suppress(NotFound):  # another process of tests has swept already
        api.start(running)
    sweep()
    assert not {running, created} & _all_containers()
    assert _is_usable(sandbox)


def _all_containers():
    return {each["Id"] for each in docker_engine.docker_client(30.0).api.containers(all=True)}


ASK = """
import sys, urllib.request
try:
    print(urllib.request.urlopen(sys.argv[1], timeout=10).read().decode())
except urllib.error.HTTPError as error:
    print(error.code, error.read().decode())
"""


def test_a_host_of_the_egress_list_is_reached_and_there_is_still_no_network():
    with contextlib.ExitStack() as stack:
        ports = []
        for _ in range(2):
            server = stack.enter_context(http.server.ThreadingHTTPServer(("127.0.0.1", 0), Greeting))
            threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
            stack.callback(server.shutdown)
            ports.append(server.server_port)
        config = CONFIG.model_copy(update={"egress": (f"127.0.0.1:{ports[0]}",)})
        sandbox = stack.enter_context(make_sandbox(config))
        for _ in range(2):
            reached = sandbox.run(["python3", "-c", ASK, f"http://127.0.0.1:{ports[0]}/"])
            assert reached.stdout == b"hello\n", reached.stderr
            denied = sandbox.run(["python3", "-c", ASK, f"http://127.0.0.1:{ports[1]}/"])
            assert denied.stdout.startswith(b"403 ")
        assert sandbox.run("ls /sys/class/net").stdout == b"lo\n"
        assert sandbox.run("touch /run/egress/x; rm /run/egress/proxy").exit_code == 1
        assert sandbox._lease.container.reset() == []


FLOOD = """
import select, socket, time
held, refused, poll = {}, 0, select.poll()
for _ in range(120):
    channel = socket.socket(socket.AF_UNIX)
    channel.connect('/run/egress/proxy')
    held[channel.fileno()] = channel
    poll.register(channel, select.POLLIN)
while refused < 80:
    for descriptor, _ in poll.poll():
        refused += held[descriptor].recv(12) == b'HTTP/1.1 503'
        poll.unregister(descriptor)
time.sleep(2)
"""


def test_a_flood_by_one_sandbox_leaves_another_its_way_out():
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(http.server.ThreadingHTTPServer(("127.0.0.1", 0), Greeting))
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        stack.callback(server.shutdown)
        config = CONFIG.model_copy(update={"egress": (f"127.0.0.1:{server.server_port}",)})
        flooding, another = (stack.enter_context(make_sandbox(config)) for _ in range(2))
        before, results = threading.active_count(), []
        thread = threading.Thread(target=lambda: results.append(flooding.run(["python3", "-c", FLOOD], timeout=60)))
        thread.start()
        for _ in range(3):
            assert another.run(["python3", "-c", ASK, f"http://127.0.0.1:{server.server_port}/"]).stdout == b"hello\n"
            assert threading.active_count() - before < 60
        thread.join()
        assert results[0].exit_code == 0
        assert another.run(["python3", "-c", ASK, f"http://127.0.0.1:{server.server_port}/"]).stdout == b"hello\n"


class Greeting(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"hello")

    def log_message(self, *_):
        return
