"""A job that is killed between its last save and its report, at whichever write, is finished without another step."""

import json
import shutil
import sys
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
import pytest

pytest.importorskip("trl")
pytestmark = pytest.mark.slow

import torch  # noqa: E402
from episodes import make_episode, turn  # noqa: E402
from grpo_player import Letters  # noqa: E402
from safetensors.torch import load_file  # noqa: E402
from small_model import called  # noqa: E402
from training_jobs import make_job  # noqa: E402
from transformers import TrainerCallback  # noqa: E402

from ratchet.components.training import job, run_trainer  # noqa: E402
from ratchet.components.training.checkpoint_io import checkpoint_step, newest_checkpoint  # noqa: E402

SHAPE = {"hidden": 16, "layers": 1, "heads": 2, "kv_heads": 1, "intermediate": 32, "vocabulary": 360, "context": 512}
USUAL = {"threads": 1, "precision": "float32", "warmup_steps": 0, "schedule": "constant"}
WRITES = {"open", "os.rename", "os.remove", "os.mkdir", "os.rmdir", "shutil.rmtree", "shutil.copytree"}
TIMES = ("seconds", "runtime", "per_second", "time")


@dataclass
class Writes:
    """Copies of a job's folder, one before each write in it from its last save on: what a kill there would leave."""

    folder: Path
    last: int
    copies: Path
    found: list[Path] = field(default_factory=list)
    active: bool = True
    saved: bool = False

    def hook(self, event, arguments):
        if not self.active or event not in WRITES or not isinstance(arguments[0], str | Path):
            return
        path = str(arguments[0])
        reading = event == "open" and isinstance(arguments[1], str) and not set(arguments[1]) & set("wax+")
        if reading or not path.startswith(str(self.folder)) or "heartbeat" in path:
            return
        self.active = False
        try:
            newest = newest_checkpoint(self.folder)
            self.saved = self.saved or (newest is not None and checkpoint_step(newest) == self.last)
            if self.saved:
                self.found.append(self.copies / str(len(self.found)))
                shutil.copytree(self.folder, self.found[-1], ignore=shutil.ignore_patterns("heartbeat*"))
        finally:
            self.active = True


RECORDING: list[Writes] = []
HOOKED: list[bool] = []


def hook(event, arguments):
    for each in RECORDING:
        each.hook(event, arguments)


def recorded(config, last, copies):
    """Run a job whose last save is that of step `last`; copies of its folder before each write from there on."""
    if not HOOKED:
        sys.addaudithook(hook)  # stays as long as the process
        HOOKED.append(True)
    writes = Writes(config.output, last, copies)
    RECORDING.append(writes)
    try:
        job.run(config)
    finally:
        RECORDING.clear()
    return writes.found


class Steps(TrainerCallback):
    made = 0

    def on_step_begin(self, args, state, control, **kwargs):
        Steps.made += 1


@pytest.fixture
def jobs(tmp_path, base, monkeypatch):
    """Makes a small job of a method; counts the steps of every job."""
    Letters.calls, Letters.break_at = 0, None
    usual = run_trainer.HeartbeatCallback
    monkeypatch.setattr(run_trainer, "HeartbeatCallback", type("Counting", (Steps, usual), {}))

    def made(method, name, **changes):
        start = None if method == "sft" and "lora" not in changes else base
        return make_job(method, output=tmp_path / name, **{**USUAL, **globals()[method](tmp_path, start), **changes})

    return made


def write(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def sft(folder, base):
    rows = [
        {"messages": [{"role": "user", "content": f"add {number}"}, called("submit")], "episode_id": f"e{number}"}
        for number in range(12)
    ]
    path = write(folder / "sft.jsonl", rows)
    return {
        "train": path,
        "validation": path,
        "shape": SHAPE,
        "batch_size": 4,
        "learning_rate": 2e-3,
        "max_length": 512,
    }


def dpo(folder, base):
    rows = [
        {
            "prompt": [{"role": "user", "content": f"add {number}"}],
            "chosen": [called("submit")],
            "rejected": [called("read_file", path="x")],
            "episode_ids": [f"a{number}", f"b{number}"],
            "level": "step",
            "margin": 0.3,
            "reason": "x",
        }
        for number in range(8)
    ]
    path = write(folder / "dpo.jsonl", rows)
    return {"train": path, "validation": path, "base": base, "batch_size": 4, "learning_rate": 1e-3, "max_length": 512}


def grpo(folder, base):
    return {
        "base": base,
        "batch_size": 16,
        "group_size": 8,
        "learning_rate": 2e-3,
        "player": "grpo_player:Letters",
        "sampling": {"max_new_tokens": 8, "max_episode_tokens": 64},
        "reward": {"grpo_player:letters": 1.0, "success": 0.0},
    }


def prm(folder, base):
    episodes = [
        make_episode(f"repair/t{number}", 0, success=number % 2 == 0, turns=(turn(0, "read_file"), turn(1, "submit")))
        for number in range(12)
    ]
    path = folder / "episodes.jsonl"
    path.write_bytes(msgspec.json.Encoder().encode_lines(episodes))
    return {
        "trajectories": (path,),
        "shape": SHAPE,
        "batch_size": 4,
        "learning_rate": 2e-3,
        "max_length": 256,
        "held_out": 0.4,
    }


def lines(config):
    """Each line of the metrics, but for how long things took."""
    found = [json.loads(line) for line in (config.output / "metrics.jsonl").read_text().splitlines()]
    return [{name: value for name, value in line.items() if not any(time in name for time in TIMES)} for line in found]


def report(config):
    found = json.loads((config.output / "report.json").read_bytes())
    return {
        name: value
        for name, value in found.items()
        if "seconds" not in name and "per_second" not in name and name not in ("checkpoint", "adapter")
    }


def weights(config):
    return load_file(config.output / "checkpoint" / "model.safetensors")


PLAIN = {"steps": 5, "save_every": 2, "evaluate_every": 3}
EARLY = {"steps": 30, "evaluate_every": 2, "patience": 2, "save_every": 50}
CASES = {
    "sft": ("sft", PLAIN),
    "sft, in the middle of an epoch": ("sft", PLAIN | {"steps": 4, "micro_batch": 2}),
    "sft, saved at the last step alone": ("sft", PLAIN | {"save_every": 50, "evaluate_every": 50}),
    "sft, ended early": ("sft", EARLY | {"learning_rate": 0.5}),
    "sft, adapters": ("sft", PLAIN | {"lora": {"r": 2}}),
    "dpo": ("dpo", PLAIN),
    "dpo, ended early": ("dpo", EARLY | {"learning_rate": 0.5}),
    "grpo": ("grpo", PLAIN),
    "grpo, ended early": ("grpo", EARLY | {"best_by": "reward", "patience": 1, "learning_rate": 0.3}),
    "grpo, several updates": ("grpo", {"steps": 4, "save_every": 2, "updates": 2}),
    "prm": ("prm", PLAIN),
    "prm, ended early": ("prm", EARLY | {"learning_rate": 0.5}),
}


QUICK = {"sft", "grpo"}


@pytest.mark.parametrize(
    ("method", "changes"),
    [pytest.param(*case, id=name, marks=() if name in QUICK else pytest.mark.long) for name, case in CASES.items()],
)
def test_a_kill_after_the_last_save_costs_no_step_and_changes_no_line(method, changes, jobs, tmp_path):
    steps = changes["steps"]
    if "patience" in changes:
        steps = job.run(jobs(method, "straight", **changes)).steps
        assert steps < 30, "the early end was not reached"
    config = jobs(method, "killed", **changes)
    copies = recorded(config, steps, tmp_path / "copies")
    undisturbed = lines(config), report(config), weights(config)
    seen = set()
    for copy in copies:
        names = sorted(str(path.relative_to(copy)) for path in copy.rglob("*"))
        state = "reported" if "report.json" in names else str([name for name in names if not name.startswith("saved")])
        if state in seen:
            continue
        seen.add(state)
        shutil.rmtree(config.output)
        shutil.copytree(copy, config.output)
        Steps.made = 0
        job.run(config)
        assert Steps.made == 0, f"{copy.name}: {Steps.made} steps more"
        assert (lines(config), report(config)) == undisturbed[:2], copy.name
        assert not (config.output / "saved").exists()
        assert all(torch.equal(each, undisturbed[2][name]) for name, each in weights(config).items())
    assert len(seen) > 3 and any((copy / "report.json").exists() for copy in copies)


@pytest.mark.parametrize(
    "method", ["grpo", *(pytest.param(name, marks=pytest.mark.long) for name in ("sft", "dpo", "prm"))]
)
def test_the_lines_of_a_job_that_was_killed_on_the_way_are_those_of_an_undisturbed_one(method, jobs, monkeypatch):
    changes = {"steps": 7, "save_every": 2, "evaluate_every": 3}
    straight, config = jobs(method, "straight", **changes), jobs(method, "killed", **changes)
    job.run(straight)
    for stop in (4, 6):

        def kill(self, args, state, control, stop=stop, **kwargs):
            if state.global_step == stop:
                raise KeyboardInterrupt

        with monkeypatch.context() as patched:
            patched.setattr(Steps, "on_step_end", kill, raising=False)
            with pytest.raises(KeyboardInterrupt):
                job.run(config)
    job.run(config)
    assert lines(config) == lines(straight) and report(config) == report(straight)
    assert all(torch.equal(each, weights(straight)[name]) for name, each in weights(config).items())


def test_a_moved_folder_still_ends_with_its_best_model(jobs, tmp_path):
    changes = EARLY | {"learning_rate": 0.5}
    straight = jobs("sft", "straight", **changes)
    steps = job.run(straight).steps
    config = jobs("sft", "killed", **changes)
    first = recorded(config, steps, tmp_path / "copies")[0]
    moved = jobs("sft", "moved", **changes)
    shutil.rmtree(config.output)
    shutil.copytree(first, moved.output)
    job.run(moved)
    assert all(torch.equal(each, weights(straight)[name]) for name, each in weights(moved).items())
