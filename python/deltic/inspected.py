"""What reads a table and changes nothing: the layout of its files, a comparison of versions, a page about it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa

from deltic import _deltic
from deltic.arguments import Time, byte_size, epoch_ms, flag, names, whole
from deltic.check import Check
from deltic.difference import Diff
from deltic.errors import InvalidInputError, UnsupportedFeatureError
from deltic.file_layout import SMALL_FILE, Layout
from deltic.maintenance import OptimizeResult
from deltic.report_page import COMMITS, Facts, page
from deltic.scan import reader
from deltic.snapshot import Snapshot
from deltic.vacuum_result import VacuumMode, VacuumResult

__all__ = ["Inspected"]


class _Inspectable(Protocol):
    """The methods of `Table` that these need; `Table` itself imports this module."""

    _core: _deltic.Table

    def snapshot(self, version: int | None = None, timestamp: Time | None = None) -> Snapshot: ...
    def history(self, limit: int | None = None) -> list[dict[str, Any]]: ...
    def check(self, version: int | None = None) -> Check: ...
    def optimize(self, *, dry_run: bool = False) -> OptimizeResult: ...
    def vacuum(self, *, mode: VacuumMode = "full", dry_run: bool = False) -> VacuumResult: ...


class Inspected:
    """The methods of `Table` that read its log and write nothing to it."""

    def layout(
        self: _Inspectable, columns: Sequence[str] | None = None, *, small_file_size: int | str = SMALL_FILE
    ) -> Layout:
        """Find out the layout of the files of the latest version: sizes, skipping, partitions, vectors. See `Layout`.

        Arguments:
            columns: Those to say the skipping of, fields of structs with dots as in `Snapshot.files`. By default all
                partition columns and all columns with bounds.
            small_file_size: Bytes below which a file counts as small, or a string such as `"16 MB"`.

        Only the log is read. Memory grows with the number of files and of columns that have bounds: 16 bytes or more
        for each of both.

        Raises what `snapshot` raises, and `InvalidInputError` for a column without partition values and bounds.

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
        wanted, small = names(columns, "columns"), byte_size(small_file_size, "small_file_size")
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
        """Find out what differs between two versions: schema, properties, protocol, files, rows. See `Diff`.

        Arguments:
            from_version: The version to compare with; give this or `from_timestamp`.
            to_version: The version that is compared, the latest if not given. It may be the older one.
            rows: True compares the rows too, without a change feed.
            from_timestamp: Instead of a version, the last one at this time, as `Table.snapshot` takes it.
            to_timestamp: The same for the version that is compared.

        The files are compared by the log. A file is the same when its path is, and counts as changed when it has
        another deletion vector. With `rows`, files are read that only one version has or that have another
        deletion vector; after a change of the schema, all files. Where both versions track rows, a row that has its id
        in both is updated if its values differ. Otherwise an update is a delete and an insert, and rows that were
        merely written again cancel out, each as often as it is there. NaN equals NaN, -0.0 and 0.0 differ, entries of
        maps count in their order. Rows of the other version are read in the columns of `to_version`: a column that it
        lacks is null, one that was dropped is left out, a wider type is taken.

        Memory: without `rows` the paths of all files; with them also the rows of the files that are read, more than
        once, and for every file of both versions about as many bytes as the schema has as JSON.

        Raises what `snapshot` raises for either version; with `rows` `InvalidInputError` for a column whose type
        changed to one that does not hold all its values, and `CorruptTableError` for a data file that VACUUM has
        deleted.

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
        compares_rows = flag(rows, "rows")
        first, last = whole(from_version, "from_version"), whole(to_version, "to_version")
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
        """Write a page of HTML about the latest version, and return where it is.

        On it are what the table is and how healthy, its history, file sizes, what queries skip, partitions, deletion
        vectors, and what OPTIMIZE and VACUUM would do. All but VACUUM is of one version, also where others commit
        meanwhile. The page needs nothing else: no script, no network. It is light or dark as the reader's browser is.

        Arguments:
            path: The file to write; one that is there is replaced.
            vacuum: How to find out what VACUUM would do: `"full"` lists the table's folder, `"lite"` asks the log;
                None leaves it out.

        Raises what `layout` and `vacuum` raise, and `InvalidInputError` where the file cannot be written.

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
        # Others may commit meanwhile: all but what VACUUM would do is of this version.
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
    """The latest version, and what OPTIMIZE would do to it, or why it would not."""
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
