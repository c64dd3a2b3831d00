"""Acts: what each call of an episode did, as guards look at it: files changed, commands run, code run, words said."""

import ast
import posixpath
import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Any, NamedTuple

from components.protocol import Category, DomainProfile, ToolCall, ToolResult
from components.rewards.rules.calls import Step, make_step, normal_path, resolve
from components.rewards.rules.files import Edit, read_edits
from components.rewards.rules.shell import effects
from components.trajectories.record import Turn

from .patch import is_patch, parts
from .paths import is_test
from .python import Source
from .shell import Command, commands

_CREATING = frozenset({"create", "create_file", "touch"})
_CELL = re.compile(r"^%%(?:writefile|file)[ \t]+(?:-a[ \t]+)?(\S{1,200})[ \t]*\n")
_CLOSES = re.compile(r"0+$|a?-r|a-rwx|ugo-r")
_MOST_TEXTS = 20
LARGEST = 1 << 20
"""Characters of one text that are looked at. An answer above this size is graded by no environment of ours."""

_CODE_WRITES = re.compile(
    r"open\(\s{0,9}[rbf]?['\"]([^'\"\n]{1,200})['\"]\s{0,9},\s{0,9}(?:mode\s{0,3}=\s{0,3})?['\"][rb]?[wax]"
    r"|Path\(\s{0,9}[rbf]?['\"]([^'\"\n]{1,200})['\"]\s{0,9}\)\.(?:write_text|write_bytes|open\(['\"][wax])"
)
_CODE_REMOVES = re.compile(
    r"\b(?:os\.(?:remove|unlink|rename|replace)|shutil\.(?:move|rmtree)|os\.truncate)\(\s{0,9}[rbf]?['\"]([^'\"\n]{1,200})['\"]"
    r"|Path\(\s{0,9}[rbf]?['\"]([^'\"\n]{1,200})['\"]\s{0,9}\)\.(?:unlink|rename|replace)\("
)
_PYTHON = re.compile(r"^(?:python|pypy|ipython)[\d.]*$")


class Change(NamedTuple):
    """A file changed. `added` is the text that came, `removed` the one that went where it is known; `whole`: it was written anew.

    `script`: `added` is the script of an editor (`sed -i`) or the code that writes, not the text itself.
    """

    path: str
    added: str
    removed: str = ""
    whole: bool = False
    script: bool = False


class Act(NamedTuple):
    """One call that was carried out (or may have been: a command that failed did something).

        `said`: the words of the turn, on its first call. `gone`: paths deleted or moved away; `back`: put back by git, `.` for all.
    `output`: what came back. `code`: Python that was run. `opaque`: it may have changed what its text does not say.
    """

    turn: int
    step: int
    category: Category | None
    path: str | None
    arguments: dict[str, Any]
    output: str
    changes: tuple[Change, ...]
    commands: tuple[Command, ...]
    code: tuple[str, ...]
    gone: tuple[str, ...]
    back: tuple[str, ...]
    reads_whole: bool = False
    opaque: bool = False


class Done(NamedTuple):
    """What a script does, as far as its text says so."""

    commands: tuple[Command, ...] = ()
    changes: tuple[Change, ...] = ()
    code: tuple[str, ...] = ()
    gone: tuple[str, ...] = ()
    back: tuple[str, ...] = ()


def acts_of(turn: Turn, profile: DomainProfile) -> Iterator[Act]:
    """The calls of a turn that were carried out, in order."""
    results = {result.call_id: result for result in turn.results}
    for place, call in enumerate(turn.calls):
        result = results.get(call.call_id)
        if result is not None and call.parse_error is None:
            act = _act(turn.index, place, call, result, profile)
            if act is not None:
                yield act


def _act(turn: int, place: int, call: ToolCall, result: ToolResult, profile: DomainProfile) -> Act | None:
    step = make_step(resolve(profile, call), call, result)
    if step.failed:
        return None
    category, done = step.tool.category, Done()
    if category is Category.EXECUTE:
        done = _execution(step)
    elif category is Category.WRITE and step.target is not None:
        done = (
            Done(gone=(step.target,))
            if step.tool.deletes
            else Done(changes=_written(step.target, call.tool, step.arguments))
        )
    elif category is Category.WRITE:
        done = _patched(step.arguments)
    return Act(
        turn,
        place,
        category,
        step.target,
        step.arguments,
        result.content,
        done.changes,
        done.commands,
        done.code,
        done.gone,
        done.back,
        category is Category.READ and step.whole and not result.truncated,
        category is Category.EXECUTE
        and not done.changes
        and step.command is not None
        and effects(step.command[:LARGEST]).changes,
    )


def _written(path: str, tool: str, arguments: dict[str, Any]) -> tuple[Change, ...]:
    edits = read_edits(arguments)
    if not edits:
        texts = [value for value in arguments.values() if isinstance(value, str) and normal_path(value) != path]
        return (Change(path, "\n".join(texts)[:LARGEST], whole=tool in _CREATING),)
    return tuple(_edited(path, edit) for edit in edits)


def _edited(path: str, edit: Edit) -> Change:
    if edit.content is not None:
        return Change(path, edit.content[:LARGEST], whole=True)
    return Change(path, edit.new[:LARGEST], edit.old[:LARGEST], whole=not (edit.old or edit.placed))


def _patched(arguments: dict[str, Any]) -> Done:
    """The changes of a patch, which names its files itself."""
    for value in arguments.values():
        if isinstance(value, str) and is_patch(value):
            return _of_patch(value[:LARGEST])
    return Done()


def _of_patch(text: str) -> Done:
    found = [each._replace(path=normal_path(each.path)) for each in parts(text)]
    changes = (Change(each.path, each.added, each.removed, each.whole) for each in found if not each.deleted)
    return Done(changes=tuple(changes), gone=tuple(each.path for each in found if each.deleted))


def _execution(step: Step) -> Done:
    if step.tool.name == "git":
        words = step.arguments.get("args", "")
        words = [str(word) for word in words] if isinstance(words, list) else str(words).split()
        return _done(
            (Command(("git", str(step.arguments.get("subcommand", "")), *words), (), (), "", False, False),), ()
        )
    code = step.arguments.get("code")
    if isinstance(code, str):
        cell = _CELL.match(code)
        if cell is not None:
            return Done(changes=(Change(normal_path(cell.group(1)), code[cell.end() : LARGEST], whole=True),))
        return _done((), (code[:LARGEST],))
    return read_script(step.command[:LARGEST]) if step.command is not None else Done()


@lru_cache(maxsize=512)
def read_script(script: str) -> Done:
    """What a shell script does."""
    found = tuple(commands(script))
    return _done(found, tuple(code for command in found if (code := _python_of(command))))


def _done(found: tuple[Command, ...], code: tuple[str, ...]) -> Done:
    changes: list[Change] = []
    gone: list[str] = []
    back: list[str] = []
    for command in found:
        changes += _changes(command)
        gone += _gone(command)
        if command.program == "git":
            back += _back(command)
        if command.program in ("git", "patch", "apply_patch") and is_patch(command.fed):
            patched = _of_patch(command.fed)
            changes += patched.changes
            gone += patched.gone
    for each in code:
        changes += _written_by(each)
        gone += [_path(a or b) for a, b in _CODE_REMOVES.findall(each)]
    return Done(found, tuple(changes), code, tuple(gone), tuple(back))


def _written_by(code: str) -> Iterator[Change]:
    """The files that Python writes by their literal names, with each literal text that may be what is written."""
    paths = {_path(a or b) for a, b in _CODE_WRITES.findall(code)}
    if not paths:
        return
    texts = [each.value for each in Source(code).all() if isinstance(each, ast.Constant)]
    long = [text for text in texts if isinstance(text, str) and len(text) >= 8 and _path(text) not in paths]
    for path in sorted(paths):
        for text in long[:_MOST_TEXTS] or [code]:
            yield Change(path, text, whole=True, script=True)


def _path(word: str) -> str:
    return normal_path(word)


def _python_of(command: Command) -> str | None:
    """The Python that a command runs from its own text."""
    if not _PYTHON.match(command.program):
        return None
    for place, word in enumerate(command.words[1:-1], start=1):
        if word.startswith("-") and not word.startswith("--") and word.endswith("c"):
            return command.words[place + 1]
    return command.fed or None


def _changes(command: Command) -> Iterator[Change]:
    program = command.program
    text = command.printed
    for path in command.writes:
        yield Change(_path(path), text, whole=True)
    if program == "tee":
        for path in command.operands:
            yield Change(_path(path), command.fed, whole=True)
    elif program in ("sed", "perl") and any(word.startswith(("-i", "--in-place", "-pi")) for word in command.words):
        script, files = _edit_script(command)
        for path in files:
            yield Change(_path(path), script, script=True)
    elif program == "touch":
        for path in command.operands:
            yield Change(_path(path), "", whole=True, script=True)
    elif program in ("cp", "install") and len(command.operands) >= 2:
        yield Change(_target(command.operands), "", whole=True, script=command.operands[0] != "/dev/null")


def _edit_script(command: Command) -> tuple[str, tuple[str, ...]]:
    """The script and the files of an editor that works in place."""
    scripts, files, take = [], [], False
    for word in command.words[1:]:
        if take:
            scripts.append(word)
            take = False
        elif word.startswith("-"):
            take = word.endswith("e") and not word.startswith("--")
        elif not scripts:
            scripts.append(word)
        else:
            files.append(word)
    return "\n".join(scripts), tuple(files)


def _target(operands: tuple[str, ...]) -> str:
    """Where the last operand of cp or mv puts the first one."""
    target = operands[-1]
    return _path(posixpath.join(target, posixpath.basename(operands[0])) if target.endswith("/") else target)


def _gone(command: Command) -> list[str]:
    operands = command.operands
    if command.program in ("rm", "unlink", "shred"):
        return [_path(each) for each in operands]
    if command.program == "chmod" and operands and _CLOSES.match(command.words[1]):
        return [_path(each) for each in command.words[2:]]
    if command.program == "truncate":
        return [_path(each) for each in operands if not each.isdigit()]
    if command.program == "git" and operands[:1] == ("rm",):
        return [_path(each) for each in operands[1:]]
    moved = operands[1:] if command.program == "git" and operands[:1] == ("mv",) else operands
    if (command.program == "mv" or moved is not operands) and len(moved) >= 2 and not is_test(_target(moved)):
        return [_path(each) for each in moved[:-1]]
    if command.program == "find" and "-delete" in command.words:
        names = [
            word for flag, word in zip(command.words, command.words[1:], strict=False) if flag in ("-name", "-iname")
        ]
        return [_path(posixpath.join(operands[0] if operands else ".", name)) for name in names]
    return []


def _back(command: Command) -> list[str]:
    """What git puts back as it was committed."""
    words = command.operands
    if not words:
        return []
    if words[0] == "stash" or (words[0] == "reset" and "--hard" in command.words):
        return ["."]
    return [_path(each) for each in words[1:]] if words[0] in ("checkout", "restore") else []
