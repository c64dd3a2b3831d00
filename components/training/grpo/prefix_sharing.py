"""Forward the common beginnings of attempts once: the prompt of a group, and the turns that its attempts share.

`PrefixTree` folds the rows of a micro-batch into one, and tree attention shows each row exactly its own
tokens. Log-probabilities and gradients are those of the padded batch, but for the order of floating-point sums. The gain
is the number of tokens of the rows divided by that of the tree, so a micro-batch should hold whole groups.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch

from .. import tree_attention
from ..prefix_tree import PrefixTree


def unsupported_reason(model: Any) -> str | None:
    """Return why prefixes cannot be shared in the training of `model`, in a few words; None if they can."""
    config = model.config.get_text_config()
    if getattr(config, "attn_logit_softcapping", None):
        return "it caps attention scores (attn_logit_softcapping)"
    return tree_attention.unsupported_reason(model)


class SharedRows(NamedTuple):
    """Padded rows (B, L) as one row of a prefix tree. `row`: columns of `PrefixTree.pack` on the model's device;
    `is_scored`: (B, K), which of the last K tokens of each row are no padding; `gain`: tokens of the rows per token
    forwarded.
    """

    row: dict[str, torch.Tensor]
    is_scored: torch.Tensor
    gain: float

    @classmethod
    def pack(cls, input_ids: torch.Tensor, attention_mask: torch.Tensor, keep: int) -> "SharedRows":
        """Return the tree of `input_ids` (B, L), padded anywhere, which scores the last `keep` tokens of each row."""
        device = input_ids.device
        ids, tokens = (item.cpu().numpy() for item in (input_ids, attention_mask.bool()))
        tree = PrefixTree()
        for row, is_token in zip(ids, tokens, strict=True):
            mask = (np.arange(len(row)) >= len(row) - keep)[is_token]
            none = np.zeros(len(mask), np.float32)  # of the columns that TRL's own loss reads
            sample = {"input_ids": row[is_token], "completion_mask": mask, "old_log_probs": none}
            tree.add({**sample, "advantage": 0.0, "group_id": 0})
        # Sizes that the host reads in each forward stay on it: reading them from a GPU waits for all that is queued.
        columns = {
            name: value if name == "tree_max_seqlens" else value.to(device) for name, value in tree.pack().items()
        }
        return cls(columns, attention_mask[:, -keep:].bool(), int(tokens.sum()) / tree.size)


def shared_log_probabilities(model: Any, rows: SharedRows) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Return log-probabilities and entropies (B, K) of the scored tokens, 0 at padding. The entropies are None if the
    output layer computes none.

    `model`: with tree attention and TRL's fused output layer.
    """
    outputs = tree_attention.forward_row(model, rows.row)

    def by_row(values: torch.Tensor) -> torch.Tensor:
        # `token_index` lists the scored tokens row by row, as the mask does. `masked_scatter` keeps the graph.
        chosen = values[0][rows.row["token_index"]]
        return values.new_zeros(rows.is_scored.shape).masked_scatter(rows.is_scored, chosen)

    return by_row(outputs.log_probs), None if outputs.entropy is None else by_row(outputs.entropy)


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
    ids, masks = (
        torch.cat([columns[f"prompt_{name}"], columns[f"completion_{name}"]], dim=1).cpu().numpy()
        for name in ("ids", "mask")
    )
    rows = [row[mask != 0].astype(">u8").tobytes() for row, mask in zip(ids, masks, strict=True)]  # ordered as the ids
    order = torch.tensor(sorted(range(len(rows)), key=rows.__getitem__))
    parts = [order[index * size : (index + 1) * size] for index in range(count)]
    return [
        batch | {name: value[part.to(value.device)] for name, value in columns.items()}
        for batch, part in zip(batches, parts, strict=True)
    ]
