"""A patch as changes of files: a unified diff, or the envelope of `apply_patch`."""

from collections.abc import Iterator
from typing import NamedTuple

_BEGINS = ("*** Update File: ", "*** Add File: ", "*** Delete File: ", "+++ ")


class Part(NamedTuple):
    """What a patch does to one file. `whole`: the file is new; `deleted`: it goes."""

    path: str
    added: str
    removed: str
    whole: bool = False
    deleted: bool = False


def is_patch(text: str) -> bool:
    """Whether a text looks like a patch."""
    return text.lstrip().startswith(("*** Begin Patch", "diff --git ", "--- "))


def parts(text: str) -> Iterator[Part]:
    """The files of a patch in order. Lines that are no patch are passed over."""
    path, before = "", ""
    added: list[str] = []
    removed: list[str] = []
    flags: dict[str, bool] = {}
    for line in text.splitlines():
        if line.startswith("--- "):
            before = _path(line[4:])
        elif line.startswith(_BEGINS):
            if path:
                yield Part(path, "\n".join(added), "\n".join(removed), **flags)
            added, removed = [], []
            named = _path(line.partition(": ")[2]) if line.startswith("***") else _path(line[4:])
            deleted = line.startswith("*** Delete") or named == "/dev/null"
            whole = line.startswith("*** Add") or (line.startswith("+++") and before == "/dev/null")
            path, flags = (before if named == "/dev/null" else named), {"whole": whole, "deleted": deleted}
        elif line.startswith("+"):
            added.append(line[1:])
        elif line.startswith("-"):
            removed.append(line[1:])
    if path:
        yield Part(path, "\n".join(added), "\n".join(removed), **flags)


def _path(name: str) -> str:
    name = name.split("\t")[0].strip()
    return name[2:] if name.startswith(("a/", "b/")) else name
