"""The stages of `dvc.yaml` without DVC: each one's module and flags, with the parameters filled in, and what it writes."""

import functools
import re
import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import yaml


@functools.cache
def _definition(path: Path, _changed: int) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(path.read_text())
    return found


def _load(path: Path) -> dict[str, Any]:
    return _definition(path, path.stat().st_mtime_ns) if path.is_file() else {}


def stages_of(root: Path) -> Iterator[tuple[str, list[str]]]:
    """Name, and module and flags, of each stage of the folder's `dvc.yaml`, in order."""
    definition = _load(root / "dvc.yaml")
    values: dict[str, Any] = dict(_load(root / "params.yaml"))
    for each in definition.get("vars", ()):
        values |= _load(root / each) if isinstance(each, str) else each
    for name, stage in definition["stages"].items():
        if "foreach" not in stage:
            yield name, _words(stage["cmd"], values)
            continue
        items = _value(stage["foreach"].strip("${}"), values)
        for item in items:
            given = {"item": items[item] if isinstance(items, dict) else item, "key": item}
            yield f"{name}@{item}", _words(stage["do"]["cmd"], values | given)


def _words(command: str, values: dict[str, Any]) -> list[str]:
    words = [word for each in shlex.split(command) for word in _word(each, values)]
    assert words[0] == values["python"] and words[1] == "-m"
    return words[2:]


def _word(word: str, values: dict[str, Any]) -> Iterator[str]:
    whole = re.fullmatch(r"\$\{([^}]+)\}", word)
    if whole and isinstance(found := _value(whole[1], values), dict):
        for flag, given in found.items():
            for each in given if isinstance(given, list) else [given]:
                yield from ([f"--{flag}"] if each is True else [] if each is False else [f"--{flag}", str(each)])
        return
    yield re.sub(r"\$\{([^}]+)\}", lambda found: _plain(_value(found[1], values)), word)


def _value(name: str, values: dict[str, Any]) -> Any:
    return functools.reduce(lambda found, part: found[part], name.strip().split("."), values)


def _plain(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def outs_of(root: Path, wanted: Sequence[str]) -> Iterator[str]:
    """The paths that the stages of those names write (all stages: none given)."""
    for name, stage in _load(root / "dvc.yaml")["stages"].items():
        if wanted and name not in wanted:
            continue
        body = stage.get("do", stage)
        for each in [*body.get("outs", ()), *body.get("metrics", ()), *body.get("plots", ())]:
            path = each if isinstance(each, str) else next(iter(each))
            yield path.replace("${item}.parquet", "").replace("${item}", "")


def files_of(path: Path) -> Iterator[Path]:
    """The files of a folder, or the file itself where it is there."""
    if path.is_dir():
        yield from sorted(each for each in path.rglob("*") if each.is_file())
    elif path.is_file():
        yield path
