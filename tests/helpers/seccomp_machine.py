"""A machine that runs seccomp filters, and what it may answer."""

import struct

ALLOW, EPERM, ENOSYS = 0x7FFF0000, 0x00050001, 0x00050026
X86, ARM = 0xC000003E, 0xC00000B7


def decide(program, number, arguments=(), architecture=X86):
    """Return what a classic BPF machine answers, written from bpf(4) and seccomp(2), not from the program under test."""
    values = [*arguments, *[0] * (6 - len(arguments))]
    data = struct.pack("=IIQ6Q", number, architecture, 0, *values)
    steps = [struct.unpack_from("HBBI", program, at) for at in range(0, len(program), 8)]
    place = accumulator = 0
    while True:
        code, yes, no, value = steps[place]
        place += 1
        if code == 0x20:
            (accumulator,) = struct.unpack_from("=I", data, value)
        elif code == 0x15:
            place += yes if accumulator == value else no
        elif code == 0x35:
            place += yes if accumulator >= value else no
        elif code == 0x25:
            place += yes if accumulator > value else no
        elif code == 0x45:
            place += yes if accumulator & value else no
        elif code == 0x06:
            return value
        else:
            raise AssertionError(f"code {code:#x}")
