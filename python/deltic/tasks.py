"""Reads a part of a plan in another process: Ray, Dask, `multiprocessing`, or your own Spark task.

The process that plans sends `Plan.task_groups`, plain bytes, with the table's location and the store's settings; the
process that gets a group reads its rows, as of the version that was planned.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

import pyarrow as pa

from deltic import _deltic
from deltic.arguments import check_int
from deltic.errors import InvalidInputError
from deltic.reading.scan import reader
from deltic.table.table import Table, as_table

__all__ = ["read_task_group"]


def read_task_group(
    uri: str | os.PathLike[str] | Table,
    group: bytes,
    *,
    storage_options: Mapping[str, str] | None = None,
    batch_size: int | None = None,
) -> pa.RecordBatchReader:
    """Return the rows of one of `Plan.task_groups`, filtered and with the columns of the plan, as a lazy stream.

    `uri` and `storage_options`: those of the table that was planned, which are not in a group, since settings may be
    secret; a `Table` has both and can be pickled. `batch_size`: the most rows of a batch. This process must be able to
    read the files: a `memory://` table exists in one process only. Reading a group again returns the same rows, as long
    as its files exist.

    Raises `InvalidInputError` for bytes that are not a group; while reading, the errors of a `Scan`.

    >>> import tempfile
    >>> from concurrent.futures import ThreadPoolExecutor
    >>> import deltic, pyarrow as pa
    >>> uri = tempfile.mkdtemp() + "/flights"
    >>> _ = deltic.write(uri, pa.table({"month": [7, 8], "distance": [2475, 733]}), partition_by=["month"])
    >>> groups = deltic.Table(uri).plan(filter="distance > 500").task_groups(2)
    >>> with ThreadPoolExecutor() as pool:
    ...     tables = pool.map(lambda group: deltic.read_task_group(uri, group).read_all(), groups)
    >>> pa.concat_tables(tables).num_rows
    2
    """
    if not isinstance(group, bytes | bytearray | memoryview):
        raise InvalidInputError(f"group must be bytes, one of Plan.task_groups, not {type(group).__name__}")
    table = as_table(uri, storage_options)
    stream = _deltic.read_task_group(
        table.uri, table.storage_options, bytes(group), check_int(batch_size, "batch_size", 1)
    )
    return reader(stream)
