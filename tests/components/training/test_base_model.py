"""Where a base model comes from: a folder, or a hub's repository whose commit is pinned; nothing of it runs unasked."""

import json
import shutil

import pytest
from fake_hub import commit_of, hub

pytest.importorskip("huggingface_hub")

from ratchet.components.core import ConfigurationError, DataError, InfrastructureError
from ratchet.components.models.checkpoint_folders import checkpoint_version
from ratchet.components.training import base_model
from ratchet.components.training.base_model import (
    BaseModelInfo,
    base_model_config,
    base_model_info,
    count_parameters,
    fetch_base_model,
)

pytestmark = pytest.mark.slow


def weights(path, size=6):
    header = json.dumps({"w": {"dtype": "F32", "shape": [2, size // 2], "data_offsets": [0, 4 * size]}}).encode()
    path.write_bytes(len(header).to_bytes(8, "little") + header + bytes(4 * size))


@pytest.fixture
def model(tmp_path):
    """A folder that looks like a model, with things in it that nobody should fetch."""
    folder = tmp_path / "model"
    folder.mkdir()
    weights(folder / "model.safetensors")
    (folder / "config.json").write_text("{}")
    (folder / "README.md").write_text("---\nlanguage: en\nlicense: mit\n---\n# license: none\n")
    (folder / "modeling_own.py").write_text("raise SystemExit")
    (folder / "pytorch_model.bin").write_bytes(b"\x80\x04")
    return folder


@pytest.fixture
def served(model, tmp_path, monkeypatch):
    """That model on a hub, an older one beside it."""
    older = tmp_path / "older"
    shutil.copytree(model, older)
    weights(older / "model.safetensors", 4)
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "cache"))
    bare = tmp_path / "bare"
    bare.mkdir()
    (bare / "README.md").touch()
    refused = {"org/gated": (403, "GatedRepo"), "org/forbidden": (403, ""), "org/no-login": (401, "GatedRepo")}
    with hub({"org/name": {"main": model, "v1": older}, "org/bare": {"main": bare}}, refused=refused) as (
        address,
        asked,
    ):
        monkeypatch.setenv("HF_ENDPOINT", address)
        yield asked


def test_a_folder_is_described_by_its_files(model):
    found = base_model_info(str(model))
    assert (found.name, found.revision, found.licence, found.parameters) == (str(model), None, "mit", 6)
    assert found.size == (model / "model.safetensors").stat().st_size == 24 + 8 + found.size - 32
    assert fetch_base_model(str(model)) == (model, found)
    assert "6 parameters" in found.line() and "licence mit" in found.line()


def test_a_repository_is_fetched_at_the_commit_that_it_was_described_at(served, model):
    folder, found = fetch_base_model("org/name")
    assert (found.licence, found.revision) == ("apache-2.0", commit_of(model)) and folder.name == found.revision
    assert count_parameters(folder / "model.safetensors") == 6
    assert found.revision[:12] in found.line()


def test_no_code_and_no_pickles_are_fetched_unasked(served):
    folder, _ = fetch_base_model("org/name")
    assert {path.name for path in folder.iterdir()} == {"model.safetensors", "config.json", "README.md"}
    assert not any("modeling_own" in path or "pytorch_model" in path for path in served)


def test_a_revision_may_be_chosen(served, model):
    folder, found = fetch_base_model("org/name", "v1")
    assert count_parameters(folder / "model.safetensors") == 4 and found.revision != commit_of(model)
    with pytest.raises(ConfigurationError, match="has no revision 'v2'"):
        fetch_base_model("org/name", "v2")


def test_a_cached_model_is_used_when_the_hub_cannot_be_reached(served, monkeypatch):
    _, found = fetch_base_model("org/name")
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:1")
    folder, again = fetch_base_model("org/name", found.revision)
    assert again.revision == found.revision and (folder / "config.json").is_file()


@pytest.mark.parametrize(
    ("name", "error", "said"),
    [
        ("org/none", ConfigurationError, "repository of the hub"),
        ("/tmp/surely/nothing", DataError, "is not a folder"),
        ("../up", DataError, "is not a folder"),
        ("a/b/c", DataError, "is not a folder"),
        ("", DataError, "no config.json|is not a folder"),
        ("org/na me", DataError, "is not a folder"),
    ],
)
def test_an_unknown_base_model_gives_a_one_line_error(served, name, error, said):
    with pytest.raises(error, match=said) as told:
        fetch_base_model(name)
    assert "\n" not in str(told.value)


@pytest.mark.parametrize("read", [base_model_info, fetch_base_model, base_model_config])
@pytest.mark.parametrize(
    ("name", "error", "said"),
    [
        (
            "org/gated",
            ConfigurationError,
            r"org/gated is gated: accept its licence at http\S+/org/gated, then set HF_TOKEN",
        ),
        ("org/no-login", ConfigurationError, "is gated: accept its licence"),
        ("org/forbidden", ConfigurationError, "the hub refuses org/forbidden to this user; set HF_TOKEN"),
        ("org/none", ConfigurationError, "correct the name, or set HF_TOKEN if it is private"),
        ("org/bare", DataError, r"org/bare has no (config\.json|\*\.safetensors)"),
    ],
)
def test_what_a_hub_refuses_is_one_line_with_what_to_do(served, read, name, error, said):
    with pytest.raises(error, match=said) as told:
        read(name)
    assert "\n" not in str(told.value)


def test_a_configuration_is_fetched_alone(served):
    assert base_model_config("org/name") == {} and base_model_config("org/name", "v1") == {}
    assert not any("safetensors" in path for path in served)


def test_offline_without_a_cache_is_said(served, monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    for read in (base_model_info, base_model_config):
        with pytest.raises(InfrastructureError, match="HF_HUB_OFFLINE is set; fetch it .*: hf download org/x"):
            read("org/x")


def test_a_download_that_was_broken_off_is_no_model(served, model, monkeypatch):
    folder, found = fetch_base_model("org/name")
    names = {"a": "model.safetensors", "b": "model-00002-of-00002.safetensors"}
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": names}))
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:1")
    with pytest.raises(InfrastructureError, match="the hub cannot be"):
        fetch_base_model("org/name", found.revision)
    with pytest.raises(
        DataError, match=r"lacks 1 of 2 files of weights \(model-00002-of-00002\.safetensors\); download it again"
    ):
        base_model_info(str(folder))


def test_an_unreachable_hub_is_an_infrastructure_error(served, monkeypatch):
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:1")
    with pytest.raises(InfrastructureError, match="the hub cannot be") as told:
        fetch_base_model("org/other")
    assert "\n" not in str(told.value)


def test_a_folder_with_another_content_than_its_revision_is_refused(model):
    version = checkpoint_version(model)
    assert fetch_base_model(str(model), version)[0] == model
    with pytest.raises(DataError, match=f"holds {version}, and model.revision is main; restore"):
        fetch_base_model(str(model), "main")


def test_a_resumed_job_uses_the_commit_it_started_with(served, model, tmp_path):
    from training_jobs import make_job

    job = make_job("sft", output=tmp_path / "out", train="t", base="org/name", revision="v1")
    first = base_model.pin_base_model(job)
    assert len(first.model.revision) == 40 and first.model.revision != commit_of(model)
    served.clear()
    assert (
        base_model.pin_base_model(job.model_copy(update={"model": job.model.model_copy(update={"revision": None})}))
        == first
    )
    assert base_model.pin_base_model(first) == first and served == []
    assert base_model.read_base_model_info(tmp_path / "out").licence == "apache-2.0"


def test_a_folder_needs_no_pin_and_a_model_from_scratch_nothing(model, tmp_path):
    from training_jobs import make_job

    job = make_job("sft", output=tmp_path / "out", train="t", base=model)
    assert base_model.pin_base_model(job) == job and base_model.read_base_model_info(
        tmp_path / "out"
    ) == base_model_info(str(model))
    assert base_model.pin_base_model(fresh := make_job("sft", output=tmp_path / "new", train="t")) == fresh
    assert base_model.read_base_model_info(tmp_path / "new") is None


@pytest.mark.parametrize("head", ["", "license: mit\n", "---\nno end: yes\n", "---\nlicense:\n---\n", "\x00\xff"])
def test_a_licence_that_is_not_named_is_unknown(model, head):
    (model / "README.md").write_bytes(head.encode("latin-1"))
    assert base_model_info(str(model)).licence == "unknown"
    (model / "README.md").unlink()
    assert isinstance(base_model_info(str(model)), BaseModelInfo)
