"""Changing rows of a table from Spark, by the driver.

Spark computes the source of a merge, whose rows are collected to the driver; everything else is done in Rust there,
with the threads of the driver's machine. `deltic.Table.delete`, `update` and `merge` say how.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import VariantType

from deltic.dml import Assigned
from deltic.errors import InvalidInputError, UnsupportedFeatureError
from deltic.merge_builder import Merge
from deltic.spark.location import checked_session, shared
from deltic.spark.schema import as_binaries, nullable
from deltic.spark.types import CHAR_VARCHAR, has_char, has_type, to_arrow, with_binaries
from deltic.table import Table
from deltic.transaction import Commit

__all__ = ["delete", "merge", "source_rows", "update"]


def delete(
    spark: SparkSession,
    uri: str | os.PathLike[str] | Table,
    where: str | None = None,
    *,
    storage_options: Mapping[str, str] | None = None,
    **commit_options: Any,
) -> Commit:
    """Delete the rows that make `where` TRUE, all without it, as one commit: see `deltic.Table.delete`.

    `uri`: a location, or a `deltic.Table`. The driver does the work; `spark` is taken as by `read`.

    >>> _ = deltic.spark.write(spark.createDataFrame([(1,), (2,)], "id long"), uri + "_rows")
    >>> deltic.spark.delete(spark, uri + "_rows", "id = 1").metrics["numDeletedRows"]
    1
    """
    checked_session(spark)
    return shared(uri, storage_options).delete(where, **commit_options)


def update(
    spark: SparkSession,
    uri: str | os.PathLike[str] | Table,
    set: Mapping[str, Assigned],
    where: str | None = None,
    *,
    storage_options: Mapping[str, str] | None = None,
    **commit_options: Any,
) -> Commit:
    """Set columns of the rows that make `where` TRUE, of all rows without it: see `deltic.Table.update`.

    `uri`: a location, or a `deltic.Table`. The driver does the work; `spark` is taken as by `read`.

    >>> _ = deltic.spark.write(spark.createDataFrame([(1, "a"), (2, "b")], "id long, v string"), uri + "_set")
    >>> deltic.spark.update(spark, uri + "_set", {"v": "upper(v)"}, "id = 2").metrics["numUpdatedRows"]
    1
    """
    checked_session(spark)
    return shared(uri, storage_options).update(set, where, **commit_options)


def merge(
    spark: SparkSession,
    uri: str | os.PathLike[str] | Table,
    source: DataFrame,
    on: str,
    source_alias: str = "source",
    target_alias: str = "target",
    *,
    storage_options: Mapping[str, str] | None = None,
    **commit_options: Any,
) -> Merge[Commit]:
    """Begin a merge of a DataFrame into a table: see `deltic.Table.merge`.

    `uri`: a location, or a `deltic.Table`. `source` is computed by Spark when the merge is executed or previewed, once,
    and its rows are collected to the driver, which must have memory for them; the driver does the rest.

    >>> _ = deltic.spark.write(spark.createDataFrame([(1, "a"), (2, "b")], "id long, v string"), uri + "_merged")
    >>> news = spark.createDataFrame([(2, "B"), (3, "C")], "id long, v string")
    >>> merge = deltic.spark.merge(spark, uri + "_merged", news, "source.id = target.id")
    >>> metrics = merge.when_matched_update_all().when_not_matched_insert_all().execute().metrics
    >>> metrics["numTargetRowsUpdated"], metrics["numTargetRowsInserted"]
    (1, 1)
    """
    checked_session(spark)
    table = shared(uri, storage_options)
    return table.merge(source_rows(source), on, source_alias, target_alias, **commit_options)


class _Collected:
    """Rows that Spark computes when they are asked for, with the metadata of their columns."""

    def __init__(self, frame: DataFrame, schema: pa.Schema) -> None:
        self._frame = frame
        self._schema = schema

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        frame = self._frame
        if has_type(frame.schema, VariantType):
            frame = frame.mapInArrow(_binaries, with_binaries(frame.schema))  # type: ignore[arg-type]
        rows: pa.Table = frame.toArrow()
        return rows.cast(self._schema).__arrow_c_stream__(requested_schema)


def _binaries(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Variants as plain structs, for `toArrow` fails where one is null."""
    for batch in batches:
        yield pa.record_batch(list(map(as_binaries, batch.columns, batch.schema)), names=batch.schema.names)


def source_rows(source: DataFrame) -> Any:
    """The rows of a DataFrame as data for the core, computed when they are read.

    Raises what `write` raises for columns of types that deltic does not write, and `UnsupportedFeatureError` for those
    of type CHAR, which Spark pads with blanks when it reads them: no string of the table would be equal to theirs.
    """
    if not hasattr(source, "toArrow"):
        raise InvalidInputError(f"source must be a Spark DataFrame, not {type(source).__name__}")
    schema = to_arrow(nullable(source.schema), voids=True, binaries=True)
    for column in schema:
        declared = (column.metadata or {}).get(CHAR_VARCHAR.encode(), b"").decode()
        if has_char(declared):
            told = f"the source's column `{column.name}` is of type {declared}, whose values Spark pads with blanks"
            hint = f"take them away, as by source.withColumn({column.name!r}, F.rtrim({column.name!r}))"
            raise UnsupportedFeatureError(f"{told}, and deltic compares and stores strings as they are: {hint}")
    return _Collected(source, schema)
