"""Damaged judgements, labels, settings and inputs of a build: each stops it at once, in one line that names the place."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml
from corruption import FIRST, Project
from damage import episode_at

from ratchet.components.core import ConfigurationError
from ratchet.components.datasets.versioning.build_inputs import read_build
from ratchet.components.rewards.annotation_records import Judgement, Label

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def sound(made: Project, tmp_path_factory: pytest.TempPathFactory) -> Project:
    project = made.copy(tmp_path_factory.mktemp("inputs") / "sound")
    who = episode_at(project.night(), 0)
    label = Label(episode_id=who, content_hash="", domain="coding", value=0.5, annotator="somebody")
    judgement = Judgement(
        key="jd-1", layer="judge", episode_id=who, content_hash="", domain="coding", rubric="r@1", judge="j@1", prompt="p@1",
        scores={"goal_progress": 0.5}, overall=0.5,
    )  # fmt: skip
    for kind, record in (("labels", label), ("judgements", judgement)):
        lines = msgspec.json.Encoder().encode_lines([record, record])
        (project.data / kind / FIRST / f"{kind}.jsonl").write_bytes(lines)
    assert project.run(end="calibrate") is None
    return project


@pytest.fixture
def project(sound: Project, tmp_path: Path) -> Project:
    return sound.copy(tmp_path / "project")


def second(change: Callable[[bytes], bytes]) -> Callable[[bytes], bytes]:
    """Change the second of two lines."""

    def changed(data: bytes) -> bytes:
        first, other = data.splitlines(keepends=True)
        return first + change(other)

    return changed


def put(old: bytes, new: bytes) -> Callable[[bytes], bytes]:
    def changed(line: bytes) -> bytes:
        assert old in line
        return line.replace(old, new, 1)

    return changed


LINES = {
    "no number": (put(b"0.5", b"NaN"), "line 2"),
    "a value out of range": (put(b"0.5", b"1.5"), "line 2.*<= 1"),
    "a newer schema": (put(b'"schema_version":', b'"schema_version":7'), r"line 2: schema_version 7\d is newer"),
    "a field that nobody knows": (put(b'"domain"', b'"mood":1,"domain"'), "line 2.*mood"),
    "a line cut short": (lambda line: line[:-20], "line 2: the last line is cut short"),
    "nesting without end": (lambda _: b"[" * 99_999 + b"\n", "line 2"),
}


@pytest.mark.parametrize("kind", ["labels", "judgements"])
@pytest.mark.parametrize("damage", LINES)
def test_a_line_that_is_no_opinion_is_named(project: Project, kind: str, damage: str) -> None:
    change, said = LINES[damage]
    path = project.data / kind / FIRST / f"{kind}.jsonl"
    path.write_bytes(second(change)(path.read_bytes()))
    stop = project.run(end="calibrate")
    assert stop is not None and stop.stage == "calibrate"
    assert re.search(rf"{kind}/{FIRST}/{kind}.jsonl, {said}", stop.line), stop


SETTINGS = {
    "a key that nobody knows": (lambda text: text.replace("min_labels", "min_lables"), "did you mean 'min_labels'"),
    "no number": (lambda text: text.replace("alpha: 0.01", "alpha: .nan"), "alpha"),
    "no section": (lambda text: text.replace("calibration:", "calibrations:"), "no section 'calibration'"),
    "no text": (lambda text: text + "\xff\xfe", "is not UTF-8 text"),
}


@pytest.mark.parametrize("damage", SETTINGS)
def test_settings_that_cannot_be_are_one_line(project: Project, damage: str) -> None:
    change, said = SETTINGS[damage]
    path = project.root / "params.yaml"
    path.write_bytes(change(path.read_text()).encode("latin-1" if "text" in damage else "utf-8"))
    command = next(words for name, words in make_commands(project) if name == "calibrate")
    line = project.refusal(command)
    assert line and "\n" not in line and "params.yaml" in line and re.search(said, line), line


def make_commands(project: Project) -> list[tuple[str, list[str]]]:
    """The stages as the sound settings have them: DVC reads the settings too, and says so by itself."""
    sound = (project.root / "params.yaml").read_bytes()
    (project.root / "params.yaml").write_bytes(Path("params.yaml").read_bytes())
    try:
        return project.stages()
    finally:
        (project.root / "params.yaml").write_bytes(sound)


@pytest.mark.parametrize("section", ["score", "rank"])
def test_a_number_that_is_none_is_refused_in_every_section(project: Project, section: str) -> None:
    path = project.root / "params.yaml"
    values = yaml.safe_load(path.read_text())
    name = spoil(values[section])
    path.write_text(yaml.safe_dump(values))
    stage = {"quality": "validate"}.get(section, section)
    line = project.refusal({each.partition("@")[0]: words for each, words in project.stages()}[stage])
    assert line and "\n" not in line and name in line and re.search(rf"params.yaml, section '?{section}", line), line


def spoil(values: dict[str, Any]) -> str:
    """Write NaN for the first number; its name."""
    for name, value in values.items():
        if isinstance(value, int | float) and not isinstance(value, bool):
            values[name] = float("nan")
            return name
        if isinstance(value, dict):
            return spoil(value)
    raise AssertionError("no number stands there")


BUILD_FILES = {
    "no YAML": b"nights: [",
    "no text": b"nights: \xff\xfe",
    "a field that nobody knows": b"nights: []\nmood: good\n",
}


@pytest.mark.parametrize("damage", BUILD_FILES)
def test_inputs_that_cannot_be_read_are_one_line(project: Project, damage: str) -> None:
    (project.data / "build.yaml").write_bytes(BUILD_FILES[damage])
    with pytest.raises(
        ConfigurationError, match=r"build.yaml: .*; run `ratchet build NIGHTS` to write it anew"
    ) as caught:
        read_build(project.root)
    assert "\n" not in str(caught.value)
