"""Corruption: a small project whose data build ran well, run in this process, and what it says once its data is damaged.

The stages, their order and their flags are those of `dvc.yaml`; DVC itself is not needed to run them.
"""

import contextlib
import functools
import hashlib
import importlib
import io
import os
import random
import re
import shlex
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import yaml
from episodes import make_episode, turn, write_night

from components.protocol import RatchetError
from components.trajectories.record import Message, TaskRef, Trajectory, Turn, sealed
from components.versioning.build_file import Hashes, Inputs, write_values

SHOWN, FIRST, SECOND = "demonstrations-s7", "2026-11-20-a1b2", "2026-11-21-c3d4"
NIGHTS = (SHOWN, FIRST, SECOND)
AS_OF = "2026-11-21"
SYLLABLES = ("ba", "ke", "li", "mo", "nu", "pra", "ste", "vel", "dor", "fin", "gas", "hum")


def text_of(key: str, words: int) -> str:
    """Words, others for another key."""
    draw = random.Random(hashlib.sha256(key.encode()).digest())
    return " ".join("".join(draw.choices(SYLLABLES, k=3)) for _ in range(words))


def task_of(name: str, **changes: Any) -> TaskRef:
    """A train task that is like no other."""
    number = int(name[-4:])
    described = f"Repair {name}: {text_of(name, 60)}"
    task_hash = hashlib.sha256(described.encode()).hexdigest()[:16]
    task = TaskRef(name, task_hash, "made", f"family-{number}", f"kind-{number % 3}", "train", "coding", described)
    return msgspec.structs.replace(task, **changes)


def play(name: str, attempt: int = 0, *, task: TaskRef | None = None, **changes: Any) -> Trajectory:
    """One attempt at a task: it reads, edits, runs the tests and hands in, in words of its own."""
    from components.trajectories.record import episode_id, group_id

    task = task or task_of(name)
    episode = make_episode(name, attempt, turns=turns_of(name, f"{attempt} {changes.get('version', '')}"), **changes)
    version = episode.agent.policy_version
    return sealed(
        msgspec.structs.replace(
            episode,
            task=task,
            messages=(Message("system", "You repair programs."), Message("user", task.description)),
            episode_id=episode_id(task.task_id, task.task_hash, version, attempt, attempt),
            group_id=group_id(task.task_id, task.task_hash, version),
        )
    )


def turns_of(task: str, how: str) -> list[Turn]:
    """Four turns of one call each."""
    said = [text_of(f"{task} {how} {index}", 25) for index in range(4)]
    return [
        answered(turn(0, "read_file", path="main.py"), text_of(f"{task} look", 25), text_of(f"{task} file", 40)),
        answered(turn(1, "edit_file", path="main.py", old="x", new=said[1]), said[1], "edited main.py"),
        answered(turn(2, "run_command", command="python -m unittest"), said[2], f"ran the tests: {said[3]}"),
        answered(turn(3, "submit"), "I hand it in.", "handed in"),
    ]


def answered(turn: Turn, text: str, content: str) -> Turn:
    """The turn with what the agent said before its call, and what the call gave."""
    results = tuple(msgspec.structs.replace(result, content=content) for result in turn.results)
    return msgspec.structs.replace(turn, text=text, results=results)


def night_of(tasks: range, attempts: int, **changes: Any) -> list[Trajectory]:
    """Of each task's attempts some succeed; the share differs from task to task."""
    return [
        play(f"made/train-{task:04d}", attempt, success=(task * 7 + attempt * 3) % 5 < 2, **changes)
        for task in tasks
        for attempt in range(attempts)
    ]


class Stop(NamedTuple):
    """Where a build stopped, and the one line that it said."""

    stage: str
    line: str


class Project:
    """A folder with settings, sealed nights and the outputs of the build."""

    def __init__(self, root: Path) -> None:
        self.root = root

    @property
    def data(self) -> Path:
        return self.root / "data"

    def night(self, name: str = FIRST) -> Path:
        return self.data / "rollouts" / name

    def copy(self, target: Path) -> "Project":
        return Project(Path(shutil.copytree(self.root, target, symlinks=True)))

    def set(self, section: str, **values: Any) -> None:
        """Change parameters."""
        path = self.root / "params.yaml"
        params = yaml.safe_load(path.read_text())
        params[section] |= values
        path.write_text(yaml.safe_dump(params, sort_keys=False))

    def begin(self, nights: Sequence[str] = NIGHTS, **more: Any) -> None:
        """Fix the inputs of the build, as the flow does."""
        from components.versioning import JUDGEMENTS, LABELS, seal_beside

        for kind in (JUDGEMENTS, LABELS):
            for night in nights:
                if not (self.root / kind / night).is_dir():
                    seal_beside(kind, night, b"", root=self.root)
        write_values(Inputs(tuple(nights), as_of=AS_OF, scale="smoke", seed=7, **more), Hashes(), self.root)

    def stages(self) -> list[tuple[str, list[str]]]:
        """Name, module and flags of each stage, in order."""
        return list(_stages(self.root))

    def outputs(self, *stages: str) -> dict[str, str]:
        """The hash of every output file of the stages of those names (of all: none given)."""
        files = [file for path in _outs(self.root, stages) for file in _files(self.root / path)]
        return {str(file.relative_to(self.root)): hashlib.sha256(file.read_bytes()).hexdigest() for file in files}

    def run(self, begin: str | None = None, end: str | None = None) -> Stop | None:
        """Run the stages from one to another; where and with which line it stopped, None where it came to its end."""
        begun = begin is None
        for name, (module, *flags) in self.stages():
            stage = name.partition("@")[0]
            if end is not None and stage in self.after(end):
                break
            begun = begun or stage == begin
            if begun and (said := _run(self.root, module, flags)) is not None:
                assert said and "\n" not in said, said
                return Stop(stage, said)
        return None

    def refusal(self, command: list[str]) -> str | None:
        """The line with which one stage refuses; None where it went well."""
        return _run(self.root, command[0], command[1:])

    def pretend(self) -> None:
        """Let every output that is absent be there, as if it were of an earlier build that was accepted."""
        for path in _outs(self.root, ()):
            if not (self.root / path).exists():
                file = self.root / path if Path(path).suffix else self.root / path / "accepted"
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_bytes(b"accepted")

    def after(self, stage: str) -> list[str]:
        """The stages that come after one."""
        names = list(dict.fromkeys(name.partition("@")[0] for name, _ in self.stages()))
        return names[names.index(stage) + 1 :]


def make_project(root: Path) -> Project:
    """Demonstrations and two nights, sealed and built."""
    root.mkdir(parents=True)
    for name in ("dvc.yaml", "params.yaml"):
        shutil.copy(name, root / name)
    project = Project(root)
    shown = {"policy": "teacher", "version": "teacher-1"}
    write_night(project.night(SHOWN), [play(f"made/train-{task:04d}", **shown) for task in range(500, 516)])
    write_night(project.night(FIRST), night_of(range(30), 4), shard=40)
    write_night(project.night(SECOND), night_of(range(15, 30), 4, version="weights-2", day="2026-11-21"))
    write_taskset(root / "data/tasksets/made")
    project.begin()
    return project


def held_out(number: int) -> dict[str, Any]:
    """A task on which champions are decided, like no other, with the way it is solved."""
    name = f"made/promote-{number:04d}"
    return {
        "task_id": name,
        "taskset": "made",
        "family": f"held-out-{number}",
        "kind": "kind-0",
        "role": "promote",
        "domain": "coding",
        "description": f"Repair {name}: {text_of(name, 60)}",
        "reference": {"main.py": f"# {text_of(f'{name} solution', 40)}\n"},
    }


def write_taskset(folder: Path) -> None:
    """A taskset of a few held-out tasks."""
    folder.mkdir(parents=True)
    tasks = [held_out(number) for number in range(1, 9)]
    head = {"name": "made", "version": "1", "domain": "coding", "generator": "", "seed": 0, "counts": {"promote": 8}}
    (folder / "taskset.yaml").write_text(yaml.safe_dump(head))
    (folder / "promote.jsonl").write_bytes(msgspec.json.Encoder().encode_lines(tasks))


def _run(root: Path, module: str, flags: list[str]) -> str | None:
    """The line with which a stage refuses; None where it went well."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.chdir(root), contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            code = importlib.import_module(module).main(flags)
        except RatchetError as error:
            return str(error)
    lines = [line.removeprefix("error: ") for line in err.getvalue().splitlines() if line.startswith("error: ")]
    return "\n".join(lines) if code else None


@functools.cache
def _definition(path: Path, _changed: int) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(path.read_text())
    return found


def _load(path: Path) -> dict[str, Any]:
    return _definition(path, path.stat().st_mtime_ns) if path.is_file() else {}


def _stages(root: Path) -> Iterator[tuple[str, list[str]]]:
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
    assert words[:2] == ["python", "-m"]
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


def _outs(root: Path, wanted: Sequence[str]) -> Iterator[str]:
    for name, stage in _load(root / "dvc.yaml")["stages"].items():
        if wanted and name not in wanted:
            continue
        body = stage.get("do", stage)
        for each in [*body.get("outs", ()), *body.get("metrics", ()), *body.get("plots", ())]:
            path = each if isinstance(each, str) else next(iter(each))
            yield path.replace("${item}.parquet", "").replace("${item}", "")


def _files(path: Path) -> Iterator[Path]:
    if path.is_dir():
        yield from sorted(each for each in path.rglob("*") if each.is_file())
    elif path.is_file():
        yield path


os.environ.setdefault("GX_ANALYTICS_ENABLED", "false")
