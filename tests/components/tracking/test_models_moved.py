"""A clone that was moved or copied: its checkpoints are those that lie below it, whatever whole paths MLflow wrote down."""

import shutil
import sqlite3

import pytest

from ratchet.components.tracking import checkpoint_retention, model_registry
from ratchet.components.tracking.mlflow_client import _follow_move, client
from ratchet.components.tracking.record_upload import experiment_id

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("mlflow")]


@pytest.fixture(scope="module")
def first(tmp_path_factory):
    """A home with one model."""
    folder = tmp_path_factory.mktemp("clone")
    checkpoint = folder / "checkpoint"
    checkpoint.mkdir()
    (checkpoint / "config.json").write_text("{}")
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("MLFLOW_TRACKING_URI", raising=False)
        patch.delenv("RATCHET_ARTIFACTS", raising=False)
        patch.setenv("RATCHET_HOME", str(folder / "home"))
        model_registry.register(checkpoint, policy_version="p1")
    return folder / "home"


@pytest.fixture
def copy(first, tmp_path, monkeypatch):
    """A copy of it, which is the home from then on."""
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    monkeypatch.delenv("RATCHET_ARTIFACTS", raising=False)
    monkeypatch.setenv("RATCHET_HOME", str(tmp_path / "a copy"))
    return shutil.copytree(first, tmp_path / "a copy")


def test_a_copy_of_a_clone_has_checkpoints_of_its_own(first, copy):
    assert model_registry.download(1).is_relative_to(copy)
    assert checkpoint_retention.prune_checkpoints(0).versions == [1]
    assert not list(copy.rglob("config.json"))
    assert list(first.rglob("config.json")), "what the first clone keeps is not a copy's to remove"


def test_a_clone_that_was_moved_finds_its_checkpoints(first, copy):
    away = first.rename(first.with_name("away"))
    try:
        assert model_registry.download(1).is_relative_to(copy)
    finally:
        away.rename(first)


def test_what_a_moved_clone_registers_lies_below_it(first, copy):
    before = sorted(first.rglob("*"))
    (copy.parent / "new").mkdir()
    (copy.parent / "new" / "config.json").write_text("[]")
    made = model_registry.register(copy.parent / "new", policy_version="p2")
    assert made.path is not None and made.path.is_relative_to(copy) and sorted(first.rglob("*")) == before


def test_a_name_is_no_query(copy):
    assert model_registry.versions("x' or 'y") == []


def test_runs_of_a_copy_write_into_the_copy(first, copy):
    before = sorted(first.rglob("*"))
    experiment = client().get_experiment(experiment_id(client(), model_registry.CHECKPOINT_EXPERIMENT))
    run = client().create_run(experiment.experiment_id)
    client().log_text(run.info.run_id, "text", "note.txt")
    assert len(list(copy.rglob("note.txt"))) == 1 and sorted(first.rglob("*")) == before


def test_a_folder_that_the_user_named_stays_where_it_is(copy, tmp_path, monkeypatch):
    elsewhere = tmp_path / "shared" / "mlartifacts" / "own"
    elsewhere.mkdir(parents=True)
    (copy / "mlartifacts" / "own").mkdir()
    experiment_id(client(), "own", elsewhere.as_uri())
    with sqlite3.connect(copy / "mlflow.db") as database:
        _follow_move.__wrapped__(copy / "mlflow.db")
        [(location,)] = database.execute("select artifact_location from experiments where name = 'own'")
    assert location == elsewhere.as_uri()
