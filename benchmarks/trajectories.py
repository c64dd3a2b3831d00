"""Trajectories: reading, writing, storing, sanitising and asking, beside the packages that Ratchet comes after. One run, one table.

The same 2,000 episodes (250 tasks, 20 steps, outputs of 300 characters) are written in both formats. Both sides do the same work in
turn, three rounds, and the best of each counts: other work on the machine only ever adds.

- *read and write*: a file into another, record by record, as a conversion or a filter does. *Read* alone: into a list. *Write*
  alone: from a list into one file of lines; much of that is the kernel's copying, which both sides pay. Neither side brings the
  file onto the disk, which the original never does. *Write, as sealed shards*: durable, with hashes and a manifest.
- *store*: an empty store, every episode put. Durable on both sides when the call returns: the other commits each record, ours
  each batch of 500 (`put` returns after fsync of the records and of the index). *As they are*, and *sanitised on the way*.
  Of the other the first 300 count for all: each takes as long as the last.
- *sanitise*: megabytes a second over outputs of tools, of which each hundredth holds something of the tests' labelled corpus; on
  that corpus the share of the secrets that are gone (recall), and of what was taken out that was a secret (precision). *The
  corpus alone* is nothing but secrets and look-alikes, a line each. Patterns are compiled before.
- *query*: 100,000 episodes in a store; each query answered five times from a fresh connection, the median counts.

    python -m venv ORIGINAL && ORIGINAL/bin/pip install knowlyr-recorder knowlyr-hub
    python benchmarks/trajectories.py --original ORIGINAL/bin/python [--json] [--quick]

`RATCHET_ORIGINAL` names that Python, too. Without it only our side is measured. The published packages (0.1.2) lack the store and
the sanitiser of their source: where that Python has these from a checkout they are measured, else what was measured of them on
two cores stands there, marked. Exit code 1 where a bar is missed: 4 times for reading and for reading with writing, 15 for the
store, 5 for sanitising at recall 0.99 and precision 0.98, 50 ms for a query.
"""

import argparse
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
from trajectories_made import ours, recorded

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "helpers"))

from verdict import conclude

from ratchet.components.interop import reader_registry
from ratchet.components.interop.trajectory_writers import line_encoder
from ratchet.components.redaction import sanitise
from ratchet.components.rewards.annotation_records import WHOLE
from ratchet.components.rewards.score_table import ScoreRow, write_parquet
from ratchet.components.trajectories.shards import read_jsonl, write_shard
from ratchet.components.trajectories.store.store_reader import EpisodeQuery, TrajectoryStore
from ratchet.components.trajectories.store.store_writer import StoreWriter
from ratchet.components.trajectories.trajectory import Trajectory

PEER = Path(__file__).parent / "trajectories_original.py"
EPISODES, STEPS, OUTPUT = 2_000, 20, 300
STORED, THEIRS_STORED, SHARD = 100_000, 300, 500
BARS = {"read and write": 4.0, "read": 4.0, "store, as they are": 15.0, "sanitise": 5.0}
STATED = {"store": 702.0, "sanitise": 3.85}
"""Of the original's source: episodes a second into its store, megabytes a second of its sanitiser."""
BAR_RECALL, BAR_PRECISION, BAR_QUERY = 0.99, 0.98, 0.050


def timed(call: Callable[[], Any]) -> float:
    """Seconds of one call."""
    begin = time.perf_counter()
    call()
    return time.perf_counter() - begin


def lines(path: Path, records: Iterable[Trajectory]) -> None:
    """Write records as lines."""
    encode = line_encoder("ratchet")
    with path.open("wb") as file:
        for record in records:
            file.write(encode(record))


def shards(folder: Path, records: Sequence[Trajectory]) -> None:
    """Write records as sealed shards."""
    folder.mkdir(parents=True)
    for index, start in enumerate(range(0, len(records), SHARD)):
        write_shard(folder, index, records[start : start + SHARD])


def put(folder: Path, records: Sequence[Trajectory], *, raw: bool) -> None:
    """Put every record into a new store."""
    with StoreWriter(folder, raw=raw) as store:
        tally = store.put(records)
    assert tally.added == len(records), tally


def our_round(
    scratch: Path, file: Path, records: Sequence[Trajectory], texts: Sequence[str], corpus: Sequence[str]
) -> dict[str, float]:
    """Seconds of each operation, once."""
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir()
    return {
        "read and write": timed(lambda: lines(scratch / "copy.jsonl", read_jsonl(file))),
        "read": timed(lambda: list(read_jsonl(file))),
        "read, format recognised": timed(lambda: list(reader_registry.read_log(file))),
        "write": timed(lambda: lines(scratch / "out.jsonl", records)),
        "write, as sealed shards": timed(lambda: shards(scratch / "shards", records)),
        "store, as they are": timed(lambda: put(scratch / "raw", records, raw=True)),
        "store, sanitised": timed(lambda: put(scratch / "clean", records, raw=False)),
        "sanitise": timed(lambda: [sanitise(text) for text in texts]),
        "sanitise, the corpus alone": timed(lambda: [sanitise(text) for text in corpus]),
    }


def their_round(python: str, job: Path) -> dict[str, Any]:
    """The same of the original's packages, in a process of their own environment."""
    done = subprocess.run([python, str(PEER), str(job)], capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"the original's packages do not run with {python}: {done.stderr.strip().splitlines()[-1:]}")
    figures: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return figures


def quality(labelled: Sequence[tuple[str, str | None]], cleaned: Sequence[str]) -> dict[str, float]:
    """Recall and precision: a secret is found where it is gone; a look-alike is mistaken for one where its text has changed."""
    hits = sum(secret is not None and secret not in after for (_, secret), after in zip(labelled, cleaned, strict=True))
    mistaken = sum(
        secret is None and before != after for (before, secret), after in zip(labelled, cleaned, strict=True)
    )
    secrets = sum(secret is not None for _, secret in labelled)
    return {"recall": hits / secrets, "precision": hits / (hits + mistaken) if hits + mistaken else 0.0}


def queries() -> dict[str, EpisodeQuery]:
    """What people ask."""
    return {
        "one task": EpisodeQuery(task="task-007"),
        "one policy, newest 50": EpisodeQuery(policy="policy-1", order="-time", limit=50),
        "best 20 by reward": EpisodeQuery(order="-reward", limit=20),
        "reward in a band, one domain": EpisodeQuery(domain="coding", min_reward=0.3, max_reward=0.31, limit=500),
        "two days, successes": EpisodeQuery(since="2026-02-03", until="2026-02-05", success=True, limit=500),
        "best 100 by quality": EpisodeQuery(order="-quality", limit=100),
        "one source": EpisodeQuery(source="ratchet", limit=100),
    }


class Rank(NamedTuple):
    """A row of the ranked table."""

    episode_id: str
    gdi: float


def asked(scratch: Path, episodes: int) -> dict[str, Any]:
    """Milliseconds of each query over a store of so many episodes with rewards and qualities."""
    folder = scratch / "large"
    shutil.rmtree(folder, ignore_errors=True)
    random_ = random.Random(11)
    scores: list[ScoreRow] = []
    ranks: list[Rank] = []

    def small() -> Iterator[Trajectory]:
        for number, record in enumerate(recorded(episodes, 1, 40)):
            trajectory = ours(number, record)
            scores.append(ScoreRow(trajectory.episode_id, WHOLE, WHOLE, "total", "bench", random_.random()))
            ranks.append(Rank(trajectory.episode_id, random_.random()))
            yield trajectory

    with StoreWriter(folder, raw=True) as store:
        filling = timed(lambda: store.put(small()))
        write_parquet(scratch / "scores.parquet", ScoreRow, scores)
        store.attach_table(scratch / "scores.parquet")
        write_parquet(scratch / "ranks.parquet", Rank, ranks)
        store.attach_table(scratch / "ranks.parquet")
    figures = {}
    for name, query in queries().items():
        best = []
        for _ in range(5):
            fresh = TrajectoryStore(folder)
            best.append(timed(lambda fresh=fresh, query=query: fresh.query(query)))
            rows = len(fresh.query(query))
            fresh.close()
        figures[name] = {"milliseconds": sorted(best)[2] * 1000, "worst_milliseconds": max(best) * 1000, "rows": rows}
    return {"episodes": episodes, "filling_seconds": filling, "queries": figures}


def measure(python: str | None, *, quick: bool) -> dict[str, Any]:
    """Every figure."""
    from secrets_corpus import labelled_texts

    episodes, rounds = (200, 1) if quick else (EPISODES, 3)
    labelled = labelled_texts()
    with tempfile.TemporaryDirectory(dir=os.environ.get("RATCHET_BENCH_DIR")) as name:
        scratch = Path(name)
        theirs = list(recorded(episodes, STEPS, OUTPUT))
        records = [ours(number, record) for number, record in enumerate(theirs)]
        their_file, our_file = scratch / "recorded.jsonl", scratch / "ours.jsonl"
        their_file.write_bytes(b"".join(msgspec.json.encode(record) + b"\n" for record in theirs))
        our_file.write_bytes(b"".join(msgspec.json.encode(record) + b"\n" for record in records))
        corpus = [sample for sample, _ in labelled]
        texts = [step["tool_result"]["output"] for record in theirs for step in record["steps"]]
        texts = [f"{text}\n{corpus[i % len(corpus)]}" if i % 100 == 0 else text for i, text in enumerate(texts)]
        job = scratch / "job.json"
        (scratch / "texts.json").write_text(json.dumps(texts))
        job.write_text(
            json.dumps(
                {
                    "scratch": str(scratch / "theirs"),
                    "records": str(their_file),
                    "texts": str(scratch / "texts.json"),
                    "labelled": corpus,
                    "episodes": episodes,
                    "stored": THEIRS_STORED,
                }
            )
        )
        for text in corpus:
            sanitise(text)
        our_seconds: list[dict[str, float]] = []
        their_seconds: list[dict[str, Any]] = []
        for _ in range(rounds):
            our_seconds.append(our_round(scratch / "ours", our_file, records, texts, corpus))
            if python is not None:
                their_seconds.append(their_round(python, job))
        work = {name: float(episodes) for name in PAIRS}
        work["sanitise"] = sum(len(text.encode()) for text in texts) / 1e6
        work["sanitise, the corpus alone"] = sum(len(text.encode()) for text in corpus) / 1e6
        figures = {"episodes": episodes, "rounds": rounds, "rates": rates(our_seconds, their_seconds, work)}
        figures["quality"] = {"ours": quality(labelled, [sanitise(sample).text for sample, _ in labelled])}
        if their_seconds and "cleaned" in their_seconds[-1]:
            figures["quality"]["original"] = quality(labelled, their_seconds[-1]["cleaned"])
        figures["bytes_of_an_episode"] = {
            "ours": our_file.stat().st_size // episodes,
            "original": their_file.stat().st_size // episodes,
        }
        figures["large"] = asked(scratch, 5_000 if quick else STORED)
    return figures


PAIRS = {
    "read and write": "copy",
    "read": "read",
    "read, format recognised": "read",
    "write": "write",
    "write, as sealed shards": "write",
    "store, as they are": "store",
    "store, sanitised": "store_sanitised",
    "sanitise": "sanitise",
    "sanitise, the corpus alone": "sanitise_corpus",
}
"""Our operations, and which of the original's stands beside each."""


def rates(
    our_seconds: Sequence[dict[str, float]], their_seconds: Sequence[dict[str, Any]], work: dict[str, float]
) -> dict[str, dict[str, Any]]:
    """Episodes or megabytes a second, of the best rounds. `stated`: the original's was not measured in this run."""
    rows = {}
    for name, theirs in PAIRS.items():
        rate = work[name] / min(seconds[name] for seconds in our_seconds)
        measured = [seconds[theirs] for seconds in their_seconds if theirs in seconds]
        other = work[name] / min(measured) if measured else STATED.get(theirs)
        rows[name] = {
            "ours": rate,
            "original": other,
            "stated": not measured,
            "times": None if other is None else rate / other,
        }
    return rows


def table(figures: dict[str, Any]) -> str:
    """The figures for a person."""
    size = figures["bytes_of_an_episode"]
    lines = [
        f"{figures['episodes']:,} episodes of {STEPS} steps ({size['ours']:,} bytes each in our format, {size['original']:,} in "
        f"the original's), best of {figures['rounds']} rounds",
        "| | ours | original | times |",
        "|---|---|---|---|",
    ]
    for name, row in figures["rates"].items():
        unit = "MB/s" if name.startswith("sanitise") else "episodes/s"
        other = "not measured" if row["original"] is None else f"{row['original']:,.4g} {unit}"
        other += " (stated)" if row["stated"] and row["original"] is not None else ""
        times = "-" if row["times"] is None else f"{row['times']:.1f}"
        lines.append(f"| {name} | {row['ours']:,.4g} {unit} | {other} | {times} |")
    for name in ("recall", "precision"):
        cells = [
            figures["quality"][side][name] if side in figures["quality"] else None for side in ("ours", "original")
        ]
        lines.append(
            f"| {name} | " + " | ".join("not measured" if cell is None else f"{cell:.3f}" for cell in cells) + " | |"
        )
    large = figures["large"]
    lines += [
        "",
        f"{large['episodes']:,} episodes in a store (filled in {large['filling_seconds']:.1f} s)",
        "| query | rows | median ms | worst ms |",
        "|---|---|---|---|",
    ]
    for name, row in large["queries"].items():
        lines.append(f"| {name} | {row['rows']:,} | {row['milliseconds']:.1f} | {row['worst_milliseconds']:.1f} |")
    return "\n".join(lines)


def missed(figures: dict[str, Any]) -> list[str]:
    """The bars that were missed, a line each."""
    lines = []
    for name, bar in BARS.items():
        times = figures["rates"][name]["times"]
        if times is not None and times < bar:
            lines.append(f"{name}: {times:.1f} times the original; the bar is {bar:g}")
    ours_ = figures["quality"]["ours"]
    for name, bar in (("recall", BAR_RECALL), ("precision", BAR_PRECISION)):
        if ours_[name] < bar:
            lines.append(f"sanitise: {name} {ours_[name]:.3f}; the bar is {bar:g}")
        if "original" in figures["quality"] and ours_[name] < figures["quality"]["original"][name]:
            lines.append(f"sanitise: {name} {ours_[name]:.3f} is below the original's")
    for name, row in figures["large"]["queries"].items():
        if row["milliseconds"] > BAR_QUERY * 1000:
            lines.append(f"query '{name}': {row['milliseconds']:.1f} ms; the bar is {BAR_QUERY * 1000:.0f}")
    return lines


def main() -> int:
    """Measure, print, judge."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--original", default=os.environ.get("RATCHET_ORIGINAL"), help="the Python with the original's packages"
    )
    parser.add_argument("--json", action="store_true", help="the figures as JSON")
    parser.add_argument("--quick", action="store_true", help="a tenth of the work, once")
    arguments = parser.parse_args()
    if arguments.original is None:
        print(
            "the original's packages are absent (see --help): only our side is measured",
            file=sys.stderr,
        )
    figures = measure(arguments.original, quick=arguments.quick)
    return conclude(figures, table, missed(figures), as_json=arguments.json)


if __name__ == "__main__":
    raise SystemExit(main())
