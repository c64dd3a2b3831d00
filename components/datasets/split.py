"""The one split: which train tasks are trained on, and which only measure the loss. A task never moves."""

import hashlib
from typing import Literal

Split = Literal["train", "validation"]
SPLITS: tuple[Split, ...] = ("train", "validation")


def split_of(key: str, validation: float) -> Split:
    """The split of a task (or family) by a hash of its name alone: no seed, no night and no other task moves it.

    A larger `validation` only ever moves tasks from train to validation.
    """
    drawn = int.from_bytes(hashlib.blake2b(key.encode(), digest_size=8, person=b"ratchet-split").digest(), "big")
    return "validation" if drawn < validation * 2**64 else "train"
