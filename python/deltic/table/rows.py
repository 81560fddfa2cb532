"""Methods of a table that change its rows: DELETE, UPDATE and MERGE, each as one commit."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, Protocol

import pyarrow as pa

from deltic import _deltic
from deltic.arguments import Isolation, check_filter
from deltic.dml.merge import Merge, MergeStep, operation_parameters
from deltic.dml.values import Assigned, Preview, assignments
from deltic.hints.keywords import with_keyword_hints
from deltic.monitoring.telemetry import operation
from deltic.reading.snapshot import Snapshot
from deltic.transaction.transaction import Commit, Transaction

__all__ = ["RowMethods"]


class _Changeable(Protocol):
    """The members of `Table` that are used here; `Table` itself imports this module."""

    _core: _deltic.Table

    @property
    def uri(self) -> str: ...

    def snapshot(self) -> Snapshot: ...

    def transaction(
        self,
        operation: str,
        isolation: Isolation | None,
        user_metadata: Mapping[str, Any] | str | None,
        app_id: str | None,
        app_version: int | None,
        max_attempts: int | None,
    ) -> Transaction: ...


class RowMethods:
    """The methods of `Table` that change rows."""

    @with_keyword_hints("Table.delete")
    def delete(
        self: _Changeable,
        where: str | None = None,
        *,
        isolation: Isolation | None = None,
        user_metadata: Mapping[str, Any] | str | None = None,
        app_id: str | None = None,
        app_version: int | None = None,
        max_attempts: int | None = None,
    ) -> Commit:
        """Delete the rows that make `where` TRUE, or all rows without it, as one commit.

        Arguments:
            where: SQL such as `"month = 7 AND carrier IN ('UA', 'AA')"`; `Snapshot.plan` has the grammar.
            isolation: As for `transaction`, which describes the arguments below too.
            user_metadata: The commit's `userMetadata`.
            app_id: With `app_version`, an application's transaction, which must be committed only once.
            app_version: The number of the application's transaction.
            max_attempts: How often to try if other writers commit first.

        Files that cannot have a matching row are skipped, and files whose partition values or statistics prove that
        every row matches are removed without being read. In the others the rows are marked in deletion vectors, if
        `delta.enableDeletionVectors` is true (PROTOCOL.md: "Deletion Vectors"), or the files are rewritten without
        them, in the order of their rows. If the table tracks rows, they keep their ids; if it has a change data feed
        (`delta.enableChangeDataFeed`), `changes` has the deleted rows.

        The commit's `metrics` have delta-spark's names, such as `numDeletedRows` and `numRemovedFiles`. If no row
        matches, nothing is committed: `attempts` is 0 then, and `version` the one that was read.

        Raises what `scan` raises for `where`, `InvalidInputError` on a table where rows may only be added
        (`delta.appendOnly`), `CommitConflictError` if another writer has changed the same rows meanwhile,
        `StorageError` if the store fails. After any of these errors the table is unchanged.

        >>> import tempfile
        >>> import deltic, pyarrow as pa
        >>> uri = tempfile.mkdtemp() + "/stock"
        >>> _ = deltic.write(uri, pa.table({"item": ["nut", "bolt", "gear"], "left": [0, 3, 0]}))
        >>> table = deltic.Table(uri)
        >>> commit = table.delete("left = 0")
        >>> commit.version, commit.metrics["numDeletedRows"], table.scan().to_arrow().to_pylist()
        (1, 2, [{'item': 'bolt', 'left': 3}])
        """
        predicates = [] if check_filter(where, "where") is None else [where]
        transaction = self.transaction("DELETE", isolation, user_metadata, app_id, app_version, max_attempts)
        transaction.described_by(predicate=json.dumps(predicates))

        def delete() -> dict[str, int]:
            return {"numDeletedRows": transaction.delete(where) or 0}

        with operation("delete", self.uri) as span:
            return span.record(_commit_row_changes(transaction, delete))

    def delete_preview(self: _Changeable, where: str | None = None) -> Preview:
        """Return what `delete` would do, without writing: see `Preview`.

        Raises what `delete` raises for `where`, and on a table where rows may only be added.

        >>> import tempfile
        >>> import deltic, pyarrow as pa
        >>> uri = tempfile.mkdtemp() + "/stock"
        >>> _ = deltic.write(uri, pa.table({"shop": ["a", "a", "b"], "left": [0, 3, 0]}), partition_by=["shop"])
        >>> preview = deltic.Table(uri).delete_preview("left = 0")
        >>> preview.rows, preview.files_removed, preview.files_rewritten
        (2, 1, 1)
        """
        check_filter(where, "where")
        return _preview(self._core, lambda core: core.delete_preview(where))

    @with_keyword_hints("Table.update")
    def update(
        self: _Changeable,
        set: Mapping[str, Assigned],
        where: str | None = None,
        *,
        isolation: Isolation | None = None,
        user_metadata: Mapping[str, Any] | str | None = None,
        app_id: str | None = None,
        app_version: int | None = None,
        max_attempts: int | None = None,
    ) -> Commit:
        """Set columns of the rows that make `where` TRUE, or of all rows without it, as one commit.

        Arguments:
            set: Columns and their new values. A string is SQL over the old row (`docs/expressions.md` has the grammar);
                a value is written `deltic.lit(value)`. A field of a struct is set by its path, `"address.city"`; if the
                struct was NULL, it no longer is.
            where: SQL such as `"month = 7"`, as for `delete`.
            isolation: As for `transaction`, which describes the arguments below too.
            user_metadata: The commit's `userMetadata`.
            app_id: With `app_version`, an application's transaction, which must be committed only once.
            app_version: The number of the application's transaction.
            max_attempts: How often to try if other writers commit first.

        What SQL computes is stored as `CAST` in ANSI mode converts it, as by delta-spark: decimals are rounded,
        fractions are cut off in columns of whole numbers, strings are parsed. `deltic.lit(value)` must fit without
        losing digits. A value that does not fit, a NULL that is not allowed, and an expression without a value, such as
        a division by zero, is an error with the file and the row. Generated columns are computed again.

        Files are found as by `delete`. If `delta.enableDeletionVectors` is true, the rows are marked and written to new
        files; otherwise their files are rewritten, in the order of their rows. If the table tracks rows, they keep
        their ids; if it has a change data feed (`delta.enableChangeDataFeed`), `changes` has each row before
        (`update_preimage`) and after (`update_postimage`).

        The commit's `metrics` have delta-spark's names, such as `numUpdatedRows` and `numCopiedRows`. If no row
        matches, nothing is committed. Errors are those of `delete`.

        >>> import tempfile
        >>> import deltic, pyarrow as pa
        >>> uri = tempfile.mkdtemp() + "/stock"
        >>> _ = deltic.write(uri, pa.table({"item": ["nut", "bolt"], "left": [1, 3]}))
        >>> table = deltic.Table(uri)
        >>> commit = table.update({"left": "left - 1", "item": deltic.lit("NUT")}, "item = 'nut'")
        >>> commit.metrics["numUpdatedRows"], table.scan().to_arrow().to_pylist()
        (1, [{'item': 'NUT', 'left': 0}, {'item': 'bolt', 'left': 3}])
        """
        predicates = [] if check_filter(where, "where") is None else [where]
        assignments(set)
        transaction = self.transaction("UPDATE", isolation, user_metadata, app_id, app_version, max_attempts)
        transaction.described_by(predicate=json.dumps(predicates))

        def update() -> dict[str, int]:
            return {"numUpdatedRows": transaction.update(set, where)}

        with operation("update", self.uri) as span:
            return span.record(_commit_row_changes(transaction, update))

    def update_preview(self: _Changeable, set: Mapping[str, Assigned], where: str | None = None) -> Preview:
        """Return what `update` would do, without writing: see `Preview`.

        Raises what `update` raises for its arguments, but does not compute the values.

        >>> import tempfile
        >>> import deltic, pyarrow as pa
        >>> uri = tempfile.mkdtemp() + "/stock"
        >>> _ = deltic.write(uri, pa.table({"shop": ["a", "a", "b"], "left": [0, 3, 0]}), partition_by=["shop"])
        >>> preview = deltic.Table(uri).update_preview({"left": "left + 1"}, "shop = 'a'")
        >>> preview.rows, preview.files_read, preview.files_rewritten
        (2, 0, 1)
        """
        check_filter(where, "where")
        columns, values = assignments(set)
        return _preview(self._core, lambda core: core.update_preview(columns, values, where))

    @with_keyword_hints("Table.merge")
    def merge(
        self: _Changeable,
        source: Any,
        on: str,
        source_alias: str = "source",
        target_alias: str = "target",
        *,
        memory_limit: int | str | None = None,
        isolation: Isolation | None = None,
        user_metadata: Mapping[str, Any] | str | None = None,
        app_id: str | None = None,
        app_version: int | None = None,
        max_attempts: int | None = None,
    ) -> Merge[Commit]:
        """Begin a merge of rows into the table: `Merge` has the methods that add clauses, and `execute`.

        Arguments:
            source: Anything that `deltic.write` takes. It is read once, when the merge is executed or previewed.
            on: SQL over the columns of both sides, such as `"source.id = target.id"`; NULL equals nothing there, and
                with `<=>` it equals NULL.
            source_alias: The name of the source in SQL.
            target_alias: The name of the table in SQL.
            memory_limit: The most bytes of the source's rows in memory, or a string such as `"1 GB"`; 512 MiB by
                default, at least 1 MiB. Further rows are written to a temporary file (in `TMPDIR`), which is mapped
                into memory: its pages are in the system's cache, which the system can free for other programs. A
                pyarrow table whose columns have a table's types is not copied. The source's keys and the positions of
                changed rows are in memory, too.
            isolation: As for `transaction`, which describes the arguments below too.
            user_metadata: The commit's `userMetadata`.
            app_id: With `app_version`, an application's transaction, which must be committed only once.
            app_version: The number of the application's transaction.
            max_attempts: How often to try if other writers commit first.

        Equalities between the two sides are joined by a hash table of the source; without any, every row is compared
        with every row. Files that the keys of the source, partition values and statistics rule out are not read, unless
        there is a clause for rows that no row of the source matches. Rows are then changed as by `update` and `delete`;
        the rules of the table are checked for every row that is changed or inserted.

        The commit's `metrics` have delta-spark's names, such as `numTargetRowsInserted`, `numTargetRowsUpdated` and
        `numTargetRowsDeleted`. If no row is changed or inserted, nothing is committed.

        Raises `InvalidInputError` for arguments of a wrong type. Other errors are those of `Merge.execute`.

        >>> import tempfile
        >>> import deltic, pyarrow as pa
        >>> uri = tempfile.mkdtemp() + "/stock"
        >>> _ = deltic.write(uri, pa.table({"item": ["nut", "bolt"], "left": [1, 3]}))
        >>> table = deltic.Table(uri)
        >>> news = pa.table({"item": ["nut", "gear"], "left": [5, 7]})
        >>> merge = table.merge(news, "source.item = target.item")
        >>> commit = merge.when_matched_update_all().when_not_matched_insert_all().execute()
        >>> commit.metrics["numTargetRowsUpdated"], commit.metrics["numTargetRowsInserted"]
        (1, 1)
        >>> sorted(table.scan().to_arrow().to_pydict()["left"])
        [3, 5, 7]
        """

        def execute(step: MergeStep) -> Commit:
            transaction = self.transaction("MERGE", isolation, user_metadata, app_id, app_version, max_attempts)
            transaction.described_by(**operation_parameters(step[1]))
            with operation("merge", self.uri) as span:
                return span.record(_commit_row_changes(transaction, lambda: transaction._merge(step)))

        def preview(step: MergeStep) -> Preview:
            return _preview(self._core, lambda core: core.merge_preview(*step))

        def table_schema() -> pa.Schema:
            return self.snapshot().schema

        return Merge(source, on, (source_alias, target_alias), table_schema, (execute, preview), memory_limit)


def _preview(table: _deltic.Table, step: Callable[[_deltic.Transaction], str]) -> Preview:
    core = _deltic.begin(table, "{}")
    try:
        return Preview.parse(step(core))
    finally:
        core.abandon()


def _commit_row_changes(transaction: Transaction, step: Callable[[], dict[str, int]]) -> Commit:
    """Change rows and commit. If there is nothing to commit, the result has only the counts of the step."""
    with transaction as tx:
        counts = step()
        read_version = 0 if tx.replayed else tx.snapshot.version
    return tx.committed or Commit(read_version, 0, 0, counts)
