"""Spool: rendered pieces by their numbers, in a temporary file. What is held in memory is where each stands.

Rows are written while pieces still come: shards are read in the order in which rows want them, as far as there is one.
"""

import os
import tempfile
from collections.abc import Generator, Iterable, Mapping, Sequence
from functools import partial
from itertools import chain
from pathlib import Path

from components.protocol import DataError
from components.trajectories.lineage import is_whole, with_ancestors
from components.trajectories.parallel import Progress, map_records, map_shards
from components.trajectories.pieces import Piece, pieces_of, read_piece
from components.trajectories.record import Trajectory

from .plan import Wants
from .quick import lines_of
from .shown import AgentFormat, Shown, Want, show_lines, show_shard

Arrivals = Generator[Shown, None, None]
"""Pieces as workers give them."""


_AWAITED = -1


class Spool:
    """Some pieces, numbered from 0, in a file that workers append to. Close it when the rows are written."""

    def __init__(self, count: int, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(prefix=".export-", suffix=".tmp", dir=folder)
        self._file, self.path = handle, Path(name)
        self._places = [_AWAITED] * count
        self._sizes = [0] * count
        self._hashes: dict[int, str] = {}
        self._arrivals: Arrivals | None = None

    def feed(self, arrivals: Arrivals) -> None:
        """Take pieces from there when they are asked for and not here yet."""
        self._arrivals = arrivals

    def add(self, shown: Shown) -> None:
        """Keep pieces; one that is there already (an episode of two nights) stays as it is."""
        place = shown.begin
        for number, size, line in zip(shown.numbers, shown.sizes, shown.hashes, strict=True):
            if self._places[number] == _AWAITED:
                self._places[number], self._sizes[number] = place, size
                if line:
                    self._hashes[number] = line
            place += size

    def pieces(self, numbers: Sequence[int]) -> list[bytes | memoryview]:
        """Some pieces, as JSON; waits for them. Raises DataError, as `gather` does."""
        places, sizes = self._places, self._sizes
        for number in numbers:
            while places[number] == _AWAITED and self._arrivals is not None:
                self._await()
        begin = end = places[numbers[0]]
        apart = False
        for number in numbers:
            apart |= places[number] != end
            end += sizes[number]
        if apart or len(numbers) == 1:
            return [os.pread(self._file, sizes[each], places[each]) for each in numbers]
        return _cut(os.pread(self._file, end - begin, begin), [sizes[each] for each in numbers])

    def hash(self, number: int) -> str:
        """The SHA-256 of a piece that is a whole line."""
        return self._hashes[number]

    def complete(self) -> None:
        """Wait for all that is to come: no file takes its name before. Raises DataError, as `gather` does."""
        while self._arrivals is not None:
            self._await()

    def _await(self) -> None:
        shown = None if self._arrivals is None else next(self._arrivals, None)
        if shown is None:
            self._arrivals = None
        else:
            self.add(shown)

    def absent(self) -> set[int]:
        """The numbers of pieces that nobody gave yet."""
        return {number for number, place in enumerate(self._places) if place == _AWAITED}

    def close(self) -> None:
        """Let the file go, and who would write to it."""
        if self._arrivals is not None:
            self._arrivals.close()
        os.close(self._file)
        self.path.unlink(missing_ok=True)


def _cut(data: bytes, sizes: Sequence[int]) -> list[bytes | memoryview]:
    """Data in pieces of those sizes."""
    view, begin = memoryview(data), 0
    found: list[bytes | memoryview] = []
    for size in sizes:
        found.append(view[begin : begin + size])
        begin += size
    return found


def gather(
    folders: Sequence[Path],
    wants: Wants,
    spool: Spool,
    agent_format: AgentFormat,
    *,
    workers: int | None = None,
    on_progress: Progress | None = None,
) -> Arrivals:
    """Render every wanted piece of some nights. Raises DataError where an episode is in none of them, or is not whole."""
    branches: list[str] = []
    own = wants.by_episode
    arrange = partial(_as_wanted, own)
    if wants.written or agent_format == "text":
        work = partial(show_shard, own, spool.path, agent_format)
        found = map_shards(folders, work, arrange=arrange, workers=workers, on_progress=on_progress)
    else:
        lean = partial(show_lines, own, spool.path)
        found = map_records(folders, lines_of, lean, arrange=arrange, workers=workers, on_progress=on_progress)
    for shown in found:
        branches += shown.branches
        yield shown
    if branches:
        yield show_shard(own, spool.path, agent_format, _completed(folders, set(branches)))
    if absent := spool.absent():
        lost = min(name for name, wanted in own.items() if any(want.number in absent for want in wanted))
        raise DataError(f"{lost} is ranked and stands in none of the nights; run the build again")


def _as_wanted(wants: Mapping[str, Sequence[Want]], pieces: list[Piece]) -> list[Piece]:
    """Pieces in the order in which rows want them; as they were where an episode stands in two shards: the first counts."""
    listed = [name for names in {each.path: each.episode_ids for each in pieces}.values() for name in names]
    if len(set(listed)) < len(listed):
        return pieces
    last = max((wanted[-1].number for wanted in wants.values()), default=0)
    first = {name: wanted[0].number for name, wanted in wants.items()}
    return sorted(pieces, key=lambda each: min((first.get(name, last) for name in each.episode_ids), default=last))


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
