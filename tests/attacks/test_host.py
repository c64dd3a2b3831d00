"""The host: its variables, files, names and processes are not to be seen from inside."""

import os
import socket
import tempfile
from pathlib import Path

from attacking import OPEN, UNTRIED, attack, run

SECRET = "swordfish-of-the-host"


@attack()
def test_variables_of_the_host_are_not_seen(sandbox, monkeypatch, again):
    monkeypatch.setenv("RATCHET_SECRET", SECRET)
    with again() as other:
        seen = run(other, "env; cat /proc/*/environ 2>/dev/null | tr '\\0' '\\n'").stdout_text
    assert SECRET not in seen and "DOCKER_HOST" not in seen
    allowed = {
        "PATH",
        "HOME",
        "TMPDIR",
        "LANG",
        "PYTHONDONTWRITEBYTECODE",
        "HOSTNAME",
        "PWD",
        "OLDPWD",
        "SHLVL",
        "_",
        "",
    }
    assert {line.partition("=")[0] for line in run(sandbox, "env").stdout_text.splitlines()} <= allowed


@attack()
def test_the_environment_of_the_first_process_holds_nothing_of_the_host(sandbox, monkeypatch, again):
    monkeypatch.setenv("RATCHET_SECRET", SECRET)
    with again() as other:
        assert (
            SECRET.encode()
            not in run(other, "cat /proc/1/environ 2>/dev/null; cat /proc/$PPID/environ 2>/dev/null").stdout
        )


@attack(bare=OPEN)
def test_files_of_the_host_are_not_there(sandbox):
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        (Path(folder) / "secret").write_text(SECRET)
        assert (
            SECRET
            not in run(
                sandbox, f"cat {folder}/secret || {{ ls {folder}; grep -r {SECRET[:6]} /tmp 2>/dev/null; }}"
            ).stdout_text
        )


@attack(bare=OPEN)
def test_the_list_of_the_hosts_users_is_not_there(sandbox):
    seen = run(sandbox, "cat /etc/passwd").stdout_text
    assert seen != Path("/etc/passwd").read_text()


@attack()
def test_passwords_and_keys_are_not_read(sandbox):
    seen = run(
        sandbox,
        "cat /etc/shadow /etc/gshadow; ls /root; find / -xdev -maxdepth 5 -name 'id_*' -path '*.ssh*' 2>/dev/null;"
        "ls ~/.aws ~/.docker",
    )
    assert seen.stdout_text == ""


@attack(bare=OPEN)
def test_the_hosts_name_is_not_told(sandbox):
    real = socket.gethostname()
    assert (
        run(sandbox, "hostname 2>/dev/null || uname -n; cat /proc/sys/kernel/hostname").stdout_text.split().count(real)
        == 0
    )


@attack(bare=OPEN)
def test_the_hosts_processes_are_not_seen(sandbox):
    mine = Path(f"/proc/{os.getpid()}/cmdline").read_bytes()
    assert mine not in run(sandbox, ["cat", f"/proc/{os.getpid()}/cmdline"]).stdout


@attack(bare=UNTRIED)
def test_mounts_tell_of_no_folder_of_the_host(sandbox):
    home = str(Path(__file__).parents[2])
    assert home not in run(sandbox, "cat /proc/self/mountinfo /proc/mounts").stdout_text


@attack()
def test_the_kernels_memory_and_addresses_are_not_told(sandbox):
    script = "head -c 1 /proc/kcore; head -c 1 /dev/mem; head -c 1 /dev/kmem; awk '$1 !~ /^0+$/' /proc/kallsyms | head -n 1; dmesg"
    assert run(sandbox, script).stdout_text.strip("\0") == ""
