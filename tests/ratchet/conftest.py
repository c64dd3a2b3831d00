"""The command line in this process, for the tests of commands."""

import functools
from collections.abc import Iterator

import pytest
import typer

from ratchet import cli


@pytest.fixture(scope="session", autouse=True)
def built_once() -> Iterator[None]:
    """Typer builds the tree of all commands for each command line: four fifths of the time of most tests here."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(typer.main, "get_command", functools.cache(typer.main.get_command))
        yield


@pytest.fixture
def run(capsys):
    """Run one command line; its exit code, and what it printed on stdout and on stderr."""

    def run(*words):
        code = cli.run([str(word) for word in words])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return run
