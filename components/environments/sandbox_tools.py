"""The tools of the sandbox environment: their specs, and their effects on a sandbox.

Observations are short, since small models read them. An invalid call gives an observation of one line, no exception.

The `git` tool runs one allowed subcommand without a shell, with the same rights as `bash`; the allowlist keeps
observations short. The history that it shows is the base commit alone.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from ratchet.components.core import CommandFailure, CommandTimeout, Sandbox, SandboxFileError, ToolSpec
from ratchet.components.sandboxes.workspace_paths import relative_path

GREP_SECONDS = 10.0
# `grep -r` follows a link in the path that it is given: such a path is refused first.
GREP_SCRIPT = """name=${2#./}
[ "$2" = . ] || [ "$(realpath -m -- "$2")" = "$(pwd -P)/$name" ] || { echo "$name: leads through a symbolic link" >&2; exit 2; }
exec grep -rnHIE -e "$1" -- "$2"
"""
# One stream for both outputs keeps the order in which they were written.
SHELL_SCRIPT = 'exec 2>&1; eval "$1"'


class Observation(msgspec.Struct, frozen=True):
    """The result of a tool call; `content` is the text for the agent.

    `error`: the reason why the call was not executed or its command was killed, else None. `exit_code`: of a command.
    """

    content: str
    exit_code: int | None = None
    error: str | None = None
    truncated: bool = False


class ToolError(Exception):
    """A call cannot be executed. The policy reads the message."""


class ToolSettings(msgspec.Struct, frozen=True):
    """Limits of the tools: times in seconds, `observation_limit` in characters, `output_limit` in bytes.

    `command_timeout` is the default of a bash call, and `longest_timeout` the most that a call may ask for.
    """

    command_timeout: float = 30.0
    longest_timeout: float = 120.0
    observation_limit: int = 8000
    output_limit: int = 1 << 20


def tool_spec(
    name: str, description: str, required: Mapping[str, Any], optional: Mapping[str, Any] | None = None
) -> ToolSpec:
    """Return the spec of a tool. `required` and `optional` map each parameter to its JSON type or its JSON schema."""
    types = {**required, **(optional or {})}
    schema = {
        "type": "object",
        "properties": {key: {"type": value} if isinstance(value, str) else value for key, value in types.items()},
        "required": list(required),
        "additionalProperties": False,
    }
    return ToolSpec(name, description, schema)


TOOLS = (
    tool_spec(
        "read_file",
        "Show a file, or some of its lines.",
        {"path": "string"},
        {"start_line": "integer", "end_line": "integer"},
    ),
    tool_spec(
        "edit_file",
        "Replace old, which must occur exactly once, by new. An empty old writes the whole file.",
        {"path": "string", "old": "string", "new": "string"},
    ),
    tool_spec("bash", "Run a shell command in the workspace.", {"command": "string"}, {"timeout": "number"}),
    tool_spec("grep", "Search files for a regular expression.", {"pattern": "string"}, {"path": "string"}),
    tool_spec("submit", "Hand in the work. Ends the episode.", {}),
)


def check_call(tool: Any, params: Any, tools: Sequence[ToolSpec] = TOOLS) -> str | None:
    """Return a one-line error for an invalid call of one of `tools`; None for a valid call."""
    spec = next((offered for offered in tools if offered.name == tool), None)
    if spec is None:
        return f"unknown tool {tool!r}; tools: {', '.join(offered.name for offered in tools)}"
    return spec.parameter_error(params)


def call_tool(tool: str, params: dict[str, Any], sandbox: Sandbox, settings: ToolSettings) -> Observation:
    """Execute a call that `check_call` accepted, of any tool but submit; errors of the call become observations.

    Raises only InfrastructureError.
    """
    try:
        observation = TOOL_FUNCTIONS[tool](sandbox, settings, **params)
    except (ToolError, SandboxFileError) as error:
        message = _one_line(str(error))
        return Observation(f"error: {message}", error=message)
    content, truncated = truncate_text(observation.content, settings.observation_limit)
    return msgspec.structs.replace(observation, content=content, truncated=True) if truncated else observation


def _one_line(message: str) -> str:
    """Escape non-printable characters of a message, which may quote the policy's text."""
    return "".join(character if character.isprintable() else repr(character)[1:-1] for character in message)


def truncate_text(text: str, limit: int) -> tuple[str, bool]:
    """Return the first `limit` characters, followed by a note if the text was longer; and whether it was longer."""
    excess = len(text) - limit
    return (f"{text[:limit]}\n[cut: {excess} more characters]", True) if excess > 0 else (text, False)


def checked_line_range(path: str, total: int, start: int | None, end: int | None) -> tuple[int, int]:
    """Return the first and last line (1-based, inclusive) to show of a file of `total` lines.

    None means the file's first or last line; a greater `end` means the last. Raises ToolError for an empty range.
    """
    first = 1 if start is None else start
    last = total if end is None else min(end, total)
    if not 1 <= first <= last:
        raise ToolError(f"{path} has {total} lines; {first} to {last if end is None else end} is no range")
    return first, last


def read_file(
    sandbox: Sandbox, settings: ToolSettings, path: str, start_line: int | None = None, end_line: int | None = None
) -> Observation:
    """Return a file's text, or its lines from `start_line` to `end_line` (1-based, inclusive)."""
    text = sandbox.read(path).decode("utf-8", "replace")
    if start_line is None and end_line is None:
        return Observation(text)
    lines = text.splitlines(keepends=True)
    first, last = checked_line_range(path, len(lines), start_line, end_line)
    return Observation("".join(lines[first - 1 : last]))


def edit_file(sandbox: Sandbox, settings: ToolSettings, path: str, old: str, new: str) -> Observation:
    """Replace `old`, which must occur once, by `new`; an empty `old` writes the whole file."""
    if old == "":
        sandbox.write(path, new.encode("utf-8", "surrogatepass"))
        return Observation("ok")
    content = sandbox.read(path)
    # Bytes, not text: parts of the file that are not valid UTF-8 must not change.
    old_bytes = old.encode("utf-8", "surrogatepass")
    times = content.count(old_bytes)
    if times == 0:
        raise ToolError(f"old not found in {path}")
    if times > 1:
        raise ToolError(f"old occurs {times} times in {path}; give more of the text around it")
    sandbox.write(path, content.replace(old_bytes, new.encode("utf-8", "surrogatepass")))
    return Observation("ok")


def bash(sandbox: Sandbox, settings: ToolSettings, command: str, timeout: float | None = None) -> Observation:
    """Run a command; return standard output and error, and a non-zero exit code."""
    if timeout is not None and not 0 < timeout <= settings.longest_timeout:
        raise ToolError(f"timeout must be above 0 and at most {settings.longest_timeout:g} seconds")
    seconds = timeout or settings.command_timeout
    if "\0" in command:
        raise ToolError("command holds a null character")
    argv = ["bash", "-c", SHELL_SCRIPT, "bash", command]
    try:
        result = sandbox.run(argv, timeout=seconds, output_limit=settings.output_limit)
    except CommandFailure as failure:
        timed_out = isinstance(failure, CommandTimeout)
        reason = (
            f"timed out after {seconds:g} s"
            if timed_out
            else f"printed more than {settings.output_limit} bytes; killed"
        )
        output_characters = max(0, settings.observation_limit - len(reason) - 3)
        content = _with_note(failure.result.stdout_text[:output_characters], reason)
        return Observation(content, failure.result.exit_code, error=reason, truncated=not timed_out)
    return _completed_observation(result.stdout_text, result.exit_code)


def _completed_observation(output: str, exit_code: int) -> Observation:
    """Return the observation of a command that was not killed."""
    return Observation(_with_note(output, f"exit {exit_code}") if exit_code else output, exit_code)


def _with_note(text: str, note: str) -> str:
    return f"{text}{'' if text.endswith(chr(10)) or not text else chr(10)}[{note}]"


def grep(sandbox: Sandbox, settings: ToolSettings, pattern: str, path: str = ".") -> Observation:
    """Return matching lines as `path:number:line`, sorted by path. Symbolic links are not followed."""
    if "\0" in pattern:
        raise ToolError("pattern holds a null character")
    relative = relative_path(path, sandbox.workspace)
    argv = ["/bin/sh", "-c", GREP_SCRIPT, "sh", pattern, relative if relative == "." else f"./{relative}"]
    try:
        result = sandbox.run(argv, timeout=GREP_SECONDS, output_limit=settings.output_limit)
    except CommandFailure as failure:
        raise ToolError(
            "the search took too long" if isinstance(failure, CommandTimeout) else "too many matches"
        ) from failure
    if result.exit_code == 1:
        return Observation("no match", 1)
    if result.exit_code > 1 and not result.stdout:
        lines = result.stderr_text.removeprefix("grep: ").removeprefix("./").strip().splitlines()
        raise ToolError(f"grep: {lines[0] if lines else f'exit {result.exit_code}'}")
    matches = [line.removeprefix("./") for line in result.stdout_text.split("\n")[:-1]]
    matches.sort(key=lambda line: line.partition(":")[0])
    return Observation("\n".join(matches), 0)


GIT_SECONDS = 30.0
GIT_SUBCOMMANDS = (
    *("status", "diff", "log", "show", "blame", "grep", "ls-files", "rev-parse"),
    *("add", "restore", "checkout", "reset", "rm", "mv", "stash", "commit"),
)
REFUSED_GIT_OPTIONS = (
    *("--output", "--ext-diff", "--textconv", "--open-files-in-pager", "-O", "--exec", "--no-index", "--interactive"),
    *("--edit", "--patch-from", "--pathspec-from-file", "--upload-pack", "--receive-pack"),
)
GIT_PREFIX = (
    *("git", "--no-pager"),
    *("-c", "core.hooksPath=/dev/null", "-c", "core.fsmonitor=false", "-c", "commit.gpgSign=false"),
)
GIT_ENVIRONMENT = {"GIT_CONFIG_NOSYSTEM": "1", "GIT_TERMINAL_PROMPT": "0", "GIT_EDITOR": "true", "GIT_PAGER": "cat"}
GIT = tool_spec(
    "git",
    f"Run git on the repository: {', '.join(GIT_SUBCOMMANDS)}.",
    {"subcommand": {"type": "string", "enum": list(GIT_SUBCOMMANDS)}},
    {"args": {"type": "array", "items": {"type": "string"}}},
)


def run_git_tool(
    sandbox: Sandbox, settings: ToolSettings, subcommand: str, args: list[str] | None = None
) -> Observation:
    """Run git; return standard output and error, and a non-zero exit code."""
    argv = [*GIT_PREFIX, subcommand, *_checked_git_args(args or [])]
    try:
        result = sandbox.run(argv, timeout=GIT_SECONDS, output_limit=settings.output_limit, env=GIT_ENVIRONMENT)
    except CommandFailure as failure:
        raise ToolError(
            "git took too long" if isinstance(failure, CommandTimeout) else "git printed too much"
        ) from failure
    return _completed_observation(result.stdout_text + result.stderr_text, result.exit_code)


def _checked_git_args(args: list[str]) -> list[str]:
    for argument in args:
        if "\0" in argument:
            raise ToolError("git: args hold a null character")
        if argument.startswith("-O") or argument.partition("=")[0] in REFUSED_GIT_OPTIONS:
            raise ToolError(f"git: option {argument} is not offered")
    return args


TOOL_FUNCTIONS: Mapping[str, Callable[..., Observation]] = {
    "read_file": read_file,
    "edit_file": edit_file,
    "bash": bash,
    "grep": grep,
    "git": run_git_tool,
}
