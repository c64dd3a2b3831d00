"""Sidecar of token ids: a Parquet file with one row per turn, keyed by `episode_id`."""

import io
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path

import msgspec

from ratchet.components.core import DataError, TokenTrace


class TurnTokens(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Token ids of one turn. Log-probabilities: float32, natural logarithm, of the sampled tokens."""

    episode_id: str
    turn: int
    trace: TokenTrace


def common_prefix(old: tuple[int, ...], new: tuple[int, ...]) -> int:
    """Return the length of the common prefix. The usual case, `new` extending `old`, is a single comparison."""
    if new[: len(old)] == old:
        return len(old)
    low, high = 0, min(len(old), len(new))
    while low < high:
        middle = (low + high + 1) // 2
        if old[low:middle] == new[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


def encode_tokens(rows: list[TurnTokens], *, tokenizer_hash: str, template_hash: str) -> bytes:
    """Return the Parquet bytes: columns episode_id, turn, kept, prompt_ids, completion_ids (int32), logprobs (float32)."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    schema = pa.schema(
        [
            ("episode_id", pa.string()),
            ("turn", pa.int32()),
            ("kept", pa.int32()),
            ("prompt_ids", pa.list_(pa.int32())),
            ("completion_ids", pa.list_(pa.int32())),
            ("logprobs", pa.list_(pa.float32())),
        ],
        metadata={"tokenizer_hash": tokenizer_hash, "template_hash": template_hash},
    )
    columns = [{"episode_id": row.episode_id, "turn": row.turn, **msgspec.structs.asdict(row.trace)} for row in rows]
    buffer = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(columns, schema=schema), buffer, compression="zstd")
    return buffer.getvalue()


def read_tokens(path: Path) -> Iterator[TurnTokens]:
    """Yield the rows of a sidecar, in order."""
    import pyarrow.parquet as pq

    for row in pq.read_table(path).to_pylist():
        trace = TokenTrace(tuple(row["prompt_ids"]), tuple(row["completion_ids"]), tuple(row["logprobs"]), row["kept"])
        yield TurnTokens(row["episode_id"], row["turn"], trace)


def select_tokens(tokens: bytes, ids: Collection[str]) -> bytes | None:
    """Return the sidecar (Parquet bytes, with metadata) of the rows of `tokens` whose episode is among `ids`; None
    where there are none. Raises DataError where `tokens` is no sidecar.
    """
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    try:
        table = pq.read_table(io.BytesIO(tokens))
        selected = table.filter(pc.is_in(table["episode_id"], pa.array(sorted(ids), pa.string())))
    except (OSError, KeyError, pa.ArrowException) as error:
        raise DataError(
            f"the token ids cannot be read: {' '.join(str(error).split())}; leave the sidecar out"
        ) from error
    if selected.num_rows == 0:
        return None
    if selected.num_rows == table.num_rows:
        return tokens  # the very bytes, so that the hash in the manifest stays
    buffer = io.BytesIO()
    pq.write_table(selected, buffer, compression="zstd")
    return buffer.getvalue()


def join_tokens(parts: Sequence[bytes]) -> bytes | None:
    """Concatenate sidecars; None for an empty sequence. Raises DataError where tokenizers or templates differ."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    if len(parts) <= 1:
        return parts[0] if parts else None
    tables = [pq.read_table(io.BytesIO(part)) for part in parts]
    if len({tuple(sorted((table.schema.metadata or {}).items())) for table in tables}) > 1:
        raise DataError("the episodes have token ids of different tokenizers or templates; export one policy at a time")
    buffer = io.BytesIO()
    pq.write_table(pa.concat_tables(tables), buffer, compression="zstd")
    return buffer.getvalue()
