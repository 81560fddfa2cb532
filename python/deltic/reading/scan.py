"""Queries: `Plan` has the files to read, `Scan` the rows, `Changes` the rows that commits changed.

They are made by `Snapshot` and `Table`. Planning reads only the log; rows are read when a stream is pulled.
PROTOCOL.md: "Per-file Statistics", "Partition Value Serialization".
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, NoReturn, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from deltic import _deltic
from deltic.arguments import check_bool, check_int
from deltic.display.strings import counted, html_table, size, some
from deltic.hints.keywords import with_keyword_hints
from deltic.hints.names import SCANS, no_attribute
from deltic.hints.own_methods import with_own_methods
from deltic.monitoring.telemetry import operation
from deltic.results.explanation import Explanation
from deltic.types.names import type_name

if TYPE_CHECKING:
    import pandas
    import polars
    from typing_extensions import Self

__all__ = ["ChangeQuery", "Changes", "Plan", "Query", "Rows", "Scan", "TableRows"]


def batches(stream: _deltic.ArrowStream) -> Iterator[pa.RecordBatch]:
    """Pull a core stream batch by batch, so that errors keep their class and Ctrl-C works between batches."""
    while (batch := stream.read_next()) is not None:
        yield pa.record_batch(batch)


def reader(stream: _deltic.ArrowStream) -> pa.RecordBatchReader:
    """Wrap a core stream as a lazy `pyarrow.RecordBatchReader`."""
    return pa.RecordBatchReader.from_batches(pa.schema(stream), batches(stream))


class _Planner(Protocol):
    """The members of `Snapshot` that are used here; `Snapshot` itself imports this module."""

    @property
    def version(self) -> int: ...

    @property
    def uri(self) -> str: ...

    def files(self) -> pa.RecordBatchReader: ...

    def plan(self, columns: list[str] | None, filter: str | None) -> Plan: ...

    def scan(self, columns: list[str] | None, filter: str | None) -> Scan: ...


@dataclass(frozen=True)
class Query:
    """The arguments of a plan or scan, from which it is made again after unpickling."""

    snapshot: _Planner
    columns: list[str] | None
    filter: str | None

    def plan(self) -> Plan:
        """Plan it."""
        return self.snapshot.plan(self.columns, self.filter)

    def scan(self) -> Scan:
        """Plan it, for its rows."""
        return self.snapshot.scan(self.columns, self.filter)


class _Feed(Protocol):
    """The members of `Table` that are used here; `Table` itself imports this module."""

    def changes(self, start: int, end: int, columns: list[str] | None, filter: str | None) -> Changes: ...


@dataclass(frozen=True)
class ChangeQuery:
    """The arguments of `Table.changes` without the versions."""

    table: _Feed
    columns: list[str] | None
    filter: str | None

    def changes(self, first: int, last: int) -> Changes:
        """Plan the changes of these versions."""
        return self.table.changes(first, last, self.columns, self.filter)


class Plan:
    """The files that a query over one snapshot must read, after pruning by partition and statistics.

    Pruning may keep a file without matching rows; it never drops one that has some. `files_total`, `bytes_total`,
    `skipped` and `repr` count every live file on first use, which takes as long as listing the table's files. A plan is
    pickled as its table, version, columns and filter, and made again when it is unpickled.

    >>> import tempfile
    >>> import deltic, pyarrow as pa
    >>> uri = tempfile.mkdtemp() + "/flights"
    >>> _ = deltic.write(uri, pa.table({"month": [7, 8], "distance": [2475, 733]}), partition_by=["month"])
    >>> plan = deltic.Table(uri).plan(filter="month = 7")
    >>> plan.files_kept, plan.files_total, plan.skipped["partition"]
    (1, 2, 1)
    """

    def __init__(self, core: _deltic.Plan, query: Query) -> None:
        """Wrap a plan of the core; use `Snapshot.plan`."""
        self._core = core
        self._query = query

    @property
    def files_total(self) -> int:
        """Data files in the snapshot."""
        return self._core.files_total

    @property
    def files_kept(self) -> int:
        """Data files the query reads."""
        return self._core.files_kept

    @property
    def bytes_total(self) -> int:
        """Bytes of all data files in the snapshot, by the log."""
        return self._core.bytes_total

    @property
    def bytes_kept(self) -> int:
        """Bytes of the data files the query reads, by the log."""
        return self._core.bytes_kept

    @property
    def skipped(self) -> dict[str, int]:
        """How many files were skipped for which reason: `{"partition": files, "statistics": files}`."""
        return self._core.skipped

    @cached_property
    def schema(self) -> pa.Schema:
        """Schema of the rows the plan yields."""
        return pa.schema(self._core.schema())

    @cached_property
    def tasks(self) -> pa.Table:
        """The files to read, one row each; `len(plan.tasks)` is `plan.files_kept`.

        Columns: `path`, `size` (bytes), `modification_time` (ms since 1970 UTC), `partition` (a struct of the typed
        partition values, left out when the table has no partitions) and `deleted_rows`, by the deletion vector (null
        where the file has none).
        """
        return self.to_reader().read_all()

    def to_reader(self) -> pa.RecordBatchReader:
        """Stream `tasks`: batches with one row for each file to read."""
        return reader(self._core.to_arrow())

    def to_arrow(self) -> pa.Table:
        """Return `tasks`: one row for each file to read."""
        return self.tasks

    def task_groups(self, n: int) -> list[bytes]:
        """Pack the files into at most `n` groups of about equal bytes, to be read on other machines.

        A group is opaque bytes, without the settings of the store; `deltic.read_task_group` reads it, in any process
        that can access the files, and has an example. `deltic.spark.read` sends each one to a Spark task.

        Arguments:
            n: The most groups; there are fewer if there are fewer files.

        Raises `InvalidInputError` for a number below 0.
        """
        return self._core.task_groups(check_int(n, "n") or 0)

    def deletion_vectors(self) -> dict[str, str]:
        """The unique id of each file's deletion vector, by the file's path; files without one are left out.

        PROTOCOL.md: "Deletion Vectors" (`uniqueId`).

        >>> import tempfile
        >>> import deltic, pyarrow as pa
        >>> uri = tempfile.mkdtemp() + "/flights"
        >>> vectors = {"delta.enableDeletionVectors": "true"}
        >>> _ = deltic.write(uri, pa.table({"month": [7, 8]}), properties=vectors)
        >>> _ = deltic.Table(uri).delete("month = 7")
        >>> len(deltic.Table(uri).plan().deletion_vectors())
        1
        """
        return self._core.deletion_vectors()

    def to_dict(self) -> dict[str, Any]:
        """Return the counts of files and bytes as a dict of JSON values; `explain` has more."""
        return {
            "files_kept": self.files_kept,
            "files_total": self.files_total,
            "bytes_kept": self.bytes_kept,
            "bytes_total": self.bytes_total,
            "skipped": self.skipped,
        }

    def explain(self, files: bool = False) -> Explanation:
        """Explain what the query reads and why the rest is skipped; with `files` also for each live file, in memory.

        With `files` all file actions of the version are read. Raises `CorruptTableError` for a damaged log and
        `StorageError` if the store fails.

        >>> import tempfile
        >>> import deltic, pyarrow as pa
        >>> uri = tempfile.mkdtemp() + "/flights"
        >>> _ = deltic.write(uri, pa.table({"month": [7, 8], "distance": [2475, 733]}), partition_by=["month"])
        >>> explained = deltic.Table(uri).plan(filter="month = 7").explain(files=True)
        >>> explained.skipped, dict(explained.lines())["reads"]
        ({'partition': 1, 'statistics': 0}, '1 of 2 files (50.0 %)')
        >>> explained.files.select(["kept", "partition"]).sort_by("kept").to_pylist()
        [{'kept': False, 'partition': {'month': 8}}, {'kept': True, 'partition': {'month': 7}}]
        """
        tasks, snapshot = self.tasks, self._query.snapshot
        found = snapshot.files().read_all() if check_bool(files, "files") else None
        if found is not None:
            found = found.add_column(0, "kept", pc.is_in(found["path"], value_set=tasks["path"]))
        return Explanation(
            location=snapshot.uri,
            version=snapshot.version,
            filter=self._query.filter,
            columns=self.schema.names,
            files_total=self.files_total,
            files_kept=self.files_kept,
            bytes_total=self.bytes_total,
            bytes_kept=self.bytes_kept,
            skipped=self.skipped,
            deleted_rows=pc.sum(tasks["deleted_rows"]).as_py() or 0,
            files=found,
        )

    def __reduce__(self) -> tuple[Callable[[Query], Plan], tuple[Query]]:
        return Query.plan, (self._query,)

    def __repr__(self) -> str:
        return (
            f"Plan(files={self.files_kept}/{self.files_total}, bytes={size(self.bytes_kept)}/{size(self.bytes_total)}, "
            f"skipped={self.skipped})"
        )

    def _repr_html_(self) -> str:
        return html_table(
            "Plan",
            [
                ("filter", self._query.filter or "none"),
                ("files", f"{self.files_kept:,} of {self.files_total:,}"),
                ("bytes", f"{size(self.bytes_kept)} of {size(self.bytes_total)}"),
                *((f"skipped by {reason}", f"{files:,}") for reason, files in self.skipped.items()),
            ],
        )


def columns_of(schema: pa.Schema) -> list[tuple[str, str]]:
    """Names and types of the first columns, for a notebook."""
    rows = []
    for field in list(schema)[:_MOST_SHOWN]:
        kind = type_name(field)
        short = kind if len(kind) <= _LONGEST else f"{kind[:_LONGEST]}…"
        rows.append((field.name, short if field.nullable else f"{short} not null"))
    left = len(schema) - _MOST_SHOWN
    return rows if left <= 0 else [*rows, ("…", f"{counted(left, 'more column')}")]


_MOST_SHOWN = 50
_LONGEST = 200


class Rows:
    """Rows that are not read yet, with a known schema. Every call reads them again, from the same files.

    Any library that supports `__arrow_c_stream__` accepts them: DuckDB, polars, pandas, pyarrow, `deltic.write`. A
    library that pulls the stream itself raises its own exception, with deltic's class in the text; the methods here
    raise deltic's.

    >>> import tempfile
    >>> import deltic, pyarrow as pa
    >>> table = deltic.Table(tempfile.mkdtemp() + "/flights")
    >>> _ = deltic.write(table, pa.table({"month": [7, 8]}))
    >>> rows = table.scan()
    >>> rows.schema.names, rows.to_arrow().num_rows, pa.table(rows).num_rows
    (['month'], 2, 2)
    """

    _core: _deltic.Plan | _deltic.Changes | _deltic.TransactionScan

    @cached_property
    def schema(self) -> pa.Schema:
        """Schema of the rows: the requested columns, in the requested order.

        It has only metadata of columns that describe values, such as comments. `Snapshot.schema` has all.
        """
        return pa.schema(self._core.schema())

    def to_reader(self, batch_size: int | None = None) -> pa.RecordBatchReader:
        """Return the rows as a lazy stream of record batches of at most `batch_size` rows.

        Nothing is read before the first batch is requested, and only a bounded number of batches ahead.

        Arguments:
            batch_size: The most rows of a batch; None leaves it to deltic.

        Errors while reading are those of a `Scan` or `Changes`.

        >>> import tempfile
        >>> import deltic, pyarrow as pa
        >>> table = deltic.Table(tempfile.mkdtemp() + "/flights")
        >>> _ = deltic.write(table, pa.table({"month": [7, 8, 8]}))
        >>> [batch.num_rows for batch in table.scan().to_reader(batch_size=2)]
        [2, 1]
        """
        return reader(self._read(check_int(batch_size, "batch_size", 1)))

    def to_arrow(self) -> pa.Table:
        """Read all rows into a `pyarrow.Table`. Errors are those of a `Scan` or `Changes`."""
        with operation("scan", self._location()) as span:
            return span.record(self.to_reader().read_all())

    @with_keyword_hints("to_pandas")
    def to_pandas(self) -> pandas.DataFrame:
        """Read all rows into a pandas DataFrame (needs pandas), as pyarrow converts them.

        Whole numbers in a column with nulls become float64, which is exact only up to 2**53;
        `to_arrow().to_pandas(types_mapper=pandas.ArrowDtype)` keeps all exact. Raises what `to_arrow` raises.
        """
        return self.to_arrow().to_pandas()

    def to_polars(self) -> polars.DataFrame:
        """Read all rows into a polars DataFrame.

        Raises what `to_arrow` raises, and `ModuleNotFoundError` without polars.
        """
        import polars

        frame = polars.from_arrow(self.to_arrow())
        assert isinstance(frame, polars.DataFrame)
        return frame

    def __arrow_c_schema__(self) -> object:
        """Export the schema through the Arrow PyCapsule interface."""
        return self._core.schema().__arrow_c_schema__()

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """Export the rows as a lazy stream through the Arrow PyCapsule interface."""
        return self._read().__arrow_c_stream__(requested_schema)

    if not TYPE_CHECKING:  # type checkers would accept a loop over rows, and an index

        def __getitem__(self, _at: object) -> NoReturn:
            """Refuse `for batch in rows` and `rows["month"]`; with `__iter__` libraries would take it for a list."""
            name = type(self).__name__
            message = "is not read yet: loop over `to_reader()`, which yields batches, or read all with `to_arrow()`"
            raise TypeError(f"{name} {message}")

    def _read(self, batch_size: int | None = None) -> _deltic.ArrowStream:
        return self._core.read(batch_size)

    def _location(self) -> str | None:
        """The location of the table, if it is known."""
        return None


class TableRows(Rows):
    """Rows of a table's files, which can be counted and limited."""

    _core: _deltic.Plan | _deltic.TransactionScan

    def __init__(self, core: _deltic.Plan | _deltic.TransactionScan) -> None:
        """Wrap a plan of the core."""
        self._core = core
        self._limit: int | None = None

    def count(self) -> int:
        """Count the rows. Without a filter the counts come from the log, and no data file is read.

        With a filter, files whose statistics or partition values prove that all rows match or none are not read either;
        of the others only the columns of the filter are read. Deleted rows are not counted. If the log has no row count
        for a file, its footer is read.

        Errors are those of a `Scan`.
        """
        with operation("count", self._location()):
            rows = self._core.count()
        return rows if self._limit is None else min(rows, self._limit)

    def limit(self, n: int) -> Self:
        """Return the same scan with at most `n` rows, any of them. It reads no more files than needed.

        Arguments:
            n: The most rows, from 0. The smaller number counts if the scan has a limit already.

        Raises `InvalidInputError` for a number below 0.

        >>> import tempfile
        >>> import deltic, pyarrow as pa
        >>> table = deltic.Table(tempfile.mkdtemp() + "/flights")
        >>> _ = deltic.write(table, pa.table({"month": [7, 8, 8]}))
        >>> table.scan().limit(2).to_arrow().num_rows, table.scan().head(5).num_rows
        (2, 3)
        """
        rows = check_int(n, "n") or 0
        limited = object.__new__(type(self))
        limited.__dict__.update(self.__dict__)
        limited._limit = rows if self._limit is None else min(rows, self._limit)
        return limited

    def head(self, n: int = 10) -> pa.Table:
        """Read at most `n` rows, any of them, into a `pyarrow.Table`: `limit(n).to_arrow()`.

        Arguments and errors are those of `limit`, and while reading those of a `Scan`.
        """
        return self.limit(n).to_arrow()

    def _read(self, batch_size: int | None = None) -> _deltic.ArrowStream:
        return self._core.read(batch_size, self._limit)

    def __repr__(self) -> str:
        limit = "" if self._limit is None else f", limit={self._limit}"
        return f"{type(self).__name__}(columns={some(self.schema.names)}, files={self._files()}{limit})"

    def _files(self) -> int:
        raise NotImplementedError


@with_own_methods
class Scan(TableRows):
    """The rows of a plan, in no particular order. A scan is pickled as its table, version, columns, filter and limit.

    Errors while reading: `CorruptTableError` for a data file that is missing or does not agree with the log,
    `StorageError` if the store fails.

    >>> import tempfile
    >>> import deltic, pyarrow as pa
    >>> uri = tempfile.mkdtemp() + "/flights"
    >>> _ = deltic.write(uri, pa.table({"month": [7, 8, 8], "distance": [2475, 733, 184]}))
    >>> scan = deltic.Table(uri).scan(filter="month = 8")
    >>> scan.count(), scan.head(1).num_rows
    (2, 1)
    """

    _core: _deltic.Plan

    def __init__(self, core: _deltic.Plan, query: Query) -> None:
        """Wrap a plan of the core; use `Snapshot.scan`."""
        super().__init__(core)
        self._query = query

    @property
    def plan(self) -> Plan:
        """The plan: which files are read without a limit, and what was skipped."""
        return Plan(self._core, self._query)

    def _location(self) -> str | None:
        return self._query.snapshot.uri

    def _files(self) -> int:
        return self._core.files_kept

    def __reduce__(self) -> tuple[Callable[[Query, int | None], Scan], tuple[Query, int | None]]:
        return _scan, (self._query, self._limit)

    if not TYPE_CHECKING:  # type checkers would accept every name

        def __getattr__(self, name: str) -> NoReturn:
            no_attribute("Scan", SCANS, name, self)

    def _repr_html_(self) -> str:
        title = f"Scan of {counted(self._core.files_kept, 'file')}"
        limit = [] if self._limit is None else [("limit", f"{self._limit:,}")]
        return html_table(title, [("filter", self._query.filter or "none"), *limit, *columns_of(self.schema)])


def _scan(query: Query, limit: int | None) -> Scan:
    scan = query.scan()
    return scan if limit is None else scan.limit(limit)


@with_own_methods
class Changes(Rows):
    """The rows that commits inserted, updated and deleted, in the order of the versions, made by `Table.changes`.

    It is pickled as its table, versions, columns and filter.

    Errors while reading, besides those of a `Scan`: `InvalidInputError` for a version inside the range without a change
    data feed or whose rows do not fit the schema of the last one, `VersionNotFoundError` for a file that VACUUM has
    removed.

    >>> import tempfile
    >>> import deltic, pyarrow as pa
    >>> table = deltic.Table(tempfile.mkdtemp() + "/stock")
    >>> _ = deltic.write(table, pa.table({"item": ["nut"]}), properties={"delta.enableChangeDataFeed": "true"})
    >>> _ = table.delete()
    >>> changes = table.changes(start=1)
    >>> changes.versions, changes.to_arrow().select(["item", "_change_type"]).to_pylist()
    (range(1, 2), [{'item': 'nut', '_change_type': 'delete'}])
    """

    _core: _deltic.Changes

    def __init__(self, core: _deltic.Changes, query: ChangeQuery) -> None:
        """Wrap a feed of the core; use `Table.changes`."""
        self._core = core
        self._query = query

    @property
    def versions(self) -> range:
        """The versions of these changes; empty for a range of times in which nothing was committed."""
        ends = self._core.versions
        return range(0) if ends is None else range(ends[0], ends[1] + 1)

    def __reduce__(self) -> tuple[Callable[[ChangeQuery, int, int], Changes], tuple[ChangeQuery, int, int]]:
        if not self.versions:
            # Asked for again, the same times may have commits.
            raise TypeError("changes without versions cannot be pickled")
        return ChangeQuery.changes, (self._query, self.versions[0], self.versions[-1])

    def __repr__(self) -> str:
        return f"Changes(columns={some(self.schema.names)}, versions={self.versions})"

    def _repr_html_(self) -> str:
        versions = f"{self.versions[0]} to {self.versions[-1]}" if self.versions else "none"
        return html_table("Changes", [("versions", versions), *columns_of(self.schema)])
