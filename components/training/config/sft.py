"""Section `sft`: supervised fine-tuning on the assistant's tokens."""

from components.protocol.configuration import Configuration


class Sft(Configuration):
    """`weighted`: the loss of a row counts by its `weight`."""

    step_weighted_loss: bool = False
    weighted: bool = False
    packing: bool = False
