"""Damaged records in shards that are whole: what is doubtful is set aside by name, what is false stops the build."""

import json
import re
from pathlib import Path

import pytest
from corruption import FIRST, SECOND, Project
from damage import change_record, episode_at, lines_of, read_rows, rewrite
from damaged_records import DOUBTFUL, FALSE, WHOLE

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("corruption")]

NIGHT = FIRST


@pytest.fixture(scope="module")
def set_aside(made: Project, tmp_path_factory: pytest.TempPathFactory) -> tuple[Project, dict[str, str]]:
    """A build of a night with one damaged record of each kind; the episode of each."""
    project = made.copy(tmp_path_factory.mktemp("doubtful") / "project")
    project.set("quality", max_quarantined=0.5)
    planted = {}
    for index, (kind, (damage, _)) in enumerate(DOUBTFUL.items()):
        planted[kind] = change_record(project.night(NIGHT), index, damage)
    assert project.run(end="validate") is None
    return project, planted


@pytest.mark.parametrize("kind", DOUBTFUL)
def test_a_doubtful_record_is_set_aside_by_name_and_with_a_reason(
    set_aside: tuple[Project, dict[str, str]], kind: str
) -> None:
    project, planted = set_aside
    rows = [row for row in read_rows(project.data / "quarantine.parquet") if row["episode_id"] == planted[kind]]
    assert DOUBTFUL[kind][1] in {row["expectation"] for row in rows}, rows
    assert all(row["reason"] and row["severity"] == "warning" for row in rows)


def test_no_sound_record_is_set_aside(set_aside: tuple[Project, dict[str, str]]) -> None:
    project, planted = set_aside
    found = {row["episode_id"] for row in read_rows(project.data / "quarantine.parquet")}
    assert found == set(planted.values())


def test_nothing_is_trained_on_what_was_set_aside(set_aside: tuple[Project, dict[str, str]]) -> None:
    project, planted = set_aside
    assert project.run("duplicates") is None
    ranked = {row["episode_id"]: row for row in read_rows(project.data / "ranked.parquet")}
    assert not any(ranked[who]["accepted"] for who in planted.values())
    for file in (project.data / "datasets").rglob("*.jsonl"):
        text = file.read_text()
        assert not [who for who in planted.values() if who in text], file


@pytest.fixture(scope="module")
def refused(made: Project, tmp_path_factory: pytest.TempPathFactory) -> tuple[Project, dict[str, str], str]:
    """A build that stops, of a night with one false record of each kind; the episode of each, and what was said."""
    project = made.copy(tmp_path_factory.mktemp("false") / "project")
    planted = {}
    for index, (kind, (damage, _)) in enumerate(FALSE.items()):
        sealed = "sealed" in kind or "swapped" in kind
        planted[kind] = change_record(project.night(NIGHT), index, damage, reseal=not sealed)
    twice = lines_of(project.night(NIGHT) / "shard-00002.jsonl")[:1]
    planted["an episode of two nights"] = episode_at(project.night(NIGHT), 0, "shard-00002.jsonl")
    rewrite(project.night(SECOND), b"".join([*lines_of(project.night(SECOND) / "shard-00000.jsonl"), *twice]))
    stop = project.run()
    assert stop is not None and stop.stage == "validate", stop
    return project, planted, stop.line


@pytest.mark.parametrize("kind", [*FALSE, "an episode of two nights"])
def test_a_false_record_stops_the_build_and_is_named(refused: tuple[Project, dict[str, str], str], kind: str) -> None:
    project, planted, said = refused
    name = FALSE[kind][1] if kind in FALSE else "episode_id_unique"
    found = json.loads((project.data / "quality_report.json").read_text())["results"]["rollouts"][name]
    assert (found["severity"], found["success"]) == ("critical", False)
    assert planted[kind] in [who for who, _ in found["rows"]]
    assert "more critical failures" in said and "quality_report.json" in said


def test_nothing_after_the_gate_that_shut_was_made(refused: tuple[Project, dict[str, str], str]) -> None:
    project, _, _ = refused
    assert project.outputs(*project.after("validate")) == {}


@pytest.mark.parametrize("kind", WHOLE)
def test_a_night_that_is_wrong_as_a_whole_stops_the_build(made: Project, tmp_path: Path, kind: str) -> None:
    project = made.copy(tmp_path / "project")
    damage, said = WHOLE[kind]
    for shard in ("shard-00000.jsonl", "shard-00001.jsonl"):
        for index in range(40):
            change_record(project.night(NIGHT), index, lambda record: damage([record]), shard)
    stop = project.run()
    assert stop is not None and stop.stage == "validate" and re.search(said, stop.line), stop
