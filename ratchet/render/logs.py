"""Print the last lines of the logs in a home, each line behind the name of its log, and follow them."""

import time
from collections import deque
from collections.abc import Sequence
from pathlib import Path

from ratchet.components.core import ConfigurationError
from ratchet.components.core.home import home
from ratchet.flows.services import SERVICES, Service
from ratchet.flows.supervision import SUPERVISOR
from ratchet.render.terminal import print_text

POLL_SECONDS = 0.5
"""Seconds between two looks at the files that are followed."""


def print_logs(name: str, lines: int, *, follow: bool) -> None:
    """Print the last `lines` of each log whose name begins with `name` (empty: of the services), oldest log first; with
    `follow` go on until interrupted. Raises ConfigurationError where there is none.
    """
    paths = sorted((home() / "logs").glob("*.log"), key=lambda path: path.stat().st_mtime)
    services = {SUPERVISOR, *(Service(service).log.stem for service in SERVICES)}
    chosen = [path for path in paths if (path.name.startswith(name) if name else path.stem in services)]
    if not chosen:
        names = ", ".join(sorted(path.stem for path in paths)[-10:]) or "none"
        what = f"no log begins with '{name}'" if name else "no service has run here; `ratchet up` starts them"
        raise ConfigurationError(f"{what}; logs in {home() / 'logs'}: {names}")
    width = max(len(path.stem) for path in chosen)
    offsets = {}
    for path in chosen:
        with path.open("rb") as file:
            _print(path, width, list(deque(file, lines)))
            offsets[path] = file.tell()
    while follow:
        time.sleep(POLL_SECONDS)
        for path in chosen:
            offsets[path] = _print_new(path, width, offsets[path])


def _print_new(path: Path, width: int, offset: int) -> int:
    """Print the whole lines after `offset`, and return the offset behind them. A log that was rotated begins anew."""
    try:
        with path.open("rb") as file:
            file.seek(offset if path.stat().st_size >= offset else 0)
            offset, content = file.tell(), file.read()
    except FileNotFoundError:  # between two steps of its rotation
        return 0
    whole = content[: content.rfind(b"\n") + 1]
    _print(path, width, whole.splitlines())
    return offset + len(whole)


def _print(path: Path, width: int, lines: Sequence[bytes]) -> None:
    for line in lines:
        print_text(f"{path.stem:<{width}} | {line.decode('utf-8', 'replace').rstrip()}")
