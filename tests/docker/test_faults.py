"""A thousand episodes while the engine restarts, containers are killed and freeze, and the model's server refuses.

The engine is the test's own: a second dockerd with folders, socket and containerd of its own. The collection is a process of
its own, as a night starts it.
"""

import contextlib
import json
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import msgspec
import psutil
import pytest
import yaml
from model_stand_in import completion, stand_in
from patience import until

from ratchet.components.core import Role, SandboxUnavailable, TaskSpec
from ratchet.components.sandboxes import SandboxConfig, docker_engine, persistent_sandboxes
from ratchet.components.sandboxes.sandbox_config import DEFAULT_IMAGE
from ratchet.components.trajectories.shards import read_folder

pytestmark = [pytest.mark.docker, pytest.mark.slow, pytest.mark.long, pytest.mark.xdist_group("docker")]

TASKS, ATTEMPTS = 250, 4
EPISODES = TASKS * ATTEMPTS
ROOT = Path(__file__).parents[2]
REFUSED = 0.01
"""Of the requests: an episode makes three."""


class Engine:
    """A Docker engine of our own, which may be stopped and started again."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.host = f"unix://{folder}/docker.sock"
        self.process: subprocess.Popen | None = None

    def start(self) -> None:
        own = {
            "--host": self.host,
            "--pidfile": f"{self.folder}/pid",
            "--data-root": f"{self.folder}/data",
            "--exec-root": f"{self.folder}/exec",
            "--containerd-namespace": self.folder.name,
            "--containerd-plugins-namespace": f"{self.folder.name}-plugins",
        }
        arguments = [part for pair in own.items() for part in pair]
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(
                ["dockerd", *arguments, "--bridge=none", "--iptables=false", "--ip6tables=false"],
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        for _ in range(600):
            with contextlib.suppress(Exception):
                self.client(2.0).ping()
                return
            if self.process.poll() is not None:
                break
            time.sleep(0.1)
        self.stop()
        raise RuntimeError((self.folder / "log").read_text()[-500:])

    def stop(self) -> None:
        if self.process is not None:
            self.process.terminate()
            try:
                self.process.wait(60)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()

    def client(self, timeout: float = 30.0):
        import docker

        return docker.DockerClient(base_url=self.host, timeout=timeout)

    def containers(self, *, running=False):
        """The sandboxes' containers."""
        return self.client().containers.list(all=not running, filters={"label": f"{docker_engine.LABEL}=1"})

    def processes(self):
        """Every process that belongs to it."""
        running = psutil.process_iter(["cmdline"])
        return [each for each in running if str(self.folder) in " ".join(each.info["cmdline"] or [])]


@pytest.fixture
def own_engine():
    if docker_engine.image_problem(DEFAULT_IMAGE, 5.0):
        pytest.skip(f"no Docker engine answers that has {DEFAULT_IMAGE}; .ci/run starts one")
    if os.geteuid() != 0 or shutil.which("dockerd") is None:
        pytest.skip("an engine of one's own needs dockerd and root")
    folder = Path(tempfile.mkdtemp(prefix="ratchet-faults-"))
    made = Engine(folder)
    try:
        made.start()
    except RuntimeError as error:
        shutil.rmtree(folder, ignore_errors=True)
        pytest.skip(f"a second engine cannot be started here: {error}")
    try:
        made.client(300.0).images.load(docker_engine.docker_client(300.0).images.get(DEFAULT_IMAGE).save(named=True))
        yield made
    finally:
        with contextlib.suppress(Exception):
            for each in made.containers():
                each.remove(force=True)
        made.stop()
        for each in made.processes():  # shims of containers that were frozen when their engine stopped
            with contextlib.suppress(psutil.Error):
                each.kill()
        subprocess.run(
            ["umount", "--lazy", folder / "data"], capture_output=True, check=False
        )  # onto itself, by dockerd
        shutil.rmtree(folder, ignore_errors=True)


def test_a_standing_sandbox_whose_engine_is_restarted_during_a_command_is_lost_and_says_so(
    own_engine, tmp_path, monkeypatch
):
    monkeypatch.setenv("RATCHET_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("DOCKER_HOST", own_engine.host)
    made = persistent_sandboxes.create_sandbox(SandboxConfig(backend="docker"), 600.0)
    try:
        assert persistent_sandboxes.run_command(made.id, "echo kept > file").exit_code == 0
        restarting = threading.Timer(1.0, lambda: (own_engine.stop(), own_engine.start()))
        restarting.start()
        with pytest.raises(SandboxUnavailable, match=f"ratchet sandbox reset {made.id}"):
            persistent_sandboxes.run_command(made.id, "sleep 600", timeout=600)
        restarting.join()
        with pytest.raises(SandboxUnavailable, match="was lost"):
            persistent_sandboxes.run_command(made.id, "ls")
        assert persistent_sandboxes.find_sandbox(made.id).state == "lost"
        persistent_sandboxes.reset_sandbox(made.id)
        assert persistent_sandboxes.find_sandbox(made.id).state == "standing"
        assert persistent_sandboxes.run_command(made.id, "ls").stdout == b""
    finally:
        persistent_sandboxes.stop_sandbox(made.id)


def write_taskset(folder):
    """Tasks that nothing but the world can make an agent fail: write a number into a file."""
    folder.mkdir()
    head = {"name": "numbers", "version": "1", "domain": "coding", "counts": {"audit": TASKS}, "split_by": "instance"}
    (folder / "taskset.yaml").write_text(yaml.safe_dump(head))
    rows = [
        TaskSpec(
            f"n{number}",
            "numbers",
            "f",
            "k",
            Role.AUDIT,
            "coding",
            f"Write {number} into answer.txt.",
            files={"answer.txt": "?\n"},
            editable=("answer.txt",),
            test_command="cat answer.txt",
            expected_output=(str(number),),
        )
        for number in range(TASKS)
    ]
    (folder / "audit.jsonl").write_bytes(msgspec.json.Encoder().encode_lines(rows))


class Model:
    """A model that never errs behind a server that does."""

    def __init__(self) -> None:
        self.dice = random.Random(3)
        self.refused = {429: 0, 500: 0}

    def __call__(self, handler) -> None:
        if self.dice.random() < REFUSED:
            status = self.dice.choice((429, 500))
            self.refused[status] += 1
            handler.reply(status, b'{"error": {"message": "not now"}}')
            return
        messages = handler.asked["messages"]
        turn = sum(message["role"] == "assistant" for message in messages)
        number = next(re.search(r"Write (\d+) into", each["content"]) for each in messages if each["role"] == "user")[1]
        moves = (
            ("bash", {"command": f"echo {number} > answer.txt"}),
            ("bash", {"command": "cat answer.txt"}),
            ("submit", {}),
        )
        name, arguments = moves[min(turn, 2)]
        function = {"name": name, "arguments": json.dumps(arguments)}
        message = {
            "role": "assistant",
            "content": "",
            "tool_calls": [{"id": f"c{turn}", "type": "function", "function": function}],
        }
        handler.reply(200, json.dumps(completion(message, "tool_calls")).encode())


class Chaos(threading.Thread):
    """For every 25 episodes one container is killed, or frozen now and then; half-way the engine is stopped and started."""

    def __init__(self, own: Engine, done) -> None:
        super().__init__(daemon=True)
        self.own = own
        self.done = done
        self.over = threading.Event()
        self.counts = {"killed": 0, "frozen": 0, "restarted": 0}
        self.dice = random.Random(5)

    def run(self) -> None:
        rounds = 0
        while not self.over.wait(0.2):
            if self.done() < 25 * rounds:
                continue
            rounds += 1
            if rounds == EPISODES // 25 // 2:
                self.own.stop()
                time.sleep(2)
                self.own.start()
                self.counts["restarted"] = 1
                continue
            with contextlib.suppress(Exception):  # a container may end before it is hit
                victim = self.dice.choice(self.own.containers(running=True))
                if rounds % 12 == 0:
                    victim.pause()
                    self.counts["frozen"] += 1
                else:
                    victim.kill()
                    self.counts["killed"] += 1


def test_a_thousand_episodes_survive_their_engine_their_containers_and_their_model(own_engine, tmp_path):
    write_taskset(tmp_path / "numbers")
    model = Model()
    with stand_in(otherwise=model) as server:
        config = {"base_url": server.base_url, "model": "perfect", "retries": 0, "timeouts": {"total": 20}}
        (tmp_path / "model.yaml").write_text(yaml.safe_dump(config))
        plan = {
            "taskset": str(tmp_path / "numbers"),
            "role": "audit",
            "policy": f"openai:{tmp_path / 'model.yaml'}",
            "attempts": ATTEMPTS,
            "concurrency": 16,
            "retries": 4,
            "timeouts": {"reset": 60, "act": 60, "step": 20, "grade": 60, "close": 20},
            "sandbox": {"backend": "docker", "memory_mb": 64, "max_containers": 12, "start_timeout": 30},
        }
        answers = tmp_path / "answers"
        answers.mkdir()
        job = tmp_path / "job.json"
        job.write_text(json.dumps({"plan": plan, "folder": str(tmp_path / "out"), "answers": str(answers)}))

        def done():
            with contextlib.suppress(OSError, ValueError):
                return json.loads((answers / "progress.json").read_bytes())["done"]
            return 0

        with (tmp_path / "log").open("wb") as log:
            player = psutil.Popen(
                [sys.executable, "-m", "ratchet.components.rollouts.collect_job", str(job)],
                cwd=ROOT,
                env={**os.environ, "DOCKER_HOST": own_engine.host},
                stdout=log,
                stderr=log,
            )
        chaos = Chaos(own_engine, done)
        chaos.start()
        try:
            code = player.wait(900)
        finally:
            chaos.over.set()
            chaos.join(90)
            if player.is_running():
                player.kill()
    assert code == 0, (tmp_path / "log").read_text()[-2000:]
    report = json.loads((answers / "report.json").read_bytes())
    records = list(read_folder(tmp_path / "out"))
    assert len(records) == len({each.episode_id for each in records}) == report["episodes"] == EPISODES
    for each in records:
        if each.failure is None:
            assert each.outcome.success and each.outcome.score == 1.0, f"scored for a fault: {each.outcome}"
        else:
            assert each.outcome.success is None and each.outcome.score is None
    assert report["infrastructure_failures"] <= EPISODES * 0.05
    assert chaos.counts["restarted"] == 1 and chaos.counts["killed"] >= 3 and all(model.refused.values())
    assert sum(report["retried"].values()) >= 20, report["retried"]
    assert {"SandboxUnavailable", "ModelUnavailable"} <= set(report["retried"])
    print(f"{report['seconds']:.0f} s; retried {report['retried']}; {chaos.counts}; refused {model.refused}")
    until(lambda: not own_engine.containers())
    assert not [each for each in psutil.process_iter(["cmdline"]) if str(job) in (each.info["cmdline"] or [])]
