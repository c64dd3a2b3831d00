"""Import SWE-bench rows (JSON lines, as SWE-bench and its successors publish them) as a taskset of repository tasks.

Accepted variants: FAIL_TO_PASS and PASS_TO_PASS as a list (SWE-Gym, SWE-rebench, SWE-smith), as JSON in a string
(SWE-bench, Lite, Verified) or as Python literals in lower-case fields (SWE-bench Pro); an image and a test command in
the row (SWE-rebench); no base commit and a patch that *introduces* the fault, on a branch named after the instance
(SWE-smith). Rows do not say how a repository is installed: that is the image's task, or `setup_command`'s.
"""

import ast
import re
import shlex
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Any

import msgspec

from ratchet.components.core import ConfigurationError, DataError, Repository, Role, TaskSpec
from ratchet.components.environments.git_mirror import COMMIT_NAME
from ratchet.components.environments.repository_tasks import GOLD_PATCH

from .row_import import ImportResult, RowFault, read_tasks
from .task_filter import TaskFilter
from .taskset_files import TasksetHead, check_import_folder, write_taskset

GENERATOR = "components.environments.tasksets.swebench"
METADATA_FIELDS = ("version", "environment_setup_commit", "created_at", "difficulty", "hints_text", "repo_language")
REPOSITORY_SUFFIXES = ("", ".git", ".bundle")
PYTEST_COMMAND = "python3 -m pytest -q {tests}"
TEST_COMMANDS = {
    "django/django": "python3 tests/runtests.py --verbosity 2 --settings=test_sqlite --parallel 1 {modules}"
}
CHANGED_FILE = re.compile(r"^\+\+\+ b/([^\t\n]+)", re.MULTILINE)


class ImportSettings(msgspec.Struct, frozen=True):
    """Settings that rows leave open.

    - `repos`: a folder of clones, bare repositories or bundles (named `owner/name`, `owner__name` or `name`), or a URL
      with `{repo}`.
    - `image`: the sandbox image, with `{instance_id}`, `{docker_id}` (as in SWE-bench's image names), `{repo}`,
      `{name}`, `{version}`; empty: the row's image, else the sandbox's default.
    - `test_command`: with `{tests}`, the hidden tests' files, or `{modules}`, the same as module names; empty: the
      row's command, else pytest (for Django its own runner).
    - `setup_command`: shell command that is run in each fresh workspace; `role`: the role of all tasks.
    """

    repos: str
    image: str = ""
    test_command: str = ""
    setup_command: str = ""
    role: Role = Role.TRAIN


def read_rows(file: Path, name: str, settings: ImportSettings) -> ImportResult:
    """Read every row as a task of the taskset `name`. Raises DataError for a file that cannot be read."""
    return read_tasks(_lines(file), lambda line, _: read_row(line, name, settings))


def _lines(file: Path) -> Iterator[tuple[str, bytes]]:
    try:
        lines = file.read_bytes().split(b"\n")
    except OSError as error:
        raise DataError(f"{file} cannot be read: {error.strerror}; check the path") from error
    return ((f"{file}, line {number}", line) for number, line in enumerate(lines, start=1) if line.strip())


def read_row(line: bytes, name: str, settings: ImportSettings) -> TaskSpec:
    """Read one row as a task of the taskset `name`. Raises RowFault, which `read_rows` turns into a refusal."""
    row = _decode_row(line)
    instance, repo = _text(row, "instance_id"), _text(row, "repo")
    test_patch = _text(row, "test_patch", required=False)
    is_smith = not _text(row, "base_commit", required=False) and bool(_text(row, "image_name", required=False))
    fail_to_pass, pass_to_pass = _tests(row, "FAIL_TO_PASS"), _tests(row, "PASS_TO_PASS")
    if not fail_to_pass:
        # An agent that changes nothing would pass.
        raise RowFault("FAIL_TO_PASS is empty: nothing tells a fix from none")
    commit = instance if is_smith else _text(row, "base_commit")
    # It becomes an argument of git: neither an option nor a range may pass.
    if not COMMIT_NAME.fullmatch(commit) or ".." in commit:
        raise RowFault(f"base_commit {commit!r} is no commit's name")
    patch = _text(row, "patch", required=False)
    return TaskSpec(
        task_id=instance,
        taskset=name,
        family=instance,
        kind=repo,
        role=settings.role,
        domain="coding",
        description=_text(row, "problem_statement"),
        test_command=_command(row, repo, _test_files(test_patch, fail_to_pass, pass_to_pass), settings),
        reference={GOLD_PATCH: patch} if patch else {},
        criteria={
            "fail_to_pass": fail_to_pass,
            "pass_to_pass": pass_to_pass,
            **({"test_patch": test_patch} if test_patch else {}),
            **({"reverse": True} if is_smith else {}),
        },
        repository=Repository(_source(repo, settings.repos), commit, settings.setup_command),
        image=_image(row, instance, repo, settings.image),
        metadata={key: row[key] for key in METADATA_FIELDS if row.get(key) not in (None, "")},
    )


def _decode_row(line: bytes) -> dict[str, Any]:
    try:
        return msgspec.json.decode(line, type=dict[str, Any])
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise RowFault(f"not a JSON object: {error}") from error


def _text(row: dict[str, Any], field: str, *, required: bool = True) -> str:
    value = row.get(field)
    if value is None or value == "":
        if required:
            raise RowFault(f"{field} is missing or empty")
        return ""
    if not isinstance(value, str):
        raise RowFault(f"{field} is {type(value).__name__} and must be a string")
    return value


def _tests(row: dict[str, Any], field: str) -> list[str]:
    """Return a list of tests from any of its notations (see the module). Raises RowFault."""
    value = row.get(field, row.get(field.lower(), []))
    if isinstance(value, str):
        try:
            value = msgspec.json.decode(value)
        except msgspec.DecodeError:
            try:
                value = ast.literal_eval(value)  # executes nothing
            except (ValueError, SyntaxError, MemoryError, RecursionError) as error:
                raise RowFault(f"{field} is neither a list nor JSON of one") from error
    if not isinstance(value, list) or not all(isinstance(name, str) and name for name in value):
        raise RowFault(f"{field} is not a list of tests' names")
    return list(dict.fromkeys(value))


def _test_files(patch: str, fail_to_pass: list[str], pass_to_pass: list[str]) -> list[str]:
    """Return the Python files of the hidden tests: those that the test patch changes, else those in the lists' names."""
    changed = [path for path in CHANGED_FILE.findall(patch) if path.endswith(".py")]
    named = [test.partition("::")[0] for test in (*fail_to_pass, *pass_to_pass) if "::" in test]
    return sorted(set(changed or named))


def _command(row: dict[str, Any], repo: str, files: list[str], settings: ImportSettings) -> str:
    config = row.get("install_config")
    row_command = config.get("test_cmd") if isinstance(config, dict) else None
    default = f"{row_command} {{tests}}" if isinstance(row_command, str) else TEST_COMMANDS.get(repo, PYTEST_COMMAND)
    template = settings.test_command or default
    modules = [".".join(PurePosixPath(path).with_suffix("").parts).removeprefix("tests.") for path in files]
    return template.replace("{tests}", shlex.join(files)).replace("{modules}", shlex.join(modules)).strip()


def _image(row: dict[str, Any], instance: str, repo: str, template: str) -> str | None:
    if not template:
        return _text(row, "image_name", required=False) or _text(row, "docker_image", required=False) or None
    values = {
        "instance_id": instance,
        # As SWE-bench names its images.
        "docker_id": instance.replace("__", "_1776_").lower(),
        "repo": repo,
        "name": repo.rpartition("/")[2],
        "version": str(row.get("version") or ""),
    }
    return _fill_template(template, values)


def _source(repo: str, repos: str) -> str:
    if "{" in repos:
        return _fill_template(repos, {"repo": repo, "name": repo.rpartition("/")[2]})
    # A row is not trusted: `..` in it would name a folder outside of `repos`.
    if not re.fullmatch(r"[\w.-]+(/[\w.-]+)?", repo) or ".." in repo:
        raise RowFault(f"repo {repo!r} is not owner/name")
    names = (repo, repo.replace("/", "__"), repo.rpartition("/")[2])
    for name in names:
        for suffix in REPOSITORY_SUFFIXES:
            if (Path(repos) / f"{name}{suffix}").exists():
                return str(Path(repos) / f"{name}{suffix}")
    raise RowFault(f"{repos} holds no repository of {repo} (looked for {', '.join(names)}, also as .git and .bundle)")


def _fill_template(template: str, values: dict[str, str]) -> str:
    try:
        return template.format_map(values)
    except (KeyError, ValueError, IndexError, AttributeError) as error:
        placeholders = ", ".join(f"{{{key}}}" for key in values)
        raise ConfigurationError(
            f"template '{template}' cannot be filled ({error}); it may hold {placeholders}"
        ) from error


def import_rows(
    folder: Path, file: Path, settings: ImportSettings, task_filter: TaskFilter | None = None
) -> ImportResult:
    """Read a file's rows and write them as a taskset to `folder`, whose name becomes the taskset's name.

    Raises DataError if no row became a task, and ConfigurationError if the folder has a taskset that was not imported.
    """
    check_import_folder(folder, GENERATOR)
    name = folder.resolve().name
    result = read_rows(file, name, settings).select(file, task_filter)
    description = f"Repository tasks imported from {file.name}."
    head = TasksetHead(name, "1", "coding", {}, description=description, generator=GENERATOR)
    write_taskset(folder, head, {settings.role: result.tasks}, _card(name, file, result))
    return result


def _card(name: str, file: Path, result: ImportResult) -> str:
    repos = sorted({task.kind for task in result.tasks})
    return (
        f"# {name}\n\nRepository tasks imported from `{file.name}`: {len(result.tasks)} tasks of {len(repos)} repositories, "
        f"{len(result.refused)} rows refused.\n\nEach starts from a commit; the agent sees the issue and the files, and the "
        "tests named in `criteria` decide. Licences and conditions are those of the data set and of the repositories.\n\n"
        + "".join(f"- {repo}\n" for repo in repos)
    )
