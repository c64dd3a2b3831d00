"""GRPO whose tokens a server draws: it is given each step's adapter, and the job learns what it learns by itself."""

import json
import threading

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("trl")
pytestmark = pytest.mark.slow

from grpo_player import Letters  # noqa: E402
from patience import until  # noqa: E402
from safetensors.torch import load_file  # noqa: E402
from small_model import make_checkpoint  # noqa: E402
from training_jobs import make_job  # noqa: E402
from vllm_stand_in import serving  # noqa: E402

from ratchet.components.core import ConfigurationError  # noqa: E402
from ratchet.components.training import job  # noqa: E402

LORA = {"r": 4, "alpha": 8}


@pytest.fixture(scope="module")
def server(base):
    with serving(base) as running:
        yield running


@pytest.fixture
def settings(base, tmp_path):
    Letters.calls, Letters.break_at = 0, None

    def made(name, lora=LORA, **sampling):
        return make_job(
            "grpo",
            output=tmp_path / name,
            base=base,
            lora=lora,
            precision="float32",
            batch_size=8,
            group_size=4,
            steps=2,
            save_every=100,
            learning_rate=2e-3,
            schedule="constant",
            warmup_steps=0,
            threads=1,
            player="grpo_player:Letters",
            sampling={"max_new_tokens": 8, "max_episode_tokens": 64, **sampling},
            reward={"grpo_player:letters": 1.0, "success": 0.0},
        )

    return made


def rewards(config):
    lines = [json.loads(line) for line in (config.output / "metrics.jsonl").read_text().splitlines()]
    return [line["reward"] for line in lines if "reward" in line]


def clients():
    return {thread for thread in threading.enumerate() if thread.name == "model-client"}


def test_a_server_draws_with_each_steps_weights_what_the_model_itself_would(settings, server):
    alone = settings("alone")
    served = settings("served", sampler="vllm", server=server.base_url)
    job.run(alone)
    before = clients()
    job.run(served)
    until(lambda: not clients() - before)  # let go at its end
    assert rewards(served) == pytest.approx(rewards(alone), rel=1e-6)
    ours, theirs = (load_file(config.output / "adapter" / "adapter_model.safetensors") for config in (served, alone))
    moved = {name: weight for name, weight in theirs.items() if "lora_B" in name}
    for name, weight in moved.items():
        torch.testing.assert_close(ours[name], weight, rtol=0.05, atol=3e-4)
    names = list(server.loaded)
    assert [name.split("-step-")[1].split("-")[0] for name in names] == ["0", "1"]
    assert list(server.models)[1:] == names[-1:], "those before were let go"
    left = sorted(path.name for path in (served.output / "adapters").iterdir())
    assert left == [server.loaded[names[-1]].name], "and removed"


def test_a_whole_model_cannot_be_served_step_by_step(settings, server):
    with pytest.raises(ConfigurationError, match=r"set model\.lora"):
        job.run(settings("whole", lora=None, sampler="vllm", server=server.base_url))


def test_a_server_of_another_base_is_detected_at_its_first_sample(settings, tmp_path):
    other = make_checkpoint(tmp_path / "other", seed=5)
    before = clients()
    with serving(other) as server, pytest.raises(ConfigurationError, match=r"serves another base than model\.base"):
        job.run(settings("wrong", sampler="vllm", server=server.base_url))
    until(lambda: not clients() - before)
