"""Home: where local state lives. `RATCHET_HOME` moves it; the default is `.ratchet` beside the repository's files."""

import os
from pathlib import Path


def home() -> Path:
    """The folder of local state, absolute. It need not exist yet."""
    return Path(os.environ.get("RATCHET_HOME") or ".ratchet").absolute()


def folder(*parts: str) -> Path:
    """A folder beneath `home()`, made where it is missing."""
    path = home().joinpath(*parts)
    path.mkdir(parents=True, exist_ok=True)
    return path
