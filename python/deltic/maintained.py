"""What keeps a table small, fast and usable: checkpoints, log cleanup, OPTIMIZE, PURGE, VACUUM, features that go.

PROTOCOL.md: "Checkpoints", "Metadata Cleanup", "Vacuum Protocol Check".
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

from deltic import _deltic
from deltic.arguments import condition, flag, json_or_string, string, whole
from deltic.maintenance import OptimizeResult, optimize_options
from deltic.manifests_result import ManifestsResult
from deltic.purge_result import PurgeResult
from deltic.repair_result import RepairResult
from deltic.telemetry import operation
from deltic.transaction import Commit
from deltic.vacuum_result import VacuumMode, VacuumResult, vacuum_arguments

__all__ = ["Maintained"]


class Maintained:
    """The methods of `Table` for maintenance: its rows stay as they are, but for those that `purge` deletes."""

    _core: _deltic.Table

    def checkpoint(self) -> int:
        """Write a checkpoint of the latest version and return that version (PROTOCOL.md: "Checkpoints")."""
        with operation("checkpoint", self._core.uri) as span:
            return span.record(self._core.checkpoint())

    def write_checksum(self) -> int:
        """Write the checksum of the latest version, if it has none, and return that version.

        Commits of deltic write theirs by themselves as long as the version before has one; this starts again by
        counting all files (PROTOCOL.md: "Version Checksum File").
        """
        return self._core.write_checksum()

    def clean_log(self) -> int:
        """Delete log files older than `delta.logRetentionDuration` (30 days) and return how many.

        Only what a checkpoint replaces is deleted: versions before it can no longer be read, the others can. Commits of
        deltic do this by themselves now and then, unless `delta.enableExpiredLogCleanup` is false (PROTOCOL.md:
        "Metadata Cleanup").
        """
        return self._core.clean_log()

    def compact_log(self, start: int | None = None, end: int | None = None) -> str:
        """Write one log file that stands for the commits `start` to `end`, and return its path below the table.

        Without them: from the commit after the last checkpoint to the newest. Readers that know compactions read that
        file instead of the commits, which stay where they are; the table is the same. One that is there already is left
        alone (PROTOCOL.md: "Log Compaction Files").

        Raises `InvalidInputError` for fewer than two commits, or when one of them is no longer in the log.
        """
        return self._core.compact_log(whole(start, "start"), whole(end, "end"))

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
        """Write files again in a better layout: fewer of them, or ordered so that queries skip more. No row changes.

        A table with clustering columns is clustered: rows are ordered along a Hilbert curve through these columns.
        Files that were clustered together stay as they are when they have 100 GiB or more, or when nothing was added;
        with `full=True` all files are written again. On other tables `zorder_by` orders the rows of each partition
        along a Z-order curve through a column, or up to four or so, and takes all files. Without it small files are put
        together (compaction): those below the target size, and those of which more than a twentieth of the rows are
        deleted. The order of their rows stays.

        `where`: a condition on partition columns; only these partitions are looked at. `target_file_size`: bytes that
        a file should have, or a string such as `"256 MB"`, whose units are powers of 1,024 as those of the property;
        `delta.targetFileSize` or 1 GiB if not given. `max_tasks`: how many groups of files are
        written at a time, one for each processor if not given. `dry_run`: find out what would be done, write nothing.

        Deletion vectors are applied, rows keep their ids where the table tracks rows, and the change data feed does
        not show it (PROTOCOL.md: `dataChange` in "Add File and Remove File"). Of a large table a commit takes 64 GiB
        of files, and what is interrupted goes on from the last one when called again. Other writers may go on: where
        they remove a file that was to be replaced, or rows of it, the group that it is in is left as it is
        (`files_lost`), and the rest is committed. Appends are never in the way.

        Raises `InvalidInputError` for a condition on other columns, for columns that the table lacks or that have no
        order, and for `zorder_by` on a clustered table; `MetadataChangedError` when another writer changed the table's
        schema meanwhile; `StorageError` when the store fails.

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
        only_plans = flag(dry_run, "dry_run")
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
        """Write files again that hold more than the table does: deleted rows, and columns that were dropped.

        Every live file with a deletion vector is written again without the rows that it deletes, and, where columns are
        mapped and any was dropped, every file that still has one: footers are read then, one request a file, 64 at
        once. The table has the same rows before and after, with the same ids where it tracks rows; streams and the
        change data feed see nothing (PROTOCOL.md: `dataChange` in "Add File and Remove File"). The history shows
        `REORG`, as delta-spark's `REORG TABLE … APPLY (PURGE)`.

        With `where`, rows are purged: those that make it TRUE are deleted first, by a commit of their own, and their
        files are written again whatever `delta.enableDeletionVectors` says. No live file holds one afterwards. Older
        versions do, and so does the change data feed, which shows the delete: the result says in `held` which versions,
        which files, and what a vacuum would take of them. Files that may hold such rows are read to find out, before
        anything is changed; what `vacuum` took already holds nothing, and what cannot be read may hold anything. The
        log itself keeps statistics and partition values of old files until it is cleaned up.

        Arguments:
            where: SQL, as that of `delete`.
            max_tasks: How many groups of files are written at a time, one for each processor if not given.
            dry_run: True finds out what would be done, and writes nothing. `held` is of the table as it is then.
            user_metadata: A string, or a mapping to be stored as JSON, for the history.
            max_attempts: As for `Table.transaction`.

        Other writers may go on, as beside `optimize`: files that they got to meanwhile are left as they are
        (`files_lost`).

        Raises what `delete` raises for `where`, `CorruptTableError` for a file whose footer cannot be read, and what
        `optimize` raises.

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
        >>> result.rows_deleted, result.held.versions, result.held.files
        (1, [0, 1], 1)
        >>> table.vacuum(0, force=True).files_deleted == result.held.files + 1  # and the file of a deletion vector
        True
        """
        options = {
            "filter": condition(where, "where"),
            "max_tasks": whole(max_tasks, "max_tasks", 1),
            "user_metadata": json_or_string(user_metadata, "user_metadata"),
        }
        only_plans, attempts = flag(dry_run, "dry_run"), whole(max_attempts, "max_attempts", 1)
        with operation("purge", self._core.uri) as span:
            purged = _deltic.purge(self._core, json.dumps(options), only_plans, attempts)
            return span.record(PurgeResult.parse(purged, only_plans))

    def repair(self, dry_run: bool = True, *, max_attempts: int | None = None) -> RepairResult:
        """Mend what `check(files=True)` finds in the newest version, or say what that would do.

        Nothing is written unless `dry_run` is False.
        Each step has a message about what is wrong and what is done:

        - A checkpoint that cannot be read, or that the commits before it and a checksum prove wrong: a new one is
          written from the rest of the log, and the damaged one is deleted. Where nothing else leads to the newest
          version, `CorruptTableError` says so. Where a checkpoint and the commits disagree and checksums do not prove
          the checkpoint wrong, nothing is changed.
        - `_last_checkpoint` that is missing, cannot be read, or is not about the newest checkpoint: a checkpoint is
          written, which it names then.
        - The checksum of the newest version, missing or wrong: all files are counted, and it is written anew. One that
          counts other files than the log stays, unless a checkpoint of that version says what the log says: the log may
          have lost some, so no checkpoint is written of it either.
        - Data files that are not there leave the table, by one commit with the operation `FSCK`. Their rows are lost.
          So do data files whose file of deletion vectors is not there, since it is not known which of their rows are
          deleted. Restoring the files is better, where they are anywhere. The change data feed of that version cannot
          be read.

        A file with another size than the log says, or one by an absolute path outside the table that is not there, is
        only reported; so is everything where deltic cannot write to the table. Each live file
        costs a request, 64 at once. A file counts as missing only where the store says so: any other answer, such as
        that it may not be looked at, ends the repair with `StorageError` and nothing is removed.

        Arguments:
            dry_run: False does it. Running it again goes on from where a failure stopped it.
            max_attempts: As for `Table.transaction`.

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
        """
        only_plans, attempts = flag(dry_run, "dry_run"), whole(max_attempts, "max_attempts", 1)
        with operation("repair", self._core.uri) as span:
            return span.record(RepairResult.parse(_deltic.repair(self._core, only_plans, attempts), only_plans))

    def vacuum(
        self,
        retention: timedelta | float | str | None = None,
        *,
        mode: VacuumMode = "full",
        dry_run: bool = False,
        force: bool = False,
        inventory: Any = None,
    ) -> VacuumResult:
        """Delete files that no version within the retention needs.

        Kept are the files of every version that was current within the retention, their deletion vectors and change
        files, and whatever was written since: a writer may not have committed yet. Of the rest, what is below the
        table goes, but for files and folders whose names begin with `_` or `.`. Versions before the retention can no
        longer be read. The history gets a commit when it begins and one when it ends; memory is bounded by the number
        of files that are kept (8 bytes each, 16 on a disk). What fails or is stopped leaves the table whole; call this
        again.

        Arguments:
            retention: A `timedelta`, a number of hours, or a string such as `"7 days"`, `"1 week"` or `"168 hours"`; by
                default `delta.deletedFileRetentionDuration` (a week).
            mode: `"full"` lists the whole table. `"lite"` asks the log for what commits removed since the last vacuum:
                faster, and blind to files of writers that never committed.
            dry_run: True finds the files, as `VacuumResult.files`, and deletes none.
            force: True allows a retention shorter than the table's. Files of readers and writers that are at work may
                go then.
            inventory: Instead of listing, a table with the columns `path`, `length`, `isDir` and `modificationTime`
                (milliseconds), as delta-spark's `USING INVENTORY` takes it.

        Raises `InvalidInputError` for a retention shorter than the table's without `force`, and for a lite vacuum of a
        table whose log lacks commits that it has to look at; `UnsupportedFeatureError` for a table that deltic cannot
        write (PROTOCOL.md: "Vacuum Protocol Check").

        >>> import tempfile
        >>> import deltic, pyarrow as pa
        >>> table = deltic.Table(tempfile.mkdtemp() + "/orders")
        >>> for mode in ("append", "overwrite"):
        ...     _ = deltic.write(table, pa.table({"id": [1, 2]}), mode=mode)
        >>> table.vacuum(0, force=True).files_deleted
        1
        """
        arguments = vacuum_arguments(retention, mode, dry_run, force, inventory)
        with operation("vacuum", self._core.uri) as span:
            return span.record(VacuumResult.parse(*_deltic.vacuum(self._core, *arguments)))

    def write_manifests(self, *, dry_run: bool = False) -> ManifestsResult:
        """Write symlink manifests of the latest version, for engines that read Parquet and know no Delta.

        `_symlink_format_manifest/[column=value/…]manifest` has a line for each file of a partition, its absolute path,
        as delta-spark's `GENERATE symlink_format_manifest` writes it and Presto, Trino, Athena and Hive read it.
        Manifests of partitions that are gone are deleted. With the property
        `delta.compatibility.symlinkFormatManifest.enabled` all of them are written after each commit; where that fails,
        the commit stands and a `RuntimeWarning` says why.

        `dry_run`: True finds out what would be written and deleted, and writes nothing.

        Raises `UnsupportedFeatureError` for a table whose files have deletion vectors (`purge` takes them away), and
        for one whose columns are mapped: readers of the files would not know.

        >>> import tempfile
        >>> import deltic, pyarrow as pa
        >>> uri = tempfile.mkdtemp() + "/readings"
        >>> _ = deltic.write(uri, pa.table({"day": [1, 2], "value": [3, 4]}), partition_by=["day"])
        >>> deltic.Table(uri).write_manifests().written
        ['_symlink_format_manifest/day=1/manifest', '_symlink_format_manifest/day=2/manifest']
        """
        only_plans = flag(dry_run, "dry_run")
        return ManifestsResult.parse(_deltic.write_manifests(self._core, only_plans), only_plans)

    def drop_feature(self, name: str, truncate_history: bool = False) -> Commit:
        """Drop a feature from the table's protocol, so that clients that do not know it can use the table again.

        The properties that enable it go with it, and row ids with `rowTracking`. What else the newest version has of it
        must be gone before. Readers do not need most features; of those that they need (`columnMapping`,
        `deletionVectors`, `typeWidening`, `v2Checkpoint`, `vacuumProtocolCheck`) older versions may still have traces:
        the feature is disabled, three empty commits with a checkpoint each follow, and the last commit drops it and
        adds `checkpointProtection`, by which those checkpoints stay. Files with deletion vectors are written again
        without them, as by `purge`, once `deletionVectors` is disabled. What fails or is stopped in between leaves a
        table that is as good as before; call this again to go on. Returns the last commit.

        Arguments:
            name: The feature, such as `"deletionVectors"` (PROTOCOL.md: "Table Features").
            truncate_history: True, for dropping the versions that have traces instead of protecting checkpoints, is
                refused: deltic keeps history.

        Raises `InvalidInputError` when the table has not the feature, another needs it, it cannot be dropped, or
        something is left of it, saying what to do.

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
        feature, truncates = string(name, "name"), flag(truncate_history, "truncate_history")
        return Commit.parse(_deltic.drop_feature(self._core, feature, truncates))

    def enable_row_tracking(self, max_attempts: int | None = None) -> int:
        """Enable row tracking, giving ids to the files that the table has, and return the version that has it.

        That takes several commits: one that adds the feature to the protocol, one for every 100,000 files, and one that
        sets `delta.enableRowTracking`. Others may go on writing. What fails or is stopped in between leaves a table
        that is as good as before; call this again to go on. New tables have it from the start by the property alone
        (PROTOCOL.md: "Row Tracking").

        Raises `InvalidInputError` when a file's statistics do not say how many rows it has or the table has suspended
        row tracking (`delta.rowTrackingSuspended`), and what commits raise.
        """
        attempts = whole(max_attempts, "max_attempts", 1)
        version, _files = _deltic.enable_row_tracking(self._core, attempts)
        return version
