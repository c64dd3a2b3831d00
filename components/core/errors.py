"""Errors that a user may meet, each one line that says what was wrong, where, and what to do next; and how a stage
reports them.
"""

import difflib
import sys
from collections.abc import Callable, Iterable
from pathlib import Path


class RatchetError(Exception):
    """Base class of expected errors. The command line prints the message and exits with `exit_code`."""

    exit_code = 1


class ConfigurationError(RatchetError):
    """A configuration, parameter or command-line value that cannot be used."""

    exit_code = 2


class DataError(RatchetError):
    """A file or record with invalid content; the message names the file, the line and the field."""

    exit_code = 3


class InfrastructureError(RatchetError):
    """A failure outside the policy: an engine, a server, a disk. It never yields a reward: the episode is retried or
    left out.
    """

    exit_code = 4


class BudgetReached(RatchetError):
    """A night stopped before a step that would exceed a budget of its scale."""

    exit_code = 5


def install_command(extra: str) -> str:
    """Return the shell command that adds an extra to this installation: from its clone, or from the wheel's file.

    Never `ratchet[…]` alone: the package `ratchet` of PyPI is another project.
    """
    root = Path(__file__).resolve().parents[2]
    if (root / "pyproject.toml").is_file():
        return f"pip install -e '{root}[{extra}]'"
    from importlib.metadata import version  # slow to import

    return f"pip install './ratchet-{version('ratchet')}-py3-none-any.whl[{extra}]'"


class _PandasBlocker:
    """Import finder that reports pandas as not installed and leaves every other module to the next finder."""

    def find_spec(self, name: str, path: object = None, target: object = None) -> None:
        if name == "pandas":
            raise ModuleNotFoundError("this process does without pandas", name=name)


def block_pandas() -> None:
    """Make `import pandas` fail in this process: PyArrow imports it (0.5 s) to test whether a value is a Series."""
    sys.meta_path.insert(0, _PandasBlocker())  # first: the finders behind it would import the installed package


def run_and_report(work: Callable[[], None]) -> int:
    """Run a stage and return its exit code: 0, or that of an expected error, which is printed to stderr as `error: …`.

    Expected are RatchetError, OSError (4) and a package that is not installed (2); any other exception is raised.
    """
    try:
        work()
    except RatchetError as error:
        return _print_error(str(error), error.exit_code)
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] in ("", "ratchet"):
            raise
        return _print_error(f"the package '{error.name}' is not installed; install it: {install_command('night')}", 2)
    except OSError as error:
        return _print_error(f"{error.filename or 'file system'}: {error.strerror or error}", 4)
    return 0


def run_stage(main: Callable[[], None]) -> None:
    """Run the `main` of a stage and exit the process with its code where that is not 0."""
    if code := run_and_report(main):
        sys.exit(code)


def _print_error(message: str, code: int) -> int:
    print(f"error: {message}", file=sys.stderr)
    return code


def suggest_name(name: str, candidates: Iterable[str], otherwise: str | None = None, *, cutoff: float = 0.6) -> str:
    """Return `did you mean 'x'?` where a candidate is similar, else `otherwise` (default: the list of candidates).

    `cutoff`: minimum similarity in [0, 1], as in `difflib.get_close_matches`.
    """
    names = list(candidates)
    close = difflib.get_close_matches(name, names, n=1, cutoff=cutoff)
    if close:
        return f"did you mean '{close[0]}'?"
    return f"known: {', '.join(names) or 'none'}" if otherwise is None else otherwise


def count_text(number: int, noun: str) -> str:
    """Format a count with its noun: 1 file, 2 files."""
    return f"{number:,} {noun if number == 1 else noun.removesuffix('y') + 'ies' if noun.endswith('y') else noun + 's'}"


def first_line(error: Exception) -> str:
    """Return the first line of an error's message, or the name of its class where it has none."""
    return next(iter(str(error).splitlines()), type(error).__name__)
