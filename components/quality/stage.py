"""How a stage of the data build ends: well, or with one clear line and a non-zero exit."""

import sys
from collections.abc import Callable

from components.protocol import RatchetError


def run_stage(main: Callable[[], None]) -> None:
    """Run a stage's `main`; an expected error becomes `error: …` on stderr and the error's exit code."""
    try:
        main()
    except RatchetError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
    except OSError as error:
        print(f"error: {error.filename or 'file system'}: {error.strerror or error}", file=sys.stderr)
        sys.exit(4)
