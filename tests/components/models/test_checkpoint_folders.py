"""A checkpoint is named by its content, and a broken one is refused in one line."""

import json
import os

import pytest

from ratchet.components.core import DataError
from ratchet.components.models.checkpoint_folders import check_checkpoint, checkpoint_version, context_length
from ratchet.components.models.policy_factory import default_reply_tokens


@pytest.fixture
def checkpoint(tmp_path):
    header = json.dumps({"w": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}}).encode()
    (tmp_path / "model.safetensors").write_bytes(len(header).to_bytes(8, "little") + header + b"\0" * 8)
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "tokenizer.json").write_text("{}")
    return tmp_path


def test_the_version_follows_weights_tokenizer_and_template_alone(checkpoint):
    first = checkpoint_version(checkpoint)
    (checkpoint / "README.md").write_text("a card")
    assert checkpoint_version(checkpoint) == first
    (checkpoint / "chat_template.jinja").write_text("{{ messages }}")
    assert checkpoint_version(checkpoint) != first


@pytest.mark.parametrize(
    "damage",
    [
        lambda path: path.write_bytes(path.read_bytes()[:-3]),
        lambda path: path.write_bytes(b""),
        lambda path: path.write_bytes(b"\xff" * 40),
        lambda path: path.write_bytes((5).to_bytes(8, "little") + b"[1,2]"),
        lambda path: path.unlink(),
    ],
    ids=["cut", "empty", "noise", "no-header", "absent"],
)
def test_a_broken_checkpoint_is_refused_by_name(checkpoint, damage):
    damage(checkpoint / "model.safetensors")
    with pytest.raises(DataError, match=str(checkpoint)) as error:
        check_checkpoint(checkpoint)
    assert "\n" not in str(error.value)


def test_a_checkpoint_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(DataError, match="not a folder"):
        check_checkpoint(tmp_path / "absent")


def test_weights_that_changed_have_another_name_though_the_folder_is_the_same(tmp_path):
    from adapters import plain_checkpoint, tensor_file

    folder = plain_checkpoint(tmp_path / "ck")
    names = [checkpoint_version(folder)]
    for byte in (b"\1", b"\2", b"\0"):
        tensor_file(folder / "model.safetensors", byte * 8)
        names.append(checkpoint_version(folder))
    assert len(set(names)) == 3 and names[0] == names[3]


def test_large_weights_are_read_once_until_they_change(tmp_path, monkeypatch):
    from adapters import plain_checkpoint, tensor_file

    from ratchet.components.models import checkpoint_folders

    read = []
    monkeypatch.setattr(checkpoint_folders, "CACHED_HASH_BYTES", 16)
    monkeypatch.setattr(checkpoint_folders, "file_sha256", lambda path: read.append(path.name) or f"{len(read):064x}")
    folder = plain_checkpoint(tmp_path / "ck")
    names = [checkpoint_version(folder), checkpoint_version(folder)]
    tensor_file(folder / "model.safetensors", b"\1" * 8)
    os.utime(folder / "model.safetensors", (1, 1))
    names.append(checkpoint_version(folder))
    assert read.count("model.safetensors") == 2 and names[1] != names[2]


@pytest.mark.parametrize(
    ("config", "context", "reply"),
    [
        ({"max_position_embeddings": 1024}, 1024, 512),
        ({"text_config": {"max_position_embeddings": 40960}}, 40960, 1024),
        ({}, None, 1024),
    ],
)
def test_a_reply_of_default_length_leaves_half_of_the_context_to_the_prompt(tmp_path, config, context, reply):
    from adapters import plain_adapter, plain_checkpoint

    base = plain_checkpoint(tmp_path / "base")
    (base / "config.json").write_text(json.dumps(config))
    for folder in (base, plain_adapter(tmp_path / "adapter", base)):
        assert context_length(folder) == context
        assert default_reply_tokens(f"transformers:{folder}") == reply
    assert default_reply_tokens("openai:model@http://127.0.0.1:9/v1") == 1024
