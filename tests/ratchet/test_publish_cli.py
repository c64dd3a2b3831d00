"""`ratchet publish`: a dataset or a checkpoint with card and lineage, a token from the environment, and no credential in a row."""

import json
import shutil
from hashlib import sha256
from pathlib import Path

import huggingface_hub.constants
import pytest
from episodes import night_of
from history import History
from publishing_hub import publishing_hub

NIGHT, REPOSITORY, TOKEN = "n1", "me/mine", "hf_" + "a" * 34
BASE = Path(__file__).parents[2] / "data/models/programs-base"


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> History:
    history = History(tmp_path_factory.mktemp("history"))
    history.night(NIGHT, night_of(4, 2))
    history.build(NIGHT)
    history.tag(NIGHT)
    return history


@pytest.fixture
def hub(made, monkeypatch):
    monkeypatch.chdir(made.root)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_DISABLE_XET", True)  # the stand-in speaks the older protocol
    with publishing_hub(TOKEN) as (address, repositories):
        monkeypatch.setenv("HF_ENDPOINT", address)
        monkeypatch.setenv("HF_TOKEN", TOKEN)
        yield repositories


def test_a_dataset_arrives_with_its_card_and_lineage_and_is_private(run, hub, made):
    code, out, err = run("publish", "dataset", "sft", "--to", REPOSITORY, "--at", NIGHT)
    assert code == 0, err
    ours = {path.name: path.read_bytes() for path in (made.root / "data/datasets/sft").iterdir()}
    published = dict(hub.files[REPOSITORY])
    lineage = json.loads(published.pop("lineage.json"))
    assert published == ours and {"README.md", "manifest.json"} <= ours.keys()
    assert lineage["nights"] == [NIGHT] and lineage["build"] == made.lock_hash
    assert lineage["files"] == {name: sha256(content).hexdigest() for name, content in ours.items()}
    assert hub.private[REPOSITORY] and f"/datasets/{REPOSITORY}" in out


def test_a_second_time_commits_to_the_same_repository(run, hub):
    for _ in range(2):
        assert run("publish", "dataset", "sft", "--to", REPOSITORY, "--public", "--json")[0] == 0
    assert list(hub.files) == [REPOSITORY] and not hub.private[REPOSITORY]


def test_a_checkpoint_arrives_with_a_card_and_without_what_is_not_the_model(run, hub, tmp_path):
    shutil.copytree(BASE, tmp_path / "model")
    (tmp_path / "model/optimizer.pt").write_bytes(b"x")
    (tmp_path / "model/job.json").write_text('{"output": "/home/me"}')
    code, out, err = run("publish", "model", tmp_path / "model", "--to", REPOSITORY, "--json")
    assert code == 0, err
    files = hub.files[REPOSITORY]
    assert files["model.safetensors"] == (BASE / "model.safetensors").read_bytes()
    assert {"config.json", "tokenizer.json", "chat_template.jinja", "README.md", "lineage.json"} < files.keys()
    assert not {"optimizer.pt", "job.json"} & files.keys()
    assert json.loads(files["lineage.json"])["policy_version"] in files["README.md"].decode()
    assert sorted(json.loads(out)["files"]) == sorted(files)


def test_a_row_with_a_credential_stops_it_before_anything_is_sent(run, hub, made, tmp_path):
    folder = tmp_path / "copy"
    shutil.copytree(made.root / "data/datasets", folder / "data/datasets")
    rows = folder / "data/datasets/sft/train.jsonl"
    secret = "ghp_" + "aB3dE5fG7hJ9kL1mN3pQ5rS7tU9vW1xY3zA5"
    rows.write_text(
        rows.read_text() + json.dumps({"messages": [{"role": "user", "content": f"token {secret}"}]}) + "\n"
    )
    code, _, err = run("publish", "dataset", "sft", "--to", REPOSITORY, "--at", folder)
    assert code == 3 and "holds a credential" in err and secret not in err and hub.paths == []


@pytest.mark.parametrize("change", [{"HF_TOKEN": None}, {"HF_TOKEN": " "}])
def test_without_a_token_nothing_is_asked(run, hub, monkeypatch, change):
    for name, value in change.items():
        monkeypatch.delenv(name) if value is None else monkeypatch.setenv(name, value)
    code, _, err = run("publish", "dataset", "sft", "--to", REPOSITORY)
    assert code == 2 and "HF_TOKEN is not set" in err and hub.paths == []


def test_a_refused_token_is_one_line_that_does_not_show_it(run, hub, monkeypatch):
    monkeypatch.setenv("HF_TOKEN", "hf_" + "b" * 34)
    code, _, err = run("publish", "dataset", "sft", "--to", REPOSITORY)
    assert code == 2 and "HTTP 401" in err and "bbb" not in err and err.count("\n") == 1


def test_a_hub_that_fails_or_is_absent_is_the_servers_fault(run, hub, monkeypatch):
    hub.failures[:] = [500] * 20
    code, _, err = run("publish", "dataset", "sft", "--to", REPOSITORY)
    assert code == 4 and "HTTP 500" in err
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    code, _, err = run("publish", "dataset", "sft", "--to", REPOSITORY)
    assert code == 4 and err.count("\n") == 1


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["dataset", "sft", "--to", "mine"], 2, "ORG/NAME"),
        (["dataset", "sft", "--to", "../x/y"], 2, "ORG/NAME"),
        (["dataset", "xyz", "--to", REPOSITORY], 3, "no dataset 'xyz'"),
        (["dataset", "sft"], 2, "--to"),
    ],
)
def test_wrong_use_is_one_line(run, hub, words, code, said):
    got, _, err = run("publish", *words)
    assert got == code and said in err and hub.files == {}


def test_a_model_is_a_folder_or_registered(run, hub, monkeypatch, tmp_path):
    monkeypatch.setattr("ratchet.components.operations.lineage_queries.registered_models", lambda: [])
    code, _, err = run("publish", "model", "champion", "--to", REPOSITORY)
    assert code == 2 and "neither a folder nor a registered model" in err
    code, _, err = run("publish", "model", tmp_path, "--to", REPOSITORY)
    assert code == 3 and "config.json" in err and hub.files == {}
