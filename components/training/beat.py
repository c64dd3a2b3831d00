"""A job's beat: one small file that says what it is doing, and since when it has not moved. Read by whoever watches the job."""

from pathlib import Path

import msgspec

FILE = "heartbeat.json"


class Beat(msgspec.Struct, frozen=True):
    """`at`: when it was written; `moved`: when the job last did something; both in seconds since the epoch."""

    at: float
    moved: float
    phase: str
    step: int = 0


def read(output: Path) -> Beat | None:
    """The last beat of the job in that folder; None where there is none."""
    try:
        return msgspec.json.decode((output / FILE).read_bytes(), type=Beat)
    except (OSError, msgspec.DecodeError):
        return None
