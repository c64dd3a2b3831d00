"""Weights reach the sampler whole and in one version, over routes with a key, or the job ends in one line."""

import errno
import json
from types import SimpleNamespace

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("trl")
pytestmark = pytest.mark.slow

from accelerate import PartialState  # noqa: E402
from model_stand_in import gives, stand_in  # noqa: E402
from safetensors.torch import load_file  # noqa: E402
from transformers import Qwen3Config  # noqa: E402
from trl.experimental.async_grpo import weight_transfer  # noqa: E402

from ratchet.components.core import ConfigurationError, DataError, InfrastructureError  # noqa: E402
from ratchet.components.models.endpoint import Endpoint  # noqa: E402
from ratchet.components.models.sampled_policy import Sampled, SamplingParameters  # noqa: E402
from ratchet.components.models.vllm_policy import VllmSampler  # noqa: E402
from ratchet.components.training.grpo import weight_transfers  # noqa: E402
from ratchet.components.training.grpo.versioned_samplers import BatchingSampler, ServedSampler  # noqa: E402
from ratchet.components.training.grpo.weight_transfers import (  # noqa: E402
    AdapterTransfer,
    DiskTransfer,
    MemoryTransfer,
    NcclTransfer,
    VllmRoutes,
)


class Model(torch.nn.Module):
    """One layer, and a configuration that can be saved."""

    def __init__(self):
        super().__init__()
        self.head = torch.nn.Linear(2, 1, bias=False)
        self.config = Qwen3Config()


class Reads:
    """Replies with the weights of its model."""

    stops, context_length = [0], 100

    def __init__(self, model):
        self.model = model

    def sample(self, prompts, seeds, sampling):
        values = tuple(int(value) for value in self.model.head.weight.flatten())
        return [Sampled(values, (-0.5,) * 2) for _ in prompts]


def weights(*values):
    return iter([("head.weight", torch.tensor([values], dtype=torch.float32))])


@pytest.fixture
def server(monkeypatch):
    monkeypatch.setenv("OUR_KEY", "secret")
    answers = {
        "get_world_size": {"world_size": 2},
        "server_info": {"vllm_config": {"model_config": {"dtype": "torch.float32"}}},
    }

    def answer(handler):
        route = handler.path.rpartition("/")[2].partition("?")[0]
        status = 404 if route in server.missing else 500 if route in server.broken else 200
        gives(status, answers.get(route, {}))(handler)

    with stand_in(otherwise=answer) as server:
        server.missing, server.broken = set(), set()
        yield server


def endpoint(server):
    return Endpoint.load({"base_url": server.base_url, "model": "base", "api_key_env": "OUR_KEY"})


@pytest.fixture
def routes(server):
    routes = VllmRoutes(endpoint(server))
    yield routes
    routes.close()


def served(server):
    return ServedSampler(VllmSampler(endpoint(server), [0]))


def test_a_copy_in_memory_is_not_changed_by_the_trainer_and_is_sampled_once_published():
    model = Model()
    transfer = MemoryTransfer(BatchingSampler(Reads(model), model, 4), model)
    trained = torch.tensor([[3.0, 4.0]])
    transfer.pause()
    transfer.send_weights(iter([("head.weight", trained)]))
    transfer.resume()
    trained.fill_(9.0)
    transfer.sampler.publish(1)
    (reply,) = transfer.sampler.sample([[1]], [0], SamplingParameters())
    assert reply.ids == (3, 4) and reply.version == 1
    transfer.destroy()


def test_weights_that_are_not_finite_never_reach_the_sampler():
    model = Model()
    transfer = MemoryTransfer(BatchingSampler(Reads(model), model, 4), model)
    before = model.head.weight.detach().clone()
    with pytest.raises(DataError, match=r"head\.weight is not finite .* resume from the checkpoint before"):
        transfer.send_weights(weights(1.0, float("nan")))
    transfer.sampler.publish(1)
    transfer.sampler.sample([[1]], [0], SamplingParameters())
    assert torch.equal(model.head.weight, before)
    transfer.destroy()


def test_a_server_reads_saved_weights_again_between_two_replies(server, routes, tmp_path):
    transfer = DiskTransfer(served(server), routes, Model(), tmp_path / "weights")
    transfer.init_weight_transfer()
    transfer.pause()
    transfer.send_weights(weights(5.0, 6.0))
    transfer.resume()
    assert server.paths == ["/health", "/pause?mode=wait", "/collective_rpc", "/resume"]
    assert server.asked[2] == {"method": "reload_weights", "kwargs": {"weights_path": str(tmp_path / "weights")}}
    assert {headers["Authorization"] for headers in server.headers} == {"Bearer secret"}
    saved = load_file(tmp_path / "weights" / "model.safetensors")
    assert saved["head.weight"].tolist() == [[5.0, 6.0]]
    assert json.loads((tmp_path / "weights" / "config.json").read_text())["model_type"] == "qwen3"
    transfer.destroy()
    assert not (tmp_path / "weights").exists()


def test_a_server_without_development_routes_is_told_how_to_start(server, routes, tmp_path):
    server.missing.add("pause")
    with pytest.raises(ConfigurationError, match=r"no route /pause: start it with VLLM_SERVER_DEV_MODE=1"):
        DiskTransfer(served(server), routes, Model(), tmp_path / "weights").send_weights(weights(1.0, 2.0))


def test_a_server_that_refuses_weights_ends_the_transfer(server, routes, tmp_path):
    server.broken.add("collective_rpc")
    with pytest.raises(InfrastructureError):
        DiskTransfer(served(server), routes, Model(), tmp_path / "weights").send_weights(weights(1.0, 2.0))
    assert server.paths == ["/pause?mode=wait", "/collective_rpc"], "it is not repeated"


def test_a_full_disk_is_one_line_and_leaves_the_weights_before_and_a_server_that_answers(
    server, routes, tmp_path, monkeypatch
):
    transfer = DiskTransfer(served(server), routes, Model(), tmp_path / "weights")
    transfer.send_weights(weights(1.0, 2.0))
    server.paths.clear()

    def full(*arguments, **options):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("safetensors.torch.save_file", full)
    with pytest.raises(
        InfrastructureError, match=r"No space left on device; make room there, then start the same command"
    ):
        transfer.pause()
        transfer.send_weights(weights(3.0, 4.0))
    assert not server.paths, "a paused server would hang everybody who asks it"
    assert load_file(tmp_path / "weights" / "model.safetensors")["head.weight"].tolist() == [[1.0, 2.0]]


def test_trls_client_drives_the_routes_with_our_key(server, routes, monkeypatch):
    PartialState()  # as a trainer does: TRL's logger needs it
    group = SimpleNamespace(group=SimpleNamespace(store=1, socket=1))
    sent = []
    engine = SimpleNamespace(
        trainer_init=lambda info: group, trainer_send_weights=lambda iterator, trainer_args: sent.extend(iterator)
    )
    for name, value in {
        "is_vllm_available": lambda **_: True,
        "get_ip": lambda: "127.0.0.1",
        "get_open_port": lambda: 1,
        "NCCLWeightTransferEngine": engine,
        "NCCLTrainerSendWeightsArgs": SimpleNamespace,
    }.items():
        monkeypatch.setattr(weight_transfer, name, value, raising=False)
    transfer = NcclTransfer(served(server), routes, Model())
    transfer.init_weight_transfer()
    transfer.pause()
    transfer.send_weights(weights(7.0, 8.0))
    transfer.resume()
    transfer.destroy()
    assert [path.partition("?")[0] for path in server.paths] == [
        *("/health", "/server_info", "/get_world_size", "/init_weight_transfer_engine", "/pause"),
        *("/start_weight_update", "/update_weights", "/finish_weight_update", "/resume"),
    ]
    assert server.asked[3]["init_info"]["world_size"] == 3
    info = server.asked[6]["update_info"]
    assert info["names"] == ["head.weight"] and info["shapes"] == [[1, 2]] and info["dtype_names"] == ["float32"]
    assert [name for name, _ in sent] == ["head.weight"]
    assert {headers["Authorization"] for headers in server.headers} == {"Bearer secret"}


def test_nccl_without_vllm_here_says_what_to_set(server, routes, monkeypatch):
    monkeypatch.setattr(weight_transfer, "is_vllm_available", lambda **_: False)
    with pytest.raises(ConfigurationError, match="install it, or set disk or adapter"):
        NcclTransfer(served(server), routes, Model())


class Adapter(Model):
    """Saves what a PEFT model saves, as far as a publisher reads it."""

    def save_pretrained(self, folder, **options):
        (folder / "adapter_model.safetensors").write_bytes(self.head.weight.detach().numpy().tobytes())


def test_the_adapter_before_stays_until_the_one_after_next(server, tmp_path):
    model = Adapter()
    sampler = served(server)
    transfer = AdapterTransfer(sampler, model, tmp_path / "adapters")
    names = []
    for value in range(3):
        torch.nn.init.constant_(model.head.weight, value)
        transfer.send_weights(iter(()))
        names.append(sampler.server.model)
    unloaded = [body["lora_name"] for path, body in zip(server.paths, server.asked, strict=True) if "unload" in path]
    assert len(set(names)) == 3 and unloaded == names[:1], "requests in flight may still ask for the second"
    assert len(list((tmp_path / "adapters").iterdir())) == 2
    transfer.destroy()


@pytest.mark.parametrize(
    ("sampler", "transfer", "message"),
    [
        ("transformers", "disk", "disk does not reach grpo.sampling.sampler: transformers"),
        ("vllm", "memory", "memory does not reach grpo.sampling.sampler: vllm"),
        ("vllm", "adapter", "set model.lora"),
    ],
)
def test_a_transfer_that_does_not_fit_is_refused(server, sampler, transfer, message):
    sampling = SimpleNamespace(sampler=sampler, server=server.base_url)
    grpo = SimpleNamespace(asynchronous=SimpleNamespace(transfer=transfer), sampling=sampling)
    config = SimpleNamespace(grpo=grpo, model=SimpleNamespace(base="base"))
    tokenizer = SimpleNamespace(
        eos_token_id=0, unk_token_id=None, convert_tokens_to_ids=lambda text: None, chat_template=None
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(weight_transfers, "stop_ids", lambda *_: [0])
        with pytest.raises(ConfigurationError, match=message):
            weight_transfers.make_transfer(config, Model(), tokenizer)
