"""`ratchet sandbox …`, `ratchet reap`, `ratchet envs`: what they print, and how they exit."""

import io
import json
import os
import secrets
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
from dead_owner import dead_token
from patience import LIMIT, gone, until

from ratchet import cli
from ratchet.components.core.files import temporary_path
from ratchet.components.sandboxes import persistent_sandboxes
from ratchet.components.sandboxes.docker_engine import OWNER_LABEL, docker_client, image_problem
from ratchet.components.sandboxes.sandbox_config import DEFAULT_IMAGE
from ratchet.components.trajectories.trajectory import Outcome

pytestmark = [pytest.mark.slow]

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def own_home(tmp_path, monkeypatch):
    monkeypatch.setenv("RATCHET_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(ROOT)
    yield
    for each in list(persistent_sandboxes.recorded_sandboxes()):
        persistent_sandboxes.stop_sandbox(each.id)


@pytest.fixture(
    params=[
        "local",
        pytest.param("docker", marks=[pytest.mark.docker, pytest.mark.slow, pytest.mark.xdist_group("docker")]),
    ]
)
def backend(request):
    if request.param == "docker" and image_problem(DEFAULT_IMAGE, 5.0):
        pytest.skip(f"no Docker engine answers that has {DEFAULT_IMAGE}; .ci/run starts one")
    return request.param


@pytest.fixture
def ratchet(capfdbinary, monkeypatch):
    """Run a command line in this process: as bytes what it printed, and its exit code."""

    def run(*arguments, stdin=b""):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        capfdbinary.readouterr()
        code = cli.run(arguments)
        return subprocess.CompletedProcess(arguments, code, *capfdbinary.readouterr())

    return run


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["run"], 2, "Missing argument 'command'"),
        (["run", "--"], 2, "Missing argument 'command'"),
        (["run", "--backend", "dokcer", "--", "true"], 2, "unknown sandbox back end 'dokcer'"),
        (["run", "--backend", "local", "--image", "x", "--", "true"], 2, "the local sandbox has no images"),
        (["run", "--timeout", "0", "--", "true"], 2, "timeout"),
        (["run", "--timeout", "soon", "--", "true"], 2, "timeout"),
        (["exec", "s-1"], 2, "Missing argument 'command'"),
        (["exec", "s-12345678", "--", "true"], 2, "no sandbox 's-12345678' exists here; known: none"),
        (["exec", "../..", "--", "true"], 2, "no sandbox '../..' exists here"),
        (["reset", "s-12345678"], 2, "no sandbox"),
        (["stop", "s-12345678"], 2, "no sandbox"),
        (["stop"], 2, "give either an id"),
        (["stop", "s-1", "--all"], 2, "give either an id"),
        (["create", "--lifetime", "0"], 2, "lifetime is more than 0"),
        (["create", "--lifetime", "1000000"], 2, "at most 82800 seconds"),
        (["replay", "/nowhere.jsonl"], 3, "cannot be read"),
        (["replay", "README.md"], 3, "is no JSON"),
        (["runn"], 2, "runn"),
    ],
)
def test_bad_input_is_one_line(arguments, code, said, capsys):
    assert cli.run(["sandbox", *arguments]) == code
    lines = capsys.readouterr().err.strip().splitlines()
    assert len(lines) == 1 and lines[0].startswith("error: ") and said in lines[0]


def test_an_engine_that_is_absent_is_one_line(monkeypatch, capsys, tmp_path):
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/no.sock")
    assert cli.run(["sandbox", "run", "--backend", "docker", "--", "true"]) == 4
    lines = capsys.readouterr().err.strip().splitlines()
    assert len(lines) == 1 and "does not answer" in lines[0]
    assert cli.run(["sandbox", "run", "--image", "no/such:image", "--", "true"]) == 2
    assert "no Docker engine with the image no/such:image answers" in capsys.readouterr().err


@pytest.mark.parametrize(
    "command",
    [*(f"sandbox {name}" for name in ("run", "create", "exec", "reset", "list", "stop", "replay")), "reap", "envs"],
)
def test_every_help_teaches_with_an_example(command, capsys):
    assert cli.run([*command.split(), "--help"]) == 0
    out = capsys.readouterr().out
    assert f"Usage: ratchet {command}" in out and "Example:" in out


def test_run_gives_what_the_command_printed_byte_for_byte_and_exits_as_it_did(ratchet, backend):
    script = "import sys; sys.stdout.buffer.write(bytes(range(256))); sys.stderr.write('err'); sys.exit(130)"
    words = ["sandbox", "run", "--backend", backend, "--", "python3", "-c", script]
    command = [sys.executable, "-m", "ratchet.cli", *words]
    done = subprocess.run(command, capture_output=True, timeout=2 * LIMIT, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (130, bytes(range(256)), b"err")
    done = ratchet("sandbox", "run", "--backend", backend, "--stdin", "wc -c; exit 3", stdin=b"12345")
    assert (done.returncode, done.stdout.strip()) == (3, b"5")


def test_run_as_json_has_six_keys(ratchet, backend):
    done = ratchet("sandbox", "run", "--json", "--backend", backend, "--", "sh", "-c", "echo out; echo err >&2; exit 4")
    found = json.loads(done.stdout)
    assert list(found) == ["exit_code", "stdout", "stderr", "timed_out", "truncated", "seconds"]
    assert (done.returncode, found["exit_code"], found["stdout"], found["stderr"]) == (4, 4, "out\n", "err\n")
    assert not found["timed_out"] and not found["truncated"] and found["seconds"] > 0


def test_limits_end_a_command_and_are_said(ratchet, backend):
    done = ratchet("sandbox", "run", "--json", "--backend", backend, "--timeout", "1", "--", "sleep", "60")
    found = json.loads(done.stdout)
    assert found["timed_out"] and done.returncode == found["exit_code"] == 137
    done = ratchet("sandbox", "run", "--json", "--backend", backend, "--", "yes")
    found = json.loads(done.stdout)
    assert found["truncated"] and done.returncode != 0 and len(found["stdout"]) == 10 << 20


def test_each_run_has_a_sandbox_of_its_own(ratchet, backend):
    ratchet("sandbox", "run", "--backend", backend, "--", "touch left /tmp/left")
    assert ratchet("sandbox", "run", "--backend", backend, "--", "ls . /tmp").stdout.split() == [b".:", b"/tmp:"]


def test_a_standing_sandbox_lives_on_between_commands(ratchet, backend):
    id = ratchet("sandbox", "create", "--backend", backend, "--lifetime", "3600").stdout.decode().strip()
    assert ratchet("sandbox", "exec", id, "--", "sh", "-c", "echo kept > file; sleep 100 &").returncode == 0
    done = ratchet("sandbox", "exec", "--json", id, "--", "cat", "file")
    assert json.loads(done.stdout)["stdout"] == "kept\n"
    assert ratchet("sandbox", "exec", id, "exit 7").returncode == 7
    done = ratchet("sandbox", "exec", "--stdin", id, "--", "wc", "-c", stdin=b"\0" * 300_000)
    assert done.stdout.strip() == b"300000"
    late = ratchet("sandbox", "exec", "--json", "--timeout", "1", id, "--", "sleep", "60")
    assert json.loads(late.stdout)["timed_out"] and late.returncode == 137
    (row,) = [json.loads(line) for line in ratchet("sandbox", "list", "--json").stdout.splitlines()]
    assert (row["id"], row["backend"], row["state"]) == (id, backend, "standing") and 1800 < row["left"] <= 3600
    assert b"0 standing sandboxes" in ratchet("reap").stdout
    assert ratchet("sandbox", "reset", id).stdout.decode().strip() == id
    assert ratchet("sandbox", "exec", id, "--", "ls").stdout == b""
    assert ratchet("sandbox", "stop", "--all").stdout.decode().strip() == id
    assert ratchet("sandbox", "list").stdout == b""
    assert ratchet("sandbox", "exec", id, "--", "true").returncode == 2


def test_two_at_once_take_turns_and_a_stop_ends_what_runs(ratchet, backend):
    id = ratchet("sandbox", "create", "--backend", backend).stdout.decode().strip()
    command = [sys.executable, "-m", "ratchet.cli", "sandbox", "exec", id, "--"]
    line = "cat seen 2>/dev/null; echo x >> seen; sleep 1"
    both = [subprocess.Popen([*command, "sh", "-c", line], stdout=subprocess.PIPE) for _ in range(2)]
    assert sorted(each.communicate(timeout=LIMIT)[0] for each in both) == [b"", b"x\n"]
    sleep = ["sleep", str(secrets.randbelow(10**8) + 10**8)]
    slow = subprocess.Popen([*command, *sleep], stderr=subprocess.PIPE)
    until(lambda: sleep in [each.info["cmdline"] for each in psutil.process_iter(["cmdline"])])
    assert ratchet("sandbox", "stop", id).returncode == 0
    slow.communicate(timeout=LIMIT)
    assert slow.returncode in (4, 137)  # the sandbox has ended, or in time: its command was killed


def test_a_sandbox_ends_when_its_lifetime_is_over(ratchet):
    made = json.loads(ratchet("sandbox", "create", "--backend", "local", "--lifetime", "1", "--json").stdout)
    until(lambda: not list(persistent_sandboxes.recorded_sandboxes()))
    until(lambda: not (persistent_sandboxes.sandboxes_folder() / made["id"]).exists())


def test_a_killed_keeper_is_seen_and_reaped(ratchet, backend):
    made = json.loads(ratchet("sandbox", "create", "--backend", backend, "--json").stdout)
    os.kill(made["pid"], signal.SIGKILL)
    until(lambda: gone(made["pid"]))
    done = ratchet("sandbox", "exec", made["id"], "--", "true")
    assert done.returncode == 4 and b"has ended" in done.stderr and done.stderr.count(b"\n") == 1
    assert json.loads(ratchet("sandbox", "list", "--json").stdout)["state"] == "gone"
    dry = ratchet("reap", "--dry-run").stdout.decode()
    assert f"would remove sandbox {made['id']}" in dry and "1 standing sandboxes past their time found" in dry
    assert f"removed sandbox {made['id']}" in ratchet("reap").stdout.decode()
    assert ratchet("sandbox", "list").stdout == b""


@pytest.mark.docker
@pytest.mark.xdist_group("docker")
def test_a_sandbox_whose_container_ended_is_lost_and_says_so_until_it_is_made_new(ratchet):
    if image_problem(DEFAULT_IMAGE, 5.0):
        pytest.skip(f"no Docker engine answers that has {DEFAULT_IMAGE}; .ci/run starts one")
    made = json.loads(ratchet("sandbox", "create", "--backend", "docker", "--json").stdout)
    assert ratchet("sandbox", "exec", made["id"], "echo kept > file").returncode == 0
    found = docker_client(30.0).api.containers(filters={"label": f"{OWNER_LABEL}={made['owner']}"})
    for each in found:
        docker_client(30.0).api.kill(each["Id"])
    until(lambda: persistent_sandboxes.find_sandbox(made["id"]).state == "lost")
    assert json.loads(ratchet("sandbox", "list", "--json").stdout)["state"] == "lost"
    done = ratchet("sandbox", "exec", made["id"], "--", "ls")
    assert done.returncode == 4 and done.stdout == b"" and done.stderr.count(b"\n") == 1
    assert f"ratchet sandbox reset {made['id']}".encode() in done.stderr
    assert ratchet("sandbox", "reset", made["id"]).returncode == 0
    assert ratchet("sandbox", "exec", made["id"], "--", "ls").stdout == b""
    assert json.loads(ratchet("sandbox", "list", "--json").stdout)["state"] == "standing"


def test_a_sandbox_that_cannot_be_made_says_why_and_leaves_no_record(ratchet):
    done = ratchet("sandbox", "create", "--backend", "docker", "--image", "no/such:image")
    assert done.returncode in (2, 4) and done.stderr.startswith(b"error: ") and done.stderr.count(b"\n") == 1
    assert not list(persistent_sandboxes.sandboxes_folder().glob("*"))


def test_reap_removes_half_written_files_of_the_dead_alone(ratchet, tmp_path, monkeypatch):
    monkeypatch.setattr(
        "tempfile.tempdir", str(tmp_path)
    )  # other tests kill processes with files in that of the machine
    monkeypatch.chdir(tmp_path)
    spool = tmp_path / "home" / "spool" / "night"
    spool.mkdir(parents=True)
    dead, living = spool / f".shard-00000.jsonl.{dead_token()}.tmp", temporary_path(spool / "shard-00000.jsonl")
    for path in (dead, living):
        path.touch()
    (spool / "shard-00000.jsonl").touch()
    assert "would remove file" in ratchet("reap", "--dry-run").stdout.decode()
    assert len(list(spool.iterdir())) == 3
    out = ratchet("reap").stdout.decode()
    assert dead.name in out and "1 half-written files removed" in out
    assert sorted(each.name for each in spool.iterdir()) == [living.name, "shard-00000.jsonl"]


def test_reap_removes_the_folders_of_killed_local_sandboxes(tmp_path, monkeypatch):
    from ratchet.components.sandboxes import orphaned_resources

    left = tmp_path / "ratchet-sandboxes-left"
    (left / "1" / "workspace").mkdir(parents=True)
    served = tmp_path / "ratchet-sandboxes-served"
    served.mkdir()
    monkeypatch.setattr("tempfile.gettempdir", lambda: str(tmp_path))
    assert not list(orphaned_resources.orphaned_folders())
    old = time.time() - 1000
    for each in (left, served):
        os.utime(each, (old, old))
    with subprocess.Popen(["sleep", "60", str(served)], stderr=subprocess.DEVNULL) as process:
        script = "import sys, time; print(flush=True); time.sleep(60)"
        process.kill()
        owner = subprocess.Popen([sys.executable, "-c", script, str(served)], stdout=subprocess.PIPE)
        owner.stdout.readline()
        found = list(orphaned_resources.orphaned_folders())
        owner.kill()
        owner.wait()
    assert [each.name for each in found] == [str(left)]
    found[0].remove()
    assert not left.exists() and served.exists()


def test_reap_imports_nothing_heavy():
    script = "import sys; from ratchet import cli; cli.run(['reap']); print(*sys.modules, sep='\\n', file=sys.stderr)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    heavy = {"docker", "requests", "httpx", "prefect", "mlflow", "torch", "pandas", "numpy", "dvc"}
    assert not heavy & set(done.stderr.split())


@pytest.mark.docker
@pytest.mark.slow
@pytest.mark.xdist_group("docker")
def test_reap_removes_a_container_whose_owner_has_died(ratchet):
    if image_problem(DEFAULT_IMAGE, 5.0):
        pytest.skip(f"no Docker engine answers that has {DEFAULT_IMAGE}; .ci/run starts one")
    import docker

    from ratchet.components.core.processes import owner_label
    from ratchet.components.sandboxes.docker_engine import LABEL, OWNER_LABEL

    api = docker.from_env().api
    place = owner_label().rsplit("/", 2)[0]
    ended = subprocess.Popen(["true"])
    ended.wait()
    labels = {LABEL: "1", OWNER_LABEL: f"{place}/{ended.pid}/1"}

    def is_there(id):
        return id in {each["Id"] for each in api.containers(all=True)}

    def reaped(*options):
        """A container without an owner, and what was said of it: made again where another process's sweep was faster."""
        for _ in range(5):
            id = api.create_container(DEFAULT_IMAGE, ["sleep", "1000"], labels=labels)["Id"]
            said = ratchet("reap", *options).stdout.decode()
            if "removed container" in said or ("would remove container" in said and is_there(id)):
                break
        return id, said

    id, said = reaped("--dry-run")
    try:
        assert "would remove container" in said
        assert is_there(id)
        assert "removed container" in reaped()[1]
        assert not is_there(id)
    finally:
        if is_there(id):
            api.remove_container(id, force=True)


def test_envs_lists_what_is_registered_with_tools_and_tasksets(capsys):
    assert cli.run(["envs", "--json"]) == 0
    found = {each["id"]: each for each in map(json.loads, capsys.readouterr().out.splitlines())}
    assert found["ratchet/sandbox"]["tools"] == ["read_file", "edit_file", "bash", "grep", "submit"]
    assert "repair" in found["ratchet/sandbox"]["tasksets"] and found["ratchet/sandbox"]["domain"] == "coding"
    assert cli.run(["envs"]) == 0
    assert "ratchet/sandbox" in capsys.readouterr().out


def test_replay_exits_with_0_where_all_went_the_same_and_with_3_otherwise(tmp_path, capsys):
    import msgspec

    from ratchet.components.rollouts.collection import collect
    from ratchet.components.rollouts.collection_plan import CollectPlan

    plan = CollectPlan.load(
        {
            "taskset": "repair",
            "policy": "teacher",
            "limit": 2,
            "attempts": 1,
            "workers": 1,
            "sandbox": {"backend": "local"},
        }
    )
    collect(plan, tmp_path / "played")
    shard = next((tmp_path / "played").glob("shard-*.jsonl"))
    assert cli.run(["sandbox", "replay", str(shard), "--backend", "local", "--json"]) == 0
    reports = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert len(reports) == 2 and all(each["same"] for each in reports)

    from ratchet.components.trajectories.shards import read_jsonl

    first, second = read_jsonl(shard)
    changed = msgspec.structs.replace(
        first, outcome=Outcome(success=False, score=0.0, reason="tests_failed", terminated=True)
    )
    (tmp_path / "changed.jsonl").write_bytes(msgspec.json.Encoder().encode_lines([changed, second]))
    command = ["sandbox", "replay", str(tmp_path / "changed.jsonl"), "--backend", "local"]
    assert cli.run(command) == 3
    assert "outcome.success" in capsys.readouterr().out
    assert cli.run([*command, "--episode", second.episode_id]) == 0
    assert cli.run([*command, "--episode", "ep-none"]) == 2
    assert "holds no episode 'ep-none'" in capsys.readouterr().err
