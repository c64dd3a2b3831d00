"""The spool of an export: pieces are read as they were given, and nothing takes its name before all shards were verified."""

import random
from pathlib import Path

import pytest
from built import Built
from episodes import night_of

from components.datasets.formats import DATASETS
from components.datasets.shown import Shown, append
from components.datasets.spool import Spool
from components.protocol import DataError


def test_pieces_stand_at_the_end_of_the_spool(tmp_path: Path) -> None:
    spool = tmp_path / "spool.tmp"
    spool.touch()
    assert [append(spool, [b"ab", b"c"]), append(spool, []), append(spool, [b"def"])] == [0, 0, 3]
    assert spool.read_bytes() == b"abcdef"


@pytest.mark.parametrize("seed", range(5))
def test_every_piece_is_read_as_it_was_given_in_any_order(tmp_path: Path, seed: int) -> None:
    chance, pieces = random.Random(seed), [bytes([65 + number % 26]) * (number * 37 % 90) for number in range(400)]
    spool, unread = Spool(len(pieces), tmp_path), list[int]()
    for begin in range(0, len(pieces), 8):
        own = pieces[begin : begin + 8]
        numbers = list(range(begin, begin + 8))
        spool.add(Shown(numbers, [len(each) for each in own], [""] * 8, append(spool.path, own), []))
        unread += numbers
        chance.shuffle(unread)
        while len(unread) > 20:
            number = unread.pop()
            assert spool.pieces([number]) == [pieces[number]]
    assert spool.pieces(unread) == [pieces[number] for number in unread]
    assert not spool.absent()
    spool.close()
    assert not list(tmp_path.iterdir())


def test_a_damaged_last_shard_leaves_what_was_exported_before(tmp_path: Path) -> None:
    built = Built(tmp_path, {"n1": night_of(20, 4)})
    built.export(tmp_path / "out")
    before = {path: path.read_bytes() for path in (tmp_path / "out").rglob("*") if path.is_file()}
    last = sorted(built.rollouts[0].glob("shard-*.jsonl"))[-1]
    last.write_bytes(last.read_bytes().replace(b"train-0019", b"train-0018", 1))
    with pytest.raises(DataError, match=last.name):
        built.export(tmp_path / "out", ("sft",), min_reward=0.5)
    assert {path: path.read_bytes() for path in (tmp_path / "out").rglob("*") if path.is_file()} == before
    assert {path.parent.name for path in before} == set(DATASETS)
