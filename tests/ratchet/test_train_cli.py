"""`ratchet train`: what is asked for is the job that runs; a command that makes no sense is one line."""

import json
from pathlib import Path

import pytest
import yaml

from ratchet.components.training.config.job_config import load_job


@pytest.fixture
def rows(tmp_path, monkeypatch):
    """An export's folder, and a home."""
    monkeypatch.setenv("RATCHET_HOME", str(tmp_path / "home"))
    (folder := tmp_path / "sft").mkdir()
    (folder / "train.jsonl").write_text("{}\n")
    (folder / "validation.jsonl").write_text("")
    return folder


@pytest.fixture
def base(tmp_path):
    import struct

    (folder := tmp_path / "base").mkdir()
    header = json.dumps({"w": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}}).encode()
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(header)) + header + bytes(8))
    (folder / "config.json").write_text("{}")
    (folder / "README.md").write_text("---\nlicense: mit\n---\n")
    return folder


def shown(run, *words):
    code, out, err = run("train", *words, "--show")
    assert code == 0, err
    return load_job(yaml.safe_load(out))


@pytest.mark.parametrize("method", ["sft", "dpo", "grpo"])
def test_the_recipe_of_a_method_is_its_own_and_what_is_given_comes_before_it(run, rows, base, method):
    job = shown(run, method, "--data", rows, "--model", base, "--set", "steps=7", "--set", "lora={r: 3}", "-o", "here")
    assert (job.method, job.output, job.model.base) == (method, Path("here").absolute(), str(base))
    assert (job.optimization.steps, job.model.lora.r) == (7, 3)
    assert job.data.train == rows / "train.jsonl" and getattr(job.data, "validation", None) is None


def test_the_same_question_finds_the_same_folder(run, rows, tmp_path):
    one, same, other = (shown(run, "sft", "--data", rows, "--set", f"steps={steps}") for steps in (3, 3, 4))
    assert one == same and one.output != other.output
    assert one.output.parent == tmp_path / "home" / "training" and one.output.name.startswith("sft-")


def test_validation_rows_are_read_where_there_are_any(run, rows):
    (rows / "validation.jsonl").write_text("{}\n")
    assert shown(run, "sft", "--data", rows).data.validation == rows / "validation.jsonl"
    assert shown(run, "sft", "--data", rows / "train.jsonl").data.validation is None


def test_lessons_on_the_hardest_tasks_are_of_the_sft_export(run, rows, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code, _, err = run("train", "grpo", "--set", "relift=8")
    assert code == 2 and "data/datasets/sft holds no train.jsonl" in err
    (tmp_path / "data" / "datasets").mkdir(parents=True)
    rows.rename(tmp_path / "data" / "datasets" / "sft")
    shown_rows = tmp_path / "data" / "datasets" / "sft" / "train.jsonl"
    assert shown(run, "grpo", "--set", "relift=8").data.demonstrations == shown_rows
    assert str(shown(run, "grpo", "--set", "relift=8", "--set", "demonstrations=own").data.demonstrations) == "own"
    assert shown(run, "grpo").data.demonstrations is None


@pytest.mark.parametrize("method", ["sft", "dpo", "grpo"])
def test_a_job_is_shown_without_any_data_as_yaml_that_is_a_job(run, tmp_path, monkeypatch, method):
    monkeypatch.chdir(tmp_path)
    code, out, err = run("train", method, "--show")
    assert code == 0 and err == "" and out.startswith(f"method: {method}\n")
    (tmp_path / "job.yaml").write_text(out)
    assert load_job(tmp_path / "job.yaml") == load_job(json.loads(run("train", method, "--show", "--json")[1]))
    code, _, err = run("train", method, "--data", "nosuch", "--show")
    assert code == 2 and "nosuch holds no train.jsonl" in err


def test_a_job_goes_on_as_it_was_begun(run, rows, tmp_path):
    begun = shown(run, "sft", "--data", rows, "--set", "steps=3", "-o", tmp_path / "out")
    begun.output.mkdir()
    (begun.output / "config.json").write_text(begun.model_dump_json())
    assert shown(run, "--resume", begun.output) == begun


def test_a_file_is_a_whole_job(run, tmp_path):
    (path := tmp_path / "job.yaml").write_text(yaml.safe_dump({"output": "o", "data": {"train": "t"}}))
    assert shown(run, path) == load_job(path)


def test_licence_and_size_are_shown_before_anything_is_loaded(run, rows, base, monkeypatch):
    from ratchet.components.operations import manual_training

    monkeypatch.setattr(manual_training, "train_manually", lambda job: {"steps": 3})
    code, out, err = run("train", "sft", "--data", rows, "--model", base, "--set", "trust_remote_code=true")
    assert code == 0 and "steps  3" in out
    assert "2 parameters" in err and "licence mit" in err and "Python code of the model is run" in err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["sftt"], "did you mean 'sft'"),
        ([], "give sft, dpo, grpo, a job's file, or --resume"),
        (["sft", "--data", "nowhere"], "holds no train.jsonl"),
        (["sft", "--data", "ROWS", "--recipe", "sfz"], "sfz"),
        (["sft", "--data", "ROWS", "--set", "step=3"], "did you mean 'optimization.steps'"),
        (["sft", "--data", "ROWS", "--set", "steps=many"], "optimization.steps"),
        (["sft", "--data", "ROWS", "--revision", "v1"], "name it with --model"),
        (["sft", "--data", "ROWS", "--model", "/nowhere/at/all"], "is not a folder"),
        (["--resume", "nowhere"], "no job was begun in nowhere"),
        (["sft", "--resume", "x"], "remove sft"),
        (["job.yaml", "--set", "steps=3"], "remove --set"),
        (["absent.yaml"], "absent.yaml cannot be read"),
    ],
)
def test_what_makes_no_sense_is_one_line(run, rows, words, said):
    code, out, err = run("train", *[rows if word == "ROWS" else word for word in words])
    assert code in (2, 3) and out == ""
    assert said in err and [line for line in err.splitlines() if line.startswith("error:")] == [err.splitlines()[-1]]
