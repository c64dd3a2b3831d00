"""A data build of two stages that take moments: for promises about builds that no stage of ours has a part in."""

import shutil
import subprocess
from pathlib import Path

from episodes import night_of, write_night

DVC_YAML = """vars:
- data/build.yaml
stages:
  slow:
    cmd: cat data/rollouts/*/manifest.jsonl params.yaml > data/ranked.parquet; sleep {seconds}
    deps:
    - data/rollouts/{night}
    params:
    - rank
    - data/build.yaml:
      - nights
    outs:
    - data/ranked.parquet
  gate:
    cmd: >-
      echo '{{"episodes": 1, "quarantined": 0, "failed": {{}}}}' > data/quality_report.json;
      echo '{{"datasets": {{}}}}' > data/gate.json; cp params.yaml data/profile.json
    deps:
    - data/ranked.parquet
    params:
    - gate
    outs:
    - data/profile.json
    metrics:
    - data/quality_report.json
    - data/gate.json
"""


def small_build(root: Path, night: str = "n1", *, seconds: float = 0) -> Path:
    """A project with one sealed night; its first stage takes so many seconds."""
    for name in (".dvcignore", ".gitignore", ".dvc/config", ".dvc/.gitignore", "data/.gitignore"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(name, root / name)
    subprocess.run(["git", "init", "-q"], cwd=root, check=True)
    (root / "dvc.yaml").write_text(DVC_YAML.format(seconds=seconds, night=night))
    (root / "params.yaml").write_text("data:\n  rollouts: null\nrank: 1\ngate: 1\n")
    write_night(root / "data/rollouts" / night, night_of(2, 2))
    return root
