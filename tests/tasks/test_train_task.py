"""A training job under its task: what MLflow is told of it, what differs from a finished one, and that one that hangs is ended."""

import json
import sys
import time

import pytest
from training_jobs import make_job

from ratchet.components.core import InfrastructureError
from ratchet.components.reporting.progress_display import ProgressDisplay
from ratchet.components.tracking import training_log
from ratchet.components.training import job_process


@pytest.fixture(autouse=True)
def own_home(tmp_path, monkeypatch):
    monkeypatch.setenv("RATCHET_HOME", str(tmp_path / "home"))


def job(tmp_path, **changes):
    return make_job("sft", **{"output": tmp_path / "nights" / "n" / "out", "train": "t", "steps": 9, **changes})


def run_instead(tmp_path, monkeypatch, code):
    (script := tmp_path / "script.py").write_text(code)
    usual = job_process.run_job_process
    monkeypatch.setattr(
        job_process,
        "run_job_process",
        lambda command, **named: usual([sys.executable, str(script), command[-1]], **named),
    )


def test_every_figure_of_a_job_becomes_a_curve(tmp_path):
    lines = [
        {
            "step": 1,
            "total_steps": 9,
            "loss": 2.0,
            "reward": 0.1,
            "rewards/tests/mean": 0.5,
            "epoch": 0.1,
            "num_tokens": 9,
        },
        {"step": 2, "total_steps": 9, "eval_loss": 1.5, "eval_runtime": 3.0, "eval_steps_per_second": 1.0},
        {"step": 2, "total_steps": 9, "train_runtime": 9.0, "train_loss": 1.0, "total_flos": 5, "said": "words"},
    ]
    path = tmp_path / "metrics.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines) + '{"step": 3, "lo')
    assert training_log.metrics_history(path) == [
        ("train/loss", 2.0, 1),
        ("train/reward", 0.1, 1),
        ("train/rewards/tests/mean", 0.5, 1),
        ("train/validation_loss", 1.5, 2),
    ]
    assert training_log.metrics_history(tmp_path / "none") == []


def test_a_finished_job_differs_by_what_it_learned_not_by_how_it_was_run(tmp_path):
    one = job(tmp_path)
    assert job_process.changed_settings(one) == []
    one.output.mkdir(parents=True)
    (one.output / "config.json").write_text(one.model_dump_json())
    assert job_process.changed_settings(job(tmp_path, steps=3)) == [], "it has not finished"
    (one.output / "report.json").write_text("{}")
    assert job_process.changed_settings(job(tmp_path, threads=3, launch="ddp", heartbeat_seconds=1)) == []
    assert job_process.changed_settings(job(tmp_path, steps=3, lora={"r": 2})) == [
        "model.lora.alpha",
        "model.lora.dropout",
        "model.lora.r",
        "model.lora.targets",
        "optimization.steps",
    ]


HANGING = """
import json, pathlib, sys, time
output = pathlib.Path(json.loads(pathlib.Path(sys.argv[1]).read_text())["output"])
now = time.monotonic()
(output / "heartbeat.json").write_text(json.dumps({"at": now, "moved": now - 5000, "phase": "training", "step": 3}))
time.sleep(600)
"""


def test_a_job_that_hangs_is_ended_and_may_be_taken_up_again(tmp_path, monkeypatch):
    run_instead(tmp_path, monkeypatch, HANGING)
    with (
        pytest.raises(InfrastructureError, match=r"has not moved for 5\d\d\d s \(training, step 3\)") as told,
        ProgressDisplay() as d,
        d.step("train") as step,
    ):
        job_process.run_job(job(tmp_path), step)
    assert "\n" not in str(told.value)


LOGGING = """
import json, pathlib, sys, time
output = pathlib.Path(json.loads(pathlib.Path(sys.argv[1]).read_text())["output"])
time.sleep(0.5)
with (output / "metrics.jsonl").open("a") as file:
    file.write('{"step": 60, "total_steps": 90, "loss": 1.5}\\n')
time.sleep(0.5)
(output / "report.json").write_text("{}")
"""


class Shown(list):
    def update(self, done=None, total=None, remark=None):
        self.append((done, total, remark))


def test_a_job_that_was_killed_long_ago_is_resumed_and_not_taken_for_one_that_hangs(tmp_path, monkeypatch):
    run_instead(tmp_path, monkeypatch, LOGGING)
    config = job(tmp_path)
    config.output.mkdir(parents=True)
    long_ago = time.monotonic() - 50_000
    (config.output / "heartbeat.json").write_text(
        json.dumps({"at": long_ago, "moved": long_ago, "phase": "training", "step": 3})
    )
    assert job_process.run_job(config, Shown()) == {}


def test_a_resumed_job_shows_no_figures_of_before(tmp_path, monkeypatch):
    run_instead(tmp_path, monkeypatch, LOGGING)
    config = job(tmp_path)
    (config.output / "checkpoints").mkdir(parents=True)
    (config.output / "metrics.jsonl").write_text('{"step": 40, "total_steps": 90, "loss": 2.5}\n' * 2)
    monkeypatch.setattr(job_process, "newest_checkpoint", lambda output: output / "checkpoints")
    job_process.run_job(config, shown := Shown())
    assert shown[0] == (None, None, "resumes from its newest checkpoint")
    assert set(shown[1:]) == {(60, 90, "loss 1.500")}
