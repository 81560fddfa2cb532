"""The rows of a merge's source, read once: kept in memory, or above a limit in a temporary file (`source_rows`)."""

from __future__ import annotations

import mmap
import os
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import IO, TypeAlias

import pyarrow as pa

from deltic import _deltic
from deltic.errors import StorageError

__all__ = ["DeferredSource", "source_rows"]

Source: TypeAlias = _deltic.ArrowStream | pa.RecordBatchReader | pa.Table

RUN_BYTES = 4 * 1024 * 1024
"""The most bytes of rows that are written at a time."""

BATCH_BYTES = 1024
"""The bytes that a batch takes besides its rows."""


class DeferredSource(ABC):
    """A source that a merge passes on unread: whoever executes the merge reads it."""

    memory_limit: int | None = None
    """The most bytes of rows in memory."""

    @abstractmethod
    def read(self) -> pa.Table:
        """All rows, with the types of a table."""

    @abstractmethod
    def release(self) -> None:
        """Free what is kept of the rows: the merge has been executed."""


def source_rows(rows: Source, memory_limit: int | None) -> pa.Table:
    """All rows of a source, with the types of a table.

    A pyarrow table whose columns have these types is used directly. Other rows above the limit are written to a
    temporary file, in Arrow's IPC format, and the file is mapped into memory. It has no name if the system allows that,
    and is deleted with the last use of its rows.
    """
    conformer = _deltic.SourceConformer(rows.schema, memory_limit)
    schema = pa.schema(conformer.schema)
    if isinstance(rows, pa.Table) and [field.type for field in rows.schema] == [field.type for field in schema]:
        return rows
    file: _SpillFile | None = None
    held: list[pa.RecordBatch] = []
    held_bytes = 0
    try:
        for given in _batches(rows):
            for conformed in conformer.conform(given):
                batch = pa.record_batch(conformed)
                held.append(batch)
                held_bytes += _bytes(batch)
                if held_bytes > (conformer.memory_limit if file is None else RUN_BYTES):
                    file = file or _SpillFile(schema)
                    file.write(held)
                    held, held_bytes = [], 0
        if file is None:
            return pa.Table.from_batches(held, schema)
        file.write(held)
        return file.mapped()
    finally:
        if file is not None:
            file.close()


def _batches(rows: Source) -> Iterator[object]:
    if isinstance(rows, _deltic.ArrowStream):
        # Read directly, so that deltic's errors keep their class.
        while (batch := rows.read_next()) is not None:
            yield batch
    else:
        yield from rows.to_reader() if isinstance(rows, pa.Table) else rows


def _bytes(batch: pa.RecordBatch) -> int:
    return int(batch.nbytes) + BATCH_BYTES


class _SpillFile:
    """A temporary file of rows, which is written, mapped and closed."""

    def __init__(self, schema: pa.Schema) -> None:
        # The folder is looked up each time, and there is no other if it is missing: as for `deltic.write`.
        self._folder = os.environ.get("TMPDIR") or tempfile.gettempdir()
        try:
            self._file: IO[bytes] = tempfile.TemporaryFile(dir=self._folder)  # noqa: SIM115
            self._writer = pa.ipc.new_file(self._file, schema)
        except OSError as error:
            raise self._refused(error) from error

    def write(self, batches: list[pa.RecordBatch]) -> None:
        """Write these rows, in their order; small batches are combined."""
        run: list[pa.RecordBatch] = []
        run_bytes = 0
        try:
            for number, batch in enumerate(batches):
                run.append(batch)
                run_bytes += _bytes(batch)
                if run_bytes >= RUN_BYTES or number == len(batches) - 1:
                    self._writer.write_batch(pa.concat_batches(run))
                    run, run_bytes = [], 0
        except OSError as error:
            raise self._refused(error) from error

    def mapped(self) -> pa.Table:
        """All rows, whose buffers are in the mapped file."""
        try:
            self._writer.close()
            self._file.flush()
            buffer = pa.py_buffer(mmap.mmap(self._file.fileno(), 0, access=mmap.ACCESS_READ))
            # Some file systems report only now that there was no room.
            self._file.close()
        except OSError as error:
            raise self._refused(error) from error
        return pa.ipc.open_file(pa.BufferReader(buffer)).read_all()

    def close(self) -> None:
        """Close the file; mapped rows keep it."""
        try:
            self._file.close()
        except OSError:
            # An error was raised before, so it does not matter if the rest cannot be flushed.
            return

    def _refused(self, error: OSError) -> StorageError:
        return StorageError(
            "the rows of the merge's source exceed memory_limit, and could not be written to a temporary file in "
            f"`{self._folder}` ({error}): make room there, name another folder in the environment variable TMPDIR, or "
            "raise memory_limit"
        )
