"""Spool: rendered pieces by their numbers, in a temporary file. What is held in memory is where each stands."""

import os
import tempfile
from collections.abc import Iterable, Sequence
from functools import partial
from itertools import chain
from pathlib import Path

import numpy as np

from components.protocol import DataError
from components.trajectories.lineage import is_whole, with_ancestors
from components.trajectories.parallel import Progress, map_records, map_shards
from components.trajectories.pieces import pieces_of, read_piece
from components.trajectories.record import Trajectory

from .plan import Wants
from .quick import lines_of
from .shown import AgentFormat, Shown, show_lines, show_shard


class Spool:
    """Some pieces, numbered from 0, in a file that workers append to. Close it when the rows are written."""

    def __init__(self, count: int, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(prefix=".export-", suffix=".tmp", dir=folder)
        self._file, self.path = handle, Path(name)
        self._places = np.full(count, -1, dtype=np.int64)
        self._sizes = np.zeros(count, dtype=np.int64)
        self._hashes: dict[int, str] = {}

    def add(self, shown: Shown) -> None:
        """Keep pieces; one that is there already (an episode of two nights) stays as it is."""
        sizes = np.array(shown.sizes, dtype=np.int64)
        numbers = np.array(shown.numbers, dtype=np.int64)
        new = self._places[numbers] < 0
        places = shown.begin + np.cumsum(sizes) - sizes
        self._places[numbers[new]], self._sizes[numbers[new]] = places[new], sizes[new]
        for number, line in zip(shown.numbers, shown.hashes, strict=True):
            if line:
                self._hashes.setdefault(number, line)

    def piece(self, number: int) -> bytes:
        """One piece, as JSON."""
        return os.pread(self._file, int(self._sizes[number]), int(self._places[number]))

    def hash(self, number: int) -> str:
        """The SHA-256 of a piece that is a whole line."""
        return self._hashes[number]

    def absent(self) -> set[int]:
        """The numbers of pieces that nobody gave."""
        return set(np.flatnonzero(self._places < 0).tolist())

    def close(self) -> None:
        """Let the file go."""
        os.close(self._file)
        self.path.unlink(missing_ok=True)


def gather(
    folders: Sequence[Path],
    wants: Wants,
    spool: Spool,
    agent_format: AgentFormat,
    *,
    workers: int | None = None,
    on_progress: Progress | None = None,
) -> None:
    """Render every wanted piece of some nights. Raises DataError where an episode is in none of them, or is not whole."""
    branches: list[str] = []
    own = wants.by_episode
    if wants.written or agent_format == "text":
        found = map_shards(
            folders, partial(show_shard, own, spool.path, agent_format), workers=workers, on_progress=on_progress
        )
    else:
        found = map_records(
            folders, lines_of, partial(show_lines, own, spool.path), workers=workers, on_progress=on_progress
        )
    for shown in found:
        spool.add(shown)
        branches += shown.branches
    if branches:
        spool.add(show_shard(own, spool.path, agent_format, _completed(folders, set(branches))))
    if absent := spool.absent():
        lost = sorted(name for name, wanted in own.items() if any(want.number in absent for want in wanted))
        raise DataError(f"{lost[0]} is ranked and stands in none of the nights; run the build again")


def _completed(folders: Sequence[Path], wanted: set[str]) -> list[Trajectory]:
    """Those branches, each with its parents' turns."""
    known: dict[str, Trajectory] = {}
    todo = wanted
    while todo:
        found = _read(folders, todo)
        known |= found
        todo = {each.parent.episode_id for each in found.values() if each.parent} - known.keys()
    whole = [each for each in with_ancestors(known.values) if each.episode_id in wanted]
    for each in whole:
        if not is_whole(each) and each.parent is not None:
            raise DataError(
                f"{each.episode_id} lacks the turns that it shares with {each.parent.episode_id}, which stands in none of the "
                "nights; build from that night too"
            )
    return whole


def _read(folders: Iterable[Path], wanted: set[str]) -> dict[str, Trajectory]:
    """Those trajectories that are there, from the shards that list them; the first of each."""
    found: dict[str, Trajectory] = {}
    for piece in chain.from_iterable(pieces_of(folder) for folder in folders):
        if not wanted.isdisjoint(piece.episode_ids):
            for each in read_piece(piece):
                if each.episode_id in wanted:
                    found.setdefault(each.episode_id, each)
    return found
