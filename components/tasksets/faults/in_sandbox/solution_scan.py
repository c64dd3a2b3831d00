# ruff: noqa: PTH100, PTH110, PTH114, PTH118, PTH119, PTH120, PTH123
"""Search every file that the sandbox can read below `roots` for functions, as source, in an archive or as bytecode.

Below roots other than / every file is searched: documents and old versions quote functions, too.
The request on standard input is `{"roots": [folder], "sources": {path: source}}`. Standard output is a JSON object of the
functions, each as `path:first line`, that another file than `path` in the workspace holds, too. `exact`: code objects are
equal without line numbers, file names and docstrings. `near`: a file defines a function of the same name and has a
quarter of its longer lines, such as another version of the package, or has most of many lines under any name.
"""

import importlib.util
import io
import json
import marshal
import os
import re
import sys
import types
import zipfile
from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import Any

ARCHIVES = (".whl", ".zip", ".egg", ".pyz")
SKIPPED = {"/proc", "/sys", "/dev"}
HEADER = 16  # bytes of a .pyc before its code
LONG_LINE = 20  # characters: shorter lines are the same in many functions
MANY_LINES = 5


def fingerprint(code: Any) -> tuple[Any, ...]:
    """Return what equal functions share."""
    constants = [fingerprint(value) if isinstance(value, types.CodeType) else repr(value) for value in code.co_consts]
    return (code.co_name, code.co_varnames, code.co_names, code.co_code, tuple(constants[1:]))


def functions(code: Any) -> Iterator[Any]:
    """Yield the code objects of all functions of a module."""
    for value in code.co_consts:
        if isinstance(value, types.CodeType):
            yield value
            yield from functions(value)


def body_lines(lines: list[str], code: Any) -> set[bytes]:
    """Return the lines of a function's body that hold code."""
    numbers = {line for _, _, line in code.co_lines() if line and line > code.co_firstlineno}
    return {lines[number - 1].strip().encode() for number in numbers or {code.co_firstlineno}}


def compiled(data: bytes, name: str) -> Any:
    """Return the code of a source or bytecode file; None if it cannot be read here."""
    try:
        if name.endswith(".pyc"):
            # Bytecode of another version would crash the interpreter.
            return marshal.loads(data[HEADER:]) if data[:4] == importlib.util.MAGIC_NUMBER else None
        return compile(data, name, "exec", dont_inherit=True)
    except Exception:
        return None


def has_source(folder: str, name: str) -> bool:
    """Return True if a bytecode file lies in the cache of a source file, which is searched itself."""
    return os.path.basename(folder) == "__pycache__" and os.path.exists(
        os.path.join(os.path.dirname(folder), name.partition(".")[0] + ".py")
    )


def files(root: str) -> Iterator[tuple[str, bytes]]:
    """Yield the readable files below `root`, of / only those of Python, and the Python files in archives."""
    for folder, folders, names in os.walk(root):
        folders[:] = [name for name in folders if os.path.join(folder, name) not in SKIPPED]
        for name in names:
            path = os.path.join(folder, name)
            if (root == "/" and not name.endswith((".py", ".pyc", *ARCHIVES))) or os.path.islink(path):
                continue
            if name.endswith(".pyc") and has_source(folder, name):
                continue
            try:
                with open(path, "rb") as file:
                    data = file.read()
                if not name.endswith(ARCHIVES):
                    yield path, data
                    continue
                with zipfile.ZipFile(io.BytesIO(data)) as archive:
                    for member in archive.namelist():
                        if member.endswith((".py", ".pyc")):
                            yield path + "/" + member, archive.read(member)
            except Exception:
                continue


def main() -> None:
    """Read the request, search, print the functions."""
    request = json.load(sys.stdin)
    sources: dict[str, str] = request["sources"]
    sought: dict[Any, set[tuple[str, int]]] = {}
    marks: set[bytes] = set()  # the longest line of each function: files without any are not compiled
    near: dict[bytes, set[tuple[str, int]]] = defaultdict(set)
    totals: dict[tuple[str, int], tuple[bytes, int]] = {}
    for path, source in sources.items():
        code = compiled(source.encode(), path)
        for function in functions(code) if code else ():
            place, lines = (path, function.co_firstlineno), body_lines(source.split("\n"), function)
            # The like of a function of a line or two is everywhere, unless a line is long.
            if len(function.co_code) >= 60:
                sought.setdefault(fingerprint(function), set()).add(place)
                marks.add(max(lines, key=len))
            long_lines = {line for line in lines if len(line) >= LONG_LINE}
            totals[place] = (function.co_name.encode(), len(long_lines))
            for line in long_lines:
                near[line].add(place)
    own = {os.path.abspath(path) for path in sources}
    exact: set[tuple[str, int]] = set()
    almost: set[tuple[str, int]] = set()
    for path, data in (found for root in request["roots"] for found in files(os.path.expandvars(root))):
        text = set() if path.endswith(".pyc") else set(map(bytes.strip, data.split(b"\n")))
        shared = Counter(place for line in near.keys() & text for place in near[line])
        names = set(re.findall(rb"def (\w+)", data)) if shared else set()
        for place, count in () if path in own else shared.items():
            name, total = totals[place]
            if 4 * count >= (total if name in names else 3 * max(total, MANY_LINES)):
                almost.add(place)
        if path.endswith(".pyc") or not marks.isdisjoint(text):
            code = compiled(data, path)
            for function in functions(code) if code else ():
                places = sought.get(fingerprint(function), set())
                exact.update(place for place in places if path not in own or os.path.abspath(place[0]) != path)
    exact_places, near_places = ([f"{path}:{line}" for path, line in sorted(found)] for found in (exact, almost))
    print(json.dumps({"exact": exact_places, "near": near_places}))


if __name__ == "__main__":
    main()
