"""`ratchet`: its commands, and the conversion of every error into one line on stderr and an exit code.

Every command imports what it needs when it runs, so that `--help` takes a fraction of a second.
"""

import errno
import signal
import sys
import traceback
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from ratchet.components.core import ConfigurationError, InfrastructureError, RatchetError

from .commands import (
    compare,
    data,
    gateway,
    inspect,
    judge,
    label,
    maintenance,
    mcp,
    models,
    night,
    operating,
    plugins,
    project,
    receive,
    recipes,
    rollouts,
    sandbox,
    score,
    store,
    tasks,
    trajectories,
)
from .render.terminal import CommandExitCode, print_error

app = typer.Typer(
    name="ratchet",
    help="Trains LLM tool-use agents every night, and only ever moves forward.",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
for command in (
    project.init,
    night.plan,
    night.night,
    night.online,
    night.schedule,
    rollouts.collect,
    rollouts.evaluate,
    compare.compare,
    compare.leaderboard,
    compare.history,
    night.promote,
    night.rollback,
    night.report,
    models.train,
    gateway.gateway,
    data.build,
    data.export,
    data.trace,
    data.why,
    score.score,
    judge.judge,
    judge.rubrics,
    label.label,
    label.calibrate,
    score.preferences,
    rollouts.branch,
    trajectories.sanitise,
    sandbox.envs,
    plugins.plugins,
    maintenance.sync,
    maintenance.doctor,
    maintenance.ui,
    inspect.inspect,
    maintenance.status,
    maintenance.reap,
    mcp.mcp,
    receive.receive,
    operating.up,
    operating.down,
    operating.logs,
    operating.metrics,
    operating.backup,
    operating.restore,
):
    app.command()(command)
app.command(context_settings=models.PASS_TO_ENGINE)(models.serve)
for name, group in (
    ("models", models.models),
    ("recipes", recipes.recipes),
    ("data", data.data),
    ("trajectories", trajectories.trajectories),
    ("store", store.store),
    ("tasks", tasks.tasks),
    ("publish", project.publish),
    ("notify", operating.notify),
    ("sandbox", sandbox.sandbox),
):
    app.add_typer(group, name=name)


def _print_version(requested: bool) -> None:
    if requested:
        from importlib.metadata import version

        print(f"ratchet {version('ratchet')}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version and exit.")
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an unexpected error.")] = False,
) -> None:
    global _debug
    _debug = debug


_debug = False
NAME_CHARACTERS = 60
"""Characters shown of a file name that is too long."""
DISK_FULL = (errno.ENOSPC, errno.EDQUOT)
"""Error numbers of a full disk."""
NO_PERMISSION = (errno.EACCES, errno.EPERM, errno.EROFS)
"""Error numbers of missing permissions."""
MACHINE_FAILURE = (errno.EIO, errno.ESTALE, errno.EMFILE, errno.ENFILE, errno.ENOMEM)
"""Error numbers of a failing disk, a lost mount, or exhausted files or memory."""
INTERRUPTED_EXIT = 130
"""Exit code for Ctrl-C, of Typer and of shells."""


def run(arguments: Sequence[str]) -> int:
    """Run one command line and return its exit code. Prints one line on stderr for any error."""
    try:
        # In standalone mode Typer would print errors in its own form and end the process.
        result = app(args=list(arguments), prog_name="ratchet", standalone_mode=False)
    except RatchetError as error:
        return _print_expected(error)
    except typer.TyperException as error:
        if message := error.format_message():  # empty where a group without a command has just shown its help
            print_error(f"{message} (see `{' '.join(['ratchet', *_command(arguments), '--help'])}`)")
        return error.exit_code
    except (typer.Abort, KeyboardInterrupt):
        result = INTERRUPTED_EXIT
    except BrokenPipeError:  # the reader left, as in `ratchet history | head`: 141 is 128 + SIGPIPE
        # Python flushes both streams at exit and would print a second error about the broken pipe.
        sys.stderr.close()
        return 141
    except OSError as error:
        failure = _machine_error(error)
        return _print_unexpected(error) if failure is None else _print_expected(failure)
    except MemoryError as error:
        advice = "end other programs, or lower `concurrency` and `workers` of the scale, and repeat the command"
        return _print_expected(InfrastructureError(f"out of memory{f' ({error})' if str(error) else ''}; {advice}"))
    except Exception as error:
        return _print_unexpected(error)
    # A command that ran in a sandbox may itself have exited with 130: that is a CommandExitCode, not an interrupt here.
    if result == INTERRUPTED_EXIT and not isinstance(result, CommandExitCode):
        print_error("interrupted; finished work is kept, and the same command continues from there")
        import multiprocessing

        for worker in multiprocessing.active_children():  # they would delay our own end
            worker.kill()
    return result if isinstance(result, int) else 0


def _command(arguments: Sequence[str]) -> list[str]:
    """Return the words that name an existing command, for its help page."""
    command: object = typer.main.get_command(app)
    words: list[str] = []
    for argument in arguments:
        command = getattr(command, "commands", {}).get(argument)
        if command is None:
            break
        words.append(argument)
    return words


def _print_expected(error: RatchetError) -> int:
    if _debug:
        traceback.print_exception(error)
    print_error(str(error))
    return error.exit_code


def _machine_error(error: OSError) -> RatchetError | None:
    """Convert an error of a file, folder or machine to one with advice; None for an unexpected error."""
    where = f"{error.filename}: " if error.filename else ""
    if error.errno == errno.ENAMETOOLONG:
        return ConfigurationError(
            f"{str(error.filename)[:NAME_CHARACTERS]}… is too long for the name of a file or folder"
        )
    if error.errno in NO_PERMISSION and where:
        return ConfigurationError(f"{where}{error.strerror}; choose another path, or change its permissions")
    if error.errno in DISK_FULL:
        advice = "free space and repeat the command; finished work is kept"
        return InfrastructureError(f"{where}{error.strerror}: {advice}")
    if error.errno in MACHINE_FAILURE:
        return InfrastructureError(f"{where}{error.strerror}; repeat the command; finished work is kept")
    return None


def _print_unexpected(error: Exception) -> int:
    """Print an unexpected error in one line and write its traceback to a log."""
    from ratchet.components.core.home import home_folder

    if _debug:
        traceback.print_exception(error)
    line = f"{type(error).__name__}: {error}".splitlines()[0]
    try:
        log = home_folder("logs") / f"error-{datetime.now(UTC):%Y%m%d-%H%M%S}.log"
        log.write_text("".join(traceback.format_exception(error)), encoding="utf-8")
    except OSError as full:
        print_error(f"{line} (its traceback could not be written: {full})")
        return 1
    print_error(f"{line}; the traceback is in {log}")
    return 1


def other_clone_error(folder: Path, code: Path = Path(__file__)) -> str | None:
    """Return an error message if `folder` is in a clone whose code is not the running `code`; else None.

    A clone that was copied with its `.venv` would otherwise run the code of the original.
    """
    for clone in (folder, *folder.parents):
        own = clone / "ratchet" / "cli.py"
        if (clone / "dvc.yaml").is_file() and own.is_file():
            if own.samefile(code):
                return None
            advice = "run `make setup` here, then use the `ratchet` of its .venv"
            return (
                f"{clone} is a clone with its own code, and this `ratchet` runs the code of {code.parents[1]}; {advice}"
            )
    return None


def main() -> None:
    """Entry point of the console script. SIGTERM ends a command like Ctrl-C."""
    # SIGTERM's default action runs no `finally`: servers and sandboxes would be left running.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        line = other_clone_error(Path.cwd())
    except OSError:  # the folder was deleted or is unreadable: a command that needs it reports this itself
        line = None
    if line is not None and not {"--help", "-h"} & set(sys.argv[1:]):
        sys.exit(_print_expected(ConfigurationError(line)))
    sys.exit(run(sys.argv[1:]))


if __name__ == "__main__":
    main()
