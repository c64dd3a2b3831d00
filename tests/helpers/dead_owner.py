"""Names of files whose owner has ended."""

import subprocess

from ratchet.components.core.processes import owner_label, owner_token


def dead_token() -> str:
    """The token of a process that has ended."""
    ended = subprocess.Popen(["true"])
    ended.wait()
    _, start_time, place = owner_token().split("-")
    return f"{ended.pid}-{start_time}-{place}"


def dead_label() -> str:
    """The label of a process that has ended."""
    place, _, start_time = owner_label().rsplit("/", 2)
    return f"{place}/{dead_token().partition('-')[0]}/{start_time}"
