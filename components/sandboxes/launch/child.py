# ruff: noqa: PTH123
# pathlib would double the time that the launcher takes to start.
"""One command: its namespaces, its limits, its end. Runs in processes forked from the launcher.

The launcher forks a *door*, which enters the namespaces and forks the *keeper*, which is the first process in them.
The keeper forks the command, waits for its end, the time limit or its owner's hanging up, kills whatever still runs,
reports, and exits. It asks nothing of the owner: when the owner dies, the control socket closes and the keeper kills.
"""

import contextlib
import errno
import itertools
import json
import os
import resource
import select
import signal
import socket
import time
from typing import Any, NoReturn

from ..inside import system_calls, tree
from . import jail, kernel

Request = dict[str, Any]
ABSENT = (FileNotFoundError, NotADirectoryError)
OUTRUN = 50
"""Turns of killing one by one after which a command is held for one that forks faster."""
IGNORED = (signal.SIGCHLD, signal.SIGPIPE, signal.SIGXFSZ, signal.SIGINT, signal.SIGTERM)
NAMESPACES = kernel.NEW_PROCESSES | kernel.NEW_NETWORK | kernel.NEW_IPC | kernel.NEW_HOST_NAME


def serve(request: Request, control: socket.socket, streams: list[int]) -> NoReturn:
    """The door. `streams` are the command's standard input, output and error."""
    try:
        if kernel.LINUX:
            kernel.join_new_keyring()
        _enter_folder(request["folder"])
        _enter_namespaces(request)
        if os.fork() == 0:
            _keep(request, control, streams)
    except BaseException as error:
        _report(control, {"error": f"{type(error).__name__}: {error}"})
    os._exit(0)


def _enter_folder(path: str) -> None:
    """Make `path` the current folder; a link that has taken its place is not followed."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    os.fchdir(descriptor)
    os.close(descriptor)


def _report(control: socket.socket, report: dict[str, Any]) -> None:
    try:
        control.sendall(json.dumps(report).encode())
    except OSError:
        return  # the owner has gone: nobody to tell


def _enter_namespaces(request: Request) -> None:
    """With a user namespace privileges go first and come back inside; without one they go last, in the command."""
    if request["users"]:
        _drop_user(request)
        kernel.enter_user_namespace(request["inner_user"])
    if request["isolate"]:
        kernel.unshare(NAMESPACES | (kernel.NEW_MOUNTS if request["jail"] else 0))
        socket.sethostname("sandbox")
        kernel.raise_loopback()


def _drop_user(request: Request) -> None:
    user = request["user"]
    if user is None:
        return
    os.setgroups([])
    os.setresgid(user, user, user)
    os.setresuid(user, user, user)
    if kernel.LINUX:
        kernel.set_dumpable(True)


def _keep(request: Request, control: socket.socket, streams: list[int]) -> NoReturn:
    try:
        if kernel.LINUX:
            kernel.become_subreaper()
        if request["jail"]:
            jail.enter(request["root"], request["inner_user"])
        if kernel.LINUX:
            kernel.set_dumpable(False)
        report = _run(request, control, streams)
    except BaseException as error:
        report = {"error": f"{type(error).__name__}: {error}"}
    _report(control, report)
    os._exit(0)


def _run(request: Request, control: socket.socket, streams: list[int]) -> dict[str, Any]:
    waker = _wake_on_child()
    try:
        pid = _start(request, streams)
    except (OSError, ValueError) as error:
        return {"exit_code": _refused(request, streams, error)}
    for stream in streams:
        os.close(stream)
    report = _wait(pid, control, waker, time.monotonic() + request["timeout"])
    _kill_all(pid, request)
    return report


def _wake_on_child() -> socket.socket:
    """A socket that becomes readable when a child has ended."""
    waker, wake = socket.socketpair()
    waker.setblocking(False)
    wake.setblocking(False)
    signal.signal(signal.SIGCHLD, lambda number, frame: None)
    signal.set_wakeup_fd(wake.detach(), warn_on_full_buffer=False)
    return waker


def _wait(pid: int, control: socket.socket, waker: socket.socket, deadline: float) -> dict[str, Any]:
    poll = select.poll()
    poll.register(control, select.POLLIN | select.POLLHUP)
    poll.register(waker, select.POLLIN)
    while True:
        left = deadline - time.monotonic()
        ready = {descriptor for descriptor, _ in poll.poll(max(0.0, left) * 1000)}
        if waker.fileno() in ready:
            waker.recv(4096)
        status = _reap(pid)
        if status is not None:
            code = os.waitstatus_to_exitcode(status)
            return {"exit_code": code if code >= 0 else 128 - code}
        if left <= 0:
            return {"exit_code": 128 + signal.SIGKILL, "timed_out": True}
        if control.fileno() in ready:
            return {"exit_code": 128 + signal.SIGKILL}


def _reap(pid: int) -> int | None:
    """Collect every child that has ended; the status of `pid` once it is among them."""
    found = None
    while True:
        try:
            ended, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return found
        if ended == 0:
            return found
        if ended == pid:
            found = status


def _kill_all(pid: int, request: Request) -> None:
    """Kill all that still runs: everything else in the namespace, or every descendant; of what outruns that, all of its user's."""
    isolated = request["isolate"]
    for turn in itertools.count():
        try:
            for target in [-1] if isolated else [-pid, *_children()]:
                _kill(target)
            if turn >= OUTRUN and request["alone"] and not isolated:
                _kill_user(request["user"])
            while os.waitpid(-1, 0 if isolated else os.WNOHANG)[0]:
                continue
            time.sleep(0.001)
        except ChildProcessError:
            return


def _kill_user(user: int) -> None:
    """At once all that runs as a user that is the sandbox's alone."""
    if os.fork() == 0:
        try:
            os.setresuid(user, user, user)
            _kill(-1)
        finally:
            os._exit(0)


def _children() -> list[int]:
    try:
        with open(f"/proc/self/task/{os.getpid()}/children") as file:
            return [int(each) for each in file.read().split()]
    except OSError:
        return []


def _kill(target: int) -> None:
    try:
        os.kill(target, signal.SIGKILL)
    except OSError as error:
        if error.errno not in (errno.ESRCH, errno.EPERM):
            raise


def _start(request: Request, streams: list[int]) -> int:
    """The command's process. With a user namespace the keeper takes on the limits and spawns, without a fork of its memory.

    (The command may then neither signal nor trace the keeper: that is the first process, and has capabilities.)
    """
    if request["users"]:
        _confine(request)
        return _spawn(request, streams)
    pid = os.fork()
    return pid or _become(request, streams)


def _confine(request: Request) -> None:
    _enter_folder(request["cwd"])
    os.umask(0o022)
    for name, limit in request["limits"].items():
        _limit(getattr(resource, name), limit)
    counted_alone = request["users"] or request["alone"]
    _limit(resource.RLIMIT_NPROC, request["pids"] + (0 if counted_alone else _tasks_on_this_machine()))
    if kernel.LINUX:
        kernel.forbid_new_privileges()
        system_calls.install()


def _spawn(request: Request, streams: list[int]) -> int:
    actions = [(os.POSIX_SPAWN_DUP2, stream, number) for number, stream in enumerate(streams)]
    for path in _candidates(request):
        with contextlib.suppress(*ABSENT):
            return os.posix_spawn(
                path, request["argv"], request["env"], file_actions=actions, setsid=True, setsigdef=IGNORED
            )
    raise FileNotFoundError(errno.ENOENT, "not found")


def _become(request: Request, streams: list[int]) -> NoReturn:
    """The command itself, in a fork of the keeper."""
    try:
        signal.set_wakeup_fd(-1)
        os.setsid()
        for each in IGNORED:
            signal.signal(each, signal.SIG_DFL)
        _confine(request)
        _drop_user(request)
        for number, stream in enumerate(streams):
            os.dup2(stream, number)
        if "archive" in request:
            _archive(request)
            os._exit(0)
        for path in _candidates(request):
            with contextlib.suppress(*ABSENT):
                os.execve(path, request["argv"], request["env"])
        raise FileNotFoundError(errno.ENOENT, "not found")
    except (OSError, ValueError) as error:
        os._exit(_refused(request, streams, error))
    finally:
        os._exit(126)


def _archive(request: Request) -> None:
    """Write the archive of the workspace to standard output, or fill the workspace from the one on standard input."""
    roots = [request["cwd"]]
    if request["archive"] == "pack":
        with open(1, "wb", closefd=False) as output:
            for piece in tree.pack(roots):
                output.write(piece)
    else:
        with open(0, "rb", closefd=False) as source:
            tree.unpack(source.read, roots)


def _refused(request: Request, streams: list[int], error: OSError | ValueError) -> int:
    """Say, as a shell would, why a command could not be started; its exit code."""
    os.write(streams[2], f"{request['argv'][0]}: {getattr(error, 'strerror', error)}\n".encode(errors="replace"))
    return 127 if isinstance(error, ABSENT) else 126


def _candidates(request: Request) -> list[str]:
    program = request["argv"][0]
    return [program] if "/" in program else [f"{folder}/{program}" for folder in request["env"]["PATH"].split(":")]


def _tasks_on_this_machine() -> int:
    """An upper bound of what the user runs: without a user namespace the limit counts everything of the user, everywhere."""
    try:
        with open("/proc/loadavg") as file:
            return int(file.read().split()[3].partition("/")[2])
    except OSError:
        return 4096


def _limit(name: int, value: int) -> None:
    """Both limits, never above what this process has already."""
    hard = resource.getrlimit(name)[1]
    value = value if hard == resource.RLIM_INFINITY else min(value, hard)
    resource.setrlimit(name, (value, value))
