"""A table that becomes what one of its versions was: RESTORE.

PROTOCOL.md: "Add File and Remove File".
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime, timedelta, timezone
from typing import Any

from deltic import _deltic
from deltic.arguments import LEAST, Time, epoch_ms, flag, json_object, json_or_string, optional_string, whole
from deltic.copy_result import RestoreResult
from deltic.errors import InvalidInputError

__all__ = ["Copied"]

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


class Copied:
    """The verbs of `Table` that make a version a table's newest one."""

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
        transactions stay as they are. `changes` reads what came and went.

        Files that have to come back are looked for before anything is written, many at once.

        Arguments:
            version: Which version; give this or `timestamp`.
            timestamp: The last version at this time, as `Table.snapshot` takes it.
            ignore_missing_files: True restores what there is: missing files are left out, with their rows, and are
                told as `RestoreResult.missing`.
            protocol_downgrade_allowed: True gives the table that version's protocol. By default features that were
                added since stay, for versions in between need them.
            dry_run: True finds out what would be done, and which files are missing, and writes nothing.
            user_metadata: As for `transaction`, like `commit_info`, `app_id`, `app_version` and `max_attempts`.

        Raises `InvalidInputError` for the newest version, when files are missing (a vacuum deletes those that were
        removed), when the table is append-only, and when row tracking was dropped since; `VersionNotFoundError` when
        the log does not have the version; a `CommitConflictError` when another writer changed files, schema or properties
        meanwhile; `UnsupportedFeatureError` when deltic could not write the table then. A vacuum that runs at the same
        time may delete files that come back.

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
        options = {
            "ignore_missing_files": flag(ignore_missing_files, "ignore_missing_files"),
            "protocol_downgrade_allowed": flag(protocol_downgrade_allowed, "protocol_downgrade_allowed"),
            "dry_run": only_plans,
            "commit": {
                "user_metadata": json_or_string(user_metadata, "user_metadata"),
                "commit_info": {} if commit_info is None else json_object(commit_info, "commit_info"),
                "app_id": optional_string(app_id, "app_id"),
                "app_version": whole(app_version, "app_version", LEAST),
            },
        }
        told = _deltic.restore(
            self._core,
            whole(version, "version"),
            None if ms is None else (ms, _shown(ms)),
            json.dumps(options),
            whole(max_attempts, "max_attempts", 1),
        )
        return RestoreResult.parse(told, only_plans)


def _shown(ms: int) -> str:
    try:
        return (_EPOCH + timedelta(milliseconds=ms)).strftime("%Y-%m-%d %H:%M:%S.%f")[:-3]
    except OverflowError:
        return f"{ms} ms"
