"""Scripted policies for tests and demonstrations: two that know the reference solution, and two weaker ones.

Each derives its next move from the request alone: the calls made so far are in the messages.
"""

import difflib
import hashlib
import random
import re
from abc import abstractmethod
from collections.abc import Sequence
from typing import Any

from ratchet.components.core import ConfigurationError, Policy, PolicyReply, PolicyRequest, TaskSpec, ToolCall
from ratchet.components.core.task_spec import REFERENCE_REPLY_FILE
from ratchet.components.environments.repository_tasks import GOLD_PATCH
from ratchet.components.tasksets import Taskset

Move = tuple[str, dict[str, Any]]


class ScriptedPolicy(Policy):
    """A policy with fixed moves over the tasks of one taskset. Change `script` whenever the moves change: it is part of
    `version`.
    """

    script = "2"
    identity: str
    """Part of `version`, and so of every episode's id: must never change, whatever the class is called."""

    def __init__(self, taskset: Taskset) -> None:
        self.sampling = {}
        self._tasks = taskset.by_id
        # The version changes only for tasksets whose references are patches. Episode ids contain it, so other tasksets keep theirs.
        script = (
            f"{self.script}-patch"
            if any(GOLD_PATCH in each.reference for each in self._tasks.values())
            else self.script
        )
        identity = f"{self.identity}/{script}/{taskset.hash}"
        self.version = f"{self.name}-{hashlib.sha256(identity.encode()).hexdigest()[:16]}"

    def act(self, requests: Sequence[PolicyRequest]) -> list[PolicyReply]:
        """Return one reply per request, each with the script's next tool call. Raises ConfigurationError for a task
        that is not in the taskset.
        """
        return [self._reply(request) for request in requests]

    def _reply(self, request: PolicyRequest) -> PolicyReply:
        task = self._tasks.get(request.task_id)
        if task is None:
            raise ConfigurationError(
                f"{self.name} does not know task '{request.task_id}'; give it the taskset that is played"
            )
        rng = random.Random(f"{self.name}/{request.seed}/{task.task_id}")
        if REFERENCE_REPLY_FILE in task.reference:
            return PolicyReply(text=self.reply(task.reference[REFERENCE_REPLY_FILE], rng))
        moves = self.moves(task, rng)
        calls_made = sum(1 for message in request.messages if message["role"] == "assistant")
        tool, arguments = moves[min(calls_made, len(moves) - 1)]
        return PolicyReply(text="", calls=(ToolCall(f"{request.turn}-0", tool, arguments),))

    def reply(self, reference: str, rng: random.Random) -> str:
        """Return the reply to a task that is answered in text, given a correct one."""
        return reference

    @abstractmethod
    def moves(self, task: TaskSpec, rng: random.Random) -> list[Move]:
        """Return all moves of an episode, in order; `rng` depends on the seed and the task only. The last move is
        repeated.
        """


class Teacher(ScriptedPolicy):
    """Reads each file that the reference solution changes, edits it as the reference does, and submits; performs the
    actions of a reference that is a list of actions; applies a reference that is a patch; or gives the reply of a reference
    in text.
    """

    name = "teacher"
    identity = "Teacher"

    def moves(self, task: TaskSpec, rng: random.Random) -> list[Move]:
        """Read and repair each file that differs from the reference, then submit; or perform the reference's actions."""
        if actions := _actions(task):
            return actions
        if GOLD_PATCH in task.reference:
            apply = "git apply --reverse" if task.criteria.get("reverse") else "git apply"
            command = f"{apply} {GOLD_PATCH} && rm {GOLD_PATCH}"
            return [_edit(GOLD_PATCH, "", task.reference[GOLD_PATCH]), ("bash", {"command": command}), _SUBMIT]
        edits = [(path, text) for path, text in task.reference.items() if text != task.files.get(path)]
        reads = [_read(path) for path, _ in edits if path in task.files]
        return [*reads, *(_edit(path, *self.edit(task.files.get(path, ""), text)) for path, text in edits), _SUBMIT]

    def edit(self, before: str, after: str) -> tuple[str, str]:
        """Return the arguments (old, new) of the edit that makes `after` of `before`."""
        return line_edit(before, after)


class Rewriter(Teacher):
    """A teacher that replaces each file as a whole. A policy that imitates it does not have to locate the fault first."""

    name = "rewriter"
    identity = "Rewriter"

    def edit(self, before: str, after: str) -> tuple[str, str]:
        """Return the arguments that replace the whole file."""
        return "", after


class Clumsy(ScriptedPolicy):
    """Reads the file twice, tries an invalid edit, sometimes calls another reading tool, and makes the correct edit in
    about half of its episodes.

    Where the reference is a list of actions: performs the first one twice, calls the tool of the last one with wrong
    arguments before the others, and omits the last but one in about half of its episodes.
    """

    name = "clumsy"
    identity = "Clumsy"

    def reply(self, reference: str, rng: random.Random) -> str:
        """Return the reference in about half of the episodes, else a wrong answer."""
        return reference if rng.random() < 0.5 else _WRONG_REPLY

    def moves(self, task: TaskSpec, rng: random.Random) -> list[Move]:
        """Return five or six moves; or one or two more than the reference has actions."""
        if actions := _actions(task):
            remaining = list(actions)
            if len(remaining) > 1 and rng.random() < 0.5:
                del remaining[-2]
            return [actions[0], (actions[-1][0], {"colour": "green"}), *remaining]
        path, faulty, reference = _subject(task)
        old, new = line_edit(faulty, reference)
        side_calls = [("bash", {"command": f"cat {path}"}), ("grep", {"pattern": "return", "path": path})]
        moves = [_read(path), _read(path), _edit(path, f"{old} # here", new)]
        if rng.random() < 0.4:
            moves.append(rng.choice(side_calls))
        if rng.random() < 0.5:
            moves.append(_edit(path, old, new))
        else:
            moves.append(_edit(path, *wrong_edit(faulty, reference, rng)))
        return [*moves, _SUBMIT]


class RandomEdit(ScriptedPolicy):
    """Reads the file, makes a plausible but wrong change, submits."""

    name = "random-edit"
    identity = "RandomEdit"

    def reply(self, reference: str, rng: random.Random) -> str:
        """Return a wrong answer."""
        return _WRONG_REPLY

    def moves(self, task: TaskSpec, rng: random.Random) -> list[Move]:
        """Return three moves."""
        path, faulty, reference = _subject(task)
        return [_read(path), _edit(path, *wrong_edit(faulty, reference, rng)), _SUBMIT]


_SUBMIT: Move = ("submit", {})
_WRONG_REPLY = "<think>This is hard to tell.</think><answer>none of these</answer>"
_CHANGES = (
    (re.compile(r" (?:\+|-|\*|//|%) "), (" + ", " - ", " * ")),
    (re.compile(r" (?:<|>|<=|>=|==|!=) "), (" < ", " > ", " >= ", " <= ")),
    (re.compile(r"\b\d\d\b"), ("10", "25", "50", "75", "99")),
    (re.compile(r"\b\d\b"), ("0", "1", "2", "3")),
)


def _actions(task: TaskSpec) -> list[Move]:
    return [(action["tool"], action["params"]) for action in task.reference_actions]


def _read(path: str) -> Move:
    return "read_file", {"path": path}


def _edit(path: str, old: str, new: str) -> Move:
    return "edit_file", {"path": path, "old": old, "new": new}


def _subject(task: TaskSpec) -> tuple[str, str, str]:
    """Return path, current text and reference text of the first file that the reference changes."""
    for path, reference in task.reference.items():
        if path in task.files and task.files[path] != reference:
            return path, task.files[path], reference
    raise ConfigurationError(f"task '{task.task_id}' has no reference that changes a file; scripted policies need one")


def line_edit(before: str, after: str) -> tuple[str, str]:
    """Return the smallest change of whole lines from `before` to `after` as (old, new), with `old` unique in `before`.

    Indentation is kept, so that every word is copied verbatim; surrounding lines are included where `old` is not
    unique.
    """
    before_lines, after_lines = before.splitlines(keepends=True), after.splitlines(keepends=True)
    blocks = [
        block
        for block in difflib.SequenceMatcher(a=before_lines, b=after_lines, autojunk=False).get_opcodes()
        if block[0] != "equal"
    ]
    if not blocks:
        return before, after
    start, stop = blocks[0][1], blocks[-1][2]
    shift = len(after_lines) - len(before_lines)
    while True:
        old, new = "".join(before_lines[start:stop]), "".join(after_lines[start : stop + shift])
        if old.endswith("\n") and new.endswith("\n"):
            old, new = old[:-1], new[:-1]
        if old and before.count(old) == 1:
            return old, new
        if start == 0 and stop == len(before_lines):
            return before, after
        start, stop = max(0, start - 1), min(len(before_lines), stop + 1)


def wrong_edit(faulty: str, reference: str, rng: random.Random) -> tuple[str, str]:
    """Return a random plausible change of one line of `faulty` as (old, new), which changes the text and is not the
    reference's.
    """
    changes = []
    lines = faulty.splitlines()
    for number, line in enumerate(lines):
        if line.startswith("def ") or not line.strip():
            continue
        for pattern, replacements in _CHANGES:
            changes += [
                (number, line[: match.start()] + replacement + line[match.end() :])
                for match in pattern.finditer(line)
                for replacement in replacements
            ]
        if not line.endswith(":"):
            changes.append((number, f"{line[: len(line) - len(line.lstrip())]}pass"))
    texts = ["\n".join([*lines[:number], line, *lines[number + 1 :]]) + "\n" for number, line in changes]
    return line_edit(faulty, rng.choice([text for text in texts if text not in (faulty, reference)]))
