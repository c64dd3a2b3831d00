"""How a stage of the data build ends: well, or with one clear line and a non-zero exit."""

import sys
from collections.abc import Callable
from datetime import date

from components.protocol import ConfigurationError, RatchetError

INSTALL = "`make setup` installs what this version needs"


def run_stage(main: Callable[[], None]) -> None:
    """Run a stage's `main`; an expected error becomes `error: …` on stderr and the error's exit code."""
    try:
        main()
    except RatchetError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] in ("", "components"):
            raise
        print(f"error: the package '{error.name}' is not installed; {INSTALL}", file=sys.stderr)
        sys.exit(2)
    except OSError as error:
        print(f"error: {error.filename or 'file system'}: {error.strerror or error}", file=sys.stderr)
        sys.exit(4)


def day_of(text: str) -> date:
    """A day given as a flag. Raises ConfigurationError."""
    try:
        return date.fromisoformat(text)
    except ValueError as error:
        raise ConfigurationError(f"--as-of '{text}' is not a day; write YYYY-MM-DD") from error
