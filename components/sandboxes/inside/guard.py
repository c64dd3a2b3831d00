# ruff: noqa: PTH112, PTH123
# pathlib would double the time that the session takes to start.
"""What keeps the session apart from the agent, whose user it shares, and what tells that it was kept apart."""

import ctypes
import os
import resource

from . import system_calls

_SET_DUMPABLE, _SET_NO_NEW_PRIVILEGES = 4, 38
# What can be done to another process of one's own user without looking into it: the system call, by machine; then which
# argument must not have which value, 1 being the session's process (for a priority, 2 and 3 mean all of a user's).
_RULES = (
    ({"x86_64": 302, "aarch64": 261}, 0, 1),  # prlimit64
    ({"x86_64": 142, "aarch64": 118}, 0, 1),  # sched_setparam
    ({"x86_64": 144, "aarch64": 119}, 0, 1),  # sched_setscheduler
    ({"x86_64": 203, "aarch64": 122}, 0, 1),  # sched_setaffinity
    ({"x86_64": 314, "aarch64": 274}, 0, 1),  # sched_setattr
    ({"x86_64": 141, "aarch64": 140}, 0, 2),  # setpriority
    ({"x86_64": 141, "aarch64": 140}, 1, 1),
    ({"x86_64": 251, "aarch64": 30}, 0, 3),  # ioprio_set
    ({"x86_64": 251, "aarch64": 30}, 1, 1),
)
_PSEUDO = ("proc", "sysfs", "cgroup", "cgroup2", "devpts", "mqueue")
_EVENTS = (  # how often memory or processes ran out, by version of the control groups
    ("/sys/fs/cgroup/memory.events", "oom_kill "),
    ("/sys/fs/cgroup/memory/memory.oom_control", "oom_kill "),
    ("/sys/fs/cgroup/pids.events", "max "),
    ("/sys/fs/cgroup/pids/pids.events", "max "),
)


def shut() -> bool:
    """Let nobody look into this process, nor change it, and filter system calls (see system_calls.py).

    False where there is no filter. What this process starts inherits the filter, but may be looked into.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_SET_DUMPABLE, 0, 0, 0, 0) != 0 or libc.prctl(_SET_NO_NEW_PRIVILEGES, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl")
    return system_calls.install(protection(os.uname().machine))


def protection(machine: str) -> list[tuple[int, int, int]]:
    """The calls that would change the session's process, as system_calls.filter_program takes them."""
    return [(numbers[machine], argument, value) for numbers, argument, value in _RULES if machine in numbers]


def condition() -> list[object]:
    """All that a process of the same user could have changed about this one, or counted up by its doings."""
    limits = [
        resource.getrlimit(getattr(resource, name)) for name in sorted(dir(resource)) if name.startswith("RLIMIT_")
    ]
    schedule = [os.sched_getscheduler(0), sorted(os.sched_getaffinity(0)), os.getpriority(os.PRIO_PROCESS, 0)]
    return [limits, schedule, *(_counted(path, name) for path, name in _EVENTS)]


def _counted(path: str, name: str) -> list[str]:
    try:
        with open(path) as file:
            return [line for line in file if line.startswith(name)]
    except OSError:
        return []


def system_v() -> list[str]:
    """Objects of System V that are left: they belong to no process, and die with none."""
    found = []
    for kind in ("shm", "sem", "msg"):
        try:
            with open(f"/proc/sysvipc/{kind}") as file:
                found += [f"System V {kind}" for _ in file.readlines()[1:]]
        except OSError:
            continue
    return found


def other_writable_places(known: tuple[str, ...]) -> list[str]:
    """Mounts that an agent might write to, `known` ones left out: a volume of the image, for one. Nobody empties those."""
    found = []
    with open("/proc/self/mountinfo") as file:
        for line in file:
            place, _, kind = line.partition(" - ")
            path, options = place.split()[4:6]
            path = path.encode().decode("unicode_escape")
            closed = options.split(",")[0] == "ro" or path in known or kind.split()[0] in _PSEUDO
            if not closed and not _is_the_engines(path):
                found.append(path)
    return found


def _is_the_engines(path: str) -> bool:
    """A folder of root's, or a single file that the agent cannot write: name resolution, hidden files of /proc."""
    if os.path.isdir(path):
        return path in ("/", "/dev", "/sys/fs/cgroup") and not os.access(path, os.W_OK)
    return path.startswith("/proc/") or not os.access(path, os.W_OK)
