"""Home: where local state lives. `RATCHET_HOME` moves it; the default is `.ratchet` where one stands."""

import os
from pathlib import Path


def home() -> Path:
    """The folder of local state, absolute. It need not exist yet."""
    return Path(os.environ.get("RATCHET_HOME") or ".ratchet").absolute()
