"""What a shell command does to files, as far as its text says so, and when two commands are the same in other words."""

import posixpath
import re
from functools import lru_cache
from typing import NamedTuple

EVERYTHING = "."
"""The path that stands for the whole workspace in `Effects.restored`."""

_SEGMENTS = re.compile(r"&&|\|\||[;|\n]")
_HARMLESS_REDIRECT = re.compile(r"\d*>\s*(?:&\d|/dev/null)|\d*>&\d|&>\s*/dev/null")
_PLAIN = re.compile(r"[\w ./:=,@%+'\"-]*+\Z")  # one simple command
_ASSIGNMENT = re.compile(r"\w+=")
_PREFIXES = frozenset({"sudo", "time", "env", "timeout", "nohup", "command"})
_READER_NAMES = """
    basename cat cd cmp cut date df diff dirname du echo egrep fgrep file find flake8 grep head id less ls md5sum more
    mypy nl od printenv printf ps pwd pytest py.test realpath rg sha256sum sort stat tail test tree true type uname uniq
    wc which whoami xxd awk sed
"""
_READERS = frozenset(_READER_NAMES.split())
_VIEWERS = frozenset({"cat", "head", "less", "more", "tail"})
_FOLLOWED = frozenset({"cp", "git", "mv", "rm", "unlink"})
_GIT_READERS = frozenset({"blame", "branch", "diff", "grep", "log", "ls-files", "rev-parse", "show", "status"})
_TEST_MODULES = frozenset({"pytest", "unittest", "doctest", "mypy"})
_WRITING_FLAGS = {"sed": ("-i", "--in-place"), "find": ("-delete", "-exec"), "sort": ("-o",)}
_READ = 4000  # characters of one command; of a longer one nothing is known but that it may change anything


class Effects(NamedTuple):
    """What may differ afterwards. Paths are as the command names them, below the folder that it changes into.

    `changes`: anything may. `removed`: paths that are deleted; `restored`: put back by git as they were committed;
    `copied`: (from, to), by cp or mv. `stash`: 1 puts edits aside, -1 takes them back.
    """

    changes: bool = False
    removed: tuple[str, ...] = ()
    restored: tuple[str, ...] = ()
    copied: tuple[tuple[str, str], ...] = ()
    stash: int = 0


OPAQUE, NO_EFFECTS = Effects(changes=True), Effects()


def effects(command: str) -> Effects:
    """What a command may do. Known readers and test runners change nothing; whatever is not known changes everything."""
    return OPAQUE if len(command) > _READ else _effects(command)


@lru_cache(maxsize=16_384)
def _effects(command: str) -> Effects:
    if _PLAIN.match(command) and _FOLLOWED.isdisjoint(words := _words(command)):
        return OPAQUE if words and not _only_reads(words) else NO_EFFECTS
    changes, stash, folder = False, 0, ""
    removed: list[str] = []
    restored: list[str] = []
    copied: list[tuple[str, str]] = []
    for segment in _SEGMENTS.split(command):
        words = _words(segment)
        if not words:
            continue
        program, paths = words[0], [word for word in words[1:] if not word.startswith("-")]
        changes = changes or not _only_reads(words) or ">" in _HARMLESS_REDIRECT.sub("", segment)
        if program == "cd" and paths:
            folder = posixpath.join(folder, paths[0])
        elif program in ("rm", "unlink"):
            removed += [posixpath.join(folder, path) for path in paths]
        elif program in ("cp", "mv") and len(paths) == 2:
            source, target = (posixpath.join(folder, path) for path in paths)
            into = target.endswith("/") or target == "."
            copied.append((source, posixpath.join(target, posixpath.basename(source)) if into else target))
        elif program == "git":
            restored += [each if each == EVERYTHING else posixpath.join(folder, each) for each in _restored(words[1:])]
            stash += _stash(words[1:])
    return Effects(changes, tuple(removed), tuple(restored), tuple(copied), stash)


def bare(command: str) -> str:
    """A command without what does not change what it does: blanks, prefixes like `timeout 10`, and how its output is shown."""
    return command if len(command) > _READ else _bare(command)


@lru_cache(maxsize=4096)
def _bare(command: str) -> str:
    text = " ".join(_HARMLESS_REDIRECT.sub("", command).split())
    head, _, last = text.rpartition("|")
    while head and not head.endswith("|") and last.split()[:1] and last.split()[0] in _VIEWERS:
        text = head.strip()
        head, _, last = text.rpartition("|")
    words = text.split()
    while words and (words[0] in _PREFIXES or _ASSIGNMENT.match(words[0]) or words[0].isdigit()):
        words = words[1:]
    return " ".join("python" if word == "python3" else word for word in words)


def _words(segment: str) -> list[str]:
    """The words of a simple command without assignments, prefixes like `timeout 10`, and quotes."""
    words = segment.split()
    if "'" in segment or '"' in segment:
        words = [word.strip("'\"") for word in words]
    while words and (words[0] in _PREFIXES or _ASSIGNMENT.match(words[0]) or words[0].isdigit()):
        words = words[1:]
    return words


def _only_reads(words: list[str]) -> bool:
    program, rest = words[0].rsplit("/", 1)[-1], words[1:]
    if program == "git":
        return bool(rest) and rest[0] in _GIT_READERS
    if program.startswith("python"):
        return len(rest) >= 2 and rest[0] == "-m" and rest[1] in _TEST_MODULES
    writing = _WRITING_FLAGS.get(program, ())
    return program in _READERS and not any(word.startswith(writing) for word in rest if writing)


def _restored(words: list[str]) -> list[str]:
    """The paths that a git command puts back as they were committed."""
    if not words:
        return []
    paths = [word for word in words[1:] if not word.startswith("-")]
    if words[0] == "reset":
        return [EVERYTHING] if "--hard" in words else []
    if words[0] == "restore" and "--staged" in words and "--worktree" not in words:
        return []
    return paths if words[0] in ("checkout", "restore") else []


def _stash(words: list[str]) -> int:
    """1 for a git command that puts edits aside, -1 for one that takes them back, 0 for another."""
    if not words or words[0] != "stash":
        return 0
    what = next((word for word in words[1:] if not word.startswith("-")), "push")
    if what in ("pop", "apply"):
        return -1
    return int(what in ("push", "save"))
