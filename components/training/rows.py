"""Exported SFT rows as training rows: read strictly, filtered by source, tokenised, weighted to a mean of one."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from components.protocol import DataError, Message

from .format import TrainingRow, tokenize_chat

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast


class SftRow(msgspec.Struct, frozen=True):
    """The columns of an exported SFT row that training reads; the others are for people."""

    messages: list[Message]
    episode_id: str
    source: str = "on_policy"
    weight: float = 1.0
    tools: list[dict[str, Any]] | None = None


def read_rows(path: Path, sources: Sequence[str] | None) -> list[SftRow]:
    """The rows of a JSONL export, of those sources. Raises DataError naming file and line, or when none is left."""
    decoder = msgspec.json.Decoder(SftRow)
    try:
        lines = path.read_bytes().splitlines()
    except OSError as error:
        raise DataError(f"training data {path} cannot be read: {error.strerror}; build the datasets first") from error
    rows = []
    for number, line in enumerate(lines, start=1):
        try:
            rows.append(decoder.decode(line))
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise DataError(f"{path}, line {number}: not an SFT row: {error}; export the dataset again") from error
    kept = [row for row in rows if sources is None or row.source in sources]
    if not kept:
        wanted = f" of source {', '.join(sources)}" if sources else ""
        raise DataError(f"{path} has no rows{wanted}: there is nothing to train on; collect successes first")
    return kept


def prepare(
    rows: Sequence[SftRow], tokenizer: "PreTrainedTokenizerFast", *, weighted: bool, max_length: int
) -> list[TrainingRow]:
    """Tokenised rows; weights have mean 1 over all trained tokens. Rows over `max_length` tokens are left out, whole."""
    tokenized = [
        tokenize_chat(row.messages, row.tools, tokenizer, weight=row.weight if weighted else 1.0) for row in rows
    ]
    fitting = [row for row in tokenized if len(row.input_ids) <= max_length and row.trained_tokens]
    if not fitting:
        raise DataError(f"none of {len(rows)} rows fits into {max_length} tokens; raise max_length")
    total = sum(sum(row.weights) for row in fitting)
    scale = sum(row.trained_tokens for row in fitting) / total if total else 0.0
    return [msgspec.structs.replace(row, weights=[w * scale for w in row.weights]) for row in fitting]
