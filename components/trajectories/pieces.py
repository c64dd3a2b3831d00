"""Piece: whole lines of one shard, no more than a process wants to hold at once. Nearly every shard is one piece."""

import hashlib
import io
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO, NamedTuple

import msgspec

from .integrity import LINE_LIMIT, check_keys, check_listed, is_plain
from .record import SCHEMA_VERSION, Trajectory
from .shards import damaged, finished_shards, read_lines

PIECE = 32 << 20
"""Bytes above which a shard is cut. A longer line is a piece of its own."""
_BLOCK = 1 << 20


class Piece(NamedTuple):
    """The lines in the bytes from `begin` up to `end` of a shard of `size` bytes, written with that hash and those episodes."""

    folder: Path
    shard: str
    sha256: str
    begin: int
    end: int
    size: int
    episode_ids: tuple[str, ...]

    @property
    def path(self) -> Path:
        """Of the shard."""
        return self.folder / self.shard


def pieces_of(folder: Path, most: int = PIECE) -> list[Piece]:
    """The pieces of a folder's finished shards, in order. Raises DataError where there is no finished shard, or one is absent."""
    return [
        Piece(folder, entry.shard, entry.sha256, begin, end, size, entry.episode_ids)
        for entry in finished_shards(folder)
        for begin, end, size in _cuts(folder / entry.shard, most)
    ]


def _cuts(path: Path, most: int) -> list[tuple[int, int, int]]:
    size = path.stat().st_size
    places = [0]
    if size > most:
        with path.open("rb") as file:
            places += _line_ends(file, size, most)
    return [(begin, end, size) for begin, end in zip(places, [*places[1:], size], strict=True)]


def _line_ends(file: BinaryIO, size: int, most: int) -> Iterator[int]:
    place = 0
    while place + most < size:
        file.seek(place + most - 1)
        file.readline(LINE_LIMIT + 1)  # a longer one is cut here, and refused where it is read
        place = file.tell()
        if place < size:
            yield place


def read_piece(piece: Piece) -> list[Trajectory]:
    """Its trajectories; of a shard's first piece only after the hash of the shard was compared. Raises DataError."""
    return read_records(piece, trajectories_of)


Decode = Callable[[bytes, Piece], list[Trajectory]]
"""What makes records of a piece's bytes, in order, one for each line that is not empty. Raises DataError."""


def read_records(piece: Piece, decode: Decode) -> list[Trajectory]:
    """`read_piece` for a stricter reading of the same lines."""
    with piece.path.open("rb") as file:
        file.seek(piece.begin)
        data = file.read(piece.end - piece.begin)
        if piece.begin == 0:
            _compare(piece, data, file)
    found = decode(data, piece)
    _check_listed(piece, [each.episode_id for each in found])
    return found


def trajectories_of(data: bytes, piece: Piece) -> list[Trajectory]:
    """The trajectories of a piece's bytes. Raises DataError that names the line."""
    found = _decoded(data)
    if found is None:  # an older schema, empty lines, or what is no trajectory: line by line, to say which
        return list(read_lines(piece.path, io.BytesIO(data), first=1 + _lines_before(piece.path, piece.begin)))
    return found


def plain_trajectories_of(data: bytes, piece: Piece) -> list[Trajectory]:
    """`trajectories_of`, where a key that stands twice in an object is refused too: other readers would read something else."""
    found = trajectories_of(data, piece)
    if not is_plain(data, found):
        check_keys(piece.path, io.BytesIO(data), first=1 + _lines_before(piece.path, piece.begin))
    return found


def _check_listed(piece: Piece, ids: list[str]) -> None:
    """The records are those that the manifest lists; of a shard that was cut, from the first of them on."""
    listed = piece.episode_ids
    begin = listed.index(ids[0]) if piece.begin and ids and ids[0] in listed else 0
    end = len(listed) if piece.end == piece.size else begin + len(ids)
    check_listed(piece.path, ids, listed[begin:end])


def _compare(piece: Piece, data: bytes, rest: BinaryIO) -> None:
    hashed = hashlib.sha256(data)
    while block := rest.read(_BLOCK):
        hashed.update(block)
    if hashed.hexdigest() != piece.sha256:
        raise damaged(piece.path, piece.episode_ids)


_decoder: "msgspec.json.Decoder[Trajectory]" = msgspec.json.Decoder(Trajectory)


def _decoded(data: bytes) -> list[Trajectory] | None:
    """All lines at once, several times as fast as one by one; None where one of them is not plainly a trajectory."""
    if len(data) > LINE_LIMIT:  # a line may be longer than any record
        return None
    try:
        found = _decoder.decode_lines(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    lines = data.count(b"\n") + (not data.endswith(b"\n") and bool(data))
    other = any(each.schema_version != SCHEMA_VERSION for each in found)
    return None if other or len(found) != lines else found


def _lines_before(path: Path, place: int) -> int:
    lines = 0
    with path.open("rb") as file:
        while place > 0 and (block := file.read(min(_BLOCK, place))):
            lines += block.count(b"\n")
            place -= len(block)
    return lines
