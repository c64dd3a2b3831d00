"""One training job in a process of its own: `python -m components.training.job CONFIG.json`.

Into its output folder go `metrics.jsonl` (a line per logged step), `checkpoint/` (model, tokenizer, template) and
`report.json`, the last thing written. A job whose report stands returns at once; a killed one goes on from its last saved
step. A failure leaves one line in `error.json`. No Prefect, MLflow or DVC is imported here.
"""

import contextlib
import importlib
import json
import os
import sys
from pathlib import Path
from typing import Any

import msgspec

from components.protocol import ConfigurationError, InfrastructureError, RatchetError

from .config import AnyJob, load_job
from .trainer import TrainReport

METHODS = {"sft": "sft_job", "dpo": "dpo.job", "grpo": "grpo.job", "prm": "prm.job"}
"""The module of each method: `train(config)` trains from the newest whole checkpoint on; `REPORT` is what that returns."""


def run(config: AnyJob) -> TrainReport:
    """Train, or return the report of the finished job. Raises RatchetError with one clear line."""
    finished, method = config.output / "report.json", _method(config)
    if finished.is_file():
        found: TrainReport = msgspec.json.decode(finished.read_bytes(), type=method.REPORT)
        return found
    config.output.mkdir(parents=True, exist_ok=True)
    (config.output / "error.json").unlink(missing_ok=True)
    report: TrainReport = method.train(config)
    temporary = finished.with_suffix(".tmp")
    temporary.write_bytes(msgspec.json.format(msgspec.json.encode(report)))
    temporary.replace(finished)
    return report


def _method(config: AnyJob) -> Any:
    name = f"{__package__}.{METHODS[config.method]}"
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not name.startswith(error.name):
            raise
        raise ConfigurationError(f"this version has no training by {config.method}; take another method") from error


def main(path: str) -> int:
    """Run the job of a configuration file; 0, or the error's exit code with its one line in `error.json`."""
    os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    config = load_job(Path(path))
    try:
        run(config)
    except OSError as error:
        return _failed(
            config.output, InfrastructureError(f"training in {config.output} stopped: {error}; free space and repeat")
        )
    except RatchetError as error:
        return _failed(config.output, error)
    return 0


def _failed(output: Path, error: RatchetError) -> int:
    print(f"error: {error}", file=sys.stderr)
    with contextlib.suppress(OSError):
        (output / "error.json").write_text(json.dumps({"message": str(error), "exit_code": error.exit_code}))
    return error.exit_code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
