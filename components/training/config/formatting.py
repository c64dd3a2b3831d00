"""Section `format`: how a conversation becomes tokens, and which of them are trained."""

from typing import Self

from pydantic import Field, model_validator

from components.protocol.configuration import Configuration


class Format(Configuration):
    """`max_length`: tokens of a row, in batches of rows as long. See components/training/format for each option."""

    max_length: int = Field(1024, gt=8)
    agent_format: bool = False
    mask_observations: bool = True
    chunk_long_trajectories: bool = False
    chunk_overlap: int = Field(0, ge=0)

    @model_validator(mode="after")
    def _a_chunk_has_room(self) -> Self:
        if self.chunk_overlap >= self.max_length:
            raise ValueError(f"chunk_overlap {self.chunk_overlap} leaves no room in max_length {self.max_length}")
        return self


class PrmFormat(Configuration):
    """`max_length`: tokens of a window."""

    max_length: int = Field(1024, ge=64)
