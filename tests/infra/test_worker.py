"""A worker prepares its project, its bucket and its deployment, or says in one line why it cannot."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[2] / "infra/worker"
pytestmark = pytest.mark.slow  # imports of the flow's modules


def prepare(folder: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    left_out = ("RATCHET_", "PREFECT_", "MLFLOW_", "AWS_")
    environment = {name: value for name, value in os.environ.items() if not name.startswith(left_out)}
    keys = {
        "AWS_ACCESS_KEY_ID": "a",
        "AWS_SECRET_ACCESS_KEY": "b",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_MAX_ATTEMPTS": "1",
    }
    command = [sys.executable, str(FOLDER / "prepare.py"), "nights"]
    return subprocess.run(
        command, cwd=folder, env=environment | keys | variables, capture_output=True, text=True, check=False
    )


def test_a_store_that_does_not_answer_is_said_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "dvc.yaml").touch()
    done = prepare(tmp_path, RATCHET_ARTIFACTS="s3://ratchet/artifacts", AWS_ENDPOINT_URL="http://127.0.0.1:9")
    assert done.returncode == 4 and len(done.stderr.splitlines()) == 1 and "AWS_ENDPOINT_URL" in done.stderr


def test_a_folder_with_files_of_a_project_but_no_pipeline_is_refused(tmp_path: Path) -> None:
    (tmp_path / "params.yaml").touch()
    done = prepare(tmp_path)
    assert done.returncode != 0 and len(done.stderr.splitlines()) == 1 and "params.yaml" in done.stderr


def test_the_workers_script_serves_the_pool_that_it_is_given_one_night_at_a_time(tmp_path: Path) -> None:
    for name in ("python", "prefect"):
        (tmp_path / name).write_text(f'#!/bin/sh\necho {name} "$@"\n')
        (tmp_path / name).chmod(0o755)
    command = ["sh", str(FOLDER / "start.sh"), "gpu", "--run-once"]
    done = subprocess.run(
        command, env={"PATH": f"{tmp_path}:{os.environ['PATH']}"}, capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines() == [
        f"python {FOLDER}/prepare.py gpu",
        "prefect worker start --type process --pool gpu --limit 1 --with-healthcheck --run-once",
    ]


def test_uv_accepts_the_defaults_of_the_image_s_build_arguments() -> None:
    text = (FOLDER / "Dockerfile").read_text()
    defaults = dict(re.findall(r"^ARG (UV_\w+)=(\S*)$", text, re.MULTILINE))
    assert "UV_OFFLINE" in defaults
    del defaults["UV_IMAGE"]
    command = [sys.executable, "-m", "uv", "pip", "list", "--quiet", "--python", sys.executable]
    done = subprocess.run(command, env=os.environ | defaults, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
