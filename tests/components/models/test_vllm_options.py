"""The options of a vLLM server: vLLM's own names, checked in its environment, and written as its command line."""

import pytest

from ratchet.components.core import ConfigurationError
from ratchet.components.models.vllm_options import (
    DECIDED,
    check_vllm_options,
    option_number,
    server_gpus,
    vllm_command_line,
)

ARGUMENTS = """
class EngineArgs:
    model: str
    gpu_memory_utilization: float = 0.9
    max_model_len: int | None = None
    logprobs_mode: str = "raw"

class AsyncEngineArgs(EngineArgs):
    enable_log_requests: bool = False
"""


@pytest.fixture
def python(tmp_path):
    """The interpreter of an environment with the source of a vLLM."""
    place = tmp_path / "lib" / "python3.11" / "site-packages" / "vllm" / "engine"
    place.mkdir(parents=True)
    (place / "arg_utils.py").write_text(ARGUMENTS)
    return tmp_path / "bin" / "python"


def test_the_names_are_those_of_the_environments_vllm(python):
    check_vllm_options({"gpu_memory_utilization": 0.5, "enable_log_requests": True}, python)
    with pytest.raises(ConfigurationError, match="did you mean 'gpu_memory_utilization'"):
        check_vllm_options({"gpu_memory_utilisation": 0.5}, python)


def test_without_an_environment_only_what_ratchet_decides_is_refused(tmp_path):
    check_vllm_options({"anything": 1}, None)
    check_vllm_options({"anything": 1}, tmp_path / "bin" / "python")
    for name in DECIDED:
        with pytest.raises(ConfigurationError, match=rf"^vllm\.{name}: .*; remove it here$"):
            check_vllm_options({name: 1}, None)


def test_options_become_vllms_command_line():
    options = {
        "max_model_len": 4096,
        "enforce_eager": True,
        "enable_prefix_caching": False,
        "hf_overrides": {"rope_theta": 1e6},
        "swap_space": None,
    }
    assert vllm_command_line(options) == (
        *("--max-model-len", "4096", "--enforce-eager", "--no-enable-prefix-caching"),
        *("--hf-overrides", '{"rope_theta": 1000000.0}'),
    )
    assert vllm_command_line({}) == ()


def test_a_server_takes_as_many_gpus_as_its_parallelism_says():
    assert server_gpus({}) == 1
    assert server_gpus({"tensor_parallel_size": 4, "data_parallel_size": 2}) == 8


def test_numbers_are_read_as_vllm_reads_them():
    """vLLM's command line takes 16k, 16K and auto for a length: they must not end `ratchet plan` in a traceback."""
    values = [16384, "16384", "16k", "16K", "1.5k", "auto", -1, None]
    numbers = [option_number({"max_model_len": value}, "max_model_len", 7) for value in values]
    assert numbers == [16384, 16384, 16000, 16384, 1500, 7, 7, 7]
    for wrong in ("two", 0, -4, "", True, "nan", "inf"):
        with pytest.raises(ConfigurationError, match=r"^vllm\.tensor_parallel_size: .* is not a number above 0"):
            server_gpus({"tensor_parallel_size": wrong})
