# ruff: noqa: PTH123
# pathlib would double the time that the launcher takes to start.
"""The launcher process: fork one supervised command per message of its owner; clean up and exit when the owner exits.

For each command the launcher forks a process that enters the namespaces and forks the *supervisor*, the first process
in them. The supervisor starts the command, waits for its end, its time limit or the owner's disconnection, kills
everything that still runs, reports, and exits. It needs no action of the owner: when the owner dies, the control socket
closes.

Children leave with `os._exit`: a return would continue the launcher's loop in the child.
"""

import contextlib
import errno
import gc
import itertools
import json
import os
import resource
import select
import signal
import socket
import struct
import time
from typing import Any, NoReturn

from . import linux_namespaces
from .in_container import command_runner, seccomp_filter, workspace_files
from .in_container.command_runner import IGNORED_SIGNALS, NOT_FOUND_ERRORS

Request = dict[str, Any]
MAX_KILL_ROUNDS = 50
"""Rounds of killing one by one after which the command is treated as a fork bomb."""
NAMESPACES = (
    linux_namespaces.CLONE_NEWPID
    | linux_namespaces.CLONE_NEWNET
    | linux_namespaces.CLONE_NEWIPC
    | linux_namespaces.CLONE_NEWUTS
)


def run_request(request: Request, control: socket.socket, streams: list[int]) -> NoReturn:
    """Enter the namespaces, fork the supervisor, and exit. `control`: the socket for its report and the owner's end.

    `streams`: descriptors of the command's standard input, output and error.
    """
    try:
        if linux_namespaces.LINUX:
            linux_namespaces.join_new_keyring()
        _enter_folder(request["folder"])
        _enter_namespaces(request)
        # CLONE_NEWPID applies to children only: this fork makes the supervisor process 1 of the new namespace.
        if os.fork() == 0:
            _supervise(request, control, streams)
    except BaseException as error:
        _report(control, {"error": f"{type(error).__name__}: {error}"})
    os._exit(0)


def _enter_folder(path: str) -> None:
    """Change into `path` without following a symbolic link."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    os.fchdir(descriptor)
    os.close(descriptor)


def _report(control: socket.socket, report: dict[str, Any]) -> None:
    try:
        control.sendall(json.dumps(report).encode())
    except OSError:
        return  # the owner has exited


def _enter_namespaces(request: Request) -> None:
    """With a user namespace, drop privileges first and regain them inside; without one, the command drops them last."""
    if request["users"]:
        _drop_user(request)
        linux_namespaces.enter_user_namespace(request["inner_user"])
    if request["isolate"]:
        linux_namespaces.unshare(NAMESPACES | (linux_namespaces.CLONE_NEWNS if request["jail"] else 0))
        socket.sethostname("sandbox")
        linux_namespaces.bring_up_loopback()


def _drop_user(request: Request) -> None:
    user = request["user"]
    if user is None:
        return
    # Groups first: without root's user id they could no longer be changed.
    os.setgroups([])
    os.setresgid(user, user, user)
    os.setresuid(user, user, user)
    if linux_namespaces.LINUX:
        # A change of user ids clears this flag, and /proc/self/uid_map then belongs to root and cannot be written.
        linux_namespaces.set_dumpable(True)


def _supervise(request: Request, control: socket.socket, streams: list[int]) -> NoReturn:
    try:
        if linux_namespaces.LINUX:
            linux_namespaces.become_subreaper()
        if request["jail"]:
            linux_namespaces.enter_root_filesystem(
                request["root"], request["inner_user"], request.get("programs", ()), request.get("links", {})
            )
        if linux_namespaces.LINUX:
            # The command may have the supervisor's user id: it must not trace the supervisor or read its memory.
            linux_namespaces.set_dumpable(False)
        report = _run_command(request, control, streams)
    except BaseException as error:
        report = {"error": f"{type(error).__name__}: {error}"}
    _report(control, report)
    os._exit(0)


def _run_command(request: Request, control: socket.socket, streams: list[int]) -> dict[str, Any]:
    waker = command_runner.open_child_exit_descriptor()
    try:
        pid = _start_command(request, streams)
    except (OSError, ValueError) as error:
        return {"exit_code": _report_start_error(request, streams, error)}
    for stream in streams:
        os.close(stream)
    report = _wait_for_command(pid, control, waker, time.monotonic() + request["timeout"])
    _kill_all(pid, request)
    return report


def _wait_for_command(pid: int, control: socket.socket, waker: int, deadline: float) -> dict[str, Any]:
    poll = select.poll()
    poll.register(control, select.POLLIN | select.POLLHUP)
    poll.register(waker, select.POLLIN)
    while True:
        remaining = deadline - time.monotonic()
        readable = {descriptor for descriptor, _ in poll.poll(max(0.0, remaining) * 1000)}
        if waker in readable:
            os.read(waker, 4096)
        code = command_runner.reap_children(pid)
        if code is not None:
            return {"exit_code": code}
        if remaining <= 0:
            return {"exit_code": 128 + signal.SIGKILL, "timed_out": True}
        if control.fileno() in readable:
            return {"exit_code": 128 + signal.SIGKILL}


def _kill_all(pid: int, request: Request) -> None:
    """Kill the other processes of the namespace, or all descendants; after MAX_KILL_ROUNDS, all processes of the
    sandbox's user.
    """
    isolated = request["isolate"]
    for kill_round in itertools.count():
        try:
            # In a process namespace kill(-1) reaches all others at once. Without one, a process may fork between the listing and
            # its end, so the rounds go on until there is no child.
            for target in [-1] if isolated else [-pid, *_child_ids()]:
                _kill(target)
            if kill_round >= MAX_KILL_ROUNDS and request["alone"] and not isolated:
                _kill_user(request["user"])
            while os.waitpid(-1, 0 if isolated else os.WNOHANG)[0]:
                continue
            time.sleep(0.001)
        except ChildProcessError:
            return


def _kill_user(user: int) -> None:
    """Kill all processes of a user id that no other sandbox has."""
    # In a child, since only a process of that user may signal all of them at once, with kill(-1).
    if os.fork() == 0:
        try:
            os.setresuid(user, user, user)
            _kill(-1)
        finally:
            os._exit(0)


def _child_ids() -> list[int]:
    try:
        with open(f"/proc/self/task/{os.getpid()}/children") as file:
            return [int(child) for child in file.read().split()]
    except OSError:
        return []


def _kill(target: int) -> None:
    """Send SIGKILL to a process, a process group (negative) or all processes (-1), as in kill(2); ignore missing ones."""
    try:
        os.kill(target, signal.SIGKILL)
    except OSError as error:
        if error.errno not in (errno.ESRCH, errno.EPERM):
            raise


def _start_command(request: Request, streams: list[int]) -> int:
    """Start the command and return its process id. Raises OSError and ValueError."""
    if request["users"]:
        # The supervisor may take on the limits itself: as process 1 with capabilities it cannot be signalled or traced by
        # the command. posix_spawn, because it does not copy the supervisor's page tables.
        _apply_limits(request)
        return _spawn(request, streams)
    # Not posix_spawn: privileges must be dropped between fork and exec, since there is no user namespace to drop them in.
    pid = os.fork()
    return pid or _exec_command(request, streams)


def _apply_limits(request: Request) -> None:
    _enter_folder(request["cwd"])
    os.umask(0o022)
    for name, limit in request["limits"].items():
        _set_limit(getattr(resource, name), limit)
    counted_alone = request["users"] or request["alone"]
    _set_limit(resource.RLIMIT_NPROC, request["pids"] + (0 if counted_alone else _tasks_on_this_machine()))
    if linux_namespaces.LINUX:
        linux_namespaces.forbid_new_privileges()
        seccomp_filter.install_filter()


def _spawn(request: Request, streams: list[int]) -> int:
    actions = [(os.POSIX_SPAWN_DUP2, stream, number) for number, stream in enumerate(streams)]
    for path in _program_paths(request):
        with contextlib.suppress(*NOT_FOUND_ERRORS):
            return os.posix_spawn(
                path, request["argv"], request["env"], file_actions=actions, setsid=True, setsigdef=IGNORED_SIGNALS
            )
    raise FileNotFoundError(errno.ENOENT, "not found")


def _exec_command(request: Request, streams: list[int]) -> NoReturn:
    """Replace this process, a fork of the supervisor, by the command."""
    try:
        signal.set_wakeup_fd(-1)
        os.setsid()
        # exec keeps ignored signals ignored: without this, `yes | head` would not end, since yes ignores SIGPIPE.
        for ignored in IGNORED_SIGNALS:
            signal.signal(ignored, signal.SIG_DFL)
        _apply_limits(request)
        _drop_user(request)
        for number, stream in enumerate(streams):
            os.dup2(stream, number)
        if "archive" in request:
            _archive(request)
            os._exit(0)
        for path in _program_paths(request):
            with contextlib.suppress(*NOT_FOUND_ERRORS):
                os.execve(path, request["argv"], request["env"])
        raise FileNotFoundError(errno.ENOENT, "not found")
    except (OSError, ValueError) as error:
        os._exit(_report_start_error(request, streams, error))
    finally:
        os._exit(126)


def _archive(request: Request) -> None:
    """Write the archive of the workspace to standard output, or restore the workspace from standard input."""
    roots = [request["cwd"]]
    if request["archive"] == "pack":
        with open(1, "wb", closefd=False) as output:
            for piece in workspace_files.pack_folders(roots):
                output.write(piece)
    else:
        with open(0, "rb", closefd=False) as source:
            workspace_files.unpack_folders(source.read, roots)


def _report_start_error(request: Request, streams: list[int], error: OSError | ValueError) -> int:
    """Write the reason to the command's standard error; return the exit code that a shell would give."""
    code, text = command_runner.start_failure(request["argv"][0], error)
    os.write(streams[2], text)
    return code


def _program_paths(request: Request) -> list[str]:
    program = request["argv"][0]
    return [program] if "/" in program else [f"{folder}/{program}" for folder in request["env"]["PATH"].split(":")]


def _tasks_on_this_machine() -> int:
    """Return the number of threads on the machine, an upper bound on those that RLIMIT_NPROC counts for one user."""
    # Without a user namespace RLIMIT_NPROC counts the user's threads in all sandboxes and outside, not in this one alone.
    try:
        with open("/proc/loadavg") as file:
            return int(file.read().split()[3].partition("/")[2])
    except OSError:
        return 4096


def _set_limit(name: int, value: int) -> None:
    """Set the soft and the hard limit to `value` or to the current hard limit, whichever is lower."""
    hard = resource.getrlimit(name)[1]
    value = value if hard == resource.RLIM_INFINITY else min(value, hard)
    resource.setrlimit(name, (value, value))


def serve_launches(descriptor: int, folder: str) -> None:
    """Serve the socket `descriptor` until the owner exits; wait for all commands to end, then remove `folder`."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the kernel reaps
    # It ends with its owner only: ended by a signal, it would leave the sandboxes' folders behind.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if linux_namespaces.LINUX:
        linux_namespaces.become_subreaper()
    gc.disable()
    gc.freeze()  # a fork shares these pages as long as nobody touches them
    with socket.socket(fileno=descriptor) as owner:
        owner.set_inheritable(False)
        while _handle_message(owner):
            continue
    with contextlib.suppress(ChildProcessError):
        os.wait()  # with SIGCHLD ignored: returns when the last child has gone
    _remove(folder)


def _remove(folder: str) -> None:
    import shutil

    shutil.rmtree(folder, ignore_errors=True)


def _handle_message(owner: socket.socket) -> bool:
    """Receive one message and fork; return False when the owner has disconnected."""
    try:
        message, descriptors, _, _ = socket.recv_fds(owner, 1, 4)
    except OSError:
        return False
    if not message:
        return False
    for (
        descriptor
    ) in descriptors:  # recv_fds passes no flags on: a command that inherited these could forge its own result
        os.set_inheritable(descriptor, False)
    try:
        request = _read_request(descriptors[0])
        if os.fork() == 0:
            owner.close()
            run_request(request, socket.socket(fileno=descriptors[0]), descriptors[1:])
    except (OSError, ValueError, struct.error):
        pass  # the owner closed the command's control socket before it had sent the request
    finally:
        for descriptor in descriptors:
            os.close(descriptor)
    return True


def _read_request(control: int) -> Request:
    """Read the request before the fork: pages that the child does not touch are not copied."""
    with open(control, "rb", closefd=False) as file:
        (size,) = struct.unpack("!I", file.read(4))
        request: Request = json.loads(file.read(size))
    return request
