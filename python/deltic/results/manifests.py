"""What `Table.write_manifests` wrote or would write (`ManifestsResult`)."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from deltic.display.strings import counted, printable

__all__ = ["ManifestsResult"]


@dataclass(frozen=True)
class ManifestsResult:
    """The manifests that were written, or with `dry_run=True` would be.

    `version`: the one whose files they list. `files`: how many they list. `written` and `deleted`: paths of manifests
    below the table; deleted ones are those of partitions that no longer exist.
    """

    dry_run: bool
    version: int
    files: int
    written: list[str]
    deleted: list[str]

    @classmethod
    def parse(cls, text: str, dry_run: bool) -> ManifestsResult:
        """Parse a result of the core."""
        return cls(dry_run=dry_run, **json.loads(text))

    def to_dict(self) -> dict[str, Any]:
        """Return the result as a dict of JSON values."""
        return dict(vars(self))

    def __str__(self) -> str:
        verb = "would be written" if self.dry_run else "written"
        gone = f", {len(self.deleted):,} deleted" if self.deleted else ""
        manifests, files = counted(len(self.written), "manifest"), counted(self.files, "file")
        return printable(f"{manifests} of version {self.version} {verb}{gone}, with {files}")
