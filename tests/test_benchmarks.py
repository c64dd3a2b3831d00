"""Every benchmark runs: the smallest form of each command in `benchmarks/` measures something, whether or not it keeps its bars."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FORMS = {
    "async_grpo": ["--steps", "3", "--staleness", "1"],
    "checkpoint_choice": ["--quick"],
    "credit": ["--seeds", "1"],
    "data": ["--quick"],
    "gpu": ["--rehearse", "--rows", "transfer"],
    "grpo": ["--steps", "1"],
    "inspector": ["--episodes", "500", "--requests", "20"],
    "localisation": ["--json"],
    "memory": ["--quick"],
    "nights": ["--nights", "0"],
    "prefix_sharing": ["--quick"],
    "promotion": ["--comparisons", "20", "--only", "nulls"],
    "receive": ["--seconds", "0.5", "--batch", "8"],
    "recipe_stages": [],
    "rewards": ["--quick"],
    "rollouts": ["--quick"],
    "sandbox": ["--quick", "--swerex", "absent"],
    "sandbox_concurrency": ["--quick"],
    "sanitising": ["--corpus", "corpus.jsonl"],
    "scale": ["--quick"],
    "statistics_accuracy": ["--speed-only"],
    "tracking": ["--quick"],
    "training": ["--quick", "--only", "format"],
    "trajectories": ["--quick"],
}
"""The arguments of the smallest form, by command."""
NEED_MORE = {
    "gateway": "anthropic",
    "flywheel": "a clone with a champion",
    "data_original": "the original's packages",
    "rewards_original": "the original's packages",
    "trajectories_original": "the original's packages",
    "sandbox_swerex": "swe-rex",
}
"""Commands that need what no test has: only that they can be compiled is shown."""
LONG = (
    "async_grpo",
    "checkpoint_choice",
    "credit",
    "data",
    "gpu",
    "grpo",
    "memory",
    "prefix_sharing",
    "sandbox",
    "tracking",
    "training",
)
"""Commands whose smallest form takes more than ten seconds of CPU."""


def test_every_command_has_its_smallest_form() -> None:
    commands = {path.stem for path in (ROOT / "benchmarks").glob("*.py") if "__main__" in path.read_text()}
    assert commands == {*FORMS, *NEED_MORE}


@pytest.mark.parametrize("name", NEED_MORE)
def test_a_command_that_needs_more_compiles(name: str) -> None:
    path = ROOT / f"benchmarks/{name}.py"
    compile(path.read_text(), str(path), "exec")


@pytest.mark.slow
@pytest.mark.parametrize("name", [pytest.param(name, marks=[pytest.mark.long] * (name in LONG)) for name in FORMS])
def test_a_command_runs_to_its_end(name: str, tmp_path: Path) -> None:
    (tmp_path / "corpus.jsonl").write_text(
        json.dumps({"text": "password=correct-horse-7", "secrets": ["correct-horse-7"]}) + "\n"
    )
    environment = {**os.environ, "RATCHET_HOME": str(tmp_path / "home"), "RATCHET_BENCH_DIR": str(tmp_path)}
    environment.pop("RATCHET_ORIGINAL", None)
    arguments = [str(tmp_path / word) if word.startswith("corpus.") else word for word in FORMS[name]]
    command = [sys.executable, str(ROOT / f"benchmarks/{name}.py"), *arguments]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    missed_a_bar = done.returncode == 1 and "Traceback" not in done.stderr
    assert done.returncode == 0 or missed_a_bar, done.stderr[-3000:]
    assert any(character.isdigit() for character in done.stdout)
