"""Each loss against the formula of its paper, written with loops in float64, and its gradient against the formula's."""

import math

import pytest

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.slow

from ratchet.components.core import ConfigurationError  # noqa: E402
from ratchet.components.training.config.method_sections import CorrectionOptions, GrpoOptions  # noqa: E402
from ratchet.components.training.grpo.policy_losses import (  # noqa: E402
    correction_weights,
    loss_weights,
    policy_loss,
    sequence_sums,
)

LENGTHS = [3, 1, 5, 2]
MAX_TOKENS = 8
LOW, HIGH = 0.2, 0.28


@pytest.fixture
def batch():
    """Log-probabilities, the sampler's, token advantages and sequence numbers of eleven tokens, some far off policy."""
    generator = torch.Generator().manual_seed(3)
    count = sum(LENGTHS)
    old = -3 * torch.rand(count, generator=generator, dtype=torch.float64)
    logprobs = old + 0.3 * torch.randn(count, generator=generator, dtype=torch.float64)
    advantages = torch.randn(count, generator=generator, dtype=torch.float64)
    sequences = torch.repeat_interleave(torch.arange(len(LENGTHS)), torch.tensor(LENGTHS))
    return logprobs.requires_grad_(), old, advantages, sequences


def spread_out(values):
    """Split flat values into the lists of their sequences."""
    result, start = [], 0
    for length in LENGTHS:
        result.append(list(values[start : start + length]))
        start += length
    return result


def ours(batch, **options):
    """Return the loss of a whole step, and its gradient."""
    logprobs, old, advantages, sequences = batch
    grpo = GrpoOptions(clip=LOW, **{"clip_high": HIGH} | options)
    weights = torch.tensor(loss_weights(grpo.loss, LENGTHS, MAX_TOKENS), dtype=torch.float64)[sequences]
    loss = (policy_loss(logprobs, old, advantages, sequences, grpo).values * weights).sum()
    (gradient,) = torch.autograd.grad(loss, logprobs)
    return loss.item(), gradient


def assert_same(found, formula, logprobs):
    """Compare value and gradient with those of a formula that is a sum of Python-level terms."""
    loss, gradient = found
    (expected,) = torch.autograd.grad(formula, logprobs)
    assert loss == pytest.approx(formula.item(), rel=1e-12)
    assert torch.allclose(gradient, expected, rtol=1e-10, atol=1e-14)


def clip(value, low, high):
    return torch.minimum(torch.maximum(value, value.new_tensor(low)), value.new_tensor(high))


def surrogates(batch):
    """min(r A, clip(r) A) of each token, by sequence."""
    logprobs, old, advantages, _ = batch
    result = []
    for token in range(len(logprobs)):
        ratio = torch.exp(logprobs[token] - old[token])
        result.append(torch.minimum(ratio * advantages[token], clip(ratio, 1 - LOW, 1 + HIGH) * advantages[token]))
    return spread_out(result)


def test_grpo_is_the_mean_over_sequences_of_the_mean_over_their_tokens(batch):
    """DeepSeekMath, arXiv:2402.03300, eq. 3."""
    formula = -sum(sum(tokens) / len(tokens) for tokens in surrogates(batch)) / len(LENGTHS)
    assert_same(ours(batch, loss="grpo"), formula, batch[0])


@pytest.mark.parametrize("loss", ["dapo", "bnpo"])
def test_dapo_is_the_mean_over_all_tokens_with_its_own_upper_clip(batch, loss):
    """DAPO, arXiv:2503.14476, eq. 8 and 10."""
    formula = -sum(sum(tokens) for tokens in surrogates(batch)) / sum(LENGTHS)
    assert_same(ours(batch, loss=loss), formula, batch[0])


def test_dr_grpo_divides_by_a_constant_length(batch):
    """Dr. GRPO, arXiv:2503.20783: no 1/|o| in the loss (and no deviation in the advantage: scale_rewards none)."""
    formula = -sum(sum(tokens) for tokens in surrogates(batch)) / (len(LENGTHS) * MAX_TOKENS)
    assert_same(ours(batch, loss="dr_grpo"), formula, batch[0])


def test_cispo_keeps_the_gradient_of_every_token_and_caps_its_weight(batch):
    """MiniMax-M1, arXiv:2506.13585, eq. 4 and 5, without a lower bound, as in the paper's experiments."""
    logprobs, old, advantages, _ = batch
    cap = 1.5
    formula = 0.0
    for token in range(len(logprobs)):
        weight = min(math.exp(logprobs[token].item() - old[token].item()), cap)
        formula = formula - weight * advantages[token] * logprobs[token] / sum(LENGTHS)
    found = ours(batch, loss="cispo", clip_high=cap)
    assert_same(found, formula, logprobs)
    assert (found[1] != 0).all()


def test_gspo_clips_the_geometric_mean_of_the_ratios_of_a_sequence(batch):
    """GSPO, arXiv:2507.18071, eq. 5 and 7: with one advantage per sequence, values and gradients are those of GSPO."""
    logprobs, old, advantages, sequences = batch
    advantages = (sequence_sums(advantages, sequences) / 3).detach()
    formula = 0.0
    new, behaviour = spread_out(logprobs), spread_out(old)
    for number, length in enumerate(LENGTHS):
        ratio = torch.exp(sum(a - b for a, b in zip(new[number], behaviour[number], strict=True)) / length)
        advantage = spread_out(advantages)[number][0]
        formula = formula - torch.minimum(ratio * advantage, clip(ratio, 1 - LOW, 1 + HIGH) * advantage) / len(LENGTHS)
    assert_same(ours((logprobs, old, advantages, sequences), loss="grpo", importance="sequence"), formula, logprobs)


def test_gspo_with_token_advantages_is_gspo_token(batch):
    """GSPO, arXiv:2507.18071, eq. 13 and 14: s_t = sg[s] p / sg[p]."""
    logprobs, old, advantages, _ = batch
    formula = 0.0
    new, behaviour, parts = spread_out(logprobs), spread_out(old), spread_out(advantages)
    for number, length in enumerate(LENGTHS):
        mean = math.exp(sum((a - b).item() for a, b in zip(new[number], behaviour[number], strict=True)) / length)
        for logprob, advantage in zip(new[number], parts[number], strict=True):
            ratio = mean * torch.exp(logprob) / torch.exp(logprob).detach()
            term = torch.minimum(ratio * advantage, clip(ratio, 1 - LOW, 1 + HIGH) * advantage)
            formula = formula - term / length / len(LENGTHS)
    assert_same(ours(batch, loss="grpo", importance="sequence"), formula, logprobs)


def weights_by_hand(batch, mode, low, high):
    logprobs, old, _, _ = batch
    gaps = spread_out((logprobs - old).tolist())
    result = []
    for tokens in gaps:
        for gap in tokens:
            weight = math.exp(gap if mode.startswith("token") else sum(tokens))
            if mode.endswith("truncate"):
                weight = min(max(weight, -math.inf if low is None else low), math.inf if high is None else high)
            elif (low is not None and weight < low) or (high is not None and weight > high):
                weight = 0.0
            result.append(weight)
    return result


MODES = ["token_truncate", "token_mask", "sequence_truncate", "sequence_mask"]
BOUNDS = [(None, 1.4), (0.6, 1.4), (0.6, None)]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(("low", "high"), BOUNDS)
def test_importance_weights_are_truncated_or_masked_per_token_or_sequence(batch, mode, low, high):
    """TIS: min(p / q, C); masked importance sampling: p / q where it lies within the bounds, else 0."""
    logprobs, old, _, sequences = batch
    found = correction_weights(logprobs - old, sequences, mode, low, high)
    by_hand = weights_by_hand(batch, mode, low, high)
    assert found.tolist() == pytest.approx(by_hand, rel=1e-12) and not found.requires_grad
    assert len(set(by_hand)) > 2, "the bounds of this test must touch some weights and not others"


@pytest.mark.parametrize("mode", MODES)
def test_a_correction_is_the_decoupled_objective_at_one_update(batch, mode):
    """AReaL, arXiv:2505.24298, eq. 5, with the current policy as the proximal one: w sg[1/p] p A, unclipped at ratio 1."""
    logprobs, _, advantages, _ = batch
    weights = weights_by_hand(batch, mode, 0.6, 1.4)
    formula = 0.0
    for token, weight in enumerate(weights):
        ratio = torch.exp(logprobs[token]) / torch.exp(logprobs[token]).detach()
        formula = formula - weight * ratio * advantages[token] / sum(LENGTHS)
    correction = CorrectionOptions(mode=mode, clip_min=0.6, clip_max=1.4)
    assert_same(ours(batch, loss="dapo", correction=correction), formula, logprobs)


def test_truncation_per_token_has_the_gradient_of_cispo(batch):
    """Two names of one estimator where a batch is trained once: sg(min(p / q, C)) A grad log p."""
    corrected = ours(batch, loss="dapo", correction=CorrectionOptions(mode="token_truncate", clip_max=1.5))
    assert torch.allclose(corrected[1], ours(batch, loss="cispo", clip_high=1.5)[1], rtol=1e-12)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(("low", "high"), BOUNDS)
def test_weights_are_those_of_trl_for_the_same_options(batch, mode, low, high):
    """TRL computes them inside `_generate_and_score_completions`; this is the arithmetic of that block on padded rows."""
    logprobs, old, _, sequences = batch
    difference = torch.zeros(len(LENGTHS), max(LENGTHS), dtype=torch.float64)
    for number, row in enumerate(spread_out((logprobs - old).detach())):
        difference[number, : len(row)] = torch.stack(row)
    ratio = torch.exp(difference.sum(-1, keepdim=True) if mode.startswith("sequence") else difference)
    if mode.endswith("truncate"):
        ratio = torch.clamp(ratio, min=low, max=high)
    else:
        floor, ceiling = -math.inf if low is None else low, math.inf if high is None else high
        ratio = ratio.masked_fill((ratio < floor) | (ratio > ceiling), value=0.0)
    rows = ratio.expand_as(difference)
    theirs = torch.cat([rows[number, :length] for number, length in enumerate(LENGTHS)])
    assert torch.equal(correction_weights(logprobs - old, sequences, mode, low, high), theirs)


@pytest.mark.parametrize("importance", ["token", "sequence"])
@pytest.mark.parametrize("loss", ["grpo", "dapo", "cispo"])
def test_gradients_are_the_derivatives_of_the_surrogate(batch, loss, importance):
    """Numerically, where the loss is a function of its value: not for stopped gradients, so at the old policy."""
    _, old, advantages, sequences = batch
    advantages = (sequence_sums(advantages, sequences) / 3).detach()
    options = GrpoOptions(loss=loss, importance=importance)
    logprobs = old.clone().requires_grad_()
    loss_terms = policy_loss(logprobs, old, advantages, sequences, options)
    (gradient,) = torch.autograd.grad(loss_terms.values.sum(), logprobs)
    # On policy every method is REINFORCE: the gradient of a token is -A.
    assert torch.allclose(gradient, -advantages, rtol=1e-12)


def test_an_empty_batch_has_an_empty_loss():
    """A micro-batch may consist of attempts that the infrastructure ended."""
    empty = torch.zeros(0, dtype=torch.float64, requires_grad=True)
    terms = policy_loss(
        empty, empty.detach(), empty.detach(), torch.zeros(0, dtype=torch.long), GrpoOptions(importance="sequence")
    )
    assert terms.values.sum().item() == 0.0
    assert loss_weights("grpo", [0, 2], 8) == [0.5, 0.25] and loss_weights("dapo", [0, 0], 8) == [1.0, 1.0]


@pytest.mark.parametrize(
    ("values", "why"),
    [
        ({"clip_min": 4.0}, "clip_min 4.0 is above clip_max 3.0"),
        ({"clip_max": None}, "needs clip_max or clip_min"),
        ({"mode": "sequence"}, "sequence_truncate"),
    ],
)
def test_bounds_that_make_no_sense_are_one_line(values, why):
    with pytest.raises((ConfigurationError, ValueError), match=why):
        CorrectionOptions.load(values)
