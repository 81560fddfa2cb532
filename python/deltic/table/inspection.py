"""Methods that only read a table: the layout of its files, a comparison of versions, a report page."""

from __future__ import annotations

import os
from collections.abc import Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa

from deltic import _deltic
from deltic.arguments import Time, byte_size, check_bool, check_int, check_names, epoch_ms
from deltic.errors import InvalidInputError, UnsupportedFeatureError
from deltic.inspection.difference import Diff
from deltic.inspection.layout import SMALL_FILE, Layout
from deltic.inspection.report_page import COMMITS, Facts, page
from deltic.reading.scan import reader
from deltic.reading.snapshot import Snapshot
from deltic.results.check import Check
from deltic.results.optimize import OptimizeResult
from deltic.results.vacuum import VacuumMode, VacuumResult

__all__ = ["InspectionMethods"]


class _Inspectable(Protocol):
    """The methods of `Table` that are used here; `Table` itself imports this module."""

    _core: _deltic.Table

    def snapshot(self, version: int | None = None, timestamp: Time | None = None) -> Snapshot: ...
    def history(self, limit: int | None = None) -> list[dict[str, Any]]: ...
    def check(self, version: int | None = None) -> Check: ...
    def optimize(self, *, dry_run: bool = False) -> OptimizeResult: ...
    def vacuum(self, *, mode: VacuumMode = "full", dry_run: bool = False) -> VacuumResult: ...


class InspectionMethods:
    """The methods of `Table` that read its log and write nothing to it."""

    def layout(
        self: _Inspectable, columns: Sequence[str] | None = None, *, small_file_size: int | str = SMALL_FILE
    ) -> Layout:
        """Return the layout of the files of the latest version: sizes, skipping, partitions, vectors (`Layout`).

        Arguments:
            columns: The columns whose skipping is described, fields of structs with dots as in `Snapshot.files`. By
                default all partition columns and all columns with bounds.
            small_file_size: Bytes below which a file counts as small, or a string such as `"16 MB"`.

        Only the log is read. Memory grows with the number of files times that of columns with bounds: at least 16 bytes
        for each pair.

        Raises the errors of `snapshot`, and `InvalidInputError` for a column without partition values and bounds.

        >>> import tempfile
        >>> import deltic, pyarrow as pa
        >>> uri = tempfile.mkdtemp() + "/readings"
        >>> for day in range(4):
        ...     _ = deltic.write(uri, pa.table({"day": [day, day], "value": [0, 100]}))
        >>> layout = deltic.Table(uri).layout()
        >>> layout.num_files, layout.small_files, layout.optimize.expected_files
        (4, 4, 1)
        >>> layout.to_arrow().select(["column", "files_read", "share_skipped"]).to_pylist()
        [{'column': 'day', 'files_read': 1.0, 'share_skipped': 0.75},
         {'column': 'value', 'files_read': 4.0, 'share_skipped': 0.0}]
        """
        wanted, small = check_names(columns, "columns"), byte_size(small_file_size, "small_file_size")
        snapshot, gain = _with_gain(self)
        return Layout.of(snapshot, wanted, SMALL_FILE if small is None else small, gain)

    def diff(
        self: _Inspectable,
        from_version: int | None = None,
        to_version: int | None = None,
        rows: bool = False,
        *,
        from_timestamp: Time | None = None,
        to_timestamp: Time | None = None,
    ) -> Diff:
        """Compare two versions: schema, properties, protocol, files, rows (`Diff`).

        Arguments:
            from_version: The version before; give this or `from_timestamp`.
            to_version: The version after, by default the latest. It may be the older of the two.
            rows: True compares the rows too, without the change data feed.
            from_timestamp: Instead of `from_version`, the last version at this time, as for `Table.snapshot`.
            to_timestamp: The same instead of `to_version`.

        The files are compared by the log. Files with the same path are the same file, which is changed if it has
        another deletion vector. With `rows`, files that only one version has and files with another deletion vector are
        read; after a change of the schema, all files. If both versions track rows, a row with the same id in both is an
        update if its values differ. Otherwise an update is a delete and an insert, and equal rows of both versions
        cancel out, as often as both have them. NaN equals NaN, -0.0 and 0.0 differ, and maps with the same entries in
        another order differ. Rows of `from_version` are read with the columns of `to_version`: a new column is null, a
        dropped one is left out, a wider type is used.

        Memory: without `rows` the paths of all files; with `rows` also several copies of the rows that are read, and
        for every file of both versions about as many bytes as the schema has as JSON.

        Raises the errors of `snapshot` for either version; with `rows` `InvalidInputError` for a column whose type
        changed to one that cannot have all its values, and `CorruptTableError` for a data file that VACUUM has deleted.

        >>> import tempfile
        >>> import deltic, pyarrow as pa
        >>> uri = tempfile.mkdtemp() + "/stock"
        >>> _ = deltic.write(uri, pa.table({"item": ["nut", "bolt"], "left": [0, 3]}))
        >>> table = deltic.Table(uri)
        >>> _ = table.update({"left": "7"}, "item = 'nut'")
        >>> diff = table.diff(0, rows=True)
        >>> diff.files_added, diff.files_removed, diff.rows_added
        (1, 1, 2)
        >>> diff.to_arrow().to_pylist()
        [{'_change_type': 'delete', 'item': 'nut', 'left': 0}, {'_change_type': 'insert', 'item': 'nut', 'left': 7}]
        """
        compares_rows = check_bool(rows, "rows")
        first, last = check_int(from_version, "from_version"), check_int(to_version, "to_version")
        if (first is None) == (from_timestamp is None):
            raise InvalidInputError("give from_version or from_timestamp: the version to compare with")
        if last is not None and to_timestamp is not None:
            raise InvalidInputError("give to_version or to_timestamp, not both")
        epoch_ms(from_timestamp, "from_timestamp")
        epoch_ms(to_timestamp, "to_timestamp")
        before, after = self.snapshot(first, from_timestamp), self.snapshot(last, to_timestamp)

        def read(group: bytes) -> pa.RecordBatchReader:
            return reader(_deltic.read_task_group(self._core.uri, self._core.storage_options, group, None))

        return Diff.of(before, after, read if compares_rows else None)

    def report(self: _Inspectable, path: str | os.PathLike[str], *, vacuum: VacuumMode | None = "full") -> Path:
        """Write an HTML page about the latest version, and return its path.

        It has the facts about the table, results of checks, its history, file sizes, skipping by queries, partitions,
        deletion vectors, and what OPTIMIZE and VACUUM would do. All but VACUUM is about one version, even if others
        commit meanwhile. The page needs no script and no network, and is light or dark as the browser prefers.

        Arguments:
            path: The file to write; an existing one is replaced.
            vacuum: How to find the files that VACUUM would delete: `"full"` lists the table's folder, `"lite"` takes
                them from the log; None leaves it out.

        Raises the errors of `layout` and `vacuum`, and `InvalidInputError` if the file cannot be written.

        >>> import tempfile
        >>> import deltic, pyarrow as pa
        >>> folder = tempfile.mkdtemp()
        >>> _ = deltic.write(folder + "/readings", pa.table({"day": [1, 2], "value": [3, 4]}))
        >>> deltic.Table(folder + "/readings").report(folder + "/report.html").name
        'report.html'
        """
        if vacuum not in ("full", "lite", None):
            raise InvalidInputError(f'vacuum must be "full", "lite" or None, not {vacuum!r}')
        if not isinstance(path, str | os.PathLike) or not isinstance(os.fspath(path), str):
            raise InvalidInputError(f"path must be a path, not {type(path).__name__}")
        # Others may commit meanwhile: everything except the VACUUM part is about this version.
        snapshot, gain = _with_gain(self)
        facts = Facts(
            detail=snapshot.detail(),
            schema=snapshot.schema,
            layout=Layout.of(snapshot, None, SMALL_FILE, gain),
            check=self.check(snapshot.version),
            history=[entry for entry in self.history(COMMITS) if entry["version"] <= snapshot.version],
            vacuum_mode=vacuum,
            vacuum=None if vacuum is None else _vacuum_preview(self, vacuum),
            made=datetime.now(timezone.utc),
        )
        where = Path(path)
        try:
            where.write_text(page(facts), encoding="utf-8")
        except OSError as error:
            raise InvalidInputError(f"the report cannot be written: {error}") from error
        return where


def _with_gain(table: _Inspectable) -> tuple[Snapshot, OptimizeResult | UnsupportedFeatureError]:
    """The latest version, and what OPTIMIZE would do to it, or why it cannot."""
    try:
        gain = table.optimize(dry_run=True)
    except UnsupportedFeatureError as error:
        return table.snapshot(), error
    return table.snapshot(gain.read_version), gain


def _vacuum_preview(table: _Inspectable, mode: VacuumMode) -> VacuumResult | str:
    try:
        return table.vacuum(mode=mode, dry_run=True)
    except (UnsupportedFeatureError, InvalidInputError) as error:
        # A lite vacuum needs commits that log cleanup may have removed.
        return str(error)
