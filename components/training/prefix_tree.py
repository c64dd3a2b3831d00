"""Samples with common prefixes folded into one row, in which a shared token occurs once.

The result is that of TRL's `TreeRow`, which handles tokens one by one in Python while the GPU waits. This one compares and
copies whole segments.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch

Key = tuple[int, int]
"""A token and the next one, -1 after the last: samples share a token only if they agree on what follows it, so that every
token of the row predicts a single next token.
"""


class _Segment:
    """Tokens `begin` to `end` of the sample `keys`, which ends with -1, and what follows them."""

    def __init__(self, keys: Any, begin: int, end: int, children: "dict[Key, _Segment]") -> None:
        self.keys, self.begin, self.end, self.children = keys, begin, end, children

    def add(self, keys: Any) -> int:
        """Split after the tokens that begin another sample, `keys`, too, and return their number."""
        size = min(self.end + 1, len(keys)) - self.begin
        differ = self.keys[self.begin : self.begin + size] != keys[self.begin : self.begin + size]
        shared = (int(differ.argmax()) if differ.any() else size) - 1
        middle = self.begin + shared
        if middle < self.end:
            rest = _Segment(self.keys, middle, self.end, self.children)
            self.end, self.children = middle, {_key(self.keys, middle): rest}
        return shared


def _key(keys: Any, depth: int) -> Key:
    return int(keys[depth]), int(keys[depth + 1])


class PrefixTree:
    """A drop-in replacement of `trl.experimental.async_grpo.packing.TreeRow`, for token ids that are not negative.

    A sample has `input_ids`, `completion_mask` and `old_log_probs`, arrays (T,), `advantage` and `group_id`. `size`:
    number of tokens of the row; `load`: sum of the lengths of the paths to them.
    """

    def __init__(self) -> None:
        self.samples: list[dict[str, Any]] = []
        self.load = 0
        self.size = 0
        self._keys: list[Any] = []
        self._roots: dict[Key, _Segment] = {}

    @property
    def tokens(self) -> range:
        """The row's tokens by number: TRL asks how many there are."""
        return range(self.size)

    def add(self, sample: dict[str, Any]) -> None:
        """Add a sample."""
        keys = np.append(np.asarray(sample["input_ids"]), -1)
        length, depth, children = len(keys) - 1, 0, self._roots
        while depth < length:
            segment = children.get(_key(keys, depth))
            if segment is None:
                children[_key(keys, depth)] = _Segment(keys, depth, length, {})
                self.size += length - depth
                self.load += (length * (length + 1) - depth * (depth + 1)) // 2
                break
            depth += segment.add(keys)
            children = segment.children
        self.samples.append(sample)
        self._keys.append(keys)

    def pack(self) -> dict[str, torch.Tensor]:
        """Return the columns of `TreeRow.pack`, of N tokens, S segments, K keys of their paths and M trained tokens:
        `input_ids`, `position_ids`, `shift_labels` (N), `tree_kv_index` (K), `tree_cu_seqlens_q`, `tree_cu_seqlens_k`
        (S + 1), `tree_max_seqlens` (2), `token_index`, `old_log_probs`, `advantages`, `segment_id` (M).
        """
        order: list[_Segment] = []
        paths: list[Any] = []
        places: dict[int, Any] = {}
        start = 0
        stack = [(segment, np.empty(0, np.int64)) for segment in reversed(self._roots.values())]
        while stack:
            segment, path = stack.pop()
            own = np.arange(start, start := start + segment.end - segment.begin)
            order.append(segment)
            paths.append(np.concatenate([path, own]))
            places[id(segment)] = own
            stack.extend((child, paths[-1]) for child in reversed(segment.children.values()))
        columns = {
            "input_ids": [segment.keys[segment.begin : segment.end] for segment in order],
            "position_ids": [np.arange(segment.begin, segment.end) for segment in order],
            "tree_kv_index": paths,
            "token_index": [],
            "old_log_probs": [],
            "advantages": [],
            "segment_id": [],
        }
        labels = np.full(self.size, -100)
        for number, (sample, keys) in enumerate(zip(self.samples, self._keys, strict=True)):
            place = np.concatenate([np.empty(0, np.int64), *(places[id(item)] for item in self._path(keys))])
            trained = np.flatnonzero(np.asarray(sample["completion_mask"])[1:])
            index = place[trained]
            labels[index] = keys[trained + 1]
            columns["token_index"].append(index)
            columns["old_log_probs"].append(np.asarray(sample["old_log_probs"])[trained + 1])
            columns["advantages"].append(np.full(len(index), sample["advantage"]))
            columns["segment_id"].append(np.full(len(index), number))
        types = {"old_log_probs": np.float32, "advantages": np.float32}
        bounds = [[segment.end - segment.begin for segment in order], [len(path) for path in paths]]
        queries, keys_of_paths = (np.cumsum([0, *lengths]).astype(np.int32) for lengths in bounds)
        packed = {
            **{name: np.concatenate(parts).astype(types.get(name, np.int64)) for name, parts in columns.items()},
            "shift_labels": labels,
            "tree_cu_seqlens_q": queries,
            "tree_cu_seqlens_k": keys_of_paths,
            "tree_max_seqlens": np.array([max(lengths) for lengths in bounds]),
        }
        return {name: torch.from_numpy(values) for name, values in packed.items()}

    def _path(self, keys: Any) -> Iterator[_Segment]:
        """Yield the segments that a sample consists of."""
        depth, children = 0, self._roots
        while depth < len(keys) - 1:
            segment = children[_key(keys, depth)]
            yield segment
            depth, children = segment.end, segment.children
