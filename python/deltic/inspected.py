"""What looks at a table and changes nothing: how its files lie, what differs between two versions, a page of both."""

from __future__ import annotations

from collections.abc import Sequence

from deltic.arguments import Time, names, whole
from deltic.errors import UnsupportedFeatureError
from deltic.file_layout import SMALL_FILE, Layout
from deltic.maintained import Maintained
from deltic.maintenance import OptimizeResult
from deltic.snapshot import Snapshot

__all__ = ["Inspected"]


class Inspected(Maintained):
    """The verbs of `Table` that look at what its log says."""

    def snapshot(self, version: int | None = None, timestamp: Time | None = None) -> Snapshot:
        """Open a version: see `Table`."""
        raise NotImplementedError

    def layout(self, columns: Sequence[str] | None = None, *, small_file_size: int = SMALL_FILE) -> Layout:
        """Find out how the files of the latest version lie: sizes, skipping, partitions, vectors. See `Layout`.

        Arguments:
            columns: Those to say the skipping of, fields of structs with dots as in `Snapshot.files`. By default all
                partition columns and all columns with bounds.
            small_file_size: Bytes below which a file counts as small.

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
        wanted, small = names(columns, "columns"), whole(small_file_size, "small_file_size", 1)
        snapshot = self.snapshot()
        gain: OptimizeResult | UnsupportedFeatureError
        try:
            gain = self.optimize(dry_run=True)
        except UnsupportedFeatureError as error:
            gain = error
        return Layout.of(snapshot, wanted, SMALL_FILE if small is None else small, gain)
