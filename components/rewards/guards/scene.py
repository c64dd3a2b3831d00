"""Scene: what an episode has seen and made so far, which tells a file of the task from one of the agent's own."""

import posixpath
import re
from typing import NamedTuple

from components.trajectories.record import Trajectory

from .acts import Act
from .effects import Change
from .paths import is_scratch, is_test
from .request import Request

_NAMES = re.compile(r"[\w.-]{1,80}\.\w{1,8}")
_SCANNED = 200_000  # characters of one output
_MOST_LOOKUPS = 16
_ANSWERS = frozenset({"main", "solution", "answer", "submission", "index", "app", "lib", "model_new"})


class Found(NamedTuple):
    """A hack that was found in a call. `path` and `evidence`: the file and the line, whose going away takes it back."""

    kind: str
    why: str
    path: str = ""
    evidence: str = ""


class File(NamedTuple):
    """A file that is changed, by what it is to the task.

    `own`: the agent made it. `subject`: it is the task's, or named like an answer, so it may be graded. `product`: a subject, or
    a file of the agent's own that is neither a test nor for trying things out.
    """

    path: str
    test: bool
    own: bool
    subject: bool
    product: bool


class Scene:
    """One episode while it is followed. `opaque`: a command changed something that its text does not say."""

    def __init__(self, trajectory: Trajectory) -> None:
        self.request = Request(trajectory)
        self.changed: list[Change] = []
        self.made: set[str] = set()
        self.opaque = self.tests_changed = False
        self._files: dict[int, File] = {}  # of the changes of the running call
        self._texts: dict[str, str] = {}
        self._outputs: list[str] = []
        self._heard: list[str] = []
        self._lookups = 0
        self._named: set[str] = set()
        self._coded: set[str] = set()

    def file(self, change: Change) -> File:
        """What a file is, before its change is taken in."""
        seen = self._files.get(id(change))
        if seen is not None:
            return seen
        path = change.path
        test, scratch = is_test(path), is_scratch(path)
        asked = self.request.names(path) and not (test and self.request.asks_for_tests)
        known = path in self._texts or asked or not change.whole
        own = path in self.made or not (known or self.has_shown(path))
        answer = posixpath.splitext(posixpath.basename(path))[0] in _ANSWERS
        subject = not test and (answer or not own) and not (scratch and posixpath.isabs(path))
        found = self._files[id(change)] = File(path, test, own, subject, subject or not (test or scratch))
        return found

    def is_own(self, path: str) -> bool:
        """Whether the agent made a file itself: by an edit or a command, or, as far as is known, by code that names it first."""
        return path in self.made or posixpath.basename(path) in self._coded

    def removed(self, change: Change) -> str:
        """The text that a change took away: what it says itself, or what the file was last seen to hold."""
        return change.removed or (self._texts.get(change.path, "") if change.whole else "")

    def has_shown(self, path: str) -> bool:
        """Whether the name of a file stood in an output so far."""
        for output in self._outputs:
            self._named.update(_NAMES.findall(output, 0, _SCANNED))
        self._outputs.clear()
        return posixpath.basename(path) in self._named

    def knows(self, path: str) -> bool:
        """Whether a file was read, changed or asked about."""
        return path in self._texts or self.request.names(path) or any(path == each.path for each in self.changed[-200:])

    def was_heard(self, words: str) -> bool:
        """Whether words stood in the task or in an output before: then they are quoted. Looked up a few times an episode."""
        self._lookups += 1
        words = words.lower()
        if self._lookups > _MOST_LOOKUPS:
            return False
        return words in self.request.text or any(words in output.lower() for output in self._heard)

    def take(self, act: Act) -> None:
        """Take in a call after it was judged."""
        if act.opaque:
            self.opaque = True
        for path in act.back:
            self.changed = [each for each in self.changed if path not in (each.path, ".")]
        for change in act.changes:
            file = self.file(change)
            self.tests_changed = self.tests_changed or (file.test and not file.own)
            if file.own:
                self.made.add(change.path)
            if change.whole and not change.script:
                self._texts[change.path] = change.added
            self.changed.append(change)
        self._files.clear()
        for code in act.code:
            self._coded.update(name for name in _NAMES.findall(code, 0, _SCANNED) if not self.has_shown(name))
        if act.reads_whole and act.path is not None:
            self._texts[act.path] = act.output
        else:
            for command in act.commands:
                if command.program == "cat" and len(act.commands) == 1 and len(command.words) == 2:
                    self._texts[command.words[1]] = act.output
        self._outputs.append(act.output)
        self._heard.append(act.output)
