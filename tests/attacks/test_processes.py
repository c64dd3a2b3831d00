"""Processes that survive their command: daemons, zombies, the stopped and the deaf. After a command there is none of them."""

import secrets
import time

from attacking import UNTRIED, attack, is_usable, python, run
from patience import LIMIT, until

FORK_TWICE = """
import os, signal, sys, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        for number in range(1, 65):
            try: signal.signal(number, signal.SIG_IGN)
            except (OSError, ValueError): pass
        for descriptor in range(3): os.close(descriptor)
        os.chdir('/')
        while True:
            open('{workspace}/alive', 'a').write('x')
            time.sleep(.05)
    os._exit(0)
os.wait()
while not (os.path.exists('{workspace}/alive') and os.path.getsize('{workspace}/alive')): time.sleep(.05)
"""


def _is_dead(sandbox):
    """Whether nobody writes to `alive` any more."""
    first = run(sandbox, "cat alive | wc -c; sleep .4; cat alive | wc -c").stdout_text.split()
    return first[0] == first[1] and is_usable(sandbox)


@attack()
def test_a_daemon_forked_twice_does_not_survive(sandbox):
    python(sandbox, FORK_TWICE.format(workspace=sandbox.workspace))
    assert run(sandbox, "test -s alive").exit_code == 0
    assert _is_dead(sandbox)


@attack()
def test_a_background_job_without_hangup_does_not_survive(sandbox):
    run(
        sandbox,
        "nohup sh -c 'while true; do echo x >> alive; sleep .05; done' >/dev/null 2>&1 & sleep .3; disown 2>/dev/null; true",
    )
    assert _is_dead(sandbox)


@attack(bare=UNTRIED)
def test_a_chain_that_forks_on_and_on_does_not_survive(sandbox):
    code = (
        "import os, time\nwhile True:\n  open('alive', 'a').write('x')\n  time.sleep(.002)\n"
        "  if os.fork(): os._exit(0)\n  os.setsid()"
    )
    run(sandbox, ["sh", "-c", 'python3 -c "$1" & sleep .5', "sh", code])
    assert _is_dead(sandbox)


@attack()
def test_a_stopped_process_does_not_survive(sandbox):
    run(sandbox, "(while true; do echo x >> alive; sleep .05; done) & sleep .2; kill -STOP $!")
    run(sandbox, "kill -CONT -1 2>/dev/null")
    assert _is_dead(sandbox)


@attack()
def test_zombies_do_not_pile_up(sandbox):
    own = f"z{secrets.randbelow(10**9)}"  # a name of this very test: without isolation, other tests' processes are seen too
    code = f"""
import os
open('/proc/self/comm', 'w').write('{own}')
for n in range(20):
  if os.fork() == 0:
    os.setsid()
    if os.fork(): os._exit(0)
    os._exit(0)
"""
    for _ in range(4):
        assert python(sandbox, code).exit_code == 0
    states = run(sandbox, "cat /proc/[0-9]*/stat 2>/dev/null").stdout_text.splitlines()
    assert not [line for line in states if own in line and " Z " in line]
    assert is_usable(sandbox)


@attack()
def test_a_command_over_its_time_leaves_no_one(sandbox):
    assert run(
        sandbox,
        "(setsid sh -c 'while true; do echo x >> alive; sleep .05; done' &); trap '' TERM INT; while true; do :; done",
        timeout=1,
    ).timed_out
    assert _is_dead(sandbox)


@attack()
def test_a_process_that_kills_its_parents_does_not_survive(sandbox):
    begin = time.monotonic()
    run(
        sandbox,
        "setsid sh -c 'kill -9 $PPID; while true; do echo x >> alive; sleep .05; done' & sleep 1; kill -9 $PPID; sleep 600",
        timeout=4,
    )
    assert time.monotonic() - begin < LIMIT
    assert _is_dead(sandbox)


@attack(bare=UNTRIED)
def test_only_the_commands_own_processes_are_seen(sandbox):
    seen = run(sandbox, "cat /proc/[0-9]*/cmdline 2>/dev/null | tr '\\0' ' '").stdout_text
    assert "pytest" not in seen and "dockerd" not in seen


@attack()
def test_nobody_is_left_when_the_sandbox_has_stopped(sandbox):
    own = str(secrets.randbelow(10**9) + 10**9)  # a number of this very test: others run beside it
    run(sandbox, f"(setsid sleep {own} &); sleep {own}", timeout=1)
    sandbox.stop()
    until(lambda: own not in _all_on_this_machine())


def _all_on_this_machine():
    from contextlib import suppress
    from pathlib import Path

    seen = ""
    for each in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            seen += each.read_text(errors="replace")
    return seen
