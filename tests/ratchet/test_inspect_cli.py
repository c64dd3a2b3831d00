"""`ratchet inspect` before it answers: notices and refusals."""

import sys
from contextlib import contextmanager

import pytest
from episodes import night_of, write_night

from ratchet.components.inspector import app


@pytest.fixture
def night(tmp_path, monkeypatch):
    """A sealed night in the working directory, and a server that ends at once."""

    @contextmanager
    def serve(*arguments, **options):
        yield "http://127.0.0.1:1/?key=k", lambda: None

    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RATCHET_HOME", str(tmp_path / ".ratchet"))
    monkeypatch.setattr(app, "serve", serve)
    monkeypatch.setattr(sys, "meta_path", [*sys.meta_path])  # the command blocks pandas in its process
    return write_night(tmp_path / "data/rollouts/2026-11-20-a1b2", night_of(2, 2))


@pytest.mark.parametrize(
    ("words", "command", "noticed"),
    [
        (["--review", "ann"], "pairs_stage ${files}", True),
        (["--review", "ann"], "pairs_stage ${files} ${reviews}", False),
        ([], "pairs_stage ${files}", False),
    ],
)
def test_a_reviewer_learns_that_an_older_pipeline_does_not_read_reviews(run, night, words, command, noticed):
    (night.parents[2] / "dvc.yaml").write_text(f"stages: {{pairs: {{cmd: '{command}'}}}}\n")
    code, out, err = run("inspect", "--port", "0", *words)
    assert code == 0 and out.startswith("http://127.0.0.1:")
    assert ("reviews of pairs will not reach the datasets" in err.replace("\n", " ")) is noticed


def test_a_path_that_is_absent_is_refused(run, night):
    code, _, err = run("inspect", "nothing.jsonl", "--port", "0")
    assert code == 2 and "nothing.jsonl is absent" in err
