"""Maintenance of a table: checkpoints, log cleanup, OPTIMIZE, PURGE, VACUUM, dropping of features.

PROTOCOL.md: "Checkpoints", "Metadata Cleanup", "Vacuum Protocol Check".
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

from deltic import _deltic
from deltic.arguments import check_bool, check_filter, check_int, check_str, json_or_string
from deltic.hints.keywords import with_keyword_hints
from deltic.hints.names import OF_OPTIMIZE, with_attribute_hints
from deltic.monitoring.telemetry import operation
from deltic.results.manifests import ManifestsResult
from deltic.results.optimize import OptimizeResult, optimize_options
from deltic.results.purge import PurgeResult
from deltic.results.repair import RepairResult
from deltic.results.vacuum import VacuumMode, VacuumResult, vacuum_arguments
from deltic.transaction.transaction import Commit

__all__ = ["MaintenanceMethods"]


class MaintenanceMethods:
    """The methods of `Table` for maintenance. They change no rows; only `purge` deletes some if it is asked to."""

    _core: _deltic.Table

    def checkpoint(self) -> int:
        """Write a checkpoint of the latest version and return that version (PROTOCOL.md: "Checkpoints").

        Commits by deltic write one every `delta.checkpointInterval` versions.

        Raises the errors of `snapshot`, `UnsupportedFeatureError` if the table has features that deltic does not write,
        and `StorageError` if the store fails.

        >>> import tempfile
        >>> import deltic, pyarrow as pa
        >>> table = deltic.Table(tempfile.mkdtemp() + "/orders")
        >>> commits = [deltic.write(table, pa.table({"id": [id]})) for id in (1, 2)]
        >>> table.checkpoint()
        1
        """
        with operation("checkpoint", self._core.uri) as span:
            return span.record(self._core.checkpoint())

    def write_checksum(self) -> int:
        """Write the checksum of the latest version, if it has none, and return that version.

        A commit by deltic writes its checksum if the version before has one. This method starts anew by counting all
        files (PROTOCOL.md: "Version Checksum File"). Raises what `checkpoint` raises.

        >>> import tempfile
        >>> import deltic, pyarrow as pa
        >>> table = deltic.Table(tempfile.mkdtemp() + "/orders")
        >>> _ = deltic.write(table, pa.table({"id": [1]}))
        >>> table.write_checksum()
        0
        """
        return self._core.write_checksum()

    def clean_log(self) -> int:
        """Delete log files older than `delta.logRetentionDuration` (30 days) and return how many.

        Only files that a checkpoint replaces are deleted: versions before it can no longer be read, all others can.
        Commits by deltic also do this now and then, unless `delta.enableExpiredLogCleanup` is false (PROTOCOL.md:
        "Metadata Cleanup"). Raises what `checkpoint` raises.

        >>> import tempfile
        >>> import deltic, pyarrow as pa
        >>> table = deltic.Table(tempfile.mkdtemp() + "/orders")
        >>> _ = deltic.write(table, pa.table({"id": [1]}))
        >>> table.clean_log()  # no file is old enough
        0
        """
        return self._core.clean_log()

    def compact_log(self, start: int | None = None, end: int | None = None) -> str:
        """Write a log compaction, one file for the commits `start` to `end`, and return its path below the table.

        Readers that support compactions read that file instead of the commits, which are kept; the table is the same.
        An existing compaction is not replaced (PROTOCOL.md: "Log Compaction Files").

        Arguments:
            start: The first version, by default the one after the last checkpoint.
            end: The last version, by default the newest.

        Raises `InvalidInputError` for fewer than two commits, or if one of them is no longer in the log, and what
        `checkpoint` raises.

        >>> import tempfile
        >>> import deltic, pyarrow as pa
        >>> table = deltic.Table(tempfile.mkdtemp() + "/orders")
        >>> commits = [deltic.write(table, pa.table({"id": [id]})) for id in (1, 2)]
        >>> table.compact_log()
        '_delta_log/00000000000000000000.00000000000000000001.compacted.json'
        """
        return self._core.compact_log(check_int(start, "start"), check_int(end, "end"))

    @with_attribute_hints("Table.optimize", OF_OPTIMIZE)
    @with_keyword_hints("Table.optimize")
    def optimize(
        self,
        where: str | None = None,
        *,
        zorder_by: Sequence[str] | str | None = None,
        target_file_size: int | str | None = None,
        full: bool = False,
        max_tasks: int | None = None,
        dry_run: bool = False,
    ) -> OptimizeResult:
        """Compact small files, or order rows so that queries skip more files. No row changes.

        A table with clustering columns is clustered: rows are ordered along a Hilbert curve through these columns.
        Files that were clustered together are kept if they have 100 GiB or more, or if nothing was added since; with
        `full=True` all files are rewritten. On other tables `zorder_by` orders the rows of each partition along a
        Z-order curve through a column, or up to about four, and rewrites all files. Without it small files are combined
        (compaction): those below the target size, and those with more than 5 % of their rows deleted. Their rows keep
        their order.

        `where`: a condition on partition columns; only matching partitions are optimized. `target_file_size`: bytes
        that a file should have, or a string such as `"256 MB"`, whose units are powers of 1,024, as in the property; by
        default `delta.targetFileSize` or 1 GiB. `max_tasks`: how many bins (files that are rewritten together) are
        written at a time, by default one for each processor. `dry_run`: True returns what would be done, and writes
        nothing.

        Rows that deletion vectors delete are left out, rows keep their ids if the table tracks rows, and the change
        data feed shows nothing (PROTOCOL.md: `dataChange` in "Add File and Remove File"). A large table takes several
        commits, each of about 64 GiB of files; after an interruption the next call goes on from the last one. Other
        writers may commit meanwhile: if they remove a file that was to be replaced, or rows of it, its bin is left
        out (`files_lost`), and the rest is committed. Appends do not conflict.

        Raises `InvalidInputError` for a condition on other columns, for columns that the table lacks or that have no
        order, and for `zorder_by` on a clustered table; `MetadataChangedError` if another writer changed the table's
        schema meanwhile; `StorageError` if the store fails.

        >>> import tempfile
        >>> import deltic, pyarrow as pa
        >>> uri = tempfile.mkdtemp() + "/readings"
        >>> for day in range(5):
        ...     _ = deltic.write(uri, pa.table({"day": [day] * 3, "value": [1, 2, 3]}))
        >>> table = deltic.Table(uri)
        >>> plan = table.optimize(dry_run=True)
        >>> plan.files_to_rewrite, plan.expected_files, plan.versions
        (5, 1, [])
        >>> result = table.optimize()
        >>> result.versions, result.metrics["numRemovedFiles"], result.metrics["numAddedFiles"]
        ([5], 5, 1)
        >>> table.optimize(zorder_by=["day", "value"]).layout
        'zorder'
        """
        options = optimize_options(where, zorder_by, target_file_size, full, max_tasks)
        only_plans = check_bool(dry_run, "dry_run")
        with operation("optimize", self._core.uri) as span:
            return span.record(
                OptimizeResult.parse(_deltic.optimize(self._core, options, only_plans, None), only_plans)
            )

    def purge(
        self,
        where: str | None = None,
        *,
        max_tasks: int | None = None,
        dry_run: bool = False,
        user_metadata: Mapping[str, Any] | str | None = None,
        max_attempts: int | None = None,
    ) -> PurgeResult:
        """Rewrite files that still have deleted rows or dropped columns, without these.

        Every live file with a deletion vector is rewritten without the deleted rows. If columns are mapped and any was
        dropped, every file that still has one is rewritten, too: their footers are read, one request a file, 64 at
        once. The table has the same rows before and after, with the same ids if it tracks rows; streams and the change
        data feed see nothing (PROTOCOL.md: `dataChange` in "Add File and Remove File"). The history shows `REORG`, as
        for delta-spark's `REORG TABLE … APPLY (PURGE)`.

        With `where`, rows are purged: those that make it TRUE are deleted first, by a commit of their own, and their
        files are rewritten whatever the value of `delta.enableDeletionVectors`. No live file has such a row afterwards.
        Older versions and the change data feed still have them: `retained` of the result names the versions and files,
        and how much a vacuum would delete. Files that may have such rows are read for this, before anything is changed;
        files that `vacuum` has deleted do not count, and files that cannot be read do. The log itself keeps statistics
        and partition values of old files until it is cleaned up.

        Arguments:
            where: SQL, as that of `delete`.
            max_tasks: How many bins (files that are rewritten together) are written at a time, by default one for each
                processor.
            dry_run: True returns what would be done, and writes nothing. `retained` is about the table as it is.
            user_metadata: A string, or a mapping to be stored as JSON, for the history.
            max_attempts: As for `Table.transaction`.

        Other writers may commit meanwhile, as during `optimize`: files that they change are left out (`files_lost`).

        Raises the errors of `delete` for `where`, `CorruptTableError` for a file whose footer cannot be read, and the
        errors of `optimize`.

        >>> import tempfile
        >>> import deltic, pyarrow as pa
        >>> uri = tempfile.mkdtemp() + "/people"
        >>> properties = {"delta.enableDeletionVectors": "true"}
        >>> _ = deltic.write(uri, pa.table({"id": [1, 2, 3]}), properties=properties)
        >>> table = deltic.Table(uri)
        >>> _ = table.delete("id = 1")
        >>> table.purge(dry_run=True).files_with_vectors
        1
        >>> result = table.purge("id = 2")
        >>> result.rows_deleted, result.retained.versions, result.retained.files
        (1, [0, 1], 1)
        >>> table.vacuum(0, force=True).files_deleted == result.retained.files + 1  # and the file of a deletion vector
        True
        """
        options = {
            "filter": check_filter(where, "where"),
            "max_tasks": check_int(max_tasks, "max_tasks", 1),
            "user_metadata": json_or_string(user_metadata, "user_metadata"),
        }
        only_plans, attempts = check_bool(dry_run, "dry_run"), check_int(max_attempts, "max_attempts", 1)
        with operation("purge", self._core.uri) as span:
            purged = _deltic.purge(self._core, json.dumps(options), only_plans, attempts)
            return span.record(PurgeResult.parse(purged, only_plans))

    def repair(
        self, dry_run: bool = True, *, recover_to: int | None = None, max_attempts: int | None = None
    ) -> RepairResult:
        """Repair what `check(files=True)` finds in the newest version, or return what would be done.

        Nothing is written unless `dry_run` is False. Each step has a message with the fault and the repair:

        - A checkpoint that cannot be read, or that the commits before it and a checksum prove wrong: a new one is
          written from the rest of the log, and the damaged one is deleted. If the newest version cannot be read without
          it, `CorruptTableError` is raised. If a checkpoint and the commits differ and no checksum proves the
          checkpoint wrong, nothing is changed.
        - `_last_checkpoint` that is missing, cannot be read, or does not name the newest checkpoint: a checkpoint is
          written, and `_last_checkpoint` with it.
        - The checksum of the newest version, missing or wrong: all files are counted, and it is written anew. One with
          another count of files than the log is kept unless a checkpoint of that version agrees with the log: the log
          may have lost files, so no checkpoint of it is written either.
        - Missing data files are removed from the table, by one commit with the operation `FSCK`. Their rows are lost.
          Data files with a missing file of deletion vectors are removed as well, since it is unknown which of their
          rows are deleted. Restore the files instead if they exist anywhere. The change data feed of that version
          cannot be read.

        A file with another size than in the log, or a missing one with an absolute path outside the table, is only
        reported; so is everything if deltic cannot write to the table. Each live file costs a request, 64 at once. A
        file counts as missing only if the store answers so: after any other answer, such as a denied request, the
        repair raises `StorageError` and removes nothing.

        If the newest version cannot be read, because a commit of the log is missing or torn, `CorruptTableError` names
        the last version that can be read. With `recover_to` this version becomes the newest one, and **the later
        versions are lost**; nothing else is repaired by such a call. Files of the log that belong to later versions are
        moved to `RepairResult.moved_to`, a new folder below `_delta_log/_unreadable`. Their data files stay, but no
        version names them, so that a vacuum deletes them. Stop all writers first: the commit of a writer that has read
        a lost version would again follow a gap. If the newest version can be read, for example from a checkpoint after
        the missing commit, nothing is done.

        Arguments:
            dry_run: False makes the repairs. After a failure the next call goes on from there.
            recover_to: The last version that can be read; any other is refused.
            max_attempts: As for `Table.transaction`.

        With `recover_to`, raises `InvalidInputError` for another version than the last readable one;
        `UnsupportedFeatureError` for a table that deltic cannot write, or whose versions a catalog or DynamoDB decides;
        `CorruptTableError` if no version can be read, or lines of a commit are JSON objects that deltic does not
        understand: another client may; `CommitConflictError` if the log changes meanwhile.

        >>> import pathlib, tempfile
        >>> import deltic, pyarrow as pa
        >>> uri = tempfile.mkdtemp() + "/stock"
        >>> for item in ("nut", "bolt"):
        ...     _ = deltic.write(uri, pa.table({"item": [item]}))
        >>> table = deltic.Table(uri)
        >>> next(pathlib.Path(uri).glob("*.parquet")).unlink()
        >>> [step.kind for step in table.repair().steps]
        ['data_file']
        >>> table.repair(dry_run=False).committed, table.scan().count()
        (2, 1)
        >>> _ = pathlib.Path(uri, "_delta_log", f"{2:020}.json").write_text('{"commitInfo":{"oper')
        >>> table.repair(recover_to=1).steps[0].paths[-1]
        '_delta_log/00000000000000000002.json'
        >>> table.repair(dry_run=False, recover_to=1).version, table.snapshot().version
        (1, 1)
        """
        only_plans, attempts = check_bool(dry_run, "dry_run"), check_int(max_attempts, "max_attempts", 1)
        version = check_int(recover_to, "recover_to")
        with operation("repair", self._core.uri) as span:
            repaired = _deltic.repair(self._core, only_plans, version, attempts)
            return span.record(RepairResult.parse(repaired, only_plans))

    @with_keyword_hints("Table.vacuum")
    def vacuum(
        self,
        retention: timedelta | float | str | None = None,
        *,
        mode: VacuumMode = "full",
        dry_run: bool = False,
        force: bool = False,
        log: bool = True,
        inventory: Any = None,
    ) -> VacuumResult:
        """Delete files that no version within the retention needs.

        Kept are the files of every version that was current within the retention, their deletion vectors and change
        files, and all files written since, whose writer may not have committed yet. All others below the table are
        deleted, except files and folders whose names begin with `_` or `.`. Versions before the retention can no longer
        be read. The history gets a commit at the beginning and one at the end, unless `log` is False; memory grows with
        the number of kept files (8 bytes each, 16 on a local disk). If a vacuum fails or is stopped, the table is
        intact; call this again.

        Arguments:
            retention: A `timedelta`, a number of hours, or a string such as `"7 days"`, `"1 week"` or `"168 hours"`; by
                default `delta.deletedFileRetentionDuration` (a week).
            mode: `"full"` lists the whole table. `"lite"` takes from the log the files that commits removed since
                the last vacuum: it is faster, and does not find files of writers that never committed.
            dry_run: True returns the files, as `VacuumResult.files`, and deletes none.
            force: True allows a retention shorter than the table's. It may delete files that running reads and writes
                need.
            log: False leaves the vacuum out of the history. It then writes nothing before it deletes files, so that it
                can make space on a full disk. (delta-spark's `spark.databricks.delta.vacuum.logging.enabled`.)
            inventory: Instead of listing, a table with the columns `path`, `length`, `isDir` and `modificationTime`
                (milliseconds), as for delta-spark's `USING INVENTORY`. It is read once, in batches, so that a
                `RecordBatchReader` may be larger than the memory; its files go to a temporary file (in `TMPDIR`) and
                take 8 bytes of memory each. A Spark DataFrame is read partition by partition.

        Raises `InvalidInputError` for a retention shorter than the table's without `force`, and for a lite vacuum of a
        table whose log lacks commits that it has to read; `UnsupportedFeatureError` for a table that deltic cannot
        write (PROTOCOL.md: "Vacuum Protocol Check").

        >>> import tempfile
        >>> import deltic, pyarrow as pa
        >>> table = deltic.Table(tempfile.mkdtemp() + "/orders")
        >>> for mode in ("append", "overwrite"):
        ...     _ = deltic.write(table, pa.table({"id": [1, 2]}), mode=mode)
        >>> table.vacuum(0, force=True).files_deleted
        1
        """
        arguments = vacuum_arguments(retention, mode, dry_run, force, log, inventory)
        with operation("vacuum", self._core.uri) as span:
            return span.record(VacuumResult.parse(*_deltic.vacuum(self._core, *arguments)))

    def write_manifests(self, *, dry_run: bool = False) -> ManifestsResult:
        """Write symlink manifests of the latest version, for engines that read Parquet but not Delta.

        `_symlink_format_manifest/[column=value/…]manifest` has the absolute path of each file of a partition, one a
        line, as delta-spark's `GENERATE symlink_format_manifest` writes it and Presto, Trino, Athena and Hive read it.
        Manifests of partitions that no longer exist are deleted. With the property
        `delta.compatibility.symlinkFormatManifest.enabled` those of the partitions that a commit touched are written
        after it; if that fails, the commit is not affected and a `RuntimeWarning` has the reason. This call writes all
        of them again.

        `dry_run`: True returns what would be written and deleted, and writes nothing.

        Raises `UnsupportedFeatureError` for a table whose files have deletion vectors (`purge` removes them), and for
        one with column mapping: readers of the files would apply neither.

        >>> import tempfile
        >>> import deltic, pyarrow as pa
        >>> uri = tempfile.mkdtemp() + "/readings"
        >>> _ = deltic.write(uri, pa.table({"day": [1, 2], "value": [3, 4]}), partition_by=["day"])
        >>> deltic.Table(uri).write_manifests().written
        ['_symlink_format_manifest/day=1/manifest', '_symlink_format_manifest/day=2/manifest']
        """
        only_plans = check_bool(dry_run, "dry_run")
        return ManifestsResult.parse(_deltic.write_manifests(self._core, only_plans), only_plans)

    def drop_feature(self, name: str, truncate_history: bool = False) -> Commit:
        """Drop a feature from the table's protocol, so that clients that do not support it can use the table again.

        The properties that enable it are removed with it, and row ids with `rowTracking`. When `deletionVectors` or
        `typeWidening` is dropped, files with deletion vectors or of narrower types are rewritten, as by `purge`, once
        the feature is disabled; all footers are read if a type was widened. For `columnMapping` all files are rewritten
        under the names of the schema, by the commit that removes the mapping, unless they have these names already. All
        else of the newest version that depends on the feature must be removed before, such as column names with a space
        (`rename_column`).

        Most features concern writers only and are dropped by one commit. If readers need it (`columnMapping`,
        `deletionVectors`, `typeWidening`, `v2Checkpoint`, `vacuumProtocolCheck`), older versions may still have traces,
        and there are two ways. By default three empty commits with a checkpoint each follow, and the last commit drops
        it and adds `checkpointProtection`, by which those checkpoints are kept. With `truncate_history` the log of the
        versions with traces is deleted, so that they cannot be read any more; nothing is protected. That takes two
        calls: the first one removes the traces from the newest version and raises, and the error says when the second
        one can delete the older versions. That is `delta.dropFeatureTruncateHistory.retentionDuration` (24 hours)
        after the last of them was replaced.

        If a step fails or is stopped, the table is still usable; call this again to go on. Returns the last commit.

        Arguments:
            name: The feature, such as `"deletionVectors"` (PROTOCOL.md: "Table Features").
            truncate_history: True deletes the log of the versions with traces. It is needed to drop
                `checkpointProtection`, and refused for features that only writers need.

        Raises `InvalidInputError` if the table does not have the feature, another needs it, it cannot be dropped, the
        newest version still depends on it, or versions with traces are too new to be deleted; the message says what to
        do. Raises `CommitConflictError` if another writer changes files meanwhile.

        >>> import tempfile
        >>> import deltic, pyarrow as pa
        >>> table = deltic.Table(tempfile.mkdtemp() + "/orders")
        >>> _ = deltic.create(table, pa.schema([("id", pa.int64())]), properties={"delta.enableChangeDataFeed": "true"})
        >>> _ = table.add_feature("domainMetadata")
        >>> table.drop_feature("changeDataFeed").version
        2
        >>> table.detail().table_features
        ['appendOnly', 'domainMetadata', 'invariants']
        """
        feature, truncates = check_str(name, "name"), check_bool(truncate_history, "truncate_history")
        return Commit.parse(_deltic.drop_feature(self._core, feature, truncates))

    def enable_row_tracking(self, max_attempts: int | None = None) -> int:
        """Enable row tracking, with row ids for the existing files, and return the version from which it is enabled.

        That takes several commits: one that adds the feature to the protocol, one for every 100,000 files, and one that
        sets `delta.enableRowTracking`. Other writers may commit meanwhile. If a step fails or is stopped, the table is
        still usable; call this again to go on. For a new table the property alone is enough (PROTOCOL.md: "Row
        Tracking").

        Arguments:
            max_attempts: How often to try each commit if other writers commit first, as in `transaction`.

        Raises `InvalidInputError` if a file's statistics do not have its number of rows, or the table has suspended row
        tracking (`delta.rowTrackingSuspended`), and the errors of commits.

        >>> import tempfile
        >>> import deltic, pyarrow as pa
        >>> table = deltic.Table(tempfile.mkdtemp() + "/orders")
        >>> _ = deltic.write(table, pa.table({"id": [1]}))
        >>> table.enable_row_tracking()
        3
        >>> table.scan(["id", "_metadata.row_id"]).to_arrow().to_pylist()
        [{'id': 1, '_metadata.row_id': 0}]
        """
        attempts = check_int(max_attempts, "max_attempts", 1)
        version, _files = _deltic.enable_row_tracking(self._core, attempts)
        return version
