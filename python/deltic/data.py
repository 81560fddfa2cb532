"""Data that callers pass, as Arrow. What a frame holds reaches the table, or an error says why it cannot."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Any

import pyarrow as pa

from deltic import _deltic
from deltic.errors import InvalidInputError, UnsupportedFeatureError
from deltic.scan import Rows

__all__ = ["refuse_variants", "stream"]


def stream(data: Any) -> _deltic.ArrowStream | pa.RecordBatchReader | pa.Table:
    """Any Arrow data as the core takes it. A pandas index is dropped: it is a row label, not a column of the table."""
    if isinstance(data, Rows):
        # The core takes its own stream back whole, so that errors of reading keep their class.
        return data._core.read()
    if isinstance(data, _deltic.ArrowStream):
        return data
    try:
        rows = _rows(data)
    except InvalidInputError:
        raise
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise InvalidInputError(f"cannot write this {type(data).__name__}: {error}") from error
    refuse_variants(rows.schema)
    return rows


def _rows(data: Any) -> pa.RecordBatchReader | pa.Table:
    pandas = sys.modules.get("pandas")
    if pandas is not None and isinstance(data, pandas.DataFrame):
        data = pa.Table.from_pandas(data, preserve_index=False)
    if isinstance(data, pa.RecordBatchReader | pa.Table):
        return data
    polars = sys.modules.get("polars")
    if polars is not None and isinstance(data, polars.DataFrame):
        # Their Arrow form is addresses in this process, and says nothing of it.
        for name, dtype in data.schema.items():
            if dtype == polars.Object:
                raise InvalidInputError(f"column `{name}` has the polars type Object, which is no data; cast it")
    if type(data).__module__.startswith("pyspark.sql."):
        # Their Arrow form has lost what the columns are: user-defined types, collations, intervals.
        raise InvalidInputError("this is a Spark DataFrame: write it with deltic.spark.write(df, uri)")
    if hasattr(data, "__arrow_c_stream__"):
        return pa.RecordBatchReader.from_stream(data)
    if hasattr(data, "__arrow_c_array__"):
        batch = pa.record_batch(data)
        return pa.RecordBatchReader.from_batches(batch.schema, [batch])
    raise InvalidInputError(
        f"cannot write a {type(data).__name__}: pass Arrow data (anything with __arrow_c_stream__), "
        "such as a pyarrow Table or RecordBatchReader, or a polars or pandas DataFrame"
    )


def refuse_variants(fields: Iterable[pa.Field], inside: str = "") -> None:
    """Raise `UnsupportedFeatureError` for what Spark marked as a variant or a geometry, and Arrow has as a struct."""
    for child in fields:
        for mark in ("geometry", "geography") if child.name == "wkb" else ():
            if (child.metadata or {}).get(mark.encode()) == b"true":
                told = f"`{inside or child.name}` is a {mark} of Spark, which deltic does not write"
                raise UnsupportedFeatureError(f"{told}: make it binary, with ST_AsBinary()", features=["geospatial"])
        if child.name == "metadata" and (child.metadata or {}).get(b"variant") == b"true":
            told = f"`{inside or child.name}` is a variant of Spark, which deltic does not write"
            raise UnsupportedFeatureError(f"{told}: make it text, with to_json()", features=["variantType"])
        if pa.types.is_nested(child.type):
            children = [child.type.field(at) for at in range(child.type.num_fields)]
            refuse_variants(children, f"{inside}.{child.name}" if inside else child.name)
