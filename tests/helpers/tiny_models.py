"""Tiny models and an exact output layer, for tests that compare losses and gradients with formulas."""

import copy

import torch

VOCABULARY = 48


def tiny_model(seed=0, dtype=torch.float64, **changes):
    """A Qwen3 of one layer over `VOCABULARY` tokens."""
    from transformers import Qwen3Config, Qwen3ForCausalLM

    torch.manual_seed(seed)
    shape = {
        "vocab_size": VOCABULARY,
        "hidden_size": 16,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "head_dim": 8,
        "intermediate_size": 32,
        "max_position_embeddings": 128,
        "initializer_range": 0.3,
        "tie_word_embeddings": True,
        "pad_token_id": 0,
        "bos_token_id": None,
        "eos_token_id": 1,
    }
    return Qwen3ForCausalLM(Qwen3Config(**shape | changes)).to(dtype)


def tiny_tokenizer():
    """A tokenizer of `VOCABULARY` words, for trainers that want one: the rows of these tests are ids already."""
    from tokenizers import Tokenizer, models
    from transformers import PreTrainedTokenizerFast

    words = {f"w{index}": index for index in range(VOCABULARY)}
    return PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer(models.WordLevel(words, unk_token="w2")), pad_token="w0", eos_token="w1"
    )


def gradients(model):
    """Each parameter's gradient, by name."""
    return {name: each.grad.clone() for name, each in model.named_parameters() if each.grad is not None}


def same_model(model):
    """A copy that is trained apart."""
    return copy.deepcopy(model)


def log_probabilities(model, input_ids, attention_mask=None):
    """Log-probabilities (B, T - 1) of each next token, by the model's own logits."""
    logits = model(input_ids=input_ids, attention_mask=attention_mask, use_cache=False).logits[:, :-1]
    return torch.log_softmax(logits, -1).gather(-1, input_ids[:, 1:, None])[..., 0]


class ExactHead:
    """In place of TRL's fused output layer, which sums in single precision: the same figures in that of the model."""

    @staticmethod
    def apply(hidden, weight, bias, targets, temperature, chunk_size, softcap=None, scale=1.0, outputs=()):
        assert bias is None and softcap is None
        logits = hidden @ weight.t() * scale / temperature
        log_all = torch.log_softmax(logits, -1)
        entropy = -(log_all.exp() * log_all).sum(-1)
        found = {"entropy": entropy, "mean_logits": logits.mean(-1), "is_top1": logits.argmax(-1) == targets}
        found["log_sum_sq_probs"] = torch.logsumexp(2 * log_all, -1)
        optional = [
            found[name] if name in outputs else None
            for name in ("entropy", "log_sum_sq_probs", "mean_logits", "is_top1")
        ]
        return log_all.gather(-1, targets[:, None])[:, 0], *optional
