"""A night seals what people have said since the nights before, once, whether MLflow answers or not."""

from pathlib import Path

import msgspec
import pytest

from ratchet.components.core import DataError, InfrastructureError
from ratchet.components.datasets import versioning
from ratchet.components.reporting.progress_display import ProgressDisplay
from ratchet.components.rewards.annotation_records import Label
from ratchet.components.rewards.human_labels.label_files import add_labels, read_labels
from ratchet.components.tracking.trace_log import HumanFeedback

pytestmark = pytest.mark.slow
"""Prefect and MLflow take seconds to import."""


def label(episode, value=1.0, **changes):
    fields = {"episode_id": episode, "content_hash": "c", "domain": "coding", "value": value, "annotator": "ann"}
    return Label(**(fields | changes))


@pytest.fixture
def said(tmp_path, monkeypatch):
    """What stands in MLflow, in a project in which DVC is not called."""
    from ratchet.tasks import traces

    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RATCHET_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(versioning, "add_sealed", lambda nights, kind: {})
    feedback = []
    monkeypatch.setattr(traces, "read_feedback", lambda: HumanFeedback(list(feedback), {"it has no value": 2}))
    return feedback


def seal(night):
    from ratchet.tasks.traces import seal_labels

    return seal_labels.fn(night)


def sealed(night):
    return [(each.episode_id, each.value) for each in read_labels(versioning.LABELS / night / "labels.jsonl")]


def test_labels_of_both_ways_are_sealed_with_the_night_and_not_again_with_the_next(said, tmp_path):
    said.append(label("ep-a"))
    add_labels(tmp_path / "home" / "labels" / "labels.jsonl", [label("ep-b", 0.0)])
    found = seal("n1")
    assert found == {"labels": 2, "from_feedback": 1, "from_file": 1, "refused": 2, "asked": True}
    assert sealed("n1") == [("ep-a", 1.0), ("ep-b", 0.0)]
    said.append(label("ep-c"))
    assert seal("n2")["labels"] == 1 and sealed("n2") == [("ep-c", 1.0)]


def test_a_changed_mind_is_sealed_by_the_night_in_which_it_changed(said):
    said.append(label("ep-a", labelled_at="2026-11-20"))
    seal("n1")
    said.append(label("ep-a", 0.0, labelled_at="2026-11-21"))
    seal("n2")
    assert (sealed("n1"), sealed("n2")) == ([("ep-a", 1.0)], [("ep-a", 0.0)])


def test_a_night_that_goes_on_keeps_what_it_has_sealed(said):
    said.append(label("ep-a"))
    seal("n1")
    said.append(label("ep-b"))
    assert seal("n1") == {"labels": 1} and sealed("n1") == [("ep-a", 1.0)]


def test_what_a_killed_night_wrote_and_did_not_seal_is_not_lost(said, monkeypatch):
    """Killed between the file and its name: what stands under a hidden name counts as unsealed."""
    said.append(label("ep-a"))
    with monkeypatch.context() as killed:
        killed.setattr(Path, "rename", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            seal("n1")
    assert list(versioning.LABELS.glob("*/labels.jsonl")) and not (versioning.LABELS / "n1").exists()
    seal("n1")
    assert sealed("n1") == [("ep-a", 1.0)]


@pytest.mark.parametrize(("line", "command", "noticed"), [
    ("preferred_to ep-b", "pairs_stage ${files}", True),
    ("preferred_to ep-b", "pairs_stage ${files} ${reviews}", False),
    ("overall", "pairs_stage ${files}", False),
])  # fmt: skip
def test_a_night_that_seals_reviews_says_that_an_older_pipeline_does_not_read_them(
    said, monkeypatch, line, command, noticed
):
    lines = []
    monkeypatch.setattr(ProgressDisplay, "say", lambda display, text: lines.append(text))
    Path("dvc.yaml").write_text(f"stages: {{pairs: {{cmd: '{command}'}}}}\n")
    said.append(label("ep-a", line=line))
    seal("n1")
    assert [text for text in lines if "reviews of pairs" in text] == [versioning.review_notice()] * noticed


def test_nothing_said_is_an_empty_sealed_file(said):
    assert seal("n1")["labels"] == 0
    assert (versioning.LABELS / "n1" / "labels.jsonl").read_bytes() == b""


def test_mlflow_away_ends_no_night(said, monkeypatch, tmp_path):
    from ratchet.tasks import traces

    def away():
        raise InfrastructureError("MLflow does not answer")

    monkeypatch.setattr(traces, "read_feedback", away)
    add_labels(tmp_path / "home" / "labels" / "labels.jsonl", [label("ep-b")])
    found = seal("n1")
    assert found["asked"] is False and sealed("n1") == [("ep-b", 1.0)]


def test_a_damaged_sealed_file_ends_it_with_its_name(said):
    damaged = versioning.LABELS / "n0" / "labels.jsonl"
    damaged.parent.mkdir(parents=True)
    damaged.write_bytes(msgspec.json.encode({"episode_id": 3}) + b"\n")
    with pytest.raises(DataError, match="line 1: not a label"):
        seal("n1")
    assert not (versioning.LABELS / "n1").exists()
