"""Write coding tasks as Harbor task folders, each with an oracle solution and a verifier in a container of its own.

As in our own grading, the verifier gets only the files that the agent may change. Expected output is readable by root alone, and
the tests run as another user.
"""

import json
import posixpath
import re
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path

from ratchet.components.core import DataError, TaskSpec
from ratchet.components.core.files import write_below
from ratchet.components.environments.task_grading import TEST_SECONDS

BASE_IMAGE = "python:3.12-slim"
AGENT_SECONDS = 900
WORKDIR = "/app"
_CONFIG = """schema_version = "1.4"
artifacts = {artifacts}

[task]
name = {name}
description = {description}

[metadata]
family = {family}
kind = {kind}
role = {role}
task_hash = {task_hash}

[agent]
timeout_sec = {agent_seconds}

[verifier]
environment_mode = "separate"
timeout_sec = {seconds}

[environment]
workdir = "/app"
"""
_AGENT_IMAGE = f"FROM {{image}}\nWORKDIR {WORKDIR}\nCOPY files/ {WORKDIR}/\n"
_TEST_IMAGE = f"FROM {{image}}\nWORKDIR {WORKDIR}\nCOPY . /tests/\nRUN chmod 700 /tests\n"
_SOLVE = "#!/bin/bash\nset -e\ncp -R /solution/files/. /app/\n"
_TEST = """#!/bin/bash
# The answer's files are in /app. Everything else comes from here, the tests last, so that an answer cannot replace them.
mkdir -p /logs/verifier
work=$(mktemp -d)
cp -R /tests/files/. "$work/"
for path in {editable}; do
  [ -f "/app/$path" ] && [ ! -L "/app/$path" ] || {{ echo 0 > /logs/verifier/reward.txt; exit 0; }}
  cp "/app/$path" "$work/$path"
done
cp -R /tests/hidden/. "$work/"
chmod -R a+rX "$work"
cd "$work" || exit 1
as_nobody=""
[ "$(id -u)" = 0 ] && as_nobody="setpriv --reuid=65534 --regid=65534 --clear-groups"
$as_nobody timeout -k 1 {seconds} sh -c {command} > /logs/verifier/output.txt 2> /dev/null
status=$?
expected=/tests/expected_output.txt
if [ $status -eq 0 ] && {{ [ ! -f "$expected" ] || cmp -s /logs/verifier/output.txt "$expected"; }}; then
  echo 1 > /logs/verifier/reward.txt
else
  echo 0 > /logs/verifier/reward.txt
fi
"""


def write_harbor_tasks(tasks: Sequence[TaskSpec], folder: Path) -> list[Path]:
    """Write a task folder below `folder` for each task; return them. Raises DataError for a task that is not made of files, and
    for two whose ids give one name.
    """
    named: dict[str, TaskSpec] = {}
    for task in tasks:
        if not task.editable or task.repository is not None or not task.test_command:
            raise DataError(
                f"task '{task.task_id}' is not graded by tests on files; only such tasks become Harbor tasks"
            )
        name = re.sub(r"[^\w-]+", "-", task.task_id.removeprefix(f"{task.taskset}/"))
        if (other := named.setdefault(name, task)) is not task:
            raise DataError(f"tasks '{other.task_id}' and '{task.task_id}' would have one folder, {name}; change an id")
    return [_write_task(task, folder / name) for name, task in named.items()]


def _write_task(task: TaskSpec, folder: Path) -> Path:
    paths = [posixpath.join(WORKDIR, path) for path in task.editable]
    text = {
        "name": f"ratchet/{task.taskset}-{folder.name}", "description": task.description.split("\n")[0][:200],
        "family": task.family, "kind": task.kind, "role": task.role.value, "task_hash": task.task_hash, "artifacts": paths,
    }  # fmt: skip
    # A JSON string or list of strings is one of TOML.
    config = _CONFIG.format(
        **{key: json.dumps(value, ensure_ascii=False) for key, value in text.items()},
        agent_seconds=AGENT_SECONDS,
        seconds=TEST_SECONDS * 3,
    )
    editable = " ".join(map(shlex.quote, task.editable))
    test = _TEST.format(editable=editable, seconds=TEST_SECONDS, command=shlex.quote(task.test_command))
    instruction = f"{task.description}\n\nThe files are in {WORKDIR}. Change only: {', '.join(task.editable)}.\n"
    files = {"task.toml": config, "instruction.md": instruction}
    image = task.image or BASE_IMAGE
    files |= {"environment/Dockerfile": _AGENT_IMAGE.format(image=image)}
    files |= {"tests/Dockerfile": _TEST_IMAGE.format(image=image)}
    files |= {"solution/solve.sh": _SOLVE, "tests/test.sh": test}
    files |= _below("environment/files", task.files) | _below("tests/files", task.files)
    files |= _below("tests/hidden", task.tests) | _below("solution/files", task.reference)
    if task.expected_output:
        files["tests/expected_output.txt"] = "".join(f"{line}\n" for line in task.expected_output)
    write_below(folder, files, f"task '{task.task_id}'")
    for script in ("solution/solve.sh", "tests/test.sh"):
        (folder / script).chmod(0o755)
    return folder


def _below(folder: str, files: Mapping[str, str]) -> dict[str, str]:
    return {f"{folder}/{path}": text for path, text in files.items()} or {f"{folder}/.keep": ""}
