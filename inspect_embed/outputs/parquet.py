"""Parquet: a row a token, with the columns `id`, `token`, `vector`; `x` and `y`, and `neighbors`, where asked for.

`neighbors` is what Embedding Atlas reads: `ids`, places of rows counted from 0, and `distances` (1 - cosine), a row itself
first, as in the lists that it makes itself. Lists must be of one length there: a row that has no direction fills its
own with itself. It opens the file with `embedding-atlas FILE --text token --x x --y y --neighbors neighbors`, or without a map with
`--vector vector`.

Source: apple/embedding-atlas, packages/backend/embedding_atlas/cli.py (its options), projection.py and
graph_metrics.py (the column).
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any, BinaryIO

from inspect_embed.errors import MissingExtraError
from inspect_embed.outputs import Part
from inspect_embed.report import Report

_ROWS_TOGETHER = 16_384


def parts(report: Report, path: Path) -> Mapping[Path, Part]:
    """The one file; MissingExtraError where pyarrow is not installed."""
    check()
    return {path: partial(_write, report)}


def check() -> None:
    """MissingExtraError where such a file cannot be written."""
    if find_spec("pyarrow") is None:
        raise MissingExtraError("pyarrow", "parquet", "Writing parquet")


def _write(report: Report, file: BinaryIO) -> None:
    import numpy as np
    import pyarrow as pa
    from pyarrow import parquet

    arrays = report.arrays
    vectors = np.ascontiguousarray(arrays["vectors"])
    columns: dict[str, Any] = {
        "id": pa.array(arrays["ids"]),
        "token": pa.array(arrays["tokens"], pa.string()),
    }
    if "coordinates" in arrays:
        x, y = np.asarray(arrays["coordinates"], np.float64).T
        # A row without a place on the map has none, rather than one that is no number.
        columns["x"], columns["y"] = pa.array(x, from_pandas=True), pa.array(y, from_pandas=True)
    if "neighbors" in arrays:
        own = np.arange(len(vectors))[:, None]
        near, apart = arrays["neighbors"], arrays["distances"]
        ids = np.hstack([own, np.where(near < 0, own, near)])
        distances = np.hstack([np.zeros(own.shape), np.where(near < 0, 0.0, apart)])
        ends = pa.array(np.arange(len(ids) + 1, dtype=np.int32) * ids.shape[1])
        lists = [pa.ListArray.from_arrays(ends, values.ravel()) for values in (ids, distances)]
        columns["neighbors"] = pa.StructArray.from_arrays(lists, ["ids", "distances"])
    n, width = vectors.shape
    value = pa.float64() if vectors.dtype == np.float64 else pa.float32()
    schema = pa.schema(
        [*((name, column.type) for name, column in columns.items()), ("vector", pa.list_(value))],
        {"title": report.title},
    )
    with parquet.ParquetWriter(file, schema) as writer:
        for start in range(0, n, _ROWS_TOGETHER):
            some = vectors[start : start + _ROWS_TOGETHER]
            ends = pa.array(np.arange(len(some) + 1, dtype=np.int32) * width)
            rows = pa.ListArray.from_arrays(ends, pa.array(some.ravel(), value))
            part = [column.slice(start, len(some)) for column in columns.values()]
            writer.write_table(pa.Table.from_arrays([*part, rows], schema=schema))
