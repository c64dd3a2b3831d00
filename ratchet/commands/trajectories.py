"""Commands on trajectories: convert, validate, diff, stats, show, schema; sanitise."""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, BinaryIO

import typer
from typer import Argument, Option

from ratchet.commands import AsJson
from ratchet.components.core import DataError, PolicyRequest
from ratchet.render.terminal import (
    explain_interrupt,
    json_lines,
    note_skipped_files,
    print_fields,
    print_json,
    print_note,
    print_table,
    print_text,
)

if TYPE_CHECKING:
    from ratchet.components.interop.log_conversion import ConversionReport
    from ratchet.components.redaction import NameFinder
    from ratchet.components.trajectories.trajectory import Trajectory

trajectories = typer.Typer(no_args_is_help=True, help="Trajectories: records of agents' episodes, read from logs.")

STANDARD_STREAM = Path("-")
PROGRESS_SECONDS = 5.0
"""Seconds between two progress lines."""

Log = Annotated[Path, Argument(help="A log, a file of trajectories, or a folder of either.")]
Format = Annotated[str, Option("--format", help="Format of the log; auto detects it from its content.")]


@trajectories.command("convert")
def convert_log(
    log: Annotated[Path, Argument(help="A log, or a folder of logs; - is stdin.")],
    out: Annotated[Path, Option("-o", "--out", help="The file to write; - is stdout.")],
    format: Format = "auto",
    to: Annotated[str, Option(help="Output format: ratchet, openai_chat, adp, verifiers, atif or otel.")] = "ratchet",
    skip_bad: Annotated[
        bool, Option("--skip-bad", help="Skip unreadable parts and write them to OUT.rejected.jsonl.")
    ] = False,
    blobs: Annotated[Path | None, Option(help="Folder for images and bytes; default: X.blobs beside X.jsonl.")] = None,
    policy: Annotated[str | None, Option(help="The policy that played; default: the model in the log.")] = None,
    policy_version: Annotated[str | None, Option(help="Its version; default: the log's model, else agent.")] = None,
    task_id: Annotated[str | None, Option(help="The task of all episodes; default: the log's.")] = None,
    taskset: Annotated[str | None, Option(help="The taskset of the tasks; default: the log's.")] = None,
    domain: Annotated[str | None, Option(help="Domain whose rules score the episodes; default: the log's.")] = None,
    as_json: AsJson = False,
) -> None:
    """Convert a log, or a folder of logs, to trajectories, one JSON line each. Unproven success is null.

    Examples: `ratchet trajectories convert runs/ -o runs.jsonl --skip-bad`,
    `ratchet trajectories convert chats.jsonl -o chats/own.jsonl --policy-version helpdesk-7 --domain conversation`
    """
    from ratchet.components.interop.log_conversion import EpisodeNames, convert_logs
    from ratchet.render.trajectories import conversion_lines

    with explain_interrupt(out), _readable_path(log) as path:
        target: Path | BinaryIO = json_lines() if out == STANDARD_STREAM else out
        report = convert_logs(
            path,
            target,
            format=format,
            to=to,
            skip_bad=skip_bad,
            blobs=blobs,
            naming=EpisodeNames(policy, policy_version, task_id, taskset, domain),
            progress=_ProgressPrinter(time.monotonic()),
        )
    if isinstance(target, Path) and as_json:
        print_json(report)
    else:
        for line in conversion_lines(report, log, out):
            print_note(line) if out == STANDARD_STREAM else print_text(line)
    note_skipped_files(report.strangers, report.empty)


@trajectories.command("validate")
def validate_files(
    files: Annotated[list[Path], Argument(help="Files of trajectories, or folders of sealed shards.")],
    for_build: Annotated[bool, Option("--for-build", help="Also report what a data build would reject.")] = False,
    as_json: AsJson = False,
) -> int:
    """Validate files of trajectories: identity, hashes, order, answers, encoding, truncated or damaged lines.

    Exit code 3 where there is an error. Example: `ratchet trajectories validate runs.jsonl --for-build`
    """
    from ratchet.components.trajectories.file_validation import TrajectoryValidator
    from ratchet.components.trajectories.terminal_rendering import single_line
    from ratchet.render.trajectories import validation_line

    validator = TrajectoryValidator(for_build=for_build)
    for path in files:
        for problem in validator.validate(path):
            print_json(problem) if as_json else print_text(f"{problem.severity}: {single_line(str(problem), 1000)}")
    summary = validator.summary
    if as_json:
        print_json({"valid": summary.valid, "summary": summary})
    else:
        print_text(validation_line(summary))
    return 0 if summary.valid else 3


@trajectories.command("diff")
def diff_files(
    left: Log,
    right: Log,
    content: Annotated[bool, Option("--content", help="Only content: no identity, agent, timing, usage.")] = False,
    as_json: AsJson = False,
) -> int:
    """Compare two files trajectory by trajectory and list every field that differs.

    They are paired by identity, else by task and attempt. Exit code 3 where something differs. Example: `ratchet
    trajectories diff champion.jsonl challenger.jsonl --content`
    """
    from ratchet.components.trajectories.trajectory_diff import compare_trajectories, pair_trajectories, summarize_pairs
    from ratchet.render.trajectories import comparison_lines, totals_lines

    paired = pair_trajectories(_read_trajectories(left), _read_trajectories(right))
    compared = [compare_trajectories(one, other, content=content) for one, other in paired.pairs]
    summary = summarize_pairs(compared, paired)
    for comparison in compared:
        if not comparison.same:
            print_json(comparison) if as_json else print_text("\n".join(comparison_lines(comparison)) + "\n")
    if as_json:
        print_json({"same": summary.same, "summary": summary})
    else:
        print_text("\n".join(totals_lines(summary, str(left), str(right))))
    return 0 if summary.same else 3


@trajectories.command("stats")
def describe_file(file: Log, format: Format = "auto", as_json: AsJson = False) -> None:
    """Summarise a file: tasks, agents, success if known, steps, tools, tokens, time, duplicates.

    Example: `ratchet trajectories stats runs.jsonl`
    """
    from ratchet.components.trajectories.collection_summary import summarize
    from ratchet.render.trajectories import show_description

    summary = summarize(_read_trajectories(file, format))
    if as_json:
        print_json(summary)
    else:
        show_description(summary)


@trajectories.command("show")
def show_file(
    file: Log,
    episode: Annotated[str, Option(help="Only episodes whose id begins with this.")] = "",
    format: Format = "auto",
    full: Annotated[bool, Option("--full", help="Show texts in full.")] = False,
) -> None:
    """Show trajectories step by step. Example: `ratchet trajectories show run.traj | less`"""
    from ratchet.components.trajectories.terminal_rendering import render_trajectory

    count = 0
    for trajectory in _read_trajectories(file, format):
        if trajectory.episode_id.startswith(episode):
            print_text(("\n\n" if count else "") + render_trajectory(trajectory, full=full))
            count += 1
    if not count and not episode:
        raise DataError(f"{file} holds no episode; was its collection finished?")
    if not count:
        raise DataError(f"{file} has no episode '{episode}'; see the ids: ratchet trajectories show {file}")


@trajectories.command("schema")
def print_schema() -> None:
    """Print the JSON Schema of a trajectory. Example: `ratchet trajectories schema > trajectory.schema.json`"""
    from ratchet.components.trajectories.trajectory import schema_text

    print(schema_text(), end="")


def _read_trajectories(path: Path, format: str = "auto") -> Iterator["Trajectory"]:
    from ratchet.components.interop.log_conversion import LogStream

    with _readable_path(path) as source:
        logs = LogStream(source, format)
        yield from logs
        note_skipped_files([str(file) for file, _ in logs.strangers], [str(file) for file in logs.empty])


@contextmanager
def _readable_path(path: Path) -> Iterator[Path]:
    """Yield the path, or a temporary copy of stdin, since formats are detected by reading first."""
    if path != STANDARD_STREAM:
        yield path
        return
    import shutil
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "stdin"
        with copy.open("wb") as file:
            shutil.copyfileobj(sys.stdin.buffer, file)
        yield copy


class _ProgressPrinter:
    """Prints the progress of a long conversion on stderr."""

    def __init__(self, begun: float) -> None:
        self.said = begun

    def __call__(self, report: "ConversionReport") -> None:
        if time.monotonic() - self.said > PROGRESS_SECONDS:
            self.said = time.monotonic()
            print_note(f"{report.trajectories:,} trajectories so far, from {report.files:,} files")


MAX_REPLY_TOKENS = 1_024
"""Maximum tokens of a list of names."""


@contextmanager
def open_name_finder(place: str | None) -> "Iterator[NameFinder | None]":
    """Yield a finder of names that asks a model (YAML file or `MODEL@URL`); None for None.

    Raises ConfigurationError here, ModelUnavailable and RequestRefused when it is asked.
    """
    if place is None:
        yield None
        return
    from ratchet.components.models.openai_policy import OpenAIPolicy
    from ratchet.components.models.policy_config import OpenAIConfig
    from ratchet.components.redaction import NameFinder

    policy = OpenAIPolicy(OpenAIConfig.named(place), temperature=0.0, max_new_tokens=MAX_REPLY_TOKENS)

    def ask(prompt: str) -> str:
        messages = ({"role": "user", "content": prompt},)
        return policy.act([PolicyRequest("names", "names", 0, 0, messages, ())])[0].text

    try:
        yield NameFinder(ask)
    finally:
        policy.close()


def sanitise(
    file: Annotated[Path, Argument(help="Trajectories, one JSON line each; with --text any text.")],
    out: Annotated[Path, Option("--out", "-o", help="The sanitised file; it may be FILE itself.")],
    audit: Annotated[Path | None, Option(help="JSON lines of findings with a salted hash, never the secret.")] = None,
    policy: Annotated[str, Option(help="redact, drop or fail; or by severity: critical=fail,high=drop.")] = "redact",
    allow: Annotated[Path | None, Option(help="Values that may stay, one per line; `re:` begins a pattern.")] = None,
    names: Annotated[str | None, Option(help="Model that finds names of people: YAML file or MODEL@URL.")] = None,
    text: Annotated[bool, Option("--text", help="FILE is any text: a log, a configuration, a notebook.")] = False,
    as_json: AsJson = False,
) -> None:
    """Replace secrets and personal data by placeholders, the same one for the same secret within a trajectory.

    Episodes keep their identity; their content hash is recomputed. A file of tokens beside a shard still contains the secrets
    as token ids: do not share it. Images (FILE's .blobs folder) are copied, except texts among them that contain a secret.

    Example: `ratchet sanitise trajectories.jsonl -o clean.jsonl --audit audit.jsonl --policy critical=drop`
    """
    from ratchet.components.interop.redact_files import sanitise_records, sanitise_text
    from ratchet.components.redaction import AllowList, RedactionPolicy, Sanitiser

    with explain_interrupt(out), open_name_finder(names) as name_finder:
        sanitiser = Sanitiser(
            RedactionPolicy.parse(policy), allow=AllowList.read(allow) if allow else None, names=name_finder
        )
        run = sanitise_text if text else sanitise_records
        summary = run(file, out, sanitiser, audit)
    if as_json:
        print_json(summary)
        return
    if summary.kinds:
        print_table(("kind", "found"), summary.kinds.items())
    print_fields(
        {"read": summary.read, "written": summary.written, "changed": summary.changed, "dropped": summary.dropped}
    )
    print_text(f"{summary.findings} findings; written: {out}")
    if summary.blobs_absent:
        print_note(f"{summary.blobs_absent} referenced blobs are missing beside {file}")
    if summary.blobs_unclean:
        print_note(
            f"{summary.blobs_unclean} blobs with a secret in their text were not copied; they are still beside {file}"
        )
    if audit is not None:
        print_note(f"audit: {audit}")
