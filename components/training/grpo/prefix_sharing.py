"""Forward the common beginnings of attempts once: the prompt of a group, and the turns that its attempts share.

TRL's `TreeRow` folds the rows of a micro-batch into a prefix tree, and tree attention shows each row exactly its own
tokens. Log-probabilities and gradients are those of the padded batch, but for the order of floating-point sums. The gain
is the number of tokens of the rows divided by that of the tree, so a micro-batch should hold whole groups.
"""

import os
from collections.abc import Sequence
from typing import Any

import torch

from .. import tree_attention


def unsupported_reason(model: Any) -> str | None:
    """Return why prefixes cannot be shared in the training of `model`, in a few words; None if they can."""
    config = model.config.get_text_config()
    if getattr(config, "attn_logit_softcapping", None):
        return "it caps attention scores (attn_logit_softcapping)"
    return tree_attention.unsupported_reason(model)


def shared_log_probabilities(
    model: Any, input_ids: torch.Tensor, attention_mask: torch.Tensor, keep: int
) -> tuple[torch.Tensor, torch.Tensor | None, float]:
    """Return log-probabilities and entropies (B, keep) of the last `keep` tokens of each row, 0 at padding, and the
    number of tokens of the rows per token forwarded. The entropies are None if the output layer computes none.

    `model`: with tree attention and TRL's fused output layer. `input_ids`, `attention_mask`: (B, L), padded anywhere.
    """
    os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")
    from trl.experimental.async_grpo.packing import TreeRow

    is_token = attention_mask.bool()
    is_scored = is_token.clone()
    is_scored[:, :-keep] = False
    row = TreeRow()
    ids, tokens, scored = (item.cpu() for item in (input_ids, is_token, is_scored))
    for index in range(len(ids)):
        mask = scored[index][tokens[index]].long()
        none = torch.zeros(len(mask))  # of the columns that TRL's own loss reads
        sample = {"input_ids": ids[index][tokens[index]], "completion_mask": mask, "old_log_probs": none}
        row.add({**sample, "advantage": 0.0, "group_id": 0})
    packed = {name: value.to(input_ids.device) for name, value in row.pack().items()}
    outputs = tree_attention.forward_row(model, packed)
    is_scored = is_scored[:, -keep:]

    def by_row(values: torch.Tensor) -> torch.Tensor:
        # `token_index` lists the scored tokens row by row, as the mask does. `masked_scatter` keeps the graph.
        chosen = values[0][packed["token_index"]]
        return values.new_zeros(is_scored.shape).masked_scatter(is_scored, chosen)

    entropies = None if outputs.entropy is None else by_row(outputs.entropy)
    return by_row(outputs.log_probs), entropies, int(is_token.sum()) / len(row.tokens)


def group_rows(batches: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return micro-batches of the same sizes and rows, in which rows that begin alike stand together.

    `batches`: micro-batches of one optimiser step, as TRL splits them: tensors (rows, …), and scalars that all share.
    The gradient of the step is a sum over its rows, so that only `bnpo`, a mean within a micro-batch, depends on this.
    """
    count, size = len(batches), len(batches[0]["completion_ids"])
    columns = {
        name: torch.cat([batch[name] for batch in batches])
        for name, value in batches[0].items()
        if isinstance(value, torch.Tensor) and value.ndim
    }
    ids = torch.cat([columns["prompt_ids"], columns["completion_ids"]], dim=1).tolist()
    masks = torch.cat([columns["prompt_mask"], columns["completion_mask"]], dim=1).tolist()
    rows = [[token for token, there in zip(*pair, strict=True) if there] for pair in zip(ids, masks, strict=True)]
    order = torch.tensor(sorted(range(len(rows)), key=rows.__getitem__))
    parts = [order[index * size : (index + 1) * size] for index in range(count)]
    return [
        batch | {name: value[part.to(value.device)] for name, value in columns.items()}
        for batch, part in zip(batches, parts, strict=True)
    ]
