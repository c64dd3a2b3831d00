"""What the machine refuses a command: one line, an exit code that says whose fault it is, and no traceback."""

import errno

import pytest

from ratchet import cli


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (
            OSError(errno.EROFS, "Read-only file system", "/mnt/out"),
            2,
            "/mnt/out: Read-only file system; choose another path",
        ),
        (
            PermissionError(errno.EACCES, "Permission denied", "/root/x"),
            2,
            "/root/x: Permission denied; choose another path",
        ),
        (OSError(errno.EIO, "Input/output error"), 4, "Input/output error; repeat the command"),
        (OSError(errno.EMFILE, "Too many open files", "a"), 4, "a: Too many open files; repeat the command"),
        (OSError(errno.ENOSPC, "No space left on device", "/mnt/a"), 4, "/mnt/a: No space left on device: free space"),
        (MemoryError(), 4, "out of memory; end other programs"),
    ],
    ids=["read-only", "no permission", "broken disk", "no more files", "full", "no memory"],
)
def test_what_the_machine_refuses_is_one_line_and_no_bug(error, code, said, monkeypatch, capsys, tmp_path):
    monkeypatch.setenv("RATCHET_HOME", str(tmp_path))
    monkeypatch.setattr("ratchet.components.nights.night_history.night_rows", lambda: (_ for _ in ()).throw(error))
    assert cli.run(["status"]) == code
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 1 and said in lines[0]
