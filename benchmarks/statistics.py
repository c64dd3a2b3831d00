"""Statistics: how fast beside plain loops, how often wrong, how often an interval covers. One run, three tables.

- *speed*: the bootstrap of a mean (10,000 resamples of 1,000 values) and Welch's test (two arrays of 100,000), beside the same
  algorithms as loops over Python numbers, which is how the package that Ratchet comes after has them. (It is published without
  that part: the loops here are its algorithms, and its own stated times are printed too.) Both sides in turn, several rounds; the
  best of each counts. The loop of the bootstrap runs a twentieth of its resamples, and what they take is counted twentyfold.
- *false alarms*: how often two equal agents differ at .05, by test and by number of values. The exact tests stay at or below it at
  any number; the others lie within a point of it from 20 on.
- *coverage*: how often a 95 % interval holds the true mean, of normal, of skewed and of clustered values.

    python benchmarks/statistics.py [--rounds 4000] [--speed-only]

Exit code 1 where a bar is missed: the bootstrap 100 times as fast as the original's stated time, Welch 50 times (what they are
beside the loops depends on the machine: the bootstrap 95 to 120 times); false alarms and coverage as above (the intervals of
skewed and of few values are shown, not judged).
"""

import sys
from importlib.machinery import PathFinder
from importlib.util import module_from_spec
from pathlib import Path


def give_way() -> None:
    """Python finds this file where a benchmark asks for the standard library's `statistics`: put that in its place."""
    here = Path(__file__).resolve().parent
    spec = PathFinder.find_spec("statistics", [place for place in sys.path if Path(place).resolve() != here])
    if spec is None or spec.loader is None:
        raise ImportError("the standard library's statistics is not on the path; run the project's own Python")
    sys.modules["statistics"] = module = module_from_spec(spec)
    spec.loader.exec_module(module)


give_way()

if __name__ == "__main__":
    from statistics_measured import main

    raise SystemExit(main(__doc__ or ""))
