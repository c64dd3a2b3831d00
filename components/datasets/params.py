"""The sections `export` and `gate` of `params.yaml`."""

from typing import Annotated, Literal

from pydantic import Field

from components.protocol.configuration import Configuration

Share = Annotated[float, Field(ge=0, lt=1)]
Count = Annotated[int, Field(ge=0)]


class ExportParams(Configuration):
    """`validation` is the share of train tasks that only measure the loss; `split_by` what a split never cuts.

    `pair_levels` says which pairs become DPO rows: a step-level pair is one assistant message against another after the
    same history; a trajectory-level pair holds tool outputs after its prompt, on which TRL's loss would train.
    """

    validation: Share = 0.1
    split_by: Literal["task", "family"] = "task"
    pair_levels: tuple[Literal["step", "trajectory"], ...] = ("step",)


class GateParams(Configuration):
    """The least that a dataset must hold to be trained on, and the most that one row may: in rows and in bytes."""

    min_sft_train: Count = 1
    min_dpo_train: Count = 0
    min_grpo_train: Count = 1
    max_row_bytes: Annotated[int, Field(gt=0)] = 4_000_000
