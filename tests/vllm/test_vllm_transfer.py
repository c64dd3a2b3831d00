"""Weights of a training step reach a running vLLM server from disk: it then samples as the new model does."""

from contextlib import closing


def test_a_running_server_takes_the_weights_of_another_model_from_disk(checkpoint, tmp_path, monkeypatch):
    from small_model import make_checkpoint

    from ratchet.components.models.endpoint import Endpoint
    from ratchet.components.models.model_server import ModelServer
    from ratchet.components.models.sampled_policy import SamplingParameters
    from ratchet.components.models.transformers_policy import LocalSampler, load_model
    from ratchet.components.models.vllm_policy import VllmSampler
    from ratchet.components.training.grpo.versioned_samplers import ServedSampler
    from ratchet.components.training.grpo.weight_transfers import DiskTransfer, VllmRoutes

    monkeypatch.setenv("RATCHET_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("VLLM_SERVER_DEV_MODE", "1")
    other, tokenizer = load_model(make_checkpoint(tmp_path / "other", seed=5, context=2048), "cpu")
    prompts, greedy = [[5, 6, 7], [8, 9, 10, 11]], SamplingParameters(temperature=0.0, max_new_tokens=12)
    stops = [tokenizer.eos_token_id]
    with ModelServer(checkpoint, log=tmp_path / "vllm.log") as server:
        endpoint = Endpoint(base_url=server.base_url, model=server.served.name)
        sampler = ServedSampler(VllmSampler(endpoint, stops))
        before = sampler.sample(prompts, [0, 1], greedy)
        transfer = DiskTransfer(sampler, VllmRoutes(endpoint), other, tmp_path / "weights")
        with closing(sampler):
            transfer.init_weight_transfer()
            transfer.pause()
            transfer.send_weights(iter(other.named_parameters()))
            transfer.resume()
            sampler.publish(1)
            after = sampler.sample(prompts, [0, 1], greedy)
            transfer.destroy()
    expected = LocalSampler(other, stops, tokenizer.pad_token_id).sample(prompts, [0, 1], greedy)
    assert [reply.ids for reply in after] == [reply.ids for reply in expected] != [reply.ids for reply in before]
    assert {reply.version for reply in after} == {1}
