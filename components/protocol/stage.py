"""How a stage of the data build ends: well, or with one clear line and a non-zero exit."""

import sys
from collections.abc import Callable

from .errors import RatchetError

INSTALL = "`make setup` installs what this version needs"


def exit_code(work: Callable[[], None]) -> int:
    """Do a stage's work; an expected error becomes `error: …` on stderr. The exit code: the error's own, 0 without one."""
    try:
        work()
    except RatchetError as error:
        return _said(str(error), error.exit_code)
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] in ("", "components"):
            raise
        return _said(f"the package '{error.name}' is not installed; {INSTALL}", 2)
    except OSError as error:
        return _said(f"{error.filename or 'file system'}: {error.strerror or error}", 4)
    return 0


def run_stage(main: Callable[[], None]) -> None:
    """Run a stage's `main`, and end the process where it failed."""
    if code := exit_code(main):
        sys.exit(code)


def _said(line: str, code: int) -> int:
    print(f"error: {line}", file=sys.stderr)
    return code
