"""On-policy play: groups share their world and not their draws, tools run beside each other, what the world broke is told apart."""

import threading

import pytest
from patience import LIMIT, until
from tiny import Tiny, write_taskset

from ratchet.components.core import (
    ConfigurationError,
    EpisodeAttempt,
    InfrastructureError,
    Policy,
    PolicyReply,
    Role,
    SandboxUnavailable,
    TokenTrace,
    ToolCall,
    make_player,
)
from ratchet.components.trajectories.trajectory import FailureKind

ENTRY = "ratchet.components.rollouts.on_policy:OnPolicyPlayer"


class Reads(Policy):
    """Reads once, then submits; its ids are its turn."""

    name, version, sampling, lockstep = "reads", "v0", {}, True

    def __init__(self):
        self.asked = []

    def act(self, requests):
        self.asked.append([(request.task_id, request.seed) for request in requests])
        return [self._reply(request.turn) for request in requests]

    def _reply(self, turn):
        call = ToolCall(f"{turn}-0", ("read_file", "submit")[turn])
        begin = tuple(range(3 + 4 * turn))
        return PolicyReply("", (call,), tokens=TokenTrace(begin, (begin[-1] + 1,), (-0.1,)))


@pytest.fixture
def play(tmp_path):
    Tiny.forget()
    taskset = write_taskset(tmp_path / "tiny", 3, role=Role.TRAIN)
    return lambda **settings: make_player(ENTRY, {"taskset": taskset, "retries": 0, "patience": 5, **settings})


def attempts(task="t0", count=4, seed=11):
    return [EpisodeAttempt(task, seed, number, 1000 + number) for number in range(count)]


def test_attempts_of_a_group_share_the_world_and_not_the_draws(play):
    policy = Reads()
    played = play().play(policy, attempts())
    assert Tiny.resets == [("t0", 11)] * 4
    assert policy.asked[0] == [("t0", 1000 + number) for number in range(4)]
    records = [each.record for each in played]
    assert len({record.episode_id for record in records}) == 4
    assert len({record.group_id for record in records}) == 1
    assert all(record.outcome.success for record in records)


def test_traces_are_those_of_their_attempt_and_each_turn_holds_what_is_new(play):
    (played,) = play().play(Reads(), attempts(count=1))
    first, second = played.traces
    assert first.prompt_ids == (0, 1, 2) and first.completion_ids == (3,)
    assert second.kept == 4 and second.prompt_ids == (4, 5, 6) and second.completion_ids == (7,)


def test_the_tools_of_a_batch_run_beside_each_other(play):
    gate = threading.Barrier(8)
    Tiny.on_step = lambda task, step: gate.wait(timeout=LIMIT)
    played = play(concurrency=8).play(Reads(), attempts(count=8))
    assert all(each.record.outcome.success for each in played)


def test_one_attempt_that_the_world_broke_is_lost_alone(play):
    def breaks(task, step):
        if task == "t1":
            raise SandboxUnavailable("the engine is away")

    Tiny.on_step = breaks
    whole, lost = play().play(Reads(), [*attempts("t0", 1), *attempts("t1", 1)])
    assert whole.record.failure is None and whole.record.outcome.success
    assert lost.record.failure.kind is FailureKind.INFRASTRUCTURE


def test_a_world_in_which_nothing_can_be_played_is_one_line(play):
    def breaks(task, step):
        raise SandboxUnavailable("the engine is away")

    Tiny.on_reset = breaks
    with pytest.raises(InfrastructureError, match=r"none of 2 attempts could be played.*engine is away.*doctor"):
        play().play(Reads(), attempts(count=2))


@pytest.fixture
def stream(play):
    streams = []

    def make(policy=None, **settings):
        streams.append(play(**settings).stream(policy or Reads()))
        return streams[-1]

    yield make
    for stream in streams:
        stream.close()


def ended(stream, count):
    """The next `count` attempts that end."""
    result = []
    until(lambda: result.append(stream.wait()) or sum(item is not None for item in result) == count)
    return [item for item in result if item is not None]


def test_a_stream_plays_what_is_submitted_while_others_play(stream):
    playing = stream(concurrency=4)
    for attempt in attempts(count=6):
        playing.submit(attempt)
    first = ended(playing, 6)
    assert sorted(attempt.number for attempt, _ in first) == list(range(6))
    assert all(played.record.outcome.success and len(played.traces) == 2 for _, played in first)
    playing.submit(attempts("t1", 1)[0])
    ((attempt, played),) = ended(playing, 1)
    assert attempt.task_id == played.record.task.task_id == "t1"


def test_a_slow_tool_of_a_stream_holds_its_own_episode_alone(stream):
    gate = threading.Event()
    Tiny.on_step = lambda task, step: task == "t0" and gate.wait(LIMIT)
    playing = stream(concurrency=2)
    for attempt in [*attempts("t0", 1), *attempts("t1", 4)]:
        playing.submit(attempt)
    assert {attempt.task_id for attempt, _ in ended(playing, 4)} == {"t1"}
    gate.set()
    assert ended(playing, 1)[0][0].task_id == "t0"


def test_a_hung_tool_is_given_up_and_its_attempt_lost(stream):
    gate = threading.Event()
    Tiny.on_step = lambda task, step: task == "t0" and gate.wait(LIMIT)
    playing = stream(concurrency=2, timeouts={"step": 0.3})
    playing.submit(attempts("t0", 1)[0])
    ((_, played),) = ended(playing, 1)
    assert played.record.failure.type == "StageTimeout" and not played.traces
    playing.submit(attempts("t1", 1)[0])
    assert ended(playing, 1)[0][1].record.outcome.success, "another thread took the place of the hung one"
    gate.set()


def test_an_attempt_that_broke_once_is_played_again_with_its_seeds(stream):
    broken = iter([SandboxUnavailable("the engine is away")])

    def breaks(task, step):
        for error in broken:
            raise error

    Tiny.on_reset = breaks
    playing = stream(retries=1)
    playing.submit(attempts(count=1)[0])
    ((attempt, played),) = ended(playing, 1)
    assert played.record.outcome.success and Tiny.resets == [("t0", 11)] * 2 and attempt.stream == 1000


def test_an_outage_ends_a_stream_in_one_line(stream):
    def breaks(task, step):
        raise SandboxUnavailable("the engine is away")

    Tiny.on_reset = breaks
    playing = stream(retries=9, patience=1)
    for attempt in attempts(count=16):
        playing.submit(attempt)
    with pytest.raises(InfrastructureError, match=r"no attempt could be played for too long.*doctor"):
        until(lambda: playing.wait() and None)


def test_closing_a_stream_closes_the_worlds_that_play(stream):
    gate = threading.Event()
    Tiny.on_step = lambda task, step: gate.wait(LIMIT)
    Tiny.on_close = gate.set
    playing = stream(concurrency=3)
    for attempt in attempts(count=5):
        playing.submit(attempt)
    until(lambda: len(Tiny.alive) == 3)
    playing.close()
    assert not Tiny.alive


def test_tasks_are_the_train_tasks_and_no_other_is_played(play, tmp_path):
    assert [task.task_id for task in play().tasks()] == ["t0", "t1", "t2"]
    assert [task.task_id for task in play(limit=2).tasks()] == ["t0", "t1"]
    with pytest.raises(ConfigurationError, match="no train task 't9'"):
        play().play(Reads(), attempts("t9"))
    held_out = write_taskset(tmp_path / "held", 2, role=Role.PROMOTE)
    with pytest.raises(ConfigurationError, match="no train task"):
        make_player(ENTRY, {"taskset": held_out})


def test_a_player_that_is_not_there_is_named():
    with pytest.raises(ConfigurationError, match=r"player 'nowhere:Player'.*module:name"):
        make_player("nowhere:Player", {})
    with pytest.raises(ConfigurationError, match=r"unknown key 'tasket'.*taskset"):
        make_player(ENTRY, {"tasket": "repair"})
