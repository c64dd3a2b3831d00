"""What the pool promises: containers are lent again and again, and nobody can tell."""

import gc
import os
import random
import signal
import subprocess
import sys
import threading
import time
from functools import cache

import psutil
import pytest
from patience import LIMIT, until

from ratchet.components.core import CommandTimeout, SandboxUnavailable, processes
from ratchet.components.sandboxes import SandboxConfig, container_pool, docker_engine, make_sandbox
from ratchet.components.sandboxes.container_spec import ContainerSpec
from ratchet.components.sandboxes.docker_sandbox import DockerSandbox
from ratchet.components.sandboxes.sandbox_config import DEFAULT_IMAGE

MIB = 1 << 20
CONFIG = SandboxConfig(backend="docker", memory_mb=128, pids=32, workspace_mb=16)
pytestmark = [pytest.mark.docker, pytest.mark.slow, pytest.mark.xdist_group("docker")]


@cache
def _engine_is_here():
    return not docker_engine.image_problem(DEFAULT_IMAGE, 5.0)


def _containers():
    found = docker_engine.docker_client(30.0).api.containers(all=True, filters={"label": f"{docker_engine.LABEL}=1"})
    return {each["Id"] for each in found if each["Labels"][docker_engine.OWNER_LABEL] == processes.owner_label()}


@pytest.fixture(autouse=True)
def _pool_is_empty_before_and_after():
    if not _engine_is_here():
        pytest.skip(f"no Docker engine answers that has {DEFAULT_IMAGE}; .ci/run starts one")
    container_pool.drain()
    yield
    container_pool.drain()
    assert _containers() == set()


def _config(most):
    return CONFIG.model_copy(update={"max_containers": most})


def _container(sandbox):
    return sandbox._lease.container


LEAK = r"""
echo secret > file; mkdir -p .hidden/deep; echo secret > .hidden/deep/file; chmod 000 .hidden; chmod 0777 /workspace
echo secret > /tmp/secret; echo secret > /dev/shm/secret; chmod 000 /tmp; chmod 1000 /workspace
ipcmk -M 4096; ipcmk -S 1; ipcmk -Q
(setsid sleep 1000 &) ; (trap '' TERM HUP; setsid sh -c 'while true; do sleep 1; done' &)
python3 - <<'END'
import os, ctypes
name = b"/secret"
ctypes.CDLL(None).mq_open(name, os.O_CREAT | os.O_RDWR, 0o600, None)
os.mkfifo("/dev/shm/pipe")
for each in ("d" * 200,) * 300:
    os.makedirs(each, exist_ok=True)
    os.chdir(each)
END
umask 077; export SECRET=secret; ulimit -n 20
"""
LOOK = r"""
find /workspace /tmp /dev/shm /dev/mqueue -mindepth 1; tail -qn +2 /proc/sysvipc/*; env | grep -i secret
ls -ld /workspace /tmp | cut -c1-11; umask; ulimit -n; echo $(sh -c 'set -- /proc/[0-9]*; echo $#')
"""


def test_a_removed_container_leaves_no_open_descriptor_also_before_the_next_garbage_collection():
    def descriptors():
        container_pool.drain()
        docker_engine.docker_client(CONFIG.start_timeout).api.close()  # idle connections
        return psutil.Process().num_fds()

    def use():
        with make_sandbox(CONFIG) as sandbox:
            sandbox.run(["true"])

    use()
    before = descriptors()
    gc.disable()
    try:
        for _ in range(3):
            use()
            container_pool.drain()
        until(lambda: descriptors() <= before)  # threads of tests before may open one meanwhile
    finally:
        gc.enable()


def test_nothing_of_an_episode_is_there_in_the_next_one_of_the_same_container():
    with make_sandbox(CONFIG) as first:
        container = _container(first).id
        as_new = first.run(LOOK).stdout
        first.run(LEAK)
    with make_sandbox(CONFIG) as second:
        assert _container(second).id == container
        assert second.run(LOOK).stdout == as_new
        assert second.run("echo usable > file; cat file").stdout == b"usable\n"


@pytest.mark.parametrize(
    "spoil",
    [
        ["python3", "-c", "x = []\nwhile True: x.append(bytearray(2**20))"],
        ["sh", "-c", "for i in $(seq 100); do sleep 100 & done"],
    ],
    ids=["memory", "processes"],
)
def test_a_container_in_which_something_ran_out_is_replaced(spoil):
    with make_sandbox(CONFIG) as sandbox:
        container = _container(sandbox).id
        sandbox.run(spoil, timeout=LIMIT)
        assert sandbox.run(["echo", "usable"]).stdout == b"usable\n"
    with make_sandbox(CONFIG) as sandbox:
        assert _container(sandbox).id != container


def test_a_warm_lease_makes_no_container():
    with make_sandbox(CONFIG):
        before = _containers()
    with make_sandbox(CONFIG):
        assert _containers() == before


def test_containers_are_ready_for_those_who_come():
    with make_sandbox(CONFIG), make_sandbox(CONFIG) as second:
        shape = ContainerSpec.from_config(CONFIG)
        until(lambda: container_pool.shared_pool().cache._idle.get(shape))
        with make_sandbox(CONFIG) as third:
            assert _container(third) is not _container(second)


def test_a_single_sandbox_has_a_single_container():
    with make_sandbox(CONFIG):
        time.sleep(1)
        assert len(_containers()) == 1


AS_IT_WAS = r"""
mkdir -p a/b closed 'odd
name'; echo one > a/b/file; ln a/b/file again; ln -s a/b/file link; ln -s /etc/passwd out; mkfifo pipe; truncate -s 1T hole
echo x | dd of=hole bs=1 seek=1000000 conv=notrunc 2>/dev/null
echo dark > dark; chmod 000 dark; echo in > closed/in; chmod 000 closed; chmod 2750 a; touch -d 2001-02-03T04:05:06.789 a/b a/b/file
printf '\377\376' > "$(printf 'caf\351')"; echo t > /tmp/t; echo s > /dev/shm/s; chmod 700 /tmp; setsid sleep 1000 &
"""
DESCRIBE = r"""
tail -c +1000001 hole | head -c 2
find . /tmp /dev/shm -printf '%p %y %m %s %l %n\n' | sort | od -c; stat -c %y a/b a/b/file; stat -c %i a/b/file again | uniq | wc -l
cat a/b/file; du -s hole; cat /tmp/t /dev/shm/s
"""


def test_a_parked_sandbox_comes_back_as_it_was():
    with make_sandbox(_config(1)) as parked:
        parked.run(AS_IT_WAS)
        before = parked.run(DESCRIBE)
        with make_sandbox(_config(1)) as other:
            assert _container(parked) is None
            assert other.run("ls -A /workspace /tmp /dev/shm").stdout == b"/dev/shm:\n\n/tmp:\n\n/workspace:\n"
            after = parked.run(DESCRIBE)
            assert _container(other) is None
        assert b"2001-02-03 04:05:06.789" in before.stdout
        assert (after.stdout, after.stderr) == (before.stdout, before.stderr)
        assert len(_containers()) == 1


def test_16_sandboxes_take_turns_at_2_containers_and_never_mix():
    sandboxes = [make_sandbox(_config(2)) for _ in range(16)]
    wrong, seen = [], []

    def play(mine, number):
        chance = random.Random(number)
        counts = dict.fromkeys(mine, 0)
        for sandbox in mine:
            sandbox.start()
            sandbox.run(f"echo {id(sandbox)} | tee name > /tmp/name; cp name /dev/shm/name")
        for _ in range(15):
            sandbox = chance.choice(mine)
            said = sandbox.run(
                "cat name /tmp/name /dev/shm/name; wc -l < count; echo x >> count; ls | wc -l"
            ).stdout_text.split()
            expected = [str(id(sandbox))] * 3 + ([str(counts[sandbox])] if counts[sandbox] else []) + ["2"]
            counts[sandbox] += 1
            if said != expected:
                wrong.append((said, expected))
        seen.append(len(_containers()))
        for sandbox in mine:
            sandbox.stop()

    threads = [threading.Thread(target=play, args=(sandboxes[each::4], each)) for each in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10 * LIMIT)
    assert not any(thread.is_alive() for thread in threads)
    assert wrong == []
    assert max(seen) <= 2 + 1  # one that is being removed may still be listed
    assert len(seen) == 4


def test_one_container_serves_many_threads_that_all_run_at_once():
    done = []

    def play(number):
        with make_sandbox(_config(1)) as outer, make_sandbox(_config(1)) as inner:
            inner.run(f"sleep 0.1; echo {number} > mine")
            outer.run(f"sleep 0.1; echo -{number} > mine")
            done.append((inner.read("mine"), outer.read("mine"), number))

    threads = [threading.Thread(target=play, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(5 * LIMIT)
    assert sorted(number for *_, number in done) == list(range(6))
    assert all(inner == b"%d\n" % number and outer == b"-%d\n" % number for inner, outer, number in done)


def test_sandboxes_of_other_shapes_make_way():
    kinds = [CONFIG.model_copy(update={"max_containers": 2, "pids": 20 + number}) for number in range(4)]
    sandboxes = [make_sandbox(kind) for kind in kinds]
    for sandbox in sandboxes:
        sandbox.start()
        sandbox.write("mine", sandbox.config.model_dump_json().encode())
    for sandbox in sandboxes:
        assert sandbox.run(["cat", "mine"]).stdout_text == sandbox.config.model_dump_json()
        sandbox.stop()


def test_snapshots_outlive_parking_and_die_with_the_sandbox():
    with make_sandbox(_config(1)) as first:
        first.write("file", b"one")
        kept = first.snapshot()
        first.write("file", b"two")
        with make_sandbox(_config(1)) as other:
            other.write("file", b"others")
            first.restore(kept)
            assert first.read("file") == b"one"
            assert other.read("file") == b"others"


@pytest.mark.parametrize(
    "attack",
    [
        "kill -9 -1",
        "kill -9 1; kill -STOP 1; kill -SEGV 1; kill -TERM 1; exit 9",
        "(setsid sh -c 'while true; do kill -STOP 1; kill -9 1; done' &) ; sleep 0.3; exit 9",
        "prlimit --pid 1 --cpu=1:1; prlimit --pid 1 --nofile=0; prlimit --pid 1 --as=1; exit 9",
        "renice 19 1; renice 19 -u agent; chrt -i -p 0 1; taskset -p 0x1 1; ionice -c 3 -p 1; exit 9",
        "cat /proc/1/environ /proc/1/maps; echo x > /proc/1/mem; ls /proc/1/fd/; echo -17 > /proc/1/oom_score_adj; exit 9",
        "echo forged > /proc/1/fd/1; exec 7>/proc/1/fd/1; exit 9",
    ],
)
def test_no_command_reaches_the_session(attack):
    with make_sandbox(CONFIG) as sandbox:
        container = _container(sandbox).id
        sandbox.write("kept", b"kept")
        result = sandbox.run(attack, timeout=LIMIT)
        assert result.exit_code != 0
        assert b"forged" not in result.stdout
        assert sandbox.run("cat kept; ulimit -n").stdout == b"kept256\n"
        assert _container(sandbox).id == container
        assert _container(sandbox).reset() == []


def test_a_command_cannot_stop_its_own_clock():
    with make_sandbox(CONFIG) as sandbox:
        begin = time.monotonic()
        with pytest.raises(CommandTimeout):
            sandbox.run(
                "for i in $(seq 20); do (setsid sh -c 'renice -n 19 -u agent; while :; do :; done' &) ; done; sleep 600",
                timeout=1,
            )
        assert time.monotonic() - begin < LIMIT
        assert sandbox.run(["true"]).exit_code == 0


def test_a_container_killed_from_outside_is_the_worlds_fault_and_the_pool_goes_on():
    with make_sandbox(CONFIG) as sandbox:
        docker_engine.docker_client(30.0).api.kill(_container(sandbox).id)
        until(lambda: sandbox.loss_reason)
        with pytest.raises(SandboxUnavailable):
            sandbox.run("true")
        with pytest.raises(SandboxUnavailable):
            sandbox.read("file")
    with make_sandbox(CONFIG) as sandbox:
        idle = _container(sandbox)
        assert sandbox.run(["echo", "again"]).stdout == b"again\n"
    docker_engine.docker_client(30.0).api.kill(idle.id)
    until(lambda: not idle.is_connected())
    with make_sandbox(CONFIG) as sandbox:
        assert sandbox.run(["echo", "again"]).stdout == b"again\n"


def test_a_container_killed_while_a_command_runs_is_the_worlds_fault():
    with make_sandbox(CONFIG) as sandbox:
        container = _container(sandbox).id
        threading.Timer(0.5, lambda: docker_engine.docker_client(30.0).api.kill(container)).start()
        begin = time.monotonic()
        with pytest.raises(SandboxUnavailable):
            sandbox.run("sleep 600", timeout=600)
        assert time.monotonic() - begin < LIMIT


def test_a_sandbox_lost_while_the_engine_does_not_answer_is_lost_and_not_an_empty_one(monkeypatch):
    def restarting(*_):
        raise SandboxUnavailable("the Docker engine does not answer")

    with make_sandbox(CONFIG) as sandbox:
        sandbox.write("file", b"content")
        monkeypatch.setattr(docker_engine, "ran_out_of_memory", restarting)
        killing = threading.Thread(target=lambda: docker_engine.docker_client(30.0).api.kill(_container(sandbox).id))
        killing.start()
        with pytest.raises(SandboxUnavailable, match="was lost"):
            sandbox.run("sleep 600", timeout=600)
        killing.join()
        for _ in range(2):
            with pytest.raises(SandboxUnavailable, match="was lost"):
                sandbox.run("ls")
        assert sandbox.loss_reason


# Many processes, each smaller than the session, that do not offer themselves to the kernel as commands do.
MANY_SMALL = r"""
echo 0 > /proc/$$/oom_score_adj
for i in $(seq 28); do
  (echo 0 > /proc/self/oom_score_adj; x=$(head -c 3500000 /dev/zero | tr '\0' a); y=$x; sleep 5) &
done; wait
"""


def test_a_session_that_the_kernel_killed_for_memory_is_the_commands_fault():
    with make_sandbox(CONFIG.model_copy(update={"pids": 128})) as sandbox:
        for _ in range(10):  # the kernel may take the command's processes one by one until the rest have room
            result = sandbox.run(MANY_SMALL, timeout=LIMIT)
            if b"out of memory" in result.stderr:
                break
        assert b"out of memory" in result.stderr
        assert result.exit_code == 137
        assert sandbox.run("echo usable").stdout == b"usable\n"


def test_a_workspace_that_fills_the_memory_is_the_commands_own():
    with make_sandbox(CONFIG.model_copy(update={"memory_mb": 64, "workspace_mb": 64})) as sandbox:
        for _ in range(3):
            result = sandbox.run("head -c 64000000 /dev/zero > large", timeout=LIMIT)
            assert result.exit_code != 0 and not result.timed_out


def test_a_parked_sandbox_outlives_the_container_that_it_was_to_come_back_in():
    with make_sandbox(_config(1)) as parked:
        parked.write("file", b"kept")
        with make_sandbox(_config(1)) as other:
            other.write("file", b"x")
            assert _container(parked) is None
            docker_engine.docker_client(30.0).api.kill(_container(other).id)
        assert parked.read("file") == b"kept"


def test_stop_ends_a_command_that_is_running():
    ended = []
    sandbox = make_sandbox(CONFIG)
    sandbox.start()
    thread = threading.Thread(target=lambda: ended.append(sandbox.run("sleep 600", timeout=600)))
    thread.start()
    container = docker_engine.docker_client(30.0).containers.get(_container(sandbox).id)
    until(lambda: "sleep 600" in str(container.top()))
    sandbox.stop()
    thread.join(LIMIT)
    assert ended[0].exit_code == 137


def test_a_parked_sandbox_may_be_stopped():
    first, second = make_sandbox(_config(1)), make_sandbox(_config(1))
    first.start()
    first.write("file", b"x")
    second.start()
    first.stop()
    with pytest.raises(SandboxUnavailable):
        first.run("true")
    second.stop()


def test_an_absent_engine_is_told_in_one_line_and_forgotten_when_it_is_back(monkeypatch, tmp_path):
    with monkeypatch.context() as patch:
        patch.setenv("DOCKER_HOST", f"unix://{tmp_path}/absent.sock")
        for _ in range(3):
            with pytest.raises(SandboxUnavailable) as caught:
                make_sandbox(CONFIG).start()
            assert "\n" not in str(caught.value)
    with make_sandbox(_config(1)) as sandbox:
        assert sandbox.run(["echo", "back"]).stdout == b"back\n"


def test_an_image_without_python_is_refused_with_what_to_do():
    api = docker_engine.docker_client(30.0).api
    bare = api.create_container(
        DEFAULT_IMAGE, ["/bin/sh"], user="0", host_config=api.create_host_config(network_mode="none")
    )["Id"]
    try:
        name = api.commit(bare, repository="ratchet-test-no-python", changes=["ENV PATH=/nowhere"])["Id"]
    finally:
        api.remove_container(bare, force=True)
    try:
        with pytest.raises(SandboxUnavailable, match=r"python3 \(3.9 or newer"):
            make_sandbox(CONFIG.model_copy(update={"image": name})).start()
    finally:
        api.remove_image(name, force=True)


def test_a_runtime_that_the_engine_has_not_is_refused():
    from ratchet.components.core import ConfigurationError

    with pytest.raises(ConfigurationError, match="runtime 'no-such-runtime'"):
        make_sandbox(CONFIG.model_copy(update={"runtime": "no-such-runtime"})).start()


def test_a_fork_of_the_owner_leaves_its_containers_alone():
    with make_sandbox(CONFIG) as sandbox:
        sandbox.write("file", b"parents")
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                with DockerSandbox(CONFIG) as own:
                    code = 0 if own.run(["true"]).exit_code == 0 else 2
                container_pool.drain()
            finally:
                os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        assert sandbox.run(["cat", "file"]).stdout == b"parents"


OWNER = """
import sys
from ratchet.components.sandboxes import SandboxConfig, make_sandbox
sandbox = make_sandbox(SandboxConfig(backend="docker", pids=30))
sandbox.start()
print(sandbox._lease.container.id, flush=True)
if sys.argv[1] == "run":
    sandbox.run("setsid sleep 1000 & sleep 1000", timeout=1000)
"""


@pytest.mark.parametrize("doing", ["run", "end"])
def test_the_containers_of_a_killed_or_ended_owner_go_without_anyones_help(doing):
    owner = subprocess.Popen([sys.executable, "-c", OWNER, doing], stdout=subprocess.PIPE, text=True)
    left = owner.stdout.readline().strip()
    assert left
    time.sleep(0.5)
    if doing != "end":
        owner.send_signal(signal.SIGKILL)
    owner.wait(LIMIT)
    until(lambda: left not in {each["Id"] for each in docker_engine.docker_client(30.0).api.containers(all=True)})
