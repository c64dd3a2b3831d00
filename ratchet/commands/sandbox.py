"""Commands on sandboxes and environments: sandbox run, create, exec, reset, list, stop, replay; envs."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from typer import Argument, Option

from ratchet.commands import AsJson
from ratchet.components.core import CommandFailure, ConfigurationError
from ratchet.render.terminal import (
    CommandExitCode,
    duration_text,
    print_fields,
    print_json,
    print_note,
    print_table,
    print_text,
    show_output,
)

if TYPE_CHECKING:
    from ratchet.components.core import CommandResult
    from ratchet.components.rollouts.episode_replay import ReplayReport
    from ratchet.components.sandboxes import SandboxConfig

sandbox = typer.Typer(no_args_is_help=True, help="Sandboxes: where untrusted commands run.")
NO_OPTIONS_AFTER_ARGUMENT = {"allow_interspersed_args": False}
"""Context settings: everything after the first positional argument belongs to the command to run."""

Command = Annotated[
    list[str], Argument(help="A program and its arguments, after `--`; a single word is a command line for `sh`.")
]
Backend = Annotated[str, Option(help="auto, docker or local.")]
Image = Annotated[str | None, Option(help="Docker image; default: ratchet-sandbox:latest.")]
Timeout = Annotated[float, Option(min=0.01, help="Seconds until the command and its child processes are killed.")]
Stdin = Annotated[bool, Option("--stdin", help="Pass standard input, read to its end, to the command.")]


@sandbox.command("run", context_settings=NO_OPTIONS_AFTER_ARGUMENT)
def run_command(
    command: Command,
    backend: Backend = "auto",
    timeout: Timeout = 30.0,
    image: Image = None,
    stdin: Stdin = False,
    as_json: AsJson = False,
) -> int:
    """Run one command in a fresh sandbox that is removed afterwards. Exits as the command does (137 if it was killed).

    Example: `ratchet sandbox run --timeout 5 --json -- python3 -c "print(6 * 7)"`
    """
    from ratchet.components.sandboxes import make_sandbox

    config = _sandbox_config(backend, image)
    _note_backend(config)
    with make_sandbox(config) as fresh_sandbox:
        try:
            result = fresh_sandbox.run(_command_line(command), timeout=timeout, stdin=_read_stdin(stdin))
        except CommandFailure as failure:
            return _show_result(failure.result, as_json, str(failure))
    return _show_result(result, as_json)


@sandbox.command("create")
def create(
    backend: Backend = "auto",
    image: Image = None,
    lifetime: Annotated[float, Option(help="Seconds until it is stopped automatically, at most 23 hours.")] = 3600.0,
    as_json: AsJson = False,
) -> None:
    """Create a persistent sandbox, which lasts until it is stopped or its lifetime ends, and print its id.

    Example: `ID=$(ratchet sandbox create --lifetime 600)`
    """
    from ratchet.components.sandboxes.persistent_sandboxes import create_sandbox as make

    config = _sandbox_config(backend, image)
    _note_backend(config)
    record = make(config, lifetime)
    if as_json:
        print_json(record)
    else:
        print_text(record.id)


@sandbox.command("exec", context_settings=NO_OPTIONS_AFTER_ARGUMENT)
def execute(
    id: Annotated[str, Argument(help="The sandbox: see `ratchet sandbox list`.")],
    command: Command,
    timeout: Timeout = 30.0,
    stdin: Stdin = False,
    as_json: AsJson = False,
) -> int:
    """Run a command in a persistent sandbox; files stay between commands, processes do not. Exits as the command does.

    Options come before the id. Example: `tar c src | ratchet sandbox exec --stdin ID -- tar x`
    """
    from ratchet.components.sandboxes.persistent_sandboxes import run_command as run

    # With interspersed arguments off, the `--` after the id arrives as the first word of the command.
    words = command[1:] if command[0] == "--" else command
    try:
        return _show_result(run(id, _command_line(words), timeout=timeout, stdin=_read_stdin(stdin)), as_json)
    except CommandFailure as failure:
        return _show_result(failure.result, as_json, str(failure))


@sandbox.command("reset")
def reset(id: Annotated[str, Argument(help="The sandbox: see `ratchet sandbox list`.")]) -> None:
    """Reset a persistent sandbox to its initial state. Example: `ratchet sandbox reset ID`"""
    from ratchet.components.sandboxes.persistent_sandboxes import reset_sandbox as make_new

    make_new(id)
    print_text(id)


@sandbox.command("list")
def list_sandboxes(as_json: AsJson = False) -> None:
    """List persistent sandboxes. One whose daemon was killed is `gone`: stop it, or `ratchet reap`.

    One whose container ended, for example with its engine, is `lost` with all its files; `ratchet sandbox reset` recreates it.

    Example: `ratchet sandbox list --json`
    """
    import time

    from ratchet.components.sandboxes.persistent_sandboxes import recorded_sandboxes

    rows = [
        {
            "id": record.id,
            "backend": record.backend,
            "image": record.image,
            "state": record.state,
            "age": round(time.time() - record.created),
            "left": max(0, round(record.expires - time.time())),
        }
        for record in recorded_sandboxes()
    ]
    if as_json:
        for row in rows:
            print_json(row)
    elif rows:
        times = ({name: duration_text(float(row[name] or 0)) for name in ("age", "left")} for row in rows)
        cells = [list((row | texts).values()) for row, texts in zip(rows, times, strict=True)]
        print_table(list(rows[0]), cells)
    else:
        print_note("no sandboxes: `ratchet sandbox create` starts one")


@sandbox.command("stop")
def stop(
    id: Annotated[str | None, Argument(help="The sandbox: see `ratchet sandbox list`.")] = None,
    every: Annotated[bool, Option("--all", help="All persistent sandboxes of this home.")] = False,
) -> None:
    """Stop a persistent sandbox and remove its files. Example: `ratchet sandbox stop --all`"""
    from ratchet.components.sandboxes.persistent_sandboxes import recorded_sandboxes
    from ratchet.components.sandboxes.persistent_sandboxes import stop_sandbox as end

    if (id is None) is not every:
        raise ConfigurationError("give either an id (`ratchet sandbox stop ID`) or --all")
    for identity in [record.id for record in recorded_sandboxes()] if id is None else [id]:
        end(identity)
        print_text(identity)


@sandbox.command("replay")
def replay(
    file: Annotated[Path, Argument(help="Trajectories, one JSON line each, or a folder of shards.")],
    episode: Annotated[str | None, Option(help="Only the episode of this id.")] = None,
    taskset: Annotated[str | None, Option(help="Name or folder; default: the recorded one.")] = None,
    backend: Backend = "auto",
    image: Image = None,
    as_json: AsJson = False,
) -> int:
    """Replay recorded episodes action by action, each in a fresh environment, and list differences.

    Exit code 3 if there are any. Example: `ratchet sandbox replay data/rollouts/NIGHT/shard-00000.jsonl --episode ep-1a2b`
    """
    from ratchet.components.rollouts.episode_replay import read_episodes
    from ratchet.components.rollouts.episode_replay import replay as play_again

    config, otherwise = _sandbox_config(backend, image), 0
    for trajectory in read_episodes(file, episode):
        report = play_again(trajectory, config, taskset)
        otherwise += not report.same
        if as_json:
            print_json(report)
        else:
            _show_replay(report)
    return 3 if otherwise else 0


def envs(as_json: AsJson = False) -> None:
    """List environments with their domain, tools and tasksets.

    Example: `ratchet envs --json`
    """
    from ratchet.components.operations.manual_evaluation import list_environments

    environments = list_environments()
    if as_json:
        for environment in environments:
            print_json(environment)
        return
    print_table(
        ("environment", "domain", "tools", "tasksets"),
        [
            (
                environment["id"],
                environment["domain"],
                ", ".join(environment["tools"]) or environment["missing"],
                ", ".join(environment["tasksets"]) or None,
            )
            for environment in environments
        ],
    )


def _sandbox_config(backend: str, image: str | None) -> "SandboxConfig":
    """Return the sandbox configuration. Raises ConfigurationError for an unknown back end or an unusable image."""
    from ratchet.components.sandboxes import SandboxConfig, resolve_backend

    if backend not in ("auto", "docker", "local"):
        raise ConfigurationError(f"unknown sandbox back end '{backend}'; choose docker, local or auto")
    if image is not None and resolve_backend(backend, image) == "local":
        reason = (
            "the local sandbox has no images"
            if backend == "local"
            else f"no Docker engine with the image {image} answers"
        )
        raise ConfigurationError(f"{reason}; remove --image, or use --backend docker")
    return SandboxConfig.load({"backend": backend, "image": image})


def _note_backend(config: "SandboxConfig") -> None:
    """Print a note on stderr if `auto` chose the local sandbox, which isolates less than Docker."""
    from ratchet.components.sandboxes import describe_backend, resolve_backend

    if config.backend == "auto" and resolve_backend(config.backend, config.image) == "local":
        print_note(describe_backend(config))


def _command_line(command: list[str]) -> str | list[str]:
    return command[0] if len(command) == 1 else command


def _read_stdin(use_stdin: bool) -> bytes | None:
    return sys.stdin.buffer.read() if use_stdin else None


def _show_result(result: "CommandResult", as_json: bool, ended: str = "") -> int:
    """Print a result, or its JSON; return the command's exit code."""
    if as_json:
        print_json(
            {
                "exit_code": result.exit_code,
                "stdout": result.stdout_text,
                "stderr": result.stderr_text,
                "timed_out": result.timed_out,
                "truncated": result.truncated,
                "seconds": round(result.seconds, 4),
            }
        )
        return CommandExitCode(result.exit_code)
    show_output(sys.stdout, result.stdout)
    show_output(sys.stderr, result.stderr)
    if ended:
        print_note(ended)
    return CommandExitCode(result.exit_code)


def _show_replay(report: "ReplayReport") -> None:
    print_fields(
        {
            "episode": report.episode_id,
            "task": report.task_id,
            "environment": report.environment,
            "steps": report.steps,
            "result": "same" if report.same else f"{len(report.divergences)} divergences",
        }
    )
    if not report.same:
        print_table(
            ("turn", "step", "tool", "what", "line", "recorded", "replayed"),
            [
                (
                    divergence.turn,
                    divergence.step,
                    divergence.tool,
                    divergence.field,
                    divergence.line,
                    repr(divergence.recorded),
                    repr(divergence.replayed),
                )
                for divergence in report.divergences
            ],
        )
