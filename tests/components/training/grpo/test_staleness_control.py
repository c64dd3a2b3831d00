"""The staleness of every trained group is bounded, every group is trained once, and nothing ever waits for ever."""

import random

from hypothesis import given, settings
from hypothesis import strategies as st

from ratchet.components.training.grpo.staleness_control import StalenessControl


def simulate(control, draws, *, groups, dropped_share=0.0):
    """Train `groups` groups in the order of their release, with random durations; return (version, start) of each."""
    clock, numbers, playing, ended, buffer, trained = 0.0, iter(range(10_000)), {}, [], [], []
    started_at = {}
    while len(trained) < groups:
        while control.can_start():
            number = next(numbers)
            control.start(number)
            started_at[number] = control.version
            playing[number] = clock + draws.paretovariate(0.8)
        assert playing or buffer, "the trainer waits for groups that the worker may not start"
        if playing:
            number = min(playing, key=playing.get)
            clock = max(clock, playing.pop(number))
            control.end(number)
            if draws.random() < dropped_share:
                control.drop(number)
            else:
                ended.append(number)
        while (ready := next((item for item in ended if control.can_release(item)), None)) is not None:
            ended.remove(ready)
            control.release(ready)
            buffer.append(ready)
        assert playing or not ended, "a group is held back that no straggler will ever release"
        # The trainer is fast or slow.
        while len(buffer) >= control.batch and (draws.random() < 0.5 or not (playing or control.can_start())):
            trained += [(number, control.version, started_at[number]) for number in buffer[: control.batch]]
            del buffer[: control.batch]
            control.version += 1
    return trained


@settings(max_examples=300, deadline=None)
@given(
    batch=st.integers(1, 4),
    max_staleness=st.integers(0, 4),
    inflight=st.one_of(st.none(), st.integers(1, 8)),
    dropped_share=st.sampled_from([0.0, 0.3]),
    seed=st.integers(0, 2**32),
)
def test_no_trained_group_is_staler_than_the_bound_and_each_is_trained_once(
    batch, max_staleness, inflight, dropped_share, seed
):
    control = StalenessControl(batch, max_staleness, inflight)
    trained = simulate(control, random.Random(seed), groups=8 * batch, dropped_share=dropped_share)
    assert max(version - start for _, version, start in trained) <= max_staleness
    assert len({number for number, _, _ in trained}) == len(trained)


def test_several_stragglers_of_one_version_are_waited_for_before_their_last_version():
    # Three groups start at version 0 with a batch of one and a bound of 2. Each must be trained by version 2, so only one
    # later group may overtake two stragglers: waiting at version 2 alone would be too late for the second.
    control = StalenessControl(1, 2)
    for number in range(3):
        control.start(number)
    assert not control.can_start()
    control.end(2)
    assert control.can_release(2)
    control.release(2)
    control.version = 1
    assert control.can_start()
    control.start(3)
    control.end(3)
    assert not control.can_release(3), "two stragglers have two versions left"
    control.end(0)
    control.release(0)
    assert not control.can_release(3)
    control.end(1)
    control.release(1)
    assert control.can_release(3)


def test_a_bound_of_zero_plays_and_trains_in_turn():
    control = StalenessControl(2, 0)
    for number in range(2):
        assert control.can_start()
        control.start(number)
    assert not control.can_start()
    for number in range(2):
        control.end(number)
        control.release(number)
    assert not control.can_start()
    control.version = 1
    assert control.can_start()


def test_a_dropped_group_makes_room_for_another():
    control = StalenessControl(1, 0)
    control.start(0)
    control.end(0)
    control.drop(0)
    assert control.can_start()
