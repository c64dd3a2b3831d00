"""Sampling draws from the right distribution, from a stream of its own per row."""

import pytest

pytestmark = pytest.mark.slow

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from ratchet.components.models import transformers_policy  # noqa: E402
from ratchet.components.models.sampled_policy import SamplingParameters, stream_seed  # noqa: E402
from ratchet.components.models.transformers_policy import SeededSampler, sample_batch  # noqa: E402

LOGITS = torch.tensor([2.0, 1.0, 0.0, -1.0, 0.5])


def draws(temperature=1.0, top_p=1.0, rows=100, steps=40):
    """Some steps of every row: each row has a stream of its own, which goes on from step to step."""
    sampler = SeededSampler(range(rows), temperature, top_p)
    return torch.cat([sampler(torch.zeros(rows, 1), LOGITS.expand(rows, -1)).argmax(-1) for _ in range(steps)])


@pytest.mark.parametrize("temperature", [0.5, 1.0, 1.7])
def test_the_draws_follow_the_softmax(temperature):
    from scipy.stats import chisquare

    counts = torch.bincount(draws(temperature), minlength=5).numpy()
    expected = torch.softmax(LOGITS / temperature, -1).numpy() * counts.sum()
    assert chisquare(counts, expected * counts.sum() / expected.sum()).pvalue > 1e-4


def test_top_p_cuts_the_tail_and_keeps_the_token_that_crosses_it():
    probabilities = torch.softmax(LOGITS, -1)
    assert probabilities[0] < 0.7 < probabilities[0] + probabilities[1]
    assert set(draws(top_p=0.7).tolist()) == {0, 1}


def test_temperature_zero_is_greedy():
    assert set(draws(temperature=0.0, rows=5).tolist()) == {0}


def test_a_row_draws_the_same_whoever_its_neighbours_are():
    steps = 40
    alone, crowd = SeededSampler([7], 1.0), SeededSampler([1, 7, 3], 1.0)
    logits = torch.randn(steps, 5, generator=torch.Generator().manual_seed(0))
    for step in range(steps):
        one = alone(torch.zeros(1, 1), logits[step : step + 1])
        many = crowd(torch.zeros(3, 1), logits[step].expand(3, -1))
        assert torch.equal(one[0], many[1])


def test_logprobs_are_those_of_the_distribution_at_the_temperature():
    sampler = SeededSampler(range(40), 0.5, 0.9)
    drawn = sampler(torch.zeros(40, 1), LOGITS.expand(40, -1)).argmax(-1)
    assert len(set(drawn.tolist())) > 1
    assert torch.allclose(sampler.logprobs[0], torch.log_softmax(LOGITS / 0.5, -1)[drawn])


def test_streams_differ_by_seed_and_by_turn():
    seeds = {stream_seed(seed, turn) for seed in range(50) for turn in range(8)}
    assert len(seeds) == 400
    assert all(0 <= seed < 2**63 for seed in seeds)


@pytest.mark.parametrize("kind", ["Qwen3", "GPT2", "Gemma3", "Qwen3Next"])
def test_equal_prompts_are_computed_once_and_every_row_still_samples_its_own_reply(kind, monkeypatch):
    """Full attention, learned positions, sliding windows, linear attention: each with a cache of its own."""
    small = {"vocab_size": 40, "max_position_embeddings": 64, "pad_token_id": 0, "eos_token_id": 1, "bos_token_id": 1}
    sizes = {
        "GPT2": {"n_embd": 32, "n_layer": 2, "n_head": 2, "n_positions": 64},
        "Gemma3": {"sliding_window": 4, "head_dim": 16, "layer_types": ["sliding_attention", "full_attention"]},
        "Qwen3Next": {"layer_types": ["linear_attention", "full_attention"], "num_experts": 0, "head_dim": 16}
        | {
            "linear_num_key_heads": 2,
            "linear_num_value_heads": 2,
            "linear_key_head_dim": 8,
            "linear_value_head_dim": 8,
        },
    }
    common = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 1}
    config_class = getattr(transformers, f"{kind}TextConfig" if kind == "Gemma3" else f"{kind}Config")
    config = config_class(
        **small, **({} if kind == "GPT2" else common | {"intermediate_size": 32}), **sizes.get(kind, {})
    )
    torch.manual_seed(0)
    model = transformers.AutoModelForCausalLM.from_config(config).eval()
    prompts = [[5, 6, 7, 8, 9, 10, 11]] * 3 + [[12, 13, 14]] + [[15, 16, 17, 18, 19]] * 2
    sampling = SamplingParameters(temperature=1.0, top_p=1.0, max_new_tokens=12)
    calls = []
    forward = model.forward
    monkeypatch.setattr(
        model, "forward", lambda *args, **inputs: calls.append(inputs["input_ids"]) or forward(*args, **inputs)
    )
    shared = sample_batch(model, prompts, range(6), sampling, stops=[1], pad=0)
    assert [tuple(ids.shape) for ids in calls[:2]] == [(3, 6), (6, 1)]
    monkeypatch.setattr(transformers_policy, "_shared_prefill", lambda *_: None)
    plain = sample_batch(model, prompts, range(6), sampling, stops=[1], pad=0)
    assert [reply.ids for reply in shared] == [reply.ids for reply in plain]
    assert len({reply.ids for reply in shared[:3]}) == 3
    for one, other in zip(shared, plain, strict=True):
        assert one.logprobs == pytest.approx(other.logprobs, abs=1e-5)
