"""What a shell command does to files, as far as its text says so."""

import re
from functools import lru_cache
from typing import NamedTuple

EVERYTHING = "."
"""The path that stands for the whole workspace in `Effects.restored`."""

_SEGMENTS = re.compile(r"&&|\|\||[;|\n]")
_HARMLESS_REDIRECT = re.compile(r"\d*>\s*(?:&\d|/dev/null)|\d*>&\d")
_ASSIGNMENT = re.compile(r"\w+=")
_PREFIXES = frozenset({"sudo", "time", "env", "timeout", "nohup", "command"})
_READER_NAMES = """
    basename cat cd cmp cut date df diff dirname du echo egrep fgrep file find flake8 grep head id less ls md5sum more
    mypy nl od printenv printf ps pwd pytest py.test realpath rg sha256sum sort stat tail test tree true type uname uniq
    wc which whoami xxd awk sed
"""
_READERS = frozenset(_READER_NAMES.split())
_GIT_READERS = frozenset({"blame", "branch", "diff", "grep", "log", "ls-files", "rev-parse", "show", "status"})
_TEST_MODULES = frozenset({"pytest", "unittest", "doctest", "mypy"})
_WRITING_FLAGS = {"sed": ("-i", "--in-place"), "find": ("-delete", "-exec"), "sort": ("-o",)}


class Effects(NamedTuple):
    """`changes`: something may differ afterwards. `removed`, `restored`: paths that are deleted, or put back by git."""

    changes: bool = False
    removed: tuple[str, ...] = ()
    restored: tuple[str, ...] = ()


@lru_cache(maxsize=4096)
def effects(command: str) -> Effects:
    """What a command may do. Known readers and test runners change nothing; whatever is not known changes everything."""
    changes, removed, restored = False, [], []
    for segment in _SEGMENTS.split(command):
        words = _words(segment)
        if not words:
            continue
        changes = changes or not _only_reads(words) or ">" in _HARMLESS_REDIRECT.sub("", segment)
        if words[0] in ("rm", "unlink"):
            removed += [word for word in words[1:] if not word.startswith("-")]
        elif words[0] == "git":
            restored += _restored(words[1:])
    return Effects(changes, tuple(removed), tuple(restored))


def _words(segment: str) -> list[str]:
    """The words of a simple command without assignments, prefixes like `timeout 10`, and quotes."""
    words = [word.strip("'\"") for word in segment.split()]
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
    if words[0] == "stash":
        return [] if paths and paths[0] not in ("push", "save") else [EVERYTHING]
    if words[0] == "reset":
        return [EVERYTHING] if "--hard" in words else []
    if words[0] == "restore" and "--staged" in words and "--worktree" not in words:
        return []
    return paths if words[0] in ("checkout", "restore") else []
