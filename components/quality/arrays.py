"""Columns of Arrow tables as numpy arrays, and back. A null is NaN among numbers, and a number of its own among codes."""

from collections.abc import Iterable, Mapping
from datetime import date
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import pyarrow as pa
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]
    Codes = NDArray[np.int64]
    Flags = NDArray[np.bool_]


def floats(column: "pa.ChunkedArray") -> "Floats":
    """Numbers and flags as float64, null as NaN."""
    import pyarrow as pa
    import pyarrow.compute as pc

    found: Floats = pc.cast(column, pa.float64()).combine_chunks().to_numpy(zero_copy_only=False)
    return found


def flags(column: "pa.ChunkedArray") -> "Flags":
    """Flags, null as False."""
    import pyarrow.compute as pc

    found: Flags = pc.fill_null(column, False).combine_chunks().to_numpy(zero_copy_only=False)
    return found


def codes(column: "pa.ChunkedArray") -> "Codes":
    """Equal values get equal numbers from 0 on, in the order in which they first occur; nulls are all equal."""
    encoded = _plain(column).dictionary_encode("encode")
    found: Codes = encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64)
    return found


def distinct_codes(column: "pa.ChunkedArray") -> "Codes":
    """The same, but a null is equal to nothing, not even to another null."""
    import pyarrow.compute as pc

    found = codes(column)
    unknown = pc.is_null(column).combine_chunks().to_numpy(zero_copy_only=False)
    return np.where(unknown, len(found) + np.arange(len(found)), found)


def ages(column: "pa.ChunkedArray", as_of: date) -> "Floats":
    """Days (YYYY-MM-DD) as days before `as_of`; NaN where the day is not known."""
    encoded = _plain(column).dictionary_encode("encode")
    days = [None if day is None else date.fromisoformat(day) for day in encoded.dictionary.to_pylist()]
    known = np.array([np.nan if day is None else float((as_of - day).days) for day in days], dtype=np.float64)
    found: Floats = known[encoded.indices.to_numpy(zero_copy_only=False)]
    return found


def byte_rows(column: "pa.ChunkedArray", width: int) -> "tuple[NDArray[np.uint8], Flags]":
    """A column of `width` bytes a row as (n, width), and which rows there are; the others hold zeros."""
    import pyarrow as pa

    plain = _plain(column)
    known: Flags = plain.is_valid().to_numpy(zero_copy_only=False)
    data = plain.drop_null().cast(pa.binary())
    rows = np.zeros((len(known), width), dtype=np.uint8)
    rows[known] = np.frombuffer(b"".join(data.to_pylist()), dtype=np.uint8).reshape(-1, width)
    return rows, known


def valued(keys: "pa.ChunkedArray", values: Mapping[str, float], missing: float = np.nan) -> "Floats":
    """For each key its value, `missing` where it has none."""
    if not values:
        return np.full(len(keys), missing)
    return np.array([values.get(key, missing) for key in keys.to_pylist()], dtype=np.float64)


def looked_up(keys: "pa.ChunkedArray", table: "pa.Table", key: str) -> "pa.Table":
    """The row of the table for each key, the first of several; nulls where there is none."""
    import pyarrow.compute as pc

    return table.combine_chunks().take(pc.index_in(keys.combine_chunks(), value_set=_plain(table[key])))


def nullable(values: "Floats") -> "pa.Array":
    """Numbers as Arrow's, NaN as null."""
    import pyarrow as pa

    return pa.array(values, type=pa.float64(), from_pandas=True)


def texts(values: Iterable[Any]) -> "pa.Array":
    """Texts as Arrow's."""
    import pyarrow as pa

    return pa.array(values, type=pa.string())


def _plain(column: "pa.ChunkedArray") -> "pa.Array":
    """One array without a dictionary."""
    import pyarrow as pa

    whole = column.combine_chunks()
    return whole.dictionary_decode() if pa.types.is_dictionary(whole.type) else whole
