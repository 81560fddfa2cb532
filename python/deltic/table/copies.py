"""Makes a version of a table its newest one (RESTORE), or another table (CLONE).

PROTOCOL.md: "Add File and Remove File".
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Any, Literal, TypeAlias, get_args

from deltic import _deltic
from deltic.arguments import (
    Time,
    check_bool,
    check_choice,
    check_int,
    check_properties,
    check_storage_options,
    commit_options,
    epoch_ms,
    location,
)
from deltic.display.instant import instant
from deltic.errors import InvalidInputError
from deltic.hints.keywords import with_keyword_hints
from deltic.monitoring.telemetry import operation
from deltic.results.restore import RestoreResult
from deltic.transaction.transaction import Commit

__all__ = ["CloneMode", "CopyMethods"]

CloneMode: TypeAlias = Literal["error", "replace", "update"]
"""What a clone does if there is a table already."""


class CopyMethods:
    """The methods of `Table` that make a version the newest one, of the same or another table."""

    _core: _deltic.Table

    @with_keyword_hints("Table.restore")
    def restore(
        self,
        version: int | None = None,
        timestamp: Time | None = None,
        *,
        ignore_missing_files: bool = False,
        protocol_downgrade_allowed: bool = False,
        dry_run: bool = False,
        user_metadata: Mapping[str, Any] | str | None = None,
        commit_info: Mapping[str, Any] | None = None,
        app_id: str | None = None,
        app_version: int | None = None,
        max_attempts: int | None = None,
    ) -> RestoreResult:
        """Restore the table to an older version, as one commit after the newest. The history is kept.

        If it is the newest version, there is nothing to restore: nothing is committed, and `RestoreResult.version` is
        None. With `app_id` a commit records the application's transaction all the same.

        Files that were removed since are added again, and those that were added since are removed, each with its
        deletion vector (PROTOCOL.md: "Add File and Remove File"). Schema, properties, partitioning and clustering
        columns are those of that version. Column ids, numbers of identity columns and row ids that were assigned since
        are not assigned again; in-commit timestamps stay enabled. Other metadata domains and application transactions
        are not changed. `changes` returns the rows that were added and removed.

        Before anything is written, requests check that the files to be added again exist, many at once.

        Arguments:
            version: The version; give this or `timestamp`.
            timestamp: The last version at this time, as for `Table.snapshot`.
            ignore_missing_files: True leaves out missing files, with their rows; `RestoreResult.missing` has their
                paths.
            protocol_downgrade_allowed: True restores that version's protocol, too. By default features that were added
                since are kept, since versions in between need them.
            dry_run: True returns what would be done, and which files are missing, and writes nothing.
            user_metadata: As for `transaction`, like the arguments below.
            commit_info: Further members of the commit info.
            app_id: The id of an application's transaction.
            app_version: The version of that transaction.
            max_attempts: The most attempts if other writers commit first.

        Raises `InvalidInputError` if files are missing (a vacuum deletes removed files), if the
        table is append-only, and if row tracking was dropped since; `VersionNotFoundError` if the log does not have the
        version; a `CommitConflictError` if another writer changed files, schema or properties meanwhile;
        `UnsupportedFeatureError` if deltic could not write the restored table. A vacuum that runs at the same time may
        delete files that are added again.

        >>> import tempfile
        >>> import deltic, pyarrow as pa
        >>> table = deltic.Table(tempfile.mkdtemp() + "/orders")
        >>> for value in range(3):
        ...     _ = deltic.write(table, pa.table({"id": [value]}), mode="overwrite")
        >>> table.restore(0, dry_run=True).num_restored_files
        1
        >>> result = table.restore(0)
        >>> result.version, result.num_restored_files, result.num_removed_files
        (3, 1, 1)
        >>> table.scan().to_arrow()["id"].to_pylist()
        [0]
        """
        if (version is None) == (timestamp is None):
            raise InvalidInputError("give the version to restore, or a timestamp")
        ms = epoch_ms(timestamp)
        only_plans = check_bool(dry_run, "dry_run")
        ignores_missing = check_bool(ignore_missing_files, "ignore_missing_files")
        options = {
            "ignore_missing_files": ignores_missing,
            "protocol_downgrade_allowed": check_bool(protocol_downgrade_allowed, "protocol_downgrade_allowed"),
            "dry_run": only_plans,
            "commit": commit_options(user_metadata, commit_info, app_id, app_version),
        }
        at = None if ms is None else (ms, _shown(ms))
        number, attempts = check_int(version, "version"), check_int(max_attempts, "max_attempts", 1)
        with operation("restore", self._core.uri) as span:
            done = _deltic.restore(self._core, number, at, json.dumps(options), attempts)
            return span.record(RestoreResult.parse(done, only_plans, ignores_missing))

    @with_keyword_hints("Table.clone")
    def clone(
        self,
        target: str | os.PathLike[str] | CopyMethods,
        *,
        shallow: bool = True,
        version: int | None = None,
        timestamp: Time | None = None,
        mode: CloneMode = "error",
        properties: Mapping[str, str] | None = None,
        storage_options: Mapping[str, str] | None = None,
        dry_run: bool = False,
        user_metadata: Mapping[str, Any] | str | None = None,
        commit_info: Mapping[str, Any] | None = None,
        app_id: str | None = None,
        app_version: int | None = None,
        max_attempts: int | None = None,
    ) -> Commit:
        """Make another table a copy of this one, as one commit of that table.

        The log of a shallow clone has the absolute URIs of this table's data files and deletion vectors. It is made in
        a moment, and can be read as long as these files exist: a vacuum of this table deletes files that only the clone
        needs; a vacuum of the clone deletes none of this table. If `version` or `timestamp` is given, requests check
        first that the files exist. A deep clone has copies of them below its own folder; they are copied many at once,
        piece by piece, before the commit. If that is stopped or fails, the copies are kept, and the next call copies
        the others (PROTOCOL.md: "Add File and Remove File", "Deletion Vectors").

        The clone has an id of its own, and the schema, partitioning, properties, protocol and clustering columns of
        this table; its rows keep their ids. Its history is its own: it has no older versions, change files, other
        metadata domains and application transactions of this table. `operationMetrics` have delta-spark's names:
        `sourceTableSize`, `sourceNumOfFiles`, `numRemovedFiles`, `removedFilesSize`, `numCopiedFiles`,
        `copiedFilesSize`.

        Arguments:
            target: The location of the clone: a path, a URL or a `Table`. Not below this table, nor above it.
            shallow: False copies the files.
            version: Which version of this table, the latest by default.
            timestamp: The last version at this time, as for `Table.snapshot`.
            mode: What to do if there is a table already: `"error"` raises an error; `"replace"` removes its files
                except those that both tables have, and continues its history; `"update"` does the same, and commits
                nothing if nothing differs (`Commit.attempts` is 0 then). Rows that were written to the clone
                are removed by both.
            properties: Table properties of the clone; they are added to those of this table, or override them.
            storage_options: The settings of the target's store, those of this table by default.
            dry_run: True writes nothing, and returns the commit that would be made: its version, its files, and in
                `metrics` how many files would be copied and their bytes. `Commit.attempts` is 0. If nothing differs,
                there are no metrics.
            user_metadata: As for `transaction`, like the arguments below.
            commit_info: Further members of the commit info.
            app_id: The id of an application's transaction.
            app_version: The version of that transaction.
            max_attempts: The most attempts if other writers commit first.

        Raises `TableExistsError` if there is a table and the mode is `"error"`; `UnsupportedFeatureError` if deltic
        cannot write such a table, or readers of a shallow clone could not use its paths: a clone in another bucket
        needs the storage option `allow_foreign_paths`, and a table in a bucket cannot have files of a local disk;
        `InvalidInputError` for a target inside this table, for properties that it cannot have, for a shallow clone of a
        version with missing files, and for a deep clone if the path of a copy has a file of another size, or one
        without a UUID in its name; `CorruptTableError` for a deep clone if a file is missing or has another size than
        in the log, or if its copy would be in the log folder; `CommitConflictError` if another writer changed the clone
        meanwhile.

        >>> import tempfile
        >>> import deltic, pyarrow as pa
        >>> folder = tempfile.mkdtemp()
        >>> _ = deltic.write(folder + "/orders", pa.table({"id": [1, 2]}))
        >>> table = deltic.Table(folder + "/orders")
        >>> table.clone(folder + "/test").version
        0
        >>> deltic.Table(folder + "/test").delete("id = 1").metrics["numDeletedRows"]
        1
        >>> planned = table.clone(folder + "/backup", shallow=False, dry_run=True)
        >>> planned.attempts, planned.metrics["numCopiedFiles"]
        (0, 1)
        >>> copy = table.clone(folder + "/backup", shallow=False)
        >>> copy.metrics["numCopiedFiles"]
        1
        >>> _ = deltic.write(table, pa.table({"id": [3]}))
        >>> table.clone(folder + "/backup", shallow=False, mode="update").metrics["numCopiedFiles"]
        1
        """
        if version is not None and timestamp is not None:
            raise InvalidInputError("give a version or a timestamp, not both")
        options = {
            "deep": not check_bool(shallow, "shallow"),
            "mode": check_choice(mode, "mode", get_args(CloneMode)),
            "properties": {} if properties is None else check_properties(properties),
            "commit": commit_options(user_metadata, commit_info, app_id, app_version),
        }
        both = (self._core, self._target(target, storage_options))
        number, attempts = check_int(version, "version"), check_int(max_attempts, "max_attempts", 1)
        only_plans, time_ms = check_bool(dry_run, "dry_run"), epoch_ms(timestamp)
        with operation("clone", both[1].uri) as span:
            return span.record(
                Commit.parse(_deltic.clone(both, number, time_ms, json.dumps(options), only_plans, attempts))
            )

    def _target(
        self, target: str | os.PathLike[str] | CopyMethods, storage_options: Mapping[str, str] | None
    ) -> _deltic.Table:
        if not isinstance(target, CopyMethods):
            options = self._core.storage_options if storage_options is None else check_storage_options(storage_options)
            return _deltic.Table(location(target), options)
        if storage_options is not None:
            raise InvalidInputError("the target is a Table, which has its storage_options; leave them out")
        return target._core


def _shown(ms: int) -> str:
    at = instant(ms)
    return f"{ms} ms" if at is None else at.strftime("%Y-%m-%d %H:%M:%S.%f")[:-3]
