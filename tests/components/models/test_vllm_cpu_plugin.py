"""The plugin of vLLM without a GPU: rows without an adapter get nothing of any, a reload packs output layers again, and vLLM finds
it as it finds installed ones.
"""

import importlib
import sys
from importlib.metadata import entry_points
from types import ModuleType

import pytest

pytestmark = pytest.mark.slow

torch = pytest.importorskip("torch")

from ratchet.components.models import vllm_cpu_plugin  # noqa: E402

ADAPTERS = torch.tensor([[[1.0, 0.0]], [[0.0, 10.0]]])
"""Two adapters of rank 1 for inputs of two numbers."""
ROWS = torch.tensor([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])


def bgmv_shrink(inputs, weights, output, indices, scale=1.0):
    """As torch reads an index: -1 is the last."""
    output[: len(inputs)] = scale * torch.einsum("bi,bri->br", inputs, weights[indices])


def sgmv_shrink(inputs, weights, output, starts, lengths, indices, batches, longest, tokens, scale):
    bgmv_shrink(inputs, weights, output, torch.repeat_interleave(indices, lengths), scale)


@pytest.fixture
def vllm(monkeypatch):
    """vLLM as far as the plugin reaches."""
    names = ["vllm", "vllm.lora", "vllm.lora.punica_wrapper", "vllm.lora.punica_wrapper.punica_cpu"]
    for name in names:
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    cpu = sys.modules[names[2]].punica_cpu = sys.modules[names[3]]
    cpu.bgmv_shrink, cpu.sgmv_shrink = bgmv_shrink, sgmv_shrink
    reload = ModuleType("vllm.model_executor.model_loader.reload.inplace")
    reload.finalize_layerwise_reload = lambda model, config: model.log.append("finalized")
    monkeypatch.setitem(sys.modules, reload.__name__, reload)
    cpu.reload = reload
    return cpu


def test_a_row_without_an_adapter_gets_nothing_and_the_others_get_their_own(vllm):
    vllm_cpu_plugin.register()
    indices, padded = torch.tensor([0, -1, 1]), torch.full((4, 1), 7.0)
    vllm.bgmv_shrink(ROWS, ADAPTERS, padded, indices, 2.0)
    assert padded[:, 0].tolist() == [2.0, 0.0, 120.0, 7.0]


def test_so_does_a_sequence(vllm):
    vllm_cpu_plugin.register()
    output = torch.full((3, 1), 7.0)
    metadata = torch.tensor([0, 2]), torch.tensor([2, 1]), torch.tensor([-1, 0]), 2, 2, 3
    vllm.sgmv_shrink(ROWS, ADAPTERS, output, *metadata, 1.0)
    assert output[:, 0].tolist() == [0.0, 0.0, 5.0]


def test_after_a_reload_output_layers_are_packed_again_and_no_other_layer(vllm):
    class ParallelLMHead(torch.nn.Module):
        def process_weights_after_loading(self, layer):
            model.log.append(layer)

    model = torch.nn.Sequential(torch.nn.Linear(2, 2), ParallelLMHead())
    model.log = []
    object.__setattr__(model[1], "quant_method", model[1])  # a layer that is its own submodule has no end
    vllm_cpu_plugin.register()
    vllm.reload.finalize_layerwise_reload(model, None)
    assert model.log == ["finalized", model[1]]


def test_it_is_found_as_an_installed_plugin_that_needs_nothing_of_ours(vllm, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(vllm_cpu_plugin.write_plugin(tmp_path / "plugin")))
    importlib.invalidate_caches()
    (found,) = (each for each in entry_points(group="vllm.general_plugins") if each.name == vllm_cpu_plugin.NAME)
    found.load()()
    assert vllm.bgmv_shrink is not bgmv_shrink
    del sys.modules[vllm_cpu_plugin.NAME]
