"""One training job in a process of its own: `python -m components.training.job CONFIG.json`.

Into its output folder go `metrics.jsonl` (a line per logged step), `checkpoint/` (model, tokenizer, template) and
`report.json`, the last thing written. A job whose report stands returns at once; a killed one goes on from its last saved
step. A failure leaves one line in `error.json`. No Prefect, MLflow or DVC is imported here.
"""

import contextlib
import json
import os
import sys
from pathlib import Path

import msgspec

from components.protocol import InfrastructureError, RatchetError

from .config import PrmConfig, TrainConfig, load_job
from .trainer import TrainReport


def run(config: TrainConfig | PrmConfig) -> TrainReport:
    """Train, or return the report of the finished job. Raises RatchetError with one clear line."""
    finished = config.output / "report.json"
    if finished.is_file():
        return msgspec.json.decode(finished.read_bytes(), type=_report_type(config))
    config.output.mkdir(parents=True, exist_ok=True)
    (config.output / "error.json").unlink(missing_ok=True)
    report = _train(config)
    temporary = finished.with_suffix(".tmp")
    temporary.write_bytes(msgspec.json.format(msgspec.json.encode(report)))
    temporary.replace(finished)
    return report


def _report_type(config: TrainConfig | PrmConfig) -> type[TrainReport]:
    if isinstance(config, PrmConfig):
        from .prm.job import PrmReport

        return PrmReport
    return TrainReport


def _train(config: TrainConfig | PrmConfig) -> TrainReport:
    if isinstance(config, PrmConfig):
        from .prm.job import train as train_prm

        return train_prm(config)
    from .sft_job import train

    return train(config)


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
