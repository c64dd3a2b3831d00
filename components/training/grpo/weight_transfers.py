"""How the weights of asynchronous GRPO reach the sampler: TRL's `WeightTransferProtocol`.

| transfer | sampler | how |
|---|---|---|
| `memory` | a copy of the model in this process | weights are copied, and replaced between two batches |
| `disk` | vLLM, with a GPU or without | weights are saved, and the server reads them again |
| `nccl` | vLLM on other GPUs than the trainer's | TRL's client broadcasts them |
| `adapter` | vLLM with `--adapters` | the LoRA adapter is saved and loaded under a new name |

`disk` and `nccl` use routes that vLLM serves in its development mode alone (VLLM_SERVER_DEV_MODE=1). They can do
anything in the server; `ratchet serve` puts every route behind its key.
"""

import contextlib
import copy
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
import torch

from ratchet.components.core import ConfigurationError, DataError, InfrastructureError
from ratchet.components.models.endpoint import Endpoint, Timeouts
from ratchet.components.models.http_client import ModelClient
from ratchet.components.models.sampled_policy import stop_ids
from ratchet.components.models.tool_call_formats import CLOSE
from ratchet.components.models.vllm_policy import VllmSampler

from ..checkpoint_io import atomic_folder
from ..config.job_config import GrpoConfig
from ..model_loading import has_adapters
from .versioned_samplers import BatchingSampler, ServedSampler, VersionedSampler
from .weight_samplers import ROWS_PER_TRAINED_ROW, AdapterPublisher

Weights = Iterator[tuple[str, torch.Tensor]]


class WeightTransfer:
    """TRL's WeightTransferProtocol, and the `sampler` that receives the weights. This base does what needs no pause."""

    def __init__(self, sampler: VersionedSampler) -> None:
        self.sampler = sampler

    def init_weight_transfer(self) -> None:
        """Connect to the sampler, before the first transfer."""

    def pause(self) -> None:
        """Stop sampling, where it cannot go on during a transfer."""

    def send_weights(self, iterator: Weights) -> None:
        """Transfer weights by name. Raises DataError at one that is not finite, InfrastructureError if a transfer fails."""
        raise NotImplementedError

    def resume(self) -> None:
        """Go on sampling."""

    def destroy(self) -> None:
        """Release all resources, the sampler's included. Idempotent."""
        self.sampler.close()


def _finite(iterator: Weights) -> Weights:
    """Yield the weights. Raises DataError at one that is not finite, before the sampler has it."""
    for name, tensor in iterator:
        if not bool(torch.isfinite(tensor).all()):
            raise DataError(
                f"grpo: weight {name} is not finite after this update; lower optimization.learning_rate, and start again "
                "to resume from the checkpoint before"
            )
        yield name, tensor


class MemoryTransfer(WeightTransfer):
    """Copies weights for a BatchingSampler of `model`. Sampling goes on meanwhile: no thread waits for the other."""

    sampler: BatchingSampler

    def __init__(self, sampler: BatchingSampler, model: Any) -> None:
        super().__init__(sampler)
        self._like = {name: (weight.device, weight.dtype) for name, weight in model.named_parameters()}

    def send_weights(self, iterator: Weights) -> None:
        """Stage a copy of the weights; the worker's `update_model_version` publishes it."""
        staged = {}
        for name, tensor in _finite(iterator):
            device, dtype = self._like[name]
            staged[name] = tensor.detach().to(device, dtype, copy=True)
        self.sampler.stage(staged)


class VllmRoutes:
    """The development routes of a vLLM server, with its key: the methods that TRL's WeightTransferClient calls, and
    `collective_rpc`. Raises ConfigurationError for a server without them, InfrastructureError if it refuses.
    """

    def __init__(self, endpoint: Endpoint, timeout: float = 1800.0) -> None:
        # Requests of a transfer are not repeated: half of one may have happened.
        limits = Timeouts(read=timeout, total=timeout)
        self._client = ModelClient(endpoint.model_copy(update={"retries": 0, "timeouts": limits}))
        self.server_url = endpoint.base_url.rstrip("/").removesuffix("/v1")

    def wait_for_server_ready(self) -> None:
        """Check that the server answers."""
        self._client.get(f"{self.server_url}/health", lambda answer: None)

    def get_dtype(self) -> str:
        """Return the type of the server's weights, such as torch.bfloat16."""
        info = self._get("server_info?config_format=json")
        return str(info["vllm_config"]["model_config"]["dtype"])

    def get_world_size(self) -> int:
        """Return the number of the server's processes that hold weights."""
        return int(self._get("get_world_size")["world_size"])

    def pause(self, mode: str = "keep", *, timeout: float = 0.0) -> None:
        """Stop generating: `keep` freezes requests in flight, `wait` ends them first and empties the prefix cache."""
        self.post(f"pause?mode={mode}", {})

    def resume(self, *, timeout: float = 0.0) -> None:
        """Go on generating."""
        self.post("resume", {})

    def init_weight_transfer_engine(self, init_info: Mapping[str, Any], *, timeout: float = 0.0) -> None:
        """Connect the server to the trainer."""
        self.post("init_weight_transfer_engine", {"init_info": dict(init_info)})

    def start_weight_update(self, *, timeout: float = 0.0) -> None:
        """Begin an update."""
        self.post("start_weight_update", {"is_checkpoint_format": True})

    def update_weights(self, update_info: Mapping[str, Any], *, timeout: float = 0.0) -> None:
        """Receive weights; returns when all have arrived."""
        self.post("update_weights", {"update_info": dict(update_info)})

    def finish_weight_update(self, *, timeout: float = 0.0) -> None:
        """End an update."""
        self.post("finish_weight_update", {})

    def collective_rpc(self, method: str, **arguments: str) -> None:
        """Call a method of every process that holds weights."""
        self.post("collective_rpc", {"method": method, "kwargs": arguments})

    def post(self, route: str, body: dict[str, Any]) -> None:
        """Send a request to a route at the root of the server."""
        with self._explained(route):
            self._client.post(f"{self.server_url}/{route}", body, lambda answer: None)

    def close(self) -> None:
        """Close the connection."""
        self._client.close()

    def _get(self, route: str) -> Any:
        with self._explained(route):
            return self._client.get(f"{self.server_url}/{route}", msgspec.json.decode)

    @contextlib.contextmanager
    def _explained(self, route: str) -> Iterator[None]:
        try:
            yield
        except ConfigurationError as error:
            if "HTTP 404" not in str(error):
                raise
            raise ConfigurationError(
                f"the server at {self.server_url} has no route /{route.partition('?')[0]}: start it with "
                "VLLM_SERVER_DEV_MODE=1 in its environment, or set grpo.asynchronous.transfer: adapter"
            ) from error


class DiskTransfer(WeightTransfer):
    """Saves the weights to `folder`, which the server must be able to read, and makes it load them again."""

    def __init__(self, sampler: ServedSampler, routes: VllmRoutes, model: Any, folder: Path) -> None:
        super().__init__(sampler)
        self._routes, self._folder = routes, folder
        self._config = model.config

    def init_weight_transfer(self) -> None:
        """Check that the server answers."""
        self._routes.wait_for_server_ready()

    def send_weights(self, iterator: Weights) -> None:
        """Save the weights, end the replies in flight, so that each has weights of one version alone, and load them."""
        from safetensors.torch import save_file

        try:
            with atomic_folder(self._folder) as unfinished:
                self._config.save_pretrained(unfinished)
                # Weights that share memory, such as a tied head, are not accepted.
                tensors = {name: tensor.detach().cpu().contiguous().clone() for name, tensor in _finite(iterator)}
                save_file(tensors, unfinished / "model.safetensors", metadata={"format": "pt"})
        except OSError as error:
            raise InfrastructureError(
                f"the weights cannot be saved to {self._folder}: {error.strerror or error}; make room there, then start the "
                "same command again to resume"
            ) from error
        # Only now: sampling goes on while weights are saved, and a failure to save leaves no paused server behind.
        self._routes.pause("wait")
        self._routes.collective_rpc("reload_weights", weights_path=str(self._folder.resolve()))

    def resume(self) -> None:
        """Go on sampling."""
        self._routes.resume()

    def destroy(self) -> None:
        """See WeightTransfer; the folder is removed."""
        shutil.rmtree(self._folder, ignore_errors=True)
        self._routes.close()
        super().destroy()


class NcclTransfer(WeightTransfer):
    """TRL's WeightTransferClient over routes with a key. Raises ConfigurationError without a GPU or vLLM here."""

    def __init__(self, sampler: ServedSampler, routes: VllmRoutes, model: Any) -> None:
        from trl.experimental.async_grpo.async_grpo_trainer import _iter_vllm_named_params
        from trl.experimental.async_grpo.weight_transfer import WeightTransferClient

        super().__init__(sampler)
        self._routes = routes
        rows = [(name, weight) for name, weight in _iter_vllm_named_params(model)]
        info = {
            "names": [name for name, _ in rows],
            "dtype_names": [str(weight.dtype).removeprefix("torch.") for _, weight in rows],
            "shapes": [list(weight.shape) for _, weight in rows],
        }
        try:
            self._client = WeightTransferClient(routes, info)
        except ImportError as error:
            raise ConfigurationError(
                "grpo.asynchronous.transfer: nccl needs vllm in the trainer's environment too; install it, or set disk or adapter"
            ) from error

    def init_weight_transfer(self) -> None:
        """Make the group of the trainer's process and the server's."""
        self._client.init_weight_transfer()

    def pause(self) -> None:
        """Freeze the replies in flight, which go on with the new weights."""
        self._client.pause()

    def resume(self) -> None:
        """Go on sampling."""
        self._client.resume()

    def send_weights(self, iterator: Weights) -> None:
        """Broadcast the weights."""
        self._client.send_weights(_finite(iterator))

    def destroy(self) -> None:
        """See WeightTransfer."""
        self._client.destroy()
        self._routes.close()
        super().destroy()


class AdapterTransfer(WeightTransfer):
    """Loads the LoRA adapter of `model` into the server. Requests in flight end with the adapter that they began with."""

    def __init__(self, sampler: ServedSampler, model: Any, folder: Path) -> None:
        super().__init__(sampler)
        self._model = model
        self._publisher = AdapterPublisher(sampler.server, folder, keep=1)
        self._number = 0

    def send_weights(self, iterator: Weights) -> None:
        """Save and load the adapter; `iterator`, of whole weights, is not needed."""
        weights = ((name, weight) for name, weight in self._model.named_parameters() if weight.requires_grad)
        for _ in _finite(weights):
            pass
        self._number += 1
        try:
            self._publisher.publish(self._model, self._number)
        except OSError as error:
            raise InfrastructureError(
                f"the adapter cannot be saved: {error.strerror or error}; make room, then start the same command again to resume"
            ) from error


def make_transfer(config: GrpoConfig, model: Any, tokenizer: Any) -> WeightTransfer:
    """Return the transfer that `grpo.asynchronous.transfer` names, with its sampler. `model`: the loaded model, before a
    trainer wraps it.

    `auto`: memory for the transformers sampler; for vLLM an adapter where one is trained, else disk. Raises
    ConfigurationError if sampler, model and transfer do not fit.
    """
    grpo = config.grpo
    assert grpo.asynchronous is not None
    name, served, adapters = grpo.asynchronous.transfer, grpo.sampling.sampler == "vllm", has_adapters(model)
    if name == "auto":
        name = ("adapter" if adapters else "disk") if served else "memory"
    if (name == "memory") == served:
        raise ConfigurationError(
            f"grpo.asynchronous.transfer: {name} does not reach grpo.sampling.sampler: {grpo.sampling.sampler}; set auto"
        )
    if name == "adapter" and not adapters:
        raise ConfigurationError(
            "grpo.asynchronous.transfer: adapter needs an adapter in training; set model.lora, or auto"
        )
    stops = stop_ids(tokenizer, CLOSE)
    if not served:
        return _transfer_in_memory(config, model, stops, tokenizer.pad_token_id)
    assert grpo.sampling.server is not None
    endpoint = Endpoint(base_url=grpo.sampling.server, model=config.model.base or "base", concurrency=256)
    sampler = ServedSampler(VllmSampler(endpoint, stops))
    if name == "adapter":
        return AdapterTransfer(sampler, model, config.output / "adapters")
    routes = VllmRoutes(endpoint)
    if name == "disk":
        return DiskTransfer(sampler, routes, model, config.output / "weights")
    return NcclTransfer(sampler, routes, model)


def _transfer_in_memory(config: GrpoConfig, model: Any, stops: list[int], pad: int) -> MemoryTransfer:
    from ratchet.components.models.transformers_policy import LocalSampler

    own = copy.deepcopy(model)
    own = own.merge_and_unload() if has_adapters(own) else own
    # The trainer moves `model` to the GPU later, and not this copy.
    own.requires_grad_(False).eval().to("cuda" if torch.cuda.is_available() else "cpu")
    rows = ROWS_PER_TRAINED_ROW * (config.optimization.micro_batch or config.optimization.batch_size)
    return MemoryTransfer(BatchingSampler(LocalSampler(own, stops, pad), own, rows), own)
