"""`make gpu` runs every row in a process of its own, writes what it measured after each, and loses one row at most."""

import contextlib
import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest

from benchmarks import gpu

ROOT = Path(__file__).parents[2]
ROWS = {row.name: row for row in gpu.ROWS}


@pytest.fixture
def child(monkeypatch, tmp_path):
    """Replaces gpu_rows by these lines, and runs a row."""

    def run(lines, seconds=60.0, row="torch"):
        text = f"import json, sys\nfolder = sys.argv[2]\n{lines}\ndef main(): pass\n"
        (tmp_path / "gpu_rows.py").write_text(text)
        monkeypatch.setattr(gpu, "HERE", tmp_path)
        return gpu.run_row(ROWS[row], tmp_path, seconds, rehearse=False)

    return run


def test_a_row_without_its_packages_is_skipped_and_names_them(tmp_path):
    row = gpu.Row("sft", ("json", "no_such_package", "nor_this"), 60, 0.4)
    result = gpu.run_row(row, tmp_path, 60, rehearse=False)
    assert (result.status, result.reason, result.goal) == ("skipped", "not installed: no_such_package, nor_this", 0.4)


def test_a_row_without_time_is_skipped(child):
    assert child("raise SystemExit(1)", seconds=5).status == "skipped"


def test_a_row_that_crashes_gives_its_last_line_and_shows_its_output(child, capsys):
    row = child("print('some | thing')\nraise MemoryError('too large')")
    assert (row.status, row.reason) == ("failed", "MemoryError: too large")
    assert "torch: some | thing" in capsys.readouterr().err


def test_a_row_that_hangs_is_killed_with_what_it_started(child, tmp_path, capsys):
    lines = "import os, subprocess, time\np = subprocess.Popen(['sleep', '60'])\n"
    row = child(lines + "open(folder + '/pid', 'w').write(str(p.pid))\ntime.sleep(60)", seconds=10)
    assert (row.status, row.reason) == ("failed", "not done after 10 s")
    status = Path(f"/proc/{(tmp_path / 'pid').read_text()}/status")
    for _ in range(100):
        if not status.exists() or "State:\tZ" in status.read_text():
            return
        time.sleep(0.1)
    pytest.fail("the process that the row started still runs")


def test_a_row_without_the_hub_sees_one_gpu_and_this_clone(child, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3,4")
    lines = "import os\nnames = ('CUDA_VISIBLE_DEVICES', 'HF_HUB_OFFLINE', 'PYTHONPATH')\n"
    lines += "more = {os.environ[name]: 1.0 for name in names}\n"
    row = child(lines + "open(folder + '/torch.json', 'w').write(json.dumps({'more': more}))")
    device, offline, path = row.more
    assert (row.status, device, offline) == ("done", "3", "TRUE") and path.startswith(str(Path(gpu.HERE.parent)))


def test_an_mfu_below_its_goal_is_missed_and_one_that_is_unknown_is_not():
    shares = {0.41: False, 0.39: True, None: False}
    rows = [gpu.GpuRow(row="sft", status="done", goal=0.4, mfu=mfu) for mfu in shares]
    assert [row.is_missed for row in rows] == list(shares.values())


@pytest.mark.slow
def test_a_machine_without_a_gpu_is_told_so_in_one_line():
    pytest.importorskip("torch")
    command = [sys.executable, str(ROOT / "benchmarks" / "gpu.py")]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "CUDA_VISIBLE_DEVICES": ""})
    assert done.returncode == 4 and "finds no CUDA GPU" in done.stderr.splitlines()[-1]
    assert "--rehearse" in done.stderr.splitlines()[-1] and not done.stdout


def test_a_python_without_torch_is_told_so_in_one_line(tmp_path):
    command = [sys.executable, "-I", "-S", str(ROOT / "benchmarks" / "gpu.py")]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 4 and "has no torch and no transformers" in done.stderr
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize("file", sorted((ROOT / "benchmarks" / "results").glob("*.json")), ids=lambda path: path.stem)
def test_a_committed_file_of_results_is_of_a_gpu_and_keeps_the_schema(file):
    results = read(file)
    assert not results.rehearsal and results.driver
    assert all(row.commit and "dirty" not in row.commit for row in results.rows)
    assert [row.row for row in results.rows] == [name for name in ROWS if name in {row.row for row in results.rows}]


def read(path):
    """The results in a file, every field of which must be known and of its type."""
    results = msgspec.json.decode(path.read_bytes(), type=gpu.GpuResults)
    assert msgspec.to_builtins(results) == json.loads(path.read_bytes())
    assert results.schema_version == 1 and re.fullmatch(r"[a-z0-9-]+\.json", path.name)
    return results


def made(versions, *rows):
    return gpu.GpuResults(
        card="H100", memory_gib=80.0, driver="580", started="now", rehearsal=False, versions=versions, rows=list(rows)
    )


@pytest.mark.parametrize(("versions", "kept"), [({"torch": "2.11"}, ["sft", "grpo"]), ({"torch": "2.13"}, ["sft"])])
def test_a_run_of_some_rows_keeps_the_others_of_the_same_packages_alone(tmp_path, versions, kept):
    old = [gpu.GpuRow(row=name, status="failed", commit="a") for name in ("sft", "grpo")]
    made({"torch": "2.11"}, *old).write(tmp_path)
    results = made(versions)
    results.take_measured(tmp_path)
    results.take(gpu.GpuRow(row="sft", status="done", commit="b"))
    assert [row.row for row in results.rows] == kept
    assert [row.commit for row in results.rows] == ["b", "a"][: len(kept)]


@pytest.mark.slow
def test_every_row_runs_on_a_cpu_with_tiny_shapes(tmp_path):
    pytest.importorskip("trl")
    command = [
        sys.executable,
        str(ROOT / "benchmarks" / "gpu.py"),
        "--rehearse",
        "--out",
        str(tmp_path),
        "--budget",
        "1500",
    ]
    environment = {name: value for name, value in os.environ.items() if name != "RATCHET_VLLM_PYTHON"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr[-4000:]
    results = read(tmp_path / "cpu.json")
    assert results.rehearsal and results.versions["torch"]
    assert all(len(row.commit) >= 40 for row in results.rows)
    assert [row.row for row in results.rows] == list(ROWS)
    rows = {row.row: row for row in results.rows}
    skipped = {name for name, row in rows.items() if row.status == "skipped"}
    assert {"vllm", "sft_compile"} <= skipped <= {"vllm", "sft_liger", "sft_8bit", "sft_4bit", "sft_compile"}
    assert all(row.status == "done" for name, row in rows.items() if name not in skipped)
    assert rows["tests"].more["passed"] >= 10 and rows["tests"].more["failed"] == 0
    for name in rows.keys() - skipped - {"tests", "transfer"}:
        assert rows[name].tokens_per_second > 0 and rows[name].peak_gib > 0, name
    for name in ("sft", "dpo", "sft_lora", "grpo", "async"):
        assert rows[name].planned_gib > 0 and 100 < rows[name].more["length"] <= 512, name
    assert {"card_seconds", "host_gb_per_second", "disk_seconds"} < rows["transfer"].more.keys()
    assert rows["async"].more["weight_seconds"] > 0
    assert f"| async | {rows['async'].tokens_per_second:,.0f} |" in done.stdout


@pytest.mark.slow
def test_mfu_is_model_flops_over_the_peak_of_the_card(monkeypatch):
    pytest.importorskip("trl")
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    from benchmarks import gpu_rows

    monkeypatch.setattr(gpu_rows, "CUDA", True)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "NVIDIA H100 80GB HBM3")
    config = transformers.Qwen2Config(**gpu_rows.QWEN)
    layer = 896 * (896 + 2 * 128) + 896 * 896 + 3 * 896 * 4864  # multiplications of a token with matrices
    attention = 2 * 896 * 4096
    flops = 6 * (24 * (layer + attention) + 151_936 * 896)
    assert gpu_rows.mfu(config, 4096, 100_000) == pytest.approx(flops * 100_000 / 989e12)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "NVIDIA GeForce GTX 1080")
    assert gpu_rows.mfu(config, 4096, 100_000) is None


@pytest.mark.slow
def test_the_tokens_that_a_vllm_server_samples_are_counted(tmp_path, monkeypatch):
    pytest.importorskip("torch")
    from vllm_stand_in import serving

    from benchmarks import gpu_rows
    from ratchet.components.models import model_server, vllm_policy
    from ratchet.components.models.checkpoint_folders import checkpoint_version

    @contextlib.contextmanager
    def start(folder, *, python, arguments, start_seconds):
        with serving(folder) as server:
            served = SimpleNamespace(name=checkpoint_version(folder))
            yield SimpleNamespace(base_url=server.base_url, served=served)

    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    monkeypatch.setenv("RATCHET_VLLM_PYTHON", sys.executable)
    assert vllm_policy.ModelServer is model_server.ModelServer  # imported before it is replaced
    monkeypatch.setattr(model_server, "ModelServer", start)
    monkeypatch.setattr(gpu_rows, "timed", lambda action: action() or 2.0)  # seconds
    assert gpu_rows.vllm(gpu_rows.make_setting(tmp_path, True)) == {"tokens_per_second": 4 * 8 / 2}
