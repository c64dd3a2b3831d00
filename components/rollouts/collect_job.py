"""Run one collection in a process of its own, so that its memory and threads end with it.

`python -m ratchet.components.rollouts.collect_job JOB.json`, where JOB holds `plan`, `folder` (for the episodes),
`answers`: a folder for `progress.json`, `report.json` and, on failure, `error.json`, and `cohort` to play only one.
"""

import sys
from pathlib import Path

import msgspec

from ratchet.components.core import InfrastructureError, RatchetError
from ratchet.components.core.files import write_json
from ratchet.components.core.processes import JobFailure
from ratchet.components.core.run_context import log_to_stderr
from ratchet.components.rollouts.collection import collect
from ratchet.components.rollouts.collection_plan import CollectPlan

JOB_FILE, PROGRESS_FILE = "job.json", "progress.json"


class CollectJob(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The contents of JOB.json: the values of a CollectPlan, the two folders, and what is collected, for people."""

    plan: dict[str, object]
    folder: str
    answers: str
    title: str = ""
    cohort: int | None = None


def main(path: Path) -> int:
    """Run the job described in the file JOB.json, write its answer files, and return the exit code (0 on success)."""
    log_to_stderr()
    job = msgspec.json.decode(path.read_bytes(), type=CollectJob)
    answers = Path(job.answers)
    try:
        report = collect(
            CollectPlan.load(job.plan),
            Path(job.folder),
            cohort=job.cohort,
            # Not durable: it is written five times a second, and worthless after a crash.
            on_progress=lambda progress: write_json(answers / PROGRESS_FILE, progress, durable=False),
        )
    except OSError as error:
        failure: RatchetError = InfrastructureError(
            f"collecting into {job.folder} stopped: {error}; free space and repeat"
        )
    except RatchetError as error:
        failure = error
    else:
        write_json(answers / "report.json", report)
        return 0
    print(f"error: {failure}", file=sys.stderr)
    write_json(answers / "error.json", JobFailure(str(failure), failure.exit_code))
    return failure.exit_code


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
