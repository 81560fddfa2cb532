"""The result of `Table.purge` (`PurgeResult`), and which old files still have purged rows (`RetainedRows`).

PROTOCOL.md: "Deletion Vectors", "Column Mapping", "Add CDC File".
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any

from deltic.display.instant import instant, shown_time
from deltic.display.strings import counted, html_table, printable, size

__all__ = ["PurgeResult", "RetainedRows"]

_LATEST = datetime.max.replace(tzinfo=timezone.utc)


@dataclass(frozen=True, repr=False)
class RetainedRows:
    """Older versions and files that still have purged rows; a vacuum deletes the files.

    Attributes:
        versions: Versions that can be read and have such a row, or whose changes have one.
        files, bytes: Number and size of the data files with such a row, even if a deletion vector deletes it, and
            including files that the oldest of these versions removed.
        change_files, change_bytes: The same for files of the change data feed.
        paths: All these files, as in the log.
        vacuum_files, vacuum_bytes: Those of them that `Table.vacuum()` would delete now.
        vacuum_from: The time after which it would delete all of them, at most `datetime.max`, None if there is nothing
            to delete. `Table.vacuum(0, force=True)` deletes them at once.
        files_unreadable: Those of all these files for which it is unknown whether they have such rows, since they
            cannot be read, or the condition's columns had other types or were partition columns in their version.
        files_elsewhere: Files that are not below the table, such as those of a clone's source, which a vacuum of this
            table does not delete.
    """

    versions: list[int]
    files: int
    bytes: int
    change_files: int
    change_bytes: int
    paths: list[str]
    vacuum_files: int
    vacuum_bytes: int
    vacuum_from: datetime | None
    files_unreadable: int
    files_elsewhere: int

    @classmethod
    def parse(cls, counts: dict[str, Any]) -> RetainedRows:
        """Parse this part of a result of the core."""
        since = counts.pop("vacuum_from_ms")
        # A time beyond the range of Python's datetimes becomes the latest one.
        return cls(vacuum_from=None if since is None else instant(since) or _LATEST, **counts)

    def to_dict(self) -> dict[str, Any]:
        """Return the result as a dict of JSON values."""
        since = None if self.vacuum_from is None else self.vacuum_from.isoformat()
        return {**vars(self), "vacuum_from": since}

    def lines(self) -> list[tuple[str, str]]:
        """Names and values for display."""
        if not self.paths:
            return [("still in", "nothing that the log names"), _NOT_NAMED]
        versions = f"{counted(len(self.versions), 'version')}, {_ranges(self.versions)}"
        lines = [
            ("still in", versions if self.versions else "no version that can be read"),
            ("data files", f"{counted(self.files, 'file')}, {size(self.bytes)}"),
        ]
        if self.change_files:
            lines.append(("change files", f"{counted(self.change_files, 'file')}, {size(self.change_bytes)}"))
        if self.files_unreadable:
            lines.append(
                (
                    "unreadable",
                    f"{counted(self.files_unreadable, 'file')} cannot be read by the condition, and may hold them",
                )
            )
        lines.append(("vacuum now", f"deletes {counted(self.vacuum_files, 'file')}, {size(self.vacuum_bytes)}"))
        if self.vacuum_from is not None:
            lines.append(
                (
                    "vacuum later",
                    f"deletes all from {shown_time(self.vacuum_from)} on, or at once with a retention of 0 and force",
                )
            )
        if self.files_elsewhere:
            files = counted(self.files_elsewhere, "file")
            lines.append(("elsewhere", f"{files} that are not below the table, which its vacuum keeps"))
        return [*lines, _NOT_NAMED]

    def __repr__(self) -> str:
        return "RetainedRows" + "".join(f"\n  {name}: {value}" for name, value in self.lines())

    def _repr_html_(self) -> str:
        return html_table("Rows that are still in old files", self.lines())


_NOT_NAMED = ("perhaps also", "in files that the log no longer names, which a full vacuum deletes")


def _ranges(versions: list[int]) -> str:
    """Numbers as ranges: `0-4, 7`."""
    found: list[list[int]] = []
    for version in versions:
        if found and found[-1][1] == version - 1:
            found[-1][1] = version
        else:
            found.append([version, version])
    shown = ", ".join(str(first) if first == last else f"{first}-{last}" for first, last in found[:10])
    return shown if len(found) <= 10 else f"{shown}, …"


@dataclass(frozen=True, repr=False)
class PurgeResult:
    """What `Table.purge` did, or with `dry_run=True` would do.

    Attributes:
        dry_run: Whether it was a dry run.
        read_version: The version whose files were considered.
        versions: Versions that were committed, in order; empty if nothing had to be done, and in a dry run.
        files_total: Live files.
        files_with_vectors: Those with deletion vectors.
        files_with_dropped_columns: Others with columns that the table no longer has.
        files_to_rewrite, bytes_to_rewrite: Files that are rewritten for that.
        expected_files: About how many files they become.
        files_lost: Files of these that were kept after all, since another writer changed rows of them, or of files in
            the same bin, meanwhile: the next call considers them again.
        partitions: The files to rewrite by partition, as in `OptimizeResult`.
        metrics: Counters of these commits, as in `OptimizeResult`.
        rows_deleted: Rows that match `where`, None if a file that was not read does not say how many it has.
        files_deleted: Live files with such rows.
        retained: The old versions and files that still have them. Without `where`, these three are None.
    """

    dry_run: bool
    read_version: int
    versions: list[int]
    files_total: int
    files_with_vectors: int
    files_with_dropped_columns: int
    files_to_rewrite: int
    bytes_to_rewrite: int
    expected_files: int
    files_lost: int
    partitions: list[dict[str, Any]]
    metrics: Mapping[str, int]
    rows_deleted: int | None
    files_deleted: int | None
    retained: RetainedRows | None

    @classmethod
    def parse(cls, text: str, dry_run: bool) -> PurgeResult:
        """Parse a result of the core."""
        parsed = json.loads(text)
        deleted, retained = parsed.pop("deleted") or {}, parsed.pop("retained")
        return cls(
            dry_run=dry_run,
            rows_deleted=deleted.get("rows"),
            files_deleted=deleted.get("files"),
            retained=None if retained is None else RetainedRows.parse(retained),
            **parsed,
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the result as a dict of JSON values."""
        return {**vars(self), "retained": None if self.retained is None else self.retained.to_dict()}

    def lines(self) -> list[tuple[str, str]]:
        """Names and values for display."""
        lines = [("looked at", f"version {self.read_version}, {counted(self.files_total, 'file')}")]
        if self.files_deleted is not None:
            rows = "an unknown number of rows" if self.rows_deleted is None else counted(self.rows_deleted, "row")
            verb = "would delete" if self.dry_run else "deleted"
            lines.append((verb, f"{rows} in {counted(self.files_deleted, 'file')}"))
        vectors, dropped = self.files_with_vectors, self.files_with_dropped_columns
        why = f"{vectors:,} with deletion vectors, {dropped:,} with dropped columns"
        verb = "would rewrite" if self.dry_run else "rewrote"
        lines.append((verb, f"{counted(self.files_to_rewrite, 'file')}, {size(self.bytes_to_rewrite)}: {why}"))
        if self.versions:
            lines.append(("committed", "version " + ", ".join(str(version) for version in self.versions)))
        if self.files_lost:
            lines.append(("left out", f"{counted(self.files_lost, 'file')} that other writers got to"))
        if self.retained is not None:
            lines += self.retained.lines()
        return [(name, printable(value)) for name, value in lines]

    def __repr__(self) -> str:
        kind = "(dry run)" if self.dry_run else "()"
        return f"PurgeResult{kind}" + "".join(f"\n  {name}: {value}" for name, value in self.lines())

    def _repr_html_(self) -> str:
        return html_table("PURGE" + (" (dry run)" if self.dry_run else ""), self.lines())
