"""What a build says of its stages, what it forgets, and what it asks for. Without DVC."""

from pathlib import Path

import pytest
import yaml

from ratchet.components.core import ConfigurationError, DataError
from ratchet.components.core.files import temporary_path
from ratchet.components.datasets.versioning import (
    JUDGEMENTS,
    LABELS,
    SEALED_FILES,
    BuildInputs,
    build,
    read_build,
    seal_file,
    write_build,
)
from ratchet.components.datasets.versioning.build_inputs import write_values
from ratchet.components.datasets.versioning.dvc_client import failure_line
from ratchet.components.datasets.versioning.dvc_lock import sorted_lock, stage_names
from ratchet.components.datasets.versioning.run_build import (
    ReproWatch,
    StageRun,
    build_lock,
    drop_other_nights,
    keep_reports,
    restore_state,
    save_state,
)
from ratchet.components.rewards import annotation_records

LOCK = """schema: '2.0'
stages:
  rank:
    cmd: python -m rank
    outs:
    - path: data/ranked.parquet
      md5: 1
  score@old:
    cmd: python -m score
      --out data/scores/old.parquet
    outs:
    - path: data/scores/old.parquet
      md5: 2
  score@new.1:
    cmd: python -m score
"""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("RATCHET_HOME", raising=False)
    (tmp_path / "dvc.yaml").write_text("stages: {}\n")
    return tmp_path


def inputs(*nights: str, as_of: str = "2026-11-21") -> BuildInputs:
    return BuildInputs(nights, as_of=as_of, scale="smoke", seed=3)


def test_stages_that_ran_were_cached_or_unchanged_are_told_apart() -> None:
    clock = iter(range(100))
    said: list[str] = []
    watch = ReproWatch(said.append, clock=lambda: float(next(clock)))
    for line in (
        "'data/rollouts/n1.dvc' didn't change, skipping",
        "Stage 'score@n1' didn't change, skipping",
        "Stage 'score@n2' is cached - skipping run, checking out outputs",
        "Running stage 'validate':",
        "> python -m ratchet.components.datasets.validation.validate",
        "Running stage 'rank':",
    ):
        watch.read_line(line)
    watch.end()
    assert watch.stages == [
        StageRun("score@n1", "unchanged", 0.0),
        StageRun("score@n2", "cached", 0.0),
        StageRun("validate", "ran", 1.0),
        StageRun("rank", "ran", 1.0),
    ]
    assert said == ["validate", "rank"]


def test_a_failure_is_told_in_the_stages_own_words() -> None:
    lines = ["Running stage 'rank':", "error: ranked.parquet is absent", "ERROR: failed to reproduce 'rank'"]
    assert failure_line(lines) == "ranked.parquet is absent"
    assert failure_line(lines[:1] + lines[2:]) == "failed to reproduce 'rank'"
    assert failure_line([]) == "it printed nothing"


def test_the_lock_forgets_only_nights_that_are_no_part_of_the_build() -> None:
    assert sorted_lock(LOCK, ["rank", "score@old", "score@new.1"]) == LOCK
    pruned = sorted_lock(LOCK, ["rank", "score@new.1"])
    assert "old" not in pruned
    assert pruned == LOCK[: LOCK.index("  score@old:")] + LOCK[LOCK.index("  score@new.1:") :]


def test_a_lock_is_in_the_order_of_the_stages_whatever_was_built_before(project: Path) -> None:
    (project / "dvc.yaml").write_text("stages:\n  score:\n    foreach: ${nights}\n    do: {}\n  rank:\n    cmd: x\n")
    stages = stage_names(project, ["new.1", "old"])
    assert stages == ["score@new.1", "score@old", "rank"]
    found = sorted_lock(LOCK, stages)
    names = [line.strip(" :\n") for line in found.splitlines() if line.startswith("  ") and line[2] != " "]
    assert names == stages and sorted(found.splitlines()) == sorted(LOCK.splitlines())
    assert yaml.safe_load(found) == yaml.safe_load(LOCK)
    assert sorted_lock(found, stages) == found


@pytest.mark.parametrize("content", [b"stages: [", b"\xff", b"stages: 3\n", b"", b"- a\n"])
def test_a_pipeline_that_cannot_be_read_is_one_line_before_anything_is_touched(project: Path, content: bytes) -> None:
    (project / "dvc.yaml").write_bytes(content)
    with pytest.raises(ConfigurationError, match=r"dvc\.yaml cannot be read: .*; restore it from git") as error:
        build(inputs("n1"), root=project)
    assert "\n" not in str(error.value) and not (project / "data").exists()
    assert not (project / ".ratchet/build/before").exists()


def test_tables_of_other_nights_leave_the_folder_of_scores(project: Path) -> None:
    (project / "data/scores").mkdir(parents=True)
    for name in ("old.parquet", "new.parquet"):
        (project / "data/scores" / name).write_text("x")
    drop_other_nights(project, ["new"])
    assert [path.name for path in (project / "data/scores").iterdir()] == ["new.parquet"]


def test_the_state_before_a_killed_build_is_what_a_later_failure_restores(project: Path) -> None:
    (project / "dvc.lock").write_text("good")
    save_state(project)
    (project / "dvc.lock").write_text("half")  # killed here: nothing was forgotten
    save_state(project)
    assert (project / ".ratchet/build/before/dvc.lock").read_text() == "good"


def test_the_reports_of_an_older_failure_are_not_taken_for_those_of_this_build(project: Path) -> None:
    (project / "data").mkdir()
    (project / "data/gate.json").write_text("{}")
    assert (keep_reports(project) / "gate.json").is_file()
    save_state(project)
    assert not (project / ".ratchet/build/failed").exists()


def test_a_lock_is_put_back_byte_for_byte_also_where_a_newer_pipeline_has_another_order(project: Path) -> None:
    (project / "dvc.yaml").write_text("stages: {score: {foreach: []}, rank: {}}\n")
    write_values(inputs("new.1"), {}, project)
    lock = "schema: '2.0'\nstages:\n  rank:\n    cmd: one\n  score@new.1:\n    cmd: two\n"
    (project / "dvc.lock").write_text(lock)
    save_state(project)
    (project / "dvc.lock").write_text("schema: '2.0'\nstages: {}\n")
    restore_state(project)
    assert (project / "dvc.lock").read_text() == lock


def test_the_build_file_says_everything_twice_rather_than_by_reference(project: Path) -> None:
    built = write_values(inputs("n1", "n.2"), {"rollouts": {"n1": "a.dir", "n.2": "b.dir"}}, project)
    assert read_build(project) == built
    text = (project / "data/build.yaml").read_text()
    assert "&" not in text and "*" not in text
    assert built.files["scores"] == ["data/scores/n1.parquet", "data/scores/n.2.parquet"]
    assert "as_of: '2026-11-21'" in text  # a string: YAML would make it a date


@pytest.mark.parametrize(
    ("wanted", "said"),
    [
        (inputs("../etc"), "'../etc' is not a valid name of a night"),
        (inputs("n1", "n1"), "listed twice"),
        (inputs(as_of="today"), "as_of 'today' is not a day"),
    ],
)
def test_inputs_that_cannot_be_are_refused(project: Path, wanted: BuildInputs, said: str) -> None:
    with pytest.raises(ConfigurationError, match=said):
        write_build(wanted, root=project)
    assert not (project / "data/build.yaml").exists()


def test_a_night_that_was_never_sealed_is_one_clear_line(project: Path) -> None:
    with pytest.raises(DataError, match=r"data/rollouts/n1 holds no sealed night; collect it first"):
        write_build(inputs("n1"), root=project)


def test_a_build_of_nothing_says_what_to_do(project: Path) -> None:
    with pytest.raises(ConfigurationError, match="nothing was built here yet; run `ratchet night`"):
        build(root=project)
    with pytest.raises(DataError, match="lists no night"):
        build(inputs(), root=project)


def test_two_builds_at_once_are_refused(project: Path) -> None:
    with build_lock(project), pytest.raises(ConfigurationError, match="another data build is running"):
        build(root=project)


def test_the_build_reads_judgements_and_labels_of_every_night_and_the_uses_that_there_are(project: Path) -> None:
    sealed = {
        "rollouts": {"n1": "a.dir", "n2": "b.dir"},
        "judgements": {"n1": "c.dir"},
        "labels": {"n1": "d.dir"},
        "uses": {"n2": "e.dir"},
    }
    built = write_values(inputs("n1", "n2"), sealed, project)
    assert built.evidence == {
        "judgements": ["data/judgements/n1/judgements.jsonl", "data/judgements/n2/judgements.jsonl"],
        "labels": ["data/labels/n1/labels.jsonl", "data/labels/n2/labels.jsonl"],
    }
    assert built.ledgers == {"labels": built.evidence["labels"], "uses": ["data/uses/n2/uses.jsonl"]}
    assert (built.judgements, built.labels, built.uses) == ({"n1": "c.dir"}, {"n1": "d.dir"}, {"n2": "e.dir"})


class TestWhatIsSealedBesideANight:
    def test_is_written_once_and_whole(self, project: Path) -> None:
        file = seal_file(JUDGEMENTS, "n1", b'{"key": "jd-1"}\n', root=project)
        assert file == project / "data/judgements/n1/judgements.jsonl" and file.read_bytes() == b'{"key": "jd-1"}\n'
        assert [path.name for path in (project / "data/judgements").iterdir()] == ["n1"]
        with pytest.raises(ConfigurationError, match="data/judgements/n1 is already sealed; a night is sealed once"):
            seal_file(JUDGEMENTS, "n1", b"", root=project)

    def test_leaves_nothing_of_an_attempt_that_failed_while_it_wrote(self, project: Path) -> None:
        temporary_path(project / "data/judgements/n1").mkdir(parents=True)
        seal_file(JUDGEMENTS, "n1", b"", root=project)
        assert [path.name for path in (project / "data/judgements").iterdir()] == ["n1"]

    def test_is_not_written_where_only_its_pointer_stands(self, project: Path) -> None:
        (project / "data/labels").mkdir(parents=True)
        (project / "data/labels/n1.dvc").write_text("outs: []\n")
        with pytest.raises(ConfigurationError, match="already sealed"):
            seal_file(LABELS, "n1", b"", root=project)

    def test_bears_the_names_that_its_writers_use(self) -> None:
        assert (SEALED_FILES[JUDGEMENTS], SEALED_FILES[LABELS]) == (
            annotation_records.JUDGEMENTS_FILE,
            annotation_records.LABELS_FILE,
        )
