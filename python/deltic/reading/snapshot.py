"""One version of a table (`Snapshot`), which never changes. PROTOCOL.md: "Action Reconciliation"."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, NoReturn, Protocol

import pyarrow as pa

from deltic import _deltic
from deltic.arguments import check_filter, check_names, check_str
from deltic.display.strings import html_table
from deltic.hints.keywords import with_keyword_hints
from deltic.hints.names import SNAPSHOTS, no_attribute
from deltic.monitoring.telemetry import operation
from deltic.reading.scan import Plan, Query, Scan, columns_of, reader
from deltic.results.detail import Detail

__all__ = ["Snapshot"]


class _Opener(Protocol):
    """The members of `Table` that are used here; `Table` itself imports this module."""

    def snapshot(self, version: int) -> Snapshot: ...


def _snapshot(table: _Opener, version: int) -> Snapshot:
    return table.snapshot(version)


class Snapshot:
    """A table at one version. It is immutable. Opening it takes the same time for ten files and for ten million.

    Made by `Table.snapshot`. It is pickled as (location, configuration, version), and opened again when it is
    unpickled.

    >>> import tempfile
    >>> import deltic, pyarrow as pa
    >>> table = deltic.Table(tempfile.mkdtemp() + "/flights")
    >>> _ = deltic.write(table, pa.table({"month": [7, 8], "carrier": ["UA", "B6"]}), partition_by=["month"])
    >>> snapshot = table.snapshot()
    >>> _ = table.delete("month = 8")
    >>> snapshot.version, snapshot.num_files, snapshot.partition_columns, snapshot.schema.names
    (0, 2, ['month'], ['month', 'carrier'])
    >>> snapshot.scan().count(), table.scan().count()
    (2, 1)
    """

    def __init__(self, core: _deltic.Snapshot, table: _Opener) -> None:
        """Wrap a snapshot of the core; use `Table.snapshot`."""
        self._core = core
        self._table = table

    @property
    def version(self) -> int:
        """The version, from 0."""
        return self._core.version

    @property
    def uri(self) -> str:
        """The table's location, without credentials."""
        return self._core.uri

    @cached_property
    def schema(self) -> pa.Schema:
        """The table's schema, partition columns in their place (PROTOCOL.md: "Schema Serialization Format")."""
        return pa.schema(self._core.schema())

    @cached_property
    def metadata(self) -> dict[str, Any]:
        """The `metaData` action, by the protocol's names (PROTOCOL.md: "Change Metadata")."""
        return dict(json.loads(self._core.metadata()))

    @cached_property
    def protocol(self) -> dict[str, Any]:
        """The `protocol` action, by the protocol's names (PROTOCOL.md: "Protocol Evolution")."""
        return dict(json.loads(self._core.protocol()))

    @property
    def partition_columns(self) -> list[str]:
        """Names of the partition columns, in order; empty when the table is not partitioned."""
        return list(self.metadata.get("partitionColumns") or [])

    @property
    def properties(self) -> dict[str, str]:
        """The table's properties: the `configuration` of its `metaData` action."""
        return dict(self.metadata.get("configuration") or {})

    @property
    def num_files(self) -> int:
        """Number of data files in this version: from its checksum file, or else by replaying the log."""
        return self._core.num_files()

    def detail(self) -> Detail:
        """Return what Spark's `DESCRIBE DETAIL` shows of this version: counts, properties, features. See `Detail`.

        Raises `CorruptTableError` for a damaged log, `StorageError` if the store fails.
        """
        return Detail.of(self.version, self.uri, self._core.detail(), self.metadata, self.protocol)

    def transaction_version(self, app_id: str) -> int | None:
        """Return the last version that the application `app_id` committed, None if it committed none.

        A transaction that is older than `delta.setTransactionRetentionDuration` now does not count (PROTOCOL.md:
        "Transaction Identifiers").

        Raises `CorruptTableError` for a damaged log, `StorageError` if the store fails.

        >>> import tempfile
        >>> import deltic, pyarrow as pa
        >>> table = deltic.Table(tempfile.mkdtemp() + "/flights")
        >>> _ = deltic.write(table, pa.table({"month": [7]}), app_id="loader", app_version=3)
        >>> table.snapshot().transaction_version("loader"), table.snapshot().transaction_version("other")
        (3, None)
        """
        return self._core.transaction_version(check_str(app_id, "app_id"))

    def domains(self) -> dict[str, str]:
        """Return the configuration of each metadata domain that is not removed (PROTOCOL.md: "Domain Metadata").

        Raises `CorruptTableError` for a damaged log, `StorageError` if the store fails.

        >>> import tempfile
        >>> import deltic, pyarrow as pa
        >>> table = deltic.Table(tempfile.mkdtemp() + "/stock")
        >>> _ = deltic.write(table, pa.table({"item": ["nut"]}), properties={"delta.enableRowTracking": "true"})
        >>> sorted(table.snapshot().domains())
        ['delta.rowTracking']
        """
        return self._core.domains()

    def files(self, filter: str | None = None) -> pa.RecordBatchReader:
        """Stream the data files that may have rows matching `filter`, one row for each file, without reading them.

        Columns: `path`, `size` (bytes), `modification_time` (ms since 1970 UTC), `partition` (a struct of the typed
        partition values), `num_records`, and `min`, `max` and `null_count`: structs with a field for each column that
        can have statistics, the bounds typed. Such a field is named by its path with dots, `a.b`; a part that has a dot
        or a back-tick itself is put in back-ticks, as in a filter. A struct that would have no fields is left out, such
        as `partition` of a table without partitions. Bounds of timestamps are wider by up to a millisecond, the
        precision of the log (PROTOCOL.md: "Per-file Statistics").

        Arguments:
            filter: SQL such as `"month = 7"`; `plan` has the grammar. None for all files.

        Raises what `plan` raises for the filter.

        >>> import tempfile
        >>> import deltic, pyarrow as pa
        >>> table = deltic.Table(tempfile.mkdtemp() + "/flights")
        >>> _ = deltic.write(table, pa.table({"month": [7, 8], "distance": [2475, 733]}), partition_by=["month"])
        >>> files = table.snapshot().files("month = 7").read_all()
        >>> files.select(["partition", "num_records", "max"]).to_pylist()
        [{'partition': {'month': 7}, 'num_records': 1, 'max': {'distance': 2475}}]
        """
        return reader(self._core.files(check_filter(filter)))

    @with_keyword_hints("Snapshot.plan")
    def plan(self, columns: Sequence[str] | None = None, filter: str | None = None) -> Plan:
        """Find which files a query must read.

        Arguments:
            columns: Top-level columns to return, in order; None for all. If row tracking is enabled, these may include
                `_metadata.row_id` and `_metadata.row_commit_version`.
            filter: SQL such as `"month = 7 AND (carrier IN ('UA', 'AA') OR distance > 2000)"`, as in a WHERE clause of
                Spark: `docs/expressions.md` has the grammar and the functions. Fields of structs are written with dots,
                odd names in back-ticks, dates `DATE '2013-07-01'`. A TIMESTAMP without an offset is UTC. A backslash in
                a string is a plain character, except in the pattern of LIKE. A row is kept if the filter is TRUE.

        Raises `InvalidInputError` for a filter that does not parse, an unknown column or literals of another type.

        >>> import tempfile
        >>> import deltic, pyarrow as pa
        >>> table = deltic.Table(tempfile.mkdtemp() + "/flights")
        >>> rows = pa.table({"month": [7, 8], "carrier": ["UA", "B6"], "distance": [2475, 733]})
        >>> _ = deltic.write(table, rows, partition_by=["month"])
        >>> snapshot = table.snapshot()
        >>> filters = "month IN (7, 9)", "carrier LIKE 'U%' OR distance IS NULL", "distance BETWEEN 700 AND 800"
        >>> [snapshot.plan(["carrier"], filter).files_kept for filter in filters]
        [1, 1, 1]
        """
        return Plan(*self._plan(columns, filter))

    @with_keyword_hints("Snapshot.scan")
    def scan(self, columns: Sequence[str] | None = None, filter: str | None = None) -> Scan:
        """Plan a query and return its rows, which are not read yet; the filter is exact.

        Arguments:
            columns: Top-level columns to return, in order; None for all.
            filter: SQL such as `"month = 7 AND carrier IN ('UA', 'AA')"`; `plan` has the grammar.

        Raises what `plan` raises.
        """
        return Scan(*self._plan(columns, filter))

    def _plan(self, columns: Sequence[str] | None, filter: str | None) -> tuple[_deltic.Plan, Query]:
        query = Query(self, check_names(columns, "columns"), check_filter(filter))
        with operation("plan", self.uri) as span:
            return span.record(self._core.plan(query.columns, query.filter)), query

    def __reduce__(self) -> tuple[Callable[[_Opener, int], Snapshot], tuple[_Opener, int]]:
        return _snapshot, (self._table, self.version)

    def __repr__(self) -> str:
        return f"Snapshot({self.uri!r}, version={self.version})"

    if not TYPE_CHECKING:  # type checkers would accept every name

        def __getattr__(self, name: str) -> NoReturn:
            no_attribute("Snapshot", SNAPSHOTS, name, self)

    def _repr_html_(self) -> str:
        partitions = ", ".join(self.partition_columns) or "none"
        rows = [("version", self.version), ("partitioned by", partitions), *columns_of(self.schema)]
        return html_table(self.uri, rows)
