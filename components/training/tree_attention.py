"""Attention over a packed prefix tree, by PyTorch alone.

`PrefixTree` folds samples with common prefixes into one row in which a shared token occurs once. Each segment of the
row attends to the keys on its path from the root, so every sample sees exactly its own tokens. TRL's `tree_attention`
needs a FlashAttention 3 kernel from the hub; this one takes the same arguments and runs wherever PyTorch does, forwards
and backwards: by `varlen_attn` in half precision on a GPU, else by fused attention segment by segment.
"""

import functools
import inspect
from collections.abc import Iterable, Mapping
from typing import Any

import torch
import torch.nn.functional as F

NAME = "torch_tree"  # transformers reads "sdpa" or "flash" in a name as a request for that implementation
KEPT_MASK_SIZE = 2**24
"""Numbers in the masks of a row that are kept from layer to layer; larger masks are built in each."""


def register() -> str:
    """Register the attention and its mask with transformers, and return its name for `attn_implementation`.

    A model with this name also takes plain padded batches: a forward without tree arguments runs transformers' `sdpa`.
    It must pass an attention mask; one without a mask is taken for a tree row, and no mask is built.
    """
    from transformers import AttentionInterface, AttentionMaskInterface

    AttentionInterface.register(NAME, tree_attention)
    AttentionMaskInterface.register(NAME, _padding_mask)
    return NAME


def unsupported_reason(model: Any) -> str | None:
    """Return why samples of `model` cannot share a tree row, in a few words; None if they can."""
    config = model.config.get_text_config()
    other = sorted(set(getattr(config, "layer_types", None) or []) - {"full_attention", "sliding_attention"})
    base = model.get_base_model() if hasattr(model, "get_base_model") else model
    checks = [
        (other, f"it has {', '.join(other)} layers, which would scan across samples"),
        (any(name.endswith(".sinks") for name, _ in model.named_parameters()), "it uses attention sinks"),
        (not getattr(base, "_supports_attention_backend", False), "its attention cannot be replaced"),
        (getattr(config, "attention_dropout", 0.0), "it drops attention weights in training (attention_dropout)"),
    ]
    return next((reason for wrong, reason in checks if wrong), None)


def forward_row(model: Any, row: Mapping[str, Any], **options: Any) -> Any:
    """Return the outputs of `model`, with this attention and TRL's fused output layer, for a row of `PrefixTree.pack`
    without padding: `log_probs` and `entropy` are (1, N). `tree_max_seqlens` stays on the host. `options`: further
    arguments of the model.
    """
    longest_segment, longest_path = map(int, row["tree_max_seqlens"])
    return model(
        **{name: row[name].unsqueeze(0) for name in ("input_ids", "position_ids", "shift_labels")},
        **{name: row[name] for name in ("tree_kv_index", "tree_cu_seqlens_q", "tree_cu_seqlens_k")},
        tree_max_seqlen_q=longest_segment,
        tree_max_seqlen_k=longest_path,
        fused_lm_head=True,
        **options,
    )


def tree_attention(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    *,
    tree_kv_index: torch.Tensor | None = None,
    tree_cu_seqlens_q: torch.Tensor | None = None,
    tree_cu_seqlens_k: torch.Tensor | None = None,
    tree_max_seqlen_q: int = 0,
    tree_max_seqlen_k: int = 0,
    scaling: float | None = None,
    sliding_window: int | None = None,
    softcap: float | None = None,
    **kwargs: Any,
) -> tuple[torch.Tensor, None]:
    """Return the attention output (1, N, heads, D) of a tree row of N tokens and S segments, and no weights.

    `query`: (1, heads, N, D); `key` and `value`: (1, key heads, N, D). `tree_kv_index` (K,): positions in the row of the
    keys of all paths, end to end; a path ends with the segment itself. `tree_cu_seqlens_q`, `tree_cu_seqlens_k` (S + 1,):
    bounds of segments in the row and of paths in `tree_kv_index`. `sliding_window`: number of keys up to and including
    its own that a token sees. `softcap`: bound c of the scores, c * tanh(score / c).
    """
    from transformers.integrations.flash_attention import get_target_dtype
    from transformers.integrations.sdpa_attention import sdpa_attention_forward

    if tree_kv_index is None:
        if attention_mask is None and sliding_window and key.shape[2] > sliding_window:
            raise ValueError("tree attention builds no sliding window without an attention mask; pass one")
        plain: tuple[torch.Tensor, None] = sdpa_attention_forward(
            module, query, key, value, attention_mask, scaling=scaling, softcap=softcap, **kwargs
        )
        return plain
    assert tree_cu_seqlens_q is not None and tree_cu_seqlens_k is not None
    dtype = get_target_dtype(query, module) or query.dtype
    query, key, value = (item.to(dtype) for item in (query, key, value))
    key, value = (item.index_select(2, tree_kv_index) for item in (key, value))
    if not softcap and _has_varlen(query):
        from torch.nn.attention.varlen import varlen_attn

        grouped = query.shape[1] != key.shape[1] and "enable_gqa" in _varlen_parameters()
        output = varlen_attn(
            *(item[0].transpose(0, 1) for item in (query, key, value)),
            tree_cu_seqlens_q,
            tree_cu_seqlens_k,
            tree_max_seqlen_q,
            tree_max_seqlen_k,
            scale=scaling,
            window_size=(sliding_window - 1 if sliding_window else -1, 0),
            **({"enable_gqa": True} if grouped else {}),  # PyTorch 2.11 takes fewer key heads without being asked
        )
        return output.unsqueeze(0), None
    lengths, paths = tree_cu_seqlens_q.diff().tolist(), tree_cu_seqlens_k.diff().tolist()
    segments = zip(query.split(lengths, dim=2), key.split(paths, dim=2), value.split(paths, dim=2), strict=True)
    masks = _masks(tree_kv_index, lengths, paths, query.shape[1] // key.shape[1], sliding_window, dtype)
    parts = [_attend(*segment, mask, scaling, softcap) for segment, mask in zip(segments, masks, strict=True)]
    return torch.cat(parts, dim=2).transpose(1, 2).contiguous(), None


def _padding_mask(*, attention_mask: torch.Tensor | None = None, **kwargs: Any) -> torch.Tensor | None:
    from transformers.masking_utils import sdpa_mask

    return None if attention_mask is None else sdpa_mask(attention_mask=attention_mask, **kwargs)


def _has_varlen(query: torch.Tensor) -> bool:
    """Return whether PyTorch's own FlashAttention takes these queries: half precision on compute capability 8 or more."""
    half = query.dtype in (torch.float16, torch.bfloat16) and query.shape[-1] <= 256
    if not (half and query.is_cuda and torch.version.hip is None and "window_size" in _varlen_parameters()):
        return False
    return bool(torch.cuda.get_device_capability(query.device)[0] >= 8)


@functools.cache
def _varlen_parameters() -> frozenset[str]:
    """Return the parameters of PyTorch's `varlen_attn`, which grew from version to version; none before 2.10."""
    try:
        from torch.nn.attention.varlen import varlen_attn
    except ImportError:
        return frozenset()
    return frozenset(inspect.signature(varlen_attn).parameters)


def _masks(
    index: torch.Tensor, lengths: list[int], paths: list[int], groups: int, window: int | None, dtype: torch.dtype
) -> Iterable[torch.Tensor]:
    """Return the additive mask (groups * length, path) of each segment: causal, for the last tokens of its path."""
    shapes = zip(lengths, paths, strict=True)
    build = (_mask(length, path, window, dtype, index.device).repeat(groups, 1) for length, path in shapes)
    if groups * sum(length * path for length, path in zip(lengths, paths, strict=True)) > KEPT_MASK_SIZE:
        return build
    # All layers of a forward, also when it is computed again, are given the same index: its masks live as long.
    kept: dict[Any, list[torch.Tensor]] = index.__dict__.setdefault("masks", {})
    if (groups, window, dtype) not in kept:
        kept[groups, window, dtype] = list(build)
    return kept[groups, window, dtype]


def _mask(length: int, path: int, window: int | None, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    seen = torch.ones(length, path, dtype=torch.bool, device=device).tril(path - length)
    if window:
        seen = seen.triu(path - length - window + 1)
    return torch.zeros(length, path, dtype=dtype, device=device).masked_fill_(~seen, -torch.inf)


def _attend(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    mask: torch.Tensor,
    scaling: float | None,
    softcap: float | None,
) -> torch.Tensor:
    """Return attention (1, heads, L, D) of the last L tokens of a path (key, value) of any length."""
    _, heads, length, width = query.shape
    # The query heads of a key head are stacked as rows: the keys are not copied for each of them.
    query = query.reshape(1, key.shape[1], -1, width)
    # PyTorch's fused attention on a CPU is four times slower backwards in bfloat16 than plain matrix products.
    if softcap or (query.dtype == torch.bfloat16 and not query.is_cuda):
        scores = (query @ key.transpose(2, 3)).float() * (width**-0.5 if scaling is None else scaling)
        if softcap:
            scores = softcap * torch.tanh(scores / softcap)
        output = (scores + mask).softmax(-1).to(value.dtype) @ value
    else:
        output = F.scaled_dot_product_attention(query, key, value, attn_mask=mask, scale=scaling)
    return output.reshape(1, heads, length, width)
