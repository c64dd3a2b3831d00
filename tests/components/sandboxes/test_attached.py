import socket
import struct
import threading
import time

from hypothesis import given
from hypothesis import strategies as st

from components.sandboxes.attached import Frames, converse


def frame(kind, data):
    return struct.pack(">BxxxL", kind, len(data)) + data


def joined(pieces):
    outputs = {1: b"", 2: b""}
    for kind, piece in pieces:
        outputs[kind] += piece
    return outputs


@given(
    st.lists(st.tuples(st.sampled_from([1, 2]), st.binary(max_size=30)), max_size=8),
    st.lists(st.integers(1, 20), min_size=1),
)
def test_frames_are_taken_apart_however_the_stream_is_cut(sent, cuts):
    stream = b"".join(frame(kind, data) for kind, data in sent)
    frames, pieces, turn = Frames(), [], 0
    while stream:
        size = cuts[turn % len(cuts)]
        pieces += frames.feed(stream[:size])
        stream, turn = stream[size:], turn + 1
    assert joined(pieces) == joined(sent)


def _engine(answer):
    ours, theirs = socket.socketpair()
    threading.Thread(target=answer, args=(theirs,), daemon=True).start()
    return ours


def test_input_and_output_flow_at_once():
    data = bytes(range(256)) * 20_000

    def echo(channel):
        with channel:
            while received := channel.recv(5000):
                channel.sendall(frame(1, received))

    printed = converse(_engine(echo), data, 30.0, len(data))
    assert printed.complete and not printed.over
    assert bytes(printed.stdout) == data


def test_a_silent_engine_is_left_at_the_deadline():
    begin = time.monotonic()
    printed = converse(_engine(lambda channel: time.sleep(3)), None, 0.3, 100)
    assert not printed.complete and not printed.over
    assert time.monotonic() - begin < 2


def test_output_beyond_the_cap_is_not_kept():
    def flood(channel):
        with channel:
            channel.sendall(frame(2, b"ab") + frame(1, b"cdefgh"))

    printed = converse(_engine(flood), None, 5.0, 4)
    assert (bytes(printed.stderr), bytes(printed.stdout), printed.over, printed.complete) == (b"ab", b"cd", True, False)
