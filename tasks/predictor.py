"""Predictor: a step model reads a sealed night in a process of its own, so that torch and its memory end with it.

`python -m tasks.predictor JOB.json`, where JOB holds `model`, `rollouts`, `cache` and `answers`, a folder for
`judgements.jsonl` and, where it failed, `error.json`. What stands in the cache already is not read again.
"""

import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec

from components.protocol import RatchetError
from components.rewards.judge import JudgementCache
from components.rewards.judgement import FILE, Judgement
from components.trajectories.files import write_atomically
from components.trajectories.shards import read_folder

from .player import Failure


class Job(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which model reads what, and where its judgements go."""

    model: str
    rollouts: str
    cache: str
    answers: str


def main(path: Path) -> int:
    """Do the job; the exit code of the error where there is one."""
    job = msgspec.json.decode(path.read_bytes(), type=Job)
    answers = Path(job.answers)
    try:
        lines = msgspec.json.Encoder().encode_lines(list(_said(job)))
    except RatchetError as error:
        print(f"error: {error}", file=sys.stderr)
        write_atomically(answers / "error.json", msgspec.json.encode(Failure(str(error), error.exit_code)))
        return error.exit_code
    write_atomically(answers / FILE, lines)
    return 0


def _said(job: Job) -> Iterator[Judgement]:
    from components.training.prm.predict import StepModel, keys, predict

    model, cache = StepModel.load(Path(job.model)), JudgementCache(Path(job.cache))
    for trajectory in read_folder(Path(job.rollouts), verify=False):
        known = [each for key in keys(model.card, trajectory) if (each := cache.get(key)) is not None]
        if len(known) == len(keys(model.card, trajectory)):
            yield from known
            continue
        for judgement in predict(model, [trajectory]):
            cache.put(judgement)
            yield judgement


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
