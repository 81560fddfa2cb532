"""What a change of rows would do (`Preview`)."""

from __future__ import annotations

import json
from dataclasses import dataclass

__all__ = ["Preview"]


@dataclass(frozen=True)
class Preview:
    """What a change of rows would do to the latest version; nothing was written to find it out.

    `version`: the one that was looked at. `files_total`: its live files. Of these `skipped_by_partition` and
    `skipped_by_statistics` cannot hold a matching row, by what the log says of them, and `files_read` were read to find
    the rows: the columns of the condition, and no others. `files_removed` would go as a whole, unread where the log
    proves that every row matches; `files_marked` would stay and get a deletion vector; `files_rewritten` would be
    written again. `rows`: how many match; None when files that were not read do not say how many rows they have.
    `rows_copied`: how many others would be written again. `bytes_read`: what was read of data files, and what copying
    would read. `bytes_written`: what would be written, estimated from the sizes of the files and the shares of their
    rows.
    """

    version: int
    files_total: int
    skipped_by_partition: int
    skipped_by_statistics: int
    files_read: int
    files_removed: int
    files_marked: int
    files_rewritten: int
    rows: int | None
    rows_copied: int
    bytes_read: int
    bytes_written: int

    @classmethod
    def parse(cls, text: str) -> Preview:
        """Parse a preview as the core describes it."""
        return cls(**json.loads(text))
