"""`benchmarks/localisation.py` keeps its bars on the bundled steps: what each layer finds, and what calibration mends."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.slow]
ROOT = Path(__file__).parents[3]


def run(*arguments):
    command = [sys.executable, "benchmarks/localisation.py", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)


@pytest.fixture(scope="module")
def found():
    result = run("--json")
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout)


def test_calibration_cuts_a_biased_judges_error_and_leaves_an_unbiased_one_alone(found):
    assert found["calibration"]["biased"]["cut"] >= 0.4
    assert found["calibration"]["unbiased"]["changed"] == 0


def test_every_scorer_is_measured_by_length_on_the_half_that_nothing_was_learned_from(found):
    rows = {each["scorer"]: each for each in found["rows"]}
    assert len({each["episodes"] for each in rows.values()}) == 1
    assert rows["rules"]["episodes"] < found["episodes"] and len(rows["rules"]["by_length"]) >= 3
    assert rows["rules"]["spared"] == 1.0  # the rules blame no right step
    assert (
        rows["rules + biased judge, calibrated"]["f1"] > rows["rules + biased judge, raw"]["f1"] > rows["rules"]["f1"]
    )
    assert rows["rules + unbiased judge, raw"]["auroc"] == 1.0


def test_the_learning_half_can_be_written_for_a_training_job(tmp_path, found):
    result = run("--write-learning", str(tmp_path / "half"))
    assert result.returncode == 0
    lines = (tmp_path / "half" / "episodes.jsonl").read_bytes().splitlines()
    assert len(lines) == found["episodes"] - found["rows"][0]["episodes"]
