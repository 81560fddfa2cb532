"""The inventory of a vacuum in a Spark DataFrame, read partition by partition. Nothing of Spark is imported here.

DataFrames have `__arrow_c_stream__` only in some releases of PySpark, where it fails for timestamps.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa

__all__ = ["inventory_rows", "is_spark_frame"]

_COLUMNS = ("path", "length", "isDir", "modificationTime")


def is_spark_frame(data: object) -> bool:
    """Whether this is a DataFrame of Spark, or of Spark Connect."""
    return type(data).__module__.startswith("pyspark.sql.") and hasattr(data, "mapInArrow")


def inventory_rows(frame: Any) -> pa.RecordBatchReader:
    """The columns of an inventory. This process has the rows of one partition in memory at a time."""

    # Sent by value: executors need not have deltic.
    def as_bytes(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            sink = pa.BufferOutputStream()
            with pa.ipc.new_stream(sink, batch.schema) as writer:
                writer.write(batch)
            yield pa.record_batch([pa.array([sink.getvalue().to_pybytes()], pa.binary())], names=["rows"])

    types = [kind for _, kind in frame.dtypes]
    places = [at for at, name in enumerate(frame.columns) if name in _COLUMNS]
    names = [frame.columns[at] for at in places]
    # Spark looks up columns by name, and takes a dot in a name for a path into a struct.
    numbered = frame.toDF(*(f"c{at}" for at in range(len(frame.columns))))
    # A time without a zone is one of the session's zone, as for Spark.
    zoned = [f"CAST(c{at} AS TIMESTAMP) AS c{at}" if types[at] == "timestamp_ntz" else f"c{at}" for at in places]
    numbered = numbered.selectExpr(*zoned)
    fields = numbered.limit(0).toArrow().schema
    schema = pa.schema([pa.field(name, field.type) for name, field in zip(names, fields, strict=True)])

    def batches() -> Iterator[pa.RecordBatch]:
        for row in numbered.mapInArrow(as_bytes, "rows binary").toLocalIterator():
            rows = pa.ipc.open_stream(row[0]).read_all()
            yield from rows.rename_columns(names).cast(schema).to_batches()

    return pa.RecordBatchReader.from_batches(schema, batches())
