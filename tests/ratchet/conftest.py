"""The command line in this process, for the tests of commands."""

import pytest

from ratchet import cli


@pytest.fixture
def run(capsys):
    """Run one command line; its exit code, and what it printed on stdout and on stderr."""

    def run(*words):
        code = cli.run([str(word) for word in words])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return run
