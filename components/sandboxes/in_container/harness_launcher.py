"""Start a command with a loopback port that leads to a Unix socket. Runs inside a sandbox without a network.

Standard input holds JSON: `socket` and `port`, `files` to write first (text by path), `path` (folders that come first
in PATH) and `argv`; $HOME at the beginning of a path or argument is replaced. The command inherits the
environment and both outputs. Sent as text with egress_forwarder.py in front of it, whose class it uses.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

from .egress_forwarder import EgressForwarder


def launch() -> int:
    """Write the files, forward the port, run the command, and return its exit code."""
    job = json.load(sys.stdin)
    for name, text in job["files"].items():
        path = Path(_in_home(name))
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    os.environ["PATH"] = os.pathsep.join((*job["path"], os.environ["PATH"]))
    EgressForwarder(job["socket"], job["port"]).start()
    return subprocess.run([*map(_in_home, job["argv"])], stdin=subprocess.DEVNULL, check=False).returncode


def _in_home(word: str) -> str:
    return os.environ["HOME"] + word.removeprefix("$HOME") if word.startswith("$HOME/") else word
