"""A version of a table becomes its newest one (RESTORE), or another table (CLONE).

PROTOCOL.md: "Add File and Remove File".
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Any, Literal, TypeAlias

from deltic import _deltic
from deltic.arguments import (
    Time,
    commit_options,
    epoch_ms,
    flag,
    location,
    one_of,
    properties_of,
    settings,
    whole,
)
from deltic.copy_result import RestoreResult
from deltic.errors import InvalidInputError
from deltic.instant import instant
from deltic.telemetry import operation
from deltic.transaction import Commit

__all__ = ["CloneMode", "Copied"]

CloneMode: TypeAlias = Literal["error", "replace", "update"]
"""What a clone does where there is a table already."""


class Copied:
    """The methods of `Table` that make a version the newest one, of it or of another table."""

    _core: _deltic.Table

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
        """Make the table what it was at an older version, as one commit after the newest. The history stays.

        Files that were removed since are added again, and those that were added since are removed, each with its
        deletion vector (PROTOCOL.md: "Add File and Remove File"). Schema, properties, partitioning and clustering
        columns are those of that version. What was given out since is not given out again: column ids, numbers of
        identity columns, row ids; in-commit timestamps stay enabled and go on. Other metadata domains and application
        transactions stay as they are. `changes` reads the rows that were added and removed.

        Files that have to come back are looked for before anything is written, many at once.

        Arguments:
            version: Which version; give this or `timestamp`.
            timestamp: The last version at this time, as `Table.snapshot` takes it.
            ignore_missing_files: True restores what there is: missing files are left out, with their rows, and are
                told as `RestoreResult.missing`.
            protocol_downgrade_allowed: True gives the table that version's protocol. By default features that were
                added since stay, for versions in between need them.
            dry_run: True finds out what would be done, and which files are missing, and writes nothing.
            user_metadata: As for `transaction`, like the arguments below.
            commit_info: Further members of the commit info.
            app_id: The application whose transaction it is.
            app_version: The number of that transaction.
            max_attempts: How often to try before giving up.

        Raises `InvalidInputError` for the newest version, when files are missing (a vacuum deletes those that were
        removed), when the table is append-only, and when row tracking was dropped since; `VersionNotFoundError` when
        the log does not have the version; a `CommitConflictError` when another writer changed files, schema or
        properties meanwhile; `UnsupportedFeatureError` when deltic could not write the table then. A vacuum that runs
        at the same time may delete files that come back.

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
        only_plans = flag(dry_run, "dry_run")
        ignores_missing = flag(ignore_missing_files, "ignore_missing_files")
        options = {
            "ignore_missing_files": ignores_missing,
            "protocol_downgrade_allowed": flag(protocol_downgrade_allowed, "protocol_downgrade_allowed"),
            "dry_run": only_plans,
            "commit": commit_options(user_metadata, commit_info, app_id, app_version),
        }
        at = None if ms is None else (ms, _shown(ms))
        number, attempts = whole(version, "version"), whole(max_attempts, "max_attempts", 1)
        with operation("restore", self._core.uri) as span:
            done = _deltic.restore(self._core, number, at, json.dumps(options), attempts)
            return span.record(RestoreResult.parse(done, only_plans, ignores_missing))

    def clone(
        self,
        target: str | os.PathLike[str] | Copied,
        *,
        shallow: bool = True,
        version: int | None = None,
        timestamp: Time | None = None,
        mode: CloneMode = "error",
        properties: Mapping[str, str] | None = None,
        storage_options: Mapping[str, str] | None = None,
        user_metadata: Mapping[str, Any] | str | None = None,
        commit_info: Mapping[str, Any] | None = None,
        app_id: str | None = None,
        app_version: int | None = None,
        max_attempts: int | None = None,
    ) -> Commit:
        """Make another table what this one is, as one commit of that table.

        A shallow clone names the data files and deletion vectors of this table where they are, by absolute URIs. It is
        made in a moment, and lives as long as these files: a vacuum of this table deletes what only the clone needs,
        one of the clone never touches this table. The files of a version that is named are looked for first. A deep
        clone has copies of them below its own folder; they are copied many at once, piece by piece, before the commit.
        When that is stopped or fails the copies stay, and running it again copies the others (PROTOCOL.md: "Add File
        and Remove File", "Deletion Vectors").

        The clone has an id of its own, and schema, partitioning, properties, protocol and clustering columns of this
        table; its rows keep their ids. Its history is its own: older versions, change files, other metadata domains and
        application transactions stay here. `operationMetrics` have delta-spark's names: `sourceTableSize`,
        `sourceNumOfFiles`, `numRemovedFiles`, `removedFilesSize`, `numCopiedFiles`, `copiedFilesSize`.

        Arguments:
            target: Where the clone goes: a path, a URL or a `Table`. Not below this table, nor above it.
            shallow: False copies the files.
            version: Which version of this table, the latest by default.
            timestamp: The last version at this time, as `Table.snapshot` takes it.
            mode: What happens where there is a table: `"error"`; `"replace"` takes its files out but for those that
                both have, and its history goes on; `"update"` does the same, and commits nothing if nothing differs
                (`Commit.attempts` is 0 then). Rows that were written to the clone are gone after either.
            properties: Table properties of the clone besides those of this table, or instead of them.
            storage_options: The settings of the target's store, those of this table by default.
            user_metadata: As for `transaction`, like the arguments below.
            commit_info: Further members of the commit info.
            app_id: The application whose transaction it is.
            app_version: The number of that transaction.
            max_attempts: How often to try before giving up.

        Raises `TableExistsError` when there is a table and the mode is `"error"`; `UnsupportedFeatureError` when deltic
        cannot write such a table, or readers of a shallow clone could not follow its paths: one in another bucket needs
        the storage option `allow_foreign_paths`, and a table in a bucket never names files of a local disk;
        `InvalidInputError` for a target inside this table, for properties that it cannot have, for a shallow clone of a
        version whose files are gone, and for a deep clone where a file of another size or without a UUID in its name is
        in the place of a copy; `CorruptTableError` for a deep clone of a file that is gone or of another size than the
        log says, or whose copy would be in the log; `CommitConflictError` when another writer changed the clone
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
            "deep": not flag(shallow, "shallow"),
            "mode": one_of(mode, "mode", ("error", "replace", "update")),
            "properties": {} if properties is None else properties_of(properties),
            "commit": commit_options(user_metadata, commit_info, app_id, app_version),
        }
        both = (self._core, self._target(target, storage_options))
        number, attempts = whole(version, "version"), whole(max_attempts, "max_attempts", 1)
        with operation("clone", both[1].uri) as span:
            return span.record(
                Commit.parse(_deltic.clone(both, number, epoch_ms(timestamp), json.dumps(options), attempts))
            )

    def _target(
        self, target: str | os.PathLike[str] | Copied, storage_options: Mapping[str, str] | None
    ) -> _deltic.Table:
        if not isinstance(target, Copied):
            options = self._core.storage_options if storage_options is None else settings(storage_options)
            return _deltic.Table(location(target), options)
        if storage_options is not None:
            raise InvalidInputError("the target is a Table, which has its storage_options; leave them out")
        return target._core


def _shown(ms: int) -> str:
    at = instant(ms)
    return f"{ms} ms" if at is None else at.strftime("%Y-%m-%d %H:%M:%S.%f")[:-3]
