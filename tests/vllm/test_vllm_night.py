"""A whole night whose every episode is sampled by real vLLM, and whose server is killed in between."""

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil
import pytest
from small_project import make_night_small

pytestmark = pytest.mark.long

LIMIT = 3000.0
SERVED = {
    "collection: {tasks: 10, attempts: 2, temperature: 1.0, cohort_size: 150, workers: 2}": (
        "collection: {tasks: 10, attempts: 2, temperature: 1.0, cohort_size: 150, workers: 1, engine: vllm}\n"
        "vllm: {max_model_len: 1024}\npatience: 10"
    ),
    "cohort_size: 160, workers: 1}": "cohort_size: 160, workers: 1, engine: vllm}",
    "sandbox: {backend: auto}": "sandbox: {backend: local}",  # an engine may come and go on a machine that others use
}


def servers_of(night):
    """The vLLM servers that a process has started, oldest first."""
    found = []
    for process in night.children(recursive=True):
        try:
            command = process.cmdline()
            if "vllm.entrypoints.openai.api_server" in command and not any("process_guard" in word for word in command):
                found.append(process)
        except psutil.Error:
            continue
    return sorted(found, key=lambda process: process.create_time())


@pytest.fixture
def short_folder():
    """A temporary folder with a short path: a Unix socket's is at most 107 bytes long."""
    with tempfile.TemporaryDirectory(prefix="r-") as folder:
        yield Path(folder)


def kill_a_server_that_plays(night, temporary):
    """Kill the first vLLM server as soon as it has answered requests of the collection; return its process id."""
    end = time.monotonic() + LIMIT
    while time.monotonic() < end and night.poll() is None:
        log = "".join(path.read_text(errors="replace") for path in temporary.glob("ratchet-model-server-*.log"))
        if log.count("POST /v1/completions") > 3 and (servers := servers_of(psutil.Process(night.pid))):
            servers[0].kill()
            return servers[0].pid
        time.sleep(0.05)
    raise AssertionError("no vLLM server has answered before the night ended")


def test_a_night_is_sampled_by_vllm_and_outlives_its_server(tmp_path, short_folder):
    environment = os.environ | {"RATCHET_HOME": str(tmp_path / "my" / ".ratchet"), "TMPDIR": str(short_folder)}
    ratchet = [sys.executable, "-m", "ratchet.cli"]
    subprocess.run([*ratchet, "init", "my"], cwd=tmp_path, env=environment, check=True, capture_output=True)
    project = tmp_path / "my"
    make_night_small(project)
    scale = project / "scales" / "smoke.yaml"
    text = scale.read_text()
    for before, after in SERVED.items():
        assert before in text
        text = text.replace(before, after)
    scale.write_text(text)
    with (tmp_path / "night.log").open("w") as log:
        night = subprocess.Popen(
            [*ratchet, "night", "--json"], cwd=project, env=environment, text=True, stdout=subprocess.PIPE, stderr=log
        )
        try:
            killed = kill_a_server_that_plays(night, short_folder)
            out, _ = night.communicate(timeout=LIMIT)
        finally:
            if night.poll() is None:
                night.terminate()
                night.wait(60)
    said = (tmp_path / "night.log").read_text()
    assert night.returncode == 0, said[-3000:]
    decision = json.loads(out.splitlines()[-1])
    assert decision["verdict"] in ("promote", "keep", "undecided")

    episodes = [
        json.loads(line)
        for shard in (project / "data" / "rollouts").glob("*/shard-*.jsonl")
        for line in shard.read_text().splitlines()
    ]
    played = [episode for episode in episodes if episode["agent"]["policy"] == "vllm"]
    assert len(played) == 20 and len({episode["episode_id"] for episode in played}) == 20
    assert all(episode["failure"] is None for episode in played), killed
    agents = {
        json.loads(line)["agent"]["policy_version"]
        for shard in (project / ".ratchet" / "evaluations").glob("*/*/shard-*.jsonl")
        for line in shard.read_text().splitlines()
    }
    assert len(agents) == 3, "champion, challenger and control were served, each with its own weights"
    assert not psutil.pid_exists(killed) or not servers_of(psutil.Process())
