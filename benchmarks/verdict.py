"""The end of a benchmark: its figures on standard output, a line for each bar that was missed, and the exit code."""

import json
import sys
from collections.abc import Callable, Sequence
from typing import Any


def conclude(figures: Any, table: Callable[[Any], str], missed: Sequence[str], *, as_json: bool) -> int:
    """Print `figures` as JSON or by `table`, then the lines of `missed`; return 1 if there are any, else 0."""
    print(json.dumps(figures, indent=2) if as_json else table(figures))
    for line in missed:
        print(f"missed: {line}", file=sys.stderr)
    return 1 if missed else 0
