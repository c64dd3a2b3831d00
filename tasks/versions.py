"""The data's versions: the build by DVC, sealed nights, tags. Placeholder until components.versioning stands."""

from pathlib import Path
from typing import Any


def add_night(night: str) -> None: ...


def run_build(nights: list[str] | None, *, scale: str, seed: int, as_of: str) -> dict[str, Any]: ...


def publish_night(night: str, decision: Path) -> dict[str, Any]: ...
