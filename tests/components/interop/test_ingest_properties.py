"""However a log is cut into appends, looked at, rotated, copied or its reader restarted: the store is the same."""

import shutil

import msgspec
import pytest
from episodes import night_of
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ratchet.components.interop.log_ingest import LogIngest
from ratchet.components.trajectories.store.store_maintenance import check_store
from ratchet.components.trajectories.store.store_reader import TrajectoryStore
from ratchet.components.trajectories.store.store_writer import StoreWriter

pytestmark = [pytest.mark.slow]

NIGHT = night_of(5, 2)
LINES = [msgspec.json.encode(each) + b"\n" for each in NIGHT]
STREAM = b"".join(LINES)
BAD = b'{"episode_id": "half of a line\n'

effects = st.one_of(
    st.tuples(st.just("append"), st.integers(1, len(STREAM) // 4)),
    st.tuples(st.sampled_from(["look", "restart", "rotate", "copy", "lose"]), st.just(0)),
)


class Machine:
    """A log that is written, and somebody who looks at its folder, or at it alone."""

    def __init__(self, folder, stream, *, alone):
        (folder / "logs").mkdir(parents=True)
        self.root = folder / "store"
        self.log = folder / "logs" / "agent.jsonl"
        self.log.touch()
        self.paths = [self.log] if alone else [self.log.parent]
        self.stream = stream
        self.at = 0
        self.rotations = 0
        self.rejected = 0
        self.alone = alone
        self.known = False
        self.start()

    def start(self):
        self.writer = StoreWriter(self.root, raw=True).__enter__()
        self.ingest = LogIngest(self.writer)

    def append(self, count):
        with self.log.open("ab") as file:
            file.write(self.stream[self.at : self.at + count])
        self.at = min(self.at + count, len(self.stream))

    def look(self, _=0):
        for report in self.ingest.once(self.paths):
            assert not report.error or BAD in self.log.read_bytes().splitlines(keepends=True)[:1], report.error
            assert not report.note, report.note
            self.rejected += report.rejected
        self.known = b"\n" in self.log.read_bytes()

    def restart(self, _=0):
        self.writer.close()
        self.start()
        self.look()

    def _end_the_line(self):
        rest = self.stream[self.at :].find(b"\n")
        if self.at and self.stream[self.at - 1 : self.at] != b"\n":
            self.append(rest + 1)

    def rotate(self, _=0):
        """Who looks at one name alone must have seen the file by that name."""
        self._end_the_line()
        if self.alone and not self.known:
            self.look()
        self.rotations += 1
        self.log.rename(self.log.with_name(f"agent.jsonl.{self.rotations}"))
        self.log.touch()
        self.known = False

    def copy(self, _=0):
        self._end_the_line()
        if self.alone:
            self.look()
        self.rotations += 1
        shutil.copy(self.log, self.log.with_name(f"agent.jsonl.{self.rotations}"))
        with self.log.open("r+b") as file:
            file.truncate(0)

    def lose(self, _=0):
        """The index goes, and with it every cursor."""
        self.writer.close()
        for path in self.root.glob("index-*"):
            path.unlink()
        self.start()

    def finish(self):
        self.append(len(self.stream))
        self.look()
        self.restart()
        self.writer.close()


@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(script=st.lists(effects, max_size=14), alone=st.booleans())
def test_any_split_of_appends_gives_the_same_store(tmp_path_factory, script, alone):
    machine = Machine(tmp_path_factory.mktemp("split"), STREAM, alone=alone)
    for name, count in script:
        if name == "lose" and alone:
            continue  # a cursor is what leads to the older file
        getattr(machine, name)(*([count] if name == "append" else []))
    machine.finish()
    store = TrajectoryStore(machine.root)
    assert sorted(each.episode_id for each in store.read()) == sorted(each.episode_id for each in NIGHT)
    assert {each.episode_id: each for each in store.read()} == {each.episode_id: each for each in NIGHT}
    assert (machine.rejected, len(store.conflicts)) == (0, 0)
    assert check_store(store).faults == []
    store.close()


@settings(max_examples=12, deadline=None)
@given(cuts=st.lists(st.integers(0, len(STREAM) + len(BAD)), max_size=8), at=st.integers(0, len(LINES)))
def test_a_bad_line_is_set_aside_once_wherever_the_appends_are_cut(tmp_path_factory, cuts, at):
    stream = b"".join([*LINES[:at], BAD, *LINES[at:]])
    machine = Machine(tmp_path_factory.mktemp("bad"), stream, alone=True)
    for cut in sorted(cuts):
        machine.append(max(0, cut - machine.at))
        machine.look()
    machine.finish()
    store = TrajectoryStore(machine.root)
    assert [each.episode_id for each in store.read()] == [each.episode_id for each in NIGHT]
    (found,) = store.rejected.entries()
    assert found.text.encode() == BAD and found.where.endswith(f"line {at + 1}")
    store.close()
