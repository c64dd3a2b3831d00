"""`benchmarks/training.py`: its bars, and that both sides of it train the same."""

import copy
import json
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("transformers")
ROOT = Path(__file__).parents[3]
SIDE = {"tokens_per_second": 1000.0, "of_trl": 0.99, "peak_gib": None}
FOUND = {
    "steps": {
        "sft": {"trl": {**SIDE, "of_trl": 1.0}, "ours": SIDE},
        "grpo": {"ours": dict(SIDE)},
        "parameters": 1_000_000,
    },
    "tools": {
        "trl": {"phase": 0.8, "step": 6.0},
        "ours": {"phase": 0.06, "step": 1.4},
        "phase_times": 13.3,
        "step_times": 4.3,
        "bound_times": 4.5,
        "of_bound": 0.95,
    },
}


@pytest.fixture
def benchmark(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    import training

    return training


def test_a_run_that_reaches_every_bar_misses_none(benchmark):
    assert benchmark.missed(FOUND) == []
    told = benchmark.table(FOUND, 989.0)
    assert "| sft | ours | 1,000 | 0.990 |" in told and "95% of it" in told


@pytest.mark.parametrize(
    ("place", "value", "said"),
    [
        (("steps", "sft", "ours", "of_trl"), 0.9, "sft: 0.900"),
        (("steps", "grpo", "ours", "of_trl"), 0.969, "grpo: 0.969"),
        (("tools", "phase_times"), 11.9, "the tool phase is 11.9"),
        (("tools", "of_bound"), 0.7, "70% of its bound"),
    ],
)
def test_each_bar_is_judged_by_itself(benchmark, place, value, said):
    found = copy.deepcopy(FOUND)
    section = found
    for name in place[:-1]:
        section = section[name]
    section[place[-1]] = value
    (line,) = benchmark.missed(found)
    assert said in line


@pytest.mark.long
def test_a_quick_run_finds_the_losses_of_trl_and_every_figure():
    """Without them it ends with an error of its own; what is judged here is no speed."""
    done = subprocess.run(
        [sys.executable, "benchmarks/training.py", "--quick", "--json"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode in (0, 1) and "Traceback" not in done.stderr, done.stderr[-2000:]
    found = json.loads(done.stdout)
    assert found["tools"]["phase_times"] > 4 and found["steps"]["grpo"]["ours"]["tokens_per_second"] > 0
