"""The conformance suite of the Sandbox contract, for packages that add a back end. It needs pytest.

A test module of the package subclasses SandboxConformance, and pytest runs the suite against that back end:

    class TestMine(SandboxConformance):
        config = SandboxConfig(backend="mine")
"""

import secrets
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import ClassVar

import pytest

from ratchet.components.core import (
    CommandFailure,
    CommandTimeout,
    OutputLimitExceeded,
    Sandbox,
    SandboxFileError,
    SandboxUnavailable,
)
from ratchet.components.sandboxes import SandboxConfig, make_sandbox

PATIENCE = 120.0
"""Seconds in which even a busy machine has done what takes a moment."""


def _marker() -> str:
    """Return seconds to sleep that no other process on this machine sleeps: other suites may run at the same time."""
    return str(secrets.randbelow(10**8) + 10**8)


def _processes(sandbox: Sandbox) -> bytes:
    """Return the command lines that a command in the sandbox sees."""
    return sandbox.run("for each in /proc/[0-9]*/cmdline; do tr '\\0' ' ' < $each; done 2>/dev/null").stdout


class SandboxConformance:
    """What every back end promises: start and stop, commands, files, snapshots, limits, no network, no leaks.

    - `config`: selects the back end. The suite sets its limits itself, and starts at most two sandboxes at once.
    - `has_network`: True for a back end that does not separate the network, whose tests of that are then skipped.

    Commands need a POSIX shell, `python3`, and the usual tools of files and text.
    """

    config: ClassVar[SandboxConfig]
    has_network: ClassVar[bool] = False

    def make(self, **limits: int) -> Sandbox:
        """Return a sandbox of the back end, not started."""
        return make_sandbox(self.config.model_copy(update={"pids": 32, **limits}))

    @pytest.fixture
    def sandbox(self) -> Iterator[Sandbox]:
        """A started sandbox, stopped after the test."""
        with self.make() as sandbox:
            yield sandbox

    def test_a_result_holds_both_outputs_and_the_exit_code(self, sandbox: Sandbox) -> None:
        result = sandbox.run("echo out; echo err >&2; exit 3")
        assert (result.exit_code, result.stdout, result.stderr) == (3, b"out\n", b"err\n")
        assert result.seconds > 0 and not result.timed_out and not result.truncated

    def test_a_sequence_is_run_as_it_is(self, sandbox: Sandbox) -> None:
        assert sandbox.run(["echo", "$HOME; exit 1"]).stdout == b"$HOME; exit 1\n"

    def test_a_program_that_is_not_there_is_exit_code_127(self, sandbox: Sandbox) -> None:
        result = sandbox.run(["no-such-program"])
        assert result.exit_code == 127
        assert b"no-such-program" in result.stderr

    def test_death_by_a_signal_is_128_and_its_number(self, sandbox: Sandbox) -> None:
        assert sandbox.run("kill -s TERM $$").exit_code == 128 + 15

    def test_standard_input_is_what_is_given_and_else_empty(self, sandbox: Sandbox) -> None:
        assert sandbox.run(["cat"], stdin=b"a\0b" * 100_000).stdout == b"a\0b" * 100_000
        assert sandbox.run(["cat"]).stdout == b""

    def test_input_that_nobody_reads_is_no_failure(self, sandbox: Sandbox) -> None:
        assert sandbox.run(["true"], stdin=b"x" * 1_000_000).exit_code == 0

    def test_commands_run_in_the_workspace_as_an_unprivileged_user(self, sandbox: Sandbox) -> None:
        result = sandbox.run("pwd; id -u")
        assert result.stdout_text.split()[0] == sandbox.workspace
        assert result.stdout_text.split()[1] != "0"

    def test_the_hosts_environment_is_not_there_and_what_is_given_is(
        self, sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("A_SECRET_OF_THE_HOST", "swordfish")
        seen = sandbox.run("env; cat /proc/*/environ 2>/dev/null", env={"GIVEN": "yes"}).stdout_text
        assert "swordfish" not in seen
        assert "GIVEN=yes" in seen.splitlines()

    def test_python_is_there(self, sandbox: Sandbox) -> None:
        assert sandbox.run(["python3", "-c", "print(6 * 7)"]).stdout == b"42\n"

    def test_a_timeout_kills_the_whole_tree_and_the_sandbox_stays_usable(self, sandbox: Sandbox) -> None:
        marker = _marker()
        for seconds in (1.0, PATIENCE / 4):  # a busy machine may not have begun within one
            with pytest.raises(CommandTimeout) as caught:
                sandbox.run(f"echo begun; (setsid sleep {marker} &) ; sleep {marker}", timeout=seconds)
            if caught.value.result.stdout:
                break
        assert caught.value.result.timed_out
        assert caught.value.result.stdout == b"begun\n"
        assert marker.encode() not in _processes(sandbox)

    def test_what_a_command_leaves_running_is_killed_when_it_ends(self, sandbox: Sandbox) -> None:
        marker = _marker()
        assert sandbox.run(f"setsid sleep {marker} & exit 5").exit_code == 5
        assert marker.encode() not in _processes(sandbox)

    def test_output_is_cut_at_the_cap_while_it_streams(self, sandbox: Sandbox) -> None:
        with pytest.raises(OutputLimitExceeded) as caught:
            sandbox.run("yes", timeout=PATIENCE, output_limit=100_000)
        assert len(caught.value.result.stdout) == 100_000
        assert caught.value.result.truncated
        assert sandbox.run(["echo", "usable"]).stdout == b"usable\n"

    def test_output_of_exactly_the_cap_is_no_failure(self, sandbox: Sandbox) -> None:
        assert len(sandbox.run("head -c 5000 /dev/zero", output_limit=5000).stdout) == 5000

    def test_files_are_written_with_their_folders_and_read_back(self, sandbox: Sandbox) -> None:
        data = bytes(range(256)) * 1000
        sandbox.write("a/b/c.bin", data)
        sandbox.write(f"{sandbox.workspace}/a/d.txt", b"first, and longer")
        sandbox.write("a/d.txt", b"second")
        assert sandbox.read("./a/b/../b/c.bin") == data
        assert sandbox.run(["cat", "a/d.txt"]).stdout == b"second"
        sandbox.run("echo theirs >> a/d.txt && mkdir a/b/e && touch a/b/e/f")
        assert sandbox.read(f"{sandbox.workspace}/a/d.txt") == b"secondtheirs\n"

    def test_many_files_are_written_at_once(self, sandbox: Sandbox) -> None:
        sandbox.write_files({"x.txt": b"x", "y/z.txt": b"z"})
        assert (sandbox.read("x.txt"), sandbox.read("y/z.txt")) == (b"x", b"z")
        assert sandbox.run("echo more >> y/z.txt").exit_code == 0

    @pytest.mark.parametrize("path", ["../x", "/etc/hostname", "a/../../x", "", "a\0b", "/workspaces/x"])
    def test_a_path_outside_the_workspace_is_refused(self, sandbox: Sandbox, path: str) -> None:
        with pytest.raises(SandboxFileError):
            sandbox.read(path)
        with pytest.raises(SandboxFileError):
            sandbox.write(path, b"")

    @pytest.mark.parametrize("path", ["absent", "folder", "."])
    def test_what_is_no_file_cannot_be_read(self, sandbox: Sandbox, path: str) -> None:
        sandbox.run("mkdir folder")
        with pytest.raises(SandboxFileError):
            sandbox.read(path)

    def test_a_symbolic_link_is_followed_neither_in_reading_nor_in_writing(
        self, sandbox: Sandbox, tmp_path: Path
    ) -> None:
        secret = tmp_path / "secret"
        secret.write_text("of the host")
        tmp_path.chmod(0o777)
        sandbox.run(f"ln -s {secret} link; ln -s {tmp_path} folder; ln -s . here; echo own > own")
        for path in ("link", "folder/secret", "here/own"):
            with pytest.raises(SandboxFileError):
                sandbox.read(path)
            with pytest.raises(SandboxFileError):
                sandbox.write(path, b"changed")
        assert secret.read_text() == "of the host"

    def test_a_named_pipe_does_not_hang_a_read(self, sandbox: Sandbox) -> None:
        sandbox.run("mkfifo pipe")
        with pytest.raises(SandboxFileError):
            sandbox.read("pipe")

    def test_restore_brings_the_workspace_back_as_it_was(self, sandbox: Sandbox) -> None:
        sandbox.run("mkdir d && echo one > d/f && ln -s d/f link && chmod 700 d/f")
        kept = sandbox.snapshot()
        sandbox.run("echo two > d/f; touch d/new .hidden; rm link")
        sandbox.restore(kept)
        listed = sandbox.run("cat d/f; readlink link; ls -A . d; stat -c %a d/f; echo three >> d/f").stdout_text
        assert listed == "one\nd/f\n.:\nd\nlink\n\nd:\nf\n700\n"
        sandbox.restore(kept)
        assert sandbox.read("d/f") == b"one\n"

    def test_an_unknown_snapshot_is_refused(self, sandbox: Sandbox) -> None:
        for unknown in ("nothing", "../workspace", ""):
            with pytest.raises(SandboxFileError):
                sandbox.restore(unknown)

    def test_a_stopped_sandbox_is_unavailable_and_may_be_stopped_again(self, sandbox: Sandbox) -> None:
        sandbox.stop()
        sandbox.stop()
        for use in (lambda: sandbox.run("true"), lambda: sandbox.read("x"), lambda: sandbox.write("x", b"")):
            with pytest.raises(SandboxUnavailable):
                use()

    def test_two_sandboxes_share_nothing(self, sandbox: Sandbox) -> None:
        with self.make() as other:
            other.write("mine", b"mine")
            other.run("echo mine > $TMPDIR/mine")
            assert sandbox.run("cat $TMPDIR/mine || cat mine").exit_code != 0

    def test_a_sandbox_says_what_it_is_once_it_has_started(self, sandbox: Sandbox) -> None:
        assert sandbox.backend and sandbox.isolation and sandbox.workspace.startswith("/")
        assert sandbox.loss_reason == ""

    def test_no_more_processes_run_than_the_limit(self, sandbox: Sandbox) -> None:
        code = "import os\nfor n in range(64):\n  if os.fork() == 0: os.execvp('sleep', ['sleep', '600'])\n  print(n)"
        result = sandbox.run(["python3", "-c", code], timeout=PATIENCE)
        assert result.exit_code != 0 and 0 < len(result.stdout.split()) <= 32
        assert sandbox.run(["echo", "usable"]).stdout == b"usable\n"

    def test_a_process_has_no_more_memory_than_the_limit(self) -> None:
        with self.make(memory_mb=128, workspace_mb=16) as sandbox:
            code = "held = bytearray(256 << 20)\nheld[::4096] = b'x' * len(held[::4096])"
            assert sandbox.run(["python3", "-c", code], timeout=PATIENCE).exit_code != 0
            assert sandbox.run(["echo", "usable"]).stdout == b"usable\n"

    def test_a_file_is_no_larger_than_the_workspace_may_be(self) -> None:
        with self.make(workspace_mb=8) as sandbox:
            assert sandbox.run("head -c 20000000 /dev/zero > large", timeout=PATIENCE).exit_code != 0
            assert int(sandbox.run("wc -c < large").stdout) <= 8 << 20
            sandbox.run("rm large")
            sandbox.write("small", b"x")

    def test_a_process_opens_no_more_files_than_the_limit(self) -> None:
        with self.make(open_files=64) as sandbox:
            code = "held = []\ntry:\n  while True: held.append(open('/dev/null'))\nexcept OSError: print(len(held))"
            assert 0 < int(sandbox.run(["python3", "-c", code]).stdout) <= 64

    def test_neither_the_host_nor_the_internet_is_reached(self, sandbox: Sandbox) -> None:
        if self.has_network:
            pytest.skip("this back end does not separate the network")
        with closing(socket.create_server(("127.0.0.1", 0))) as server:
            for address in (server.getsockname(), ("192.0.2.1", 80)):
                code = f"import socket; socket.create_connection({address!r}, 5)"
                assert sandbox.run(["python3", "-c", code]).exit_code != 0
            server.settimeout(0.2)
            with pytest.raises(TimeoutError):
                server.accept()

    def test_stopping_ends_a_command_that_runs_and_leaves_no_process(self) -> None:
        marker, sandbox = _marker(), self.make()
        sandbox.start()
        ended: list[Exception | int] = []

        def run() -> None:
            try:
                ended.append(sandbox.run(["sleep", marker], timeout=PATIENCE).exit_code)
            except (SandboxUnavailable, CommandFailure) as error:
                ended.append(error)

        command = threading.Thread(target=run, daemon=True)
        command.start()
        time.sleep(0.5)
        sandbox.stop()
        command.join(PATIENCE / 4)
        assert ended, "the caller of a command is not told that the sandbox was stopped"
        end = time.monotonic() + PATIENCE / 4  # a pool may clear a sandbox after it was given back
        while self.host_sees(marker):
            assert time.monotonic() < end, "the command still runs"
            time.sleep(0.1)

    def test_fifty_sandboxes_leave_no_thread_and_no_open_file(self) -> None:
        def count() -> tuple[int, int]:
            return threading.active_count(), len(list(Path("/proc/self/fd").iterdir()))

        counts = []
        for _ in range(50):
            with self.make() as sandbox:
                assert sandbox.run(["true"]).exit_code == 0
            counts.append(count())
        assert counts[-1][0] <= counts[4][0] + 1 and counts[-1][1] <= counts[4][1] + 2

    def host_sees(self, text: str) -> bool:
        """Return whether a process of this machine has `text` in its command line; for a back end that runs elsewhere,
        override it.
        """
        for path in Path("/proc").glob("[0-9]*/cmdline"):
            try:
                if text.encode() in path.read_bytes():
                    return True
            except OSError:  # it has ended meanwhile
                continue
        return False
