"""A tree row computes each of its samples as if that sample stood alone: outputs and gradients."""

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("trl")
pytestmark = pytest.mark.slow

from ratchet.components.training import tree_attention  # noqa: E402

SHAPE = {
    "vocab_size": 40,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": 128,
}


def make_model(kind, attention, dtype=torch.float32, **changes):
    import transformers
    from transformers import AutoModelForCausalLM

    torch.manual_seed(0)
    config = getattr(transformers, f"{kind}Config")(**{**SHAPE, "num_key_value_heads": 2, **changes})
    model = AutoModelForCausalLM.from_config(config, attn_implementation=attention).to(dtype)
    for parameter in model.parameters():  # the usual start is so small that attention is almost uniform
        torch.nn.init.normal_(parameter, std=0.3)
    return model


def make_samples(seed=0):
    """Two groups: attempts share a prompt, some of them also their first turns; one sample begins another."""
    generator = torch.Generator().manual_seed(seed)

    def draw(length):
        return torch.randint(0, SHAPE["vocab_size"], (length,), generator=generator).tolist()

    system = draw(7)
    result = []
    for group, (prompt, turn) in enumerate([(draw(20), draw(11)), (draw(5), draw(1))]):
        tails = [draw(9), draw(13), turn, turn + draw(8), turn + draw(2) + draw(6), turn + draw(1)]
        result += [(group, system + prompt + tail) for tail in tails]
    return result


def pack(samples, device="cpu"):
    from trl.experimental.async_grpo.packing import TreeRow

    row = TreeRow()
    for group, ids in samples:
        mask = torch.ones(len(ids))
        row.add(
            {
                "input_ids": torch.tensor(ids),
                "completion_mask": mask,
                "old_log_probs": torch.zeros(len(ids)),
                "advantage": 1.0,
                "group_id": group,
            }
        )
    return {name: tensor.to(device) for name, tensor in row.pack().items()}


def tree_log_probabilities(model, samples, device="cpu"):
    """The log-probability of each token of each sample but its first, end to end."""
    packed = pack(samples, device)
    longest, path = packed["tree_max_seqlens"].tolist()
    logits = model(
        input_ids=packed["input_ids"][None],
        position_ids=packed["position_ids"][None],
        use_cache=False,
        tree_max_seqlen_q=longest,
        tree_max_seqlen_k=path,
        **{name: packed[name] for name in ("tree_kv_index", "tree_cu_seqlens_q", "tree_cu_seqlens_k")},
    ).logits[0]
    place = packed["token_index"]
    return logits.log_softmax(-1)[place, packed["shift_labels"][place]]


def plain_log_probabilities(model, samples, device="cpu"):
    result = []
    for _, ids in samples:
        row = torch.tensor(ids, device=device)[None]
        logits = model(input_ids=row, attention_mask=torch.ones_like(row), use_cache=False).logits[0, :-1]
        result.append(logits.log_softmax(-1).gather(-1, row[0, 1:, None])[:, 0])
    return torch.cat(result)


def loss_and_gradients(model, log_probabilities):
    weights = torch.linspace(-1, 1, len(log_probabilities), device=log_probabilities.device)
    loss = (weights * log_probabilities).mean()
    loss.backward()
    return {name: parameter.grad.clone() for name, parameter in model.named_parameters()}


MODELS = {
    "grouped-query": ("Qwen2", {}),
    "one key head per query head": ("Llama", {"num_key_value_heads": 4}),
    "sliding window": ("Mistral", {"sliding_window": 9}),
    "window longer than the samples": ("Mistral", {"sliding_window": 120}),
    "window and full layers, soft-capped": ("Gemma2", {"sliding_window": 6, "head_dim": 8}),
}


@pytest.mark.parametrize("name", MODELS)
def test_outputs_and_gradients_of_a_tree_row_are_those_of_plain_attention_sample_by_sample(name):
    kind, changes = MODELS[name]
    samples = make_samples()
    plain = make_model(kind, "eager", **changes)
    tree = make_model(kind, tree_attention.register(), **changes)
    expected, computed = plain_log_probabilities(plain, samples), tree_log_probabilities(tree, samples)
    assert torch.allclose(computed, expected, atol=1e-5)
    gradients = loss_and_gradients(plain, expected)
    for parameter, gradient in loss_and_gradients(tree, computed).items():
        assert torch.allclose(gradient, gradients[parameter], atol=1e-5), parameter


@pytest.mark.parametrize("name", ["grouped-query", "sliding window"])
def test_recomputation_in_gradient_checkpointing_changes_no_gradient(name):
    kind, changes = MODELS[name]
    gradients = []
    for checkpointing in (False, True):
        model = make_model(kind, tree_attention.register(), **changes)
        model.train()
        if checkpointing:
            model.gradient_checkpointing_enable()
        gradients.append(loss_and_gradients(model, tree_log_probabilities(model, make_samples())))
    assert all(torch.equal(gradients[0][parameter], gradients[1][parameter]) for parameter in gradients[0])


def test_bfloat16_differs_from_float32_by_its_rounding_alone():
    samples = make_samples()
    exact = make_model("Qwen2", tree_attention.register())
    rounded = make_model("Qwen2", tree_attention.register(), torch.bfloat16)
    plain = make_model("Qwen2", "eager", torch.bfloat16)
    expected = tree_log_probabilities(exact, samples)
    error = (tree_log_probabilities(rounded, samples).float() - expected).abs().mean()
    usual = (plain_log_probabilities(plain, samples).float() - expected).abs().mean()
    assert error < 2 * usual


def test_a_plain_padded_batch_still_runs_as_without_the_tree():
    rows = torch.randint(0, 40, (3, 30), generator=torch.Generator().manual_seed(1))
    mask = torch.ones_like(rows)
    mask[0, :12] = 0
    outputs = []
    for attention in ("sdpa", tree_attention.register()):
        model = make_model("Mistral", attention, sliding_window=9)
        outputs.append(model(input_ids=rows, attention_mask=mask).logits)
    assert torch.equal(outputs[0], outputs[1])


def test_a_window_without_a_mask_is_refused_outside_a_tree():
    model = make_model("Mistral", tree_attention.register(), sliding_window=9)
    with pytest.raises(ValueError, match="attention mask"):
        model(input_ids=torch.zeros(1, 30, dtype=torch.long))


@pytest.mark.parametrize(
    ("kind", "changes", "reason"),
    [
        ("Qwen2", {}, None),
        ("Qwen2", {"attention_dropout": 0.1}, "drops"),
        ("GptOss", {"num_local_experts": 2, "num_experts_per_tok": 1, "head_dim": 8}, "sinks"),
        ("Lfm2", {"layer_types": ["conv", "full_attention"]}, "conv"),
    ],
)
def test_models_that_would_mix_samples_are_recognised(kind, changes, reason):
    reason_given = tree_attention.unsupported_reason(make_model(kind, "eager", **changes))
    assert reason_given is None if reason is None else reason in reason_given


@pytest.mark.gpu
@pytest.mark.parametrize(("kind", "changes"), list(MODELS.values())[:4])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_gpu_computes_what_a_cpu_computes(kind, changes, dtype):
    if not torch.cuda.is_available():
        pytest.skip("no GPU")
    samples = make_samples()
    expected = plain_log_probabilities(make_model(kind, "eager", **changes), samples)
    usual = plain_log_probabilities(make_model(kind, "eager", dtype, **changes).cuda(), samples, "cuda").float().cpu()
    model = make_model(kind, tree_attention.register(), dtype, **changes).cuda()
    computed = tree_log_probabilities(model, samples, "cuda")
    loss_and_gradients(model, computed.float())
    assert (computed.float().cpu() - expected).abs().mean() < 2 * (usual - expected).abs().mean() + 1e-5
