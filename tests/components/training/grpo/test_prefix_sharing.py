"""With shared prefixes a step has the loss and the gradients of the padded batch, whatever is trained how."""

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("trl")
pytestmark = pytest.mark.slow

from grpo_batches import REWARDS, our_trainer, samples  # noqa: E402
from hypothesis import HealthCheck, Phase, given, settings  # noqa: E402
from hypothesis import strategies as st  # noqa: E402
from msgspec.structs import replace  # noqa: E402
from tiny_models import ExactHead, gradients, tiny_model, tiny_tokenizer  # noqa: E402

from ratchet.components.core import ConfigurationError  # noqa: E402
from ratchet.components.training.config.job_config import load_job  # noqa: E402
from ratchet.components.training.credit.credit_options import CreditOptions  # noqa: E402
from ratchet.components.training.grpo.prefix_sharing import SharedRows, group_rows, shared_log_probabilities  # noqa: E402
from ratchet.components.training.grpo.train_grpo import shares_prefixes  # noqa: E402

LOSSES = ("grpo", "dr_grpo", "dapo", "bnpo", "cispo")
STEP_SCORES = [[1.0, 0.1], [0.5], [0.2, 0.9, 0.4], [0.3], [0.6, 0.1], [0.9, 0.8], [0.5], [0.2, 0.4]]
SHARED_TURN = [31, 32, 33, 1]


@pytest.fixture(autouse=True)
def exact(monkeypatch):
    monkeypatch.setattr("trl.trainer.utils._ChunkedLogProbFunction", ExactHead)


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tiny")
    tiny_model().save_pretrained(folder)
    return folder


def batch_with_shared_turns(rewards=REWARDS):
    """Two groups of one prompt each; four attempts also share their first turn. One is of another policy, one was lost."""
    result = []
    for place, item in enumerate(samples(rewards)):
        tokens = item.tokens
        tokens = replace(tokens, prompt_ids=tokens.prompt_ids + ([40, 41] if place >= 4 else [42]))
        if place % 2:
            tokens = replace(
                tokens,
                completion_ids=SHARED_TURN + tokens.completion_ids,
                logprobs=[-1.0] * 4 + tokens.logprobs,
                turns=[0] * 4 + tokens.turns,
            )
        breakdown = replace(item.breakdown, turns=STEP_SCORES[place])
        result.append(replace(item, tokens=tokens, breakdown=breakdown, staleness=1 if place == 5 else None))
    return result


# transformers normalises in single precision whatever the weights are.
def first_step(checkpoint, folder, shared, batch, **changes):
    """The loss of one step by micro-batch, its gradients, and the trainer."""
    from transformers import AutoModelForCausalLM, TrainerCallback

    model = AutoModelForCausalLM.from_pretrained(checkpoint, dtype=torch.float64)
    trainer = our_trainer(model, tiny_tokenizer(), folder, batch, share_prefixes=shared, max_grad_norm=0, **changes)
    losses, kept = [], {}
    plain_loss = trainer._compute_loss
    trainer._compute_loss = lambda *inputs: losses.append(plain_loss(*inputs)) or losses[-1]

    class KeepGradients(TrainerCallback):
        def on_pre_optimizer_step(self, *_, **__):
            kept.update(gradients(trainer.model))

    trainer.add_callback(KeepGradients())
    trainer.train()
    return sum(loss.item() for loss in losses), kept, trainer


@settings(
    max_examples=6,
    deadline=None,
    derandomize=True,
    phases=[Phase.generate],  # a smaller example would take minutes
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(
    loss=st.sampled_from(LOSSES),
    importance=st.sampled_from(["token", "sequence"]),
    beta=st.sampled_from([0.0, 0.3]),
    scale=st.sampled_from(["group", "batch", "none"]),
    credit=st.sampled_from(
        [{}, {"turns": "step_level"}, {"token_weights": ["entropy_topk"]}, {"turns": "sum_decomposition"}]
    ),
    checkpointing=st.booleans(),
    rewards=st.lists(st.sampled_from([None, 0.0, 0.25, 1.0]), min_size=8, max_size=8).filter(
        lambda values: len({value for value in values[:4] if value is not None}) > 1
    ),
)
def test_losses_and_gradients_of_a_step_are_those_of_the_padded_batch(
    checkpoint, tmp_path, loss, importance, beta, scale, credit, checkpointing, rewards
):
    changes = {
        "loss_type": loss,
        "importance_sampling_level": importance,
        "beta": beta,
        "scale_rewards": scale,
        "max_steps": 1,
        "max_completion_length": 20,
        "credit": CreditOptions.load(credit) if credit else None,
        "gradient_checkpointing": checkpointing,
    }
    results = [
        first_step(checkpoint, tmp_path, shared, batch_with_shared_turns(rewards), **changes)
        for shared in (False, True)
    ]
    (plain_loss, plain, _), (shared_loss, shared, trainer) = results
    assert shared_loss == pytest.approx(plain_loss, abs=2e-6)
    assert all(torch.allclose(shared[name], gradient, atol=2e-6) for name, gradient in plain.items())
    assert (
        next(entry for entry in trainer.state.log_history if "prefix_sharing/gain" in entry)["prefix_sharing/gain"]
        > 1.3
    )


@pytest.mark.parametrize("loss", ["grpo", "dapo"])
def test_an_accumulated_step_has_the_same_gradient_and_its_groups_stand_together(checkpoint, tmp_path, loss):
    changes = {"per_device_train_batch_size": 4, "gradient_accumulation_steps": 2, "max_steps": 1, "loss_type": loss}
    changes["max_completion_length"] = 20
    results = [
        first_step(checkpoint, tmp_path, shared, batch_with_shared_turns(), **changes) for shared in (False, True)
    ]
    (_, plain, _), (_, shared, trainer) = results
    assert all(torch.allclose(shared[name], gradient, atol=2e-6) for name, gradient in plain.items())
    for micro_batch in trainer._buffered_inputs:
        assert len({tuple(row) for row in micro_batch["prompt_ids"].tolist()}) == 1


def test_later_updates_train_the_same_weights_as_the_padded_batch(checkpoint, tmp_path):
    changes = {"num_iterations": 2, "max_steps": 4, "beta": 0.1, "max_completion_length": 20}
    trained = [
        first_step(checkpoint, tmp_path, shared, batch_with_shared_turns(), **changes)[2].model
        for shared in (False, True)
    ]
    start = dict(tiny_model().named_parameters())
    for (name, plain), shared in zip(trained[0].named_parameters(), trained[1].parameters(), strict=True):
        assert torch.allclose(plain, shared, atol=1e-6)
        assert not torch.equal(plain, start[name])


def test_rows_are_regrouped_within_a_step_and_none_is_lost():
    rows = torch.tensor([[5, 1], [6, 1], [5, 2], [6, 2]])
    ones = torch.ones_like(rows)
    total = torch.tensor(4)
    whole = {"prompt_ids": rows, "prompt_mask": ones, "completion_ids": rows, "completion_mask": ones}
    batches = [{name: value[part] for name, value in whole.items()} for part in (slice(0, 2), slice(2, 4))]
    first, second = group_rows([batch | {"total": total, "absent": None} for batch in batches])
    assert first["prompt_ids"].tolist() == [[5, 1], [5, 2]] and second["completion_ids"].tolist() == [[6, 1], [6, 2]]
    assert first["total"] is total and second["absent"] is None


def test_padding_has_the_log_probability_zero_and_no_gradient():
    from trl.trainer.utils import add_fused_lm_head

    from ratchet.components.training import tree_attention

    model = tiny_model(attn_implementation=tree_attention.register())
    add_fused_lm_head(model, outputs=("log_probs", "entropy"))
    ids = torch.tensor([[0, 7, 8, 9, 11, 12], [7, 8, 9, 13, 0, 0]])
    mask = torch.tensor([[0, 1, 1, 1, 1, 1], [1, 1, 1, 1, 0, 0]])
    rows = SharedRows.pack(ids, mask, 3)
    logprobs, entropies = shared_log_probabilities(model, rows)
    assert (logprobs[1, 1:] == 0).all() and (entropies[1, 1:] == 0).all() and (logprobs[0] < 0).all()
    assert rows.gain == pytest.approx(9 / 7)  # the branch begins one token early: 7 8 | 9 11 12 | 9 13
    logprobs[1, 1:].sum().backward()
    assert all((gradient == 0).all() for gradient in gradients(model).values())


@pytest.mark.parametrize(
    ("changes", "asked", "preset", "expected"),
    [
        ({}, None, "agent", True),
        ({}, None, "plain", False),
        ({}, True, "plain", True),
        ({}, False, "agent", False),
        ({"attention_dropout": 0.1}, None, "agent", False),
    ],
)
def test_prefixes_are_shared_where_the_model_permits_unless_training_is_plain(
    tmp_path, changes, asked, preset, expected
):
    grpo = {} if asked is None else {"share_prefixes": asked}
    config = load_job({"method": "grpo", "output": str(tmp_path), "preset": preset, "grpo": grpo})
    assert shares_prefixes(config, tiny_model(**changes)) is expected


def test_a_model_that_cannot_share_is_refused_where_sharing_is_asked_for(tmp_path):
    config = load_job({"method": "grpo", "output": str(tmp_path), "grpo": {"share_prefixes": True}})
    with pytest.raises(ConfigurationError, match="attention_dropout"):
        shares_prefixes(config, tiny_model(attention_dropout=0.1))
