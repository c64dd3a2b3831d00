"""Of a log that grows, what was told further takes the place of what it extends, whichever came first."""

import itertools

import msgspec
import pytest
from episodes import make_episode, turn
from hypothesis import given, settings
from hypothesis import strategies as st

from ratchet.components.core import ToolResult
from ratchet.components.trajectories.store.record_admission import PutCounts, continues
from ratchet.components.trajectories.store.store_maintenance import check_store
from ratchet.components.trajectories.store.store_reader import TrajectoryStore
from ratchet.components.trajectories.store.store_writer import StoreWriter
from ratchet.components.trajectories.trajectory import Outcome, with_content_hash

LONG = make_episode(turns=[turn(n, "read_file", path=f"{n}.py") for n in range(6)])


def told(turns, **changes):
    """The first turns of the long one."""
    record = msgspec.structs.replace(LONG, turns=LONG.turns[:turns], **changes)
    return with_content_hash(record)


def half(record):
    """The same without the last result."""
    last = msgspec.structs.replace(record.turns[-1], results=())
    return with_content_hash(msgspec.structs.replace(record, turns=(*record.turns[:-1], last)))


STAGES = [told(0), told(1), half(told(3)), told(3), told(5), half(LONG), LONG]


@pytest.mark.parametrize(("new", "old"), [(new, old) for old, new in itertools.pairwise(STAGES)])
def test_each_stage_of_a_session_extends_the_one_before(new, old):
    assert continues(new, old) and not continues(old, new)


UNKNOWN = Outcome()
CHANGED = [
    (LONG, with_content_hash(msgspec.structs.replace(told(3), messages=())), True),
    (told(3), with_content_hash(msgspec.structs.replace(told(3), turns=LONG.turns[1:4])), False),
    (
        with_content_hash(msgspec.structs.replace(LONG, turns=(turn(0, "bash", command="ls"), *LONG.turns[1:]))),
        told(3),
        False,
    ),
    (told(3, outcome=Outcome(success=True)), told(3, outcome=UNKNOWN), True),
    (told(3, outcome=UNKNOWN), told(3, outcome=Outcome(success=True)), False),
    (told(3, outcome=Outcome(success=False)), told(3, outcome=Outcome(success=True)), False),
    (told(4, outcome=Outcome(success=False)), told(3, outcome=Outcome(success=True)), True),
]


@pytest.mark.parametrize(("new", "old", "holds"), CHANGED)
def test_what_contradicts_extends_nothing(new, old, holds):
    assert continues(new, old) is holds


def test_turns_of_another_agent_may_come_between():
    other = msgspec.structs.replace(turn(9, "grep", pattern="x"), agent_id="helper")
    mixed = with_content_hash(msgspec.structs.replace(LONG, turns=(*LONG.turns[:2], other, *LONG.turns[2:])))
    assert continues(mixed, LONG) and continues(mixed, told(3))


def test_a_text_that_went_on_extends_its_beginning():
    def said(text, *results):
        first = msgspec.structs.replace(LONG.turns[0], text=text, results=tuple(results))
        return with_content_hash(msgspec.structs.replace(LONG, turns=(first,)))

    assert continues(said("I look at it."), said("I look"))
    assert not continues(said("I saw it."), said("I look"))
    assert continues(said("I", ToolResult("a", "1"), ToolResult("b", "2")), said("I", ToolResult("b", "2")))


@settings(max_examples=10, deadline=None)
@given(order=st.lists(st.sampled_from(range(len(STAGES))), min_size=1, max_size=12))
def test_in_whatever_order_stages_come_the_furthest_stays(tmp_path_factory, order):
    root = tmp_path_factory.mktemp("grows") / "s"
    with StoreWriter(root, raw=True) as writer:
        for stage in order:
            writer.put([STAGES[stage]], growing=True)
        assert list(writer.read()) == [STAGES[max(order)]]
        assert not len(writer.conflicts)
        writer.rebuild()
        assert list(writer.read()) == [STAGES[max(order)]], "the segments say the same"
        assert check_store(writer).faults == []


def test_what_does_not_grow_is_a_conflict(tmp_path):
    with StoreWriter(tmp_path / "s", raw=True) as writer:
        assert writer.put([told(3)]) == PutCounts(added=1)
        assert writer.put([LONG]) == PutCounts(conflicts=1)
        assert writer.put([LONG], growing=True) == PutCounts(superseded=1)
    assert list(TrajectoryStore(tmp_path / "s").read()) == [LONG]


def test_with_the_same_content_the_longer_record_stays(tmp_path):
    """A session's closing line tells what it cost, and nothing that happened."""
    dearer = msgspec.structs.replace(LONG, source_extra={**LONG.source_extra, "cost": 0.25})
    with StoreWriter(tmp_path / "s", raw=True) as writer:
        assert writer.put([LONG], growing=True) == PutCounts(added=1)
        assert writer.put([dearer], growing=True) == PutCounts(superseded=1)
        assert writer.put([LONG], growing=True) == PutCounts(same=1)
        assert writer.put([LONG]) == PutCounts(same=1)
        assert list(writer.read()) == [dearer]
        elsewhere = msgspec.structs.replace(dearer, source_extra={**LONG.source_extra, "cost": 0.75})
        assert writer.put([elsewhere], growing=True) == PutCounts(superseded=1), "as long, and later"


def test_a_session_that_was_rewound_stands_beside_its_branch(tmp_path):
    """The main line goes another way from turn 2 on; what was said before is told whole by a branch of its own."""
    rewound = with_content_hash(msgspec.structs.replace(LONG, turns=(*LONG.turns[:2], turn(2, "bash", command="ls"))))
    branch = msgspec.structs.replace(LONG, episode_id="ep-branch")
    with StoreWriter(tmp_path / "s", raw=True) as writer:
        writer.put([LONG], growing=True)
        assert writer.put([rewound, branch], growing=True) == PutCounts(added=1, superseded=1, duplicates=1)
        assert {each.episode_id: each for each in writer.read()} == {"ep-branch": branch, LONG.episode_id: rewound}
    with StoreWriter(tmp_path / "t", raw=True) as writer:
        writer.put([LONG], growing=True)
        assert writer.put([rewound], growing=True) == PutCounts(conflicts=1), "nobody else tells what was said before"
