"""A table's location and configuration (`Table`). Making one needs no I/O, and it can be pickled.

PROTOCOL.md: "Delta Table Specification".
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

import pyarrow as pa

from deltic import _deltic
from deltic.arguments import (
    Isolation,
    Time,
    check_bool,
    check_filter,
    check_int,
    check_names,
    check_optional_str,
    check_storage_options,
    check_str,
    commit_options,
    epoch_ms,
    location,
    version_or_ms,
)
from deltic.display.strings import html_table
from deltic.dml.values import RowChanges
from deltic.errors import InvalidInputError
from deltic.hints.keywords import with_keyword_hints
from deltic.hints.names import TABLES, no_attribute
from deltic.hints.own_methods import with_own_methods
from deltic.reading.scan import ChangeQuery, Changes, Plan, Scan
from deltic.reading.snapshot import Snapshot
from deltic.results.check import Check
from deltic.results.detail import Detail
from deltic.results.history import History
from deltic.table.copies import CopyMethods
from deltic.table.inspection import InspectionMethods
from deltic.table.maintenance import MaintenanceMethods
from deltic.table.rows import RowMethods
from deltic.transaction.alter import AlterMethods
from deltic.transaction.transaction import Commit, Transaction

__all__ = ["Snapshot", "Table"]


@with_own_methods
class Table(AlterMethods[Commit], RowMethods, InspectionMethods, MaintenanceMethods, CopyMethods):
    """A Delta table's location and the configuration of its store. Only methods do I/O, not the constructor.

    `uri`: a path, or a URL such as `s3://`, `abfss://`, `gs://`, `file://` or `memory://`. `storage_options`: the
    store's settings, such as `{"aws_region": "eu-west-1"}`; they stay out of `repr` and of error messages. A shared
    access signature in an Azure URL becomes one of them.

    >>> import tempfile
    >>> import deltic, pyarrow as pa
    >>> uri = tempfile.mkdtemp() + "/planets"
    >>> table = deltic.Table(uri)
    >>> table.exists()
    False
    >>> _ = deltic.write(uri, pa.table({"name": ["Venus", "Mars"], "moons": [0, 2]}))
    >>> table.snapshot().version
    0
    >>> table.scan(filter="moons > 0").to_arrow().to_pylist()
    [{'name': 'Mars', 'moons': 2}]
    """

    @with_keyword_hints("Table")
    def __init__(
        self,
        uri: str | os.PathLike[str],
        storage_options: Mapping[str, str] | None = None,
        cache_bytes: int | None = None,
    ) -> None:
        """Keep the location and the configuration.

        Raises `InvalidInputError` for a location that is no path or URL and for an unknown storage option,
        `UnsupportedFeatureError` for a scheme that deltic has no store for. At most `cache_bytes` (512 MiB by default,
        0 for none) of the log's columns stay in memory for the next plan.
        """
        self._core = _deltic.Table(
            location(uri), check_storage_options(storage_options), check_int(cache_bytes, "cache_bytes")
        )
        self._row_changes: Callable[[_deltic.Transaction], RowChanges] = lambda core: core

    @property
    def uri(self) -> str:
        """The location, normalised and without credentials."""
        return self._core.uri

    @property
    def storage_options(self) -> dict[str, str] | None:
        """The store's settings, with the signature of the URL if it has one; they may have credentials."""
        return self._core.storage_options

    def exists(self) -> bool:
        """Whether there is a Delta table at the location: a log with at least one version.

        Raises `StorageError` if the store fails or refuses the request.

        >>> import tempfile
        >>> import deltic
        >>> deltic.Table(tempfile.mkdtemp()).exists()
        False
        """
        return self._core.exists()

    def snapshot(self, version: int | None = None, timestamp: Time | None = None) -> Snapshot:
        """Open the latest version, a given one, or the newest one that was committed at or before `timestamp`.

        The latest version is opened once; later calls on this table read only newer commits, and another version with
        the same checkpoint shares its cached columns.

        Arguments:
            version: A version, from 0.
            timestamp: A datetime, a date or an ISO 8601 string; without an offset it is UTC. The time of a commit is
                its in-commit timestamp, if the table has them enabled, otherwise the modification time of its file
                (PROTOCOL.md: "In-Commit Timestamps"). A time after the newest commit means the latest version; one
                before the first commit raises `VersionNotFoundError`.

        Raises `TableNotFoundError` if there is no table, `VersionNotFoundError` if it has no such version (any more),
        `InvalidInputError` if both arguments are given, `CorruptTableError` for a damaged log, and
        `UnsupportedFeatureError`, naming them, if the table needs reader features that deltic does not have
        (PROTOCOL.md: "Reader Requirements").

        >>> import tempfile
        >>> import deltic, pyarrow as pa
        >>> table = deltic.Table(tempfile.mkdtemp() + "/planets")
        >>> commits = [deltic.write(table, pa.table({"name": [name]})) for name in ("Venus", "Mars")]
        >>> table.snapshot().version, table.snapshot(0).num_files, table.snapshot(timestamp="2100-01-01").version
        (1, 1, 1)
        """
        if version is not None and timestamp is not None:
            raise InvalidInputError("give a version or a timestamp, not both")
        return Snapshot(self._core.snapshot(check_int(version, "version"), epoch_ms(timestamp)), self)

    def detail(self) -> Detail:
        """Return what Spark's `DESCRIBE DETAIL` shows of the latest version: counts, properties, features (`Detail`).

        Raises what `snapshot` raises.

        >>> import tempfile
        >>> import deltic, pyarrow as pa
        >>> uri = tempfile.mkdtemp() + "/planets"
        >>> _ = deltic.write(uri, pa.table({"name": ["Venus", "Mars"]}), name="planets")
        >>> detail = deltic.Table(uri).detail()
        >>> detail.name, detail.num_files, detail.num_rows, detail.table_features
        ('planets', 1, 2, ['appendOnly', 'invariants'])
        """
        return self.snapshot().detail()

    @with_keyword_hints("Table.scan")
    def scan(self, columns: Sequence[str] | None = None, filter: str | None = None) -> Scan:
        """Plan a query over the latest version and return its rows, which are not read yet; the filter is exact.

        Arguments:
            columns: Top-level columns to return, in order; None for all.
            filter: SQL such as `"month = 7 AND carrier IN ('UA', 'AA')"`; `Snapshot.plan` has the grammar.

        Raises what `snapshot` raises, and `InvalidInputError` for a filter that does not parse, an unknown column or a
        value of another type than its column.

        >>> import tempfile
        >>> import deltic, pyarrow as pa
        >>> table = deltic.Table(tempfile.mkdtemp() + "/flights")
        >>> _ = deltic.write(table, pa.table({"month": [7, 8], "carrier": ["UA", "B6"]}))
        >>> table.scan(["carrier"], filter="month = 7").to_arrow().to_pylist()
        [{'carrier': 'UA'}]
        """
        return self.snapshot().scan(columns, filter)

    @with_keyword_hints("Table.plan")
    def plan(self, columns: Sequence[str] | None = None, filter: str | None = None) -> Plan:
        """Find which files of the latest version a query must read.

        Arguments:
            columns: Top-level columns to return, in order; None for all.
            filter: SQL such as `"month = 7 AND carrier IN ('UA', 'AA')"`; `Snapshot.plan` has the grammar.

        Raises what `scan` raises.

        >>> import tempfile
        >>> import deltic, pyarrow as pa
        >>> table = deltic.Table(tempfile.mkdtemp() + "/flights")
        >>> _ = deltic.write(table, pa.table({"month": [7, 8], "carrier": ["UA", "B6"]}), partition_by=["month"])
        >>> table.plan(filter="month = 7")  # doctest: +ELLIPSIS
        Plan(files=1/2, bytes=..., skipped={'partition': 1, 'statistics': 0})
        """
        return self.snapshot().plan(columns, filter)

    def files(self, filter: str | None = None) -> pa.RecordBatchReader:
        """Stream the data files of the latest version that may hold rows matching `filter`: see `Snapshot.files`.

        Arguments:
            filter: SQL such as `"month = 7"`; `Snapshot.plan` has the grammar. None for all files.

        Raises what `scan` raises.
        """
        return self.snapshot().files(filter)

    @with_keyword_hints("Table.changes")
    def changes(
        self,
        start: int | Time | None = None,
        end: int | Time | None = None,
        columns: Sequence[str] | None = None,
        filter: str | None = None,
    ) -> Changes:
        """Read the rows that the commits from `start` to `end` changed, both included: the change data feed.

        Rows have the schema of the last version and three more columns: `_change_type` (string: insert, delete,
        update_preimage or update_postimage), `_commit_version` (long) and `_commit_timestamp` (timestamp).

        Arguments:
            start: The first version, by default 0, or a time as in `snapshot`.
            end: The last version, by default the latest, or a time; one in the future means the latest version.
            columns: Columns to return, in order; None for all.
            filter: SQL as in `Snapshot.plan`, over all these columns.

        Raises `VersionNotFoundError` if there is no such version or its commit is no longer in the log,
        `InvalidInputError` if the range ends before it starts, if `delta.enableChangeDataFeed` was not true in all of
        it, or if older rows do not fit the last schema because a column was dropped, renamed or given a narrower type.
        The first version is checked here; later ones are checked while reading (PROTOCOL.md: "Add CDC File").

        >>> import tempfile
        >>> import deltic, pyarrow as pa
        >>> uri = tempfile.mkdtemp() + "/stock"
        >>> recorded = {"delta.enableChangeDataFeed": "true"}
        >>> _ = deltic.write(uri, pa.table({"item": ["nut", "bolt"]}), properties=recorded)
        >>> _ = deltic.write(uri, pa.table({"item": ["gear"]}), mode="overwrite")
        >>> changes = deltic.Table(uri).changes(start=1, columns=["item", "_change_type"])
        >>> sorted(changes.to_arrow().to_pydict()["item"])
        ['bolt', 'gear', 'nut']
        """
        begin, finish = version_or_ms(start, "start", up=True), version_or_ms(end, "end")
        query = ChangeQuery(self, check_names(columns, "columns"), check_filter(filter))
        return Changes(self._core.changes(begin, finish, query.columns, query.filter), query)

    def history(self, limit: int | None = None) -> list[dict[str, Any]]:
        """Return the commits, newest first: their `commitInfo`, with `version` and `timestamp` (ms since 1970 UTC).

        `timestamp` is the time by which `snapshot` finds the version. Commits that log cleanup removed are missing
        (PROTOCOL.md: "Commit Provenance Information").

        Arguments:
            limit: The most commits to return, each with one read of the log; None for all.

        Raises `TableNotFoundError` if there is no table, and `CorruptTableError` for a damaged log.

        >>> import tempfile
        >>> import deltic, pyarrow as pa
        >>> table = deltic.Table(tempfile.mkdtemp() + "/stock")
        >>> _ = deltic.write(table, pa.table({"item": ["nut"]}))
        >>> _ = table.delete("item = 'nut'")
        >>> [(entry["version"], entry["operation"]) for entry in table.history(limit=2)]
        [(1, 'DELETE'), (0, 'CREATE TABLE AS SELECT')]
        """
        return History(dict(json.loads(entry)) for entry in self._core.history(check_int(limit, "limit")))

    def check(self, version: int | None = None, *, files: bool = False) -> Check:
        """Compare the redundant records of a version, and return the differences.

        It compares the version's checksum file with the replayed log, `_last_checkpoint` with the existing checkpoints,
        and the checkpoint in use with the commits before it, if they are still in the log. An incomplete multi-part
        checkpoint is reported too. Nothing is repaired or written.

        Arguments:
            version: A version, by default the latest.
            files: True also checks that every live data file and deletion vector file exists with its size, with one
                request for each file.

        Raises what `snapshot` raises for a log that cannot be read, but nothing for a difference.

        >>> import tempfile
        >>> import deltic, pyarrow as pa
        >>> table = deltic.Table(tempfile.mkdtemp() + "/stock")
        >>> _ = deltic.write(table, pa.table({"item": ["nut"]}))
        >>> table.check(files=True)
        Check(version=0, ok=True)
        """
        return Check.parse(self._core.check(check_int(version, "version"), check_bool(files, "files")))

    def transaction(
        self,
        operation: str = "TRANSACTION",
        isolation: Isolation | None = None,
        user_metadata: Mapping[str, Any] | str | None = None,
        app_id: str | None = None,
        app_version: int | None = None,
        max_attempts: int | None = None,
        commit_empty: bool = False,
        commit_info: Mapping[str, Any] | None = None,
    ) -> Transaction:
        """Begin a transaction, to be used in a `with` statement: it commits once, when the block ends.

        Arguments:
            operation: Its name in the history.
            isolation: `"Serializable"`, `"WriteSerializable"` or `"SnapshotIsolation"`; by default the table's
                `delta.isolationLevel`. See `docs/commit-protocol.md`.
            user_metadata: The commit's `userMetadata`: a string, or a mapping to be stored as JSON.
            app_id: With `app_version`, an application's transaction, which must be committed only once: if the table
                has it or a later one already, nothing is written (`Transaction.replayed`). Pass both or neither.
            app_version: The number of the application's transaction.
            max_attempts: How often to try if other writers commit first; by default 10,000 times, and for at most a
                quarter of an hour.
            commit_empty: True commits even if nothing was changed.
            commit_info: More members of the commit's `commitInfo`, as in `deltic.write`.

        The beginning of the block raises `InvalidInputError` for an unknown isolation level, `TableNotFoundError` if
        there is no table, and `UnsupportedFeatureError` if it has features that deltic does not write. `Transaction`
        has the errors of the end.

        >>> import tempfile
        >>> import deltic, pyarrow as pa
        >>> table = deltic.Table(tempfile.mkdtemp() + "/stock")
        >>> _ = deltic.write(table, pa.table({"item": ["nut", "bolt"]}))
        >>> with table.transaction("RESTOCK") as tx:
        ...     _ = tx.delete("item = 'nut'")
        ...     _ = tx.append(pa.table({"item": ["gear"]}))
        >>> tx.committed.version, sorted(table.scan().to_arrow()["item"].to_pylist())
        (1, ['bolt', 'gear'])
        """
        options = {
            "operation": check_str(operation, "operation"),
            "isolation": check_optional_str(isolation, "isolation"),
            "commit_empty": check_bool(commit_empty, "commit_empty"),
            **commit_options(user_metadata, commit_info, app_id, app_version),
        }
        return Transaction(self, options, check_int(max_attempts, "max_attempts", 1))

    def remembers(self) -> bool:
        """Whether this object has the handle state: what it keeps of the table after its last commit; for tests.

        The next transaction uses it, without requests to the store, if it begins within a minute and has no `app_id`.

        >>> import tempfile
        >>> import deltic, pyarrow as pa
        >>> table = deltic.Table(tempfile.mkdtemp() + "/stock")
        >>> _ = deltic.write(table, pa.table({"item": ["nut"]}))
        >>> table.remembers()
        True
        """
        return self._core.remembers()

    def request_counts(self) -> dict[str, int]:
        """Counts of this object's requests to its store, for tests and measurements.

        `lists`, `gets`, `heads`, `puts` and `deletes` are requests, `bytes_read` and `bytes_written` bytes. Requests to
        DynamoDB are not counted.

        >>> import tempfile
        >>> import deltic
        >>> table = deltic.Table(tempfile.mkdtemp() + "/stock")
        >>> table.request_counts()["lists"], table.exists(), table.request_counts()["lists"]
        (0, False, 1)
        """
        return self._core.request_counts()

    def _with_row_changes(self, row_changes: Callable[[_deltic.Transaction], RowChanges]) -> Table:
        """The same table, with the same connections, whose rows are changed in another way."""
        table = Table.__new__(Table)
        vars(table).update(vars(self))
        table._row_changes = row_changes
        return table

    def _step(self, step: Callable[[_deltic.Transaction], None]) -> Commit:
        # Named by its step.
        with self.transaction(operation="", commit_empty=True) as transaction:
            transaction._step(step)
        assert transaction.committed is not None, "a transaction that may be empty is committed"
        return transaction.committed

    def __reduce__(self) -> tuple[type[Table], tuple[str, dict[str, str] | None, int | None]]:
        return Table, (self.uri, self.storage_options, self._core.cache_bytes)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Table) and (self.uri, self.storage_options) == (other.uri, other.storage_options)

    def __hash__(self) -> int:
        return hash(self.uri)

    def __repr__(self) -> str:
        return f"Table({self.uri!r})"

    if not TYPE_CHECKING:  # type checkers would accept every name

        def __getattr__(self, name: str) -> NoReturn:
            no_attribute("Table", TABLES, name, self)

    def _repr_html_(self) -> str:
        return html_table(self.uri, [("Delta table", "latest version: table.snapshot()")])


def as_table(uri: str | os.PathLike[str] | Table, storage_options: Mapping[str, str] | None) -> Table:
    """The table at a location, or the given one, with other settings if they are given."""
    if isinstance(uri, Table):
        return uri if storage_options is None else Table(uri.uri, storage_options)
    return Table(uri, storage_options)
