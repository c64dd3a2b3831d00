"""`vllm:` policies: named as transformers' of the same weights, over a server that stands or one of their own."""

import json

import psutil
import pytest

pytest.importorskip("transformers")

from adapters import plain_adapter, plain_checkpoint
from engine_stand_in import make_engine
from model_stand_in import gives, stand_in
from patience import gone, until

from ratchet.components.core import ConfigurationError, DataError
from ratchet.components.models.endpoint import ModelUnavailable
from ratchet.components.models.policy_config import VllmConfig
from ratchet.components.models.policy_factory import make_policy, plays_in_lockstep, policy_version, started_server_gpus

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(
    ("place", "checkpoint", "base_url"),
    [
        ("out/checkpoint", "out/checkpoint", None),
        ("out/checkpoint@http://host:8000/v1", "out/checkpoint", "http://host:8000/v1"),
        ("odd@folder", "odd@folder", None),
    ],
)
def test_a_policy_is_named_by_a_folder_and_where_its_server_stands(place, checkpoint, base_url):
    config = VllmConfig.named(place)
    assert (str(config.checkpoint), config.base_url) == (checkpoint, base_url)


def test_or_by_a_file_that_says_more(tmp_path):
    file = tmp_path / "served.yaml"
    file.write_text("checkpoint: out\noptions: {max_model_len: 512, tensor_parallel_size: 2}\nconcurrency: 8\n")
    config = VllmConfig.named(str(file))
    assert (
        config.options == {"max_model_len": 512, "tensor_parallel_size": 2}
        and config.endpoint("http://h/v1", "m").concurrency == 8
    )
    told = '{"checkpoint": "out", "options": {"max_model_len": 512, "tensor_parallel_size": 2}, "concurrency": 8}'
    assert VllmConfig.named(told) == config
    with pytest.raises(ConfigurationError, match="cannot be read"):
        VllmConfig.named(told[:-3])
    file.write_text("checkpoint: out\nconcurency: 8\n")
    with pytest.raises(ConfigurationError, match="concurrency"):
        VllmConfig.named(str(file))


def test_its_version_is_the_weights_own_whichever_engine_plays(tmp_path):
    base = plain_checkpoint(tmp_path / "base")
    adapter = plain_adapter(tmp_path / "adapter", base)
    for folder in (base, adapter):
        names = [f"transformers:{folder}", f"vllm:{folder}", f"vllm:{folder}@http://h/v1"]
        assert len({policy_version(name, None) for name in names}) == 1
    assert not plays_in_lockstep(f"vllm:{base}")
    assert [started_server_gpus(name) for name in (*names, "teacher")] == [0, 1, 0, 0]
    with pytest.raises(DataError, match="is not a folder"):
        policy_version("vllm:absent", None)


def test_without_a_named_environment_no_server_is_guessed(tmp_path, monkeypatch, tokenizer_in):
    monkeypatch.delenv("RATCHET_VLLM_PYTHON", raising=False)
    with pytest.raises(ConfigurationError, match="RATCHET_VLLM_PYTHON"):
        make_policy(f"vllm:{tokenizer_in(plain_checkpoint(tmp_path / 'base'))}", None)


@pytest.fixture
def tokenizer_in():
    def put(folder):
        from chat_templates import chat_tokenizer

        chat_tokenizer("chatml").save_pretrained(folder)
        return folder

    return put


def answered(handler):
    server, path = handler.server, handler.path.rpartition("/")[2]
    if path == "models":
        return gives(200, {"data": [{"id": name, "max_model_len": 4096} for name in server.names]})(handler)
    if path == "load_lora_adapter":
        server.names.append(handler.asked["lora_name"])
        return handler.reply(200, b"Success")
    ids = handler.asked.get("allowed_token_ids") or [handler.asked["stop_token_ids"][0]]
    found = {"token_ids": ids, "logprobs": {"token_logprobs": [0.0]}, "finish_reason": "stop"}
    return gives(200, {"choices": [found]})(handler)


@pytest.fixture
def server():
    with stand_in(otherwise=answered) as running:
        running.names = ["other"]
        yield running


def test_a_server_that_serves_other_weights_is_refused(server, tmp_path, tokenizer_in):
    base = tokenizer_in(plain_checkpoint(tmp_path / "base"))
    with pytest.raises(ConfigurationError, match=r"serves other and not ckpt-.*ratchet serve") as error:
        make_policy(f"vllm:{base}@{server.base_url}", None)
    assert "\n" not in str(error.value)


def test_an_adapter_is_brought_to_a_server_that_stands(server, tmp_path, tokenizer_in):
    from small_model import TASK, TOOLS

    from ratchet.components.core import PolicyRequest

    adapter = plain_adapter(tmp_path / "a", tokenizer_in(plain_checkpoint(tmp_path / "base")))
    policy = make_policy(f"vllm:{adapter}@{server.base_url}", None)
    try:
        assert policy.version.startswith("lora-") and server.names[1:] == [policy.version]
        (reply,) = policy.act([PolicyRequest("ep", "t", 0, 1, (TASK,), TOOLS)])
        assert reply.stop_reason == "stop" and server.asked[-1]["model"] == policy.version
    finally:
        policy.close()
        policy.close()


def test_a_server_of_its_own_goes_with_the_policy_and_a_log_that_tells_of_no_fault_too(tmp_path, tokenizer_in, own):
    policy = own(tokenizer_in(plain_checkpoint(tmp_path / "base")))
    server = policy._server
    tree = psutil.Process(server.pid).children(recursive=True)
    assert policy.act([request()])[0].stop_reason == "stop" and tree and server.log.is_file()
    policy.close()
    until(lambda: all(gone(child.pid) for child in tree))
    assert not server.log.exists()


def test_a_server_of_its_own_that_died_is_said_to_have(tmp_path, tokenizer_in, own):
    policy = own(tokenizer_in(plain_checkpoint(tmp_path / "base")))
    server = policy._server
    (engine,) = psutil.Process(server.pid).children()
    engine.kill()
    until(lambda: server._process.poll() is not None)
    with pytest.raises(ModelUnavailable, match=r"vllm with .*base died") as error:
        policy.act([request()])
    policy.close()
    assert "\n" not in str(error.value) and server.log.is_file()


@pytest.fixture
def own(tmp_path, monkeypatch):
    monkeypatch.setattr("ratchet.components.models.model_server.LOOK", 0.02)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setenv("RATCHET_VLLM_PYTHON", str(make_engine(tmp_path)))
    made = []

    def policy(checkpoint):
        told = json.dumps({"checkpoint": str(checkpoint), "retries": 2})
        made.append(make_policy(f"vllm:{told}", None, max_new_tokens=8))
        return made[-1]

    yield policy
    for each in made:
        each.close()


def request():
    from ratchet.components.core import PolicyRequest

    return PolicyRequest("ep", "t", 0, 1, ({"role": "user", "content": "add"},), ())
