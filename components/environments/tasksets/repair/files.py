"""Writing the taskset: compact JSONL by role, split so that no file reaches 1 MiB, `taskset.yaml`, and the card."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import msgspec
import yaml

from components.protocol import Role, TaskSpec

LARGEST = 1024 * 1024 - 1
VERSION = "1"
DESCRIPTION = "Short Python files with one fault on one line; a sentence says all that the function is meant to do."
GENERATOR = "components.environments.tasksets.repair"


def write_taskset(folder: Path, tasks: Mapping[Role, Sequence[TaskSpec]], *, seed: int, readme: str) -> None:
    """Write every file of the taskset; JSONL files of an earlier writing are removed."""
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.glob("*.jsonl"):
        old.unlink()
    for role, rows in tasks.items():
        parts = list(_parts(rows))
        for number, data in enumerate(parts, start=1):
            name = f"{role.value}.jsonl" if len(parts) == 1 else f"{role.value}-{number}.jsonl"
            (folder / name).write_bytes(data)
    head = {
        "name": "repair",
        "version": VERSION,
        "split_by": "instance",
        "domain": "coding",
        "generator": GENERATOR,
        "seed": seed,
        "counts": {role.value: len(rows) for role, rows in tasks.items()},
        "description": DESCRIPTION,
    }
    (folder / "taskset.yaml").write_text(yaml.safe_dump(head, sort_keys=False, width=120), encoding="utf-8")
    (folder / "README.md").write_text(readme, encoding="utf-8")


def _parts(rows: Sequence[TaskSpec]) -> Iterator[bytes]:
    encoder = msgspec.json.Encoder()
    part = bytearray()
    for row in rows:
        line = encoder.encode(row) + b"\n"
        if part and len(part) + len(line) > LARGEST:
            yield bytes(part)
            part.clear()
        part += line
    yield bytes(part)
