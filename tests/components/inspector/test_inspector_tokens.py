"""The tokens of a dataset row, as the training job makes them."""

import json
import shutil
from pathlib import Path

import pytest
from episodes import make_episode

from ratchet.components.core.files import file_sha256
from ratchet.components.inspector import token_views
from ratchet.components.trajectories.chat_messages import chat_messages

pytestmark = pytest.mark.slow
TOKENIZER = Path(__file__).parents[3] / "data/models/programs-base"
OPTIONS = {"max_length": 1024, "agent_format": True, "mask_observations": True}


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home with a trained model's tokenizer, and a build with two SFT rows."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RATCHET_HOME", str(tmp_path / ".ratchet"))
    job = tmp_path / ".ratchet/nights/2026-11-20-a1b2/training/challenger"
    job.mkdir(parents=True)
    shutil.copytree(TOKENIZER, job / "checkpoint", ignore=shutil.ignore_patterns("*.safetensors"))
    (job / "config.json").write_text(json.dumps({"format": OPTIONS, "sft": {"weighted": True}}))
    dataset = tmp_path / "data/datasets/sft"
    dataset.mkdir(parents=True)
    rows = [
        {"messages": chat_messages(make_episode(attempt=number)), "tools": None, "episode_id": "ep", "weight": weight}
        for number, weight in enumerate((0.25, 0.75))
    ]
    (dataset / "train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    origins = [
        {"split": "train", "row": number, "sha256": "", "task_id": "t", "episode_ids": ["ep"], "reason": None}
        for number in range(2)
    ]
    pq.write_table(pa.Table.from_pylist(origins), dataset / "rows.parquet")
    return tmp_path


def test_masks_and_weights_are_those_of_the_training_rows(project: Path) -> None:
    from transformers import AutoTokenizer

    from ratchet.components.training.config.job_config import SftConfig
    from ratchet.components.training.exported_rows import prepare_rows, read_rows

    path = project / "data/datasets/sft/train.jsonl"
    config = SftConfig.load(
        {
            "method": "sft",
            "output": "x",
            "model": {"base": "x"},
            "format": OPTIONS,
            "sft": {"weighted": True},
            "data": {"train": str(path)},
        }
    )
    tokenizer = AutoTokenizer.from_pretrained(TOKENIZER)
    prepared = prepare_rows(read_rows(path, None), tokenizer, config, weigh=True).rows
    trained = sum(row.trained_tokens for row in prepared)
    total = sum(weight * row.trained_tokens for weight, row in zip((0.25, 0.75), prepared, strict=True))
    for number, row in enumerate(prepared):
        shown = token_views.row_tokens(project, "sft", f"train-{number}")
        assert [token.mask for token in shown] == [label != -100 for label in row.labels]
        assert [(token.weight or 0) * trained / total for token in shown] == pytest.approx(row.weights)
        assert "".join(token.text for token in shown) == tokenizer.decode(row.input_ids)
        assert 0 < sum(token.mask for token in shown) < len(shown)


def test_a_row_of_a_build_is_shown_with_the_tokenizer_of_the_model_trained_on_it(project: Path) -> None:
    nights, lock = project / ".ratchet/nights", project / "dvc.lock"
    later = nights / "2026-11-21-c3d4"
    shutil.copytree(nights / "2026-11-20-a1b2", later)
    lock.write_text("schema: '2.0'\n")
    job, of_build = token_views.training_job(project)
    assert job is not None and job.parents[1] == later and not of_build
    note = token_views.row_view(project, "sft", "train-0").note
    assert note is not None and "2026-11-21-c3d4/challenger, the latest model here" in note
    result = {"register challenger": {"build": file_sha256(lock)}}
    (nights / "2026-11-20-a1b2/state.json").write_text(json.dumps({"results": result}))
    (later / "state.json").write_text("{damaged")
    job, of_build = token_views.training_job(project)
    assert job is not None and job.parents[1].name == "2026-11-20-a1b2" and of_build
    note = token_views.row_view(project, "sft", "train-0").note
    assert note is not None and "2026-11-20-a1b2/challenger, which was trained on this build" in note


def test_a_page_of_tokens_that_were_made_reads_no_row(project: Path) -> None:
    shown = token_views.row_tokens(project, "sft", "train-0")
    train = project / "data/datasets/sft/train.jsonl"
    train.write_text("")
    assert token_views.row_tokens(project, "sft", "train-0") == shown


def test_a_row_that_is_not_there_is_unknown(project: Path) -> None:
    for dataset, row in (("sft", "train-2"), ("sft", "x"), ("..", "train-0"), ("nope", "train-0"), ("sft", "../x-0")):
        with pytest.raises(KeyError):
            token_views.row_view(project, dataset, row)
