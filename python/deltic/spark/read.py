"""Reads a table into a Spark DataFrame: the driver plans, each task reads its share of the files in Rust.

The plan is packed into groups of about equal bytes, one Spark partition each; `mapInArrow` turns a group into batches.
A retried task reads the same files of the same version.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import VariantType

from deltic import _deltic
from deltic.arguments import check_int
from deltic.hints.keywords import with_keyword_hints
from deltic.reading.scan import Plan, batches
from deltic.reading.snapshot import Snapshot
from deltic.spark.location import opened, shared
from deltic.spark.tasks import cores, spread
from deltic.spark.types.column_types import has_type, to_arrow, to_spark, without_chars
from deltic.spark.types.schema import fit
from deltic.table.table import Table

__all__ = ["read"]

_LOG = logging.getLogger("deltic.spark")

PARTITION_BYTES = 64 << 20
"""Bytes of data files that one task reads, in large plans."""


def group_count(plan: Plan, parallelism: int) -> int:
    """The number of tasks for a plan: enough to use every core, more if there are many bytes."""
    by_size = -(-plan.bytes_kept // PARTITION_BYTES)
    return max(1, min(plan.files_kept, max(parallelism, by_size)))


def log_plan(snapshot: Snapshot, plan: Plan, filter: str | None) -> None:
    """Log which files will be read, which Spark's plan does not show. All files are counted for it, as in a listing."""
    if _LOG.isEnabledFor(logging.INFO):
        _LOG.info(
            "%s version %d: reads %d of %d files (%d of %d bytes), %s, columns %s",
            snapshot.uri,
            snapshot.version,
            plan.files_kept,
            plan.files_total,
            plan.bytes_kept,
            plan.bytes_total,
            "no filter given" if filter is None else f"filter {filter}",
            ", ".join(plan.schema.names),
        )


def _reader(
    uri: str, storage_options: dict[str, str] | None, variants: pa.Schema | None
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def read_groups(groups: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in groups:
            for group in batch.column(0):
                rows = batches(_deltic.read_task_group(uri, storage_options, group.as_py()))
                yield from rows if variants is None else (fit(found, variants, variants) for found in rows)

    return read_groups


@with_keyword_hints("spark.read")
def read(
    spark: SparkSession,
    uri: str | os.PathLike[str] | Table,
    columns: Sequence[str] | None = None,
    filter: str | None = None,
    version: int | None = None,
    timestamp: datetime | str | None = None,
    *,
    storage_options: Mapping[str, str] | None = None,
    partitions: int | None = None,
) -> DataFrame:
    """Return the rows of a table as a DataFrame of `columns`, those for which `filter` is TRUE.

    The version is fixed and the files are chosen here; the rows are read when the DataFrame is used. Pass `columns` and
    `filter` to this call: Spark applies `.select()` and `.where()` on the DataFrame only after all rows and columns
    were read. The chosen files are logged by Python's `logging`, at the level INFO of `deltic.spark`. A file is never
    split: one large file is one Spark task. Comments and other metadata of the columns are in `df.schema`; a CHAR is a
    STRING, as it is stored, since Spark pads only rows that `format("deltic")` reads.

    Arguments:
        spark: The session.
        uri: A path or URL, or a `deltic.Table`.
        columns: Top-level columns to read, in order; None for all.
        filter: SQL such as `"month = 7"`; `deltic.Snapshot.plan` has the grammar.
        version: A version, by default the latest.
        timestamp: Instead of a version, the newest one at this time, as for `deltic.Table.snapshot`.
        storage_options: The store's settings, as for `deltic.Table`.
        partitions: The most Spark partitions; by default one for each core, more for large scans.

    Raises the errors of `deltic.Table.snapshot` and `deltic.Snapshot.plan`, `UnsupportedFeatureError` for a column
    whose type cannot be passed to Spark (geometries, collated strings, user-defined types), and `InvalidInputError` for
    `memory://`. An error in a task becomes Spark's `PythonException`, with the text of deltic's error.

    >>> flights = deltic.spark.read(spark, uri, columns=["carrier"], filter="distance > 2000")
    >>> flights.count()
    1
    """
    partitions = check_int(partitions, "partitions", 1)
    table = shared(uri, storage_options)
    snapshot = opened(table, lambda of: of.snapshot(version, timestamp))
    plan = snapshot.plan(columns, filter)
    schema = without_chars(to_spark(snapshot, plan.schema.names))
    log_plan(snapshot, plan, filter)
    if plan.files_kept == 0:
        return spark.createDataFrame([], schema)
    parallelism = cores(spark)
    groups = plan.task_groups(partitions or group_count(plan, parallelism))
    variants = to_arrow(schema, voids=True) if has_type(schema, VariantType) else None
    return spread(spark, groups, len(groups)).mapInArrow(_reader(table.uri, table.storage_options, variants), schema)
