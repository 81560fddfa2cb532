"""The inventory of a vacuum in a DataFrame, read partition by partition."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.types import StructType

from deltic.spark.tasks import ipc_bytes
from deltic.spark.types import to_arrow

__all__ = ["inventory_rows"]

_COLUMNS = ("path", "length", "isDir", "modificationTime")


def inventory_rows(frame: DataFrame) -> pa.RecordBatchReader:
    """The columns of an inventory. The driver has the rows of one partition in memory at a time."""
    places = [at for at, name in enumerate(frame.columns) if name in _COLUMNS]
    fields = [frame.schema.fields[at] for at in places]
    schema = to_arrow(StructType(fields)._as_nullable(), voids=True)
    # Spark looks up columns by name, and takes a dot in a name for a path into a struct.
    named = frame.toDF(*(f"c{at}" for at in range(len(frame.columns)))).select(*(f"c{at}" for at in places))

    def batches() -> Iterator[pa.RecordBatch]:
        for row in named.mapInArrow(_as_bytes, "rows binary").toLocalIterator():
            rows = pa.ipc.open_stream(row[0]).read_all()
            yield from rows.rename_columns(schema.names).cast(schema).to_batches()

    return pa.RecordBatchReader.from_batches(schema, batches())


def _as_bytes(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        yield pa.record_batch([pa.array([ipc_bytes(batch)], pa.binary())], names=["rows"])
